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


def test_a_key_is_found_in_the_range_that_was_looked_at(seen: Looked) -> None:
    assert seen.find("nodes", False, b"b") == (b"b", b"f")
    assert seen.find("nodes", False, b"o") == (b"m", b"p")
    assert [seen.find("nodes", False, key) for key in (b"a", b"f", b"p")] == [None, None, None]
    assert seen.find("nodes", True, b"b") is None
    assert seen.find("buckets", False, b"b") is None


def test_a_range_without_an_end_reaches_to_the_last_key(seen: Looked) -> None:
    seen.add("nodes", True, (b"", None))

    assert seen.find("nodes", True, b"\xff" * 20) == (b"", None)


def test_what_was_looked_at_holds_after_commits_of_this_process_only(seen: Looked) -> None:
    seen.committed(8)
    seen.begin(8)
    assert seen.find("nodes", False, b"c")

    seen.begin(10)
    assert seen.find("nodes", False, b"c") is None


def test_nothing_is_believed_for_long(seen: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked, "_TRUSTED", 0.0)

    seen.begin(7)

    assert seen.find("nodes", False, b"c") is None


def test_neighbours_become_one_range(seen: Looked) -> None:
    seen.add("nodes", False, (b"p", None))
    seen.add("nodes", False, (b"f", b"m"))

    assert seen.find("nodes", False, b"c") == (b"b", None)
    assert seen.find("nodes", False, b"a") is None


def test_ranges_that_overlap_become_one(seen: Looked) -> None:
    seen.add("nodes", False, (b"d", b"n"))
    assert seen.find("nodes", False, b"b") == (b"b", b"p")

    seen.add("nodes", False, (b"a", None))
    assert seen.find("nodes", False, b"z") == (b"a", None)
