"""Options for the local rank that the program never sets and that choose a device.

Options are argparse's, and the fields of dataclasses that a parser fills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.devices import named_devices
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.options import parsed
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Value,
    contained,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.launch import (
    FROM_DATACLASSES,
    PARSES,
)
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD103",
    summary="the device comes from a `--local_rank` option, which torchrun does not pass",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


# The options, the one that torch.distributed.launch passes since torch 2.0 first.
OPTIONS = ("--local-rank", "--local_rank")
_NAME = "local_rank"
_TOLD_OTHERWISE = ("LOCAL_RANK", "deepspeed", "lightning", "SLURM", "local_process_index")


@dataclass(frozen=True, slots=True)
class Option:
    """An option for the local rank.

    Attributes:
        site: where it is declared: a call, or a field of a class.
        default: the expression in the code, None if there is none.
        holders: the objects that hold its value after parsing, as an attribute or item.
        name: its name in these.
        dashed: it has the spelling that torch.distributed.launch passes.
    """

    site: Site
    default: ir.Expr | None
    holders: tuple[Value, ...] = ()
    name: str = _NAME
    dashed: bool = False

    @property
    def is_added(self) -> bool:
        """True if a call of argparse declares it."""
        return isinstance(self.site.node, ir.Call)

    @property
    def is_required(self) -> bool:
        """True if argparse refuses a command line without it."""
        given = argument(self.site.node, KEYWORD_ONLY, "required")
        required = None if given is None else given.value
        return isinstance(required, ir.Constant) and required.value is True

    @property
    def spelling(self) -> str:
        """Its name on the command line."""
        return OPTIONS[0] if self.dashed else OPTIONS[1]

    def is_read(self, value: Value) -> bool:
        """True if a value is the value of the option."""
        if not isinstance(value, Object):
            return False
        named = value.step in (f".{self.name}", f"[{self.name!r}]")
        return named and any(whole in self.holders for whole in value.ancestors())


@dataclass(frozen=True, slots=True)
class UnsetOption:
    """An option for the local rank that nothing else in the program sets.

    Attributes:
        use: where it chooses a device.
    """

    option: Option
    use: Site


def unset_options(program: Program) -> Iterator[UnsetOption]:
    """Yield options that keep their default under torchrun and choose a device."""
    for trace in program.traces:
        options = [o for o in (*_added(trace), *_fields(trace)) if not _is_told(program, trace, o)]
        for site, value, _ in named_devices(trace) if options else ():
            option = next((each for each in options if each.is_read(value)), None)
            if option is not None:
                yield UnsetOption(option, site)
                break


def _is_told(program: Program, trace: Trace, option: Option) -> bool:
    """True if the program may get the local rank from elsewhere, or from its launcher."""
    texts = [program.tree(path).text for path in {trace.path, option.site.path}]
    launched = option.dashed and any("distributed.launch" in text for text in texts)
    return launched or any(word in text for word in _TOLD_OTHERWISE for text in texts)


def _added(trace: Trace) -> Iterator[Option]:
    """Yield options that `add_argument` adds to a parser."""
    for call in trace.calls("add_argument"):
        texts = _texts(call)
        if any(option in texts for option in OPTIONS):
            holders = parsed(trace.calls(*PARSES))
            dest = call.argument(KEYWORD_ONLY, "dest")
            name = str(dest.value) if isinstance(dest, Const) else _NAME
            dashed = OPTIONS[0] in texts
            yield Option(call.site, _written(call.site.node), holders, name, dashed)


def _written(call: ir.Node) -> ir.Expr | None:
    """Return the default that a call gives an option."""
    given = argument(call, KEYWORD_ONLY, "default")
    return None if given is None else given.value


def _fields(trace: Trace) -> Iterator[Option]:
    """Yield fields with a constant default, of the classes that a parser gets."""
    for call in trace.calls(*FROM_DATACLASSES):
        given = call.arguments.get(*FROM_DATACLASSES[call.name])
        classes = [each for each in contained(given or call.result) if isinstance(each, ClassValue)]
        read = [each for each in trace.calls(*PARSES) if each.receiver is call.result]
        for cls in classes:
            for node in cls.node.body:
                named = isinstance(node, ir.Assign) and _is_named(node.targets[0])
                default = _constant(node.value) if isinstance(node, ir.Assign) and named else None
                if default is not None:
                    site = Site(cls.scope.unit.path, node)
                    yield Option(site, default, parsed([call, *read]))


def _is_named(target: ir.Expr) -> bool:
    return isinstance(target, ir.Name) and target.id == _NAME


def _constant(default: ir.Expr | None) -> ir.Expr | None:
    """Return a constant default such as ``0``, also in ``field(default=0)``."""
    if isinstance(default, ir.Call):
        default = _written(default)
    return default if isinstance(default, ir.Constant) else None


def _texts(call: Call) -> list[object]:
    """Return the names of the option, which are positional arguments."""
    return [each.value for each in call.arguments.args if isinstance(each, Const) and each.value]


def reports(program: Program) -> Iterator[Report]:
    for fact in unset_options(program):
        site = fact.option.site
        used = program.text(fact.use.path, fact.use.node)
        yield Report(
            program.span(site),
            "torchrun sets the `LOCAL_RANK` environment variable but does not pass "
            f"`{fact.option.spelling}`: {_harm(fact, used)}",
            "torchrun does not pass this option",
            (program.evidence(fact.use, "selects the device"),),
            partial(_fix, program, fact),
        )


def _harm(fact: UnsetOption, used: str) -> str:
    if fact.option.is_required:
        return "every process exits with a usage error"
    return f"`{used}` keeps its default, so all processes of a node get the same device"


def _fix(program: Program, fact: UnsetOption) -> Fix | Declined:
    option = fact.option
    code = Code.of(program.tree(option.site.path))
    if option.is_added:
        return default_from_environment(code, option.site.node)
    return own_default_from_environment(code, option.site.node, option.default)


_TITLE = "default to the `LOCAL_RANK` environment variable"
_VARIABLE = '"LOCAL_RANK"'
# Keywords with which argparse treats a string default like a passed value.
_PLAIN = frozenset({None, "default", "dest", "help", "metavar", "required", "type"})


@builder
def default_from_environment(code: Code, option: ir.Node) -> Fix:
    """Make ``LOCAL_RANK`` the default of an option of argparse."""
    assert isinstance(option, ir.Call)
    if any(each.star for each in option.args):
        raise NoFixError(f"`{code.short(option)}` unpacks its arguments; read `LOCAL_RANK` by hand")
    given = {each.keyword: each.value for each in option.args}
    imports = Imports(code, option)
    environ = f"{imports.module('os', 'os')}.environ"
    default, required = given.get("default"), given.get("required")
    text, safe = _default(code, default, "type" in given, imports, environ)
    edits = [_put(code, option, default, text)]
    off = isinstance(required, ir.Constant) and not required.value
    if required is not None and not off:
        asked = "" if isinstance(required, ir.Constant) else f"({code.slice(required)}) and "
        asked += f"{_VARIABLE} not in {environ}"
        edits.append(code.edit(required.start, required.end, asked))
    typed = "type" not in given or code.slice(given["type"]) == imports.builtin("int")
    safe = safe and typed and given.keys() <= _PLAIN
    return Fix(_TITLE, Safety.SAFE if safe else Safety.UNSAFE, (*edits, *imports.edits()))


def _default(
    code: Code, old: ir.Expr | None, converted: bool, imports: Imports, environ: str
) -> tuple[str, bool]:
    """Return the new default, and whether it has the type of the old or of a passed value.

    Args:
        converted: argparse applies a type to strings, passed ones and the default.
    """
    value = old.value if isinstance(old, ir.Constant) else None
    if old is None or (isinstance(old, ir.Constant) and value is None):
        return f"{environ}.get({_VARIABLE})", converted
    if isinstance(value, str):
        return f"{environ}.get({_VARIABLE}, {code.slice(old)})", True
    return _number(code, old, imports, environ)


def _number(code: Code, old: ir.Expr, imports: Imports, environ: str) -> tuple[str, bool]:
    """Return the number in the environment or else ``old``, and whether ``old`` is a number."""
    convert = imports.builtin("int")
    if isinstance(old, ir.Constant) and type(old.value) is int:
        return f"{convert}({environ}.get({_VARIABLE}, {code.slice(old)}))", True
    there = f"{convert}({environ}[{_VARIABLE}]) if {_VARIABLE} in {environ}"
    return f"{there} else {code.slice(old)}", False


def _put(code: Code, option: ir.Call, old: ir.Expr | None, text: str) -> Edit:
    if old is None:
        return add_argument(code, option, f"default={text}")
    return code.edit(old.start, old.end, text)


@builder
def own_default_from_environment(code: Code, option: ir.Node, default: ir.Expr | None) -> Fix:
    """Make ``LOCAL_RANK`` the default of a field."""
    if default is None:
        raise NoFixError(
            f"`{code.short(option)}` has no default; read the local rank from `LOCAL_RANK` by hand"
        )
    imports = Imports(code, option)
    text, safe = _number(code, default, imports, f"{imports.module('os', 'os')}.environ")
    edits = (code.edit(default.start, default.end, text), *imports.edits())
    return Fix(_TITLE, Safety.SAFE if safe else Safety.UNSAFE, edits)
