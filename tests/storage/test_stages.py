"""The counters of stages only ever rise."""

from pathlib import Path

import pytest

from dynfrsdb_storage import Store, failpoints, stages
from dynfrsdb_storage.records import unframe
from dynfrsdb_storage.slots import pending_ranges
from tests.storage.people import new_store, problems, remove, take_people


def test_an_old_generation_that_is_gone_at_last_takes_nothing_back() -> None:
    """Rows were erased meanwhile that its vacuum had not seen."""
    state = {"rows_erased": 13, "vacuumed": 4, "erased": 0, "sequence": 14}

    entry = stages.erased(state, [])

    assert entry is not None
    assert stages.reached(state, entry) == {"rows_erased": 13, "erased": 4}


def test_a_commit_that_is_tried_again_tells_stages_once(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        if name == "commit-before":
            raise ZeroDivisionError

    with Store.open(new_store(store_dir / "people"), writable=True) as store:
        remove(store, [1])
        with store.write() as session, store.snapshot():  # a reader holds the next removal back
            take_people(session, [2])
            change = session.state["sequence"]
            monkeypatch.setattr(failpoints, "hook", fail)
            with pytest.raises(ZeroDivisionError):
                session.commit()
            monkeypatch.setattr(failpoints, "hook", None)
            session.commit()
        with store.snapshot() as snapshot:
            kinds = [unframe(payload).get("kind") for _, payload in snapshot.scan("ledger")]
            waiting = [there.sequence for there in pending_ranges(snapshot).values()]
        assert kinds.count(stages.ROWS_ERASED) == 1
        assert waiting == [change]
        assert problems(store) == []
