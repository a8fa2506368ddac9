"""Which two calls of a tool are one call, and which never are."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache import ReadTool, Scope, ToolCache, ToolCall, ToolResult

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_keys.json").read_text("utf-8"))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


class Runs:
    """A tool that counts its runs; each gives its number."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, call: ToolCall) -> int:
        self.count += 1
        return self.count


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def tools() -> ToolCache:
    return ToolCache(reads={"Search": (), "Other": (), "Mine": ReadTool((), per_caller=True)})


def call(arguments: Any = None, name: str = "Search", **options: Any) -> ToolCall:
    return ToolCall(name, {} if arguments is None else arguments, cwd="/", **options)


def are_one(tools: ToolCache, one: ToolCall, other: ToolCall) -> bool:
    """Tell whether *other* is answered with what *one* gave."""
    runs = Runs()
    tools.clear()
    tools.call(one, runs)
    return tools.call(other, runs).cached


class TestGoldenKeys:
    """R06: no release changes a key unnoticed; a change needs a new version in the key."""

    @pytest.mark.parametrize(
        "golden", [pytest.param(each, id=each["id"]) for each in GOLDEN["tools"]]
    )
    def test_key_is_as_pinned(self, golden: dict[str, Any]) -> None:
        tools = ToolCache(namespace=golden["namespace"])
        scope = None if golden["scope"] is None else Scope(**golden["scope"])
        called = ToolCall(golden["name"], golden["arguments"], cwd="/", scope=scope)
        policy = ReadTool((), version=golden["version"])

        assert tools._key(called, policy, golden["form"]) == golden["key"]

    def test_all_differ(self) -> None:
        keys = [each["key"] for each in GOLDEN["tools"]]

        assert len(set(keys)) == len(keys)


class TestArguments:
    def test_order_of_keys_makes_no_difference(self, tools: ToolCache) -> None:
        """R06: at any depth."""
        one = call({"path": "a.rs", "line": 1, "deep": [{"x": 1, "y": 2}]})
        other = call({"deep": [{"y": 2, "x": 1}], "line": 1, "path": "a.rs"})

        assert are_one(tools, one, other)

    @given(arguments=st.dictionaries(st.text(max_size=4), json_values, max_size=5))
    def test_order_never_matters(self, arguments: dict[str, Any]) -> None:
        """R06"""

        def turned(value: Any) -> Any:
            if type(value) is dict:
                return {name: turned(value[name]) for name in reversed(list(value))}
            return [turned(each) for each in value] if type(value) is list else value

        tools = ToolCache(reads={"Search": ()})

        assert are_one(tools, call(arguments), call(turned(arguments)))

    def test_mapping_of_another_type_is_the_same_call(self, tools: ToolCache) -> None:
        assert are_one(tools, call({"a": 1}), call(MappingProxyType({"a": 1})))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(one, other, id=f"{one!r}-{other!r}")
            for one, other in combinations(
                [
                    {"x": True},
                    {"x": 1},
                    {"x": 1.0},
                    {"x": "1"},
                    {"x": None},
                    {},
                    {"x": [1]},
                    {"x": {"x": 1}},
                ],
                2,
            )
        ]
        + [
            pytest.param({"x": 0.0}, {"x": -0.0}, id="zeros"),
            pytest.param({"x": False}, {"x": 0}, id="false-and-zero"),
            pytest.param({"x": ""}, {"x": None}, id="empty-and-none"),
            pytest.param({"x": []}, {"x": {}}, id="list-and-object"),
            pytest.param({"x": [1, 2]}, {"x": [2, 1]}, id="order-of-a-list"),
            pytest.param({"x": 2**53}, {"x": 2**53 + 1}, id="large-numbers"),
            pytest.param({"x": "e\u0301"}, {"x": "\u00e9"}, id="composed"),
            pytest.param({"x": "a"}, {"x": "a "}, id="space"),
            pytest.param({"x": "Foo"}, {"x": "FOO"}, id="case-of-a-value"),
            pytest.param({"x": 1}, {"X": 1}, id="case-of-a-key"),
            pytest.param({"x": ["a", ["b"]]}, {"x": ["a", "b"]}, id="nesting"),
            pytest.param({"x": ["a,b"]}, {"x": ["a", "b"]}, id="boundaries"),
        ],
    )
    def test_everything_else_does(self, tools: ToolCache, one: Any, other: Any) -> None:
        """R07: each in both orders; R10: nothing of an argument is folded."""
        assert not are_one(tools, call(one), call(other))
        assert not are_one(tools, call(other), call(one))

    def test_number_is_compared_by_its_value_not_by_its_spelling(self, tools: ToolCache) -> None:
        assert are_one(tools, call(json.loads('{"x": 1.0}')), call(json.loads('{"x": 1.00}')))

    @pytest.mark.parametrize("value", [True, 1, 1.0, "1", None, [1], {"a": 1.5}, -0.0])
    def test_type_that_comes_back_is_the_type_that_went_in(
        self, tools: ToolCache, value: Any
    ) -> None:
        """R07"""
        tools.call(call({"x": 1}), lambda _: value)
        back = tools.call(call({"x": 1}), lambda _: "run again")

        assert back.cached
        assert type(back.content) is type(value) and back.content == value
        if value == 0:
            assert math.copysign(1, back.content) == math.copysign(1, value)

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param((1, 2), id="tuple"),
            pytest.param({1, 2}, id="set"),
            pytest.param(b"a", id="bytes"),
            pytest.param({1: "a"}, id="int-key"),
            pytest.param(float("nan"), id="nan"),
            pytest.param("\ud800", id="lone-surrogate"),
            pytest.param(2**64, id="too-large"),
            pytest.param(object(), id="object"),
        ],
    )
    def test_call_whose_arguments_are_no_json_runs_each_time(
        self, tools: ToolCache, runs: Runs, value: Any
    ) -> None:
        """R06: never keyed on the text form of an object, and never an exception."""
        for number in (1, 2):
            assert tools.call(call({"x": value}), runs).content == number
        assert tools.stats()["misses"] == 2
        assert tools.stats()["refused"] == 2
        assert len(tools) == 0


