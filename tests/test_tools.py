"""What a tool cache keeps, serves and tells: one process, all stores."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from respcache import (
    Cache,
    Config,
    ConfigError,
    Event,
    Hit,
    ReadTool,
    Scope,
    ToolCache,
    ToolCall,
    ToolResult,
    Tree,
    UncacheableError,
)
from respcache._switches import DISABLE, READONLY, REFRESH
from respcache.testing import FakeClock

LONG = 30.0  # seconds after which a test that hangs fails

MakeTools = Callable[..., ToolCache]


class Runs:
    """A tool that counts its runs; each gives *result*, or the run's number."""

    def __init__(self, result: Any = None) -> None:
        self.result = result
        self.calls: list[ToolCall] = []

    def __call__(self, call: ToolCall) -> Any:
        self.calls.append(call)
        return len(self.calls) if self.result is None else self.result

    @property
    def count(self) -> int:
        return len(self.calls)


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture(params=["memory", "document", "log"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    suffix = {"memory": None, "document": "json", "log": "jsonl"}[request.param]
    return None if suffix is None else tmp_path / "cache" / f"tools.{suffix}"


#: For what memory has not: a second cache that shares it.
in_a_file = pytest.mark.parametrize("path", ["document", "log"], indirect=True)


@pytest.fixture
def make(path: Path | None, clock: FakeClock) -> Iterator[MakeTools]:
    """Open a cache whose tools read nothing, or who knows what, in the store under test."""
    opened = []

    def make_tools(**options: Any) -> ToolCache:
        defaults = {
            "reads": {"Search": (), "Mine": ReadTool((), per_caller=True), "Any": None},
            "writes": {"Edit": ["/somewhere"]},
            "neutral": {"Todo"},
            "fsync": False,
            "clock": clock,
        }
        tools = ToolCache(path, **{**defaults, **options})
        opened.append(tools)
        return tools

    yield make_tools
    for tools in opened:
        tools.close()


@pytest.fixture
def tools(make: MakeTools) -> ToolCache:
    return make()


def call(name: str = "Search", q: Any = "x", **options: Any) -> ToolCall:
    return ToolCall(name, {"q": q}, **{"cwd": "/", **options})


def at(turn: int | None, session: str | None = "s", **options: Any) -> ToolCall:
    return call(turn=turn, scope=Scope(session=session), **options)


class TestSession:
    """The memoizer's own session, turn by turn: it keeps Read and Glob for 5 turns."""

    def test_all_turns(self, make: MakeTools, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        main = tmp_path / "src" / "main.rs"
        main.write_text("fn main() {}")
        ran: list[str] = []

        def run(called: ToolCall) -> ToolResult:
            ran.append(called.name)
            if called.name == "Edit":
                main.write_text(called.arguments["text"])
                return ToolResult("done")
            return ToolResult(main.read_text(), duration=0.34 if len(ran) == 1 else 0.9)

        def files(arguments: Any, cwd: str) -> list[str]:
            return [arguments["path"]]

        tools = make(
            reads={"Read": files, "Glob": lambda arguments, cwd: Tree(cwd)},
            writes={"Edit": files, "Write": files},
            ttl=None,
            ttl_turns=5,
            marker="[cached]",
        )

        def ask(turn: int, name: str = "Read", **arguments: Any) -> ToolResult:
            return tools.call(
                ToolCall(
                    name,
                    {"path": "src/main.rs", **arguments},
                    call_id=f"t{turn}",
                    turn=turn,
                    cwd=str(tmp_path),
                    scope=Scope(session="s"),
                ),
                run,
            )

        first = ask(2)
        assert (first.content, first.cached, first.duration) == ("fn main() {}", False, 0.34)

        again = ask(3)
        assert ran == ["Read"]
        assert again.content == "fn main() {}\n[cached]"
        assert (again.call_id, again.duration, again.cached) == ("t3", 0.34, True)

        assert ask(4, "Edit", text="fn main() { new() }").content == "done"
        assert ran == ["Read", "Edit"]
        assert len(tools) == 0

        fresh = ask(5)
        assert (fresh.content, fresh.cached) == ("fn main() { new() }", False)
        assert ran == ["Read", "Edit", "Read"]
        assert ask(5).cached
        assert ask(9).cached  # 9 - 5 = 4 < 5
        assert ran == ["Read", "Edit", "Read"]

        assert not ask(12).cached  # all of turn 7 and before are gone on sight
        assert ran == ["Read", "Edit", "Read", "Read"]
        assert len(tools) == 1
        assert ask(16).cached and not ask(17).cached


class TestWhatIsKept:
    def test_equal_call_is_a_hit(self, tools: ToolCache, runs: Runs) -> None:
        assert tools.call(call(), runs) == ToolResult(1, duration=runs_duration(tools))
        assert tools.call(call(), runs).content == 1
        assert runs.count == 1

    def test_compute_gets_the_call(self, tools: ToolCache, runs: Runs) -> None:
        asked = call(call_id="t1")
        tools.call(asked, runs)

        assert runs.calls[0] is asked

    @pytest.mark.parametrize(
        "value",
        [None, 0, "", False, [], {}, 0.0, -0.0, " \n"],
        ids=["none", "zero", "empty", "false", "list", "dict", "float", "minus-zero", "blank"],
    )
    def test_falsy_result_is_a_hit_the_second_time(self, tools: ToolCache, value: Any) -> None:
        """R38"""
        count = []
        for _ in range(3):
            result = tools.call(call(), lambda _: count.append(1) or value)
            assert result.content == value and type(result.content) is type(value)
        assert len(count) == 1
        assert result.cached

    @pytest.mark.parametrize(
        "result",
        [
            pytest.param(ToolResult("no", is_error=True), id="error"),
            pytest.param({"isError": True, "content": []}, id="error-of-mcp"),
            pytest.param({"is_error": True}, id="error-of-others"),
            pytest.param(ToolResult({"isError": True}), id="error-within"),
            pytest.param(ToolResult("half", complete=False), id="incomplete"),
            pytest.param(ToolResult("yes", asked_user=True), id="asked-the-user"),
            pytest.param("x" * 65_536, id="too-large"),
            pytest.param({1, 2}, id="set"),
            pytest.param((1, 2), id="tuple"),
            pytest.param(b"bytes", id="bytes"),
            pytest.param({1: "a"}, id="int-keys"),
            pytest.param(float("nan"), id="nan"),
            pytest.param([float("inf")], id="infinite"),
            pytest.param("\ud800", id="lone-surrogate"),
            pytest.param(2**64, id="too-large-a-number"),
            pytest.param(ToolResult("x", duration=float("nan")), id="nan-as-duration"),
        ],
    )
    def test_result_that_may_not_be_kept_is_given_each_time(
        self, tools: ToolCache, result: Any
    ) -> None:
        """R17, R32, R36: never an exception, and never changed."""
        runs = Runs(result)
        content = result.content if isinstance(result, ToolResult) else result

        for number in (1, 2):
            got = tools.call(call(call_id="t"), runs)
            assert got.content is content
            assert (got.cached, got.call_id) == (False, "t")
            assert runs.count == number
        assert len(tools) == 0
        assert tools.stats()["refused"] == 2
        assert tools.stats()["misses"] == 2

    @pytest.mark.parametrize(
        "content",
        [
            {"isError": False},
            {"is_error": 1},
            {"is_error": "true"},
            {"error": "x"},
            [{"isError": True}],
            "isError",
        ],
        ids=str,
    )
    def test_content_of_another_shape_is_no_error(self, tools: ToolCache, content: Any) -> None:
        tools.call(call(), Runs(content))

        assert tools.call(call(), Runs()).content == content

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(5, "io")])
    def test_what_is_raised_passes_through_unchanged_and_is_not_kept(
        self, tools: ToolCache, runs: Runs, error: BaseException
    ) -> None:
        """R17"""

        def fail(_: ToolCall) -> None:
            raise error

        for name in ("Search", "Edit", "Todo", "Unnamed"):
            with pytest.raises(type(error)) as caught:
                tools.call(call(name), fail)
            assert caught.value is error
        assert not tools.call(call(), runs).cached

    def test_largest_size_counts_bytes_as_they_are_kept(self, make: MakeTools) -> None:
        """R33: one too large is not kept, and evicts nobody."""
        tools = make(max_entry_bytes=10)
        tools.call(call(q="old"), Runs("old"))
        for q, content in (("fits", "éééé"), ("over", "éééé1"), ("list", [1, 2222, 33])):
            tools.call(call(q=q), Runs(content))

        assert tools.call(call(q="fits"), Runs()).cached
        assert not tools.call(call(q="over"), Runs("ééééé")).cached
        assert tools.call(call(q="old"), Runs()).cached
        assert tools.stats()["refused"] == 3

    def test_gated_call_is_neither_served_nor_kept(self, tools: ToolCache, runs: Runs) -> None:
        tools.call(call(gated=True), runs)
        assert not tools.call(call(), runs).cached
        assert not tools.call(call(gated=True), runs).cached
        assert tools.call(call(), runs).content == 2

        assert runs.count == 3
        assert tools.stats()["bypassed"] == 2

    @pytest.mark.parametrize("name", ["Edit", "Todo", "Unnamed"])
    def test_only_named_reads_are_kept(self, tools: ToolCache, runs: Runs, name: str) -> None:
        """R13: a tool that nobody classified runs each time."""
        for number in (1, 2):
            assert tools.call(call(name), runs).content == number
        assert len(tools) == 0

    def test_read_of_ttl_zero_is_not_kept(self, make: MakeTools, runs: Runs) -> None:
        """R38"""
        for zero in (0, 0.0):
            tools = make(reads={"Search": ReadTool((), ttl=zero)})
            assert not tools.call(call(), runs).cached
            assert not tools.call(call(), runs).cached
            assert len(tools) == 0

    @pytest.mark.parametrize(
        ("content", "is_kept"),
        [
            pytest.param("text", True, id="text"),
            pytest.param([{"type": "text", "text": "a"}], True, id="text-parts"),
            pytest.param(["a", "b"], True, id="plain-text-parts"),
            pytest.param([{"type": "text", "text": "a"}, {"type": "image"}], False, id="image"),
            pytest.param({"a": 1}, False, id="object"),
            pytest.param([1], False, id="numbers"),
            pytest.param(None, False, id="none"),
            pytest.param(5, False, id="number"),
            pytest.param(["a", 5], False, id="text-and-number"),
        ],
    )
    def test_text_only(self, make: MakeTools, content: Any, is_kept: bool) -> None:
        """Texts, and lists whose parts are all texts."""
        tools = make(text_only=True)
        tools.call(call(), Runs(content))

        assert tools.call(call(), Runs(content)).cached is is_kept

    def test_without_text_only_every_json_value_is_kept(self, tools: ToolCache) -> None:
        tools.call(call(), Runs({"type": "image", "data": [1, None]}))

        assert tools.call(call(), Runs()).content == {"type": "image", "data": [1, None]}

    def test_store_if_and_serve_if_get_the_content(self, make: MakeTools, runs: Runs) -> None:
        seen: list[Any] = []
        tools = make(
            store_if=lambda content: seen.append(content) or content != 1,
            serve_if=lambda hit: seen.append(hit.response) or hit.response != 2,
        )
        assert [tools.call(call(), runs).content for _ in range(5)] == [1, 2, 3, 3, 3]
        assert seen[:2] == [1, 2]
        assert tools.stats()["refused"] == 1

    def test_wrapping_a_tool_twice_keeps_its_policy(self, make: MakeTools, runs: Runs) -> None:
        """R13: what has been run by an outer cache is not kept by an inner one that may not."""
        outer, inner = make(), ToolCache(reads={"Search": ReadTool((), ttl=0)})
        for number in (1, 2):
            result = inner.call(call(), lambda called: outer.call(called, runs))
            assert result.content == 1
            assert result.cached is (number == 2)


def runs_duration(tools: ToolCache) -> Any:
    """Compare equal to any time that a run can have taken."""

    class AnyDuration:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, float) and other >= 0

        __hash__ = None  # type: ignore[assignment]

    return AnyDuration()


