"""One computed call, from a look over a shared flight to a kept result.

The same course for every front: given how to look, how to name and how to keep
a result, it sees to tickets, signatures, counts and events.
"""

from __future__ import annotations

import time

from ._switches import DISABLE, READONLY, REFRESH, are_set, is_on
from .errors import ConfigError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from ._entry import Entry
    from ._front import Front, Hit
    from ._index import Ticket

__all__ = ["Call", "awaited"]


async def awaited(
    compute: Callable[..., Any],
    *given: Any,
    around: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> Any:
    """Return what *compute* gives: awaited if it is a coroutine function, else from a thread.

    Args:
        compute: Either kind.
        given: Its arguments.
        around: Runs what runs in a thread.
    """
    from asyncio import to_thread
    from inspect import isawaitable, iscoroutinefunction

    if iscoroutinefunction(compute) or iscoroutinefunction(
        getattr(compute, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await compute(*given)
    made = await to_thread(around, lambda: compute(*given))
    return await made if isawaitable(made) else made


class Call:
    """One call.

    Args:
        front: Whose it is.
        subject: What events name.
        look: Finds a hit, or returns None.
        key: Gives the key to keep the result under, or raises UncacheableError.
        sign: Gives the signatures of the files to be read, as they are now.
        entry: Makes an entry of a response and signatures, or None.
        wait: Seconds after which another's flight is not waited for.
        is_slow: Whether to name and to look may take long, as reading files does.

    Raises:
        ConfigError: *wait* is below zero or no number.
    """

    __slots__ = (
        "_began",
        "_entry",
        "_front",
        "_is_slow",
        "_is_told",
        "_key",
        "_look",
        "_may_keep",
        "_may_look",
        "_name",
        "_response",
        "_sign",
        "_signed",
        "_subject",
        "_ticket",
        "_wait",
    )

    def __init__(
        self,
        front: Front,
        subject: Any,
        *,
        look: Callable[[], Hit | None],
        key: Callable[[], str],
        sign: Callable[[], dict[str, Any]],
        entry: Callable[[Any, dict[str, Any]], Entry | None],
        wait: float,
        is_slow: bool = False,
    ) -> None:
        if type(wait) not in (int, float) or not 0 <= wait < float("inf"):
            raise ConfigError(f"wait={wait!r}: choose a number of seconds, 0 or more")
        self._began = time.perf_counter()
        self._front = front
        self._subject = subject
        self._look = look
        self._key = key
        self._sign = sign
        self._entry = entry
        self._wait = wait
        self._is_slow = is_slow
        self._name = ""
        self._signed: dict[str, Any] = {}
        self._ticket: Ticket | None = None
        self._response: Any = None
        self._is_told = False
        is_set = are_set()
        is_off = is_set and is_on(DISABLE)
        self._may_look = not (is_off or (is_set and is_on(REFRESH)))
        self._may_keep = not (is_off or (is_set and is_on(READONLY)))

    def run(self, compute: Callable[[], Any]) -> Any:
        """Return what is kept, or what *compute* gives."""

        def make() -> None:
            self._begin()
            self._response = compute()
            self._keep()

        hit = self._quick_look()
        if hit is None:
            if self._may_look and self._may_keep:
                hit = self._front._flights().run(self._name, self._look_again, make, self._wait)
            else:
                make()
        return self._result(hit)

    async def arun(self, compute: Callable[[], Awaitable[Any]]) -> Any:
        """Return what is kept, or what *compute* gives, without stopping the event loop."""
        from asyncio import to_thread

        async def make() -> None:
            self._begin()
            self._response = await compute()
            await to_thread(self._keep)  # it may wait for the lock and for the disk

        hit = await to_thread(self._quick_look) if self._is_slow else self._quick_look()
        if hit is None:
            if self._may_look and self._may_keep:
                flights = self._front._flights()
                hit = await flights.arun(self._name, self._look_again, make, self._wait)
            else:
                await make()
        return self._result(hit)

    def look(self) -> Hit | None:
        """Return a hit, or note what is before a run whose result :meth:`keep` gets.

        For what can't be waited for: a stream has no end that others could see.
        """
        hit = self._quick_look()
        if hit is not None:
            self._result(hit)
            return hit
        if self._may_look and self._may_keep:
            self._prepare()
        self._begin()
        return None

    def keep(self, response: Any) -> None:
        """Keep *response*, if nothing has come between."""
        self._response = response
        self._keep()

    def _quick_look(self) -> Hit | None:
        """Look without a ticket, since most calls are hits; else name what is wanted."""
        hit = self._look() if self._may_look else None
        if hit is None and self._may_keep:
            try:
                self._name = self._key()
            except UncacheableError:
                self._may_keep = False
                self._refuse()
        return hit

    def _look_again(self) -> Hit | None:
        """Look, after taking down what there was before."""
        self._prepare()
        return self._look()

    def _prepare(self) -> None:
        self._ticket = self._front._ticket(self._name)
        self._signed = self._sign()

    def _begin(self) -> None:
        """Note that a computation begins."""
        front = self._front
        self._is_told = True
        if self._may_look:
            front._misses += 1
            front._tell("miss", self._subject, self._began)
        else:
            front._bypassed += 1
            front._tell("bypass", self._subject, self._began)
            if self._may_keep:
                self._prepare()

    def _keep(self) -> None:
        if not self._may_keep:
            return
        signed = self._signed
        if signed:
            from ._paths import follow

            signed = follow(signed)
        try:
            self._front._commit(
                self._subject,
                lambda: self._entry(self._response, signed),
                time.perf_counter(),
                self._ticket,
            )
        except UncacheableError:
            self._refuse()

    def _refuse(self) -> None:
        self._front._refused += 1
        self._front._tell("refuse", self._subject, time.perf_counter())

    def _result(self, hit: Hit | None) -> Any:
        if hit is None:
            return self._response
        if not self._is_told:
            self._front._hits += 1
            self._front._tell("hit", self._subject, self._began, hit.age)
        return hit.response
