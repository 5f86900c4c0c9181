"""docs/performance.md, written from what was measured. Everything in it comes from here: do not edit it by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

from benchmark import tables
from benchmark.child import PAUSE
from benchmark.data import PLANS
from benchmark.pictures import draw
from benchmark.remarks import REMARKS
from benchmark.report import quantity
from benchmark.results import Results
from benchmark.scale import SETTINGS
from benchmark.targets import Row, scale_rows
from benchmark.trial import WARM_ROWS

INTRODUCTION = """\
# What it costs

dynfrsdb keeps every change safe on disk and should still be faster than doing without. This page holds it to that. It
was written by `python tools/bench.py --docs` on {date}; do not edit it, run that again.

A number of milliseconds says little about a machine that one does not have. So what can be compared has a **partner**,
measured in the same run, and most targets are ratios:

- **retrain**: scikit-learn's `ExtraTreesClassifier(bootstrap=True, max_samples=q)` with the same number of trees, depth
  and min split, one thread. What forgetting costs who has no other way.
- **bare LMDB**: a plain py-lmdb transaction that puts and deletes exactly the records that our commit puts and deletes,
  synced, on the same disk. It knows no forest: the floor of what durability costs, but for one thing. Our commits find
  free pages in rows ([why](decisions/commits-write-in-rows.md)), the partner's where LMDB has left them.
{cpp}

One thread, kernels compiled before, unless said. `n` is the number of samples behind a figure. *By CPU* is the ratio in
processor time, which neighbours on the machine disturb less and which does not see the disk; the targets are about time
that passes.

*auto* is the default policy of settling: small tags are grown before the commit that made them. *lazy* (`settle=None`)
leaves every tag to whoever needs it.

{machine}
"""

CPP_ELSEWHERE = """\
- **the C++**: the paper's own program, in memory, not durable and not exact. Its figures were measured elsewhere,
  relative to the retrain on the same machine, and are used that way."""

CPP_HERE = """\
- **the C++**: the paper's own program, in memory, not durable and not exact. For {sets} it ran in the same run as ours:
  batches and removals *in a row* are held against that, and the whole is under *Beside the C++*. What else is said of
  it is by figures that were measured elsewhere, relative to the retrain on the same machine: the targets that are a
  share of the retrain, the memory beside the size of a store, and all about other sets."""

BESIDE_CPP = """\
## Beside the C++

