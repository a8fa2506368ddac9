"""Single flight: of many who want one key, one computes and the others wait.

Knows no storage: it is given plain functions, and so is tested with them. Who
waited looks again and takes nothing from the leader; if nothing was kept, all
who waited compute at once, not one after the other. What a leader raises is
the leader's alone, and a leader that dies frees its flight at once.
"""

from __future__ import annotations

from _contextvars import ContextVar
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextvars import Token
    from typing import Protocol, TypeVar

    T = TypeVar("T")

    class Marks(Protocol):
        """Marks that other processes see, each named by a number."""

        def take(self, byte: int) -> bool:
            """Take a mark; False if another process has it."""

        def is_taken(self, byte: int) -> bool | None:
            """Tell whether another process has it."""

        def free(self, byte: int) -> None:
            """Let it go."""

        def close(self) -> None:
            """Let all go."""


__all__ = ["Flights"]

# What this thread or task is computing. A call for the same key within its own
# computation would wait for itself.
_leading: ContextVar[frozenset[tuple[int, str]]] = ContextVar("leading", default=frozenset())

_CAP = 0.02  # seconds between two looks at a flight that takes long


class Flights:
    """The computations under way for one cache.

    Args:
        marks: What other processes see; None: this process only.
        number: The mark of a key.
        pauses: Gives the sleeps of a wait, from its length and the longest one.
        sleep: Sleeps so many seconds.
    """

    def __init__(
        self,
        marks: Marks | None,
        number: Callable[[str], int],
        pauses: Callable[[float, float], Iterator[float]],
        sleep: Callable[[float], None],
    ) -> None:
        self._marks = marks
        self._number = number
        self._pauses = pauses
        self._sleep = sleep
        self._forked()

    def run(
        self, key: str, look: Callable[[], T | None], call: Callable[[], None], wait: float
    ) -> T | None:
        """Return what ``look()`` finds, or None after ``call()``, by whoever should call.

        Args:
            key: What is wanted. Different keys never wait for each other.
            look: Finds it, or returns None.
            call: Makes it and keeps it.
            wait: Seconds after which a caller computes for itself.
        """
        mine = _Flight(key)
        try:
            if not self._lead(mine):
                for pause in self._pauses(wait, _CAP):
                    self._sleep(pause)
                    if not self._is_busy(key):
                        break
            found = look()
            if found is None:
                call()
            return found
        finally:
            self._land(mine)

    async def arun(
        self,
        key: str,
        look: Callable[[], T | None],
        call: Callable[[], Awaitable[None]],
        wait: float,
    ) -> T | None:
        """Do the same for a coroutine, whose loop goes on while it waits."""
        from asyncio import sleep

        mine = _Flight(key)
        try:
            if not self._lead(mine):
                for pause in self._pauses(wait, _CAP):
                    await sleep(pause)
                    if not self._is_busy(key):
                        break
            found = look()
            if found is None:
                await call()
            return found
        finally:
            self._land(mine)

    def _lead(self, mine: _Flight) -> bool:
        """Tell whether the caller goes ahead now: it leads, or is inside its own call."""
        key = (id(self), mine.key)
        leading = _leading.get()
        with self._mutex:
            # Who leads never waits: for its own key it would wait for itself, and two
            # who call for each other's key would wait for each other.
            if mine.key in self._here:
                return bool(leading)
            self._here[mine.key] = mine
            if self._marks is not None and not self._marks.take(self._number(mine.key)):
                del self._here[mine.key]
                return bool(leading)
        mine.token = _leading.set(leading | {key})
        return True

    def _is_busy(self, key: str) -> bool:
        with self._mutex:
            return key in self._here or (
                self._marks is not None and bool(self._marks.is_taken(self._number(key)))
            )

    def _land(self, mine: _Flight) -> None:
        # Asked of the table, not of a variable: a signal handler may have raised
        # before the variable was set.
        with self._mutex:
            if self._here.get(mine.key) is mine:
                del self._here[mine.key]
                if self._marks is not None:
                    self._marks.free(self._number(mine.key))
        if mine.token is not None:
            _leading.reset(mine.token)

    def close(self) -> None:
        """Let go of the marks; the next flight takes them up again."""
        if self._marks is not None:
            with self._mutex:
                self._marks.close()

    def _forked(self) -> None:
        self._here: dict[str, _Flight] = {}
        self._mutex = allocate_lock()


class _Flight:
    """One caller's claim to a key."""

    __slots__ = ("key", "token")

    def __init__(self, key: str) -> None:
        self.key = key
        self.token: Token[frozenset[tuple[int, str]]] | None = None
