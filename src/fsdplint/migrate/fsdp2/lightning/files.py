"""Config files for `LightningCLI` that choose FSDP1."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.configs.document import parse
from fsdplint.configs.lightning import StrategySettings
from fsdplint.configs.nodes import Entry, Mapping
from fsdplint.engine import ir
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import NoFixError
from fsdplint.knowledge.lightning_settings import (
    ACCUMULATES,
    CLI,
    DATA_SIZE,
    DTYPES,
    FULL,
    OF_BOTH,
    PARALLEL_STRATEGY,
    PRECISIONS_BY_NAME,
    SAVES_SHARDS,
    TENSOR_SIZE,
    is_fsdp,
    package_of,
)
from fsdplint.migrate.fsdp2.lightning.new_strategy import NewStrategy, check_releases
from fsdplint.migrate.step import Change, Context, Found, Kept

_BY_HAND = "write it in code, and pass the strategy to `LightningCLI`, by hand"


def config_files(context: Context) -> Iterator[Found]:
    """Yield a change for each config file that has Lightning use FSDP1."""
    by_files = any(True for _ in context.codes(CLI))
    for path, value in context.configs.items():
        ours = by_files or path in context.given
        if ours and isinstance(value, StrategySettings) and is_fsdp(value.kind):
            try:
                yield _changed(context, path, value)
            except NoFixError as reason:
                yield Kept(value.place, f"`{value.name}`", str(reason))


def _changed(context: Context, path: str, settings: StrategySettings) -> Change:
    check_releases(context)
    entry = _entry(settings.text, path)
    new = NewStrategy(
        context, None, _given(settings), _precision(settings), _accumulates(settings), True
    )
    made, size = new.in_modules(), _world_size(settings)
    package = package_of(settings.name) if "." in settings.name else "lightning.pytorch"
    arguments = {DATA_SIZE: str(size), TENSOR_SIZE: "1"}
    if new.states == "full":
        arguments[SAVES_SHARDS] = "false"
    for name in OF_BOTH:
        if (given := settings.strategy.get(name)) is not None:
            arguments[name] = given.shown.partition(":")[2].strip()
    indent = " " * (entry.start - settings.text.rfind("\n", 0, entry.start) - 1)
    lines = [f"class_path: {package}.strategies.{PARALLEL_STRATEGY}", "init_args:"]
    lines += [f"  {name}: {value}" for name, value in arguments.items()]
    text = "".join(f"\n{indent}  {line}" for line in lines)
    edit = Edit(Span(path, entry.key.end, entry.end), f":{text}")
    return Change(settings.place, made.what, (*made.edits, edit), tuple(made.imports), made.differs)


def _entry(text: str, path: str) -> Entry:
    """Return the entry of the strategy.

    Raises:
        NoFixError: it is in braces, or a comment is in it.
    """
    root = parse(text, path)
    trainer = root.get("trainer") if isinstance(root, Mapping) else None
    owner = trainer.value if trainer else None
    entry = owner.get("strategy") if isinstance(owner, Mapping) and not owner.flow else None
    if entry is None or "#" in text[entry.start : entry.end]:
        raise NoFixError("its entry has comments or is in braces; change it by hand")
    return entry


def _given(settings: StrategySettings) -> dict[str, ir.Expr]:
    """Return the arguments of the strategy as constants.

    Raises:
        NoFixError: one is none.
    """
    found: dict[str, ir.Expr] = {}
    if not settings.strategy.is_whole:
        raise NoFixError(f"not all arguments of the strategy are known; {_BY_HAND}")
    for name, given in settings.strategy.given.items():
        value = given.value
        if value is not None and not isinstance(value, (str, int, float, bool)):
            raise NoFixError(f"`{name}` is not a number or a word; {_BY_HAND}")
        found[name] = ir.Constant(0, 0, value)
    if "offload" in settings.name:
        found["cpu_offload"] = ir.Constant(0, 0, True)
    return found


def _precision(settings: StrategySettings) -> str:
    given = settings.owner.get("precision") if settings.owner else None
    word = FULL if given is None or given.value is None else str(given.value)
    word = PRECISIONS_BY_NAME.get(word, word)
    if word not in DTYPES:
        raise NoFixError(
            f'`{PARALLEL_STRATEGY}` has no `precision="{word}"`; choose `bf16-mixed` by hand'
        )
    return word


def _accumulates(settings: StrategySettings) -> bool:
    given = settings.owner.get(ACCUMULATES) if settings.owner else None
    return given is not None and given.value not in (None, 1)


def _world_size(settings: StrategySettings) -> int:
    """Return the number of all ranks.

    Raises:
        NoFixError: the file does not say it.
    """
    size = 1
    for name in ("devices", "num_nodes"):
        given = settings.owner.get(name) if settings.owner else None
        value = 1 if given is None and name == "num_nodes" else given.value if given else None
        count = len(value) if isinstance(value, list) else value
        if not isinstance(count, int) or count < 1:
            raise NoFixError(f"the file does not say the number of `{name}`; write it there")
        size *= count
    return size
