"""For the tests of code that uses respcache."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """A clock that stands still until it is told to go on.

    Pass it as ``clock=``. It has a wall time and a monotonic one, so that a
    test can set the wall clock back, as administrators and time servers do.

    Args:
        now: Where the wall clock starts, in seconds since the epoch.
    """

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self._wall = float(now)
        self._monotonic = 0.0

    def __call__(self) -> float:
        """Return the wall time, in seconds since the epoch."""
        return self._wall

    def monotonic(self) -> float:
        """Return the monotonic time, in seconds since the clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards by {-seconds} s; see set_wall")
        self._wall += seconds
        self._monotonic += seconds

    def set_wall(self, now: float) -> None:
        """Set the wall clock to *now*, forward or back, while no time passes."""
        self._wall = float(now)