class TestOwnCopies:
    def test_changing_a_result_changes_nothing_that_is_kept(self, tools: ToolCache) -> None:
        """R36"""
        original = {"lines": ["a"], "deep": {"x": [1]}}
        first = tools.call(call(), Runs({"lines": ["a"], "deep": {"x": [1]}}))
        first.content["lines"].append("changed")
        second = tools.call(call(), Runs())
        assert second.content == original
        second.content["deep"]["x"].clear()

        assert tools.call(call(), Runs()).content == original
        assert [hit.response for hit in tools.entries()] == [original]

    def test_tool_that_goes_on_with_its_result_changes_nothing(self, tools: ToolCache) -> None:
        """R36"""
        shared = ["a"]
        tools.call(call(), Runs(shared))
        shared.append("b")

        assert tools.call(call(), Runs()).content == ["a"]

    def test_changing_the_arguments_afterwards_changes_no_key(
        self, tools: ToolCache, runs: Runs
    ) -> None:
        arguments = {"q": ["x"]}

        def run(_: ToolCall) -> int:
            arguments["q"].append("y")
            return 1

        tools.call(ToolCall("Search", arguments, cwd="/"), run)

        assert tools.call(ToolCall("Search", {"q": ["x"]}, cwd="/"), runs).cached
        assert not tools.call(ToolCall("Search", {"q": ["x", "y"]}, cwd="/"), runs).cached


class TestHit:
    def test_has_the_id_of_the_asking_call(self, tools: ToolCache, runs: Runs) -> None:
        ids = [tools.call(call(call_id=name), runs).call_id for name in ("t1", "t2", None, "t4")]

        assert ids == ["t1", "t2", None, "t4"]
        assert runs.count == 1

    def test_id_that_a_run_names_itself_is_not_kept(self, tools: ToolCache) -> None:
        result = tools.call(call(call_id="mine"), Runs(ToolResult("x", call_id="other")))

        assert result.call_id == "mine"
        assert tools.call(call(call_id="next"), Runs()).call_id == "next"

    def test_has_its_age(self, tools: ToolCache, runs: Runs, clock: FakeClock) -> None:
        run = tools.call(call(), runs)
        clock.advance(12.5)
        hit = tools.call(call(), runs)

        assert (run.cached, run.age) == (False, None)
        assert (hit.cached, hit.age) == (True, 12.5)

    @pytest.mark.parametrize(
        ("told", "reported"), [("original", 0.34), ("zero", 0.0)], ids=["original", "zero"]
    )
    def test_reports_the_duration_of_its_run_or_zero(
        self, make: MakeTools, told: Any, reported: float
    ) -> None:
        tools = make(report_duration=told)
        assert tools.call(call(), Runs(ToolResult("x", duration=0.34))).duration == 0.34

        assert tools.call(call(), Runs()).duration == reported
        assert tools.call(call(), Runs()).duration == reported

    def test_measures_the_duration_of_a_plain_value(self, tools: ToolCache) -> None:
        run = tools.call(call(), Runs("x"))

        assert run.duration is not None and run.duration >= 0
        assert tools.call(call(), Runs()).duration == run.duration

    def test_of_zero_seconds_is_a_duration(self, tools: ToolCache) -> None:
        tools.call(call(), Runs(ToolResult("x", duration=0.0)))

        assert tools.call(call(), Runs()).duration == 0.0

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            pytest.param("text", "text\n[cached]", id="text"),
            pytest.param("", "\n[cached]", id="empty"),
            pytest.param(
                [{"type": "text", "text": "a"}],
                [{"type": "text", "text": "a"}, {"type": "text", "text": "[cached]"}],
                id="parts",
            ),
            pytest.param([], [{"type": "text", "text": "[cached]"}], id="no-parts"),
            pytest.param(["a", "b"], ["a", "b", "\n[cached]"], id="texts"),
            pytest.param([1], [1, {"type": "text", "text": "[cached]"}], id="numbers"),
            pytest.param({"a": 1}, {"a": 1}, id="object"),
            pytest.param(None, None, id="none"),
            pytest.param(5, 5, id="number"),
        ],
    )
    def test_marker_is_on_the_returned_copy_alone(
        self, make: MakeTools, content: Any, shown: Any
    ) -> None:
        """It never adds up, whoever reads."""
        tools = make(marker="[cached]")
        assert tools.call(call(), Runs(ToolResult(content))).content == content

        for _ in range(3):
            assert tools.call(call(), Runs()).content == shown
        assert [hit.response for hit in tools.entries()] == [content]

    def test_marker_that_is_a_function_gets_the_hit(
        self, make: MakeTools, clock: FakeClock
    ) -> None:
        seen: list[Hit] = []
        tools = make(marker=lambda hit: seen.append(hit) or f"[{hit.age:.0f} s old]")
        tools.call(call(), Runs("text"))
        clock.advance(40)

        assert tools.call(call(), Runs()).content == "text\n[40 s old]"
        assert type(seen[0]) is Hit

    def test_is_not_marked_unless_asked_for(self, tools: ToolCache) -> None:
        tools.call(call(), Runs("text"))

        assert tools.call(call(), Runs()).content == "text"

    def test_marked_hit_that_passes_through_another_cache_is_kept_as_it_came(
        self, make: MakeTools
    ) -> None:
        inner, outer = make(marker="[cached]"), ToolCache(reads={"Search": ()}, marker="[cached]")
        inner.call(call(), Runs("text"))
        outer.call(call(), lambda called: inner.call(called, Runs()))

        assert outer.call(call(), Runs()).content == "text\n[cached]\n[cached]"
        assert inner.call(call(), Runs()).content == "text\n[cached]"