class TestTool:
    def test_name_is_compared_to_the_letter(self, runs: Runs) -> None:
        tools = ToolCache(reads={"Search": (), "search": ()})

        assert not are_one(tools, call(name="Search"), call(name="search"))

    def test_name_and_arguments_keep_their_boundary(self) -> None:
        """R08"""
        tools = ToolCache(reads={"x": (), "x:y": ()})

        assert not are_one(tools, call({"a": "y:z"}, "x"), call({"a": "z"}, "x:y"))

    def test_raised_version_is_a_miss_and_the_old_one_a_hit_after_a_restart(
        self, tmp_path: Path, runs: Runs
    ) -> None:
        """R09"""

        def open_cache(version: str) -> ToolCache:
            return ToolCache(
                tmp_path / "tools.jsonl", reads={"Search": ReadTool((), version=version)}
            )

        with open_cache("1") as tools:
            tools.call(call(), runs)
        with open_cache("2") as tools:
            assert not tools.call(call(), runs).cached
        with open_cache("1") as tools:
            assert tools.call(call(), runs).content == 1
        with open_cache("2") as tools:
            assert tools.call(call(), runs).content == 2

    def test_default_version_is_version_one(self, tmp_path: Path, runs: Runs) -> None:
        path = tmp_path / "tools.jsonl"
        ToolCache(path, reads={"Search": ()}).call(call(), runs)

        assert (
            ToolCache(path, reads={"Search": ReadTool((), version="1")}).call(call(), runs).cached
        )

    def test_stream_and_call_are_kept_apart(self, tools: ToolCache) -> None:
        tools.call(call(), lambda _: "whole")

        assert list(tools.stream(call(), lambda _: ["a", "b"])) == ["a", "b"]
        assert tools.call(call(), lambda _: "again").content == "whole"
        assert list(tools.stream(call(), lambda _: ["again"])) == ["a", "b"]


