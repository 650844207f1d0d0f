"""Other processes lower what the run would, and nothing but the time depends on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import placed, write
from waiting import comes

from fsdplint.check import check
from fsdplint.engine.frontend import lower_statements, parallel
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.frontend.parallel import Workers
from fsdplint.process.child import command
from fsdplint.settings.config import defaults

TEXTS = [f"from a import b\n\n\ndef f_{n}():\n    return b({n}, 'é')\n" for n in range(5)]


def wait_for(done: Callable[[], bool]) -> None:
    assert comes(done)


def all_lowered(texts: list[str], count: int = 2) -> tuple[Workers, IRCache]:
    """What ``count`` processes made of ``texts``, and they are done."""
    kept = IRCache({})
    workers = Workers(texts, kept)
    workers.start(count)
    for _, thread in workers.served:
        thread.join(60)
    return workers, kept


def test_what_they_lower_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, kept = all_lowered(TEXTS)
    assert [process.returncode for process, _ in workers.served] == [0, 0]
    expected = [placed(lower(text, "x.py")) for text in TEXTS]
    monkeypatch.setattr(lower_statements, "parse", None)
    assert [placed(lower(text, "x.py", kept)) for text in TEXTS] == expected
    assert kept.used == kept.parallel
    assert kept.has_new


def test_a_file_that_is_no_python_is_left_to_the_run() -> None:
    _, kept = all_lowered(["def f(:\n", *TEXTS], 1)
    assert len(kept.parallel) == len(TEXTS)


@pytest.mark.parametrize(
    "code", ["raise SystemExit", "import os; os.kill(os.getpid(), 9)", "print()"]
)
def test_processes_that_end_are_done_without(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "command", lambda _: [sys.executable, "-c", code])
    workers, kept = all_lowered(TEXTS)
    for text in TEXTS:
        workers.wait_for(text)
    assert (kept.parallel, workers.begun) == ({}, set())


@pytest.mark.parametrize("python", [None, "", "/nowhere/python"])
def test_without_a_python_to_start_there_are_none(
    python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    workers, kept = all_lowered(TEXTS)
    workers.wait_for(TEXTS[0])
    assert (workers.served, kept.parallel) == ([], {})


def test_what_is_begun_is_waited_for_until_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time; time.sleep(600)"
    monkeypatch.setattr(parallel, "command", lambda _: [sys.executable, "-c", code])
    workers = Workers(TEXTS, IRCache({}))
    workers.start(1)
    wait_for(lambda: workers.begun == {TEXTS[0]})
    workers.wait_for(TEXTS[1])
    assert (workers.taken, workers.begun) == ({TEXTS[1]}, {TEXTS[0]})
    (process, _), *_ = workers.served
    process.kill()
    workers.wait_for(TEXTS[0])
    workers.stop()
    assert not workers.waiting
    assert process.returncode == -signal.SIGKILL


def test_what_the_run_has_come_to_is_left_out() -> None:
    kept = IRCache({})
    workers = Workers(TEXTS, kept)
    workers.wait_for(TEXTS[0])
    workers.wait_for(TEXTS[3])
    workers.start(1)
    workers.served[0][1].join(60)
    assert len(kept.parallel) == len(TEXTS) - 2


def test_without_a_thread_there_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(parallel.Thread, "start", refuse)
    workers, kept = all_lowered(TEXTS)
    workers.stop()
    assert (workers.served, kept.parallel) == ([], {})


def test_no_variable_has_anything_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _, kept = all_lowered(TEXTS, 1)
    assert len(kept.parallel) == len(TEXTS)
    assert not (tmp_path / "ran").exists()


def test_a_process_ends_with_its_input_and_not_by_an_interrupt() -> None:
    started = command(parallel.__name__)
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'"x = 1"\n')
        process.stdin.flush()
        row = process.stdout.readline().decode()
        os.kill(process.pid, signal.SIGINT)
        process.stdin.write(b'"x = 1"\n"("\n')
        process.stdin.close()
        assert process.stdout.read().decode() == f"{row}\n"
    assert (row, process.returncode) == (f"{parallel._row('x = 1')}\n", 0)


@pytest.mark.parametrize(
    ("cores", "characters", "count"),
    [(1, 10**9, 0), (2, 10**9, 1), (64, 10**9, 4), (64, 1_999_999, 0), (64, 4_000_000, 2)],
)
def test_there_are_as_many_as_pay(
    cores: int, characters: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: cores)
    assert parallel._processes(characters) == count


def test_a_check_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsdplint.cache.ir_pack import Packs

    monkeypatch.setenv("FSDPLINT_CACHE_DIR", str(tmp_path / "cache"))
    files = {
        f"train_{n}.py": """\
            from torch.distributed.fsdp import fully_shard
            from build import build

            model = build()
            fully_shard(model)
            model.forward(1)
            """
        for n in range(8)
    }
    files["build.py"] = "import torch\n\n\ndef build():\n    return torch.nn.Linear(8, 8)\n"
    write(tmp_path / "project", files)
    alone = check([tmp_path / "project"], defaults())
    started: list[int] = []
    start = Workers.start

    def noted(self: Workers, count: int) -> None:
        start(self, count)
        started.append(len(self.served))

    monkeypatch.setattr(Workers, "start", noted)
    monkeypatch.setattr(parallel, "_cores", lambda: 3)
    monkeypatch.setattr(parallel, "_CHARACTERS_EACH", 100)
    packs = Packs()
    together = check([tmp_path / "project"], defaults(), packs=packs)
    assert together.findings == alone.findings
    assert (len(alone.findings), started) == (8, [2])
    packs.save()
    again = check([tmp_path / "project"], defaults(), packs=Packs())
    assert (again.findings, started) == (alone.findings, [2])  # and none where all is known