class TestSeconds:
    def test_default_is_five_minutes(self, tools: ToolCache, runs: Runs, clock: FakeClock) -> None:
        tools.call(call(), runs)
        clock.advance(299.9)
        assert tools.call(call(), runs).cached
        clock.advance(0.1)

        assert not tools.call(call(), runs).cached

    def test_hit_never_extends_its_life(
        self, make: MakeTools, runs: Runs, clock: FakeClock
    ) -> None:
        tools = make(ttl=60)
        tools.call(call(), runs)
        for _ in range(5):
            clock.advance(11)
            assert tools.call(call(), runs).cached
        clock.advance(5)

        assert tools.call(call(), runs).content == 2

    def test_new_run_begins_a_new_life(self, make: MakeTools, runs: Runs, clock: FakeClock) -> None:
        """The same content again is a renewal: it comes from a real run."""
        tools = make(ttl=60)
        same = Runs("same")
        tools.call(call(), same)
        clock.advance(60)
        tools.call(call(), same)
        clock.advance(59)

        assert tools.call(call(), same).cached

    def test_clock_set_back_extends_nothing(
        self, make: MakeTools, runs: Runs, clock: FakeClock
    ) -> None:
        """R34"""
        tools = make(ttl=60)
        tools.call(call(), runs)
        clock.set_wall(clock() - 3600)
        clock.advance(61)

        assert not tools.call(call(), runs).cached

    @pytest.mark.parametrize(
        ("of_cache", "of_tool", "lasts"),
        [
            pytest.param(300, 60, 60, id="shorter"),
            pytest.param(60, 300, 300, id="longer"),
            pytest.param(60, None, None, id="for-ever"),
            pytest.param(None, 60, 60, id="of-a-cache-without"),
            pytest.param(None, None, None, id="both-for-ever"),
        ],
    )
    def test_ttl_of_a_tool_stands_in_for_the_cache_s(
        self,
        make: MakeTools,
        runs: Runs,
        clock: FakeClock,
        of_cache: Any,
        of_tool: Any,
        lasts: Any,
    ) -> None:
        tools = make(ttl=of_cache, reads={"Search": ReadTool((), ttl=of_tool), "Other": ()})
        tools.call(call(), runs)
        clock.advance(1e9 if lasts is None else lasts - 0.5)
        assert tools.call(call(), runs).cached
        if lasts is not None:
            clock.advance(0.5)
            assert not tools.call(call(), runs).cached

    def test_other_tools_keep_the_cache_s(
        self, make: MakeTools, runs: Runs, clock: FakeClock
    ) -> None:
        tools = make(ttl=60, reads={"Search": (), "Long": ReadTool((), ttl=300)})
        tools.call(call(), runs)
        clock.advance(60)

        assert not tools.call(call(), runs).cached

    @in_a_file
    def test_stricter_of_the_kept_and_the_reader_s_counts(
        self, make: MakeTools, runs: Runs, clock: FakeClock
    ) -> None:
        make(ttl=100).call(call(), runs)
        clock.advance(50)

        assert make(ttl=200).call(call(), runs).cached
        assert make(ttl=None).call(call(), runs).cached
        assert make(ttl=100, reads={"Search": ReadTool((), ttl=51)}).call(call(), runs).cached
        assert not make(ttl=50).call(call(), runs).cached

    def test_expired_result_goes_at_the_next_store(
        self, make: MakeTools, runs: Runs, clock: FakeClock, path: Path | None
    ) -> None:
        """R33: what nobody asks for again goes too."""
        tools = make(ttl=60)
        tools.call(call(q="old"), runs)
        clock.advance(60)
        assert len(tools) == 0
        tools.call(call(q="new"), runs)

        assert [hit.question for hit in tools.entries()] == ['Search {"q":"new"}']
        if path is not None and path.suffix == ".json":
            assert '\\"old\\"' not in path.read_text()

    def test_prune_takes_what_has_expired_or_changed(
        self, make: MakeTools, runs: Runs, clock: FakeClock, tmp_path: Path
    ) -> None:
        file = tmp_path / "a"
        file.write_text("a")
        tools = make(ttl=60, reads={"Search": (), "Read": [str(file)]})
        tools.call(call(), runs)
        clock.advance(60)
        tools.call(call("Read"), runs)
        file.write_text("another")

        assert tools.prune() == 1
        assert len(tools) == 0


class TestTurns:
    @pytest.mark.parametrize("ttl_turns", [1, 2, 5])
    def test_expires_after_so_many_turns(self, make: MakeTools, runs: Runs, ttl_turns: int) -> None:
        tools = make(ttl_turns=ttl_turns)
        tools.call(at(10), runs)
        for turn in range(10, 10 + ttl_turns):
            assert tools.call(at(turn), runs).cached

        assert not tools.call(at(10 + ttl_turns), runs).cached
        assert tools.call(at(10 + ttl_turns), runs).cached

    def test_clock_has_no_part_in_it(self, make: MakeTools, runs: Runs, clock: FakeClock) -> None:
        """R34"""
        tools = make(ttl=None, ttl_turns=2)
        tools.call(at(1), runs)
        clock.advance(1e9)
        assert tools.call(at(2), runs).cached
        clock.set_wall(0)

        assert not tools.call(at(3), runs).cached

    def test_seconds_count_beside_turns(
        self, make: MakeTools, runs: Runs, clock: FakeClock
    ) -> None:
        tools = make(ttl=60, ttl_turns=100)
        tools.call(at(1), runs)
        clock.advance(60)

        assert not tools.call(at(1), runs).cached

    @pytest.mark.parametrize(
        "asking",
        [
            pytest.param(at(2, "other"), id="another-session"),
            pytest.param(at(None), id="no-turn"),
            pytest.param(at(2, None), id="no-session"),
            pytest.param(call(turn=2), id="no-scope"),
            pytest.param(at(0), id="earlier-turn"),
        ],
    )
    def test_call_of_which_turns_tell_nothing_is_a_miss(
        self, make: MakeTools, runs: Runs, asking: ToolCall
    ) -> None:
        """E05"""
        tools = make(ttl_turns=5)
        tools.call(at(1), runs)

        assert not tools.call(asking, runs).cached

    @pytest.mark.parametrize("kept", [at(None), at(2, None), call(turn=2), call()])
    def test_result_of_no_turn_is_never_served_where_turns_count(
        self, make: MakeTools, runs: Runs, kept: ToolCall
    ) -> None:
        tools = make(ttl_turns=5)
        tools.call(kept, runs)

        assert not tools.call(kept, runs).cached

    def test_turns_make_no_difference_where_none_are_counted(
        self, tools: ToolCache, runs: Runs
    ) -> None:
        tools.call(at(40), runs)

        assert tools.call(at(2), runs).cached
        assert tools.call(at(None), runs).cached

    @in_a_file
    def test_stricter_of_the_kept_and_the_reader_s_counts(
        self, make: MakeTools, runs: Runs
    ) -> None:
        make(ttl_turns=5).call(at(1), runs)

        assert make(ttl_turns=3).call(at(3), runs).cached
        assert make(ttl_turns=9).call(at(5), runs).cached
        assert make(ttl_turns=None).call(at(5), runs).cached
        assert not make(ttl_turns=9).call(at(6), runs).cached
        make(ttl_turns=None).call(at(1, q="y"), runs)
        assert make(ttl_turns=3).call(at(3, q="y"), runs).cached
        assert not make(ttl_turns=2).call(at(3, q="y"), runs).cached

    @in_a_file
    @pytest.mark.parametrize("asking", [at(6), at(None), at(0)])
    def test_reader_without_turns_still_keeps_to_those_of_the_writer(
        self, make: MakeTools, runs: Runs, asking: ToolCall
    ) -> None:
        make(ttl_turns=5).call(at(1), runs)

        assert not make(ttl_turns=None).call(asking, runs).cached


