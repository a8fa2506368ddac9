"""What was measured: samples, groups of them, tables; as text for people and as JSON."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

SUBJECT = "respcache"
LOG = "respcache log"
_LIBRARIES = ("respcache", "diskcache", "lmdb", "filelock", "portalocker", "orjson")
_SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0, "KB": 1 / 1024, "MB": 1 / 2**20}


@dataclass(frozen=True)
class Sample:
    """What one contender took: the median of its values, and how bad they get.

    Attributes:
        p95: What 95 of 100 values stay within: above it in a rate, else below.
        worst: The worst of all.
        lost: How many entries were acknowledged and not found afterwards; None:
            not counted.
    """

    name: str
    median: float
    p95: float
    p99: float
    worst: float
    unit: str
    n: int
    lost: int | None = None

    @classmethod
    def of(cls, name: str, values: Iterable[float], unit: str, lost: int | None = None) -> Self:
        """Sum up *values*: seconds or bytes, or per second if *unit* is a rate (``/s``)."""
        is_rate = unit.endswith("/s")
        scale = 1.0 if is_rate else _SCALES[unit]
        ordered = sorted((value * scale for value in values), reverse=is_rate)
        p95, p99 = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (95, 99))
        return cls(
            name, statistics.median(ordered), p95, p99, ordered[-1], unit, len(ordered), lost
        )


@dataclass(frozen=True)
class Reach:
    """What a contender is to reach: at least so much of a rate, at most so much of all else.

    Args:
        bound: How often the figure of *against*; if that is None, in the unit
            of the samples.
        against: The sample that it is compared with.
        subject: The sample that is to reach it.
        figure: Which of their figures.
    """

    bound: float
    against: str | None = None
    subject: str = SUBJECT
    figure: str = "median"


@dataclass(frozen=True)
class Verdict:
    """What became of a reach.

    Attributes:
        value: How often the figure of the other, or the figure itself.
    """

    reach: Reach
    unit: str
    value: float

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def is_reached(self) -> bool:
        return self.value >= self.reach.bound if self.is_rate else self.value <= self.reach.bound

    @property
    def measured(self) -> str:
        if self.reach.against is None:
            return f"{_number(self.value)} {self.unit}"
        return f"{_ratio(self.value)} x {self.reach.against}"

    @property
    def asked(self) -> str:
        return f"at {'least' if self.is_rate else 'most'} {self.reach.bound:g}"

    @property
    def outcome(self) -> str:
        return "reached" if self.is_reached else "**not reached**"


@dataclass(frozen=True)
class Group:
    """Samples of one job, and what some of them are to reach."""

    label: str
    samples: Sequence[Sample]
    reaches: Sequence[Reach] = ()

    def ratio(self, sample: Sample, base: str, figure: str = "median") -> float | None:
        """Return how often *sample* holds the figure of *base*; None if that is missing."""
        figures = {each.name: getattr(each, figure) for each in self.samples}
        return getattr(sample, figure) / figures[base] if figures.get(base) else None

    def verdicts(self) -> list[Verdict]:
        """Return what became of each reach that was measured."""
        samples = {each.name: each for each in self.samples}
        verdicts = []
        for reach in self.reaches:
            own = samples.get(reach.subject)
            if own is None:
                continue
            if reach.against is None:
                value = getattr(own, reach.figure)
            else:
                value = self.ratio(own, reach.against, reach.figure)
            if value is not None:
                verdicts.append(Verdict(reach, own.unit, value))
        return verdicts


@dataclass(frozen=True)
class Table:
    """The groups of one question.

    Args:
        name: What the plots know it by.
        against: The samples that the others get a column of ratios to.
        figures: The columns of figures.
        heads: The names of the first two columns.
    """

    title: str
    groups: Sequence[Group]
    against: Sequence[str] = ()
    name: str = ""
    figures: Sequence[str] = ("median", "p95")
    heads: Sequence[str] = ("", "contender")

    def __str__(self) -> str:
        samples = [sample for group in self.groups for sample in group.samples]
        names = {sample.name for sample in samples}
        bases = [base for base in self.against if base in names]
        losses = ["lost"] if any(sample.lost is not None for sample in samples) else []
        rows = [
            [*self.heads, *self.figures, "unit", "n", *losses, *(f"x {base}" for base in bases)]
        ]
        for group in self.groups:
            for place, sample in enumerate(group.samples):
                rows.append(
                    [
                        "" if place else group.label,
                        sample.name,
                        *(_number(getattr(sample, figure)) for figure in self.figures),
                        sample.unit,
                        str(sample.n),
                        *(["" if sample.lost is None else str(sample.lost)] if losses else []),
                        *(_ratio(group.ratio(sample, base)) for base in bases),
                    ]
                )
        words = {0, 1, 2 + len(self.figures)}
        return "\n".join([f"### {self.title}", "", *markdown(rows, words), *self._remarks(), ""])

    def _remarks(self) -> list[str]:
        lines = [
            f"- {group.label}: {verdict.reach.subject} is {verdict.measured}, "
            f"to reach {verdict.asked}: {verdict.outcome}"
            for group in self.groups
            for verdict in group.verdicts()
        ]
        lines += [
            f"- {group.label}: {sample.name} **lost {sample.lost}** of what it had acknowledged"
            for group in self.groups
            for sample in group.samples
            if sample.lost
        ]
        return ["", *lines] if lines else []

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "groups": [
                {
                    "label": group.label,
                    "samples": [
                        {
                            **asdict(sample),
                            "ratios": {base: group.ratio(sample, base) for base in self.against},
                        }
                        for sample in group.samples
                    ],
                    "reaches": [
                        {
                            **asdict(verdict.reach),
                            "value": verdict.value,
                            "is_reached": verdict.is_reached,
                        }
                        for verdict in group.verdicts()
                    ],
                }
                for group in self.groups
            ],
        }

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the table that :meth:`to_json` gave."""
        groups = [
            Group(
                group["label"],
                [_only(Sample, sample) for sample in group["samples"]],
                [_only(Reach, reach) for reach in group["reaches"]],
            )
            for group in table["groups"]
        ]
        return cls(**{**table, "groups": groups})


