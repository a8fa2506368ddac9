"""Random calls over a real folder against a model that always runs the tool: no hit differs.

Several agents, processes or threads, take turns in one thread of events: each step
lets one of them go on to its next pause, and the pauses lie before, within and
after what a tool does. So reads and writes overlap in every way, and still the
world stands still whenever a hit is compared with a fresh run.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytestmark = pytest.mark.xdist_group("processes")

STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))
processes = pytest.mark.skipif(
    sys.platform != "linux", reason="a killed process is told from a slow one by OFD locks"
)

# What all agents and the model know: the tools, and how they are run.
WORLD = """
import asyncio, contextlib, os
from respcache import Scope, ToolCache, ToolCall, ToolResult, Tree
from respcache.errors import RespcacheError

AN_HOUR = 3600.0  # nobody may wait for it


class Trouble(Exception):
    pass


class Death(BaseException):
    pass


# Extractors.

def one(arguments, cwd):
    return [arguments["path"]]

def both(arguments, cwd):
    return [arguments["path"], arguments["to"]]

def below(arguments, cwd):
    return Tree(arguments["path"])

def nobody_knows(arguments, cwd):
    raise KeyError("path")


def new_tools(path, **options):
    return ToolCache(
        path,
        reads={"Read": one, "List": below, "Grep": below, "Setting": (), "Survey": nobody_knows},
        writes={"Edit": one, "Delete": one, "Move": both, "Bash": None},
        max_entries=40,
        on_error="raise",
        **options,
    )


def call_of(form):
    name, arguments, cwd, scope = form
    return ToolCall(name, arguments, cwd=cwd, scope=Scope(agent=scope))


# Reading.

def text_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return "no such file"

def files_below(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)

def look(call, root):
    '''Return what a reading tool gives, of the world as it is.'''
    arguments = call.arguments
    setting = os.path.join(root, "settings", call.scope.agent)
    if call.name == "Setting":  # depends on what no path tells
        return text_of(setting)
    if call.name == "Survey":
        files = [*files_below(os.path.join(root, "src")), setting]
        return {path: text_of(path) for path in files}
    path = os.path.join(call.cwd, arguments["path"])
    if call.name == "Read":
        return text_of(path)
    names = files_below(path)
    if call.name == "List":
        return [os.path.relpath(name, path) for name in names]
    found = ((os.path.relpath(name, path), text_of(name)) for name in names)
    return [[name, text] for name, text in found if arguments["text"] in text]


# Writing.

def put(path, text):
    if text is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

def changes_of(call):
    '''Yield after each change that a writing tool makes.'''
    arguments = call.arguments
    if "changes" in arguments:
        for path, text in arguments["changes"]:
            put(path, text)
            yield
        return
    path = os.path.join(call.cwd, arguments["path"])
    match call.name:
        case "Edit":
            for text in arguments["texts"]:
                put(path, text)
                yield
        case "Delete":
            for each in files_below(path) or [path]:
                os.unlink(each)
                yield
        case "Move":
            os.rename(path, os.path.join(call.cwd, arguments["to"]))
            yield


def perform(call, root):
    '''Run a tool; yield where others may come in between.'''
    yield "begun"
    if call.name in ("Read", "List", "Grep", "Setting", "Survey"):
        found = look(call, root)
        yield "looked"
        return found
    for _ in changes_of(call):
        yield "changed"
    return "done"


def obey(order):
    if order == "raise":
        raise Trouble
    if order == "die":
        raise Death


def serve(tools, root, say, hear):
    '''Call what is heard, and pause where the tool does.'''

    def run(call):
        steps = perform(call, root)
        phase = None
        while True:
            try:
                phase = next(steps)
            except StopIteration as end:
                return end.value
            except OSError:
                if phase == "begun":  # and nothing was changed
                    return ToolResult("failed", is_error=True)
                raise
            say(phase)
            order = hear()
            if order == "error":
                return ToolResult("failed", is_error=True)
            obey(order)

    while (order := hear()) != "stop":
        try:
            is_async, *form = order
            if is_async:  # and never waits, for its loop would not tell of it
                result = asyncio.run(tools.acall(call_of(form), run, wait=0))
            else:
                result = tools.call(call_of(form), run, wait=AN_HOUR)
        except RespcacheError:
            raise
        except (Trouble, OSError, Death) as error:
            say(["raised", repr(error)])
        else:
            say(["result", result.content, result.cached])