class TestLimits:
    def test_oldest_run_goes_first(self, make: MakeTools, runs: Runs) -> None:
        tools = make(max_entries=3)
        for q in "abc":
            tools.call(call(q=q), runs)
        assert tools.call(call(q="a"), runs).cached  # a hit makes nothing younger
        tools.call(call(q="d"), runs)

        assert len(tools) == 3
        assert [hit.response for hit in tools.entries()] == [2, 3, 4]

    def test_never_more_than_the_limit(self, make: MakeTools, runs: Runs) -> None:
        """R33"""
        tools = make(max_entries=10)
        for number in range(40):
            tools.call(call(q=number), runs)
            assert len(tools) <= 10
        assert [hit.response for hit in tools.entries()] == list(range(31, 41))

    def test_bytes_count_too(self, make: MakeTools) -> None:
        tools = make(max_bytes=2000)
        for number in range(10):
            tools.call(call(q=number), Runs("x" * 500))

        assert 0 < tools.stats()["bytes"] <= 2000
        assert tools.call(call(q=9), Runs()).cached

    def test_defaults(self, make: MakeTools, runs: Runs) -> None:
        tools = make()
        for number in range(1030 if tools.path is None else 1):
            tools.call(call(q=number), runs)
        tools.call(call(q="fits"), Runs("x" * 65_534))
        tools.call(call(q="over"), Runs("x" * 65_535))

        assert len(tools) == (1024 if tools.path is None else 2)
        assert tools.call(call(q="fits"), runs).cached
        assert not tools.call(call(q="over"), runs).cached


class TestEvents:
    def test_one_for_each_call(self, make: MakeTools, runs: Runs) -> None:
        events: list[Event] = []
        tools = make(on_event=events.append)
        asked = [
            call(),
            call(),
            call("Mine"),
            call("Todo"),
            call("Unnamed"),
            call(gated=True),
            call("Edit"),
            call(q={1}),
        ]
        for each in asked:
            tools.call(each, runs)
        looks = [event for event in events if event.kind in ("hit", "miss", "bypass")]

        assert [event.subject for event in looks] == asked
        assert [event.kind for event in looks] == ["miss", "hit", *["bypass"] * 5, "miss"]
        assert {event.front for event in events} == {"tools"}
        assert all(event.duration >= 0 for event in events)

    def test_hit_tells_its_age(self, make: MakeTools, runs: Runs, clock: FakeClock) -> None:
        events: list[Event] = []
        tools = make(on_event=events.append)
        tools.call(call(), runs)
        clock.advance(7)
        tools.call(call(), runs)

        assert [(event.kind, event.age) for event in events] == [
            ("miss", None),
            ("store", None),
            ("hit", 7),
        ]

    def test_loop_guard_counts_runs_and_hits_alike(self, make: MakeTools, runs: Runs) -> None:
        seen: Counter[str] = Counter()

        def guard(event: Event) -> None:
            if event.kind in ("hit", "miss", "bypass"):
                seen[str(event.subject.arguments)] += 1

        tools = make(on_event=guard)
        for _ in range(5):
            tools.call(call(), runs)

        assert list(seen.values()) == [5]

    def test_stats_add_up(self, make: MakeTools, runs: Runs) -> None:
        tools = make()
        asked = [call(), call(), call("Mine"), call(q="y"), call("Edit"), call(q={1}), call(q="y")]
        for each in asked:
            tools.call(each, runs)
        list(tools.stream(call(), lambda _: ["a"]))
        list(tools.stream(call(), lambda _: ["a"]))
        stats = tools.stats()

        assert (stats["hits"], stats["misses"], stats["bypassed"]) == (3, 4, 2)
        assert stats["hits"] + stats["misses"] + stats["bypassed"] == len(asked) + 2
        assert (stats["stores"], stats["refused"], stats["pending"]) == (3, 1, 0)
        assert (stats["entries"], len(tools)) == (3, 3)

    def test_entries_show_what_was_asked_oldest_first(
        self, tools: ToolCache, clock: FakeClock
    ) -> None:
        tools.call(ToolCall("Search", {"b": 1, "a": [True]}), Runs("one"))
        clock.advance(1)
        tools.call(call("Any", q="é"), Runs({"two": 2}))

        assert [(hit.question, hit.response, hit.age) for hit in tools.entries()] == [
            ('Search {"a":[true],"b":1}', "one", 1),
            ('Any {"q":"é"}', {"two": 2}, 0),
        ]

    def test_cache_is_true_while_it_is_empty_and_closes_by_with(self, make: MakeTools) -> None:
        with make() as tools:
            assert tools
            assert tools.flush()
            tools.call(call(), Runs())
        assert tools.call(call(), Runs()).content == 1

    def test_clear_takes_this_namespace_only(
        self, make: MakeTools, path: Path | None, runs: Runs
    ) -> None:
        tools, other = make(), make(namespace="other")
        tools.call(call(), runs)
        other.call(call(), runs)

        assert tools.clear() == 1
        assert not tools.call(call(), runs).cached
        assert other.call(call(), runs).cached


@in_a_file
class TestSharedFile:
    def test_another_cache_is_answered_at_once(self, make: MakeTools, runs: Runs) -> None:
        one, two = make(), make()
        assert not two.call(call(q="y"), runs).cached
        one.call(call(), runs)

        assert two.call(call(call_id="b"), runs).call_id == "b"
        assert runs.count == 2

    def test_restart_finds_all(self, make: MakeTools) -> None:
        with make() as tools:
            tools.call(call(), Runs(ToolResult({"a": [1.0, True, None]}, duration=0.5)))
        result = make().call(call(call_id="t"), Runs())

        assert result == ToolResult({"a": [1.0, True, None]}, False, "t", 0.5, True, 0.0)

    def test_questions_and_tools_share_a_file_and_no_answer(
        self, make: MakeTools, path: Path, runs: Runs, clock: FakeClock
    ) -> None:
        tools, cache = make(), Cache(path, fsync=False, clock=clock)
        tools.call(call(), runs)
        cache.store('Search {"q":"x"}', "an answer")

        assert cache.get('Search {"q":"x"}') == "an answer"
        assert tools.call(call(), runs).content == 1
        assert (len(tools), len(cache)) == (1, 1)
        assert cache.clear() == 1
        assert tools.call(call(), runs).cached


