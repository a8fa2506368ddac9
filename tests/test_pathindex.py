"""Entries found by their paths, and removals as files keep them: both just as the rules say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from respcache._pathindex import PathIndex
from respcache._paths import spellings
from respcache._rules import Removal, meets

names = st.sampled_from(["a", "b", "ab", "a.py", "a:", " ", "ß", "-"])
plain = st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
drive = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(["c:", *parts]))
#: As somebody may have typed them.
typed = st.builds(
    lambda path, end: path + end, plain, st.sampled_from(["", "/", "/.", "//", "/b/.."])
)
#: With a slash at the end, or without.
ended = st.builds(
    lambda path, end: path.rstrip("/") + end, plain, st.sampled_from(["", "/"])
).filter(bool)
keys = st.sampled_from("klmnop")


def worlds(paths: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Return entries by key, and a path that has changed."""
    kept = st.lists(st.tuples(paths, st.booleans()), max_size=4)
    return st.tuples(st.dictionaries(keys, kept), paths)


def touched(entries: dict[str, list[tuple[str, bool]]], changed: str) -> set[str]:
    """Return what the rule says, asked for each pair."""
    return {
        key
        for key, each in entries.items()
        if any(meets(path, is_tree, changed) for path, is_tree in each)
    }


def index_of(entries: dict[str, list[tuple[str, bool]]]) -> PathIndex:
    index = PathIndex()
    for key, each in entries.items():
        index.add(key, each)
    return index


class TestPathIndex:
    @given(world=worlds(plain) | worlds(drive | st.sampled_from(["c:/", "/"])))
    @example(world=({"k": [("/", True)]}, "/"))
    @example(world=({"k": [("/", False)]}, "/a"))
    @example(world=({"k": [("/a", False), ("/a", True)]}, "/a/b"))
    @example(world=({"k": [("c:/", True)]}, "c:/a"))
    @example(world=({"k": [("c:/a", False)]}, "/"))
    @example(world=({"k": [("/ab", True)]}, "/a"))
    def test_finds_what_the_rule_finds_in_all(self, world: Any) -> None:
        entries, changed = world
        found = index_of(entries).touched(changed)

        assert len(found) == len(set(found))
        assert set(found) == touched(entries, changed)

    @given(world=worlds(typed))
    @example(world=({"k": [("/a/", False)]}, "/a"))
    @example(world=({"k": [("/a", False)]}, "/a/"))
    def test_finds_it_by_all_names_that_a_path_is_known_by(self, world: Any) -> None:
        """Entries and removals hold a path as it was typed, and in its plain form."""
        entries, changed = world
        known = {
            key: [(name, is_tree) for path, is_tree in each for name in spellings(path)]
            for key, each in entries.items()
        }
        index = index_of(known)
        found = {key for name in spellings(changed) for key in index.touched(name)}

        assert found == {key for name in spellings(changed) for key in touched(known, name)}

    @given(path=ended, is_tree=st.booleans(), changed=ended)
    @example(path="/a", is_tree=False, changed="/a/")
    @example(path="/a/", is_tree=False, changed="/a")
    def test_tells_of_each_pair_what_the_rule_tells(
        self, path: str, is_tree: bool, changed: str
    ) -> None:
        """With a slash at the end, too: a folder has the same files either way."""
        found = index_of({"k": [(path, is_tree)]}).touched(changed)

        assert found == (["k"] if meets(path, is_tree, changed) else [])

    @settings(max_examples=50)
    @given(data=st.data())
    def test_stays_right_while_entries_come_and_go_and_is_empty_at_the_end(
        self, data: st.DataObject
    ) -> None:
        index = PathIndex()
        entries: dict[str, list[tuple[str, bool]]] = {}
        for _ in range(data.draw(st.integers(1, 12))):
            key = data.draw(keys)
            if key in entries:
                index.remove(key, entries.pop(key))
            else:
                some = data.draw(st.lists(st.tuples(ended, st.booleans()), min_size=1, max_size=4))
                # A path twice, as two spellings of one file give it.
                entries[key] = [
                    (name, is_tree) for path, is_tree in some for name in (path, *spellings(path))
                ]
                index.add(key, entries[key])
            changed = data.draw(plain)
            assert set(index.touched(changed)) == touched(entries, changed)
        for key, each in entries.items():
            index.remove(key, each)

        assert index.touched("/") == []
        assert index._root == {}

    def test_one_key_under_two_spellings_of_a_path_is_removed_whole(self) -> None:
        index = PathIndex()
        index.add("k", [("/a/", False), ("/a", False), ("/a", True)])
        index.remove("k", [("/a/", False), ("/a", False), ("/a", True)])

        assert index._root == {}

    def test_removal_of_one_leaves_its_neighbours(self) -> None:
        index = PathIndex()
        index.add("k", [("/a/b", False)])
        index.add("l", [("/a/b", False), ("/a", True), ("/a/b/c", False)])
        index.remove("k", [("/a/b", False)])

        assert index.touched("/a/b") == ["l"]
        assert index.touched("/a") == ["l"]

    def test_knows_the_same_key_once_for_all_its_paths(self) -> None:
        index = PathIndex()
        index.add("k", [(f"/a/{number}", False) for number in range(5)] + [("/a", True)])

        assert index.touched("/a") == ["k"]
        assert index.touched("/a/3") == ["k"]
        assert index.touched("/b") == []


