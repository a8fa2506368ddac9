"""What writes forget: before, while and after they run, by every name, on good days and bad."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from respcache import (
    Cache,
    LockTimeoutError,
    Scope,
    StoreError,
    ToolCache,
    ToolCall,
    ToolResult,
    Tree,
)
from respcache._lock import RangeLock
from respcache._paths import spellings
from respcache._rules import Removal
from respcache._stores import format_of, new_id, open_store
from respcache.testing import FakeClock

LONG = 30.0  # seconds after which a test that hangs fails

in_a_file = pytest.mark.parametrize("path", ["document", "log"], indirect=True)


@pytest.fixture(params=["memory", "document", "log"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    suffix = {"memory": None, "document": "json", "log": "jsonl"}[request.param]
    return None if suffix is None else tmp_path / "cache" / f"tools.{suffix}"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a few files."""
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "docs").mkdir()
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src2", "docs/d.md"):
        (work / name).write_text(name)
    return work


def files(arguments: Any, cwd: str) -> list[str]:
    return list(arguments["paths"])


def trees(arguments: Any, cwd: str) -> list[Tree]:
    return [Tree(path) for path in arguments["paths"]]


def broken(arguments: Any, cwd: str) -> Any:
    raise LookupError("nobody knows")


class Agent:
    """One cache, with tools whose runs are counted; they do what they are told to."""

    def __init__(self, path: Path | None, clock: FakeClock, work: Path, **options: Any) -> None:
        self.work = work
        self.count = 0
        self.tools = ToolCache(
            path,
            reads={"Read": files, "List": trees, "Search": (), "Any": None, "Odd": broken},
            writes={
                "Edit": files,
                "Folder": trees,
                "Shell": None,
                "Nothing": (),
                "Broken": broken,
            },
            neutral={"Todo"},
            fsync=False,
            clock=clock,
            **options,
        )

    def __call__(
        self,
        name: str,
        *paths: Any,
        run: Callable[[], Any] | None = None,
        scope: Scope | None = None,
        cwd: Any = None,
    ) -> ToolResult:
        return self.tools.call(
            self.asked(name, *paths, scope=scope, cwd=cwd), lambda _: self.ran(run)
        )

    def asked(
        self, name: str, *paths: Any, scope: Scope | None = None, cwd: Any = None
    ) -> ToolCall:
        folder = os.fspath(self.work if cwd is None else cwd)
        return ToolCall(name, {"paths": list(paths)}, cwd=folder, scope=scope)

    def ran(self, run: Callable[[], Any] | None) -> Any:
        self.count += 1
        return f"run {self.count}" if run is None else run()

    def serves(self, name: str, *paths: Any, **options: Any) -> bool:
        """Tell whether a call is a hit; if not, nothing is kept of it either."""

        def fail() -> ToolResult:
            return ToolResult("not kept", is_error=True)

        return self(name, *paths, run=fail, **options).cached


MakeAgent = Callable[..., Agent]


@pytest.fixture
def make(path: Path | None, clock: FakeClock, work: Path) -> Iterator[MakeAgent]:
    opened = []

    def make_agent(**options: Any) -> Agent:
        agent = Agent(path, clock, work, **options)
        opened.append(agent)
        return agent

    yield make_agent
    for agent in opened:
        agent.tools.close()


@pytest.fixture
def agent(make: MakeAgent) -> Agent:
    return make()