"""

PROCESS = (
    WORLD
    + """
import respcache._stores.log

respcache._stores.log._FLOOR = 4096  # such that logs are compacted now and then
exec(args["without"])

def pause(seconds):
    say("waits")
    obey(hear())

time.sleep = pause
serve(new_tools(args["path"], fsync=False), args["root"], say, hear)
"""
)

READS = ("Read", "Read", "Read", "Read", "List", "List", "Grep", "Grep", "Setting", "Survey")
WRITES = (*("Edit",) * 6, "Delete", "Move", "Move", "Bash", "unnamed")

# Each takes one rule out.
WITHOUT = {
    "a begun write hides what it touches": """
from respcache._index import Index
Index.hides = lambda self, key, paths: False
""",
    "an ended write evicts what it touched": """
from respcache._front import Front
end_write = Front._end_write
def end_as_kept(self, end, subject):
    end.kind = "kept"
    end_write(self, end, subject)
Front._end_write = end_as_kept
""",
    "a result that began before a change is not kept": """
from respcache._plan import Plan
Plan.admits = lambda self, put: True
""",
    "a hit compares the signatures of its files": """
import respcache._paths
respcache._paths.is_unchanged = lambda paths: True
""",
    "a write evicts the trees above it": """
from respcache._pathindex import PathIndex
add, remove = PathIndex.add, PathIndex.remove
def plain(paths):
    return [(path, False) for path, _ in paths]
PathIndex.add = lambda self, key, paths: add(self, key, plain(paths))
PathIndex.remove = lambda self, key, paths: remove(self, key, plain(paths))
""",
    "unknown effects evict what has no paths in their scope": """
from respcache._rules import Removal
init = Removal.__init__
Removal.__init__ = lambda self, *given, scope=None, **named: init(self, *given, **named)
""",
}


# A dead writer counts as one that changed nothing.
WITHOUT_BURIAL = """
from respcache._front import Front
from respcache._rules import Removal
from respcache._stores import new_id
def bury_as_kept(self, store):
    for begun in store.open_writes():
        if not self._is_alive(begun):
            store.remove(Removal(new_id(), paths=begun.paths, kind="kept", ends=begun.id))
Front._bury = bury_as_kept
"""


def known_to_all() -> dict[str, Any]:
    """Return the names of WORLD."""
    known: dict[str, Any] = {}
    exec(compile(WORLD, "<world>", "exec"), known)
    return known


class Agent:
    """One that calls tools, and where it stands."""

    def __init__(self, line: Any, scope: str) -> None:
        self.line = line  # a process or a thread: tell, hear, kill
        self.scope = scope
        self.form: list[Any] | None = None  # of the call that it is in
        self.phase = "idle"

    def tell(self, order: Any) -> None:
        self.line.tell(order)

    def hear(self) -> Any:
        """Return the result of the call if it has ended, else None."""
        said = self.line.hear()
        if isinstance(said, str):
            self.phase = said
            return None
        self.form, self.phase = None, "idle"
        return said


class Thread:
    """An agent's side in this process."""

    def __init__(self, work: Callable[[Callable[[Any], None], Callable[[], Any]], None]) -> None:
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.say, self.listen, self.tell = self._said.put, self._orders.get, self._orders.put
        self.thread = threading.Thread(target=self._work, args=(work,), daemon=True)
        self.thread.start()

    def _work(self, work: Callable[[Callable[[Any], None], Callable[[], Any]], None]) -> None:
        try:
            work(self.say, self.listen)
        except BaseException as error:  # noqa: BLE001 - the test tells it
            self.say(error)

    def hear(self) -> Any:
        said = self._said.get(timeout=30)
        if isinstance(said, BaseException):
            raise said
        return said

    def stop(self) -> None:
        while self.thread.is_alive():
            self.tell("die")
            self.tell("stop")
            self.thread.join(0.1)


