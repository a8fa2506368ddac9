"""For the tests of code that uses respcache."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._paths import PathLike
    from ._recording import Item
    from ._steps import StepCache
    from .replay import Report

__all__ = ["FakeClock", "assert_replay"]


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


def assert_replay(
    recording: PathLike, run: Callable[[Item, StepCache], Any], **options: Any
) -> Report:
    """Fail, with the whole report, unless a replay of *recording* passes; return the report.

    Args:
        recording: As in :func:`respcache.replay.replay`.
        run: As there.
        options: As there: ``hit_budget=``, and the others.

    Raises:
        AssertionError: A check did not pass.
        ConfigError: As there.
    """
    __tracebackhide__ = True
    from .replay import replay

    report = replay(recording, run, **options)
    if not report.passed:
        raise AssertionError(f"the replay of {recording} did not pass\n\n{report}")
    return report