class TestOptions:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ttl", 0),
            ("ttl", -1),
            ("ttl", float("nan")),
            ("ttl", float("inf")),
            ("ttl", True),
            ("ttl", "300"),
            ("ttl_turns", 0),
            ("ttl_turns", -1),
            ("ttl_turns", 1.5),
            ("ttl_turns", True),
            ("ttl_turns", "5"),
            ("max_entries", 0),
            ("max_entries", -5),
            ("max_entries", 1.0),
            ("max_entry_bytes", 0),
            ("max_entry_bytes", -1),
            ("max_bytes", 0),
            ("max_bytes", -1),
            ("marker", ""),
            ("marker", 5),
            ("marker", True),
            ("report_duration", "none"),
            ("report_duration", None),
            ("text_only", 1),
            ("text_only", None),
            ("namespace", ""),
            ("namespace", 5),
            ("store_if", 5),
            ("serve_if", "x"),
            ("on_event", []),
            ("on_error", "ignore"),
            ("format", "flat"),
            ("format", "csv"),
            ("fsync", 1),
            ("mode", 0o777),
            ("mode", "600"),
            ("lock_timeout", 0),
            ("lock_timeout", -1),
            ("clock", 5),
            ("path", ""),
            ("path", 5),
            ("reads", ["Read"]),
            ("reads", {"Read": "a.py"}),
            ("reads", {"Read": 5}),
            ("reads", {"Read": True}),
            ("writes", ["Edit"]),
            ("writes", {"Edit": "a.py"}),
            ("writes", {"Edit": ReadTool(())}),
            ("neutral", "Todo"),
            ("neutral", 5),
        ],
    )
    def test_wrong_one_is_refused_by_its_name(self, name: str, value: Any) -> None:
        """R13, R38: also a policy of reading for what writes."""
        with pytest.raises(ConfigError, match=name):
            ToolCache(**{name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ttl", 0.001),
            ("ttl", None),
            ("ttl_turns", 1),
            ("ttl_turns", None),
            ("max_entries", None),
            ("max_entry_bytes", None),
            ("max_bytes", None),
            ("marker", "x"),
            ("marker", str),
            ("report_duration", "zero"),
            ("text_only", True),
            ("reads", {"Read": ["a"], "Grep": ("a", Tree("b")), "Any": None, "No": ()}),
            ("writes", {"Edit": None, "Write": ["a"], "No": ()}),
            ("neutral", ["a", "b"]),
            ("neutral", frozenset("a")),
        ],
    )
    def test_right_one_is_taken(self, runs: Runs, name: str, value: Any) -> None:
        tools = ToolCache(**{"reads": {"Search": ()}, **{name: value}})

        assert tools.call(call(), runs).content == 1

    @pytest.mark.parametrize("name", ["", 5, None])
    def test_name_of_a_tool_is_a_text(self, name: Any) -> None:
        for options in ({"reads": {name: ()}}, {"writes": {name: ()}}, {"neutral": [name]}):
            with pytest.raises(ConfigError, match="name"):
                ToolCache(**options)

    @pytest.mark.parametrize(
        "options",
        [
            {"reads": {"A": ()}, "writes": {"A": None}},
            {"reads": {"A": ()}, "neutral": {"A"}},
            {"writes": {"A": ()}, "neutral": {"A"}},
        ],
        ids=["reads-and-writes", "reads-and-neutral", "writes-and-neutral"],
    )
    def test_tool_named_twice_is_refused(self, options: Any) -> None:
        with pytest.raises(ConfigError, match=r"'A'.*twice"):
            ToolCache(**options)

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("paths", {"paths": "a.py"}),
            ("paths", {"paths": 5}),
            ("version", {"paths": (), "version": 1}),
            ("per_caller", {"paths": (), "per_caller": 1}),
            ("ttl", {"paths": (), "ttl": -1}),
            ("ttl", {"paths": (), "ttl": True}),
            ("ttl", {"paths": (), "ttl": float("nan")}),
            ("ttl", {"paths": (), "ttl": "5"}),
        ],
    )
    def test_wrong_one_of_a_read_tool_is_refused_by_its_name(self, name: str, options: Any) -> None:
        with pytest.raises(ConfigError, match=name):
            ReadTool(**options)

    @pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), None, "5", True])
    def test_wrong_wait_is_refused_by_its_name(self, wait: Any) -> None:
        tools = ToolCache(reads={"Search": ()})

        with pytest.raises(ConfigError, match="wait"):
            tools.call(call(), Runs(), wait=wait)

    def test_unknown_option_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="tttl"):
            ToolCache(tttl=5)  # type: ignore[call-arg]

    def test_suffix_that_tells_no_format_needs_one(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="format"):
            ToolCache(tmp_path / "tools.txt")
        ToolCache(tmp_path / "tools.txt", format="log", reads={"Search": ()}).call(call(), Runs())

        assert (tmp_path / "tools.txt").exists()

    def test_nothing_is_touched_at_construction(self, tmp_path: Path) -> None:
        ToolCache(tmp_path / "deep" / "tools.jsonl", reads={"Search": ()})

        assert list(tmp_path.iterdir()) == []

    def test_values_are_compared_and_shown(self) -> None:
        assert call() == call() and call() != call(q="y")
        assert Scope(user="u") == Scope(user="u") != Scope(agent="u")
        assert "gated=False" in repr(call()) and "user='u'" in repr(Scope(user="u"))
        assert ToolResult(1) == ToolResult(1) != ToolResult(True, is_error=True)


class TestConfig:
    def test_seed_s_own_config(self) -> None:
        tools = ToolCache.from_config(
            {"enabled": True, "ttl_secs": 300, "max_entries": 1024, "max_entry_bytes": 65536},
            reads={"Search": ()},
        )

        assert tools is not None
        assert tools.call(call(), Runs()).content == 1
        assert tools.call(call(), Runs()).cached

    @pytest.mark.parametrize("config", [{}, {"enabled": False}, {"enabled": False, "ttl_secs": 5}])
    def test_is_off_unless_enabled(self, config: Any, warnings_of: Any) -> None:
        assert ToolCache.from_config(config) is None
        assert warnings_of() == []

    def test_options_without_enabled_are_told_to_be_off(self, warnings_of: Any) -> None:
        assert ToolCache.from_config({"ttl_secs": 300}) is None
        assert len(warnings_of()) == 1 and "enabled" in warnings_of()[0]

    @pytest.mark.parametrize(
        ("typo", "meant"),
        [
            ("ttl_sec", "ttl_secs"),
            ("ttlsecs", "ttl_secs"),
            ("TTL_SECS", "ttl_secs"),
            ("max_entry", "max_entries"),
            ("max_entrybytes", "max_entry_bytes"),
            ("enable", "enabled"),
            ("text_ony", "text_only"),
            ("ttl_turn", "ttl_turns"),
        ],
    )
    @pytest.mark.parametrize("enabled", [True, False])
    def test_typo_fails_at_start_and_names_the_key(
        self, typo: str, meant: str, enabled: bool
    ) -> None:
        with pytest.raises(ConfigError, match=typo) as caught:
            ToolCache.from_config({"enabled": enabled, typo: 5})
        if typo != "TTL_SECS":
            assert repr(meant) in str(caught.value)

    @pytest.mark.parametrize("value", [0, -1, "300", True])
    @pytest.mark.parametrize("name", ["ttl_secs", "max_entries", "max_entry_bytes", "ttl_turns"])
    def test_zero_fails_at_start_and_names_the_key(self, name: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=name):
            ToolCache.from_config({"enabled": True, name: value})

    @pytest.mark.parametrize("name", ["case_sensitive", "trim_spaces", "normalizer"])
    def test_option_of_questions_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            ToolCache.from_config({"enabled": True, name: True})

    @pytest.mark.parametrize("name", ["case_sensitive", "trim_spaces"])
    def test_option_of_questions_in_a_config_value_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            ToolCache.from_config(Config(enabled=True, **{name: True}))

    def test_two_names_of_one_option_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="ttl_secs"):
            ToolCache.from_config({"enabled": True, "ttl": 5, "ttl_secs": 5})

    def test_option_given_twice_is_refused_by_its_name(self) -> None:
        with pytest.raises((ConfigError, TypeError), match="ttl"):
            ToolCache.from_config({"enabled": True, "ttl": 5}, ttl=6)

    @pytest.mark.parametrize("config", [5, None, "x", [("enabled", True)]])
    def test_what_is_no_mapping_is_refused(self, config: Any) -> None:
        with pytest.raises(ConfigError, match="config"):
            ToolCache.from_config(config)

    def test_flat_format_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="format"):
            ToolCache.from_config({"enabled": True, "path": "x.json", "format": "flat"})

    def test_ttl_secs_is_the_ttl(self, clock: FakeClock, runs: Runs) -> None:
        tools = ToolCache.from_config(
            {"enabled": True, "ttl_secs": 10, "clock": clock}, reads={"Search": ()}
        )
        assert tools is not None
        tools.call(call(), runs)
        clock.advance(9)
        assert tools.call(call(), runs).cached
        clock.advance(1)

        assert not tools.call(call(), runs).cached

    def test_config_value_is_taken_with_the_tool_cache_s_own_defaults(
        self, clock: FakeClock, runs: Runs
    ) -> None:
        tools = ToolCache.from_config(
            Config(enabled=True, max_entries=1, clock=clock), reads={"Search": ()}
        )
        assert tools is not None
        tools.call(call(q="a"), runs)
        tools.call(call(q="b"), runs)
        assert len(tools) == 1
        clock.advance(300)

        assert not tools.call(call(q="b"), runs).cached

    def test_relative_path_starts_at_the_base(self, tmp_path: Path) -> None:
        tools = ToolCache.from_config(
            {"enabled": True, "path": "deep/tools.jsonl"}, base_dir=tmp_path, reads={"Search": ()}
        )
        assert tools is not None
        tools.call(call(), Runs())

        assert (tmp_path / "deep" / "tools.jsonl").exists()
        with pytest.raises(ConfigError, match="path"):
            ToolCache.from_config({"enabled": True, "path": "../x.jsonl"}, base_dir=tmp_path)

    def test_all_options_of_the_class_are_taken(self, tmp_path: Path) -> None:
        tools = ToolCache.from_config(
            {
                "enabled": True,
                "path": str(tmp_path / "tools.jsonl"),
                "ttl": 5,
                "ttl_turns": 2,
                "marker": "[c]",
                "report_duration": "zero",
                "text_only": True,
                "namespace": "n",
                "max_bytes": 10_000,
                "on_error": "raise",
                "format": "log",
                "fsync": False,
                "mode": 0o640,
                "lock_timeout": 1.0,
            },
            reads={"Search": ()},
            writes={"Edit": None},
            neutral={"Todo"},
        )

        assert tools is not None
        tools.call(at(1), Runs("text"))
        hit = tools.call(at(2), Runs())
        assert (hit.content, hit.duration) == ("text\n[c]", 0.0)


