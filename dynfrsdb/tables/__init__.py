"""Tables: files of samples, or tables of databases, read as a stream of batches of named columns.

    'bank.csv'                       one Batch
    age,job,y                        columns  {"age": ("31", "58"), "job": ("cook", "clerk"), "y": ("no", "yes")}
    31,cook,no                       first    0, the rows before it
    58,clerk,yes                     place(1) "'bank.csv', line 3"

A table is never in memory as a whole. Whoever needs two looks at it, as `create` does, reads it twice; so a pipe can
be added and predicted from, but no store can be created from it.

    delimited    CSV and its kin, with Python's csv module           works without extras
    jsonlines    one JSON object to a line                           works without extras
    arrays       numpy's .npz                                        works without extras
    arrow        Parquet, Arrow and Feather, with pyarrow            pip install 'dynfrsdb[arrow]'
    sql          tables and queries of SQLite and PostgreSQL         the latter: pip install 'dynfrsdb[postgres]'
    files        bytes and lines under the first two; gzip by itself
    cells        what a single cell means: a number, a truth, a category, an id, nothing

Text of a table is never guessed at twice: which columns are numbers is found in `dynfrsdb.survey`, kept in the store's
`dynfrsdb.encoding`, and from then on the same for every file.
"""

from __future__ import annotations

from pathlib import Path

from dynfrsdb.errors import InvalidInput
from dynfrsdb.tables.batch import Batch, Column, Table

FORMATS = ("csv", "jsonl", "parquet", "arrow", "npz")

_BY_NAME = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
}


def open_table(path: Path | str, format: str | None = None, delimiter: str | None = None) -> Table:
    """A table in a file, or in what is piped in (`-`); its format is known by its name unless it is given."""
    place = Path(path)
    kind = format or _format_of(place)
    if delimiter is not None and kind != "csv":
        raise InvalidInput(f"'{place}' is read as {kind}, which has no delimiter; leave --delimiter out")
    if kind == "csv":
        from dynfrsdb.tables.delimited import Delimited

        return Delimited(place, delimiter or ("\t" if {".tsv", ".tab"} & set(place.suffixes) else ","))
    if kind == "jsonl":
        from dynfrsdb.tables.jsonlines import JsonLines

        return JsonLines(place)
    if str(place) == "-":
        raise InvalidInput(f"{kind} cannot be read from a pipe; save it to a file first")
    if kind == "npz":
        from dynfrsdb.tables.arrays import Arrays

        return Arrays(place)
    if kind in FORMATS:
        from dynfrsdb.tables.arrow import ArrowFile, Parquet

        return Parquet(place) if kind == "parquet" else ArrowFile(place)
    raise InvalidInput(f"format {kind!r} is not known; pass one of {', '.join(FORMATS)}")


def _format_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    found = _BY_NAME.get(suffixes[-1] if suffixes else "", "csv" if str(path) == "-" else None)
    if found is None:
        raise InvalidInput(f"the name of '{path}' does not tell its format; pass --format {'|'.join(FORMATS)}")
    return found


__all__ = ["FORMATS", "Batch", "Column", "Table", "open_table"]
