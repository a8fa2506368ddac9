"""Plain functions and coroutine functions as tools."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from respcache import ConfigError, ToolCache, Tree
from respcache.testing import FakeClock


@pytest.fixture
def tools(clock: FakeClock) -> ToolCache:
    return ToolCache(clock=clock)


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture(params=["plain", "coroutine"])
def made(request: pytest.FixtureRequest, tools: ToolCache, ran: list[Any]) -> Any:
    """A function of every kind of parameter, decorated; call it and get its value."""
    if request.param == "plain":

        @tools.read(paths=())
        def function(a: Any, b: Any = 0, *rest: Any, key: Any = None, **more: Any) -> Any:
            ran.append((a, b, rest, key, more))
            return len(ran)

        return function

    @tools.read(paths=())
    async def coroutine(a: Any, b: Any = 0, *rest: Any, key: Any = None, **more: Any) -> Any:
        ran.append((a, b, rest, key, more))
        await asyncio.sleep(0)
        return len(ran)

    return lambda *given, **named: asyncio.run(coroutine(*given, **named))


class TestArguments:
    def test_defaults_and_order_of_keywords_make_no_difference(
        self, made: Any, ran: list[Any]
    ) -> None:
        values = [
            made(1),
            made(1, 0),
            made(a=1),
            made(a=1, b=0),
            made(b=0, a=1),
            made(1, b=0, key=None),
            made(key=None, b=0, a=1),
        ]

        assert values == [1] * 7
        assert ran == [(1, 0, (), None, {})]

    def test_order_of_further_keywords_makes_no_difference(self, made: Any, ran: list[Any]) -> None:
        assert made(1, x=1, y=2) == made(1, y=2, x=1)
        assert ran == [(1, 0, (), None, {"x": 1, "y": 2})]

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param([((1,), {}), ((2,), {}), (("1",), {}), ((1.0,), {}), ((True,), {})], id="values"),
            pytest.param([((1, 2), {}), ((1, 2, 3), {}), ((1, 2, 3, 4), {}), ((1, 23), {}), ((12, 3), {}), ((123,), {})], id="positional"),
            pytest.param([((1,), {"x": 1}), ((1,), {"y": 1}), ((1,), {"x": 2}), ((1,), {"key": 1})], id="keywords"),
            pytest.param([((1, 2, [3]), {}), ((1, 2, 3), {}), ((1, 2), {"rest": [3]})], id="rest"),
            pytest.param([((1,), {"more": {"x": 1}}), ((1,), {"x": 1})], id="more"),
            pytest.param([((None,), {}), (("",), {}), ((0,), {}), ((False,), {}), (([],), {})], id="falsy"),
        ],
    )  # fmt: skip
    def test_everything_else_does(self, made: Any, ran: list[Any], given: Any) -> None:
        """R07, R08"""
        for _ in range(2):
            for number, (positional, named) in enumerate(given, 1):
                assert made(*positional, **named) == number
        assert len(ran) == len(given)

    @pytest.mark.parametrize(
        "value", [(1, 2), {1}, b"x", object(), float("nan")], ids=lambda value: type(value).__name__
    )
    def test_arguments_that_are_no_json_run_each_time(
        self, made: Any, ran: list[Any], value: Any
    ) -> None:
        """R06"""
        assert [made(value), made(value)] == [1, 2]
        assert made(1, key=value) == 3
        assert ran[0][0] is value

    def test_function_gets_its_arguments_as_they_were_given(
        self, made: Any, ran: list[Any]
    ) -> None:
        shared = [1]
        made(shared, 2, 3, x={"a": 1})

        assert ran[0][0] is shared
        assert ran[0][2] == (3,)

    def test_call_that_does_not_fit_is_the_usual_error(self, made: Any, ran: list[Any]) -> None:
        with pytest.raises(TypeError, match="a"):
            made()
        assert ran == []

    def test_changed_default_is_another_call(self, tools: ToolCache) -> None:
        def of(limit: int) -> Any:
            cache = ToolCache(reads={}) if limit < 0 else tools

            @cache.read(paths=(), name=f"load {limit}")
            def load(path: str, limit: int = limit) -> int:
                return limit

            return load

        assert of(10)("a") == 10
        assert of(20)("a") == 20


class TestResults:
    def test_function_still_returns_its_content(self, tools: ToolCache, ran: list[Any]) -> None:
        @tools.read(paths=())
        def load(path: str) -> dict[str, Any]:
            ran.append(path)
            return {"path": path}

        assert load("a") == load("a") == {"path": "a"}
        load("a")["path"] = "changed"
        assert load("a") == {"path": "a"}
        assert ran == ["a"]

    @pytest.mark.parametrize("value", [None, 0, "", False, [], {}])
    def test_falsy_result_is_a_hit(self, tools: ToolCache, ran: list[Any], value: Any) -> None:
        """R38"""

        @tools.read(paths=())
        def load() -> Any:
            ran.append(1)
            return value

        assert load() == value and load() == value
        assert len(ran) == 1

    def test_exception_is_the_function_s_own(self, tools: ToolCache, ran: list[Any]) -> None:
        """R17"""

        @tools.read(paths=())
        def load() -> Any:
            ran.append(1)
            raise LookupError("no")

        for _ in range(2):
            with pytest.raises(LookupError, match="no"):
                load()
        assert len(ran) == 2

    def test_result_that_is_no_json_is_returned_each_time(
        self, tools: ToolCache, ran: list[Any]
    ) -> None:
        """R36"""

        @tools.read(paths=())
        def load() -> Any:
            ran.append(1)
            return {1, 2}

        assert load() == load() == {1, 2}
        assert len(ran) == 2

    def test_name_docstring_and_signature_stay(self, tools: ToolCache) -> None:
        @tools.read(paths=())
        def load(path: str, limit: int = 10) -> str:
            """Load it."""
            return path

        @tools.write(paths=())
        async def save(path: str) -> str:
            """Save it."""
            return path

        assert (load.__name__, load.__doc__) == ("load", "Load it.")
        assert str(inspect.signature(load)) == "(path: 'str', limit: 'int' = 10) -> 'str'"
        assert (save.__name__, save.__doc__) == ("save", "Save it.")
        assert inspect.iscoroutinefunction(save) and not inspect.iscoroutinefunction(load)

    def test_ttl_and_version_are_those_of_a_read_tool(
        self, tools: ToolCache, ran: list[Any], clock: FakeClock
    ) -> None:
        @tools.read(paths=(), ttl=10, name="short")
        def short() -> int:
            ran.append(1)
            return len(ran)

        @tools.read(paths=(), ttl=0, name="never")
        def never() -> int:
            ran.append(1)
            return len(ran)

        assert [short(), short(), never(), never()] == [1, 1, 2, 3]
        clock.advance(10)
        assert short() == 4

    def test_raised_version_is_a_miss(self, tmp_path: Path, ran: list[Any]) -> None:
        """R09"""
        for version, number in (("1", 1), ("1", 1), ("2", 2), ("1", 1)):
            tools = ToolCache(tmp_path / "tools.jsonl")

            @tools.read(paths=(), version=version, name="load")
            def load() -> int:
                ran.append(1)
                return len(ran)

            assert load() == number


class TestReadsAndWrites:
    @pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
    @pytest.mark.parametrize("kind", ["extractor", "unknown"])
    def test_write_forgets_what_a_read_has_read(
        self, tools: ToolCache, tmp_path: Path, ran: list[Any], is_async: bool, kind: str
    ) -> None:
        file = tmp_path / "a"
        file.write_text("one")

        def one(arguments: Any, cwd: str) -> list[str]:
            return [arguments["path"]]

        paths = one if kind == "extractor" else None

        def load(path: str, limit: int = 10) -> str:
            ran.append(path)
            return Path(path).read_text()[:limit]

        def save(path: str, text: str) -> str:
            Path(path).write_text(text)
            return "saved"

        async def aload(path: str, limit: int = 10) -> str:
            return load(path, limit)

        async def asave(path: str, text: str) -> str:
            return save(path, text)

        read = tools.read(paths=lambda arguments, cwd: Tree(tmp_path))
        write = tools.write(paths=paths)
        if is_async:
            aread, awrite = read(aload), write(asave)

            def do_load(path: str, limit: int = 10) -> Any:
                return asyncio.run(aread(path, limit))

            def do_save(path: str, text: str) -> Any:
                return asyncio.run(awrite(path, text))
        else:
            do_load, do_save = read(load), write(save)

        assert do_load(str(file)) == do_load(str(file), 10) == "one"
        assert do_save(str(file), "two") == "saved"
        assert do_load(str(file)) == "two"
        assert len(ran) == 2

    def test_extractor_gets_all_arguments_by_name(self, tools: ToolCache) -> None:
        seen: list[Any] = []

        @tools.read(paths=lambda arguments, cwd: seen.append((dict(arguments), cwd)) or ())
        def load(path: str, limit: int = 10, *rest: int, **more: int) -> str:
            return path

        load("a", 5, 6, x=7)

        assert seen[0] == (
            {"path": "a", "limit": 5, "rest": [6], "more": {"x": 7}},
            os.getcwd(),
        )

    def test_list_of_paths(self, tools: ToolCache, tmp_path: Path, ran: list[Any]) -> None:
        (tmp_path / "a").write_text("one")

        @tools.read(paths=[tmp_path / "a"])
        def load() -> int:
            ran.append(1)
            return len(ran)

        assert [load(), load()] == [1, 1]
        (tmp_path / "a").write_text("another")
        assert load() == 2

    def test_without_paths_a_read_may_have_read_anything(
        self, tools: ToolCache, ran: list[Any]
    ) -> None:
        @tools.read()
        def load() -> int:
            ran.append(1)
            return len(ran)

        @tools.write(paths=["/somewhere"])
        def save() -> None:
            pass

        assert [load(), load()] == [1, 1]
        save()
        assert load() == 2

    def test_write_runs_each_time(self, tools: ToolCache, ran: list[Any]) -> None:
        @tools.write(paths=())
        def save() -> int:
            ran.append(1)
            return len(ran)

        assert [save(), save()] == [1, 2]

    def test_stays_in_the_folder_of_the_process(
        self, tools: ToolCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E05"""

        @tools.read(paths=())
        def where() -> str:
            return os.getcwd()

        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            assert where() == os.path.realpath(tmp_path / name)


