"""Single flight with plain functions and counters: no files, no storage.

Threads are staged by events. A waiting caller is known by its sleeps, so the
injected sleep tells when it waits; the deadlines below only end a test that hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from respcache._flight import Flights
from respcache._lock import pauses

HANGS = 30.0


class Counted:
    """A function that counts, and may wait for its release."""

    def __init__(self, work: Callable[[], Any] | None = None) -> None:
        self.calls = 0
        self.began = threading.Event()
        self.release = threading.Event()
        self._work = work
        self._mutex = threading.Lock()

    def __call__(self) -> Any:
        with self._mutex:
            self.calls += 1
        self.began.set()
        return self._work() if self._work is not None else None

    def held(self) -> Any:
        """Do the same, after the release."""
        with self._mutex:
            self.calls += 1
        self.began.set()
        assert self.release.wait(HANGS)
        return self._work() if self._work is not None else None


class Waiting:
    """A sleep that notes which threads wait."""

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        """How many threads have waited."""
        return len(self._threads)

    def __call__(self, seconds: float) -> None:
        with self._changed:
            self._threads.add(threading.get_ident())
            self._changed.notify_all()
        time.sleep(min(seconds, 0.001))

    def until(self, count: int) -> None:
        """Return when so many threads have begun to wait."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._threads) >= count, HANGS)


class FakeMarks:
    """Marks of other processes, kept in a set: each test plays the others."""

    def __init__(self) -> None:
        self.theirs: set[int] = set()
        self.ours: set[int] = set()

    def take(self, byte: int) -> bool:
        if byte in self.theirs:
            return False
        self.ours.add(byte)
        return True

    def is_taken(self, byte: int) -> bool:
        return byte in self.theirs

    def free(self, byte: int) -> None:
        self.ours.discard(byte)

    def close(self) -> None:
        self.ours.clear()


