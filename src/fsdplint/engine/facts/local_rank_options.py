"""Options for the local rank that no launcher passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Call, Trace
from fsdplint.engine.facts.devices import named_devices
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Const, Object, Value

# The options, the one that torch.distributed.launch passes since torch 2.0 first.
OPTIONS = ("--local-rank", "--local_rank")
_TOLD_OTHERWISE = ("LOCAL_RANK", "deepspeed", "lightning", "SLURM", "local_process_index")


@dataclass(frozen=True, slots=True)
class UnsetOption:
    """An option for the local rank that nothing else in the program sets.

    Attributes:
        use: where a device is chosen by it.
    """

    option: Call
    use: Site


def unset_options(program: Program) -> Iterator[UnsetOption]:
    """Options that stay at their default under torchrun, and choose a device."""
    for trace in program.traces:
        options = [call for call in trace.calls("add_argument") if _is_local_rank(call)]
        if not options or _is_told(program, trace, options[0]):
            continue
        parsed = [call.result for call in trace.calls("parse_args", "parse_known_args")]
        for site, value, _ in named_devices(trace):
            if _is_read(value, parsed):
                yield UnsetOption(options[0], site)
                break


def _is_local_rank(call: Call) -> bool:
    given = [each.value for each in call.arguments.args if isinstance(each, Const)]
    return any(option in given for option in OPTIONS)


def _is_told(program: Program, trace: Trace, option: Call) -> bool:
    """Whether the program may know the local rank from elsewhere, or from its launcher."""
    texts = [program.tree(path).text for path in {trace.path, option.site.path}]
    given = [each.value for each in option.arguments.args if isinstance(each, Const)]
    launched = OPTIONS[0] in given and any("distributed.launch" in text for text in texts)
    return launched or any(word in text for word in _TOLD_OTHERWISE for text in texts)


def _is_read(value: Value, parsed: list[Value]) -> bool:
    """Whether a value is the local rank among the options that were parsed."""
    if not isinstance(value, Object) or value.step != ".local_rank":
        return False
    return any(whole in parsed for whole in value.ancestors())