@pytest.fixture
def started() -> Iterator[Callable[..., threading.Thread]]:
    """Start a thread, which is joined at the end."""
    threads = []

    def start(target: Callable[..., Any], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


class TestWhatAPathMeets:
    @pytest.mark.parametrize(
        ("kind", "kept", "changed", "is_met"),
        [
            pytest.param("Read", "src/b.py", "src/b.py", True, id="equal"),
            pytest.param("Read", "src/b.py", "src/deep/c.py", False, id="another-file"),
            pytest.param("Read", "src/b.py", "src", True, id="its-folder"),
            pytest.param("Read", "src/deep/c.py", "src", True, id="a-folder-above"),
            pytest.param("Read", "src/b.py", "src/", True, id="its-folder-with-a-slash"),
            pytest.param("Read", "src/b.py", "/", True, id="root"),
            pytest.param("Read", "src", "src/b.py", False, id="folder-as-a-file"),
            pytest.param("Read", "src2", "src", False, id="longer-name"),
            pytest.param("Read", "src/b.py", "src/b", False, id="shorter-name"),
            pytest.param("Read", "src/b.py", "SRC/B.PY", True, id="other-case"),
            pytest.param("Read", "missing.py", "missing.py", True, id="not-there-yet"),
            pytest.param("Read", "a.py", "./src/../a.py", True, id="dots"),
            pytest.param("Read", "./src/.././a.py", "a.py", True, id="dots-kept"),
            pytest.param("List", "src", "src/b.py", True, id="file-in-a-tree"),
            pytest.param("List", "src", "src/deep/new/file", True, id="new-file-deep-in-a-tree"),
            pytest.param("List", "src", "src", True, id="tree-itself"),
            pytest.param("List", "src/", "src/b.py", True, id="tree-with-a-slash"),
            pytest.param("List", "src/deep", "src", True, id="folder-above-a-tree"),
            pytest.param("List", "src/deep", "src/b.py", False, id="file-beside-a-tree"),
            pytest.param("List", "src", "src2", False, id="longer-name-than-a-tree"),
            pytest.param("List", "src", "docs/d.md", False, id="another-tree"),
            pytest.param("List", "/", "docs/d.md", True, id="tree-of-all"),
            pytest.param("List", "src", "SRC/B.PY", True, id="tree-other-case"),
            pytest.param("Any", "a.py", "docs/d.md", True, id="who-knows-what"),
            pytest.param("Odd", "a.py", "docs/d.md", True, id="extractor-that-raises"),
            pytest.param("Search", "a.py", "a.py", False, id="no-files"),
        ],
    )
    @pytest.mark.parametrize("write", ["Edit", "Folder"])
    def test_write_evicts_what_its_path_meets(
        self, agent: Agent, write: str, kind: str, kept: str, changed: str, is_met: bool
    ) -> None:
        """R14: equal, below a folder, and in a tree above; a tree is written as a folder is."""
        agent(kind, kept)
        agent(write, changed)

        assert agent.serves(kind, kept) is not is_met

    @pytest.mark.parametrize("spelling", ["{work}/a.py", "link/a.py", "alias.py", "src/../a.py"])
    def test_write_by_another_name_of_a_file_evicts(
        self, agent: Agent, work: Path, spelling: str
    ) -> None:
        """R14: absolute, through a link to its folder, through a link to itself."""
        (work / "link").symlink_to(".")
        (work / "alias.py").symlink_to("a.py")
        name = spelling.format(work=work)
        agent("Read", "./src/../a.py")
        agent("Edit", name)
        assert not agent.serves("Read", "./src/../a.py")
        agent("Read", name)
        agent("Edit", "a.py")
        assert not agent.serves("Read", name)
        agent("List", ".")
        agent("Edit", name)

        assert not agent.serves("List", ".")

    def test_home_is_a_folder_too(
        self, agent: Agent, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R14"""
        monkeypatch.setenv("HOME", str(work))
        agent("Read", "~/a.py")
        agent("Edit", "a.py")
        assert not agent.serves("Read", "~/a.py")
        agent("Read", "a.py")
        agent("Edit", "~/a.py")

        assert not agent.serves("Read", "a.py")

    def test_relative_path_starts_at_the_call_s_folder(self, agent: Agent, work: Path) -> None:
        """R14, E05"""
        agent("Read", "b.py", cwd=work / "src")
        agent("Edit", "b.py")
        assert agent.serves("Read", "b.py", cwd=work / "src")
        agent("Edit", "src/b.py")

        assert not agent.serves("Read", "b.py", cwd=work / "src")

    def test_any_of_several_paths_is_enough(self, agent: Agent) -> None:
        agent("Read", "a.py", "src/b.py")
        agent("Read", "docs/d.md")
        agent("Edit", "nowhere", "src/b.py")

        assert not agent.serves("Read", "a.py", "src/b.py")
        assert agent.serves("Read", "docs/d.md")

    def test_created_file_drops_the_answer_that_it_is_missing(
        self, agent: Agent, work: Path
    ) -> None:
        """R14"""
        agent("Read", "new.py", run=lambda: "not found")
        agent("List", ".", run=lambda: ["a.py"])
        agent("Edit", "new.py", run=lambda: (work / "new.py").write_text("new"))

        assert not agent.serves("Read", "new.py")
        assert not agent.serves("List", ".")

    @pytest.mark.parametrize("scope", [Scope(agent="b", user="v", session="w"), None])
    def test_all_scopes_share_one_disk(self, agent: Agent, scope: Scope | None) -> None:
        """E05"""
        mine = Scope(agent="a", user="u", session="s")
        agent("Read", "a.py", scope=scope)
        agent("Edit", "a.py", scope=mine)

        assert not agent.serves("Read", "a.py", scope=scope)

    def test_write_of_a_known_path_leaves_all_else(self, agent: Agent) -> None:
        agent("Search")
        agent("Read", "docs/d.md")
        agent("List", "src")
        agent("Edit", "a.py")

        assert agent.serves("Search")
        assert agent.serves("Read", "docs/d.md")
        assert agent.serves("List", "src")

    def test_paths_need_be_neither_lists_nor_functions(self, work: Path, clock: FakeClock) -> None:
        """A list stands for itself, relative to the call's folder."""
        tools = ToolCache(
            reads={"Read": ["a.py"], "Pathlib": lambda a, c: work / "a.py"},
            writes={"Edit": ("a.py",), "One": lambda a, c: "a.py", "Tree": lambda a, c: Tree(".")},
            clock=clock,
        )
        for write in ("Edit", "One", "Tree"):
            for read in ("Read", "Pathlib"):
                asked = ToolCall(read, {}, cwd=str(work))
                tools.call(asked, lambda _: 1)
                assert tools.call(asked, lambda _: 1).cached
                tools.call(ToolCall(write, {}, cwd=str(work)), lambda _: 1)
                assert not tools.call(asked, lambda _: 1).cached


class TestUnknownEffects:
    @pytest.mark.parametrize("name", ["Shell", "Broken", "Unnamed"])
    def test_forget_all_that_was_read_from_files(self, agent: Agent, name: str) -> None:
        """R15, E05: in all scopes."""
        other = Scope(agent="b", session="t")
        asked: list[tuple[str, ...]] = [("Read", "a.py"), ("List", "src"), ("Any",)]
        for scope in (None, other):
            for each in asked:
                agent(*each, scope=scope)
        agent(name, scope=Scope(agent="a", session="s"))

        for scope in (None, other):
            for each in asked:
                assert not agent.serves(*each, scope=scope)

    @pytest.mark.parametrize("name", ["Shell", "Broken", "Unnamed"])
    @pytest.mark.parametrize("own", [None, Scope(), Scope(agent="a", user="u", session="s")])
    def test_forget_of_the_rest_what_their_own_scope_has(
        self, agent: Agent, name: str, own: Scope | None
    ) -> None:
        """E05"""
        others = [Scope(agent="a", user="u", session="t"), Scope(agent="b"), Scope(user="v")]
        for scope in (own, *others):
            agent("Search", scope=scope)
        agent(name, scope=own)

        assert not agent.serves("Search", scope=own)
        assert all(agent.serves("Search", scope=scope) for scope in others)

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(None, id="none"),
            pytest.param(5, id="number"),
            pytest.param([5], id="number-in-a-list"),
            pytest.param([""], id="empty-path"),
            pytest.param(["a\0b"], id="nul"),
            pytest.param(["a", None], id="none-in-a-list"),
            pytest.param([b"a"], id="bytes"),
            pytest.param("", id="empty"),
        ],
    )
    def test_come_of_an_extractor_that_gives_no_paths(
        self, work: Path, clock: FakeClock, found: Any
    ) -> None:
        """A read of the kind may have read anything, a write of the kind have changed it."""
        tools = ToolCache(
            reads={"Read": ["a.py"], "Odd": lambda a, c: found},
            writes={"Edit": ["elsewhere"], "Odd write": lambda a, c: found},
            clock=clock,
        )

        def ask(name: str) -> bool:
            return tools.call(ToolCall(name, {}, cwd=str(work)), lambda _: 1).cached

        ask("Read")
        ask("Odd write")
        assert not ask("Read")
        ask("Odd")
        assert ask("Odd")
        ask("Edit")
        assert not ask("Odd")

    def test_extractor_that_raises_is_no_trouble_of_the_caller(self, agent: Agent) -> None:
        assert agent("Broken", run=lambda: "done").content == "done"
        assert agent("Odd", run=lambda: "read").content == "read"
        assert agent.serves("Odd")

    @pytest.mark.parametrize("error", [ToolResult("no", is_error=True), {"isError": True}])
    def test_count_after_an_error_too(self, agent: Agent, error: Any) -> None:
        """E01: ``sed -i s/a/b/ a.py; false`` has written."""
        agent("Read", "a.py")
        agent("Search")
        agent("Shell", run=lambda: error)

        assert not agent.serves("Read", "a.py")
        assert not agent.serves("Search")

    def test_that_touch_nothing_touch_nothing(self, agent: Agent, path: Path | None) -> None:
        for each in (("Read", "a.py"), ("List", "src"), ("Search",), ("Any",)):
            agent(*each)
        before = None if path is None else path.read_bytes()
        for name in ("Nothing", "Todo"):
            agent(name)
            agent(name, run=lambda: {"isError": True})
            with pytest.raises(ZeroDivisionError):
                agent(name, run=lambda: 1 / 0)

        for each in (("Read", "a.py"), ("List", "src"), ("Search",), ("Any",)):
            assert agent.serves(*each)
        if path is not None:
            assert path.read_bytes() == before

    @in_a_file
    def test_reach_answers_that_were_read_from_files(
        self, make: MakeAgent, path: Path, work: Path
    ) -> None:
        agent, cache = make(), Cache(path, fsync=False)
        cache.store("of a file", "a", paths=[work / "a.py"])
        cache.store("of none", "b")
        agent("Shell")

        assert cache.lookup("of a file") is None
        assert cache.get("of none") == "b"

    def test_gated_write_counts(self, agent: Agent) -> None:
        agent("Read", "a.py")
        asked = agent.asked("Edit", "a.py")
        asked.gated = True
        agent.tools.call(asked, lambda _: "done")

        assert not agent.serves("Read", "a.py")