Some targets are what the C++ took elsewhere, as a share of the retrain there. But the retrain is another unit on every
machine: how fast scikit-learn is beside code that is bound by memory, as the C++ and our kernels are, differs from one
to the next. So here is the program itself, on the same rows, with the same settings. It is not in our repository: it is
[shurongwang/DynFrs](https://github.com/shurongwang/DynFrs) on GitHub, compiled as its README says, and
`python tools/bench.py --cpp PROGRAM` runs it.

Each of its `n` is a process that reads the rows, builds, and then does one thing; builds are counted in all of them,
and its figures are means. They are of the same run as ours, but do not take turns with them. It prints whole
milliseconds, rounded down. Its removals are about a hundred, one after the other with nothing in between; ours *in a
row* are a hundred of one open transaction, each walking its trees at once, with the whole forest in memory, the lists
of samples that no query needs too, as the C++ has it. *Durable* is ours: the C++ writes nothing. Its memory is the
process's at the peak, with the rows. The last columns are what it took as a share of the retrain, in this run and
*elsewhere*, which is what the targets are made from.

{table}"""

SETS = """\
## The sets

{table}
A generated set has the shape of the real one where that was not to be had. `heart` always is: made-up patients in place
of the paper's second set. A quick run has few samples: an impression, not a measurement.
"""

BUILDING = """\
## Building

Everything is on disk and synced when `create` returns. *Growing alone* is growing the same trees in memory, in one
thread and in two, with nothing to write: how much two processors of this machine do.

{table}"""

REMOVAL = """\
## One removal

Each removal is a durable transaction of its own. Its records are those of its k trees (nodes on the path, the bucket at
its end, what had to be grown) and a handful for the index, the counters and the ledger.

{times}
Pages are counted in LMDB's file, by database. *Others* are index, counters, ledger, slots and LMDB's own. The process's
own counter (`write_bytes`) is given beside them, but where the file system caches in larger blocks it counts whole
blocks: here it took ten pages, written here and there in a cached file, for {ten:,}.

{pages}
Where the time goes, in the same removals: the least that a removal could take is what LMDB and the kernels take, which
the last column holds against bare LMDB.

{spent}
Before the commit, inside an open transaction, ten after {warm:,} predictions: the first of them finds other things in
the processor's caches, and lists of samples that no query needs have to be brought. *In a row* is how the C++ was
measured: a hundred, with nothing in between, and everything in memory. The C++ has no interpreter around it, no ids to
look up, no rows to check and no digest to keep.

{inside}"""

BATCH = """\
## Many removals

All in one durable transaction, *lazy*. Laziness hides nothing here: the last columns count the settling of every tag
afterwards.

{batch}
The same, each in a durable transaction of its own:

{sequence}"""

ASKING = """\
## Asking

{queries}
"""

STREAM = """\
## A stream of changes and queries

Add one, remove one, ask two (or two hundred), over and over, in one process; each change is a durable transaction.
*Plain* is the same change without the others in between.

{table}"""

READERS = """\
## Asking beside a writer

Two reader processes ask one row at a time, every {pause} ms, while a third process commits ten removals a second.
Readers never wait for the writer, but what it changed they have to read again, and tags that they meet they grow.

{table}"""

PROCESSES = """\
## Processes

Memory is counted above an interpreter with numba loaded. *Cold* means that no page of the store is in memory; imports
and loading the compiled kernels are not counted in *open* and *first query*.

{table}"""

SCALE = """\
## How costs grow

Generated rows in the shape of the Higgs set (28 floats, two classes), {words}. Building uses every core.

Removals and queries begin with the store's files in the page cache, as a build leaves them; *cold* ones without. A
query comes after each removal and grows what it meets of large tags; the next removal writes that as well. *No query in
between* is what a removal takes without.

*Memory* counts pages of mapped files, which a process may keep while nobody else wants them. How much it needs is seen
where the system takes them back: *in 1.5 GiB* is another process that makes as many removals and queries, cold, for
three minutes at most, in a control group that holds it, and the page cache that it fills, to that. Where the store is
larger than this, it waits for the disk, which reads the rows of a large tag one by one.

{table}
{targets}"""

METHOD = """\
## How it is measured

- Builds, removals, batches, queries and predictions take turns with their partner, each first every other time, on the
  same disk. The retrain is measured once per set, in turns with the build; other figures are divided by its median.
- What a commit writes is found out on a copy of the store, by comparing its LMDB file before and after; the partner
  starts from the same file and repeats the difference. At the end both files should hold the same tree records;
  {differing}.
- *In memory*, *warm* and *hot* mean that {warm:,} rows were predicted before. Before removals *in a row* the lists of
  samples were brought as well.
- The background thread of *auto* is held still where records are compared, and runs in the streams and beside readers.
- Memory, opening and starting are measured in processes of their own.
- p99.9 of fewer than a thousand samples is little more than the slowest one.
"""

WIDTH = 120
BUSY = 0.5
"""Load from which on the document warns of neighbours."""


def write(results: Results, docs: Path) -> Path:
    """Write the document and its pictures; returns where."""
    pictures = {name: f"![{title}](pictures/{name})" for title, name in draw(results, docs / "pictures")}
    path = docs / "performance.md"
    path.write_text("\n".join(part.strip("\n") + "\n" for part in _parts(results, pictures)))
    return path


def _parts(results: Results, pictures: dict[str, str]) -> Iterator[str]:
    yield INTRODUCTION.format(date=results.date, machine=_machine(results), cpp=_cpp(results))
    yield from _targets(results)
    yield from _missed(row for name in results.sets for row in results.rows(name))
    if _with_cpp(results):
        yield BESIDE_CPP.format(table=tables.beside_cpp(results))
    yield SETS.format(table=tables.sets(results))
    yield BUILDING.format(table=tables.building(results))
    yield REMOVAL.format(
        times=tables.removal(results),
        pages=tables.pages(results),
        spent=tables.spent(results),
        inside=tables.inside(results),
        ten=results.machine["pages counted for ten"],
        warm=WARM_ROWS,
    )
    yield BATCH.format(batch=tables.batch(results), sequence=tables.sequence(results))
    yield pictures.get("removals-per-second.svg", "")
    yield ASKING.format(queries=tables.queries(results))
    yield STREAM.format(table=tables.stream(results))
    yield READERS.format(pause=round(1e3 * PAUSE), table=tables.readers(results))
    yield pictures.get("queries-beside-a-writer.svg", "")
    yield PROCESSES.format(table=tables.processes(results))
    if results.scale:
        words = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
        targets = tables.scale_targets(results)
        yield SCALE.format(words=words, table=tables.scale(results), targets=targets)
        sizes = sorted(results.scale.items())
        yield from _missed(row for size, found in sizes for row in scale_rows(f"{size:,} rows", found))
        yield pictures.get("cost-against-samples.svg", "")
    yield METHOD.format(warm=WARM_ROWS, differing=_differing(results))


def _with_cpp(results: Results) -> list[str]:
    """The sets that the C++ was measured on in this run."""
    return [name for name, one in results.sets.items() if "the C++: build" in one.figures]


def _cpp(results: Results) -> str:
    """What the C++ of the tables is: measured here, or known from elsewhere."""
    sets = [f"`{name}`" for name in _with_cpp(results)]
    if not sets:
        return CPP_ELSEWHERE
    words = CPP_HERE.format(sets=", ".join(sets)).split()
    return fill(" ".join(words), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _machine(results: Results) -> str:
    found = results.machine
    versions = ", ".join(f"{name} {found[name]}" for name in ("python", "numpy", "numba", "lmdb", "sklearn"))
    words = [
        f"The machine: {found['cpu']}, {found['cores']} cores, {quantity(found['memory'], 'B')} of memory,",
        f"{found['filesystem']}, {found['system']}; {versions}.",
    ]
    if found["load"] > BUSY:
        words.append(f"It was not alone: its load was {found['load']:.1f} when the run began. Trust ratios, not times.")
    return "\n".join(words)


def _differing(results: Results) -> str:
    """What became of the comparison with bare LMDB."""
    end = ": records that differ from bare LMDB at the end"
    found = [f.median for one in results.sets.values() for name, f in one.figures.items() if name.endswith(end)]
    wrong = sum(value > 0 for value in found)
    return f"they did in {len(found) - wrong} of {len(found)} runs"


def _targets(results: Results) -> Iterator[str]:
    """A table for each set with targets of its own, one for all the others."""
    aimed = [name for name in results.sets if PLANS[name].aims is not None]
    others = [name for name in results.sets if name not in aimed]
    yield "## The targets\n"
    for name in aimed:
        yield f"`{name}`: {results.sets[name].words}\n"
        yield tables.targets(results.rows(name))
    if others:
        yield "The other sets, each figure relative to the same partner:\n"
        yield tables.ratios(results, others)


def _missed(targets: Iterable[Row]) -> Iterator[str]:
    """What is not met, and what is known about why."""
    rows = [row for row in targets if row.met is False]
    keys = dict.fromkeys(row.key for row in rows)
    if not keys:
        return
    yield "### Missed\n"
    lines = []
    for key in keys:
        here = [row for row in rows if row.key == key]
        sets = ", ".join(f"{row.data} {tables.short(row)}" for row in here)
        remark = REMARKS.get(key, "")
        lines.append(f"- **{here[0].what}** ({sets}){'. ' + remark if remark else ''}")
    yield "\n".join(lines)
