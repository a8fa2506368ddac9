"""Replay a recording of a pipeline, to tell whether its cache may be switched on.

::

    with steps.record("runs.jsonl"):
        pipeline(steps)

    report = replay("runs.jsonl", run, hit_budget=0.4)
    print(report)

where ``run(item, steps)`` runs one recorded item through a cache that replay owns.
A replay that passes is necessary, not sufficient: it tries what was recorded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from ._json import encode
from ._recording import Item, read, read_all
from ._rehearsal import Rehearsal
from ._steps import StepCache, checked_budgets
from .errors import ConfigError, RespcacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._paths import PathLike

    Tell = Callable[[str, int, int], None]

__all__ = ["Check", "Item", "Report", "read", "replay"]

_ROUNDING = 1e-9


class Check:
    """One question that a replay asks.

    Attributes:
        name: What was asked.
        passed: Whether nothing is wrong.
        summary: What was seen.
        problems: What is wrong, each with the step, source or line.
    """

    __slots__ = ("name", "passed", "problems", "summary")

    def __init__(self, name: str, summary: str, problems: list[str]) -> None:
        self.name = name
        self.summary = summary
        self.problems = problems
        self.passed = not problems

    def __repr__(self) -> str:
        return f"Check({self.name!r}, passed={self.passed}, problems={self.problems!r})"


class Report:
    """What a replay has found; print it.

    Attributes:
        checks: The questions, in the order of the report.
        steps: By name of step: its ``leaf``, ``runs``, ``hits``, and ``wrong`` ones of those.
        runs: How many runs of steps there were, with the cache on.
        hits: How many of them were served.
        wrong: How many of those were served what a fresh run does not make.
        sources: How many sources were changed.
    """

    __slots__ = ("checks", "hits", "runs", "sources", "steps", "wrong")

    def __init__(self, checks: list[Check], steps: dict[str, dict[str, Any]], sources: int) -> None:
        self.checks = checks
        self.steps = steps
        self.sources = sources
        self.runs: int = sum(step["runs"] for step in steps.values())
        self.hits: int = sum(step["hits"] for step in steps.values())
        self.wrong: int = sum(step["wrong"] for step in steps.values())

    @property
    def passed(self) -> bool:
        """Whether all checks passed: the cache may be switched on."""
        return all(check.passed for check in self.checks)

    @property
    def hit_rate(self) -> float:
        """The share of runs that were served."""
        return self.hits / self.runs if self.runs else 0.0

    @property
    def valid_hit_rate(self) -> float:
        """The share of runs that were served what a fresh run makes as well."""
        return (self.hits - self.wrong) / self.runs if self.runs else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "passed": self.passed,
            "runs": self.runs,
            "hits": self.hits,
            "wrong": self.wrong,
            "hit_rate": self.hit_rate,
            "valid_hit_rate": self.valid_hit_rate,
            "sources": self.sources,
            "steps": self.steps,
            "checks": [
                {
                    "name": check.name,
                    "passed": check.passed,
                    "summary": check.summary,
                    "problems": check.problems,
                }
                for check in self.checks
            ],
        }

    def __str__(self) -> str:
        """Return a table of the steps and one of the checks, with what is wrong below each."""
        rows: list[tuple[str, ...]] = [("step", "leaf", "runs", "hits", "wrong", "hit rate")]
        rows += [
            (
                name,
                step["leaf"],
                str(step["runs"]),
                str(step["hits"]),
                str(step["wrong"]),
                f"{step['hits'] / step['runs']:.2f}",
            )
            for name, step in self.steps.items()
        ]
        return "\n".join([*_aligned(rows), *self.verdict()])

    def verdict(self) -> list[str]:
        """Return the checks, with what is wrong below each, and what follows, as lines."""
        lines = [""]
        names = max(len(check.name) for check in self.checks)
        for check in self.checks:
            mark = "pass" if check.passed else "FAIL"
            lines.append(f"{mark}  {check.name:<{names}}  {check.summary}")
            lines += [f"      - {problem}" for problem in check.problems]
        verdict = "may be switched on" if self.passed else "must not be switched on"
        return [*lines, "", f"This cache {verdict}."]

    def __repr__(self) -> str:
        return f"Report(passed={self.passed}, hit_rate={self.hit_rate:.2f}, checks={self.checks!r})"


def replay(
    recording: PathLike,
    run: Callable[[Item, StepCache], Any],
    *,
    hit_budget: float | Mapping[str, float],
    tolerance: float = 0.15,
    same: Callable[[Any, Any], object] | None = None,
    make: Callable[..., StepCache] = StepCache,
    tell: Tell | None = None,
) -> Report:
    """Run what was recorded through a cache, and tell what is wrong with it.

    Five checks. The hit rate is near the budget, and no run was served an
    output that was made for other inputs. Each source of a kept step is changed
    in a private copy, and the next run misses. Off, the cache gives the same
    outputs, serves nothing and touches no file. Every hit is what a fresh run
    makes. No kept step opens files that it did not declare.

    All of it happens in a process of its own (where there is no ``fork``, in this one),
    on a cache and on copies in a temporary folder; originals are not written.
    Each item runs once with the cache off, once more where the cache does not
    serve it, and once more for each source that it reads. External writes that
    were recorded are declared again. The clock follows the recording.

    Args:
        recording: The file that :meth:`StepCache.record` wrote; relative inputs
            are looked for in the working folder.
        run: Runs one :class:`Item` through a StepCache, a plain or a coroutine
            function; returns its output. It must read ``item.inputs``, which
            are the copies.
        hit_budget: The share of runs that is expected to be served; or by name
            of step, the share of its runs.
        tolerance: How far the hit rate may be from it, either way.
        same: Compares two outputs, where equal ones may differ. None: equal as JSON.
        make: Makes the cache, with a path, ``model=`` and ``clock=``: StepCache,
            or a function that adds the options of yours.
        tell: Gets the name of a pass, how many items are done, and of how many.

    Raises:
        ConfigError: The recording can't be read or is empty, or an option is not
            what it may be.
        RespcacheError: The process was killed, or *same*, *make* or *tell* failed in it.
    """
    budgets = _checked(hit_budget, tolerance)
    items = read_all(recording)
    if not any(isinstance(each, Item) for each in items):
        raise ConfigError(f"{os.fspath(recording)}: holds no recorded runs")
    with tempfile.TemporaryDirectory(prefix="respcache-replay-") as folder:

        def play(tell: Tell) -> dict[str, Any]:
            return Rehearsal(
                items,
                run,
                same=same or _are_equal,
                make=make,
                folder=os.path.realpath(folder),
                tell=tell,
            ).play()

        seen = _apart(play, tell or _say_nothing)
    return _report(seen, budgets, tolerance)


def _checked(hit_budget: Any, tolerance: Any) -> dict[str, float]:
    if type(tolerance) not in (int, float) or not 0 <= tolerance <= 1:
        raise ConfigError(f"tolerance={tolerance!r}: choose a share of the runs, from 0 to 1")
    if hasattr(hit_budget, "items"):
        return checked_budgets(hit_budget)
    if type(hit_budget) not in (int, float) or not 0 <= hit_budget <= 1:
        raise ConfigError(f"hit_budget={hit_budget!r}: choose a share of the runs, from 0 to 1")
    return {"": hit_budget}


def _report(seen: dict[str, Any], budgets: dict[str, float], tolerance: float) -> Report:
    steps, problems = seen["steps"], seen["problems"]
    report = Report([], steps, seen["sources"])
    rates = []
    for name, budget in budgets.items():
        if name and name not in steps:
            rates.append(f"{name} has a hit budget, and was never run")
            continue
        of = f"{name}: " if name else ""
        rate = steps[name]["hits"] / steps[name]["runs"] if name else report.hit_rate
        if abs(rate - budget) > tolerance + _ROUNDING:
            what = "below" if rate < budget else "above"
            rates.append(
                f"{of}hit rate {rate:.2f} is {what} the budget, {budget:g} ± {tolerance:g}"
            )
    absent = f"; inputs that are not there: {seen['missing']}" if seen["missing"] else ""
    kept = f"{report.hits} of {report.runs} runs were served"
    report.checks = [
        Check(
            "hit rate",
            f"{report.hit_rate:.2f}, valid {report.valid_hit_rate:.2f}: {kept}",
            [*rates, *problems["key"]],
        ),
        Check(
            "invalidation",
            f"sources that were changed: {report.sources}{absent}"
            if report.sources
            else "no kept step reads a source that could be changed",
            problems["invalidation"],
        ),
        Check("kill switch", "the same outputs with the cache off", problems["kill switch"]),
        Check("wrong hits", f"{report.wrong} of {report.hits} hits", problems["wrong"]),
        Check("declared reads", "files that steps opened", problems["undeclared"]),
    ]
    if problems["run"]:
        report.checks.append(Check("run", "items that could not be run", problems["run"]))
    return report


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return encode(one, sort=True) == encode(other, sort=True)
    except TypeError:  # outside the JSON domain
        return bool(one == other)


def _say_nothing(name: str, done: int, total: int) -> None:
    """Tell nobody."""


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _apart(work: Callable[[Tell], dict[str, Any]], tell: Tell) -> dict[str, Any]:
    """Return ``work(tell)``, done in a process of its own where there is ``fork``.

    A function that was defined anywhere can run there, without being pickled.
    """
    if not hasattr(os, "fork"):
        return work(tell)
    taken, given = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Of threads of ours, none of which holds what a step would wait for.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(taken)
        _work_and_exit(work, given)
    os.close(given)
    result: dict[str, Any] | None = None
    failed: str | None = None
    try:
        with open(taken, encoding="utf-8") as lines:
            for line in lines:
                kind, *said = json.loads(line)
                if kind == "told":
                    tell(*said)
                elif kind == "failed":
                    failed = said[0]
                else:
                    result = said[0]
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failed is not None:
        raise RespcacheError(f"the replay failed: {failed}")
    if result is None:
        raise RespcacheError(f"the process of the replay ended early, with {status}")
    return result


def _work_and_exit(work: Callable[[Tell], dict[str, Any]], given: int) -> None:
    status = 1
    try:
        os.dup2(2, 1)  # what steps print is talk
        sys.stdout = sys.stderr
        with open(given, "w", encoding="utf-8", buffering=1) as lines:

            def say(*said: Any) -> None:
                lines.write(json.dumps(said) + "\n")

            try:
                say("result", work(lambda *told: say("told", *told)))
            except Exception as error:
                say("failed", f"{type(error).__name__}: {error}")
                raise
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