class Play:
    """The agents, the folder, the outsider, and what went wrong."""

    def __init__(
        self,
        root: Path,
        seed: int,
        new_line: Callable[[], Any],
        observer: Any,
        *,
        kills: bool,
        cold: Callable[[], Any] | None = None,
        reads: Sequence[str] = READS,
        writes: Sequence[str] = WRITES,
        deadly: float = 0.15,
    ) -> None:
        self.known = known_to_all()
        self.root = root
        self.rng = random.Random(seed)
        self.new_line = new_line
        self.observer = observer
        self.kills = kills
        self.reads, self.writes, self.deadly = reads, writes, deadly
        self.cold = cold
        self.version = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.wrong: list[str] = []
        self.src = ("src/a", "src/b", "src/sub/c", "src/sub/d", "src/old/c")
        self.notes = ("notes/1", "notes/2", "notes/alias")
        for name in (*self.src[:4], *self.notes[:2], "settings/x", "settings/y"):
            self.known["put"](str(root / name), self.text())
        (root / "notes/alias").symlink_to("1")
        (root / "link").symlink_to(".")
        self.agents = [Agent(new_line(), scope) for scope in "xxxy"]
        self.spare = new_line() if kills else None

    def text(self) -> str:
        """Return a text of a length that no other has, so that stamps of one tick do not matter."""
        self.version += 1
        return str(self.version).ljust(self.version + 10, "-")

    def some_read(self, scope: str) -> list[Any]:
        rng = self.rng
        cwd = str(self.root / rng.choice(["", "", "link"]))
        match rng.choice(self.reads):
            case "Read":
                return ["Read", {"path": rng.choice(self.src + self.notes)}, cwd, scope]
            case "List":
                return ["List", {"path": rng.choice(["src", "src/sub"])}, cwd, scope]
            case "Grep":
                given = {"path": rng.choice(["src", "src/sub"]), "text": rng.choice("-7")}
                return ["Grep", given, cwd, scope]
            case name:
                return [name, {}, str(self.root), scope]

    def some_write(self, scope: str) -> list[Any]:
        rng, cwd = self.rng, str(self.root)
        match rng.choice(self.writes):
            case "Edit":
                path = rng.choice(self.src + self.notes)
                return ["Edit", {"path": path, "texts": [self.text(), self.text()]}, cwd, scope]
            case "Delete":
                path = rng.choice((*self.src, "src/sub", *self.notes[:2]))
                return ["Delete", {"path": path}, cwd, scope]
            case "Move":
                pair = rng.sample(rng.choice([self.src[:4], ("src/sub", "src/old")]), 2)
                return ["Move", {"path": pair[0], "to": pair[1]}, cwd, scope]
            case name:
                paths = rng.sample((*self.src, *self.notes[:2], f"settings/{scope}"), 2)
                changes = [
                    [str(self.root / path), rng.choice([self.text(), self.text(), None])]
                    for path in paths
                ]
                return [name, {"changes": changes}, cwd, scope]

    # Steps.

    def run(self, steps: int, *, until_wrong: bool = False) -> None:
        for _ in range(steps):
            self.step()
            if until_wrong and self.wrong:
                break

    def step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.03:
            self.change_outside()
            return
        if chance < 0.08 and self.cold is not None:
            self.peek()
            return
        writers = [agent for agent in self.agents if agent.form and agent.form[0] in self.writes]
        agent = rng.choice(self.agents + writers)  # who hide much for long otherwise
        if agent.form is None:
            some = self.some_write if rng.random() < 0.1 else self.some_read
            agent.form = some(agent.scope)
            self.note(agent, "calls")
            self.counts["reads" if some == self.some_read else "writes"] += 1
            self.go(agent, [rng.random() < 0.15, *agent.form])
        else:
            self.go(agent, self.order_for(agent))

    def order_for(self, agent: Agent) -> str:
        """Return how *agent* goes on: mostly well."""
        assert agent.form is not None
        name, arguments, *_ = agent.form
        chance = self.rng.random()
        if chance < (self.deadly if agent.phase == "changed" else 0.01):
            return "die"
        if agent.phase == "waits" or chance > 0.14:
            return "go on"
        if chance < 0.1:
            return "raise"
        # A tool that says it failed has changed nothing, or only what is compared at the hit.
        is_honest = (
            agent.phase != "changed"
            or "changes" in arguments
            or (name == "Edit" and arguments["path"].startswith("notes/"))
        )
        return "error" if is_honest else "go on"

    def go(self, agent: Agent, order: Any) -> None:
        form = agent.form
        assert form is not None
        if isinstance(order, str):
            self.note(agent, order)
        if order == "die" and self.kills:
            self.kill(agent)
            return
        if self.kills and self.cold and self.rng.random() < 0.005:
            agent.tell(order)
            time.sleep(self.rng.random() * 0.003)  # any instant of what it does
            self.kill(agent)
            return
        agent.tell(order)
        ended = agent.hear()
        if ended is None:
            self.counts[agent.phase] += 1
            return
        kind, content, *is_cached = ended
        self.counts[kind] += 1
        if is_cached == [True]:
            self.counts["hits"] += 1
            self.compare(form, content, "hit")

    def kill(self, agent: Agent) -> None:
        assert self.spare is not None
        self.note(agent, "is killed")
        self.counts[f"killed when {agent.phase}"] += 1
        agent.line.kill()
        agent.line, self.spare = self.spare, self.new_line()
        agent.form, agent.phase = None, "idle"

    def change_outside(self) -> None:
        """Change what signatures show, or what is announced."""
        rng, put = self.rng, self.known["put"]
        self.counts["outside"] += 1
        match rng.choice(["edit", "replace", "retarget", "announced", "announced", "everything"]):
            case "edit":
                path = self.root / rng.choice(self.notes)
                put(str(path), self.text())
            case "replace":
                path = self.root / rng.choice(self.notes[:2])
                new = self.root / "new"
                put(str(new), self.text())
                new.replace(path)
            case "retarget":
                path = self.root / "notes/alias"
                new = self.root / "new"
                new.symlink_to(rng.choice("12"))
                new.replace(path)
            case "announced":
                path = self.root / rng.choice(self.src)
                put(str(path), rng.choice([self.text(), None]))
                self.observer.invalidate([path])
            case _:
                path = self.root / "settings" / rng.choice("xy")
                put(str(path), self.text())
                put(str(self.root / rng.choice(self.src)), self.text())
                self.observer.invalidate()
        self.trace.append(f"an outsider changes {path}")

    def peek(self) -> None:
        """Ask what is kept, as a process that has read nothing yet."""
        assert self.cold is not None
        form = self.some_read(self.rng.choice("xy"))
        nothing = self.known["ToolResult"](None, is_error=True)  # which is never kept
        with self.cold() as tools:
            result = tools.call(self.known["call_of"](form), lambda _: nothing, wait=0)
        self.counts["peeks"] += 1
        if result.cached:
            self.counts["found cold"] += 1
            self.compare(form, result.content, "cold hit")

    def compare(self, form: list[Any], content: Any, what: str) -> None:
        fresh = self.known["look"](self.known["call_of"](form), str(self.root))
        if content != fresh:
            self.wrong.append(f"{what} of {form}: {content!r}, and a run gives {fresh!r}")
            self.wrong[-1] += "".join(f"\n    {line}" for line in self.trace[-40:])

    def note(self, agent: Agent, what: str) -> None:
        number = self.agents.index(agent)
        self.trace.append(f"{number} ({agent.phase}) {what} {agent.form}".replace("--", ""))