class Table:
    """Where results are kept: a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def look(self, key: str) -> Callable[[], Any]:
        return lambda: self.kept.get(key)

    def keep(self, key: str, value: Any) -> Callable[[], None]:
        return lambda: self.kept.__setitem__(key, value)


class Threads:
    """Threads whose results and errors are collected, and that are always joined."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.results: list[Any] = []
        self.errors: list[BaseException] = []

    def start(self, work: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            try:
                self.results.append(work())
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        for thread in self._threads:
            thread.join(HANGS)
        assert not any(thread.is_alive() for thread in self._threads), "a thread hangs"


@pytest.fixture
def sleep() -> Waiting:
    return Waiting()


@pytest.fixture
def marks() -> FakeMarks:
    return FakeMarks()


@pytest.fixture
def flights(sleep: Waiting, marks: FakeMarks) -> Flights:
    return Flights(marks, lambda key: sum(key.encode()), pauses, sleep)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.join()


class TestOneCaller:
    def test_what_is_found_is_not_called(self, flights: Flights, table: Table) -> None:
        table.kept["k"] = "kept"
        call = Counted()

        assert flights.run("k", table.look("k"), call, HANGS) == "kept"
        assert call.calls == 0

    def test_what_is_not_found_is_called_once(self, flights: Flights, table: Table) -> None:
        call = Counted(table.keep("k", "made"))

        assert flights.run("k", table.look("k"), call, HANGS) is None
        assert flights.run("k", table.look("k"), call, HANGS) == "made"
        assert call.calls == 1

    def test_nothing_is_left_of_a_flight(
        self, flights: Flights, marks: FakeMarks, table: Table
    ) -> None:
        flights.run("k", table.look("k"), Counted(), HANGS)

        assert flights._here == {}
        assert marks.ours == set()

    def test_error_passes_through_unchanged_and_frees_the_flight(
        self, flights: Flights, marks: FakeMarks, table: Table
    ) -> None:
        error = RuntimeError("model down")

        def fail() -> None:
            raise error

        with pytest.raises(RuntimeError) as caught:
            flights.run("k", table.look("k"), fail, HANGS)

        assert caught.value is error
        assert marks.ours == set()
        assert flights.run("k", table.look("k"), Counted(), HANGS) is None

    def test_error_of_the_look_frees_the_flight(self, flights: Flights, marks: FakeMarks) -> None:
        def fail() -> None:
            raise OSError("look failed")

        with pytest.raises(OSError, match="look failed"):
            flights.run("k", fail, Counted(), HANGS)

        assert flights._here == {}
        assert marks.ours == set()

    def test_works_without_marks(self, sleep: Waiting, table: Table) -> None:
        flights = Flights(None, len, pauses, sleep)

        assert flights.run("k", table.look("k"), table.keep("k", 1), HANGS) is None
        assert flights.run("k", table.look("k"), Counted(), HANGS) == 1
        flights.close()


class TestNested:
    def test_same_key_within_its_own_call_is_called_directly(
        self, flights: Flights, table: Table, marks: FakeMarks
    ) -> None:
        inner = Counted(table.keep("k", "inner"))

        def outer() -> None:
            assert flights.run("k", table.look("k"), inner, HANGS) is None
            assert marks.ours == {sum(b"k")}, "the outer flight goes on"

        flights.run("k", table.look("k"), outer, HANGS)

        assert inner.calls == 1
        assert marks.ours == set()

    def test_another_key_within_a_call_has_a_flight_of_its_own(
        self, flights: Flights, table: Table, marks: FakeMarks
    ) -> None:
        def outer() -> None:
            flights.run("b", table.look("b"), lambda: seen.append(set(marks.ours)), HANGS)

        seen: list[set[int]] = []
        flights.run("a", table.look("a"), outer, HANGS)

        assert seen == [{sum(b"a"), sum(b"b")}]

    def test_same_key_of_another_cache_is_another_flight(
        self, flights: Flights, table: Table, sleep: Waiting
    ) -> None:
        other = Flights(None, len, pauses, sleep)
        inner = Counted()
        flights.run("k", table.look("k"), lambda: other.run("k", lambda: None, inner, 0), HANGS)

        assert inner.calls == 1

    def test_same_key_within_a_task_of_its_own_call(self, flights: Flights, table: Table) -> None:
        inner = Counted(table.keep("k", "inner"))

        async def outer() -> None:
            async def call() -> None:
                inner()

            task = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.wait_for(task, HANGS)

        asyncio.run(flights.arun("k", table.look("k"), outer, HANGS))

        assert inner.calls == 1

    def test_two_keys_crosswise_do_not_wait_for_each_other(
        self, flights: Flights, table: Table, threads: Threads, sleep: Waiting
    ) -> None:
        """E20: who leads never waits, or each would wait until its patience ends."""
        both = threading.Barrier(2)
        calls = {"a": Counted(), "b": Counted()}

        def start(key: str, other: str) -> None:
            def outer() -> None:
                both.wait(HANGS)
                flights.run(other, table.look(other), calls[other], 0.5)
                both.wait(HANGS)

            threads.start(lambda: flights.run(key, table.look(key), outer, HANGS))

        start("a", "b")
        start("b", "a")
        threads.join()

        assert threads.errors == []
        assert [call.calls for call in calls.values()] == [1, 1]
        assert sleep.count == 0


class TestThreads:
    def test_twenty_callers_call_once_and_all_get_the_value(
        self, flights: Flights, table: Table, threads: Threads, sleep: Waiting
    ) -> None:
        """R37"""
        call = Counted(table.keep("k", "made"))
        for _ in range(20):
            threads.start(
                lambda: flights.run("k", table.look("k"), call.held, HANGS) or table.kept["k"]
            )
        sleep.until(19)
        call.release.set()
        threads.join()

        assert call.calls == 1
        assert threads.results == ["made"] * 20

    def test_leader_fails_and_nobody_hangs(
        self, flights: Flights, table: Table, threads: Threads, sleep: Waiting
    ) -> None:
        """R37: the error is the leader's alone, the others compute."""
        leading = Counted()

        def fail() -> None:
            leading.held()
            raise RuntimeError("model down")

        threads.start(lambda: flights.run("k", table.look("k"), fail, HANGS))
        assert leading.began.wait(HANGS)
        call = Counted(table.keep("k", "made"))
        for _ in range(5):
            threads.start(lambda: flights.run("k", table.look("k"), call, HANGS) or table.kept["k"])
        sleep.until(5)
        leading.release.set()
        threads.join()

        assert [str(error) for error in threads.errors] == ["model down"]
        assert threads.results == ["made"] * 5
        assert call.calls >= 1

    def test_refused_results_do_not_queue(
        self, flights: Flights, table: Table, threads: Threads, sleep: Waiting
    ) -> None:
        """E20: if nothing was kept, all who waited compute at once, not one after the other."""
        leading = Counted()
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)
        together = threading.Barrier(7)
        for _ in range(7):
            threads.start(
                lambda: flights.run("k", table.look("k"), lambda: together.wait(HANGS), HANGS)
            )
        sleep.until(7)
        leading.release.set()
        threads.join()

        assert threads.errors == []
        assert not together.broken

    def test_follower_looks_again_and_takes_nothing_from_the_leader(
        self, flights: Flights, table: Table, threads: Threads, sleep: Waiting
    ) -> None:
        """E06: what the leader made was overtaken, so it kept nothing."""
        leading = Counted(lambda: "old value")
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)
        follower = Counted(table.keep("k", "new value"))
        threads.start(lambda: flights.run("k", table.look("k"), follower, HANGS))
        sleep.until(1)
        leading.release.set()
        threads.join()

        assert follower.calls == 1
        assert table.kept == {"k": "new value"}

    def test_different_keys_never_wait(
        self, flights: Flights, table: Table, threads: Threads
    ) -> None:
        """R37: all are inside together, which waiting would make impossible."""
        together = threading.Barrier(8)
        for key in "abcdefgh":
            threads.start(
                lambda key=key: flights.run(  # type: ignore[misc]
                    key, table.look(key), lambda: together.wait(HANGS), HANGS
                )
            )
        threads.join()

        assert threads.errors == []

    def test_caller_computes_for_itself_when_its_wait_is_over(
        self, flights: Flights, table: Table, threads: Threads
    ) -> None:
        leading = Counted()
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)
        mine = Counted()
        try:
            flights.run("k", table.look("k"), mine, 0)
            flights.run("k", table.look("k"), mine, 0.01)
        finally:
            leading.release.set()

        assert mine.calls == 2

    def test_who_stops_waiting_leaves_the_flight_to_its_leader(
        self,
        flights: Flights,
        table: Table,
        threads: Threads,
        sleep: Waiting,
        marks: FakeMarks,
    ) -> None:
        leading = Counted(table.keep("k", "made"))
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)
        flights.run("k", table.look("k"), Counted(), 0)

        assert marks.ours == {sum(b"k")}

        late = Counted()
        threads.start(lambda: flights.run("k", table.look("k"), late, HANGS))
        sleep.until(1)
        leading.release.set()
        threads.join()

        assert late.calls == 0
        assert marks.ours == set()

    def test_waiter_that_is_interrupted_leaves_nothing(
        self, table: Table, threads: Threads, marks: FakeMarks
    ) -> None:
        def interrupted(seconds: float) -> None:
            raise KeyboardInterrupt

        flights = Flights(marks, len, pauses, interrupted)
        leading = Counted()
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)
        try:
            with pytest.raises(KeyboardInterrupt):
                flights.run("k", table.look("k"), Counted(), HANGS)
            assert list(flights._here) == ["k"]
        finally:
            leading.release.set()
        threads.join()

        assert flights._here == {}
        assert flights.run("k", table.look("k"), Counted(), 0) is None


