"""Draws the plots of a run. Only here is matplotlib imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._figures import LOG, SUBJECT, Group, Run, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = Path(__file__).with_name("plots")
_INCH = 100  # pixels
_COLOURS = 64  # enough for smooth edges, and a third of the bytes
_LOOKS = {
    LOG: ("#c1272d", "o"),
    SUBJECT: ("#e98b8e", "o"),
    "diskcache": ("#8a6d3b", "v"),
    "sqlite3": ("#2a7ab0", "s"),
    "lmdb": ("#3a9148", "^"),
    "files": ("#7f7f7f", "D"),
    "floor": ("#b9b9b9", "x"),
    "pass": ("#d0d0d0", "x"),
}
_RATES = {
    "rate-distinct-1": "1 KB, new keys",
    "rate-hot-1": "1 KB, hot keys",
    "rate-durable": "1 KB, new keys, durable",
    "rate-distinct-10": "10 KB, new keys",
    "rate-hot-10": "10 KB, hot keys",
    "rate-mixed": "9 lookups for 1 store, 1 KB",
}
_GROWTHS = {
    "growth-store": "a store",
    "growth-hit": "a hit",
    "growth-begin": "a fresh process's first two lookups",
    "growth-memory": "memory of a process, an entry",
}


def is_possible() -> bool:
    """Tell whether the plotting library is installed."""
    return find_spec("matplotlib") is not None


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw the plots that *run* has all figures for, and return their paths."""
    tables = {table.name: table for group in run.benchmarks.values() for table in group}
    plots: dict[str, tuple[Sequence[str], Callable[[list[Table]], Figure]]] = {
        "stores": (list(_RATES), _stores),
        "growth": (list(_GROWTHS), _growth),
        "after": (["after"], _after),
        "cold": (["cold-lean"], _cold),
        "hit": (["hit"], _hit),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (wanted, plot) in plots.items():
        if all(each in tables for each in wanted):
            paths.append(folder / f"{name}.png")
            _save(plot([tables[each] for each in wanted]), paths[-1])
    return paths


def _stores(tables: list[Table]) -> Figure:
    figure, places = _figure(2, 3, 12, 7)
    for table, axes in zip(tables, places, strict=True):
        sizes = [_count(group.label) for group in table.groups]
        for name in _names(table.groups):
            axes.plot(sizes, [_median(group, name) for group in table.groups], **_line(name))
        axes.set(title=_RATES[table.name], xscale="log", xlabel="processes")
        axes.set_xticks(sizes, map(str, sizes))
        axes.xaxis.minorticks_off()
        _logarithmic(axes)
    for axes in places[::3]:
        axes.set_ylabel("a second, in all")
    return _finished(figure, places[0], "How much several processes get done in one cache")


def _growth(tables: list[Table]) -> Figure:
    figure, places = _figure(2, 2, 10, 7)
    for table, axes in zip(tables, places, strict=True):
        for group in table.groups:
            sizes = [_count(sample.name) for sample in group.samples]
            # Memory that is not there, or less than before, has no logarithm.
            values = [each.median if each.median > 0 else float("nan") for each in group.samples]
            axes.plot(sizes, values, **_line(group.label))
        unit = table.groups[0].samples[0].unit
        axes.set(title=_GROWTHS[table.name], xscale="log", xlabel="entries", ylabel=unit)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        _logarithmic(axes)
    return _finished(figure, places[0], "How it grows with the entries")


def _after(tables: list[Table]) -> Figure:
    return _bars(tables[0], tables[0].groups, "A lookup right after another process's store")


def _cold(tables: list[Table]) -> Figure:
    hits = [group for group in tables[0].groups if group.label.startswith("hit")]
    return _bars(tables[0], hits, "One question to a fresh process: python -I -S -c")


def _hit(tables: list[Table]) -> Figure:
    return _bars(tables[0], tables[0].groups, "A warm hit")


def _bars(table: Table, groups: Sequence[Group], title: str) -> Figure:
    """Return bars of the medians, with a line up to p95."""
    figure, (axes,) = _figure(1, 1, 9, 4)
    names = _names(groups)
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        at, medians, rests = [], [], []
        for number, group in enumerate(groups):
            for sample in group.samples:
                if sample.name == name:
                    at.append(number + (place - (len(names) - 1) / 2) * width)
                    medians.append(sample.median)
                    rests.append(sample.p95 - sample.median)
        axes.bar(
            at,
            medians,
            width * 0.92,
            yerr=[[0] * len(rests), rests],
            color=_LOOKS[name][0],
            label=name,
            error_kw={"elinewidth": 0.8, "ecolor": "#555555"},
        )
    axes.set_xticks(range(len(groups)), [group.label for group in groups])
    axes.set_ylabel(f"{table.groups[0].samples[0].unit}, median; the line ends at p95")
    axes.grid(visible=False, axis="x")
    return _finished(figure, axes, title)


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_INCH, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes in places:
        axes.grid(color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, places


def _logarithmic(axes: Axes) -> None:
    """Let each power of ten on the left have the steps 1, 2 and 5."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(
        lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"
    )
    axes.yaxis.minorticks_off()


def _finished(figure: Figure, sample: Axes, title: str) -> Figure:
    """Return *figure* with its title, and the legend of *sample* below."""
    figure.suptitle(title)
    handles, labels = sample.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _line(name: str) -> dict[str, Any]:
    colour, marker = _LOOKS[name]
    width = 2.4 if name == LOG else 1.3
    return {"color": colour, "marker": marker, "linewidth": width, "markersize": 5, "label": name}


def _names(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(sample.name for group in groups for sample in group.samples))


def _median(group: Group, name: str) -> float:
    return next((each.median for each in group.samples if each.name == name), float("nan"))


def _count(words: str) -> int:
    """Return the number that *words* begin with."""
    return int(words.split()[0].replace(",", ""))


def _save(figure: Figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    size, pixels = canvas.get_width_height(), bytes(canvas.buffer_rgba())
    picture = Image.frombytes("RGBA", size, pixels).convert("RGB")
    picture.quantize(_COLOURS).save(path, optimize=True)
