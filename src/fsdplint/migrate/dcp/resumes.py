"""`torch.load` of a checkpoint to `dcp.load`, beside which files of `torch.save` load as before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.state_files import plain_loads
from fsdplint.files.lexing import indented
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument, argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.edits import apply
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import binders, clash, dotted, fresh, names_in
from fsdplint.knowledge.checkpoints import CHECKPOINT, HELPERS
from fsdplint.migrate.dcp.guards import is_rank_test
from fsdplint.migrate.dcp.plain import template
from fsdplint.migrate.dcp.reads import Load, Taken, argument
from fsdplint.migrate.dcp.saves import in_lines, is_open_file
from fsdplint.migrate.dcp.states import kept_options, last_given, with_options
from fsdplint.migrate.dcp.writes import Entry, Write
from fsdplint.migrate.step import Change, Context

# A program with one of them may load into parameters that have no memory yet.
_META = ('"meta"', "'meta'", "init_empty_weights")


def resumed(context: Context, load: Load, write: Write) -> Change:
    """Return the change of a load of what ``write`` writes.

    Raises:
        NoFixError: something stands in the way.
        UndecidedError: a question has to be answered first.
    """
    _check(load)
    code, call, place = load.code, load.call, load.place
    imports = Imports(code, call)
    dcp, os = imports.module(CHECKPOINT, "dcp"), imports.module("os", "os")
    kind = write.kind if write.kind == "checkpoint" else f"{write.kind}_state"
    name = load.name or fresh(code, call, kind)
    flag = fresh(code, call, "is_file")
    path = code.slice(load.path) if dotted(load.path) else fresh(code, call, f"{write.kind}_path")
    unit, newline = code.unit, code.newline
    lines = [] if dotted(load.path) else [f"{path} = {in_lines(code, load.path)}"]
    lines += [f"{flag} = {os}.path.isfile({path})", f"if {flag}:  # written by torch.save"]
    lines += [indented(f"{name} = {_mapped(code, call, load.path, path)}", unit), "else:"]
    made = list(_template(context, load, write, imports))
    if any(context.codes(*_META)):
        lines += [f"{unit}{line}" for line in _materialized(load, write, unit)]
    lines += [f"{unit}{line}" for line in _display(name, made, unit)]
    edits, below = _uses(context, load, write, flag, imports)
    lines += [f"{unit}{dcp}.load({name}, checkpoint_id={path})", *below]
    text = indented("".join(f"{line}{newline}" for line in lines), code.indentation(place))
    if load.helped is not None:
        edits += _widened(code, load.helped.test, f"not {flag}")
    start, end = code.extent(place)
    if load.name:
        comments = code.text[start : code.line_start(code.head(place))]
        edits.append(code.edit(start, end, comments + text))
    else:
        edits += [code.insert_lines(start, text), code.edit(call.start, call.end, name)]
    span = code.span(call)
    what = f"read `{code.short(load.path)}` with `dcp.load`, or with `torch.load` if it is a file"
    differs = "files saved so far hold the shards of one rank only" if write.is_raw else ""
    return Change(span, what, tuple(dict.fromkeys(edits)), (imports,), differs)


def _check(load: Load) -> None:
    """Raise `NoFixError` if a load cannot become one of every rank."""
    code, place = load.code, load.place
    if load.whole is not None:
        raise NoFixError(
            f"`{code.short(code.statement(load.whole))}` hands on the whole checkpoint, so its "
            "keys are not known here; load it where they are read"
        )
    if is_open_file(code, load.path):
        raise NoFixError("it reads an open file; give `torch.load` the path")
    for above in code.ancestors(place):
        if isinstance(above, ir.If) and is_rank_test(code, above.test, frozenset()):
            raise NoFixError(f"only some ranks load; move the load out of `{code.short(above)}`")
    if not code.alone(place) or code.is_elif(place):
        raise NoFixError("the load shares its line with other code; give it a line of its own")


def _widened(code: Code, test: ir.Expr, other: str) -> list[Edit]:
    """Return the edits that make a test true in another case, too."""
    simple = dotted(test) is not None or isinstance(test, ir.Call)
    start, end = ("", "") if simple else ("(", ")")
    return [
        code.edit(test.start, test.start, start),
        code.edit(test.end, test.end, f"{end} or {other}"),
    ]


def _mapped(code: Code, call: ir.Call, path: ir.Expr, name: str) -> str:
    """Return the text of the old load, which reads of the file only what a rank needs."""
    edits = [code.edit(path.start, path.end, name)]
    for keyword in ("mmap", "weights_only"):
        if not any(each.keyword == keyword for each in call.args):
            edits.append(add_argument(code, call, f"{keyword}=True"))
    text = apply(code.text, edits)
    text = text[call.start : len(text) - (len(code.text) - call.end)]
    return text.replace(f"\n{code.indentation(code.statement(call))}", "\n")


def _materialized(load: Load, write: Write, unit: str) -> Iterator[str]:
    """Yield the lines that give memory to parameters on the meta device, which DCP fills."""
    for key, kind in write.kinds.items():
        taken = [each for each in load.taken if each.key == key and each.kind]
        if kind == "model" and taken:
            model = load.code.slice(_owners(load, write, taken[0])[0])
            device = fresh(load.code, load.call, "model_device")
            module = fresh(load.code, load.call, "module")
            yield f"{device} = next({model}.parameters()).device_mesh.device_type"
            yield f"for {module} in {model}.modules():"
            yield f"{unit}if any(p.is_meta for p in {module}.parameters(recurse=False)):"
            yield f"{unit * 2}{module}.to_empty(device={device}, recurse=False)"


@dataclass(frozen=True, slots=True)
class _Item:
    """A key of what is loaded, with the text of its value and of the test that it depends on."""

    key: str
    text: str
    test: str


def _display(name: str, items: Sequence[_Item], unit: str) -> Iterator[str]:
    if [item.key for item in items] == [""]:
        yield f"{name} = {items[0].text}"
        return
    yield f"{name} = {{"
    yield from (f'{unit}"{item.key}": {item.text},' for item in items if not item.test)
    yield "}"
    for item in items:
        if item.test:
            yield f"if {item.test}:"
            yield f'{unit}{name}["{item.key}"] = {item.text}'


def _template(context: Context, load: Load, write: Write, imports: Imports) -> Iterator[_Item]:
    """Yield the keys that a program reads, with a value of the kind that is saved."""
    # Of several uses, the one whose call says most is enough.
    order = ("", "object", "optimizer", "model")
    taken = {each.key: each for each in sorted(load.taken, key=lambda each: order.index(each.kind))}
    for entry in write.entries:
        found = taken.pop(entry.key, None)
        if found is None:
            continue
        test = _test(load, found, write)
        if entry.sometimes and not test:
            raise NoFixError(
                f'`"{entry.key}"` is saved in some cases only, and DCP loads no key that is not '
                "there; save it always"
            )
        yield _Item(entry.key, _value(context, load, found, entry, imports, write), test)
    lost = [key for key, each in taken.items() if isinstance(each.node, ir.Subscript)]
    if lost:
        raise NoFixError(f"`{lost[0]}` is read from the checkpoint, but nothing saves it")


def _test(load: Load, taken: Taken, write: Write) -> str:
    """Return the conditions of a load that ask for what it loads into, such as an optimizer.

    Raises:
        NoFixError: it is the other branch that loads.
    """
    code, call = load.code, taken.call
    if call is None or not taken.kind:
        return ""
    owners = {code.slice(_receiver(call))} if taken.kind == "object" else set()
    if taken.kind != "object":
        owners = {code.slice(each) for each in _owners(load, write, taken) if each is not None}
    found: list[str] = []
    inner: ir.Node = call
    for above in code.ancestors(call):
        if above in code.ancestors(load.place):
            break
        for part in ir.operands(above.test, "and") if isinstance(above, ir.If) else ():
            reads = names_in(part).reads
            if reads & owners and not clash(reads, [load.name]):
                if isinstance(above, ir.If) and inner not in above.body:
                    raise NoFixError(f"`{code.short(part)}` decides what is loaded; load before it")
                found.insert(0, code.slice(part))
        inner = above
    return " and ".join(dict.fromkeys(found))


def _value(
    context: Context, load: Load, taken: Taken, entry: Entry, imports: Imports, write: Write
) -> str:
    code = load.code
    if entry.state is None:
        if taken.kind == "object" and taken.call is not None:
            owner = _receiver(taken.call)
            _check_bound(code, load, owner)
            return f"{code.slice(owner)}.state_dict()"
        return template(context, load.code, taken, entry, write)
    model, optimizer = _owners(load, write, taken)
    for each in (model, optimizer):
        if each is not None:
            _check_bound(code, load, each)
    kind = "model" if optimizer is None else "optimizer"
    getter = imports.name(HELPERS, f"get_{kind}_state_dict")
    given = ", ".join(code.slice(each) for each in (model, optimizer) if each is not None)
    return f"{getter}({given}{with_options(entry.state.options, imports)})"


def _receiver(call: ir.Call) -> ir.Expr:
    assert isinstance(call.func, ir.Attribute)
    return call.func.value


def _owners(load: Load, write: Write, taken: Taken) -> tuple[ir.Expr, ir.Expr | None]:
    """Return the model that a state is loaded into, and the optimizer if it is one's.

    Raises:
        NoFixError: the program does not show it.
    """
    call, of_optimizer = taken.call, write.kinds[taken.key] == "optimizer"
    if call is None or not taken.kind:
        raise NoFixError(
            f"it is not known what `{load.code.short(taken.node)}` is loaded into; load it with "
            "the state dict helpers, then migrate again"
        )
    if taken.kind == "object":
        owner = _receiver(call)
        return (_model(load, write), owner) if of_optimizer else (owner, None)
    model = argument(call, 0, "model")
    return model, argument(call, 1, "optimizers") if of_optimizer else None


def _model(load: Load, write: Write) -> ir.Expr:
    """Return the model that the same code loads.

    Raises:
        NoFixError: there is none.
    """
    for each in load.taken:
        if each.call is not None and each.kind == "model":
            return argument(each.call, 0, "model")
    owners = [
        _receiver(each.call)
        for each in load.taken
        if each.call is not None and each.kind == "object" and write.kinds.get(each.key) == "model"
    ]
    if len(owners) != 1:
        raise NoFixError("the model of the optimizer is not known here; load its state by hand")
    return owners[0]


def _check_bound(code: Code, load: Load, owner: ir.Expr) -> None:
    """Raise `NoFixError` if what is loaded into is not there yet where the file is read."""
    path = dotted(owner)
    if path is None:
        raise NoFixError(f"`{code.short(owner)}` has no name; give it one before the load")
    root, scope = path.split(".")[0], code.function(load.call) or code.module
    bound = [each.start for each in binders(code, scope).get(root, [])]
    if bound and min(bound) > load.place.start:
        raise NoFixError(
            f"the file is read before `{root}` is built, and DCP loads into what is there; read "
            f"it below, and what is needed earlier from a file of its own"
        )


def _uses(
    context: Context, load: Load, write: Write, flag: str, imports: Imports
) -> tuple[list[Edit], list[str]]:
    """Return the edits of the code that takes state, and the lines that it needs below the load."""
    code = load.code
    sharded = {fact.call.site.node for fact in plain_loads(context.program)}
    edits: list[Edit] = []
    others: dict[ir.Call, str] = {}
    for taken in load.taken:
        call = taken.call
        if taken.choice is not None:
            edits.append(code.edit(taken.choice.start, taken.choice.end, code.slice(taken.node)))
        made = None if call is None else _made(code, load, call)
        if made is not None and taken.kind in ("model", "optimizer"):
            edits += _flagged(code, made, flag)
        elif call is not None and taken.kind in ("model", "optimizer"):
            others[call] = _options(context, code, call, flag)
        elif call is not None and taken.kind == "object" and call in sharded:
            others[call] = f"full_state_dict={flag}"
            edits += _helper(load, write, taken, call, imports)
    if not others:
        return edits, []
    options = imports.name(HELPERS, "StateDictOptions")
    names: dict[str, str] = {}
    for call, text in others.items():
        name = names.setdefault(text, fresh(code, load.call, "load_options" + "_" * len(names)))
        given = argument_of(call, -1, "options")
        if given is None:
            edits.append(code.edit(call.args[-1].end, call.args[-1].end, f", options={name}"))
        else:
            edits.append(code.edit(given.value.start, given.value.end, name))
    return edits, [f"{name} = {options}({text})" for text, name in names.items()]


def _made(code: Code, load: Load, call: ir.Call) -> ir.Call | None:
    """Return the call that makes the options of a load, if it comes after the file is read."""
    given = argument_of(call, -1, "options")
    meant = None if given is None else last_given(code, given.value)
    after = isinstance(meant, ir.Call) and meant.start >= load.place.start
    return meant if after and isinstance(meant, ir.Call) else None


def _flagged(code: Code, made: ir.Call, flag: str) -> Iterator[Edit]:
    """Yield the edits by which options about a full state are true for a file only."""
    given = {each.keyword: each.value for each in made.args}
    if None in given:
        raise NoFixError(f"`{code.short(made)}` hides its options; write them out")
    for keyword in ("full_state_dict", "broadcast_from_rank0"):
        value = given.get(keyword)
        if value is not None and not (isinstance(value, ir.Constant) and not value.value):
            yield code.edit(value.start, value.end, flag)
    if "full_state_dict" not in given:
        at = made.end - 1
        yield code.edit(at, at, f"{', ' if made.args else ''}full_state_dict={flag}")


def _helper(
    load: Load, write: Write, taken: Taken, call: ir.Call, imports: Imports
) -> Iterator[Edit]:
    """Yield the edits of ``load_state_dict`` of what is sharded, without its options."""
    code, owner = load.code, _receiver(call)
    if len(call.args) != 1 or call.args[0].keyword is not None:
        raise NoFixError(f"`{code.short(call)}` has arguments that the state dict helpers lack")
    kind = write.kinds.get(taken.key, "")
    if not kind:
        return
    helper = imports.name(HELPERS, f"set_{kind}_state_dict")
    given = code.slice(owner)
    given = f"{code.slice(_model(load, write))}, {given}" if kind == "optimizer" else given
    yield code.edit(call.start, call.args[0].start, f"{helper}({given}, ")


def _options(context: Context, code: Code, call: ir.Call, flag: str) -> str:
    """Return the options by which a helper takes a full state from a file, shards otherwise."""
    given = argument_of(call, -1, "options")
    keywords = [f"full_state_dict={flag}"]
    if given is None:
        if call.args[-1].star:
            raise NoFixError(f"`{code.short(call)}` hides its options; write them out")
        return keywords[0]
    text = code.slice(last_given(code, given.value))
    if re.search(r"broadcast_from_rank0\s*=\s*True", text):
        keywords.append(f"broadcast_from_rank0={flag}")
    if re.search(r"cpu_offload\s*=\s*True", text):
        keywords.append("cpu_offload=True")
    return ", ".join([*keywords, *kept_options(context, code, given.value)])
