"""The counters of stages only ever rise."""

from dynfrsdb_storage import stages


def test_an_old_generation_that_is_gone_at_last_takes_nothing_back() -> None:
    """Rows were erased meanwhile that its vacuum had not seen."""
    state = {"rows_erased": 13, "vacuumed": 4, "erased": 0, "sequence": 14}

    entry = stages.erased(state, [])

    assert entry is not None
    assert stages.reached(state, entry) == {"rows_erased": 13, "erased": 4}