class TestFlatFile:
    def test_is_left_alone_and_results_stay_in_memory(
        self, tmp_path: Path, warnings_of: Any, runs: Runs
    ) -> None:
        """E14: it has no place for what a result depends on."""
        path = tmp_path / "answers.json"
        data = b'{\n  "hello": "world"\n}'
        path.write_bytes(data)
        tools = ToolCache(path, reads={"Search": ()}, writes={"Edit": ["/x"]})
        assert not tools.call(call(), runs).cached
        assert tools.call(call(), runs).cached
        tools.call(call("Edit"), runs)
        tools.call(call("Unnamed"), runs)
        tools.invalidate()
        tools.clear()
        tools.call(call(), runs)
        tools.close()

        assert path.read_bytes() == data
        assert len(warnings_of()) == 1 and str(path) in warnings_of()[0]
        assert tools.call(call(), runs).cached

    def test_write_as_the_first_call_leaves_it_alone_too(
        self, tmp_path: Path, warnings_of: Any, runs: Runs
    ) -> None:
        path = tmp_path / "answers.json"
        path.write_bytes(b'{"hello": "world"}')
        tools = ToolCache(path, reads={"Search": ()}, writes={"Edit": ["/x"]})
        tools.call(call("Edit"), runs)
        tools.call(call(), runs)

        assert tools.call(call(), runs).cached
        assert path.read_bytes() == b'{"hello": "world"}'
        assert len(warnings_of()) == 1