@contextlib.contextmanager
def play_of_threads(folder: Path, seed: int, suffix: str | None) -> Iterator[Play]:
    """Play with threads that share one object in memory, or have one each on a file."""
    lines: list[Thread] = []
    root = folder / "root"
    root.mkdir()
    path = None if suffix is None else folder / f"tools.{suffix}"
    known = known_to_all()
    shared = known["new_tools"](path, fsync=False)
    sleep = time.sleep

    def pause(seconds: float) -> None:
        for line in lines:
            if line.thread is threading.current_thread():
                line.say("waits")
                known["obey"](line.listen())
                return
        sleep(seconds)

    def new_line() -> Thread:
        tools = shared if path is None else known["new_tools"](path, fsync=False)
        line = Thread(lambda say, hear: known["serve"](tools, str(root), say, hear))
        lines.append(line)
        return line

    with mock.patch("time.sleep", pause):
        try:
            yield Play(root, seed, new_line, shared, kills=False)
        finally:
            for line in lines:
                line.stop()


@pytest.fixture
def play_of_processes(start: Callable[..., Any], tmp_path: Path) -> Callable[..., Play]:
    """Begin a play of processes over a file of *suffix*, with a rule taken out."""

    def begin(seed: int, suffix: str, without: str = "", **options: Any) -> Play:
        root = tmp_path / "root"
        root.mkdir()
        path = tmp_path / f"tools.{suffix}"

        def new_tools() -> Any:
            return known_to_all()["new_tools"](path, fsync=False)

        def new_line() -> Any:
            return start(PROCESS, path=path, root=str(root), without=without)

        return Play(
            root,
            seed,
            new_line,
            new_tools(),
            kills=True,
            cold=None if without else new_tools,
            **options,
        )

    return begin


