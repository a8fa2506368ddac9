"""A recording, run again in a process of its own, and all that is seen of it.

Three passes over the items, with a cache that nobody else has, private copies of
the files that they read, and a clock that follows the recording:

1. with the cache on: what is served, and what it was made for;
2. each source changed in its copy, once the cache is warm: what is served all the same;
3. with the cache off: what is true, and whether the cache's folder is left alone.

An audit hook sees the files that Python opens meanwhile. It can't be taken away
again, hence the process: where there is no ``fork``, it stays in this one, inert.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import Counter
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from inspect import isawaitable
from shutil import copy2
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any
from zoneinfo import TZPATH

from ._admission import Leaf, Step, admit
from ._call import awaited
from ._inputs import Inputs, named
from ._json import encode
from ._paths import absolute, signature
from ._recording import Item, Write
from ._steps import Done, StepCache
from ._switches import DISABLE, READONLY, REFRESH
from .errors import UncacheableError
from .testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tell = Callable[[str, int, int], None]

__all__ = ["CHANGED", "Rehearsal"]

CHANGED = b"\nchanged by a replay\n"
_MACHINERY = (
    __name__.partition(".")[0],
    "importlib",
    "linecache",
    "tokenize",
    "mimetypes",
    "gettext",
    "platform",
)
_WRITING = os.O_WRONLY | os.O_RDWR
_DEEPEST = 40  # frames
_WIDEST = 60  # letters of an output that a report shows


class _Ran:
    """One run of a step, as it was asked for and as it went."""

    def __init__(self, item: Item, step: Step, prompt: str, given: Any) -> None:
        self.item = item
        self.step = step
        self.leaf = admit(step)
        self.prompt = prompt
        self.inputs: Any = given.get("inputs", ())
        asked = given.get("digest")
        self.digest: Any = asked() if callable(asked) else asked
        self.context: Any = given.get("context")
        self.computed = False
        self.output: Any = None
        self.key: str | None = None
        self.outer: _Ran | None = None  # the run within which it runs
        self.read: dict[str, None] = {}
        self.made: list[str] = []

    @property
    def is_kept(self) -> bool:
        return self.leaf is not Leaf.NONE or self.step.replay is not None

    def paths(self) -> list[str]:
        return list(named(self.inputs).values())

    def asks(self) -> str:
        """Return what it is known by within its item."""
        facts = [self.step.name, self.prompt, self.paths(), self.digest, self.context]
        return repr(facts)


class Rehearsal:
    """Run recorded *items* and note what is not as it should be.

    Args:
        items: What was recorded.
        run: Runs one of them with a StepCache; returns its output.
        same: Tells whether two outputs are the same.
        make: Makes the caches, as StepCache does.
        folder: An empty folder for the cache and the copies.
        tell: Gets the name of a pass, and how far it is.
    """

    def __init__(
        self,
        items: list[Item | Write],
        run: Callable[[Item, StepCache], Any],
        *,
        same: Callable[[Any, Any], object],
        make: Callable[..., StepCache],
        folder: str,
        tell: Tell,
    ) -> None:
        self._run = run
        self._same = same
        self._make = make
        self._tell = tell
        self._cache_folder = os.path.join(folder, "cache")
        os.mkdir(self._cache_folder)
        self._copies = _Copies(os.path.join(folder, "files"))
        self._played = [self._copies.item(each) for each in items]
        self._items = [each for each in self._played if isinstance(each, Item)]
        self._clock = FakeClock(items[0].at)
        self._caches: dict[str, StepCache] = {}
        self._contents = Inputs()  # our own: the cache's may be what is wrong
        self._item = self._items[0]  # the one that runs
        self._rans: list[_Ran] = []  # of it
        self._wrong: Counter[str] = Counter()
        self._within: ContextVar[_Ran | None] = ContextVar("within", default=None)
        self._under_way: list[_Ran] = []
        self._opened: set[str] = set()  # in the cache's folder
        self.problems: dict[str, list[str]] = {
            name: []
            for name in ("run", "key", "invalidation", "kill switch", "wrong", "undeclared")
        }

    def play(self) -> dict[str, Any]:
        """Make all passes, and return what was seen as JSON."""
        global _watch
        kept = {name: os.environ.pop(name, None) for name in (DISABLE, READONLY, REFRESH)}
        _watch = self._see
        _add_hook()
        try:
            on = self._play_all("cache on")
            sources = self._change_sources([ran for rans, _ in on for ran in rans])
            before = self._look_at_folder()
            self._opened.clear()
            os.environ[DISABLE] = "1"
            off = self._play_all("cache off")
            opened = set(self._opened)
        finally:
            _watch = None
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        if opened or self._look_at_folder() != before:
            names = sorted(map(os.path.basename, opened)) or ["a file"]
            self._note("kill switch", f"off, it still uses its folder: {', '.join(names)}")
        self._compare(on, off)
        for cache in self._caches.values():
            cache.close()
        return {
            "steps": self._by_step(on),
            "sources": sources,
            "missing": self._copies.missing,
            "problems": self.problems,
        }

    def _note(self, kind: str, problem: str) -> None:
        if problem not in self.problems[kind]:
            self.problems[kind].append(problem)

    # One pass.

    def _play_all(self, name: str) -> list[tuple[list[_Ran], Any]]:
        """Run all items in turn; return of each its runs, and its result."""
        origins: dict[str, tuple[_Ran, dict[str, Any]]] = {}
        passed: list[tuple[list[_Ran], Any]] = []
        for item in self._played:
            self._tell(name, len(passed), len(self._items))
            if item.at > self._clock():
                self._clock.advance(item.at - self._clock())
            if isinstance(item, Write):
                self._cache_for(self._item.model).external_write(item.paths)
                continue
            rans, result = self._play(item)
            passed.append((rans, result))
            for ran in rans:
                self._trace(ran, origins)
        self._tell(name, len(self._items), len(self._items))
        return passed

    def _play(self, item: Item, *, may_fail: bool = False) -> tuple[list[_Ran], Any]:
        """Run *item*; return its runs, and its result, None where there is none."""
        self._item, self._rans = item, []
        result = None
        try:
            made = self._run(item.copy(), self._cache_for(item.model))
            if isawaitable(made):
                from asyncio import run

                made = run(_wait_for(made))
            result = made.output if isinstance(made, Done) else made
            encode(result)
        except UncacheableError as error:
            result = None
            self._note("run", f"{_where(item)}: what it gives is no JSON value ({error})")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's, and is told
            if not may_fail:
                self._note("run", f"{_where(item)}: {type(error).__name__}: {error}")
        else:
            if not self._rans:
                self._note("run", f"{_where(item)}: runs no step with the cache that it is given")
        return self._rans, result

    def _cache_for(self, model: str) -> StepCache:
        cache = self._caches.get(model)
        if cache is None:
            path = os.path.join(self._cache_folder, "steps.jsonl")
            cache = self._caches[model] = self._make(path, model=model, clock=self._clock)
            self._watch_runs(cache)
        return cache

    def _watch_runs(self, steps: StepCache) -> None:
        """Have *steps* tell of its runs: from outside, since it may be what is wrong."""
        run, arun = steps.run, steps.arun

        def watched(step: Step, prompt: str, compute: Any, **given: Any) -> Done:
            ran = self._begin(steps, step, prompt, given)

            def computed(prompt: str) -> Any:
                with _During(self, ran):
                    return compute(prompt)

            return self._end(ran, run(step, prompt, computed, **given))

        async def awatched(step: Step, prompt: str, compute: Any, **given: Any) -> Done:
            ran = self._begin(steps, step, prompt, given)

            async def computed(prompt: str) -> Any:
                with _During(self, ran):
                    return await awaited(compute, prompt)

            return self._end(ran, await arun(step, prompt, computed, **given))

        steps.run, steps.arun = watched, awatched  # type: ignore[method-assign]

    def _begin(self, steps: StepCache, step: Step, prompt: str, given: Any) -> _Ran:
        ran = _Ran(self._item, step, prompt, given)
        try:
            content = self._contents.take(named(ran.inputs)).content
            ran.key = steps._key(step, ran.leaf, prompt, content, ran.digest, ran.context)
        except UncacheableError:
            pass
        return ran

    def _end(self, ran: _Ran, done: Done) -> Done:
        ran.output = done.output
        self._rans.append(ran)
        return done

    # What was read.

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        """Note which file was opened, or which folder listed; what a step made is its own."""
        try:
            path = os.path.abspath(os.fsdecode(args[0]))
        except (TypeError, ValueError):
            return  # a descriptor
        if _below(path, self._cache_folder):
            self._opened.add(path)
            return
        ran = self._within.get()
        if ran is None and len(self._under_way) == 1:
            ran = self._under_way[0]  # a thread of its own
        is_made = event == "os.mkdir" or (
            event == "open" and type(args[2]) is int and bool(args[2] & _WRITING)
        )
        if ran is None or _is_own(path) or (not is_made and _is_machinery()):
            return
        if event == "sqlite3.connect" and (ran.digest is not None or not os.path.isfile(path)):
            return  # its records are declared, or it is in memory, or new
        # Whatever is read within a step may be in its output, and in that of those around it.
        while ran is not None:
            if is_made:
                ran.made.append(path)
            elif not any(_below(path, each) for each in ran.made):
                ran.read[path] = None
            ran = ran.outer

    def _undeclared(self, ran: _Ran) -> Iterator[str]:
        declared = [name for path in ran.paths() for name in (path, os.path.realpath(path))]
        for path in ran.read:
            names = (path, os.path.realpath(path))
            if not any(_below(name, each) for name in names for each in declared):
                yield self._copies.original(path)

    # What was left out of a key.

    def _trace(self, ran: _Ran, origins: dict[str, tuple[_Ran, dict[str, Any]]]) -> None:
        """Compare what a hit was asked for with what its output was made for."""
        if ran.is_kept:
            for path in self._undeclared(ran):
                self._note("undeclared", f"{ran.step.name} reads {path}, and does not declare it")
        if ran.key is None or not ran.is_kept:
            return
        facts = self._facts(ran)
        if ran.computed:
            origins[ran.key] = ran, facts
        elif ran.key in origins:
            origin, made_for = origins[ran.key]
            left_out = [name for name in facts if facts[name] != made_for[name]]
            if ran.leaf is Leaf.NORMALIZED and "prompt" in left_out:
                left_out.remove("prompt")  # by its spelling, as was asked for
            if left_out:
                self._note(
                    "key",
                    f"{ran.step.name}: {_where(ran.item)} is served what {_where(origin.item)} "
                    f"made, but differs in {', '.join(left_out)}; it is left out of the key",
                )

    def _facts(self, ran: _Ran) -> dict[str, Any]:
        """Return all that a run depends on, as it was recorded rather than as it was passed."""
        item = ran.item
        of = item if item.step == ran.step.name else ran
        try:
            content: Any = self._contents.take(named(of.inputs)).content
        except UncacheableError:
            content = None
        return {
            "model": item.model,
            "prompt": of.prompt,
            "inputs": content,
            "digest": of.digest,
            "context": of.context,
        }

    # Sources.

    def _change_sources(self, rans: list[_Ran]) -> int:
        """Change each source that a kept step reads, and see that its next run misses."""
        sources = self._sources(rans)
        for number, (path, items) in enumerate(sources.items()):
            self._tell("sources", number, len(sources))
            for item in items:
                self._play(item, may_fail=True)  # the cache is warm now
                with self._copies.changed(path):
                    again, _ = self._play(item, may_fail=True)
                self._judge(path, again)
        self._tell("sources", len(sources), len(sources))
        return len(sources)

    def _sources(self, rans: list[_Ran]) -> dict[str, list[Item]]:
        """Return the files that kept steps read or declared, each with the items that did."""
        found: dict[str, dict[str, Item]] = {}
        for ran in rans:
            if not ran.is_kept:
                continue
            item = ran.item
            for declared in item.inputs:
                read = [path for path in ran.read if _below(path, declared)]
                for path in read or self._copies.files_of(declared)[:1]:
                    if os.path.isfile(path) or not os.path.exists(path):
                        asked = repr([item.step, item.model, item.prompt, item.inputs])
                        asked += repr([item.digest, item.context])
                        found.setdefault(path, {}).setdefault(asked, item)
        return {path: list(items.values()) for path, items in found.items()}

    def _judge(self, path: str, rans: list[_Ran]) -> None:
        kept = [ran for ran in rans if ran.is_kept]
        readers = [ran for ran in kept if any(_below(path, each) for each in ran.paths())]
        for ran in readers or kept:
            if not ran.computed:
                source = self._copies.original(path)
                self._note(
                    "invalidation",
                    f"{source} was changed, and {ran.step.name} was still served "
                    f"({_where(ran.item)})",
                )

    # Outputs.

    def _compare(self, on: list[tuple[list[_Ran], Any]], off: list[tuple[list[_Ran], Any]]) -> None:
        """Hold what was served against what is true, and both passes against each other."""
        for item, (rans, result), (fresh, true) in zip(self._items, on, off, strict=True):
            for ran in fresh:
                if not ran.computed:
                    problem = f"off, {ran.step.name} was still served ({_where(item)})"
                    self._note("kill switch", problem)
            by_asked: dict[str, list[_Ran]] = {}
            for ran in fresh:
                by_asked.setdefault(ran.asks(), []).append(ran)
            wrong = [ran for ran in rans if not ran.computed and self._is_wrong(ran, by_asked)]
            if not wrong and not self._is_same(result, true):
                self._note(
                    "kill switch",
                    f"off, {_where(item)} gives {_brief(true)}; on, it gives {_brief(result)}",
                )

    def _is_wrong(self, ran: _Ran, fresh: dict[str, list[_Ran]]) -> bool:
        """Tell whether *ran* was served what the equal one of *fresh* runs did not make."""
        made = fresh.get(ran.asks())
        if made and self._is_same(ran.output, made[0].output):
            return False
        true = f"; a fresh run makes {_brief(made[0].output)}" if made else ""
        self._note(
            "wrong",
            f"{ran.step.name}: {_where(ran.item)} is served {_brief(ran.output)}{true}",
        )
        self._wrong[ran.step.name] += 1
        return True

    def _is_same(self, one: Any, other: Any) -> bool:
        return bool(self._same(one, other))

    def _by_step(self, on: list[tuple[list[_Ran], Any]]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for rans, _ in on:
            for ran in rans:
                name = ran.step.name
                counts = found.setdefault(name, {"leaf": ran.leaf.value, "runs": 0, "hits": 0})
                counts["runs"] += 1
                counts["hits"] += not ran.computed
        for name, counts in found.items():
            counts["wrong"] = self._wrong[name]
        return found

    def _look_at_folder(self) -> list[Any]:
        with os.scandir(self._cache_folder) as entries:
            return sorted((entry.name, signature(os.stat(entry.path))) for entry in entries)


class _During:
    """The time in which a step itself runs; what is opened within is read by it."""

    def __init__(self, rehearsal: Rehearsal, ran: _Ran) -> None:
        self._rehearsal = rehearsal
        self._ran = ran

    def __enter__(self) -> None:
        self._ran.computed = True
        self._ran.outer = self._rehearsal._within.get()
        self._rehearsal._under_way.append(self._ran)
        self._token = self._rehearsal._within.set(self._ran)

    def __exit__(self, *_: object) -> None:
        self._rehearsal._within.reset(self._token)
        self._rehearsal._under_way.remove(self._ran)


class _Copies:
    """Private copies of what a recording reads, in one tree: the originals are never written.

    Args:
        folder: Where to.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder
        self.missing = 0  # inputs that are not there
        os.mkdir(folder)

    def item(self, item: Item | Write) -> Item | Write:
        """Return *item*, with copies for its inputs."""
        if isinstance(item, Write):
            paths = None if item.paths is None else self._made(item.paths)
            return Write(paths, item.at, item.line)
        return item.copy(self._made(item.inputs))

    def _made(self, paths: list[str]) -> list[str]:
        copies = []
        for path, _ in absolute(paths):
            source = os.path.normpath(path)
            copy = self._root + os.path.splitdrive(source)[1]
            if not os.path.exists(copy):
                _copy(source, copy, ())
                self.missing += not os.path.exists(copy)
            copies.append(copy)
        return copies

    def original(self, path: str) -> str:
        return path[len(self._root) :] if _below(path, self._root) else path

    def files_of(self, path: str) -> list[str]:
        """Return the files at or below *path*; of a path that is not there, the path."""
        if not os.path.isdir(path):
            return [path]
        found = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return sorted(found) or [os.path.join(path, "new")]

    @contextmanager
    def changed(self, path: str) -> Iterator[None]:
        """Have *path*, a copy, hold something else, with the stamp that it had."""
        assert _below(os.path.realpath(path), os.path.realpath(self._root))
        before = None
        try:
            status = os.stat(path)
            with open(path, "rb") as file:
                before = file.read()
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(path, "wb") as file:
                file.write((before or b"") + CHANGED)
            if before is not None:
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            yield
        finally:
            if before is None:
                with suppress(FileNotFoundError):
                    os.remove(path)
            else:
                with open(path, "wb") as file:
                    file.write(before)


