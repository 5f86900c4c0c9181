"""Samples out of tables: a new store from one, and samples to add.

A store is created in two looks at its table, so that nothing but what the forest needs is ever in memory:

    survey     kinds and categories of columns, the targets     settings, encoding
    load       rows of features, ids, hashes of subjects        float32 [n, d], uint64 [n], 16 bytes each

The encoding goes into the store's settings, which are part of the one commit that creates the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dynfrsdb import inputs
from dynfrsdb.encoding import Block, Encoding, require
from dynfrsdb.errors import InvalidInput
from dynfrsdb.secrets import HASH_BYTES, Secrets
from dynfrsdb.settings import Settings
from dynfrsdb.survey import Survey, Wishes, survey
from dynfrsdb.tables import Batch, Table
from dynfrsdb.tables.batch import Column
from dynfrsdb.tables.cells import TRUTHS, Where, ids, is_missing, label, number, numbers, subjects
from dynfrsdb_storage.build import refuse_place

if TYPE_CHECKING:
    from dynfrsdb.build import Progress

Ids = npt.NDArray[np.uint64]


class Prepared(NamedTuple):
    """Everything that a new store is made of."""

    settings: Settings
    ids: Ids
    X: Block
    y: npt.NDArray[np.int64]
    subjects: npt.NDArray[np.uint8]
    """Hashes, one line per sample, zeros for nobody's; or no line at all."""
    not_encoded: dict[str, int]
    """Rows whose value was too rare to become a feature, by column."""


class Part(NamedTuple):
    """Some rows of a table, encoded."""

    batch: Batch
    X: Block
    ids: Ids | None
    subjects: list[bytes] | None
    """b"" for a sample that belongs to nobody."""


class Rows(NamedTuple):
    """Samples to add, as `Transaction.add` takes them."""

    X: Block
    y: list[Any] | npt.NDArray[np.float64]
    ids: Ids | None
    subjects: list[bytes | None] | None
    unknown: dict[str, int]
    """Rows whose value has no feature, by column."""


def encoding_of(settings: Settings) -> Encoding:
    """How tables become samples of a store."""
    if settings.encoding is None:
        return Encoding.plain(settings.n_features, settings.feature_names)
    return Encoding.from_record(settings.encoding)


def parts(batches: Iterable[Batch], encoding: Encoding, unknown: Counter[str]) -> Iterator[Part]:
    """A table, encoded batch by batch."""
    for batch in batches:
        for name in (encoding.id, encoding.subject):
            if name is not None:
                require(batch, name)
        X = np.empty((batch.size, len(encoding.feature_names)), np.float32)
        encoding.encode(batch, X, unknown)
        numbered = None if encoding.id is None else ids(batch.columns[encoding.id], batch.where(encoding.id))
        named = (
            None
            if encoding.subject is None
            else subjects(batch.columns[encoding.subject], batch.where(encoding.subject))
        )
        yield Part(batch, X, numbered, named)


# A new store


def prepare(path: Path, table: Table, wishes: Wishes, progress: Progress | None = None, **settings: Any) -> Prepared:
    """Read a table for a store that is to be created at `path`; `settings` are those of `dynfrsdb.create`."""
    report = progress or (lambda stage, done, total: None)
    if not table.can_be_read_again:
        raise InvalidInput(f"'{table.name}' is read twice to create a store, so it cannot be a pipe; save it to a file")
    refuse_place(inputs.place(path))  # creating will look again; this is to know before all the reading
    found = survey(table, wishes, settings.get("task", "classification"), report)
    made = Settings.make(
        y=found.labels or found.targets,
        feature_names=found.encoding.feature_names,
        encoding=found.encoding.record(),
        **settings,
    )
    X, y, numbered, hashes = _load(table, found, made, report)
    _refuse_twins(table, numbered)
    return Prepared(made, numbered, X, y, hashes, found.not_encoded)


def create_from(
    path: Path, prepared: Prepared, progress: Progress | None = None, source: dict[str, Any] | None = None
) -> None:
    """Create a store from a table that was read. Interrupting leaves nothing behind.

    `source` is what the ledger is to say of a table outside."""
    # Here and not above, because numba takes its time: a slip in a table is told before.
    from dynfrsdb.build import build, training

    samples = training(prepared.settings, prepared.ids, prepared.X, prepared.y, prepared.subjects)
    build(inputs.place(path), prepared.settings, samples, progress, {} if source is None else {"source": source})