class TestOtherProcesses:
    def test_who_meets_anothers_mark_waits_and_looks_again(
        self,
        flights: Flights,
        table: Table,
        threads: Threads,
        sleep: Waiting,
        marks: FakeMarks,
    ) -> None:
        marks.theirs.add(sum(b"k"))
        call = Counted()
        threads.start(lambda: flights.run("k", table.look("k"), call, HANGS))
        sleep.until(1)
        table.kept["k"] = "theirs"
        marks.theirs.clear()
        threads.join()

        assert threads.results == ["theirs"]
        assert call.calls == 0

    def test_dead_leader_frees_its_flight(
        self,
        flights: Flights,
        table: Table,
        threads: Threads,
        sleep: Waiting,
        marks: FakeMarks,
    ) -> None:
        """The system takes the mark away with the process; nothing was kept."""
        marks.theirs.add(sum(b"k"))
        call = Counted(table.keep("k", "made"))
        threads.start(lambda: flights.run("k", table.look("k"), call, HANGS))
        sleep.until(1)
        marks.theirs.clear()
        threads.join()

        assert call.calls == 1

    def test_leading_holds_a_mark_for_the_others(
        self, flights: Flights, table: Table, marks: FakeMarks
    ) -> None:
        seen: list[set[int]] = []
        flights.run("k", table.look("k"), lambda: seen.append(set(marks.ours)), HANGS)

        assert seen == [{sum(b"k")}]
        assert marks.ours == set()

    def test_forked_child_leads_on_its_own(self, flights: Flights, table: Table) -> None:
        """E18: a child keeps no flight of a leader that lives in its parent."""
        call = Counted()

        def outer() -> None:
            flights._forked()
            assert flights._here == {}

        flights.run("k", table.look("k"), outer, HANGS)
        flights.run("k", table.look("k"), call, 0)

        assert call.calls == 1