class TestInvalidate:
    def test_paths_from_outside(self, agent: Agent, work: Path) -> None:
        agent("Read", "a.py")
        agent("List", "src")
        agent("Search")

        assert agent.tools.invalidate([work / "src" / "new.py"]) == 1
        assert agent.serves("Read", "a.py") and not agent.serves("List", "src")
        assert agent.tools.invalidate(work / "a.py") == 1
        assert not agent.serves("Read", "a.py")
        assert agent.serves("Search")

    def test_relative_path_starts_at_the_process_s_folder(
        self, agent: Agent, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent("Read", "b.py", cwd=work / "src")
        monkeypatch.chdir(work)

        assert agent.tools.invalidate(["b.py"]) == 0
        assert agent.tools.invalidate(["src/b.py"]) == 1
        assert agent.tools.invalidate([]) == 0

    def test_everything(self, agent: Agent) -> None:
        for scope in (None, Scope(agent="b")):
            for name in ("Search", "Any"):
                agent(name, scope=scope)

        assert agent.tools.invalidate() == 4
        assert len(agent.tools) == 0

    @in_a_file
    def test_everything_reaches_all_namespaces_and_answers_read_from_files(
        self, make: MakeAgent, path: Path, work: Path, clock: FakeClock
    ) -> None:
        agent, other = make(), make(namespace="n")
        cache = Cache(path, fsync=False, clock=clock)
        other("Search")
        cache.store("of a file", "a", paths=[work / "a.py"])
        cache.store("of none", "b")

        assert agent.tools.invalidate() == 2
        assert not other.serves("Search")
        assert cache.lookup("of a file") is None
        assert cache.get("of none") == "b"


class TestBegun:
    def test_hides_what_it_touches_while_it_runs(self, agent: Agent) -> None:
        """E01"""
        agent("Read", "a.py")
        agent("List", ".")
        agent("Any")
        agent("Read", "docs/d.md")
        agent("Search")

        def run() -> str:
            for each in (("Read", "a.py"), ("List", "."), ("Any",)):
                assert not agent.serves(*each)
            assert agent.serves("Read", "docs/d.md")
            assert agent.serves("Search")
            return "done"

        agent("Edit", "a.py", run=run)

    @in_a_file
    def test_hides_it_from_all_who_share_the_file(
        self, make: MakeAgent, path: Path, work: Path, clock: FakeClock
    ) -> None:
        """E01: from who has the file open, from who opens it, and from plain caches."""
        agent, other = make(), make()
        cache = Cache(path, fsync=False, clock=clock)
        for read in (("Read", "a.py"), ("List", ".")):
            agent(*read)
            assert other.serves(*read)
        cache.store("What is in a?", "a", paths=[work / "a.py"])
        cache.store("What is in d?", "d", paths=[work / "docs" / "d.md"])
        seen = []

        def run() -> str:
            for reader in (other, make()):
                assert not reader.serves("Read", "a.py")
                assert not reader.serves("List", ".")
            for each in (cache, Cache(path, fsync=False, clock=clock)):
                assert each.lookup("What is in a?") is None
                assert each.get("What is in d?") == "d"
            seen.append(True)
            return "done"

        agent("Edit", "a.py", run=run)

        assert seen
        assert not other.serves("Read", "a.py")
        assert cache.lookup("What is in a?") is None
        assert cache.get("What is in d?") == "d"

    def test_refuses_what_is_read_while_it_runs(self, agent: Agent) -> None:
        """A read nested in a write, begun and ended in it, and what it touches not."""

        def run() -> str:
            agent("Read", "a.py")
            agent("Read", "docs/d.md")
            return "done"

        agent("Edit", "a.py", run=run)

        assert not agent.serves("Read", "a.py")
        assert agent.serves("Read", "docs/d.md")

    @pytest.mark.parametrize("end", ["done", "error", "exception"])
    def test_refuses_what_began_in_it_and_ended_after_it(
        self, agent: Agent, started: Any, end: str
    ) -> None:
        """R16"""
        is_reading, is_written = threading.Event(), threading.Event()

        def read() -> str:
            is_reading.set()
            assert is_written.wait(LONG)
            return "half written"

        def run() -> Any:
            started(agent.tools.call, agent.asked("Read", "a.py"), lambda _: read())
            assert is_reading.wait(LONG)
            if end == "exception":
                raise ZeroDivisionError
            return "done" if end == "done" else ToolResult("no", is_error=True)

        try:
            agent("Edit", "a.py", run=run)
        except ZeroDivisionError:
            assert end == "exception"
        is_written.set()
        result = agent("Read", "a.py", run=lambda: "written")  # waits for the one under way

        assert (result.content, result.cached) == ("written", False)

    def test_two_that_overlap_hide_until_both_have_ended(self, agent: Agent) -> None:
        agent("Read", "a.py")

        def outer() -> Any:
            agent("Edit", "a.py", run=lambda: ToolResult("no", is_error=True))
            assert not agent.serves("Read", "a.py")
            return ToolResult("no", is_error=True)

        agent("Edit", "a.py", run=outer)

        assert agent.serves("Read", "a.py")

    def test_write_within_a_write_evicts_its_own(self, agent: Agent) -> None:
        agent("Read", "docs/d.md")
        agent("Read", "a.py")

        def outer() -> Any:
            agent("Edit", "docs/d.md")
            return ToolResult("no", is_error=True)

        agent("Edit", "a.py", run=outer)

        assert not agent.serves("Read", "docs/d.md")
        assert agent.serves("Read", "a.py")


class TestEnded:
    @pytest.mark.parametrize(
        "error",
        [ToolResult("no", is_error=True), {"isError": True}, {"is_error": True}],
        ids=["flag", "mcp", "shape"],
    )
    def test_error_of_known_paths_evicts_nothing(self, agent: Agent, error: Any) -> None:
        """And what was hidden is served again."""
        agent("Read", "a.py")
        agent("List", ".")
        seen = []

        def run() -> Any:
            seen.append(agent.serves("Read", "a.py"))
            return error

        agent("Edit", "a.py", run=run)

        assert seen == [False]
        assert agent.serves("Read", "a.py") and agent.serves("List", ".")

    @in_a_file
    def test_error_of_known_paths_has_it_served_by_all_again(
        self, make: MakeAgent, path: Path, work: Path, clock: FakeClock
    ) -> None:
        agent, other = make(), make()
        cache = Cache(path, fsync=False, clock=clock)
        other("Read", "a.py")
        cache.store("q", "a", paths=[work / "a.py"])
        agent("Edit", "a.py", run=lambda: ToolResult("no", is_error=True))

        assert other.serves("Read", "a.py") and make().serves("Read", "a.py")
        assert cache.get("q") == "a"

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_exception_may_have_written(self, agent: Agent, error: type[BaseException]) -> None:
        """E01"""
        agent("Read", "a.py")
        agent("List", ".")

        def run() -> None:
            raise error

        with pytest.raises(error):
            agent("Edit", "a.py", run=run)

        assert not agent.serves("Read", "a.py") and not agent.serves("List", ".")
        agent("Read", "a.py")
        assert agent.serves("Read", "a.py")

    @pytest.mark.parametrize(
        "result",
        [
            ToolResult("half", complete=False),
            ToolResult("yes", asked_user=True),
            None,
            {1, 2},
            {"isError": False},
        ],
        ids=["incomplete", "asked", "none", "no-json", "no-error"],
    )
    def test_anything_else_has_written(self, agent: Agent, result: Any) -> None:
        agent("Read", "a.py")
        agent("Edit", "a.py", run=lambda: result)

        assert not agent.serves("Read", "a.py")

    def test_result_of_a_write_is_never_kept(self, agent: Agent) -> None:
        for number in range(1, 4):
            assert agent("Edit", "a.py").content == f"run {number}"
        assert len(agent.tools) == 0

    def test_afterwards_it_is_kept_again(self, agent: Agent) -> None:
        agent("Read", "a.py")
        for name in ("Edit", "Shell", "Unnamed"):
            agent(name, "a.py")
            assert not agent("Read", "a.py").cached
            assert agent("Read", "a.py").cached

    def test_eviction_is_told(self, make: MakeAgent) -> None:
        events: list[Any] = []
        agent = make(on_event=lambda event: events.append((event.kind, event.front)))
        agent("Read", "a.py")
        events.clear()
        agent("Edit", "a.py")
        agent("Edit", "a.py", run=lambda: ToolResult("no", is_error=True))

        assert events == [("bypass", "tools"), ("invalidate", "tools"), ("bypass", "tools")]


class TestRaces:
    def test_read_that_began_before_a_write_and_ended_after_it_is_not_kept(
        self, agent: Agent, work: Path, started: Any
    ) -> None:
        """R16, in slow motion: its caller gets the value, the cache does not."""
        has_read, is_written = threading.Event(), threading.Event()
        results: list[ToolResult] = []

        def slow_read() -> str:
            text = (work / "a.py").read_text()
            has_read.set()
            assert is_written.wait(LONG)
            return text

        thread = started(lambda: results.append(agent("List", ".", run=slow_read)))
        assert has_read.wait(LONG)
        agent("Edit", "a.py", run=lambda: (work / "a.py").write_text("new"))
        is_written.set()
        thread.join(LONG)

        assert [result.content for result in results] == ["a.py"]
        assert agent("List", ".", run=(work / "a.py").read_text).content == "new"
        assert agent.tools.stats()["refused"] == 1

    def test_read_that_began_before_a_write_and_ended_in_it_is_not_kept(
        self, agent: Agent, started: Any
    ) -> None:
        """R16"""
        has_read, is_writing = threading.Event(), threading.Event()

        def slow_read() -> str:
            has_read.set()
            assert is_writing.wait(LONG)
            return "old"

        thread = started(lambda: agent("List", ".", run=slow_read))
        assert has_read.wait(LONG)

        def write() -> str:
            is_writing.set()
            thread.join(LONG)
            return "done"

        agent("Edit", "a.py", run=write)

        assert not agent.serves("List", ".")

    @pytest.mark.parametrize(
        "what",
        ["clear", "invalidate", "invalidate-all", "Shell", "Edit"],
    )
    def test_what_comes_between_has_a_result_not_kept(self, agent: Agent, what: str) -> None:
        """E06, R16: the steps in the losing order."""

        def run() -> str:
            if what == "clear":
                agent.tools.clear()
            elif what == "invalidate":
                agent.tools.invalidate([agent.work / "src" / "x"])
            elif what == "invalidate-all":
                agent.tools.invalidate()
            else:
                agent(what, "src/x")
            return "old"

        assert agent("List", "src", run=run).content == "old"
        assert not agent.serves("List", "src")
        agent("List", "src")
        assert agent.serves("List", "src")

    def test_what_touches_something_else_does_not(self, agent: Agent) -> None:
        def run() -> str:
            agent("Edit", "docs/d.md")
            agent("Search")
            return "new"

        agent("Search")
        agent("List", "src", run=run)

        assert agent.serves("List", "src")

    def test_who_joins_after_a_write_gets_what_is_new(self, agent: Agent, started: Any) -> None:
        """E06: it waits for the read under way, and takes nothing from it."""
        has_read, go_on = threading.Event(), threading.Event()
        results: list[Any] = []

        def slow_read() -> str:
            has_read.set()
            assert go_on.wait(LONG)
            return "old"

        leader = started(lambda: agent("List", ".", run=slow_read))
        assert has_read.wait(LONG)
        agent("Edit", "a.py")
        follower = started(lambda: results.append(agent("List", ".", run=lambda: "new").content))
        go_on.set()
        leader.join(LONG)
        follower.join(LONG)

        assert results == ["new"]
        assert agent("List", ".").content == "new"

    @in_a_file
    @pytest.mark.parametrize("what", ["deleted", "restored", "replaced"])
    def test_file_that_lost_its_history_confuses_no_ticket(
        self, make: MakeAgent, path: Path, what: str
    ) -> None:
        """E02: the write was told in a file that is gone."""
        agent, other = make(), make()
        agent("Search")
        backup = path.with_suffix(".backup")
        shutil.copy(path, backup)
        agent("Edit", "docs/d.md")

        def run() -> str:
            other("Edit", "a.py")
            if what == "deleted":
                path.unlink()
            elif what == "restored":
                shutil.copy(backup, path)
            else:
                os.replace(backup, path)
            other("Read", "docs/d.md")
            return "old"

        agent("List", ".", run=run)

        assert not agent.serves("List", ".")
        assert not other.serves("List", ".")

    def test_one_that_began_with_no_file_is_kept_if_nothing_touches_it(self, agent: Agent) -> None:
        """E02: its ticket is good back to the start, however the file came to be."""

        def run() -> str:
            agent("Edit", "docs/d.md")
            agent("Search")
            return "new"

        agent("List", "src", run=run)

        assert agent.serves("List", "src")

    @in_a_file
    def test_write_that_nobody_remembers_any_more_has_results_refused(
        self, make: MakeAgent, path: Path, work: Path
    ) -> None:
        """E02: so many came after it that it is forgotten."""
        agent, other = make(), make()

        def run() -> str:
            other("Edit", "a.py")
            for number in range(130 if path.suffix == ".json" else 1030):
                other.tools.invalidate([work / "docs" / str(number)])
            return "old"

        agent("List", "src", run=run)
        agent("List", ".", run=run)

        assert not agent.serves("List", ".")

    def test_no_hit_comes_between_the_change_and_its_end(self, agent: Agent, work: Path) -> None:
        """E01: a tree tells no change of itself; only the write does."""
        agent("List", ".", run=(work / "a.py").read_text)

        def run() -> str:
            (work / "a.py").write_text("new")
            assert agent("List", ".", run=(work / "a.py").read_text).content == "new"
            return "done"

        agent("Edit", "a.py", run=run)

        assert agent("List", ".", run=(work / "a.py").read_text).content == "new"


class TestLinks:
    def test_link_pointed_elsewhere_by_a_write_evicts_both_ends(
        self, agent: Agent, work: Path
    ) -> None:
        """E29: the real path before and after."""
        (work / "link").symlink_to("src")

        def run() -> str:
            (work / "link").unlink()
            (work / "link").symlink_to("docs")
            (work / "link" / "d.md").write_text("through the link")
            return "done"

        agent("List", "src")
        agent("List", "docs")
        agent("Edit", "link/d.md", run=run)

        assert not agent.serves("List", "src")
        assert not agent.serves("List", "docs")

    @pytest.mark.parametrize("how", ["exception", "stream"])
    def test_link_pointed_elsewhere_by_a_write_that_fails_evicts_both_ends(
        self, agent: Agent, work: Path, how: str
    ) -> None:
        """E29, E01: it may have written through it, at either end."""
        (work / "link").symlink_to("src")

        def run() -> Any:
            (work / "link").unlink()
            (work / "link").symlink_to("docs")
            (work / "link" / "d.md").write_text("through the link")
            yield "part"
            raise ZeroDivisionError

        agent("List", "src")
        agent("List", "docs")
        with pytest.raises(ZeroDivisionError):
            if how == "stream":
                list(agent.tools.stream(agent.asked("Edit", "link/d.md"), lambda _: run()))
            else:
                agent("Edit", "link/d.md", run=lambda: list(run()))

        assert not agent.serves("List", "src")
        assert not agent.serves("List", "docs")

    def test_link_pointed_elsewhere_while_it_is_read(self, agent: Agent, work: Path) -> None:
        """E29: a listing through a link is of both ends."""
        (work / "link").symlink_to("src")

        def run() -> str:
            (work / "link").unlink()
            (work / "link").symlink_to("docs")
            return "of docs"

        agent("List", "link", run=run)
        agent("Edit", "docs/d.md")
        assert not agent.serves("List", "link")

    def test_link_pointed_elsewhere_after_it_was_read(self, agent: Agent, work: Path) -> None:
        """E29: the file's own signature is another at the hit."""
        (work / "link.py").symlink_to("a.py")
        agent("Read", "link.py")
        (work / "link.py").unlink()
        (work / "link.py").symlink_to("src/b.py")

        assert not agent.serves("Read", "link.py")

    def test_write_through_another_hard_link_is_seen_at_the_hit(
        self, agent: Agent, work: Path
    ) -> None:
        """E29"""
        os.link(work / "a.py", work / "docs" / "other name.py")
        agent("Read", "a.py")
        agent(
            "Edit",
            "docs/other name.py",
            run=lambda: (work / "docs" / "other name.py").write_text("longer than before"),
        )

        assert not agent.serves("Read", "a.py")

    def test_extractor_that_finds_other_paths_afterwards_evicts_all(
        self, work: Path, clock: FakeClock
    ) -> None:
        """Such as a patch that says only afterwards what it has touched."""
        found = [["a.py"]]
        tools = ToolCache(
            reads={"Read": files}, writes={"Patch": lambda a, c: found[0]}, clock=clock
        )

        def ask(name: str, *paths: str, run: Any = lambda _: 1) -> bool:
            return tools.call(ToolCall(name, {"paths": list(paths)}, cwd=str(work)), run).cached

        ask("Read", "a.py")
        ask("Read", "docs/d.md")
        ask("Read", "src/b.py")
        ask("Patch", run=lambda _: found.__setitem__(0, ["docs/d.md"]))
        assert not ask("Read", "a.py") and not ask("Read", "docs/d.md")
        assert ask("Read", "src/b.py")
        ask("Patch", run=lambda _: found.__setitem__(0, None))

        assert not ask("Read", "src/b.py")


class TestChangedFiles:
    def _edit(path: Path) -> None:  # noqa: N805
        path.write_text("longer than it was before")

    def _delete(path: Path) -> None:  # noqa: N805
        path.unlink()

    def _replace(path: Path) -> None:  # noqa: N805
        path.with_suffix(".new").write_text(path.name)
        os.replace(path.with_suffix(".new"), path)

    def _touch(path: Path) -> None:  # noqa: N805
        os.utime(path, ns=(1, 1))

    def _to_folder(path: Path) -> None:  # noqa: N805
        path.unlink()
        path.mkdir()

    def _to_link(path: Path) -> None:  # noqa: N805
        path.unlink()
        path.symlink_to("docs/d.md")

    @pytest.mark.parametrize(
        "change", [_edit, _delete, _replace, _touch, _to_folder, _to_link], ids=lambda f: f.__name__
    )
    def test_change_from_outside_is_a_miss(
        self, agent: Agent, work: Path, change: Callable[[Path], None]
    ) -> None:
        agent("Read", "a.py")
        agent("Read", "src/b.py")
        change(work / "a.py")

        assert not agent.serves("Read", "a.py")
        assert agent.serves("Read", "src/b.py")

    def test_file_that_appears_is_a_change(self, agent: Agent, work: Path) -> None:
        """R14"""
        agent("Read", "new.py")
        assert agent.serves("Read", "new.py")
        (work / "new.py").write_text("")

        assert not agent.serves("Read", "new.py")

    def test_signature_is_of_before_the_run(self, agent: Agent, work: Path) -> None:
        """A change from outside while the tool reads leaves a result that is never served."""

        def run() -> str:
            text = (work / "a.py").read_text()
            (work / "a.py").write_text("changed by somebody else")
            return text

        assert agent("Read", "a.py", run=run).content == "a.py"
        assert agent("Read", "a.py", run=(work / "a.py").read_text).content.startswith("changed")
        assert agent.serves("Read", "a.py")

    def test_restored_file_is_another_one(self, agent: Agent, work: Path) -> None:
        """A checkout there and back: not newer, but different."""
        agent("Read", "a.py")
        shutil.copy2(work / "a.py", work / "backup")
        (work / "a.py").write_text("branch")
        os.replace(work / "backup", work / "a.py")

        assert not agent.serves("Read", "a.py")

    def test_tree_is_not_walked_at_the_hit(self, agent: Agent, work: Path) -> None:
        """It is for writes and for invalidate to tell."""
        agent("List", "src")
        (work / "src" / "b.py").write_text("longer than it was before")
        assert agent.serves("List", "src")
        agent.tools.invalidate([work / "src" / "b.py"])

        assert not agent.serves("List", "src")


class Disk:
    """A disk that takes no bytes for regular files while *error* is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = 0
        real = os.write

        def write(fd: int, data: Any) -> int:
            if self.error and stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(self.error, os.strerror(self.error))
            return real(fd, data)

        monkeypatch.setattr(os, "write", write)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@in_a_file
class TestFailingDisk:
    """E04: what can't be told to others is at least kept from being served here."""

    def test_beginning_that_can_not_be_told_hides_here(
        self, make: MakeAgent, disk: Disk, warnings_of: Any
    ) -> None:
        agent, other = make(), make()
        agent("Read", "a.py")
        agent("Read", "docs/d.md")

        def run() -> str:
            assert not agent.serves("Read", "a.py")
            assert agent.serves("Read", "docs/d.md")
            disk.error = 0
            return "done"

        disk.error = errno.EIO
        assert agent("Edit", "a.py", run=run).content == "done"

        assert not other.serves("Read", "a.py")
        assert agent.tools.stats()["pending"] == 0
        assert len(warnings_of()) == 1

    @pytest.mark.parametrize("name", ["Edit", "Shell"])
    def test_end_that_can_not_be_told_hides_here_and_is_told_before_the_next_store(
        self, make: MakeAgent, disk: Disk, name: str
    ) -> None:
        agent, other = make(), make()
        agent("Read", "a.py")

        def run() -> str:
            disk.error = errno.EIO
            return "done"

        agent(name, "a.py", run=run)
        assert agent.tools.stats()["pending"] == 1
        for _ in range(2):
            assert not agent.serves("Read", "a.py")
        disk.error = 0
        agent("Read", "docs/d.md")

        assert agent.tools.stats()["pending"] == 0
        assert not other.serves("Read", "a.py")
        assert other.serves("Read", "docs/d.md")
        agent("Read", "a.py")
        assert other.serves("Read", "a.py")

    def test_neither_can_be_told(self, make: MakeAgent, disk: Disk) -> None:
        agent, other = make(), make()
        agent("Read", "a.py")
        agent("List", ".")
        disk.error = errno.EIO
        agent("Edit", "a.py")
        assert not agent.serves("Read", "a.py") and not agent.serves("List", ".")
        disk.error = 0

        assert agent.tools.flush()
        assert not other.serves("Read", "a.py") and not other.serves("List", ".")
        assert not agent.serves("Read", "a.py")

    def test_what_is_read_meanwhile_waits_and_is_told_after_the_eviction(
        self, make: MakeAgent, disk: Disk
    ) -> None:
        agent, other = make(), make()
        agent("List", ".", run=lambda: "old")
        disk.error = errno.EIO
        agent("Edit", "a.py")
        assert agent("List", ".", run=lambda: "new").content == "new"
        assert agent("List", ".").content == "new"
        disk.error = 0
        assert agent.tools.flush()

        assert other("List", ".").content == "new"

    def test_error_that_can_not_be_told_is_served_again_once_it_is(
        self, make: MakeAgent, disk: Disk
    ) -> None:
        """Hidden too long is safe."""
        agent = make()
        agent("Read", "a.py", run=lambda: "old")

        def run() -> ToolResult:
            disk.error = errno.EIO
            return ToolResult("no", is_error=True)

        agent("Edit", "a.py", run=run)
        disk.error = 0
        agent.tools.flush()

        assert agent.tools.stats()["pending"] == 0
        assert agent("Read", "a.py", run=lambda: "new").content in ("old", "new")
        assert agent("Read", "a.py").cached

    def test_read_that_begins_in_a_write_of_which_nobody_was_told_is_not_kept(
        self, make: MakeAgent, disk: Disk
    ) -> None:
        """The disk is back before the read ends, and the write goes on."""
        agent, other = make(), make()
        seen = []

        def read() -> str:
            disk.error = 0
            return "half written"

        def run() -> ToolResult:
            agent("List", ".", run=read)
            seen.append(agent.serves("List", "."))
            return ToolResult("no", is_error=True)

        disk.error = errno.EIO
        agent("Edit", "a.py", run=run)

        assert seen == [False]
        assert not agent.serves("List", ".")
        assert not other.serves("List", ".")

    @pytest.mark.parametrize("when", ["begun", "ended"])
    def test_full_disk_forgets_the_file(
        self, make: MakeAgent, disk: Disk, path: Path, when: str
    ) -> None:
        """Entries can be had again, stale answers can't be taken back."""
        agent, other = make(), make()
        agent("List", ".")
        assert other.serves("List", ".")

        def run() -> str:
            if when == "ended":
                disk.error = errno.ENOSPC
            assert not agent.serves("List", ".")
            assert not other.serves("List", ".")
            return "done"

        if when == "begun":
            disk.error = errno.ENOSPC
        agent("Edit", "a.py", run=run)
        assert not path.exists()
        assert not other.serves("List", ".")
        disk.error = 0
        agent("List", ".")

        assert other.serves("List", ".")

    def test_lock_that_is_not_had_is_a_bad_day_too(self, make: MakeAgent, path: Path) -> None:
        fcntl = pytest.importorskip("fcntl")
        agent, other = make(lock_timeout=0.05), make()
        agent("List", ".")
        held = os.open(f"{path}.lock", os.O_RDWR)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            agent("Edit", "a.py")
            assert not agent.serves("List", ".")
        finally:
            os.close(held)
        agent("Read", "docs/d.md")

        assert agent.tools.flush()
        assert not other.serves("List", ".")

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_raised_before_the_tool_runs_where_errors_are_asked_for(
        self, make: MakeAgent, disk: Disk, number: int
    ) -> None:
        agent = make(on_error="raise")
        agent("Read", "a.py")
        disk.error = number
        with pytest.raises(StoreError):
            agent("Edit", "a.py")
        assert agent.count == 1
        assert not agent.serves("Read", "a.py")
        disk.error = 0

        assert not agent("Edit", "a.py").cached
        agent("Read", "a.py")
        assert agent.serves("Read", "a.py")

    def test_raised_after_the_tool_ran_where_errors_are_asked_for(
        self, make: MakeAgent, disk: Disk
    ) -> None:
        agent = make(on_error="raise")
        agent("Read", "a.py")
        with pytest.raises(StoreError):
            agent("Edit", "a.py", run=lambda: setattr(disk, "error", errno.EIO))
        disk.error = 0

        assert not agent.serves("Read", "a.py")

    def test_what_the_tool_raised_is_what_the_caller_sees(
        self, make: MakeAgent, disk: Disk
    ) -> None:
        agent = make(on_error="raise")

        def run() -> None:
            disk.error = errno.EIO
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            agent("Edit", "a.py", run=run)
        disk.error = 0

    def test_lock_timeout_is_raised_as_one(self, make: MakeAgent, path: Path) -> None:
        fcntl = pytest.importorskip("fcntl")
        agent = make(on_error="raise", lock_timeout=0.05)
        agent("Read", "a.py")
        held = os.open(f"{path}.lock", os.O_RDWR)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(LockTimeoutError):
                agent("Edit", "a.py")
        finally:
            os.close(held)


@pytest.fixture
def die(path: Path, clock: FakeClock, work: Path) -> Callable[..., None]:
    """Leave a write of *names* begun, as a process does that is killed in it."""

    def begin(*names: str, scope: str | None = None) -> None:
        store = open_store(
            os.fspath(path),
            format_of(os.fspath(path), None),
            mode=0o600,
            fsync=False,
            lock_timeout=10.0,
            limits={},
            on_error="raise",
            now=clock,
        )
        paths = [spelling for name in names for spelling in spellings(str(work / name))]
        marks = RangeLock(os.path.realpath(path) + ".flight", 0o600)
        assert marks.take(1)
        store.remove(
            Removal(
                new_id(),
                paths=paths or ["/"],
                scope=scope,
                kind="begun",
                at=clock(),
                mark=marks.identity(),
            )
        )
        store.close()
        marks.close()

    return begin


@in_a_file
class TestDeadWriter:
    """E01: a process is killed in a write; whoever meets what it began takes it for written."""

    @pytest.mark.parametrize("is_cold", [True, False], ids=["cold", "warm"])
    def test_next_call_runs_and_the_one_after_it_is_a_hit(
        self, make: MakeAgent, die: Callable[..., None], is_cold: bool
    ) -> None:
        agent = make()
        agent("Read", "a.py", run=lambda: "old")
        agent("Read", "docs/d.md")
        die("a.py")
        reader = make() if is_cold else agent

        assert reader("Read", "a.py", run=lambda: "new").content == "new"
        assert reader("Read", "a.py").content == "new"
        assert make().serves("Read", "a.py")
        assert reader.serves("Read", "docs/d.md")

    def test_of_unknown_effects(self, make: MakeAgent, die: Callable[..., None]) -> None:
        agent = make()
        for each in (("Read", "a.py"), ("List", "."), ("Search",)):
            agent(*each)
        die()

        for each in (("Read", "a.py"), ("List", ".")):
            assert not agent(*each).cached
            assert agent.serves(*each)
        assert agent.serves("Search")

    def test_takes_more_than_what_was_asked_for(
        self, make: MakeAgent, die: Callable[..., None]
    ) -> None:
        agent = make()
        agent("List", ".", run=lambda: "old")
        agent("Read", "src/b.py", run=lambda: "old")
        die("src")
        agent("Read", "src/b.py", run=lambda: "new")

        assert agent("List", ".", run=lambda: "new").content == "new"
        assert agent("Read", "src/b.py").content == "new"

    def test_result_that_began_before_it_is_not_kept(
        self, make: MakeAgent, die: Callable[..., None]
    ) -> None:
        agent = make()
        agent("List", ".", run=lambda: die("a.py") or "old")

        assert not agent.serves("List", ".")
        agent("List", ".")
        assert agent.serves("List", ".")

    def test_waits_once_to_be_told_however_often_it_is_met_on_a_bad_day(
        self, make: MakeAgent, die: Callable[..., None], disk: Disk
    ) -> None:
        """E04"""
        agent = make()
        agent("Read", "a.py")
        die("a.py")
        disk.error = errno.EIO
        for _ in range(10):
            assert not agent.serves("Read", "a.py")

        assert agent.tools.stats()["pending"] == 1
        disk.error = 0
        agent("Read", "a.py")
        assert agent.tools.stats()["pending"] == 0
        assert make().serves("Read", "a.py")

    def test_plain_cache_is_not_in_its_way_for_ever(
        self, make: MakeAgent, die: Callable[..., None], path: Path, work: Path, clock: FakeClock
    ) -> None:
        cache = Cache(path, fsync=False, clock=clock)
        cache.store("q", "old", paths=[work / "a.py"])
        die("a.py")
        assert cache.lookup("q") is None

        assert cache.get_or_call("q", lambda: "new", paths=[work / "a.py"]) == "new"
        assert cache.get("q") == "new"

    def test_writer_that_lives_is_waited_for(self, make: MakeAgent, clock: FakeClock) -> None:
        """However long it takes: its byte is held."""
        agent, other = make(), make()
        agent("List", ".")

        def run() -> str:
            clock.advance(3600)
            for _ in range(2):
                assert not other("List", ".").cached
            return "done"

        agent("Edit", "a.py", run=run)

        assert not other("List", ".").cached
        assert other("List", ".").cached

    def test_writer_whose_mark_was_taken_away_counts_as_alive_for_ten_minutes(
        self, make: MakeAgent, path: Path, clock: FakeClock
    ) -> None:
        """A temp cleaner removes the file that its byte is in; then nobody can be asked."""
        agent, other = make(), make(ttl=None)
        agent("List", ".")
        cached = []

        def run() -> str:
            os.unlink(f"{path}.flight")
            cached.extend(other("List", ".").cached for _ in range(2))
            clock.advance(599)
            cached.extend(make(ttl=None)("List", ".").cached for _ in range(2))
            return "done"

        agent("Edit", "a.py", run=run)

        assert cached == [False] * 4
        assert not other("List", ".").cached
        assert other("List", ".").cached

    def test_where_nobody_can_be_asked_it_counts_as_dead_after_ten_minutes(
        self,
        make: MakeAgent,
        die: Callable[..., None],
        clock: FakeClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(RangeLock, "is_taken", lambda self, byte: None)
        agent = make(ttl=None)
        agent("Read", "a.py")
        die("a.py")
        for _ in range(2):
            assert not agent("Read", "a.py").cached
        clock.advance(599)
        for _ in range(2):
            assert not agent("Read", "a.py").cached
        clock.advance(1)
        assert not agent("Read", "a.py").cached

        assert agent("Read", "a.py").cached

    def test_where_nobody_can_be_asked_a_clock_set_back_buries_too(
        self,
        make: MakeAgent,
        die: Callable[..., None],
        clock: FakeClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A beginning in the far future proves nothing."""
        monkeypatch.setattr(RangeLock, "is_taken", lambda self, byte: None)
        make()("Read", "a.py")
        clock.set_wall(clock() + 7200)
        die("a.py")
        clock.set_wall(clock() - 7200)
        agent = make()
        assert not agent("Read", "a.py").cached

        assert agent("Read", "a.py").cached

    def test_own_write_is_alive_where_nobody_can_be_asked(
        self, make: MakeAgent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RangeLock, "is_taken", lambda self, byte: None)
        agent = make(ttl=None)
        agent("List", ".")

        def run() -> str:
            clock.advance(3600)
            for _ in range(2):
                assert not agent("List", ".").cached
            return "done"

        agent("Edit", "a.py", run=run)

        assert not agent.serves("List", ".")


@in_a_file
class TestOpenWriteInAFile:
    """What has begun is known as long as it has not ended, whatever becomes of the file."""

    def check(self, make: MakeAgent, during: Callable[[], Any], name: str = "Edit") -> None:
        agent = make()
        agent("List", ".", run=lambda: "old")
        seen = []

        def run() -> str:
            during()
            for reader in (make(), agent):
                seen.extend(reader("List", ".").cached for _ in range(2))
            return "done"

        agent(name, "a.py", run=run)

        assert seen == [False] * 4
        assert make()("List", ".", run=lambda: "new").content == "new"
        assert make()("List", ".").content == "new"

    def test_single_question_of_a_new_process_sees_it(self, make: MakeAgent) -> None:
        self.check(make, lambda: None)
        self.check(make, lambda: None, "Shell")

    def test_stores_of_others_carry_it_on(self, make: MakeAgent) -> None:
        def store() -> None:
            other = make()
            for number in range(20):
                other("Read", "docs/d.md", str(number))

        self.check(make, store)

    def test_removals_of_others_carry_it_on(self, make: MakeAgent, path: Path, work: Path) -> None:
        """Also when it is no more among those that are remembered."""

        def remove() -> None:
            other = make()
            for number in range(140 if path.suffix == ".json" else 1040):
                other.tools.invalidate([work / "docs" / str(number)])

        self.check(make, remove)

    def test_compaction_carries_it_on(
        self, make: MakeAgent, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E02"""
        monkeypatch.setattr("respcache._stores.log._FLOOR", 0)
        sizes = []

        def rewrite() -> None:
            other = make()
            for _ in range(40):
                other("Read", "docs/d.md", run=lambda: "x" * 500)
                other.tools.invalidate([other.work / "docs" / "d.md"])
                sizes.append(path.stat().st_size)

        self.check(make, rewrite)

        assert max(sizes) < 40 * 500  # it was compacted

    def test_clear_and_prune_carry_it_on(self, make: MakeAgent) -> None:
        def forget() -> None:
            other = make()
            other.tools.clear()
            other.tools.prune()

        self.check(make, forget)

    def test_close_of_its_cache_carries_it_on(self, make: MakeAgent) -> None:
        """Another thread closes the cache: the write goes on, and must not look dead."""
        agent, other = make(), make()
        agent("List", ".", run=lambda: "old")
        seen = []

        def run() -> str:
            agent.tools.close()
            seen.extend(other("List", ".").cached for _ in range(2))
            return "done"

        agent("Edit", "a.py", run=run)

        assert seen == [False, False]
        assert not other.serves("List", ".")

    def test_export_leaves_out_what_it_hides(
        self, make: MakeAgent, path: Path, work: Path, tmp_path: Path
    ) -> None:
        """The copy would never hear of its end."""
        agent, cache = make(), Cache(path, fsync=False)
        cache.store("hidden", "old", paths=[Tree(work)])
        cache.store("other", "o")
        copy = tmp_path / "copy.json"
        agent("Edit", "a.py", run=lambda: cache.export(copy))

        assert Cache(copy).get("other") == "o"
        assert Cache(copy).lookup("hidden") is None

    def test_file_made_anew_in_between_hides_by_its_end(self, make: MakeAgent, path: Path) -> None:
        """E02: the file is deleted while a write runs; what is read in it goes when it ends."""
        agent, other = make(), make()
        agent("List", ".")

        def run() -> str:
            path.unlink()
            other("List", ".", run=lambda: "in between")
            return "done"

        agent("Edit", "a.py", run=run)

        assert not other.serves("List", ".")
        assert not agent.serves("List", ".")

    def test_close_lets_go_of_all_descriptors(self, make: MakeAgent, path: Path) -> None:
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("there is no list of descriptors here")

        def mine() -> list[str]:
            links = []
            for fd in os.listdir("/proc/self/fd"):
                try:
                    links.append(os.readlink(f"/proc/self/fd/{fd}"))
                except OSError:
                    pass
            return [link for link in links if link.startswith(str(path))]

        for names in (["Edit"], ["Read"], ["Read", "Edit"]):
            agent = make()
            for name in names:
                agent(name, "a.py")
            agent.tools.close()
            assert mine() == []


class TestCancellation:
    def test_plain_compute_whose_thread_goes_on_keeps_its_write_open(self, agent: Agent) -> None:
        """E01: the task is gone, and the file not yet written."""
        agent("List", ".")
        is_running, go_on = threading.Event(), threading.Event()

        def write(_: ToolCall) -> str:
            is_running.set()
            assert go_on.wait(LONG)
            return "done"

        async def main() -> None:
            task = asyncio.create_task(agent.tools.acall(agent.asked("Edit", "a.py"), write))
            await asyncio.to_thread(is_running.wait, LONG)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(2):
                assert not agent("List", ".").cached
            go_on.set()

        asyncio.run(main())  # waits for its threads

        assert not agent("List", ".").cached
        assert agent("List", ".").cached

    def test_cancelled_coroutine_may_have_written(self, agent: Agent) -> None:
        """E01"""
        agent("List", ".")

        async def write(_: ToolCall) -> None:
            await asyncio.sleep(LONG)

        async def main() -> None:
            task = asyncio.create_task(agent.tools.acall(agent.asked("Edit", "a.py"), write))
            await asyncio.sleep(0.05)
            assert not agent.serves("List", ".")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())

        assert not agent("List", ".").cached
        assert agent("List", ".").cached

    @pytest.mark.parametrize("kind", ["acall", "astream"])
    @pytest.mark.parametrize("is_error", [True, False], ids=["error", "done"])
    def test_cancelled_before_its_end_could_be_told_it_ends(
        self, agent: Agent, kind: str, is_error: bool
    ) -> None:
        """No thread is free for the end; then the task is cancelled."""
        agent("List", ".")
        go_on = threading.Event()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            pool = concurrent.futures.ThreadPoolExecutor(1)
            loop.set_default_executor(pool)
            asked = agent.asked("Edit", "a.py")
            is_over = asyncio.Event()

            async def write(_: ToolCall) -> ToolResult:
                pool.submit(go_on.wait, LONG)
                is_over.set()
                return ToolResult("x", is_error=is_error)

            async def parts(_: ToolCall) -> Any:
                yield "a"
                pool.submit(go_on.wait, LONG)
                is_over.set()

            async def take() -> None:
                async for _ in agent.tools.astream(asked, parts):
                    pass

            task = asyncio.create_task(
                agent.tools.acall(asked, write) if kind == "acall" else take()
            )
            await is_over.wait()
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(asyncio.wait_for(main(), LONG))

        agent("List", ".")
        assert agent("List", ".").cached

    def test_cancelled_before_it_began_leaves_nothing_open(self, agent: Agent) -> None:
        go_on = threading.Event()
        agent("List", ".")

        async def main() -> None:
            pool = concurrent.futures.ThreadPoolExecutor(1)
            asyncio.get_running_loop().set_default_executor(pool)
            pool.submit(go_on.wait, LONG)
            task = asyncio.create_task(
                agent.tools.acall(agent.asked("Edit", "a.py"), lambda _: agent.ran(None))
            )
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(main())
        assert agent.count == 1

        agent("List", ".")
        assert agent("List", ".").cached

    def test_coroutine_reads_and_writes_follow_the_same_rules(self, agent: Agent) -> None:
        """R16"""

        async def ask(name: str, run: Any) -> ToolResult:
            async def compute(_: ToolCall) -> Any:
                return await run()

            return await agent.tools.acall(agent.asked(name, "."), compute)

        async def value() -> str:
            return "new"

        async def main() -> None:
            has_read, is_written = asyncio.Event(), asyncio.Event()

            async def slow() -> str:
                has_read.set()
                await is_written.wait()
                return "old"

            reading = asyncio.create_task(ask("List", slow))
            await has_read.wait()
            await ask("Edit", value)
            is_written.set()
            assert (await reading).content == "old"
            assert (await ask("List", value)).content == "new"
            assert (await ask("List", value)).cached

        asyncio.run(asyncio.wait_for(main(), LONG))