def _load(
    table: Table, found: Survey, settings: Settings, report: Progress
) -> tuple[Block, npt.NDArray[np.int64], Ids, npt.NDArray[np.uint8]]:
    """The second look: features, ids and hashes of subjects of all rows; and targets, if they come in another order."""
    encoding, secrets, at = found.encoding, Secrets(settings), 0
    y = _targets(table, found, settings) if table.keeps_order else np.empty(found.rows, np.int64)
    X = np.empty((found.rows, len(encoding.feature_names)), np.float32)
    numbered = np.arange(found.rows, dtype=np.uint64)
    hashes = np.zeros((found.rows if encoding.subject is not None else 0, HASH_BYTES), np.uint8)
    for part in parts(table.batches(), encoding, Counter()):
        end = at + part.batch.size
        if end > found.rows:
            break
        X[at:end] = part.X
        if not table.keeps_order:
            y[at:end] = numbered_targets(part.batch, found.encoding.target, settings)
        if part.ids is not None:
            numbered[at:end] = part.ids
        if part.subjects:
            data = b"".join(secrets.subject(name) if name else bytes(HASH_BYTES) for name in part.subjects)
            hashes[at:end] = np.frombuffer(data, np.uint8).reshape(-1, HASH_BYTES)
        at = end
        report("encoding", at, found.rows)
    if at != found.rows:
        raise InvalidInput(f"'{table.name}' changed while it was read; try again when nobody writes to it")
    return X, y, numbered, hashes


def _targets(table: Table, found: Survey, settings: Settings) -> npt.NDArray[np.int64]:
    if not settings.classes:
        return inputs.targets(found.targets, found.rows, settings)
    known = [class_of(label, settings) for label in found.labels]
    places = np.array([-1 if each is None else settings.class_index[each] for each in known], np.int64)
    targets: npt.NDArray[np.int64] = places[found.targets]
    if (places < 0).any():
        where = f"{table.place_of(int((targets < 0).argmax()))}, column {found.encoding.target!r}"
        raise InvalidInput(f"{where} is none of the classes that were given; give all with --class")
    return targets


def _refuse_twins(table: Table, numbered: Ids) -> None:
    """Raise if two rows have the same id, and name both."""
    order = np.argsort(numbered, kind="stable")
    ascending = numbered[order]
    twins = np.flatnonzero(ascending[1:] == ascending[:-1])
    if twins.size:
        at = twins[order[twins + 1].argmin()]
        first, second = table.place_of(int(order[at])), table.place_of(int(order[at + 1]))
        raise InvalidInput(f"{second}: id {ascending[at]} was given before, in {first}; give each sample its own id")


# Samples to add


def rows_to_add(
    table: Table,
    settings: Settings,
    target: str | None,
    id: str | None,
    subject: str | None,
    progress: Progress | None = None,
) -> Rows:
    """All rows of a table, encoded; columns that are not named are those the store was created with."""
    stored = encoding_of(settings)
    encoding = replace(stored, target=target or stored.target, id=id or stored.id, subject=subject or stored.subject)
    if encoding.target is None:
        raise InvalidInput("this store does not know which column is the target; pass --target")
    found, y = [], []
    unknown: Counter[str] = Counter()
    for part in parts(table.batches(), encoding, unknown):
        require(part.batch, encoding.target)
        y.append(targets_of(part.batch.columns[encoding.target], settings, part.batch.where(encoding.target)))
        found.append(part)
        if progress is not None:
            progress("reading", table.done, table.total)
    X = np.concatenate([part.X for part in found])
    if not len(X):
        raise InvalidInput(f"'{table.name}' has columns and no rows; there is nothing to add")
    numbered = None if encoding.id is None else np.concatenate([part.ids for part in found if part.ids is not None])
    if numbered is not None:
        _refuse_twins(table, numbered)
    named = None if encoding.subject is None else [name or None for part in found for name in part.subjects or ()]
    if settings.classes:
        return Rows(X, [label for labels in y for label in labels], numbered, named, dict(unknown))
    return Rows(X, np.concatenate(y), numbered, named, dict(unknown))


def numbered_targets(batch: Batch, target: str | None, settings: Settings) -> npt.NDArray[np.int64]:
    """The targets of a batch as the forest counts them."""
    assert target is not None
    given = targets_of(batch.columns[target], settings, batch.where(target))
    return inputs.targets(given, batch.size, settings)


def targets_of(column: Column, settings: Settings, where: Where) -> Sequence[Any] | npt.NDArray[np.float64]:
    """Targets as `add` takes them: classes of the store, or finite numbers."""
    if not settings.classes:
        found = numbers(column, where)
        finite = np.isfinite(found)
        if not finite.all():
            row = int(finite.argmin())
            raise InvalidInput(f"{where(row)} is missing or infinite; every sample needs a finite target")
        return found
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    known = {cell: class_of(cell, settings) for cell in set(cells)}
    for row, cell in enumerate(cells):
        if known[cell] is None:
            if is_missing(cell):
                raise InvalidInput(f"{where(row)} is missing; every sample needs a class")
            shown = ", ".join(map(repr, settings.classes[:10])) + (", ..." if len(settings.classes) > 10 else "")
            raise InvalidInput(f"{where(row)} is no class of this store; its classes are {shown}")
    return [known[cell] for cell in cells]


def class_of(cell: Any, settings: Settings) -> Any:
    """The class that a cell names, as itself or as text of a number or of a truth; None if it names none."""
    spellings = [cell, TRUTHS.get(cell), number(cell)] if isinstance(cell, str) else [label(cell), str(cell)]
    for spelling in spellings:
        place = None if spelling is None else settings.class_index.get(spelling)
        if place is not None:
            return settings.classes[place]
    return None
