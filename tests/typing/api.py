"""The public API as type checkers see it: never run, only checked, by mypy strict.

A line that must be refused carries an ignore with the error's code: where the
error goes away, the checker reports the ignore.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, assert_type

import respcache
from respcache import (
    Cache,
    Config,
    ConfigError,
    Event,
    Hit,
    LockTimeoutError,
    Normalizer,
    ReadTool,
    RespcacheError,
    Scope,
    StoreError,
    ToolCache,
    ToolCall,
    ToolResult,
    Tree,
    UncacheableError,
)
from respcache.testing import FakeClock

# Making one.

assert_type(Cache(), Cache)
assert_type(respcache.Cache("answers.json"), Cache)
Cache(Path("answers.json"), format="document")
Cache("answers", format="flat")
Cache(None)


def keep(response: Any) -> bool:
    return bool(response)


def serve(hit: Hit) -> bool:
    return hit.age is None or hit.age < 60


def tell(event: Event) -> None:
    assert_type(event.kind, str)
    assert_type(event.front, str)
    assert_type(event.age, float | None)
    assert_type(event.duration, float)


cache = Cache(
    "answers.json",
    case_sensitive=True,
    trim_spaces=True,
    namespace="acme",
    ttl=60,
    max_entries=100,
    max_entry_bytes=1000,
    max_bytes=None,
    store_if=keep,
    serve_if=serve,
    on_event=tell,
    on_error="raise",
    format=None,
    fsync=True,
    mode=0o660,
    lock_timeout=1.5,
    clock=FakeClock(),
)
Cache(normalizer=Normalizer(fold=True, trim=True, form="NFKC", collapse=True), ttl=0.5)
Cache(store_if=bool, serve_if=lambda hit: hit.response, on_event=print)

Cache(3)  # type: ignore[arg-type]
Cache("answers.json", True)  # type: ignore[call-arg]
Cache(maxsize=3)  # type: ignore[call-arg]
Cache(on_error="ignore")  # type: ignore[arg-type]
Cache(format="pickle")  # type: ignore[arg-type]
Cache(max_entries=1.5)  # type: ignore[arg-type]
Cache(ttl="60")  # type: ignore[arg-type]
Cache(clock=12.5)  # type: ignore[arg-type]
Cache(serve_if=lambda hit: hit.answer)  # type: ignore[attr-defined]
Normalizer(form="NFD")  # type: ignore[arg-type]
Normalizer(True)  # type: ignore[call-arg]

assert_type(cache.path, str | None)
assert_type(cache.namespace, str | None)

# From a config.

assert_type(Cache.from_config({"enabled": True, "path": "answers.json"}), Cache | None)
assert_type(Cache.from_config(Config(enabled=True), base_dir=Path("folder")), Cache | None)
Cache.from_config([("enabled", True)])  # type: ignore[arg-type]
Cache.from_config({}).close()  # type: ignore[union-attr]

# Looking.

hit = cache.lookup("question")
assert_type(hit, Hit | None)
assert_type(cache.lookup("question", context={"model": "m"}, exact=True), Hit | None)
print(hit.response)  # type: ignore[union-attr]
if hit is not None:
    assert_type(hit.question, str)
    assert_type(hit.stored_at, float | None)
    assert_type(hit.age, float | None)
    hit.response["any"].thing()
if hit := cache.lookup("question"):
    assert_type(hit, Hit)

cache.get("question", "default").strip()
cache.lookup(3)  # type: ignore[arg-type]
cache.lookup("question", {})  # type: ignore[call-arg]
cache.lookup("question", context=[("model", "m")])  # type: ignore[arg-type]

# Storing.

assert_type(cache.store("question", {"any": [1, None]}), bool)
context: dict[str, str] = {"model": "m"}
cache.store("question", "response", context=context, ttl=None)
cache.store("question", "response", ttl=0)
cache.store("question", "response", paths="a.py")
cache.store("question", "response", paths=Path("a.py"))
cache.store("question", "response", paths=Tree("folder"))
cache.store("question", "response", paths=["a.py", Path("b.py"), Tree(Path("folder"))])
cache.store("question", "response", paths=(path for path in ["a.py"]))
cache.store("question", "response", paths={"a.py": os.stat("a.py")})
cache.store("question", "response", paths={Path("a.py"): os.stat("a.py")})
texts: list[str] = []
cache.store("question", "response", paths=texts)
statuses: dict[str, os.stat_result] = {}
cache.store("question", "response", paths=statuses)

cache.store(3, "response")  # type: ignore[arg-type]
cache.store("question", "response", {})  # type: ignore[call-arg]
cache.store("question", "response", ttl="60")  # type: ignore[arg-type]
cache.store("question", "response", paths=[3])  # type: ignore[list-item]

assert_type(cache.store_many([("question", "response"), ("other", 3)]), int)
assert_type(cache.store_many({"question": "response"}), int)
cache.store_many(("question", n) for n in range(3))
cache.store_many(["question"])  # type: ignore[list-item]

# Computing: the type of what is computed is the type that comes back.


def plain() -> int:
    return 3


def needs_a_number(number: int) -> int:
    return number


async def coroutine() -> int:
    return 3


async def parametrized(number: int) -> list[int]:
    return [number]


def returns_a_coroutine() -> Awaitable[str]:
    async def inner() -> str:
        return "made"

    return inner()


class Computation:
    def __call__(self) -> dict[str, int]:
        return {}


assert_type(cache.get_or_call("question", plain), int)
assert_type(cache.get_or_call("question", lambda: "made"), str)
assert_type(cache.get_or_call("question", Computation()), dict[str, int])
assert_type(
    cache.get_or_call(
        "question", plain, context={"model": "m"}, paths=[Tree("a")], ttl=None, wait=0.5
    ),
    int,
)
cache.get_or_call("question", "made")  # type: ignore[arg-type]
cache.get_or_call("question", needs_a_number)  # type: ignore[arg-type]
cache.get_or_call("question", plain, wait=None)  # type: ignore[arg-type]


async def compute() -> None:
    assert_type(await cache.aget_or_call("question", plain), int)
    assert_type(await cache.aget_or_call("question", coroutine), int)
    assert_type(await cache.aget_or_call("question", lambda: 3), int)
    assert_type(await cache.aget_or_call("question", lambda: parametrized(3)), list[int])
    assert_type(await cache.aget_or_call("question", functools.partial(parametrized, 3)), list[int])
    assert_type(await cache.aget_or_call("question", returns_a_coroutine), str)
    assert_type(await cache.aget_or_call("question", Computation()), dict[str, int])
    assert_type(
        await cache.aget_or_call(
            "question", coroutine, context={"model": "m"}, paths="a.py", ttl=60, wait=1
        ),
        int,
    )


asyncio.run(compute())

# Forgetting.

assert_type(cache.invalidate("a.py"), int)
assert_type(cache.invalidate(["a.py", Path("b.py"), Tree("folder")]), int)
assert_type(cache.forget("question", context={"model": "m"}), bool)
assert_type(cache.clear(), int)
assert_type(cache.prune(), int)

# Seeing.

assert_type(cache.entries(), Iterator[Hit])
assert_type(next(cache.entries()).question, str)
assert_type(len(cache), int)
assert_type(bool(cache), bool)
assert_type(cache.stats(), dict[str, int])
assert_type(cache.explain("question", context={"model": "m"}), str)

# Moving, and the end.

assert_type(cache.export("copy.json"), int)
assert_type(cache.merge(Path("copy.json")), int)
assert_type(cache.flush(), bool)
with Cache() as entered:
    assert_type(entered, Cache)


class Mine(Cache):
    pass


with Mine() as mine:
    assert_type(mine, Mine)

# Errors.

roots: tuple[type[RespcacheError], ...] = (
    ConfigError,
    UncacheableError,
    LockTimeoutError,
    StoreError,
)
try:
    cache.store("question", "response")
except UncacheableError as error:
    assert_type(error.place, str)
    assert_type(error.why, str)
    as_type_error: TypeError = error
except LockTimeoutError as error:
    assert_type(error.path, str)
    assert_type(error.waited, float)
    as_timeout: TimeoutError = error
except StoreError as error:
    assert_type(error.path, str)
    assert_type(error.errno, int | None)
    as_os_error: OSError = error
except ConfigError as error:
    as_value_error: ValueError = error

# What users write against.

clock = FakeClock(1_000_000_000)
now: Callable[[], float] = clock
assert_type(clock(), float)
assert_type(clock.monotonic(), float)
clock.advance(1)
clock.set_wall(1.5)

assert_type(Tree("folder").path, str)
assert_type(Normalizer()("Question"), str)
assert_type(respcache.__version__, str)


def tool_caches() -> None:
    tools = ToolCache(
        "tools.jsonl",
        reads={"Read": lambda arguments, cwd: [arguments["path"]], "Now": ReadTool((), ttl=5)},
        writes={"Edit": lambda arguments, cwd: Tree(cwd), "Bash": None},
        neutral={"TodoWrite"},
    )
    call = ToolCall("Read", {"path": "a"}, turn=1, scope=Scope(session="s"))
    assert_type(tools.call(call, lambda call: call.name), ToolResult)

    @tools.read(paths=["a"])
    def load(path: str, limit: int = 10) -> str:
        return path * limit

    @tools.write()
    async def save(path: str) -> int:
        return len(path)

    assert_type(load("a"), str)
    load(5)  # type: ignore[arg-type]
    assert_type(tools.invalidate(), int)
    assert_type(ToolCache.from_config({"enabled": True}), ToolCache | None)


async def tool_caches_in_a_loop(tools: ToolCache, call: ToolCall) -> None:
    async def compute(call: ToolCall) -> ToolResult:
        return ToolResult(call.name)

    assert_type(await tools.acall(call, compute), ToolResult)
    for part in tools.stream(call, lambda call: [call.name]):
        print(part)
