"""Verbs that keep house tell good stores from bad ones, by exit code too."""

from __future__ import annotations

from pathlib import Path

import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.conftest import make_store


def test_a_good_store_passes_check_and_verify(store: Path) -> None:
    checked, verified = command("check", store), command("verify", store)

    with dynfrsdb.open(store) as db:
        digest = db.digest()
    assert (checked.code, checked.data["ok"], checked.data["samples"], checked.data["problems"]) == (0, True, 60, [])
    assert verified.data == {"ok": True, "trees": 7, "differing": [], "digest": digest}
    assert command("digest", store).data == {"digest": digest}


def test_verify_takes_a_few_trees(store: Path) -> None:
    assert command("verify", store, "--trees", 2).data["trees"] == 2


def test_check_fails_and_names_the_row_that_was_changed_on_disk(tmp_path: Path) -> None:
    damaged = make_store(tmp_path / "damaged.forest")
    (rows,) = damaged.glob("gen-*/rows.bin")
    data = bytearray(rows.read_bytes())
    data[30] ^= 1
    rows.write_bytes(data)

    ran = command("check", damaged)

    assert (ran.code, ran.data["ok"]) == (1, False)
    assert any("slot 0" in problem or "sample 0" in problem for problem in ran.data["problems"])


def test_settling_grows_every_tag(tmp_path: Path) -> None:
    tagged = make_store(tmp_path / "tagged.forest")
    with dynfrsdb.open(tagged, "w", settle=None) as db:
        db.remove(range(20))
        tags, digest = db.info()["tags"], db.digest()
    assert tags > 0

    ran = command("settle", tagged)

    assert (ran.code, ran.data) == (0, {"settled": tags})
    with dynfrsdb.open(tagged) as db:
        assert (db.info()["tags"], db.digest()) == (0, digest)


def test_doctor_names_versions_the_kernel_cache_and_the_filesystem(tmp_path: Path) -> None:
    ran = command("doctor", tmp_path / "not" / "yet", DYNFRSDB_KERNEL_CACHE=str(tmp_path / "kernels"))

    found = ran.data
    assert (ran.code, found["problems"], found["dynfrsdb"]) == (0, [], dynfrsdb.__version__)
    assert found["kernels"]["cache"].startswith(str(tmp_path / "kernels"))
    assert (found["kernels"]["writable"], found["kernels"]["compiled"]) == (True, False)
    assert found["filesystem"]["path"] == str(tmp_path)


def test_compiling_is_announced_when_no_kernel_is_compiled_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dynfrsdb.cli.opening import mention_compiling

    monkeypatch.setattr("dynfrsdb_engine.kernel.CACHED", True)
    monkeypatch.setattr("dynfrsdb_engine.kernel.CACHE", tmp_path)
    mention_compiling()
    (tmp_path / "kernel.nbc").touch()
    mention_compiling()

    assert capsys.readouterr().err == "dynfrsdb: compiling kernels, once; this takes about a minute\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("info", "/nowhere/to/be/found"), 5, "there is no store at"),
        (("sample", "STORE", 999), 5, "sample 999 is not in"),
        (("sample", "STORE", 2**64), 2, "is not in the range"),
        (("sample", "STORE", "three"), 2, "see 'dynfrsdb sample --help'"),
        (("info", "STORE", "--bogus"), 2, "no such option"),
        (("remove", "STORE"), 2, "missing option '--id'"),
        (("bogus",), 2, "no such command"),
        (("info", __file__), 3, "dynfrsdb: "),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    store: Path, arguments: tuple[object, ...], code: int, words: str
) -> None:
    ran = command(*(store if each == "STORE" else each for each in arguments))

    assert (ran.code, ran.out) == (code, "")
    assert words in ran.error