def _copy(source: str, target: str, above: tuple[tuple[int, int], ...]) -> None:
    """Copy a file, or a folder with all that lies below, following links but not back."""
    try:
        status = os.stat(source)
    except (FileNotFoundError, NotADirectoryError):
        return
    identity = (status.st_dev, status.st_ino)
    if S_ISDIR(status.st_mode):
        if identity not in above:
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                inner = os.path.join(target, name)
                _copy(os.path.join(source, name), inner, (*above, identity))
    elif S_ISREG(status.st_mode):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        copy2(source, target)
        os.chmod(target, status.st_mode | 0o600)  # it is changed later


async def _wait_for(made: Any) -> Any:
    return await made


def _brief(output: Any) -> str:
    text = repr(output)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _where(item: Item) -> str:
    return f"line {item.line}"


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


_SYSTEM = [
    *("/proc", "/dev", "/sys", *TZPATH),
    *dict.fromkeys(
        os.path.abspath(sysconfig.get_paths()[name])
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
]


def _is_own(path: str) -> bool:
    """Tell whether *path* is of Python or of the system, not of the one whose step it is."""
    return any(_below(path, each) for each in _SYSTEM)


def _is_machinery() -> bool:
    """Tell whether Python reads for itself, or the cache: an import, a traceback, an input."""
    frame = sys._getframe(3)  # past the hook
    for _ in range(_DEEPEST):
        module: str = frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] in _MACHINERY:
            return module != __name__  # here begins the step itself
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


_watch: Callable[[str, tuple[Any, ...]], None] | None = None
_is_hooked = False


def _add_hook() -> None:
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        sys.addaudithook(_hook)


_EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "sqlite3.connect")


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watch is not None and event in _EVENTS:
        _watch(event, args)