class TestNames:
    def test_lambda_is_refused_at_registration(self, tools: ToolCache) -> None:
        """R09"""
        for decorate in (tools.read(paths=()), tools.write(paths=())):
            with pytest.raises(ConfigError, match="name="):
                decorate(lambda x: x)

    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda: functools.partial(int, base=2), id="partial"),
            pytest.param(lambda: type("Callable", (), {"__call__": lambda self: 1})(), id="object"),
            pytest.param(lambda: (lambda: lambda: 1)(), id="lambda-of-a-lambda"),
        ],
    )
    def test_what_has_no_name_of_its_own_is_refused(self, tools: ToolCache, make: Any) -> None:
        """R09: never a shared slot of the nameless."""
        with pytest.raises(ConfigError, match="name="):
            tools.read(paths=())(make())

    def test_with_a_name_it_is_taken(self, tools: ToolCache) -> None:
        """R09"""
        double = tools.read(paths=(), name="double")(lambda x: x * 2)

        assert double(2) == double(2) == 4
        assert tools.stats()["hits"] == 1

    def test_function_is_known_by_its_module_and_name(self, tools: ToolCache) -> None:
        """R09: two of the same name in two modules share nothing."""

        def search() -> int:
            return 1

        search.__module__, search.__qualname__ = "one", "search"
        tools.read(paths=())(search)()

        def search2() -> int:
            return 2

        search2.__module__, search2.__qualname__ = "two", "search"
        assert tools.read(paths=())(search2)() == 2
        assert [hit.question for hit in tools.entries()] == ["one.search {}", "two.search {}"]

    @pytest.mark.parametrize("first", ["read", "write", "reads", "writes", "neutral"])
    @pytest.mark.parametrize("second", ["read", "write"])
    def test_name_that_is_taken_is_refused(self, first: str, second: str) -> None:
        if first in ("read", "write"):
            tools = ToolCache()
            getattr(tools, first)(paths=(), name="a")(lambda: 1)
        else:
            tools = ToolCache(**{first: {"a"} if first == "neutral" else {"a": ()}})

        with pytest.raises(ConfigError, match="'a'"):
            getattr(tools, second)(paths=(), name="a")(lambda: 1)

    @pytest.mark.parametrize("name", ["", 5])
    def test_name_is_a_text(self, tools: ToolCache, name: Any) -> None:
        with pytest.raises(ConfigError, match="name"):
            tools.read(paths=(), name=name)(lambda: 1)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("version", 1), ("ttl", -1), ("ttl", "5"), ("paths", "a.py"), ("paths", 5)],
    )
    def test_wrong_option_of_a_read_is_refused_by_its_name(
        self, tools: ToolCache, option: str, value: Any
    ) -> None:
        with pytest.raises(ConfigError, match=option):
            tools.read(**{option: value})

    @pytest.mark.parametrize("value", ["a.py", 5])
    def test_wrong_paths_of_a_write_are_refused(self, tools: ToolCache, value: Any) -> None:
        with pytest.raises(ConfigError):
            tools.write(paths=value, name="save")(lambda: 1)

    def test_tool_of_that_name_can_be_called_by_hand(self, tools: ToolCache) -> None:
        from respcache import ToolCall

        double = tools.read(paths=(), name="double")(lambda x: x * 2)
        double(2)

        assert tools.call(ToolCall("double", {"x": 2}), lambda _: "run").content == 4


