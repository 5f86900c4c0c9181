"""Looking at LMDB's pages before a write transaction changes them.

LMDB's write transactions believe more than its searches. A page they change is copied and written with the flags it
has: one more bit there makes it a value of many pages, and whatever lies behind it in memory is written over committed
pages. The number in a changed page's header goes onto the free list, and what is on the free list is overwritten. So
before a write transaction, the headers of all pages that it will change (and of those that they may be joined with: a
neighbour, and the neighbour of one that is nearly empty) are looked at, and the whole free list, whose checksum the
writer before us has left in LOCK. A process that commits again and again looks only at what it has not looked at in the
last minute (looked.py).

Keys go down the tree together, in their order:

    spans        a  c   f..............p   x        keys to put, and ranges to delete
    branch     [ 1     | 2   | 3   | 4   | 5   ]    a and c need page 1, f..p needs 2, 3 and 4, x needs 5

Where many of them need one branch, all its records are read and held against each other; where there are few, they are
searched for step by step, as LMDB does it.

Looking here and there costs some eight times as much a leaf as looking at all leaves of a database one after the other.
So who has looked at an eighth of them, or is about to, looks at all, and is done for a minute. (If one of them is bad,
that is the business of who writes there, and looking goes on here and there.)

Not done here: what is inside the leaves that are changed. Damage there is carried along into the new page; the
checksums of the records name it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from dynfrsdb_storage.guard import EVERYTHING, Branch, Guard, Known, Tree
from dynfrsdb_storage.layout import PAGE_BYTES
from dynfrsdb_storage.looked import Looked, Range
from dynfrsdb_storage.treepages import Unsound

Places = dict[str, tuple[list[bytes], list[tuple[bytes, bytes]]]]
"""Where a transaction writes: the keys that it puts, ascending, and (first, last) of ranges that it deletes, by
database."""
_FEW = 20
"""Spans up to which a branch is searched for each, and not read wholly."""
_NEARLY_EMPTY = PAGE_BYTES * 7 // 10
"""Free bytes that a leaf must have before LMDB joins it with a neighbour: it does so from three quarters on."""
_AFFORDABLE = 32_768
"""Leaves of a database up to which all are looked at together: that takes 20 to 50 ms."""
_CHEAPER = 8
"""How many times as much it costs to look at one leaf as at one of all."""
_LONGER_THAN_OURS = 64
"""More bytes than a key of ours has."""


class BeforeWriting:
    """What one process looks at before it writes, and what it remembers of that."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.looked = Looked()

    def unsure(self, known: Known, databases: Iterable[str]) -> list[str]:
        """Those of which not all was looked at, in this transaction of LMDB's or not long before it."""
        self.looked.begin(known.transaction)
        return [database for database in databases if not self.looked.is_whole(database)]

    def look(self, known: Known, database: str, keys: Sequence[bytes], cuts: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise Unsound if putting sorted keys, or deleting (first, last) ranges, in a database that we are `unsure` of
        would change a page whose header is bad. After a deletion a page may be joined with a neighbour."""
        cuts = [span for span in cuts if not self.looked.covers(database, *span)]
        unseen = self.looked.unseen(database, keys)
        if not cuts and not unseen:
            return
        tree = self._guard.tree(known, database)
        if tree is None or self._looks_at_all(known, tree, database, len(cuts) + len(unseen)):
            self.looked.add(database, True, EVERYTHING)
            return
        if cuts:
            spans = _apart(cuts)
            firsts, lasts = [first for first, _ in spans], [last for _, last in spans]
            self._look(known, tree, database, firsts, lasts, joining=True)
            unseen = self.looked.unseen(database, unseen)
        if unseen:
            self._look(known, tree, database, unseen, unseen, joining=False)

    def _looks_at_all(self, known: Known, tree: Tree, database: str, wanted: int) -> bool:
        """Look at the whole database, if it is time to, and say whether all of it is sound."""
        spent = self.looked.spent(database) + min(wanted, tree.leaves)
        if tree.long_pages or tree.leaves > _AFFORDABLE or spent * _CHEAPER < tree.leaves:
            return False
        try:
            self._guard.look_at_all(known, tree)
        except Unsound:
            self.looked.spend(database, -tree.leaves)  # so that it is not tried again soon
            return False
        return True

    def _look(
        self, known: Known, tree: Tree, database: str, firsts: Sequence[bytes], lasts: Sequence[bytes], joining: bool
    ) -> None:
        leaves = self._leaves(known, tree, firsts, lasts, joining)
        self.looked.spend(database, len(leaves))
        runs = _runs(bounds for _, bounds in leaves)
        if joining:
            self._look_around(known, tree, runs)
        for run in runs:
            self.looked.add(database, joining, run)

    def _leaves(
        self, known: Known, tree: Tree, firsts: Sequence[bytes], lasts: Sequence[bytes], joining: bool
    ) -> list[tuple[int, Range]]:
        """The leaves that spans reach, looked at, in order, with their bounds."""
        descent = _Descent(self._guard, known, firsts, lasts, joining)
        descent.go(tree.root, tree.depth, EVERYTHING, 0, len(firsts))
        self._look_at_leaves(known, tree, descent.leaves)
        return descent.leaves

    def _look_around(self, known: Known, tree: Tree, runs: Iterable[Range]) -> None:
        """Look at the leaves that those of a run may be joined with: their neighbours, and the neighbours of such as
        are nearly empty."""
        seen: set[int] = set()
        while edges := sorted({edge for begin, end in runs for edge in _edges(begin, end)}):
            leaves = self._leaves(known, tree, edges, edges, joining=False)
            runs = [bounds for number, bounds in leaves if number not in seen and known.headers[number] > _NEARLY_EMPTY]
            seen.update(number for number, _ in leaves)

    def _look_at_leaves(self, known: Known, tree: Tree, leaves: Sequence[tuple[int, Range]]) -> None:
        """Look at headers; where values are long, at whole leaves."""
        self._guard.look_at_headers(known, [number for number, _ in leaves])
        for number, bounds in leaves if tree.long_pages else ():
            self._guard.look_at_leaf(known, number, bounds)


class _Descent:
    """The way of sorted spans down one tree; all branches on it are looked at."""

    def __init__(
        self, guard: Guard, known: Known, firsts: Sequence[bytes], lasts: Sequence[bytes], joining: bool
    ) -> None:
        self._guard, self._known, self._joining = guard, known, joining
        self._firsts, self._lasts = firsts, lasts
        self.leaves: list[tuple[int, Range]] = []
        """The leaves that the spans reach, in order, with their bounds."""

    def go(self, number: int, levels: int, bounds: Range, begin: int, end: int) -> None:
        """Take spans begin .. end, as far as they lie within `bounds`, to the leaves below a page."""
        if levels <= 1:
            self.leaves.append((number, bounds))
            return
        if end - begin > _FEW:
            branch = self._guard.branch_at(self._known, number, bounds)
            if levels == 2:
                self._take_leaves(branch, bounds, begin, end)
                return
        neighbours = self._joining and levels > 2  # leaves are looked around when all of them are known
        at, key = begin, bounds[0]
        while at < end:
            key = max(key, self._firsts[at])
            child, its = self._guard.below(self._known, number, bounds, key, neighbours)
            _refuse_step_back(number, its, key)
            above = its[1]
            behind = end if above is None else bisect_left(self._firsts, above, at + 1, end)
            self.go(child, levels - 1, its, at, behind)
            if above is None or above == bounds[1]:
                return
            at, key = behind - (self._lasts[behind - 1] >= above), above

    def _take_leaves(self, branch: Branch, bounds: Range, begin: int, end: int) -> None:
        """The same right above the leaves, in a branch whose keys are known to ascend."""
        keys, children = branch
        firsts, lasts, last = self._firsts, self._lasts, len(keys) - 1
        at, key = begin, bounds[0]
        while at < end:
            key = max(key, firsts[at])
            i = bisect_right(keys, key) - 1
            above = keys[i + 1] if i < last else bounds[1]
            self.leaves.append((children[i], (keys[i] if i else bounds[0], above)))
            if above is None or i == last:
                return
            behind = bisect_left(firsts, above, at + 1, end)
            at, key = behind - (lasts[behind - 1] >= above), above


def _edges(begin: bytes, end: bytes | None) -> Iterator[bytes]:
    """Keys in the leaves before and behind those of a run."""
    if begin:
        yield _just_before(begin)
    if end is not None:
        yield end


def _refuse_step_back(number: int, bounds: Range, key: bytes) -> None:
    """Raise if what a branch has for `key` ends before it: who goes on from there would not come to an end."""
    if bounds[1] is not None and bounds[1] <= key:
        raise Unsound(f"the keys of page {number} do not ascend")


def _just_before(key: bytes) -> bytes:
    """A key that is smaller than `key`, with none of ours between them."""
    return key[:-1] + bytes([key[-1] - 1]) + b"\xff" * _LONGER_THAN_OURS if key[-1] else key[:-1]


def _apart(spans: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Sorted spans that cover the same keys and do not overlap."""
    apart: list[tuple[bytes, bytes]] = []
    for first, last in sorted(spans):
        if apart and first <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(apart[-1][1], last)
        else:
            apart.append((first, last))
    return apart


def _runs(bounds: Iterable[Range]) -> list[Range]:
    """Ascending bounds, those that touch made one."""
    runs: list[Range] = []
    for begin, end in bounds:
        if runs and runs[-1][1] == begin:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((begin, end))
    return runs
