"""Threads that come to a new cache at once: what is made on the way counts for all."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading

import pytest

from respcache import Cache, _lock
from respcache._flight import Flights
from respcache._lock import RangeLock

LONG = 30.0  # seconds after which a test that hangs fails


def at_once(work):
    found = []
    threads = [
        threading.Thread(target=lambda number=number: found.append(work(number)))
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    return found


@pytest.mark.parametrize("suffix", [None, "json"], ids=["memory", "file"])
def test_threads_share_the_flights_of_one_cache(tmp_path, monkeypatch, suffix):
    both = threading.Barrier(2)
    real = Flights.__init__

    def meet(self, *given):
        both.wait(LONG)
        real(self, *given)

    monkeypatch.setattr(Flights, "__init__", meet)
    cache = Cache(suffix and tmp_path / f"a.{suffix}")

    one, other = at_once(lambda _: cache._flights())

    assert one is other


@pytest.mark.skipif(sys.platform != "linux", reason="needs OFD locks")
def test_threads_hold_their_bytes_by_one_descriptor(tmp_path, monkeypatch):
    path = str(tmp_path / "a.flight")
    both = threading.Barrier(2)
    real = _lock.open_sibling

    def meet(*given):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # only a wrong one meets the other here
        return real(*given)

    monkeypatch.setattr(_lock, "open_sibling", meet)
    marks = RangeLock(path, 0o600)
    at_once(marks.take)
    gc.collect()

    assert [RangeLock(path, 0o600).is_taken(byte) for byte in range(2)] == [True, True]
