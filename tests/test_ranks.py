"""The rank pool reports every way a rank can end, in time, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import Ranks, report
from waiting import LONG, comes

ALL_REDUCE = """
import os
import torch
import torch.distributed as dist

total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} sees {total.item():g}")
"""


@pytest.mark.parametrize(("world_size", "total"), [(1, 1), (2, 3), (3, 6)])
def test_ranks_share_a_process_group(ranks: Ranks, world_size: int, total: int) -> None:
    outcomes = ranks.run(ALL_REDUCE, world_size=world_size)
    assert report(outcomes) == ""
    assert [o.output for o in outcomes] == [
        f"rank {rank} of {world_size} sees {total}\n" for rank in range(world_size)
    ]


def test_a_failure_on_one_rank_is_that_ranks(ranks: Ranks) -> None:
    code = "import os\nassert os.environ['RANK'] != '1', 'only here'\nprint('done')"
    first, second = ranks.run(code)
    assert (first.error, first.output) == ("", "done\n")
    assert second.error.endswith("AssertionError: only here")


def test_traceback_names_file_and_line(ranks: Ranks, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# heading\n\n1 / 0  # in the page\n")
    (only,) = ranks.run("\n\n1 / 0", path=str(page), world_size=1)
    assert f'File "{page}", line 3' in only.error
    assert "1 / 0  # in the page" in only.error


def test_a_hang_is_reported_with_its_stack_within_the_timeout(ranks: Ranks) -> None:
    code = "import torch.distributed as dist\nif dist.get_rank() == 0: dist.barrier()\nelse:\n"
    for timeout in 2, 20, 200:  # a busy machine takes longer until the ranks are there
        outcomes = ranks.run(f"{code}    import time\n    time.sleep(600)", timeout=timeout)
        if "in barrier" in outcomes[0].error and "line 5" in outcomes[1].error:
            break
    assert all(o.error.startswith(f"timed out after {timeout} s\nFatal") for o in outcomes)
    assert "in barrier" in outcomes[0].error
    assert 'File "<ranks>", line 5 in <module>' in outcomes[1].error


def test_a_rank_that_waits_for_a_dead_one_is_stopped_early(ranks: Ranks) -> None:
    code = "import os, time\nif os.environ['RANK'] == '0': raise SystemExit(7)\ntime.sleep(600)"
    started = time.monotonic()
    first, second = ranks.run(code, process_group=False, timeout=2 * LONG)
    assert time.monotonic() - started < LONG
    assert first.error == "exit status 7"
    assert second.error.startswith("stopped, since another rank failed")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("sys.exit()", ""),
        ("sys.exit(0)", ""),
        ("sys.exit('why')", "exit status 1"),
        ("os.kill(os.getpid(), 9)", "died by SIGKILL"),
        ("os._exit(3)", "exit status 3"),
    ],
)
def test_every_end_has_a_name(ranks: Ranks, statement: str, error: str) -> None:
    (only,) = ranks.run(f"import os, sys\n{statement}", world_size=1, process_group=False)
    assert only.error == error


def test_a_crash_shows_where(ranks: Ranks) -> None:
    code = "import ctypes\nctypes.string_at(0)"
    (only,) = ranks.run(code, world_size=1, process_group=False)
    assert only.error.startswith("died by SIGSEGV\nFatal Python error: Segmentation fault")
    assert 'File "<ranks>", line 2 in <module>' in only.error


def test_ranks_of_a_request_share_a_folder_that_goes_with_it(ranks: Ranks) -> None:
    code = """
import os, torch.distributed as dist
open(f"{dist.get_rank()}.txt", "w").close()
dist.barrier()
print(os.getcwd(), *sorted(os.listdir()))
"""
    first, second = (o.output.split() for o in ranks.run(code))
    assert first == second
    assert first[1:] == ["0.txt", "1.txt"]
    assert not Path(first[0]).exists()


def test_code_is_the_main_module_with_its_arguments(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("value = 42\n")
    code = """
import pickle, sys
from helper import value
class Here: pass
assert type(pickle.loads(pickle.dumps(Here()))) is Here
print(__name__, __file__, *sys.argv[1:], value)
"""
    script = tmp_path / "script.py"
    (only,) = ranks.run(
        code, path=str(script), world_size=1, arguments=["--steps", "2"], process_group=False
    )
    assert (only.error, only.output) == ("", f"__main__ {script} --steps 2 42\n")


def test_requests_do_not_see_each_other(ranks: Ranks) -> None:
    ranks.run("import os, torch\nos.environ['LEFT'] = '1'\ntorch.left = 1\nmine = 1")
    code = "import os, torch\nassert 'LEFT' not in os.environ\nassert not hasattr(torch, 'left')"
    assert report(ranks.run(f"{code}\nassert 'mine' not in globals()")) == ""


def test_what_a_rank_started_ends_with_it(ranks: Ranks) -> None:
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)"
    (only,) = ranks.run(code, world_size=1, process_group=False)
    assert _ends(int(only.output))


def test_closing_ends_the_server_and_what_it_runs() -> None:
    with Ranks(preloaded=()) as pool:
        code = "import os\nprint(os.getppid())"
        (only,) = pool.run(code, world_size=1, process_group=False)
        server = int(only.output)
        os.kill(server, 0)
    assert _ends(server)


def test_ranks_end_with_a_killed_caller(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hang = f"import os, time\nopen({str(note)!r}, 'w').write(f'{{os.getpid()}}.')\ntime.sleep(600)"
    call = f"Ranks(preloaded=()).run({hang!r}, world_size=1, process_group=False)"
    with subprocess.Popen(
        [sys.executable, "-c", f"from ranks import Ranks\n{call}"], cwd=Path(__file__).parent
    ) as caller:
        assert comes(lambda: note.exists() and note.read_text().endswith("."))
        caller.kill()
    assert _ends(int(note.read_text()[:-1]))


def test_a_dead_server_is_an_error_and_not_a_hang() -> None:
    with Ranks(preloaded=()) as pool:
        code = "import os\nprint(os.getppid())"
        (only,) = pool.run(code, world_size=1, process_group=False)
        os.kill(int(only.output), 9)
        with pytest.raises(RuntimeError, match="the rank server ended with status -9"):
            pool.run("")


def _ends(pid: int) -> bool:
    """Whether the process comes to be gone, or a zombie of a parent that does not reap."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    return comes(ended)
