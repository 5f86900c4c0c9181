"""What a writer remembers of where it has looked."""

import pytest

from dynfrsdb_storage import looked
from dynfrsdb_storage.looked import Looked


@pytest.fixture
def seen() -> Looked:
    """Two ranges of one database, looked at in transaction 7."""
    seen = Looked()
    seen.begin(7)
    seen.add("nodes", False, (b"m", b"p"))
    seen.add("nodes", False, (b"b", b"f"))
    return seen


def unseen(seen: Looked, keys: str, database: str = "nodes") -> str:
    """Which of some keys of one letter were not looked at."""
    return b"".join(seen.unseen(database, [key.encode() for key in keys])).decode()


def test_keys_in_a_range_that_was_looked_at_are_seen(seen: Looked) -> None:
    assert unseen(seen, "abcefgmopz") == "afgpz"
    assert unseen(seen, "bcd") == ""
    assert unseen(seen, "abc", "buckets") == "abc"


def test_what_was_looked_at_for_joining_holds_for_other_writes_too(seen: Looked) -> None:
    seen.add("nodes", True, (b"g", b"k"))

    assert unseen(seen, "abgjkn") == "ak"
    assert seen.covers("nodes", b"g", b"j")
    assert not any(seen.covers("nodes", *span) for span in ((b"b", b"c"), (b"f", b"h"), (b"h", b"k")))


def test_a_range_without_an_end_reaches_to_the_last_key(seen: Looked) -> None:
    seen.add("nodes", True, (b"", None))

    assert seen.covers("nodes", b"", b"\xff" * 20)
    assert unseen(seen, "az") == ""


def test_what_was_looked_at_holds_after_commits_of_this_process_only(seen: Looked) -> None:
    seen.committed(8)
    seen.begin(8)
    assert unseen(seen, "c") == ""

    seen.begin(10)
    assert unseen(seen, "c") == "c"


def test_nothing_is_believed_for_long(seen: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked, "TRUSTED", 0.0)

    seen.begin(7)

    assert unseen(seen, "c") == "c"


def test_neighbours_become_one_range(seen: Looked) -> None:
    seen.add("nodes", False, (b"p", None))
    seen.add("nodes", False, (b"f", b"m"))

    assert unseen(seen, "abcfmpz") == "a"


def test_ranges_that_overlap_become_one(seen: Looked) -> None:
    seen.add("nodes", False, (b"d", b"n"))
    assert unseen(seen, "abfgmop") == "ap"

    seen.add("nodes", False, (b"a", None))
    assert unseen(seen, "az") == ""