class TestCoroutines:
    def test_many_tasks_call_once(self, flights: Flights, table: Table) -> None:
        """R37"""
        calls = 0

        async def main() -> list[Any]:
            everyone = 0
            begun = asyncio.Event()

            async def call() -> None:
                nonlocal calls
                calls += 1
                await asyncio.wait_for(begun.wait(), HANGS)
                table.kept["k"] = "made"

            async def one() -> Any:
                nonlocal everyone
                everyone += 1
                if everyone == 20:
                    begun.set()
                return await flights.arun("k", table.look("k"), call, HANGS) or table.kept["k"]

            return await asyncio.gather(*[one() for _ in range(20)])

        assert asyncio.run(main()) == ["made"] * 20
        assert calls == 1

    def test_loop_goes_on_while_a_coroutine_waits(self, flights: Flights, table: Table) -> None:
        """The leader is in the same loop: a waiter that stopped it would wait for ever."""

        async def main() -> tuple[Any, Any]:
            release = asyncio.Event()

            async def call() -> None:
                await asyncio.wait_for(release.wait(), HANGS)
                table.kept["k"] = "made"

            leader = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0)
            follower = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0)
            release.set()
            return await leader, await follower

        assert asyncio.run(main()) == (None, "made")

    def test_cancelled_leader_does_not_cancel_its_followers(
        self, flights: Flights, table: Table, marks: FakeMarks
    ) -> None:
        """E20"""

        async def main() -> list[Any]:
            async def never() -> None:
                await asyncio.Event().wait()

            async def call() -> None:
                table.kept["k"] = "made"

            leader = asyncio.create_task(flights.arun("k", table.look("k"), never, HANGS))
            await asyncio.sleep(0)
            followers = [
                asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            leader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leader
            return await asyncio.wait_for(asyncio.gather(*followers), HANGS)

        results = asyncio.run(main())

        assert set(results) <= {None, "made"}
        assert table.kept == {"k": "made"}
        assert marks.ours == set()

    def test_cancelled_follower_leaves_the_leader_alone(
        self, flights: Flights, table: Table, marks: FakeMarks
    ) -> None:
        """E20: a dead waiter holds nothing up."""

        async def main() -> None:
            release = asyncio.Event()

            async def call() -> None:
                await asyncio.wait_for(release.wait(), HANGS)
                table.kept["k"] = "made"

            leader = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0)
            follower = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0)
            follower.cancel()
            with pytest.raises(asyncio.CancelledError):
                await follower
            assert marks.ours == {sum(b"k")}
            release.set()
            await leader

        asyncio.run(main())

        assert table.kept == {"k": "made"}
        assert marks.ours == set()

    def test_leaders_error_is_the_leaders_alone(self, flights: Flights, table: Table) -> None:
        """R37"""

        async def main() -> list[Any]:
            release = asyncio.Event()

            async def fail() -> None:
                await asyncio.wait_for(release.wait(), HANGS)
                raise RuntimeError("model down")

            async def call() -> None:
                table.kept["k"] = "made"

            leader = asyncio.create_task(flights.arun("k", table.look("k"), fail, HANGS))
            await asyncio.sleep(0)
            follower = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0)
            release.set()
            return await asyncio.gather(leader, follower, return_exceptions=True)

        leader, follower = asyncio.run(main())

        assert isinstance(leader, RuntimeError)
        assert follower is None
        assert table.kept == {"k": "made"}

    def test_task_and_thread_share_a_flight(
        self, flights: Flights, table: Table, threads: Threads
    ) -> None:
        leading = Counted(table.keep("k", "made"))
        threads.start(lambda: flights.run("k", table.look("k"), leading.held, HANGS))
        assert leading.began.wait(HANGS)

        async def main() -> Any:
            async def call() -> None:
                raise AssertionError("called again")

            task = asyncio.create_task(flights.arun("k", table.look("k"), call, HANGS))
            await asyncio.sleep(0.01)
            assert not task.done()
            leading.release.set()
            return await task

        assert asyncio.run(main()) == "made"