class TestScope:
    @pytest.mark.parametrize("name", ["agent", "user", "session"])
    def test_each_part_is_a_part_of_the_key(self, tools: ToolCache, name: str) -> None:
        """R04, E05"""
        whole = {"agent": "a", "user": "u", "session": "s"}
        one = call(scope=Scope(**whole))

        assert are_one(tools, one, call(scope=Scope(**whole)))
        for other in ("A", "a b", None, ""):
            assert not are_one(tools, one, call(scope=Scope(**{**whole, name: other})))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param({"agent": "a"}, {"user": "a"}, id="agent-user"),
            pytest.param({"user": "a"}, {"session": "a"}, id="user-session"),
            pytest.param({"agent": "a", "user": "b"}, {"agent": "ab"}, id="glued"),
            pytest.param({"agent": "a/b", "user": "c"}, {"agent": "a", "user": "b/c"}, id="slash"),
            pytest.param({"agent": 'a","b'}, {"agent": "a", "user": "b"}, id="quotes"),
            pytest.param({"user": "None"}, {"user": None, "session": "s"}, id="none"),
            pytest.param({"user": "x"}, None, id="nobody"),
        ],
    )
    def test_parts_keep_their_boundaries(self, tools: ToolCache, one: Any, other: Any) -> None:
        """R08"""
        two = None if other is None else Scope(**other)

        assert not are_one(tools, call(scope=Scope(**one)), call(scope=two))
        assert not are_one(tools, call(scope=two), call(scope=Scope(**one)))

    def test_scope_typed_into_an_argument_is_no_scope(self, tools: ToolCache) -> None:
        """R03"""
        one = call({"q": "x"}, scope=Scope(user="alice"))

        assert not are_one(tools, one, call({"q": "x", "user": "alice"}, scope=Scope(user="bob")))

    def test_call_id_and_turn_are_no_part_of_it(self, tools: ToolCache) -> None:
        assert are_one(tools, call(call_id="a", turn=1), call(call_id="b", turn=7))

    def test_namespaces_are_apart_in_one_file(self, tmp_path: Path, runs: Runs) -> None:
        path = tmp_path / "tools.jsonl"
        for namespace in (None, "acme", "Acme"):
            tools = ToolCache(path, namespace=namespace, reads={"Search": ()})
            assert not tools.call(call(), runs).cached
            assert tools.call(call(), runs).cached
            assert len(tools) == 1

    @pytest.mark.parametrize("user", ["\ud800", ("a", "b"), b"a", 2**70])
    @pytest.mark.parametrize("name", ["Search", "Unnamed"])
    def test_scope_that_is_no_json_has_the_tool_run_and_nothing_kept(
        self, tools: ToolCache, runs: Runs, name: str, user: Any
    ) -> None:
        """Also for what writes: a strange name must not keep a tool from running."""
        for number in (1, 2):
            result = tools.call(call(name=name, scope=Scope(user=user)), runs)
            assert (result.content, result.cached) == (number, False)


class TestPerCaller:
    def test_without_a_user_it_is_not_cached(self, tools: ToolCache, runs: Runs) -> None:
        """R04: neither kept nor served."""
        for scope in (None, Scope(agent="a", session="s"), None):
            assert not tools.call(call(name="Mine", scope=scope), runs).cached
        assert runs.count == 3
        assert len(tools) == 0
        assert tools.stats()["bypassed"] == 3

    def test_with_a_user_it_is_cached_for_that_user(self, tools: ToolCache, runs: Runs) -> None:
        """R04: admin's result is not reader's."""
        admin, reader = (call(name="Mine", scope=Scope(user=user)) for user in ("admin", "reader"))
        assert tools.call(admin, runs).content == 1
        assert tools.call(reader, runs).content == 2
        assert tools.call(admin, runs).content == 1
        assert tools.call(reader, runs).content == 2

    def test_without_a_user_it_is_no_write_either(self, tools: ToolCache, runs: Runs) -> None:
        tools.call(call(), runs)
        tools.call(call(name="Mine"), runs)

        assert tools.call(call(), runs).cached

    def test_empty_name_is_a_user(self, tools: ToolCache, runs: Runs) -> None:
        tools.call(call(name="Mine", scope=Scope(user="")), runs)

        assert tools.call(call(name="Mine", scope=Scope(user="")), runs).cached


