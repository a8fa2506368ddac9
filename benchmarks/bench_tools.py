"""What does a hit of a tool cache cost, and an eviction by path?

A tool hit with one path stands beside a lookup of ``Cache``, of a response of the
same size, each in a log of its own. An eviction is a write of one file, of which one
result is kept, among the results of 100 and of 100,000 other files; it is told twice,
before the write and after it.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from respcache import Cache, ToolCache, ToolCall

from ._data import RESPONSES
from ._figures import Group, Reach, Table, samples_of
from ._harness import Child, Crew, Effort, by_turns

_LOOKUPS = 2_000  # in a round
_BATCH = 20  # a sample is the mean of so many
_EVICTIONS = 20  # in a round
_SIZES = (100, 100_000)
_CACHE, _TOOL = "a Cache hit", "a tool hit"
_SLOWER = 1.3  # times an eviction among the fewest


class Worker:
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def prepare(self, folder: str) -> None:
        text: Any = RESPONSES["text"](0)
        source = Path(folder) / "source.py"
        source.write_text(text)
        if self._kind == _CACHE:
            cache = Cache(f"{folder}/answers.jsonl")
            cache.store("What is in there?", text)
            self._look = partial(cache.lookup, "What is in there?")
        else:
            tools = ToolCache(f"{folder}/tools.jsonl", reads={"Read": _named})
            call = ToolCall("Read", {"file_path": str(source)}, call_id="t1", cwd=folder)
            tools.call(call, lambda _: text)
            self._look = partial(tools.call, call, _no_run)

    def hits(self) -> list[float]:
        look = self._look
        seconds = []
        for _ in range(_LOOKUPS // _BATCH):
            began = perf_counter()
            for _ in range(_BATCH):
                look()
            seconds.append((perf_counter() - began) / _BATCH)
        return seconds

    def fill(self, folder: str, entries: int) -> None:
        self._tools = ToolCache(
            None if self._kind == "memory" else f"{folder}/tools-{entries}.jsonl",
            reads={"Read": _named},
            writes={"Edit": _named},
            max_entries=None,
            ttl=None,
        )
        self._folder = folder
        self._numbers = itertools.cycle(range(entries))
        for number in range(entries):
            self._do("Read", number)

    def evictions(self) -> list[float]:
        seconds = []
        for number in itertools.islice(self._numbers, _EVICTIONS):
            began = perf_counter()
            self._do("Edit", number)
            seconds.append(perf_counter() - began)
            self._do("Read", number)
        return seconds

    def _do(self, name: str, number: int) -> None:
        path = f"{self._folder}/{number % 100}/{number}.py"
        self._tools.call(ToolCall(name, {"file_path": path}, cwd=self._folder), lambda _: "x")


def _named(arguments: Any, _: str) -> list[str]:
    return [arguments["file_path"]]


def _no_run(_: ToolCall) -> str:
    raise AssertionError("it should have been a hit")


def run(effort: Effort, folder: Path) -> list[Table]:
    with Crew(__name__, (_CACHE, _TOOL)) as crew:
        crew.ask("prepare", folder=str(folder))
        hits = crew.race("tools, hits", effort.rounds, "hits")
    reach = Reach(2.5, _CACHE, _TOOL)
    tables = [
        Table(
            "A hit, text of 1 KB, in a log",
            [Group("1 path", samples_of(hits, "us"), [reach])],
            (_CACHE,),
            "tools-hit",
        )
    ]
    sizes = effort.counts(_SIZES, effort.most)
    with ExitStack() as stack:
        children = {
            (kind, size): stack.enter_context(Child(__name__, kind))
            for kind in ("memory", "log")
            for size in sizes
        }
        for (_, size), child in children.items():
            child.tell("fill", folder=str(folder), entries=size)
        for child in children.values():
            child.answer()
        runs = {key: partial(child.ask, "evictions") for key, child in children.items()}
        values = by_turns("tools, evictions", effort.rounds, runs)
    smallest, largest = (f"{size:,} entries" for size in (sizes[0], sizes[-1]))
    reaches = [Reach(_SLOWER, smallest, largest)] if len(sizes) > 1 else []
    groups = [
        Group(
            kind,
            samples_of({f"{size:,} entries": values[kind, size] for size in sizes}, "us"),
            reaches,
        )
        for kind in ("memory", "log")
    ]
    tables.append(
        Table(
            "A write that evicts one entry, by the number of entries",
            groups,
            (smallest,),
            "tools-evict",
            heads=("in", "with"),
        )
    )
    return tables
