"""The front for tool calls: which are the same, what may be kept, and what a write forgets."""

from __future__ import annotations

import os
import time
from _thread import RLock

from ._call import Call, awaited
from ._config import UNSET, Config, check, enabled_options
from ._decorate import decorated
from ._entry import Entry, new_entry
from ._front import Event, Front, Hit
from ._json import decode, encode
from ._keys import digest
from ._paths import EVERYTHING, Tree, absolute, identity, sign, spellings
from ._rules import Removal, stricter
from ._stores import FormatSwitched, new_id
from ._switches import DISABLE, are_set, is_on
from ._toolcall import ReadTool, ToolCall, ToolResult, check_extractor
from .errors import ConfigError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
    )
    from typing import Any, Literal, TypeVar

    from ._paths import PathLike
    from ._toolcall import Extractor, Found

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["ToolCache"]

_RUN, _WRITE = "run", "write"
_REMEMBERED = 1000  # folders, and keys
_TEXT, _NAME = {str}, {str, type(None)}  # exact types: 1 is True in a table
_SHORT = 2000  # bytes of a call whose key is remembered


class ToolCache(Front):
    """Remember results of reading tools, and forget them when a write touches what they read.

    Nothing is kept of a tool that is not named. A tool that is named nowhere
    runs each time and counts as a write with unknown effects. All processes
    that share the file see a write from before it runs: lookups that it touches
    miss, results that it touches are not kept; when it has ended, what it
    touched is gone. A writer that dies is noticed, and counts as having
    written. No lock is held while a tool runs.

    Args:
        path: As in :class:`Cache`.
        reads: The tools whose results may be kept, with what they read: an
            extractor (called with the arguments and the call's folder, gives
            paths and ``Tree``s), a list of paths, None (anything), or a
            :class:`ReadTool` with more to say.
        writes: The tools that change something, with what: an extractor or a
            list of paths; ``()`` for no files. None, or an extractor that gives
            None or raises: unknown effects, which forget every result that was
            read from files, and the other results of the call's own scope.
        neutral: The tools that neither read nor write: they just run.
        ttl: Seconds that a result stays fresh, from its own run; a hit never
            extends it. None: for ever.
        ttl_turns: Turns of one run that it stays fresh: 1 expires on the next
            turn. Calls without ``scope.session`` and ``turn`` then miss. None:
            turns do not count.
        max_entries: As in :class:`Cache`.
        max_entry_bytes: As in :class:`Cache`.
        marker: Tells the reader of a hit that it is one: a text, or a function
            of the :class:`Hit`, added to the returned copy of a text, or as one
            more part to a list of parts. None: a hit looks like a run.
        report_duration: ``"original"``: a hit has the duration of its run.
            ``"zero"``: 0.0.
        text_only: Keep texts only, and lists whose parts are all texts.
        namespace: This and all further options as in :class:`Cache`.
        max_bytes: As in :class:`Cache`.
        store_if: As in :class:`Cache`; gets the content.
        serve_if: As in :class:`Cache`.
        on_event: As in :class:`Cache`; the subject of an event is the
            :class:`ToolCall`, or the paths of an eviction.
        on_error: As in :class:`Cache`.
        format: ``"document"`` or ``"log"``.
        fsync: As in :class:`Cache`.
        mode: As in :class:`Cache`.
        lock_timeout: As in :class:`Cache`.
        clock: As in :class:`Cache`.

    Raises:
        ConfigError: An option is not what it may be; the message names it.
    """

    _keeps = "tool results"

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        reads: Mapping[str, Extractor | ReadTool | Found] | None = None,
        writes: Mapping[str, Extractor | Found] | None = None,
        neutral: Collection[str] = (),
        ttl: float | None = 300.0,
        ttl_turns: int | None = None,
        max_entries: int | None = 1024,
        max_entry_bytes: int | None = 65_536,
        marker: str | Callable[[Hit], str] | None = None,
        report_duration: Literal["original", "zero"] = "original",
        text_only: bool = False,
        namespace: str | None = None,
        max_bytes: int | None = 268_435_456,
        store_if: Callable[[Any], object] | None = None,
        serve_if: Callable[[Hit], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_error: Literal["warn", "raise"] = "warn",
        format: Literal["document", "log"] | None = None,
        fsync: bool | None = None,
        mode: int = 0o600,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check(
            ttl_turns=ttl_turns,
            marker=marker,
            report_duration=report_duration,
            text_only=text_only,
        )
        self._reads: dict[str, ReadTool] = {}
        self._writes: dict[str, Any] = {}
        self._neutral: set[str] = set()
        for option, given in (("reads", reads), ("writes", writes)):
            if given is not None and not hasattr(given, "items"):
                raise ConfigError(f"{option}={given!r}: pass a mapping of names")
        for name, read in (reads or {}).items():
            self._add_read(name, read if isinstance(read, ReadTool) else _read_tool(name, read))
        for name, paths in (writes or {}).items():
            self._add_write(name, paths)
        if isinstance(neutral, str) or not hasattr(neutral, "__iter__"):
            raise ConfigError(f"neutral={neutral!r}: pass a set of names")
        for name in neutral:
            self._refuse_twice(name)
            self._neutral.add(name)
        self._ttl_turns = ttl_turns
        self._marker = marker
        self._reports_zero = report_duration == "zero"
        self._text_only = text_only
        self._folders: dict[str, tuple[tuple[int, int] | None, str]] = {}
        self._keys: dict[tuple[Any, ...], str] = {}
        super().__init__(
            "tools",
            "t",
            path=path,
            namespace=namespace,
            ttl=ttl,
            max_entries=max_entries,
            max_entry_bytes=max_entry_bytes,
            max_bytes=max_bytes,
            store_if=store_if,
            serve_if=serve_if,
            on_event=on_event,
            on_error=on_error,
            format=format,
            fsync=fsync,
            mode=mode,
            lock_timeout=lock_timeout,
            clock=clock,
        )

    # Which tool does what.

    def _refuse_twice(self, name: str) -> None:
        if type(name) is not str or not name:
            raise ConfigError(f"{name!r}: a tool's name is a text that is not empty")
        if name in self._reads or name in self._writes or name in self._neutral:
            raise ConfigError(f"{name!r}: named twice; a tool reads, writes, or is neutral")

    def _add_read(self, name: str, policy: ReadTool) -> None:
        self._refuse_twice(name)
        self._reads[name] = policy

    def _add_write(self, name: str, paths: Any) -> None:
        self._refuse_twice(name)
        check_extractor(paths, f"writes[{name!r}]")
        self._writes[name] = paths

    # Calling.

    def call(
        self, call: ToolCall, compute: Callable[[ToolCall], Any], *, wait: float = 30.0
    ) -> ToolResult:
        """Return what is kept of *call*, or run it.

        A read that is fresh and whose files are as they were is a hit; equal
        reads at the same time run once, in any process. A write is told to all
        processes before it runs and when it has ended. Killed in between, it
        counts as having written.

        Args:
            call: The call.
            compute: Runs it: gets *call*, gives a :class:`ToolResult` or any
                JSON value. What it raises passes through; nothing is kept.
            wait: Seconds to wait for an equal read elsewhere, before running.

        Raises:
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """

        def run() -> ToolResult:
            began = time.perf_counter()
            return _result(compute(call), call, began)

        course = self._course(call)
        if isinstance(course, ReadTool):
            found = self._hit(call, course)
            return found or self._read(call, course, wait).run(run)
        if course == _RUN:
            return run()
        write = _Write(self, call)
        try:
            write.begin()
            result = run()
        except BaseException:
            write.abandon()
            raise
        write.end(result)
        return result

    async def acall(
        self, call: ToolCall, compute: Callable[[ToolCall], Any], *, wait: float = 30.0
    ) -> ToolResult:
        """Return what is kept of *call*, or run it, without stopping the event loop.

        As :meth:`call`. A plain *compute* runs in a thread. If this task is
        cancelled, a write counts as ended only when that thread has ended.

        Args:
            call: As in :meth:`call`.
            compute: A coroutine function, or a plain one.
            wait: As in :meth:`call`.
        """
        from asyncio import to_thread

        write = _Write(self, call)

        async def run() -> ToolResult:
            began = time.perf_counter()
            return _result(await awaited(compute, call, around=write.during), call, began)

        course = self._course(call)
        if isinstance(course, ReadTool):
            found = self._hit(call, course)
            return found or await self._read(call, course, wait).arun(run)
        if course == _RUN:
            return await run()
        try:
            await to_thread(write.begin)
            result = await run()
        except BaseException:
            write.abandon()
            raise
        await write.aend(result)
        return result

    def stream(self, call: ToolCall, compute: Callable[[ToolCall], Iterable[Any]]) -> Iterator[Any]:
        """Yield the parts that are kept of *call*, or those that *compute* yields.

        As :meth:`call`, but nobody waits for an equal one. Kept, in one entry,
        only when the last part was taken: not if the consumer stops before, nor
        if *compute* raises.

        Args:
            call: The call. A stream and a plain call are kept apart.
            compute: Gets *call*, gives an iterable of JSON values.
        """
        course = self._course(call)
        write = _Write(self, call)
        kept = self._stream(call, course) if isinstance(course, ReadTool) else None
        hit = None if kept is None else kept.look()
        if hit is not None:
            yield from hit.response.content
            return
        began = time.perf_counter()
        parts = []
        try:
            if course == _WRITE:
                write.begin()
            for part in compute(call):
                parts.append(_own(part))
                yield part
        except BaseException:
            write.abandon()
            raise
        result = _result(parts, call, began)
        write.end(result)
        if kept is not None:
            kept.keep(result)

    async def astream(
        self, call: ToolCall, compute: Callable[[ToolCall], AsyncIterable[Any]]
    ) -> AsyncIterator[Any]:
        """Yield the parts that are kept of *call*, or those that *compute* yields.

        As :meth:`stream`, without stopping the event loop.

        Args:
            call: As in :meth:`stream`.
            compute: Gets *call*, gives an asynchronous iterable of JSON values.
        """
        from asyncio import to_thread

        course = self._course(call)
        write = _Write(self, call)
        kept = self._stream(call, course) if isinstance(course, ReadTool) else None
        hit = None if kept is None else kept.look()
        if hit is not None:
            for part in hit.response.content:
                yield part
            return
        began = time.perf_counter()
        parts = []
        try:
            if course == _WRITE:
                await to_thread(write.begin)
            async for part in compute(call):
                parts.append(_own(part))
                yield part
        except BaseException:
            write.abandon()
            raise
        result = _result(parts, call, began)
        await write.aend(result)
        if kept is not None:
            await to_thread(kept.keep, result)

    def _stream(self, call: ToolCall, policy: ReadTool) -> Call:
        return self._read(call, policy, 0, "stream")

    # Plain functions.

    def read(
        self,
        paths: Extractor | Found = None,
        *,
        name: str | None = None,
        version: str = "1",
        ttl: float | None = UNSET,
    ) -> Callable[[F], F]:
        """Return a decorator: results of the function are kept as those of a reading tool.

        The arguments, with defaults filled in, are the key; ones that are no
        JSON values have it run each time. Coroutine functions stay ones.

        Args:
            paths: As in :class:`ReadTool`; an extractor gets the arguments by name.
            name: The tool's name. None: the function's module and name.
            version: As in :class:`ReadTool`.
            ttl: As in :class:`ReadTool`.

        Raises:
            ConfigError: The function has no name of its own (a lambda, a
                partial), or its name is taken.
        """
        policy = ReadTool(paths, version=version, ttl=ttl)
        return lambda function: decorated(
            self, function, name, lambda n: self._add_read(n, policy), writes=False
        )

    def write(
        self, paths: Extractor | Found = None, *, name: str | None = None
    ) -> Callable[[F], F]:
        """Return a decorator: each run of the function counts as a write.

        Args:
            paths: What it touches, as in ``writes``; None: unknown.
            name: As in :meth:`read`.

        Raises:
            ConfigError: As for :meth:`read`.
        """
        return lambda function: decorated(
            self, function, name, lambda n: self._add_write(n, paths), writes=True
        )

    def _course(self, call: ToolCall) -> ReadTool | str:
        """Return the policy of a read that may be kept, or whether *call* just runs or writes."""
        self._make_up()
        policy = self._reads.get(call.name)
        if policy is not None and not call.gated:
            user = None if call.scope is None else call.scope.user
            if policy.ttl != 0 and not (policy.per_caller and user is None):
                return policy
        self._bypassed += 1
        self._tell("bypass", call, time.perf_counter())
        if policy is not None or call.name in self._neutral:
            return _RUN
        return _WRITE

    def _read(self, call: ToolCall, policy: ReadTool, wait: float, form: str = "") -> Call:
        named: list[str] = []

        def key() -> str:
            if not named:
                named.append(self._key(call, policy, form))
            return named[0]

        def look() -> Hit | None:
            try:
                return self._look(call, policy, key())
            except UncacheableError:
                return None

        return Call(
            self,
            call,
            look=look,
            key=key,
            sign=lambda: self._sign(call, policy),
            entry=lambda result, signed: self._entry(call, policy, key(), result, signed),
            wait=wait,
        )

    # Looking.

    def _hit(self, call: ToolCall, policy: ReadTool) -> ToolResult | None:
        """Return a hit at once, as most calls are: without all that a run asks for."""
        if are_set():
            return None
        began = time.perf_counter() if self._on_event is not None else 0.0
        try:
            key = self._key(call, policy, "")
        except UncacheableError:
            return None
        hit = self._look(call, policy, key)
        if hit is None:
            return None
        self._hits += 1
        if self._on_event is not None:
            self._tell("hit", call, began, hit.age)
        found: ToolResult = hit.response
        return found

    def _look(self, call: ToolCall, policy: ReadTool, key: str) -> Hit | None:
        try:
            entry = self._store.get(key)
        except FormatSwitched as switched:
            self._open(switched.format)
            entry = self._store.get(key)
        if entry is None or not self._is_in_turn(entry, call):
            return None
        hit = self._serve(entry, self._ttl if policy.ttl is UNSET else policy.ttl)
        if hit is not None:
            self._replay(hit, entry, call)
        return hit

    def _is_in_turn(self, entry: Entry, call: ToolCall) -> bool:
        meta = entry.meta or {}
        own = meta.get("ttl_turns")
        if own is not None and type(own) is not int:
            return False  # edited by hand
        limit = stricter(own, self._ttl_turns)
        if limit is None:
            return True
        if call.turn is None or call.scope is None or call.scope.session is None:
            return False
        stored = meta.get("turn")
        return type(stored) is int and 0 <= call.turn - stored < limit

    def _replay(self, hit: Hit, entry: Entry, call: ToolCall) -> None:
        """Make the response of *hit* the result that *call* gets."""
        content = hit.response
        if self._marker is not None:
            mark = self._marker(hit) if callable(self._marker) else self._marker
            content = _marked(content, mark)
        duration = 0.0 if self._reports_zero else (entry.meta or {}).get("duration")
        hit.response = ToolResult(content, False, call.call_id, duration, True, hit.age)

    # Keeping.

    def _key(self, call: ToolCall, policy: ReadTool, form: str) -> str:
        """Return the key of *call*, whose result has a *form*.

        Raises:
            UncacheableError: Something in it is not JSON.
        """
        arguments, folder, scope = call.arguments, self._folder(call.cwd), call.scope
        asked: tuple[Any, ...] | None = None
        # Most arguments are texts, which a table tells apart as JSON does: to write
        # them as JSON and to take its digest costs half of a hit.
        if type(arguments) is dict and {*map(type, arguments.values())} <= _TEXT:
            parts = () if scope is None else (scope.agent, scope.user, scope.session)
            if {*map(type, parts)} <= _NAME:
                asked = (call.name, policy.version, folder, form, parts, *arguments.items())
                key = self._keys.get(asked)
                if key is not None:
                    return key
        told = [
            call.name,
            policy.version,
            folder,
            arguments if type(arguments) is dict else dict(arguments),
            form,
        ]
        data = encode(told, "$.call", sort=True)
        key = f"{self._scope_of(call)}{digest(data)}"
        if asked is not None and len(data) < _SHORT:
            if len(self._keys) > _REMEMBERED:
                self._keys.clear()
            self._keys[asked] = key
        return key

    def _scope_of(self, call: ToolCall) -> str:
        """Return the prefix of the keys of all calls in the scope of *call*."""
        scope = call.scope
        if scope is None:
            return f"{self._scope}1//"
        parts = [scope.agent, scope.user, scope.session]
        return f"{self._scope}1/{digest(encode(parts, '$.scope'))}/"

    def _whose(self, call: ToolCall) -> str:
        """Return the prefix of keys that unknown effects of *call* take away."""
        try:
            return self._scope_of(call)
        except UncacheableError:  # it has none of its own
            return self._scope

    def _folder(self, cwd: str | None) -> str:
        """Return the real path of *cwd*, walked along anew when it is another folder."""
        known = self._folders.get(cwd) if type(cwd) is str else None
        if known is not None and known[1] == cwd and identity(cwd) == known[0]:
            return cwd
        try:
            path = "" if cwd is None else os.fspath(cwd)
            if not os.path.isabs(path):
                path = os.path.join(os.getcwd(), path) if path else os.getcwd()
            path.encode()
            return self._real_folder(path)
        except (OSError, ValueError, TypeError) as error:
            raise UncacheableError("$.cwd", f"can't be told: {error}") from None

    def _real_folder(self, path: str) -> str:
        known = self._folders.get(path)
        # A link may lead to the same folder still, which was moved to another name.
        if (
            known is not None
            and identity(path) == known[0]
            and (known[1] == path or identity(known[1]) == known[0])
        ):
            return known[1]
        if len(self._folders) > _REMEMBERED:
            self._folders.clear()
        real = os.path.realpath(path)
        self._folders[path] = (identity(path), real)
        return real

    def _paths_of(self, extractor: Any, call: ToolCall) -> list[Any] | None:
        """Return the paths that *call* touches, absolute; None: unknown.

        Within the real folder, as in its key: under a link that leads elsewhere
        later, files of another folder would stand for those that were read.
        """
        if extractor is None:
            return None
        try:
            cwd = self._folder(call.cwd)
            found = extractor(call.arguments, cwd) if callable(extractor) else extractor
            if found is None:
                return None
            return [
                Tree(path) if isinstance(item, Tree) else path
                for path, item in absolute(found, cwd)
            ]
        except Exception as error:  # noqa: BLE001 - whatever it is, what is touched is unknown
            from logging import getLogger

            getLogger("respcache").debug("%s: its paths are unknown: %r", call.name, error)
            return None

    def _sign(self, call: ToolCall, policy: ReadTool) -> dict[str, Any]:
        paths = self._paths_of(policy.paths, call)
        return EVERYTHING if paths is None else sign(paths)

    def _entry(
        self, call: ToolCall, policy: ReadTool, key: str, result: ToolResult, signed: dict[str, Any]
    ) -> Entry | None:
        """Return the entry to keep, or None if *result* may not be kept.

        Raises:
            UncacheableError: Its content is outside the JSON domain.
        """
        content = result.content
        if result.is_error or not result.complete or result.asked_user or _is_failure(content):
            return None
        if self._text_only and not _is_text(content):
            return None
        meta = {
            name: value
            for name, value in (
                ("duration", result.duration),
                ("turn", call.turn),
                ("ttl_turns", self._ttl_turns),
            )
            if value is not None
        }
        entry = new_entry(
            key,
            _question(call),
            content,
            "$.content",
            id=new_id(),
            stored_at=self._stamp(),
            ttl=self._ttl if policy.ttl is UNSET else policy.ttl,
            meta=meta or None,
            **signed,
        )
        if self._max_entry_bytes is not None and entry.size > self._max_entry_bytes:
            return None
        if self._store_if is not None and not self._store_if(content):
            return None
        return entry

    # Forgetting.

    def invalidate(self, paths: Any = None) -> int:
        """Forget what was read from *paths*, which something outside has changed.

        As :meth:`Cache.invalidate`. None: every tool result, and whatever else
        in the file was read from files.

        Args:
            paths: One path, or several. None: unknown.

        Returns:
            How many entries that were.

        Raises:
            UncacheableError: Something in *paths* is not a path.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        return self._invalidate_all() if paths is None else super().invalidate(paths)

    @classmethod
    def from_config(
        cls, config: Config | Mapping[str, Any], *, base_dir: PathLike | None = None, **options: Any
    ) -> ToolCache | None:
        """Return the cache that *config* asks for, or None if it is not enabled.

        Args:
            config: A mapping with ``enabled`` and the options of this class;
                ``ttl_secs`` is another name of ``ttl``.
            base_dir: The folder of relative paths. None: the working folder.
            options: Options that no config can hold: *reads*, *writes*.

        Raises:
            ConfigError: An option is unknown or not what it may be, or the
                path leads out of *base_dir*.
        """
        asked = enabled_options(config, base_dir, of_tools=True)
        return None if asked is None else cls(**asked, **options)


class _Write:
    """One run of a tool that changes something, told before and after.

    ``during`` and ``begin`` may run in threads that a cancelled task has left:
    then the last of them ends the write.
    """

    __slots__ = (
        "_call",
        "_front",
        "_id",
        "_is_abandoned",
        "_is_busy",
        "_mutex",
        "_paths",
        "_was_off",
    )

    def __init__(self, front: ToolCache, call: ToolCall) -> None:
        self._front = front
        self._call = call
        self._id = ""
        self._paths: list[str] | None = []
        self._is_busy = self._is_abandoned = self._was_off = False
        self._mutex = RLock()

    def begin(self) -> None:
        """Hide what the write may touch, from all processes."""
        self.during(self._begin)

    def _begin(self) -> None:
        front = self._front
        if _is_off():
            self._was_off = front._has_missed_a_write = True
            return
        self._paths = self._find_paths()
        if self._paths == []:
            return  # it touches nothing
        self._id = new_id()
        front._begin_write(
            Removal(self._id, **self._touched(), kind="begun", at=round(front._now(), 6))
        )

    def during(self, work: Callable[[], Any]) -> Any:
        """Return ``work()``; whoever abandons the write meanwhile leaves it open until then."""
        with self._mutex:
            self._is_busy = True
        try:
            return work()
        finally:
            with self._mutex:
                self._is_busy = False
                is_abandoned = self._is_abandoned
            if is_abandoned:
                self._give_up()

    def abandon(self) -> None:
        """End the write as one of which nothing is known, once nothing of it runs any more."""
        with self._mutex:
            self._is_abandoned = True
            is_busy = self._is_busy
        if not is_busy:
            self._give_up()

    def _give_up(self) -> None:
        try:
            self.end(None)
        except OSError:
            pass  # it stays pending; what the tool raised is what the caller must see

    def end(self, result: ToolResult | None) -> None:
        """Evict what the write touched; None: nobody knows how it ended."""
        with self._mutex:
            begun, self._id = self._id, ""
        front = self._front
        if self._was_off or (begun and _is_off()):
            front._has_missed_a_write = True  # it can't be told now
        if not begun:
            return
        has_failed = result is not None and (result.is_error or _is_failure(result.content))
        if has_failed and self._paths is not None:
            front._end_write(Removal(new_id(), **self._touched(), kind="kept", ends=begun), None)
            return
        if self._paths is not None:
            # A link may lead elsewhere by now, and so may what it names.
            after = self._find_paths()
            self._paths = None if after is None else list(dict.fromkeys([*self._paths, *after]))
        front._end_write(Removal(new_id(), **self._touched(), ends=begun), self._paths)

    async def aend(self, result: ToolResult) -> None:
        """Do :meth:`end` in a thread, or here if the task is cancelled before there is one."""
        from asyncio import to_thread

        try:
            await to_thread(self.end, result)
        except BaseException:
            self.end(result)  # nothing, if it has been done
            raise

    def _find_paths(self) -> list[str] | None:
        front, call = self._front, self._call
        paths = front._paths_of(front._writes.get(call.name), call)
        if paths is None:
            return None
        names = [name for item in paths for name in spellings(getattr(item, "path", item))]
        return list(dict.fromkeys(names))

    def _touched(self) -> dict[str, Any]:
        if self._paths is None:
            return {"paths": ("/",), "scope": self._front._whose(self._call)}
        return {"paths": self._paths}


def _read_tool(name: str, paths: Any) -> ReadTool:
    check_extractor(paths, f"reads[{name!r}]")
    return ReadTool(paths)


def _is_off() -> bool:
    return are_set() and is_on(DISABLE)


def _result(made: Any, call: ToolCall, began: float) -> ToolResult:
    """Return what a tool made as the result of *call*, which began at *began*."""
    duration = time.perf_counter() - began
    if not isinstance(made, ToolResult):
        return ToolResult(made, call_id=call.call_id, duration=duration)
    return ToolResult(
        made.content,
        made.is_error,
        call.call_id,
        duration if made.duration is None else made.duration,
        made.cached,
        made.age,
        made.complete,
        made.asked_user,
    )


def _own(part: Any) -> Any:
    """Return a copy of *part* that its consumer can't change; what is no JSON as it is."""
    if type(part) is not dict and type(part) is not list:
        return part
    try:
        return decode(encode(part).decode())
    except UncacheableError:
        return part


def _is_failure(content: Any) -> bool:
    """Tell whether *content* has the shape of an error, as MCP and others write it."""
    return type(content) is dict and (
        content.get("is_error") is True or content.get("isError") is True
    )


def _is_text(content: Any) -> bool:
    parts = content if type(content) is list else [content]
    return (
        all(
            type(part) is str or (type(part) is dict and part.get("type") == "text")
            for part in parts
        )
        and type(content) is not dict
    )


def _marked(content: Any, mark: str) -> Any:
    """Return *content*, the caller's own copy, with *mark*; an object stays as it is."""
    if type(content) is str:
        return f"{content}\n{mark}"
    if type(content) is list:
        is_plain = bool(content) and all(type(part) is str for part in content)
        return [*content, f"\n{mark}" if is_plain else {"type": "text", "text": mark}]
    return content


def _question(call: ToolCall) -> str:
    """Return how entries show *call*."""
    return f"{call.name} {encode(dict(call.arguments), sort=True).decode()}"
