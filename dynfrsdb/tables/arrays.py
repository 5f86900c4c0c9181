"""numpy's .npz: every one-dimensional array is a column, every column of a two-dimensional one as well.

    X [n, 3], y [n], feature_names [3]     columns  the three names, y
    X [n, 3], y [n]                        columns  X0, X1, X2, y

Arrays are kept compressed in the file and have to be read whole, one at a time. Arrays of Python objects are refused:
reading them would run code that is in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dynfrsdb.errors import InvalidInput
from dynfrsdb.tables.batch import Batch, Column, Opaque, TableFile, check_names, rows_at_once

NAMES = "feature_names"


class Arrays(TableFile):
    """The arrays of one .npz file as the columns of a table."""

    def batches(self) -> Iterator[Batch]:
        columns = self._columns(self._arrays())
        check_names(self.name, (name for name, _ in columns))
        self.total = len(columns[0][1])
        most = rows_at_once(len(columns))
        for first in range(0, max(1, self.total), most):
            part = {name: _cells(values[first : first + most]) for name, values in columns}
            self.done = min(first + most, self.total)
            yield Batch(self.name, part, self.done - first, first, self._place(first))

    def _place(self, first: int) -> Any:
        path = self.name
        return lambda row: f"'{path}', row {first + row}"

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                if not isinstance(file, np.lib.npyio.NpzFile):
                    raise InvalidInput(f"'{self.path}' is a single array; save X and y together with np.savez")
                return {name: file[name] for name in file.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            why = (
                "it holds Python objects" if "allow_pickle" in str(error) or "pickle" in str(error) else "it is damaged"
            )
            raise InvalidInput(f"'{self.path}' cannot be read as .npz: {why}") from error

    def _columns(self, arrays: dict[str, npt.NDArray[Any]]) -> list[tuple[str, npt.NDArray[Any]]]:
        names = arrays.pop(NAMES, None)
        found: list[tuple[str, npt.NDArray[Any]]] = []
        lengths: dict[str, int] = {}
        for name, values in arrays.items():
            if values.ndim not in (1, 2):
                raise InvalidInput(f"array {name!r} in '{self.path}' has {values.ndim} dimensions; columns have 1 or 2")
            lengths[name] = len(values)
            if values.ndim == 1:
                found.append((name, values))
                continue
            own = [f"{name}{i}" for i in range(values.shape[1])]
            if names is not None and names.shape == (values.shape[1],):
                own = [str(each) for each in names]
            found += list(zip(own, values.T, strict=True))
        if not found:
            raise InvalidInput(f"'{self.path}' holds no array; save X and y with np.savez")
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InvalidInput(f"the arrays in '{self.path}' differ in length: {sizes}; save one table to a file")
        return found


def _cells(values: npt.NDArray[Any]) -> Column:
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind == "U":
        return [str(value) for value in values]
    return [Opaque(str(values.dtype), values.dtype.kind in "mM")] * len(values)