def _only(kind: type[Any], facts: dict[str, Any]) -> Any:
    """Return a *kind* of those *facts* that are its own: not what follows from them."""
    return kind(**{each.name: facts[each.name] for each in fields(kind)})


def samples_of(values: Mapping[str, Iterable[float]], unit: str) -> list[Sample]:
    return [Sample.of(name, each, unit) for name, each in values.items()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if 0.1 <= value < 100 else _number(value)


def markdown(rows: Sequence[Sequence[str]], words: Iterable[int]) -> list[str]:
    """Return the lines of a table; the columns *words* are no numbers."""
    words = set(words)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = (
        "| "
        + " | ".join(
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    )
    rule = "|".join(
        "-" * (width + 2) if column in words else "-" * (width + 1) + ":"
        for column, width in enumerate(widths)
    )
    return [head, f"|{rule}|", *body]


# Where it was measured.


def is_installed(name: str) -> bool:
    """Tell whether the library of that name is there; what is none is always there."""
    return name not in _LIBRARIES or find_spec(name) is not None


def environment() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    # Each child imports this module, and has no use for these.
    import platform
    import sqlite3
    from importlib import metadata

    versions = {name: metadata.version(name) for name in _LIBRARIES if is_installed(name)}
    return {
        "cpus": os.cpu_count(),
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {**versions, "SQLite": sqlite3.sqlite_version},
    }


def environment_line(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['cpus']} cores, {facts['kernel']} {facts['machine']}, {facts['python']}; "
        f"{versions}"
    )


# A run as a whole.

Tables = Mapping[str, Sequence[Table]]


@dataclass(frozen=True)
class Run:
    """All that one run measured, by benchmark, and how and where."""

    command: str
    seconds: float
    environment: Mapping[str, Any]
    benchmarks: Tables

    def write(self, path: Path) -> None:
        benchmarks = {
            name: [table.to_json() for table in tables] for name, tables in self.benchmarks.items()
        }
        text = json.dumps({**vars(self), "benchmarks": benchmarks}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the run that was written to *path*."""
        document = json.loads(path.read_text(encoding="utf-8"))
        benchmarks = {
            name: [Table.from_json(table) for table in tables]
            for name, tables in document["benchmarks"].items()
        }
        return cls(**{**document, "benchmarks": benchmarks})