ids = st.text("0123456789abcdef", min_size=16, max_size=16)
texts = st.text(max_size=8)
removals = st.builds(
    Removal,
    ids,
    keys=st.lists(texts, max_size=3),
    paths=st.lists(texts, max_size=3),
    scope=st.none() | texts,
    kind=st.sampled_from(["removed", "begun", "kept"]),
    ends=st.none() | ids,
    at=st.floats(0, 1e12) | st.integers(0, 10**12),
    mark=texts,
)


class TestRemovalInAFile:
    @given(removal=removals)
    def test_comes_back_as_it_was(self, removal: Removal) -> None:
        back = Removal.from_json(removal.to_json())

        for name in ("id", "keys", "paths", "scope", "everything", "kind", "ends"):
            assert getattr(back, name) == getattr(removal, name)
        assert back.at == (removal.at if removal.kind == "begun" else 0.0)
        assert back.mark == (removal.mark if removal.kind == "begun" else "")

    @given(id=ids)
    def test_one_of_everything_comes_back_as_one(self, id: str) -> None:
        back = Removal.from_json(Removal(id, everything=True).to_json())

        assert (back.id, back.everything) == (id, True)
        assert back.touches("any", ())

    @pytest.mark.parametrize(
        "form",
        [
            pytest.param({"id": "x"}, id="nothing-named"),
            pytest.param({"id": "x", "paths": [], "later": 1}, id="unknown-field"),
            pytest.param({"id": "x", "paths": ["/a"], "kind": "moved"}, id="unknown-kind"),
            pytest.param({"id": "x", "paths": ["/a"], "kind": None}, id="no-kind"),
            pytest.param({"id": "x", "paths": "/a"}, id="paths-that-are-a-text"),
            pytest.param({"id": "x", "paths": ["/a", 1]}, id="path-that-is-a-number"),
            pytest.param({"id": "x", "keys": [None]}, id="key-that-is-none"),
            pytest.param({"id": "x", "keys": {"a": 1}}, id="keys-that-are-an-object"),
            pytest.param({"id": "x", "scope": 1}, id="scope-that-is-a-number"),
            pytest.param({"id": "x", "all": "yes", "keys": []}, id="odd-all"),
            pytest.param({"id": "x", "all": True, "kind": "begun"}, id="begun-everything"),
            pytest.param({"id": "x", "paths": ["/a"], "ends": 1}, id="ends-a-number"),
            pytest.param({"id": "x", "paths": ["/a"], "kind": "begun", "at": "now"}, id="odd-at"),
            pytest.param({"id": "x", "paths": ["/a"], "kind": "begun", "mark": 5}, id="odd-mark"),
            pytest.param({"id": 1, "keys": []}, id="id-that-is-a-number"),
            pytest.param({"keys": []}, id="no-id"),
            pytest.param({}, id="empty"),
        ],
    )
    def test_form_that_is_not_known_takes_everything(self, form: dict[str, Any]) -> None:
        """E13: an unknown operation must not let a stale answer live."""
        removal = Removal.from_json(form)

        assert removal.everything
        assert removal.kind == "removed"
        assert removal.touches("any", ())

    @given(
        form=st.fixed_dictionaries(
            {},
            optional={
                "id": st.none() | texts,
                "keys": st.lists(texts | st.none()),
                "paths": st.lists(texts.map(lambda text: f"/{text}") | st.none()),
                "scope": st.none() | texts,
                "all": st.none() | st.booleans(),
                "kind": st.none() | texts,
                "more": texts,
            },
        )
    )
    def test_no_form_takes_less_than_it_names(self, form: dict[str, Any]) -> None:
        removal = Removal.from_json(form)

        for key in form.get("keys") or ():
            assert removal.touches(str(key), ())
        for path in form.get("paths") or ():
            assert removal.touches("", [(str(path), False)])
        if form.get("scope"):
            assert removal.touches(f"{form['scope']}rest", ())
