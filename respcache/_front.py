"""What all fronts share: their store, their clock, what they count and tell."""

from __future__ import annotations

import os
import time

from ._config import check
from ._entry import Entry
from ._index import PENDING, REFUSED, SAME, STORED, Put, Ticket
from ._json import decode
from ._keys import digest, scope_of
from ._rules import LONGEST, Removal, is_fresh, is_past, stricter
from ._stores import FormatSwitched, format_of, new_id, open_store
from ._switches import DISABLE, READONLY, REFRESH, are_set, is_on
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from ._flight import Flights
    from ._lock import RangeLock
    from ._stores import Store

    T = TypeVar("T")

__all__ = ["Event", "Front", "Hit", "why_over"]

_LONGEST_WRITE = 600.0  # seconds, where nobody can be asked whether its process lives


class Hit:
    """A response that was found.

    Attributes:
        response: The response. A list or dict is the caller's own.
        question: The question as it was asked when the response was stored.
        stored_at: When that was, in seconds since the epoch. None in a flat
            file, which keeps no ages.
        age: Seconds since then, at the time of the lookup. None as above.
    """

    __slots__ = ("age", "question", "response", "stored_at")

    def __init__(
        self, response: Any, question: str, stored_at: float | None, age: float | None
    ) -> None:
        self.response = response
        self.question = question
        self.stored_at = stored_at
        self.age = age

    def __repr__(self) -> str:
        return (
            f"Hit(response={self.response!r}, question={self.question!r}, "
            f"stored_at={self.stored_at!r}, age={self.age!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hit) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # a response may be a list


class Event:
    """Something that a cache did, for audits, loop guards and metrics.

    Attributes:
        kind: ``"hit"``, ``"miss"`` or ``"bypass"`` for a lookup (one each, however
            often a call looks again); ``"store"``, ``"refuse"`` or ``"pending"``;
            ``"forget"``, ``"invalidate"``, ``"clear"`` or ``"prune"``.
        front: Whose it was: ``"cache"``, ``"tools"`` or ``"steps"``.
        subject: The question, the :class:`ToolCall`, the step and its prompt as one
            text, or a list of paths. None where it was everything.
        age: Seconds since a hit was stored, else None.
        duration: Seconds that it took, without what was computed.
    """

    __slots__ = ("age", "duration", "front", "kind", "subject")

    def __init__(
        self, kind: str, front: str, subject: Any, age: float | None, duration: float
    ) -> None:
        self.kind = kind
        self.front = front
        self.subject = subject
        self.age = age
        self.duration = duration

    def __repr__(self) -> str:
        return (
            f"Event(kind={self.kind!r}, front={self.front!r}, subject={self.subject!r}, "
            f"age={self.age!r}, duration={self.duration!r})"
        )


def _is_unchanged(paths: dict[str, Any]) -> bool:
    """Ask ``_paths``, which is loaded for those who name files only."""
    global _is_unchanged
    from ._paths import is_unchanged as _is_unchanged

    return _is_unchanged(paths)


def why_over(entry: Entry, now: float) -> str | None:
    """Return why *entry* can't be served to anybody any more; None: it still may be.

    ``"expired"``: past its own ttl. ``"changed"``: read from files that have changed since.
    """
    if is_past(entry.stored_at, entry.ttl, now):
        return "expired"
    return "changed" if entry.paths and not _is_unchanged(entry.paths) else None


def _byte_of(name: str) -> int:
    """Return the byte that stands for *name*, a key in flight or a write under way.

    Of 62 bits: two that meet wait for each other, and nothing worse.
    """
    return int(digest(name.encode(), 8), 16) >> 2


def _seconds(clock: Callable[[], float], name: str) -> float:
    now = clock()
    if type(now) not in (int, float) or not -LONGEST <= now <= LONGEST:
        raise ConfigError(f"{name}: gave {now!r}, which is no number of seconds")
    return now


class Front:
    """A view of a store through one front and one namespace.

    Args:
        name: The front's name in events.
        letter: The front's name in keys.
        options: As :class:`~respcache.Cache` documents them.
    """

    _keeps: str | None = None  # what a flat file has no place for; None: it has

    def __init__(self, name: str, letter: str, **options: Any) -> None:
        check(**options)
        if self._keeps is not None and options["format"] == "flat":
            raise ConfigError(
                "format='flat': choose 'document' or 'log'; "
                f"a flat file has no place for {self._keeps}"
            )
        path, clock = options["path"], options["clock"]
        self.path: str | None = None if path is None else os.path.abspath(path)
        self.namespace: str | None = options["namespace"]
        self._name = name
        self._letter = letter
        self._ttl: float | None = options["ttl"]
        self._max_entry_bytes: int | None = options["max_entry_bytes"]
        self._store_if = options["store_if"]
        self._serve_if = options["serve_if"]
        self._on_event = options["on_event"]
        self._clock: Callable[[], float] = clock
        self._monotonic: Callable[[], float] = getattr(clock, "monotonic", time.monotonic)
        self._ahead = _seconds(clock, "clock") - _seconds(self._monotonic, "clock.monotonic")
        self._mode: int = options["mode"]
        self._options = {
            "limits": {name: options[name] for name in ("max_entries", "max_bytes")},
            "now": self._now,
            "mode": self._mode,
            "fsync": options["fsync"],
            "lock_timeout": options["lock_timeout"],
            "on_error": options["on_error"],
        }
        self._hits = self._misses = self._bypassed = self._stores = self._refused = 0
        self._made: dict[str, Any] = {}  # what is not made before it is needed
        self._writing: set[str] = set()  # the writes of this object that have begun
        self._has_missed_a_write = False  # while it was off
        asked = options["format"]
        self._open(
            None if self.path is None else format_of(self.path, asked), is_asked_for=asked == "flat"
        )

    def _open(self, format: str | None, *, is_asked_for: bool = False) -> None:
        """Take the store of *format*; no file is touched."""
        if format == "flat" and self._keeps is not None:
            from logging import getLogger

            getLogger("respcache").warning(
                "%s: holds plain questions and answers; %s stay in memory until another file is named",
                self.path,
                self._keeps,
            )
            format = self.path = None
        before: Store | None = getattr(self, "_store", None)
        self._store: Store = open_store(
            self.path, format, is_asked_for=is_asked_for, **self._options
        )
        self._is_flat = self._store.is_flat
        self._scope = "" if self._is_flat else scope_of(self._letter, self.namespace)
        if before is not None:
            before.close()

    def _do(self, work: Callable[[Store], T]) -> T:
        """Return ``work(store)``, with the store that reads the file as it is."""
        while True:
            try:
                if self._is_flat:
                    self._store.get("")  # sees whether it still is
                return work(self._store)
            except FormatSwitched as switched:
                self._open(switched.format)

    def _now(self) -> float:
        """Return seconds since the epoch, which never run backwards here.

        The larger of the wall clock and of what it said at construction plus
        the time since: an entry must not live longer because a clock was set back.
        """
        wall = self._clock()
        steady = self._ahead + self._monotonic()
        return wall if wall > steady else steady

    def _stamp(self) -> float:
        """Return now as entries keep it, to the microsecond, and never in the future."""
        now = self._now()
        stamp = now * 1_000_000 // 1 / 1_000_000  # a tenth of what round() costs
        return stamp if stamp < now else now

    def _serve(self, entry: Entry, ttl: float | None) -> Hit | None:
        """Return the hit of *entry*, if it may be served now to who asks for *ttl*."""
        stored_at = entry.stored_at
        now = self._now()
        if (entry.ttl is not None or ttl is not None) and not is_fresh(
            stored_at, stricter(entry.ttl, ttl), now
        ):
            return None
        if entry.paths and not _is_unchanged(entry.paths):
            return None
        raw = entry.raw
        hit = Hit(
            entry.value if raw is None else decode(raw),
            entry.question,
            stored_at,
            now - stored_at if now > stored_at else 0.0,
        )
        if stored_at != stored_at:  # no number: a flat file
            hit.stored_at = hit.age = None
        return hit if self._serve_if is None or self._serve_if(hit) else None

    def _commit(
        self,
        subject: Any,
        make: Callable[[], Entry | None],
        began: float,
        ticket: Ticket | None = None,
        *,
        renews: bool = True,
    ) -> bool:
        """Commit the entry that *make* gives; tell whether it was stored.

        *renews*: whether one whose key had an entry when its *ticket* was taken is
        put also if it says the same.
        """
        # An entry that was there and not served (by serve_if) has to go, also for
        # its equal: it would not be served the next time either.
        was_refused = renews and ticket is not None and ticket.entry is not None
        renew = was_refused or (are_set() and is_on(REFRESH))

        def put(store: Store) -> str:
            if store.open_writes():
                self._bury(store)
            entry = make()
            return REFUSED if entry is None else store.put([Put(entry, ticket)], renew=renew)[0]

        return self._count(self._do(put), subject, began)

    def _commit_all(
        self, subjects: list[Any], make: Callable[[], list[Entry | None]], began: float
    ) -> int:
        """Commit the entries that *make* gives at once; return how many were stored."""
        renew = are_set() and is_on(REFRESH)

        def put(store: Store) -> list[str]:
            entries = make()
            puts = [Put(entry) for entry in entries if entry is not None]
            fates = iter(store.put(puts, renew=renew) if puts else ())
            return [REFUSED if entry is None else next(fates) for entry in entries]

        fates = self._do(put)
        return sum(map(self._count, fates, subjects, [began] * len(fates)))

    def _count(self, fate: str, subject: Any, began: float) -> bool:
        """Count and tell what became of a put; tell whether it was stored."""
        if fate == STORED:
            self._stores += 1
            if self._on_event is not None:
                self._tell("store", subject, began)
            return True
        if fate == PENDING:
            self._tell("pending", subject, began)
        elif fate != SAME:
            self._refused += 1
            self._tell("refuse", subject, began)
        return False

    def _remove(self, kind: str | None, subject: Any, make: Callable[[], Removal]) -> int:
        """Commit the removal that *make* gives, and return how many entries it took.

        *kind* is what is told of it; None: nothing.
        """
        if are_set() and is_on(DISABLE):
            return 0
        began = time.perf_counter()
        may_write = not (are_set() and is_on(READONLY))
        gone = self._do(lambda store: store.remove(make(), commit=may_write))
        if kind is not None:
            self._tell(kind, subject, began)
        return gone

    def _tell(self, kind: str, subject: Any, began: float, age: float | None = None) -> None:
        if self._on_event is not None:
            self._on_event(Event(kind, self._name, subject, age, time.perf_counter() - began))

    def _flights(self) -> Flights:
        """Return the flights of this cache, which other processes see by the file's sibling."""
        flights: Flights | None = self._made.get("flights")
        if flights is None:
            from ._flight import Flights
            from ._lock import on_fork, pauses

            # Threads may come here at once: of what they make one counts, for all.
            flights = Flights(self._marks(), _byte_of, pauses, time.sleep)
            flights = self._made.setdefault("flights", flights)
            on_fork(flights)
        return flights

    def _marks(self) -> RangeLock | None:
        """Return the bytes that tell other processes what is under way here; None: in memory."""
        marks: RangeLock | None = self._made.get("marks")
        if marks is None and self.path is not None:
            from ._atomic import make_folder
            from ._lock import RangeLock, on_fork

            real = os.path.realpath(self.path)
            try:
                make_folder(os.path.dirname(real), self._mode)
            except OSError:
                pass  # then there are no marks, and this process has its flights alone
            marks = self._made.setdefault("marks", RangeLock(real + ".flight", self._mode))
            on_fork(self)
        return marks

    def _forked(self) -> None:
        self._writing = set()  # they run in the parent

    # Writes under way.

    def _begin_write(self, begun: Removal) -> None:
        """Tell all processes of a write before it runs: what it touches is hidden."""
        self._writing.add(begun.id)
        marks = self._marks()
        if marks is not None:
            marks.take(_byte_of(begun.id))  # first: a write without its byte counts as dead
            begun.mark = marks.identity()
        self._remove(None, None, lambda: begun)

    def _end_write(self, end: Removal, subject: Any) -> None:
        """Tell all processes that a write has ended, and how."""
        try:
            self._remove("invalidate" if end.kind == "removed" else None, subject, lambda: end)
        finally:
            begun = end.ends or ""
            self._writing.discard(begun)
            marks = self._marks()
            if marks is not None:
                marks.free(_byte_of(begun))

    def _bury(self, store: Store) -> None:
        """Evict what writes may have touched whose processes died in them."""
        if are_set() and is_on(READONLY):
            return
        for begun in store.open_writes():
            if not self._is_alive(begun):
                store.remove(Removal(new_id(), paths=begun.paths, scope=begun.scope, ends=begun.id))

    def _is_alive(self, begun: Removal) -> bool:
        if begun.id in self._writing:
            return True
        marks = self._marks()
        if marks is None:
            return False
        is_taken = marks.is_taken(_byte_of(begun.id))
        if is_taken is None or begun.mark not in ("", marks.identity()):
            # Nobody can be asked, or the file of marks is another by now (a temp
            # cleaner took it away): a write takes 10 minutes at most.
            return abs(self._now() - begun.at) < _LONGEST_WRITE
        return is_taken

    def _ticket(self, key: str) -> Ticket:
        """Return what has happened so far, for a result of *key* that is to be made now."""

        def take(store: Store) -> Ticket:
            ticket = store.ticket(key)
            if store.open_writes():
                self._bury(store)
                ticket = store.ticket(key)
            return ticket

        return self._do(take)

    # What every front offers.

    def invalidate(self, paths: Any) -> int:
        """Forget every answer in the file that was read from *paths*.

        In all namespaces and fronts, since they share one disk: from an equal
        path, from a :class:`Tree` above it, or from anything below it. Paths
        are compared real and folded. Results under way that were read from
        there are not kept. What can't be committed is hidden here at once, and
        committed before anything else is.

        Args:
            paths: What has changed; one path, or several.

        Returns:
            How many entries that were.

        Raises:
            UncacheableError: Something in *paths* is not a path.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        from ._paths import absolute, spellings

        named = [path for path, _ in absolute(paths)]
        names = list(dict.fromkeys(name for path in named for name in spellings(path)))
        if not names:
            return 0
        return self._remove("invalidate", named, lambda: Removal(new_id(), paths=names))

    def _make_up(self) -> None:
        """Forget everything if a write could not be told because the cache was off."""
        if self._has_missed_a_write and not (are_set() and is_on(DISABLE)):
            self._invalidate_all()  # first: other threads look meanwhile
            self._has_missed_a_write = False

    def _invalidate_all(self) -> int:
        """Forget all that this front has kept, and whatever else was read from files."""
        return self._remove(
            "invalidate",
            None,
            lambda: Removal(new_id(), paths=("/",), scope=f"{self._letter}/"),
        )

    def clear(self) -> int:
        """Forget all entries of this namespace, and results under way; return how many.

        Limits that the file has kept stay.
        """
        return self._remove("clear", None, lambda: Removal(new_id(), scope=self._scope))

    def prune(self) -> int:
        """Take out what can't be served any more; return how many entries that were.

        In the whole file: what is past its own ttl, and what was read from
        files that have changed since.
        """
        if are_set() and (is_on(DISABLE) or is_on(READONLY)):
            return 0
        began = time.perf_counter()
        now = self._now()

        def discard(store: Store) -> int:
            return store.discard([entry for entry in store.entries() if why_over(entry, now)])

        gone = self._do(discard)
        self._tell("prune", None, began)
        return gone

    def _kept(self) -> list[Entry]:
        """Return the entries of this namespace, oldest first."""
        if are_set() and is_on(DISABLE):
            return []
        return self._do(lambda store: [e for e in store.entries() if e.key.startswith(self._scope)])

    def entries(self) -> Iterator[Hit]:
        """Return what this namespace holds and has not expired, oldest commit first."""
        for entry in self._kept():
            now = self._now()
            if is_past(entry.stored_at, entry.ttl, now):
                continue
            dated = entry.stored_at == entry.stored_at
            yield Hit(
                entry.response,
                entry.question,
                entry.stored_at if dated else None,
                max(0.0, now - entry.stored_at) if dated else None,
            )

    def __len__(self) -> int:
        """Return how many entries this namespace holds that have not expired."""
        return self._measure()[0]

    def _measure(self) -> tuple[int, int]:
        if are_set() and is_on(DISABLE):
            return 0, 0
        return self._do(lambda store: store.measure(self._scope))

    def __bool__(self) -> bool:
        """Return True: a cache is one, also while it is empty."""
        return True

    def stats(self) -> dict[str, int]:
        """Return what this object has seen, and what its namespace holds.

        ``hits``, ``misses`` and ``bypassed`` (looked while the cache was off or
        being refreshed) add up to the lookups; ``stores`` were committed and
        ``refused`` not kept; ``pending`` wait for a commit; ``entries`` and
        their ``bytes`` as they are in the file.
        """
        entries, size = self._measure()
        return {
            "hits": self._hits,
            "misses": self._misses,
            "bypassed": self._bypassed,
            "stores": self._stores,
            "refused": self._refused,
            "pending": self._store.pending,
            "entries": entries,
            "bytes": size,
        }

    def flush(self) -> bool:
        """Commit what is pending; tell whether nothing is left."""
        if are_set() and (is_on(DISABLE) or is_on(READONLY)):
            return not self._store.pending
        return self._do(lambda store: store.flush())

    def close(self) -> None:
        """Flush, and close all descriptors; the next use opens them again."""
        self.flush()
        self._store.close()
        if self._writing:
            return  # their bytes say that they live
        flights, marks = self._made.pop("flights", None), self._made.pop("marks", None)
        if flights is not None:
            flights.close()
        elif marks is not None:
            marks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