class TestFunctionsThatRunLater:
    """A write that ends before it has begun would hide nothing and evict too early."""

    @pytest.mark.parametrize("kind", ["generator", "asynchronous-generator"])
    def test_generator_function_that_writes_is_refused(self, tools: ToolCache, kind: str) -> None:
        def generator() -> Any:
            yield 1

        async def asynchronous() -> Any:
            yield 1

        with pytest.raises(ConfigError):
            tools.write(paths=["/a"])(generator if kind == "generator" else asynchronous)

    def test_generator_function_that_reads_runs_each_time(
        self, tools: ToolCache, ran: list[Any]
    ) -> None:
        @tools.read(paths=(), name="generate")
        def generate() -> Any:
            ran.append(1)
            yield len(ran)

        assert [list(generate()), list(generate())] == [[1], [2]]

    def test_wrapped_coroutine_function_writes_when_it_is_awaited(
        self, tools: ToolCache, ran: list[Any]
    ) -> None:
        """A plain wrapper hides that there is a coroutine inside."""
        world = ["old"]

        @tools.read()
        def load() -> str:
            return world[0]

        async def inner() -> str:
            await asyncio.sleep(0)
            load()
            world[0] = "new"
            return "saved"

        @functools.wraps(inner)
        def wrapper() -> Any:
            return inner()

        try:
            save = tools.write(paths=["/a"])(wrapper)
        except ConfigError:
            return  # better than to end too early

        async def main() -> None:
            assert await save() == "saved"

        asyncio.run(main())

        assert load() == "new"


SCRIPT = """
import sys
from respcache import ToolCache
tools = ToolCache(sys.argv[1])
@tools.read(paths=())
def search():
    return sys.argv[0]
print(search())
"""


@pytest.mark.xdist_group("processes")
def test_functions_of_two_scripts_share_nothing(tmp_path: Path) -> None:
    """R09: each calls itself ``__main__``; one by two names of its file is one."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in ("one.py", "two.py"):
        (folder / name).write_text(SCRIPT)
    (folder / "link.py").symlink_to("one.py")
    printed = []
    for name in ("one.py", "two.py", "one.py", "link.py"):
        child = subprocess.run(
            [sys.executable, name, str(tmp_path / "tools.jsonl")],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert child.returncode == 0, child.stderr
        printed.append(child.stdout.strip())

    assert printed == ["one.py", "two.py", "one.py", "one.py"]
