"""The errors of `knowledge/errors.py` as PyTorch raises them, one by one, in this process."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsdplint.knowledge import errors
from fsdplint.knowledge.errors import KnownError, known
from fsdplint.pages.diagnosis import LEAST, known_errors, literals
from fsdplint.toml import loads

TABLE = Path(errors.__file__).with_name("errors.toml")
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each error come without the variables of a launcher, and leave no process group."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    dist = sys.modules.get("torch.distributed")
    if dist and dist.is_initialized():
        dist.destroy_process_group()


def failure(name: str) -> Callable[..., None]:
    """A function of `failures`, which imports torch: collecting the tests takes seconds less."""
    made: Callable[..., None] = getattr(importlib.import_module("failures"), name)
    return made


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("no_launcher", "environment variable … expected, but not set"),
        ("port_in_use", "The server socket has failed to listen on any local network address."),
        ("too_few_clients", "Timed out after … seconds waiting for clients."),
        ("no_host", "The client socket has timed out after …"),
        ("no_nccl", "Distributed package doesn't have NCCL built in"),
        ("mesh_too_large", "Mesh should not be bigger than default world size"),
        ("too_few_replicas", "Invalid rank …, rank should be in the interval"),
        ("trainable_integers", "Only Tensors of floating point and complex dtype can"),
        ("integers", "Must flatten tensors with uniform dtype"),
        ("several_dtypes", "FSDP expects uniform original parameter dtype"),
        ("scalar", "doesn't support scalar parameters."),
        ("scalar_in_fsdp1", "doesn't support scalar parameters."),
        ("uneven", "FSDP does not support uneven sharding on dim"),
        ("wrapped_twice", "FSDP auto wrapping requires modules to not already have FSDP applied"),
        ("hybrid_without_groups", "Manual wrapping with ShardingStrategy."),
        ("moved_from_meta", "Cannot copy out of meta tensor"),
        ("never_materialized", "FSDP parameters should be materialized from meta device"),
        ("mixed_in_a_convolution", "expected scalar type"),
        ("mixed_in_a_layer", "expected m1 and m2 to have the same dtype"),
        ("added_across_meshes", "on inputs with different meshes: got"),
        ("clipped_across_meshes", "have the same mesh, but got"),
        ("parallelized_last", "Cannot distribute a DTensor with device mesh"),
        ("no_such_dimension", "Invalid mesh_dim_name"),
        ("hybrid_on_one_dimension", "Expected device_mesh to have ndim=2 but got 1"),
        ("policy_of_fsdp2", "'MixedPrecisionPolicy' object has no attribute"),
        ("scaled_halves", "Attempting to unscale FP16 gradients"),
        ("scaled_without_gradients", "No inf checks were recorded for this optimizer"),
        ("recomputed_differently", "Recomputed values for the following tensors"),
    ],
)
def test_an_error_of_pytorch_is_known(fails: str, message: str) -> None:
    with pytest.raises(Exception) as error:
        failure(fails)()
    found = [each.error.message for each in known_errors(str(error.value))]
    assert [each[: len(message)] for each in found] == [message]


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("no_such_gpu", "Attempting to deserialize object on"),
        ("other_shapes", "Size mismatch between saved torch.Size(…) and current: torch.Size(…)"),
        ("missing_key", "Missing key in checkpoint state_dict:"),
        ("not_only_weights", "Weights only load failed."),
    ],
)
def test_an_error_about_a_file_is_known(tmp_path: Path, fails: str, message: str) -> None:
    from torch.distributed.checkpoint.api import CheckpointException

    with pytest.raises((Exception, CheckpointException)) as error:
        failure(fails)(tmp_path)
    found = [each.error.message for each in known_errors(str(error.value))]
    assert [each[: len(message)] for each in found] == [message]


@pytest.mark.parametrize("error", known(), ids=lambda error: error.message[:40])
def test_an_entry_of_the_table_is_known_where_it_should_be(error: KnownError) -> None:
    log = error.message.replace("…", " anything ")
    for near in error.near or ("",):
        causes = known_errors(f"{near}\n{log}")
        assert error.cause in [each.error.cause for each in causes]
    assert sum(map(len, literals(error.message))) >= LEAST or error.near


def test_an_entry_says_where_it_is_from() -> None:
    rows = loads(TABLE.read_text("utf-8"))["error"]
    keys = {key for row in rows for key in row}
    assert keys == {"message", "near", "last", "cause", "cure", "from"}
    sources = [row["from"] for row in rows]
    assert "raised" in sources
    pattern = re.compile(r"[\w.-]+/[\w.-]+#\d+|accelerate \d+\.\d+|raised")
    assert [source for source in sources if not pattern.fullmatch(source)] == []


def test_what_stands_near_tells_causes_apart() -> None:
    hang = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=_ALLGATHER_BASE)"
    )
    evaluated = known_errors(f"in evaluation_loop\n{hang}")
    assert [each.error.near != () for each in evaluated] == [True, False]
    assert evaluated[0].error.cause.startswith("Some ranks have more evaluation batches")
    assert [each.error.near for each in known_errors(hang)] == [()]


def test_a_consequence_is_named_where_nothing_else_is() -> None:
    stopped = "Sending process 7 closing signal SIGTERM"
    (alone,) = known_errors(stopped)
    assert alone.error.last
    (cause,) = known_errors(f"torch.OutOfMemoryError: CUDA out of memory.\n{stopped}")
    assert cause.error.message.startswith("CUDA out of memory")


def test_two_texts_of_one_cause_are_told_once() -> None:
    listening = "The server socket has failed to listen on any local network address."
    assert len(known_errors(f"{listening}\nAddress already in use")) == 1