@pytest.fixture
def repos(tmp_path: Path) -> Path:
    """Two folders with a file of the same name, and a link to the first."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(name)
    (tmp_path / "link").symlink_to("one")
    return tmp_path


@pytest.fixture
def read(repos: Path) -> Callable[..., ToolResult]:
    """Read ``a.py`` in a folder, through one cache."""
    tools = ToolCache(reads={"Read": lambda arguments, cwd: [arguments["path"]]})

    def read_in(cwd: Any, path: str = "a.py") -> ToolResult:
        def run(called: ToolCall) -> str:
            file = Path(os.getcwd() if cwd is None else cwd, called.arguments["path"])
            return file.read_text() if file.exists() else "no such file"

        cwd_text = None if cwd is None else os.fspath(cwd)
        return tools.call(ToolCall("Read", {"path": path}, cwd=cwd_text), run)

    return read_in


class TestFolder:
    def test_same_arguments_in_another_folder_are_another_call(
        self, repos: Path, read: Callable[..., ToolResult]
    ) -> None:
        """E05, R14"""
        assert read(repos / "one").content == "one"
        assert read(repos / "two").content == "two"
        assert read(repos / "one").cached and read(repos / "two").cached

    @pytest.mark.parametrize("spelling", ["link", "one/", "one/.", "two/../one", "./one//"])
    def test_spellings_of_one_folder_are_one(
        self, repos: Path, read: Callable[..., ToolResult], spelling: str
    ) -> None:
        """R14"""
        read(repos / "one")

        assert read(f"{repos}/{spelling}").cached

    def test_process_s_folder_stands_in_for_none(
        self, repos: Path, read: Callable[..., ToolResult], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(repos / "one")
        assert not read(None).cached
        assert read(repos / "one").cached
        monkeypatch.chdir(repos / "two")

        assert read(None).content == "two"

    def test_link_that_is_pointed_elsewhere_is_the_other_folder(
        self, repos: Path, read: Callable[..., ToolResult]
    ) -> None:
        """E29: it is walked along anew."""
        assert read(repos / "link").content == "one"
        (repos / "link").unlink()
        (repos / "link").symlink_to("two")

        assert read(repos / "link").content == "two"
        assert read(repos / "two").cached

    def test_folder_replaced_by_another_is_read_anew(
        self, repos: Path, read: Callable[..., ToolResult]
    ) -> None:
        read(repos / "one")
        (repos / "one").rename(repos / "old")
        (repos / "two").rename(repos / "one")

        assert read(repos / "one").content == "two"

    def test_folder_moved_and_linked_again_does_not_answer_for_what_came_in_its_place(
        self, repos: Path, read: Callable[..., ToolResult]
    ) -> None:
        """E05, E29: the link leads to the same folder still, which has another real path by now."""
        assert read(repos / "link").content == "one"
        (repos / "one").rename(repos / "moved")
        (repos / "link").unlink()
        (repos / "link").symlink_to("moved")
        (repos / "one").mkdir()
        (repos / "one" / "a.py").write_text("what came in its place")
        read(repos / "link")

        assert read(repos / "one").content == "what came in its place"

    def test_relative_folder_stays_the_one_it_was(
        self, repos: Path, read: Callable[..., ToolResult], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E30: the process goes elsewhere, and a file that was missing appears."""
        monkeypatch.chdir(repos)
        assert read("one", "new.py").content == "no such file"
        monkeypatch.chdir(repos / "two")
        (repos / "one" / "new.py").write_text("here")

        assert read(repos / "one", "new.py").content == "here"

    def test_folder_that_is_missing_has_a_key_too(
        self, repos: Path, read: Callable[..., ToolResult]
    ) -> None:
        assert read(repos / "three").content == "no such file"
        assert read(repos / "three").cached

    def test_vanished_working_folder_has_tools_run(
        self, repos: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing in the way: no key can be told then, but what is asked for can run."""
        monkeypatch.chdir(repos / "one")
        (repos / "one" / "a.py").unlink()
        (repos / "one").rmdir()
        tools = ToolCache(reads={"Search": ()}, writes={"Edit": ["/a"]})
        runs = Runs()

        for number, name in enumerate(["Search", "Edit", "Unnamed"], 1):
            assert tools.call(ToolCall(name, {}), runs).content == number
        assert tools.call(call(), runs).content == 4

    @pytest.mark.parametrize("cwd", ["/a\0b", "/\udcff"], ids=["nul", "surrogate"])
    @pytest.mark.parametrize("name", ["Search", "Unnamed"])
    def test_folder_that_is_no_path_has_the_tool_run(
        self, tools: ToolCache, runs: Runs, cwd: str, name: str
    ) -> None:
        for number in (1, 2):
            assert tools.call(ToolCall(name, {}, cwd=cwd), runs).content == number


CHILD = """
import sys
from respcache import Scope, ToolCache, ToolCall
tools = ToolCache(sys.argv[1], reads={"Search": ()})
arguments = {"b": [1, {"d": 1, "c": 2}], "a": "text"}
scope = Scope(agent="a", user="u", session="s")
print(tools.call(ToolCall("Search", arguments, cwd="/", scope=scope), lambda _: 1).cached)
"""


@pytest.mark.xdist_group("processes")
def test_key_is_the_same_in_every_process(tmp_path: Path) -> None:
    """R05: whatever the seed of Python's own hash."""
    seen = []
    for seed in ("1", "2"):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path / "tools.jsonl")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert child.returncode == 0, child.stderr
        seen.append(child.stdout.strip())

    assert seen == ["False", "True"]