def check(game: Play) -> None:
    """Fail on a wrong hit, and where too little happened to tell."""
    counts = game.counts

    assert not game.wrong, "\n".join(game.wrong[:3])
    assert counts["hits"] * 8 > counts["reads"] > counts["writes"] > 20
    assert counts["waits"] and counts["raised"] and counts["outside"]


@pytest.mark.long
@processes
@pytest.mark.parametrize(
    "suffix", [pytest.param("json", id="document"), pytest.param("jsonl", id="log")]
)
@pytest.mark.parametrize("seed", range(STRESS))
def test_no_hit_of_processes_differs_from_a_fresh_run(play_of_processes, suffix, seed):
    """E01, E02, E05, E06, E29: reads, writes, outside edits, failures and kills, overlapping."""
    game = play_of_processes(seed, suffix)
    game.run(1200)

    check(game)
    assert game.counts["found cold"] and game.counts["killed when changed"]


@pytest.mark.long
@pytest.mark.parametrize(
    "suffix", [pytest.param(None, id="memory"), pytest.param("jsonl", id="log")]
)
@pytest.mark.parametrize("seed", range(STRESS))
def test_no_hit_of_threads_differs_from_a_fresh_run(tmp_path, suffix, seed):
    """E01, E06: as above, but threads die of exceptions. In memory they share one object."""
    with play_of_threads(tmp_path, seed, suffix) as game:
        game.run(3000)

    check(game)


# In a process of its own, since it breaks the package.
BROKEN = """
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

spec = spec_from_file_location("model", args["model"])
model = module_from_spec(spec)
spec.loader.exec_module(model)
exec(args["without"])
with model.play_of_threads(Path(args["folder"]), 0, "jsonl") as game:
    game.run(6000, until_wrong=True)
say(game.wrong)
"""


@pytest.mark.long
@pytest.mark.parametrize("rule", WITHOUT)
def test_without_any_one_rule_a_hit_is_wrong(start, tmp_path, rule):
    """So each of them is needed, and the tests above can fail."""
    child = start(BROKEN, model=__file__, folder=tmp_path, without=WITHOUT[rule])

    assert child.hear()


@pytest.mark.long
@processes
def test_without_the_burial_of_dead_writers_a_hit_is_wrong(play_of_processes):
    """E01: what a killed process had begun to write counts as written."""
    game = play_of_processes(
        0, "jsonl", WITHOUT_BURIAL, reads=["Grep"], writes=["Edit"], deadly=0.5
    )
    game.run(1000, until_wrong=True)

    assert game.wrong
