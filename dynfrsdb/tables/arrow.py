"""Parquet, Arrow and Feather files, with pyarrow, which is an optional extra and imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dynfrsdb.errors import InvalidInput, MissingExtra
from dynfrsdb.tables.batch import Batch, Column, Opaque, TableFile, check_names, rows_at_once


class _Arrow(TableFile):
    """What both have in common."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import pyarrow
            import pyarrow.ipc
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra(f"reading '{path}' needs pyarrow; pip install 'dynfrsdb[arrow]'") from error
        self._pyarrow = pyarrow

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (self._pyarrow.ArrowException, OSError) as error:
            why = " ".join(str(error).split())[:120]
            raise InvalidInput(f"'{self.path}' cannot be read: {why}") from error

    def _batch(self, part: Any, first: int) -> Batch:
        types = self._pyarrow.types
        columns = {name: _cells(types, part.column(i)) for i, name in enumerate(part.schema.names)}
        self.done = first + part.num_rows
        return Batch(self.name, columns, part.num_rows, first, self._place(first))

    def _place(self, first: int) -> Callable[[int], str]:
        path = self.name
        return lambda row: f"'{path}', row {first + row}"

    def _empty(self, schema: Any) -> Batch:
        return Batch(self.name, dict.fromkeys(schema.names, ()), 0, 0, self._place(0))


class Parquet(_Arrow):
    """A Parquet file, a few row groups' pages at a time."""

    def batches(self) -> Iterator[Batch]:
        with self._in_words(), self._pyarrow.parquet.ParquetFile(self.path) as file:
            check_names(self.name, file.schema_arrow.names)
            self.total, first = file.metadata.num_rows, 0
            for part in file.iter_batches(batch_size=rows_at_once(len(file.schema_arrow.names))):
                yield self._batch(part, first)
                first += part.num_rows
            if not first:
                yield self._empty(file.schema_arrow)


class ArrowFile(_Arrow):
    """An Arrow IPC file or stream, or a Feather file of version 2."""

    def batches(self) -> Iterator[Batch]:
        with self._in_words(), self._pyarrow.OSFile(str(self.path)) as file:
            schema, parts = self._parts(file)
            check_names(self.name, schema.names)
            first, most = 0, rows_at_once(len(schema.names))
            for whole in parts:
                for start in range(0, whole.num_rows, most):
                    part = whole.slice(start, most)
                    yield self._batch(part, first)
                    first += part.num_rows
            if not first:
                yield self._empty(schema)

    def _parts(self, file: Any) -> tuple[Any, Iterator[Any]]:
        ipc, magic = self._pyarrow.ipc, file.read(6)
        file.seek(0)
        if magic[:4] == b"FEA1":
            raise InvalidInput(f"'{self.path}' is Feather of version 1; save it as version 2")
        if magic != b"ARROW1":
            stream = ipc.open_stream(file)
            return stream.schema, iter(stream)
        reader = ipc.open_file(file)
        return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))


def _cells(types: Any, array: Any) -> Column:
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_floating(kind) or ((types.is_integer(kind) or types.is_boolean(kind)) and not array.null_count):
        found: Column = array.to_numpy(zero_copy_only=False)
        return found
    plain = (
        types.is_integer,
        types.is_boolean,
        types.is_string,
        types.is_large_string,
        types.is_decimal,
        types.is_null,
    )
    if any(test(kind) for test in plain):
        cells: list[Any] = array.to_pylist()
        return cells
    return [Opaque(str(kind), types.is_temporal(kind))] * len(array)
