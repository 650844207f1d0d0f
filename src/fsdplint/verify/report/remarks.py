"""What is said in words of a model's sharding: shares, placements, optimizers."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.verify.figures import percent, plural, ranks_in_words
from fsdplint.verify.report.sharding import Model, Piece, placed, shares, walk

_MOST_NAMES = 4
_MOST_GROUPS = 3
_ONE_COPY = 1.1


def counts(model: Model) -> str:
    """How large the model is."""
    apis = " and ".join(sorted({node.api.upper() for _, node in walk(model.roots)}))
    return (
        f"{plural(model.units, f'{apis} unit')}, "
        f"{plural(len(model.pieces), 'parameter')}, {plural(model.elements, 'element')}"
    )


def remarks(model: Model, world_size: int) -> Iterator[str]:
    """Yields sentences on the whole model."""
    copies = sum(shares(model.kept, model.elements))
    together = f"; together {copies:.1f} copies" if copies > _ONE_COPY else ""
    yield f"{_shares(model)} (1/{world_size} is {percent(1 / world_size)}{together})"
    yield from _placements(model)
    yield from _optimizers(model)


def _shares(model: Model) -> str:
    found = shares(model.kept, model.elements)
    by_share: dict[str, list[int]] = {}
    for (rank, _), share in zip(model.kept, found, strict=True):
        by_share.setdefault(percent(share), []).append(rank)
    if len(by_share) == 1:
        return f"each rank keeps {next(iter(by_share))} of the model"
    if len(by_share) > _MOST_GROUPS:
        return f"a rank keeps {percent(min(found))} to {percent(max(found))} of the model"
    (most, group), *rest = by_share.items()
    first = f"{ranks_in_words(group)} keep{'s'[: len(group) == 1]} {most} of the model"
    return ", ".join([first, *(f"{ranks_in_words(group)} {share}" for share, group in rest)])


def _placements(model: Model) -> Iterator[str]:
    groups: dict[str, list[Piece]] = {}
    for piece in model.pieces:
        frozen = "" if piece.parameter.trainable else ", frozen"
        groups.setdefault(f"{piece.parameter.dtype}, {placed(piece)}{frozen}", []).append(piece)
    for look, pieces in groups.items():
        few = f" ({_names(pieces)})" if len(groups) > 1 and len(pieces) <= _MOST_NAMES else ""
        originals = sum(piece.parameter.flat for piece in pieces)
        noun = "flat parameter" if originals else "parameter"
        made = f" made of {originals}" if originals else ""
        yield f"{plural(len(pieces), noun)}{made}{few}: {look}"


def _optimizers(model: Model) -> Iterator[str]:
    trainable = [piece for piece in model.pieces if piece.parameter.trainable]
    held = {number for piece in trainable for number in piece.parameter.held}
    for number in sorted(held):
        mine = sum(number in piece.parameter.held for piece in trainable)
        which = "the optimizer" if held == {0} else f"optimizer {number}"
        yield f"{which} holds {_of(mine, len(trainable))} trainable parameters"
    idle = [piece for piece in trainable if not piece.parameter.held]
    if idle and len(idle) == len(trainable):
        yield f"none of the {len(trainable)} trainable parameters is in an optimizer"
    elif idle:
        which = f"{len(idle)} of {len(trainable)} trainable parameters"
        yield f"{which} in no optimizer ({_names(idle)})"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}"


def _names(pieces: list[Piece]) -> str:
    names = [piece.parameter.name for piece in pieces]
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