class TestSwitches:
    def test_off_runs_each_time_and_keeps_nothing(
        self,
        make: MakeTools,
        path: Path | None,
        runs: Runs,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """R40: no file, no key, and the same results."""
        events: list[str] = []
        tools = make(on_event=lambda event: events.append(event.kind))
        monkeypatch.setenv(DISABLE, "1")
        for number in (1, 2):
            assert tools.call(call(), runs).content == number
        assert asyncio.run(tools.acall(call(), runs)).content == 3
        assert list(tools.stream(call(), lambda _: ["a"])) == ["a"]
        assert tools.call(call(q=object()), runs).content == 4
        assert events == ["bypass"] * 5
        assert not (tmp_path / "cache").exists()
        monkeypatch.delenv(DISABLE)

        assert tools.stats()["bypassed"] == 5
        assert len(tools) == 0

    def test_what_was_kept_is_back_when_it_is_on_again(
        self, tools: ToolCache, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R40"""
        tools.call(call(), runs)
        monkeypatch.setenv(DISABLE, "1")
        assert not tools.call(call(), runs).cached
        tools.call(call("Todo"), runs)
        monkeypatch.setenv(DISABLE, "0")

        assert tools.call(call(), runs).content == 1

    @pytest.mark.parametrize("name", ["Edit", "Unnamed"])
    @pytest.mark.parametrize("kind", ["call", "acall", "stream"])
    def test_write_that_ran_while_it_was_off_forgets_everything(
        self,
        tools: ToolCache,
        runs: Runs,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        kind: str,
    ) -> None:
        tools.call(call(), runs)
        tools.call(call("Any"), runs)
        monkeypatch.setenv(DISABLE, "1")
        if kind == "call":
            tools.call(call(name), runs)
        elif kind == "acall":
            asyncio.run(tools.acall(call(name), runs))
        else:
            list(tools.stream(call(name), lambda _: ["a"]))
        monkeypatch.delenv(DISABLE)

        assert not tools.call(call(), runs).cached
        assert not tools.call(call("Any"), runs).cached
        assert tools.call(call(), runs).cached

    def test_write_that_raised_while_it_was_off_counts(
        self, tools: ToolCache, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools.call(call("Any"), runs)
        monkeypatch.setenv(DISABLE, "1")
        with pytest.raises(ZeroDivisionError):
            tools.call(call("Edit"), lambda _: 1 / 0)
        monkeypatch.delenv(DISABLE)

        assert not tools.call(call("Any"), runs).cached

    def test_write_that_goes_on_after_the_switch_is_turned_counts_when_it_ends(
        self, tools: ToolCache, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It began while the cache was off, so nobody was told of it."""
        monkeypatch.setenv(DISABLE, "1")
        world = ["old"]

        def write(_: ToolCall) -> str:
            monkeypatch.delenv(DISABLE)
            assert tools.call(call("Any"), lambda _: world[0]).content == "old"
            world[0] = "new"
            return "done"

        tools.call(call("Edit"), write)

        assert tools.call(call("Any"), lambda _: world[0]).content == "new"

    def test_write_that_ends_while_the_cache_is_off_is_not_served_over(
        self, tools: ToolCache, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was begun, and its end could not be told: it counts as one that died."""
        tools.call(call("Any"), runs)

        def write(_: ToolCall) -> str:
            monkeypatch.setenv(DISABLE, "1")
            return "done"

        tools.call(call("Edit"), write)
        monkeypatch.delenv(DISABLE)

        assert not tools.call(call("Any"), runs).cached
        assert tools.call(call("Any"), runs).cached

    def test_readonly_serves_and_keeps_nothing(
        self, make: MakeTools, path: Path | None, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools = make()
        tools.call(call(), runs)
        before = None if path is None else path.read_bytes()
        monkeypatch.setenv(READONLY, "1")

        assert tools.call(call(), runs).cached
        assert not tools.call(call(q="y"), runs).cached
        assert not tools.call(call(q="y"), runs).cached
        if path is not None:
            assert path.read_bytes() == before

    def test_write_while_it_was_readonly_is_told_when_it_may_be(
        self, make: MakeTools, path: Path | None, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools, other = make(), make()
        tools.call(call("Any"), runs)
        before = None if path is None else path.read_bytes()
        monkeypatch.setenv(READONLY, "1")
        tools.call(call("Edit"), runs)
        assert not tools.call(call("Any"), runs).cached
        if path is not None:
            assert path.read_bytes() == before
        monkeypatch.delenv(READONLY)
        tools.call(call(q="next"), runs)

        if path is not None:
            assert not other.call(call("Any"), runs).cached
        assert tools.stats()["pending"] == 0

    def test_refresh_runs_and_keeps(
        self, tools: ToolCache, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools.call(call(), runs)
        monkeypatch.setenv(REFRESH, "1")
        assert tools.call(call(), runs).content == 2
        monkeypatch.delenv(REFRESH)

        assert tools.call(call(), runs).content == 2
        assert tools.stats()["bypassed"] == 1


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


class TestSingleFlight:
    def test_twenty_threads_run_once(self, make: MakeTools) -> None:
        """R37: all get the result, each its own id, and each is told once."""
        events: list[str] = []
        tools = make(on_event=lambda event: events.append(event.kind))
        barrier, runs, results = threading.Barrier(20), Runs(), []
        go_on = threading.Event()

        def slow(called: ToolCall) -> Any:
            assert go_on.wait(LONG)
            return runs(called)

        def ask(number: int) -> None:
            barrier.wait(LONG)
            if number == 0:
                go_on.set()
            results.append(tools.call(call(call_id=str(number)), slow))

        joined([threading.Thread(target=ask, args=(number,)) for number in range(20)])

        assert runs.count == 1
        assert {result.content for result in results} == {1}
        assert {result.call_id for result in results} == {str(number) for number in range(20)}
        assert Counter(events) == {"miss": 1, "store": 1, "hit": 19}

    def test_tasks_run_once(self, make: MakeTools) -> None:
        """R37"""
        tools, runs = make(), Runs()

        async def slow(called: ToolCall) -> Any:
            await asyncio.sleep(0.02)
            return runs(called)

        async def main() -> list[ToolResult]:
            asked = [tools.acall(call(call_id=str(number)), slow) for number in range(20)]
            return await asyncio.wait_for(asyncio.gather(*asked), LONG)

        results = asyncio.run(main())

        assert runs.count == 1
        assert {result.call_id for result in results} == {str(number) for number in range(20)}
        assert sum(result.cached for result in results) == 19

    def test_failure_is_the_leader_s_alone(self, make: MakeTools) -> None:
        """R37"""
        tools, runs = make(), Runs()
        is_running, go_on = threading.Event(), threading.Event()

        def fail(_: ToolCall) -> None:
            is_running.set()
            assert go_on.wait(LONG)
            raise ZeroDivisionError

        def lead() -> None:
            with pytest.raises(ZeroDivisionError):
                tools.call(call(), fail)

        def follow() -> None:
            assert is_running.wait(LONG)
            go_on.set()
            assert tools.call(call(), runs).content == 1

        joined([threading.Thread(target=lead), threading.Thread(target=follow)])

        assert runs.count == 1

    def test_different_calls_do_not_wait_for_each_other(self, make: MakeTools) -> None:
        """R37: and no lock is held while a tool runs."""
        tools, runs = make(), Runs()
        is_running, go_on = threading.Event(), threading.Event()

        def slow(_: ToolCall) -> str:
            is_running.set()
            assert go_on.wait(LONG)
            return "slow"

        def ask_others() -> None:
            assert is_running.wait(LONG)
            tools.call(call(q="other"), runs)
            tools.call(call(q="other"), runs)
            tools.call(call("Todo"), runs)
            tools.call(call("Edit"), runs)
            tools.invalidate(["/somewhere"])
            go_on.set()

        joined(
            [
                threading.Thread(target=lambda: tools.call(call(q="slow"), slow)),
                threading.Thread(target=ask_others),
            ]
        )

        assert runs.count == 3

    def test_writes_and_unnamed_tools_are_never_shared(self, make: MakeTools) -> None:
        tools, runs, barrier = make(), Runs(), threading.Barrier(4)

        def run(called: ToolCall) -> Any:
            barrier.wait(LONG)
            return runs(called)

        joined([threading.Thread(target=lambda: tools.call(call("Edit"), run)) for _ in range(4)])

        assert runs.count == 4

    def test_same_call_within_its_own_run_runs_directly(self, tools: ToolCache) -> None:
        def run(called: ToolCall) -> str:
            return f"outer of {tools.call(called, lambda _: 'inner').content}"

        assert tools.call(call(), run).content == "outer of inner"

    def test_caller_that_will_not_wait_runs_itself(self, make: MakeTools) -> None:
        tools, runs = make(), Runs()

        def slow(_: ToolCall) -> str:
            result: list[Any] = []
            other = threading.Thread(
                target=lambda: result.append(tools.call(call(), runs, wait=0).content)
            )
            joined([other])
            assert result == [1]
            return "slow"

        assert tools.call(call(), slow).content == "slow"


class TestAcall:
    @pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "coroutine"])
    def test_does_what_call_does(self, make: MakeTools, is_plain: bool) -> None:
        tools, runs = make(marker="[cached]"), Runs("text")

        async def coroutine(called: ToolCall) -> Any:
            return runs(called)

        async def ask(name: str = "Search", call_id: str | None = None) -> ToolResult:
            asked = call(name, call_id=call_id)
            return await tools.acall(asked, runs if is_plain else coroutine)

        first = asyncio.run(ask(call_id="a"))
        second = asyncio.run(ask(call_id="b"))

        assert (first.content, first.cached, first.call_id) == ("text", False, "a")
        assert (second.content, second.cached, second.call_id) == ("text\n[cached]", True, "b")
        assert tools.call(call(), runs).cached
        assert asyncio.run(ask()).cached
        for name in ("Edit", "Todo", "Unnamed"):
            assert not asyncio.run(ask(name)).cached

    def test_plain_compute_runs_in_a_thread(self, make: MakeTools) -> None:
        tools = make()
        loop_thread = threading.get_ident()

        for name in ("Search", "Edit", "Todo"):
            result = asyncio.run(tools.acall(call(name), lambda _: threading.get_ident()))
            assert result.content != loop_thread

    def test_error_passes_through(self, make: MakeTools, runs: Runs) -> None:
        """R17"""
        tools = make()

        async def fail(_: ToolCall) -> None:
            raise ZeroDivisionError

        for name in ("Search", "Edit", "Todo"):
            with pytest.raises(ZeroDivisionError):
                asyncio.run(tools.acall(call(name), fail))
        assert not tools.call(call(), runs).cached

    def test_loop_goes_on_while_a_result_is_waited_for(self, make: MakeTools) -> None:
        tools, order = make(), []

        async def main() -> None:
            is_running = asyncio.Event()

            async def slow(_: ToolCall) -> str:
                is_running.set()
                await asyncio.sleep(0.02)
                order.append("slow")
                return "slow"

            leader = asyncio.create_task(tools.acall(call(), slow))
            await is_running.wait()
            follower = asyncio.create_task(tools.acall(call(), slow))
            await asyncio.sleep(0)
            order.append("loop")
            await asyncio.wait_for(asyncio.gather(leader, follower), LONG)

        asyncio.run(main())

        assert order == ["loop", "slow"]

    def test_cancelled_read_is_not_kept_and_frees_its_followers(
        self, make: MakeTools, runs: Runs
    ) -> None:
        """R18"""
        tools = make()

        async def main() -> ToolResult:
            is_running = asyncio.Event()

            async def slow(_: ToolCall) -> str:
                is_running.set()
                await asyncio.sleep(LONG)
                return "never"

            async def quick(called: ToolCall) -> Any:
                return runs(called)

            leader = asyncio.create_task(tools.acall(call(), slow))
            await is_running.wait()
            follower = asyncio.create_task(tools.acall(call(), quick))
            await asyncio.sleep(0)
            leader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leader
            return await asyncio.wait_for(follower, LONG)

        assert asyncio.run(main()).content == 1
        assert tools.call(call(), runs).cached


class BrokenError(Exception):
    pass


class TestStream:
    @staticmethod
    def parts(*given: Any) -> Callable[[ToolCall], Iterator[Any]]:
        return lambda _: iter(given)

    def test_is_kept_when_it_was_taken_to_the_end(self, make: MakeTools) -> None:
        """R18"""
        events: list[str] = []
        tools = make(on_event=lambda event: events.append(event.kind))
        first = list(tools.stream(call(), self.parts("a", {"b": 1}, None)))
        second = list(tools.stream(call(), self.parts("other")))

        assert first == second == ["a", {"b": 1}, None]
        assert events == ["miss", "store", "hit"]
        assert len(tools) == 1

    def test_part_is_given_as_soon_as_it_comes(self, tools: ToolCache) -> None:
        made: list[str] = []

        def run(_: ToolCall) -> Iterator[str]:
            for part in "abc":
                made.append(part)
                yield part

        stream = tools.stream(call(), run)
        assert made == []
        assert next(stream) == "a"

        assert made == ["a"]

    @pytest.mark.parametrize("how", ["stopped", "left", "thrown", "raises", "all-but-the-end"])
    def test_is_not_kept_unless_it_was_taken_to_the_end(self, tools: ToolCache, how: str) -> None:
        """R18"""

        def run(_: ToolCall) -> Iterator[str]:
            yield from ["a", "b"]
            if how == "raises":
                raise BrokenError
            yield "c"

        stream = tools.stream(call(), run)
        if how == "raises":
            with pytest.raises(BrokenError):
                list(stream)
        elif how == "thrown":
            next(stream)
            with pytest.raises(BrokenError):
                stream.throw(BrokenError)  # type: ignore[attr-defined]
        else:
            for number, _ in enumerate(stream):
                if number == {"stopped": 0, "left": 1}.get(how, 2):
                    break
            if how != "left":
                stream.close()  # type: ignore[attr-defined]
        del stream

        assert len(tools) == 0
        assert list(tools.stream(call(), self.parts("again"))) == ["again"]
        assert tools.stats()["misses"] == 2

    def test_parts_changed_by_their_consumer_are_kept_as_they_came(self, tools: ToolCache) -> None:
        """R36"""
        for part in tools.stream(call(), self.parts({"a": [1]}, [2])):
            part.clear()
        for part in tools.stream(call(), self.parts()):
            part.clear()

        assert list(tools.stream(call(), self.parts())) == [{"a": [1]}, [2]]

    def test_part_that_its_maker_goes_on_with_is_kept_as_it_came(self, tools: ToolCache) -> None:
        def run(_: ToolCall) -> Iterator[Any]:
            part: list[int] = []
            for number in range(3):
                part.append(number)
                yield part

        list(tools.stream(call(), run))

        assert list(tools.stream(call(), self.parts())) == [[0], [0, 1], [0, 1, 2]]

    @pytest.mark.parametrize(
        "odd",
        [b"a", {1: 2}, {"a": {3}}, object(), float("nan")],
        ids=lambda value: type(value).__name__,
    )
    def test_part_that_is_no_json_is_given_and_nothing_is_kept(
        self, tools: ToolCache, odd: Any
    ) -> None:
        given = list(tools.stream(call(), self.parts("a", odd)))

        assert given[1] is odd
        assert len(tools) == 0
        assert tools.stats()["refused"] == 1

    def test_empty_stream_is_kept(self, tools: ToolCache) -> None:
        assert list(tools.stream(call(), self.parts())) == []
        assert list(tools.stream(call(), self.parts("a"))) == []

    def test_too_large_a_stream_is_not_kept(self, make: MakeTools) -> None:
        tools = make(max_entry_bytes=20)
        list(tools.stream(call(), self.parts(*"abcdefghij")))

        assert len(tools) == 0

    def test_text_only_keeps_streams_of_texts(self, make: MakeTools) -> None:
        tools = make(text_only=True)
        list(tools.stream(call(), self.parts("a", "b")))

        assert list(tools.stream(call(), self.parts("again"))) == ["a", "b"]

    def test_marker_comes_as_one_more_part(self, make: MakeTools) -> None:
        tools = make(marker="[cached]")
        assert list(tools.stream(call(), self.parts("a", "b"))) == ["a", "b"]

        for _ in range(2):
            assert list(tools.stream(call(), self.parts())) == ["a", "b", "\n[cached]"]

    def test_gated_and_unnamed_ones_pass_by(self, tools: ToolCache) -> None:
        for asked in (call(gated=True), call("Todo"), call("Unnamed"), call("Mine")):
            for number in range(2):
                assert list(tools.stream(asked, self.parts(number))) == [number]
        assert len(tools) == 0
        assert tools.stats()["bypassed"] == 8

    def test_stream_of_a_write_evicts_when_it_ends_however_it_ends(
        self, tools: ToolCache, runs: Runs
    ) -> None:
        for how in ("end", "stopped", "raises"):
            tools.call(call("Any"), runs)

            def run(_: ToolCall, how: str = how) -> Iterator[str]:
                yield "a"
                assert not tools.call(call("Any"), runs).cached
                if how == "raises":
                    raise BrokenError
                yield "b"

            stream = tools.stream(call("Edit"), run)
            if how == "stopped":
                next(stream)
                assert not tools.call(call("Any"), runs).cached
                stream.close()  # type: ignore[attr-defined]
            elif how == "raises":
                with pytest.raises(BrokenError):
                    list(stream)
            else:
                assert list(stream) == ["a", "b"]
            assert not tools.call(call("Any"), runs).cached
            assert tools.call(call("Any"), runs).cached

    def test_write_in_between_has_a_stream_not_kept(self, tools: ToolCache, runs: Runs) -> None:
        """R16"""

        def run(_: ToolCall) -> Iterator[str]:
            yield "old"
            tools.call(call("Edit"), runs)
            yield "end"

        assert list(tools.stream(call("Any"), run)) == ["old", "end"]
        assert list(tools.stream(call("Any"), self.parts("new"))) == ["new"]


class TestAstream:
    @staticmethod
    def parts(*given: Any) -> Callable[[ToolCall], Any]:
        async def run(_: ToolCall) -> Any:
            for part in given:
                await asyncio.sleep(0)
                yield part

        return run

    @staticmethod
    async def take(stream: Any) -> list[Any]:
        return [part async for part in stream]

    def test_is_kept_when_it_was_taken_to_the_end(self, make: MakeTools) -> None:
        """R18"""
        tools = make()

        async def main() -> None:
            first = await self.take(tools.astream(call(), self.parts("a", {"b": 1})))
            second = await self.take(tools.astream(call(), self.parts("other")))
            assert first == second == ["a", {"b": 1}]

        asyncio.run(main())
        assert list(tools.stream(call(), lambda _: ["other"])) == ["a", {"b": 1}]

    @pytest.mark.parametrize("how", ["stopped", "raises", "cancelled"])
    def test_is_not_kept_unless_it_was_taken_to_the_end(self, make: MakeTools, how: str) -> None:
        """R18"""
        tools = make()

        async def run(_: ToolCall) -> Any:
            yield "a"
            if how == "raises":
                raise BrokenError
            if how == "cancelled":
                await asyncio.sleep(LONG)
            yield "b"

        async def main() -> None:
            stream = tools.astream(call(), run)
            if how == "stopped":
                async for _ in stream:
                    break
                await stream.aclose()  # type: ignore[attr-defined]
            elif how == "raises":
                with pytest.raises(BrokenError):
                    await self.take(stream)
            else:
                task = asyncio.create_task(self.take(stream))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(main())

        assert len(tools) == 0
        assert list(tools.stream(call(), lambda _: ["again"])) == ["again"]

    def test_parts_changed_by_their_consumer_are_kept_as_they_came(self, make: MakeTools) -> None:
        """R36"""
        tools = make()

        async def main() -> list[Any]:
            for _ in range(2):
                async for part in tools.astream(call(), self.parts([1], {"a": 2})):
                    part.clear()
            return await self.take(tools.astream(call(), self.parts()))

        assert asyncio.run(main()) == [[1], {"a": 2}]

    def test_stream_of_a_write_evicts(self, make: MakeTools, runs: Runs) -> None:
        tools = make()
        tools.call(call("Any"), runs)

        async def main() -> None:
            async for _ in tools.astream(call("Edit"), self.parts("a", "b")):
                assert not tools.call(call("Any"), runs).cached

        asyncio.run(main())

        assert not tools.call(call("Any"), runs).cached
        assert tools.call(call("Any"), runs).cached


def test_arguments_that_are_no_mapping_are_the_caller_s_mistake(tools: ToolCache) -> None:
    with pytest.raises((TypeError, ValueError, UncacheableError)):
        tools.call(ToolCall("Search", 5, cwd="/"), Runs())  # type: ignore[arg-type]


@in_a_file
def test_kept_entry_can_be_read_by_people(make: MakeTools, path: Path) -> None:
    make().call(call(turn=3, scope=Scope(session="s")), Runs(ToolResult({"a": 1}, duration=0.5)))
    text = path.read_text()

    assert 'Search {\\"q\\":\\"x\\"}' in text
    assert (
        json.loads(text.splitlines()[0].rstrip(",") + "}" * (path.suffix == ".json"))["respcache"]
        == 1
    )
