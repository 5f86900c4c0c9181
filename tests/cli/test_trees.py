"""Verbs that look at trees and people say what is in the store; pictures of them stand by themselves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dynfrsdb
from tests.cli.command import dynfrsdb as command
from tests.cli.command import on_a_terminal
from tests.cli.conftest import make_store

EVIL = "<script>alert('&')</script>\x01"
SVG = "{http://www.w3.org/2000/svg}"


def make_tagged(directory: Path) -> Path:
    """A store with tags, one subject forgotten, and names that are not what a page expects."""
    x = np.random.default_rng(3).normal(size=(80, 3)).astype(np.float32)
    path = directory / "<b>&.forest"
    people = [f"person {row // 2}" for row in range(80)]
    labels = np.where(x.sum(axis=1) > 0, EVIL, "plain")
    shape: dict[str, Any] = {"n_estimators": 3, "q": 1.0, "seed": 5, "_bucket": 8}
    dynfrsdb.create(path, x, labels, subjects=people, feature_names=[EVIL, "b", "c"], **shape).close()
    with dynfrsdb.open(path, "w", settle=None) as db:
        db.forget("person 4")
        db.remove(range(20, 35))
    return path


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tagged(tmp_path_factory.mktemp("tags"))


def test_a_tree_is_shown_down_to_the_depth_asked_for(store: Path) -> None:
    whole, cut = command("tree", store, 0, "--depth", 20).data, command("tree", store, 0, "--depth", 1).data

    leaves = [node for node in _nodes(whole["root"]) if node["kind"] == "leaf"]
    assert sum(leaf["samples"] for leaf in leaves) == whole["samples"] == whole["root"]["samples"]
    assert [sum(counts) for counts in zip(*(leaf["counts"] for leaf in leaves), strict=True)] == whole["root"]["counts"]
    assert max(len(node["path"]) for node in _nodes(cut["root"])) == 1
    assert any(node.get("more") for node in _nodes(cut["root"]))


def test_a_terminal_gets_a_drawn_tree_and_no_orders(store: Path, tagged: Path) -> None:
    assert "├── " in on_a_terminal("tree", store, 0)
    assert "TAG" in on_a_terminal("tree", tagged, 0)
    assert "\x01" not in on_a_terminal("importances", tagged)


def test_a_node_names_its_candidates_and_how_close_it_was(store: Path) -> None:
    root = command("tree", store, 0, "--depth", 0).data["root"]

    node = command("node", store, 0, ".").data

    assert (node["best"]["feature"], node["best"]["threshold"]) == (root["feature"], root["threshold"])
    assert min(cut["score"] for each in node["candidates"] for cut in each["cuts"]) == node["best"]["score"]
    assert node["margin"] == node["runner_up"]["score"] - node["best"]["score"]
    assert command("node", store, 0, "0b1").data == node
    cuts = csv.DictReader(io.StringIO(command("node", store, 0, ".", "--csv").out))
    assert min(float(cut["score"]) for cut in cuts) == node["best"]["score"]


def test_what_a_tag_will_be_is_counted_from_its_rows(tmp_path: Path) -> None:
    own = make_tagged(tmp_path)
    tags = [n for n in _nodes(command("tree", own, 0, "--depth", 9).data["root"]) if n["kind"] == "tag"]
    path = max(tags, key=lambda tag: tag["samples"])["path"]

    tag = command("node", own, 0, path).data
    with dynfrsdb.open(own, "w") as db:
        db.settle()
    settled = command("node", own, 0, path).data

    assert (tag["kind"], settled["kind"]) == ("tag", "split")
    assert (tag["best"], tag["candidates"]) == (settled["best"], settled["candidates"])


def test_importances_add_up_to_one_and_say_what_they_leave_out(store: Path, tmp_path: Path) -> None:
    own = make_store(tmp_path / "own.forest")
    with dynfrsdb.open(own, "w", settle=None) as db:
        db.remove(range(20))

    whole, partly = command("importances", store), command("importances", own)

    assert sum(each["importance"] for each in whole.data) == pytest.approx(1.0)
    assert {each["feature"] for each in whole.data} == {"age", "[red]weight", "height"}
    assert (whole.err, len(command("importances", store, "--top", 2).data)) == ("", 2)
    assert "tagged parts" in partly.error
    assert "█" in on_a_terminal("importances", store)


def test_a_sample_is_found_where_the_tree_shows_a_leaf(store: Path) -> None:
    found = command("sample", store, 3).data

    for place in found["places"]:
        node = command("node", store, place["tree"], place["path"]).data
        assert (node["kind"], node["samples"]) == ("leaf", place["samples"])
    assert [place["tree"] for place in found["places"]] == found["trees"]


def test_a_subject_is_found_by_name_and_by_hash_when_forgotten(tagged: Path) -> None:
    live, gone = command("subject", tagged, "person 3").data, command("subject", tagged, "person 4").data

    assert (live["ids"], live["forgotten_in"]) == ([6, 7], [])
    assert (gone["samples"], gone["forgotten_in"]) == (0, [2])
    assert command("ledger", tagged).data[1]["subjects"] == [gone["subject_hash"]]
    assert command("subject", tagged, "nobody").code == 5


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("tree", "STORE", 7), 5, "there is no tree 7"),
        (("tree", "STORE", -1), 2, "no such option"),
        (("node", "STORE", 0, "LXR"), 2, "'LXR' is no path"),
        (("node", "STORE", 0, "L" * 57), 2, "57 steps"),
        (("node", "STORE", 0, "L" * 30), 5, "is a leaf"),
        (("tree", "STORE", 0, "--svg", "/nowhere/at/all.svg"), 3, "'/nowhere/at/all.svg': no such file"),
        (("info", "STORE", "--html", "/"), 2, "is a directory"),
    ],
)
def test_a_place_that_is_not_there_is_one_line(
    store: Path, arguments: tuple[object, ...], code: int, words: str
) -> None:
    ran = command(*(store if each == "STORE" else each for each in arguments))

    assert (ran.code, ran.out) == (code, "")
    assert words in ran.error


def test_a_damaged_record_is_named_and_not_shown(tmp_path: Path) -> None:
    damaged = make_store(tmp_path / "damaged.forest")
    (data,) = damaged.glob("gen-*/data.mdb")
    whole = data.read_bytes()
    with dynfrsdb.open(damaged) as db, db._store.snapshot() as snapshot:
        payload = next(payload for _, payload in snapshot.scan("nodes"))
    data.write_bytes(whole.replace(payload[:40], payload[:39] + bytes([payload[39] ^ 1])))

    ran = command("tree", damaged, 0)

    assert (ran.code, ran.out) == (1, "")
    assert "fails its checksum" in ran.error or "is damaged" in ran.error


def test_the_picture_of_a_tree_stands_by_itself(tagged: Path, tmp_path: Path) -> None:
    ran = command("tree", tagged, 1, "--svg", tmp_path / "tree.svg")

    text = (tmp_path / "tree.svg").read_text()
    drawn = ElementTree.fromstring(text)
    assert ran.data == {"svg": str(tmp_path / "tree.svg")}
    assert len(drawn.findall(f"{SVG}g")) == len(list(_nodes(command("tree", tagged, 1).data["root"])))
    assert _foreign(text.replace("http://www.w3.org/2000/svg", "")) == []


def test_the_page_of_a_store_stands_by_itself(tagged: Path, tmp_path: Path) -> None:
    command("info", tagged, "--html", tmp_path / "page.html")

    text = (tmp_path / "page.html").read_text()
    tags = _Tags()
    tags.feed(text)
    assert {"script", "link", "img", "iframe", "b&"} & tags.seen == set()
    assert tags.seen >= {"svg", "table", "style"}
    assert _foreign(text) == []
    assert tags.open == []


def test_a_tall_thin_and_an_empty_tree_can_be_drawn(tmp_path: Path) -> None:
    dynfrsdb.create(tmp_path / "empty.forest", n_features=2, classes=["a"], n_estimators=2).close()
    targets = np.arange(30.0)
    dynfrsdb.create(
        tmp_path / "means.forest", targets[:, None], targets, task="regression", n_estimators=1, min_samples_split=2
    ).close()

    for name in ("empty", "means"):
        store = tmp_path / f"{name}.forest"
        assert command("tree", store, 0, "--svg", tmp_path / "a.svg", "--depth", 56).code == 0
        assert command("info", store, "--html", tmp_path / "a.html").code == 0
        assert on_a_terminal("tree", store, 0)
        assert on_a_terminal("node", store, 0, ".")
        assert isinstance(json.loads(command("importances", store).out), list)
        ElementTree.parse(tmp_path / "a.svg")


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for side in ("left", "right"):
        if side in node:
            yield from _nodes(node[side])


def _foreign(text: str) -> list[str]:
    """What would make a browser fetch something."""
    return [word for word in ("http:", "https:", "src=", "href=", "url(", "@import") if word in text]


class _Tags(HTMLParser):
    """Which elements a page has, and which it leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
