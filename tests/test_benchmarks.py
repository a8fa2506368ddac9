"""The benchmarks run, say what they measured as tables and JSON, and count what is lost."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("processes")

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["hit", "document", "cold", "lock", "stores", "after", "growth", "tools", "hook"]
CONTENDERS = ["respcache", "respcache log", "sqlite3", "files"]
CONTENDERS += [name for name in ("diskcache", "lmdb") if find_spec(name)]

Load = Callable[[str], ModuleType]


def run(*arguments: str, temp: Path, stderr: int = subprocess.PIPE) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temp)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return what gives a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def figures(load: Load) -> ModuleType:
    return load("_figures")


def samples(figures: ModuleType, unit: str = "us", **medians: float) -> list[Any]:
    return [figures.Sample(name, each, 0, 0, each, unit, 1) for name, each in medians.items()]


def a_run(figures: ModuleType, **benchmarks: list[Any]) -> Any:
    return figures.Run("python -m benchmarks", 125.0, figures.environment(), benchmarks)


# Running them.


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_prints_tables_writes_json_and_leaves_nothing(name: str, tmp_path: Path):
    written, temp = tmp_path / "figures.json", tmp_path / "temp"
    temp.mkdir()

    done = run(name, "--smoke", "--json", str(written), temp=temp)

    assert done.returncode == 0, done.stderr
    document = json.loads(written.read_text())
    assert document["command"] == f"python -m benchmarks {name} --smoke"
    assert document["environment"]["versions"]["respcache"]
    assert list(document["benchmarks"]) == [name]
    for table in document["benchmarks"][name]:
        assert f"### {table['title']}" in done.stdout
        # On a busy machine one may not get its lock at all.
        assert any(sample["median"] > 0 for group in table["groups"] for sample in group["samples"])
        for group in table["groups"]:
            assert group["samples"]
            assert all(sample["n"] > 0 and not sample["lost"] for sample in group["samples"])
    assert re.search(r"\| (respcache( log)?|a tool hit) +\|", done.stdout)
    assert f"{name}, " in done.stderr
    assert list(temp.iterdir()) == []


def test_bar_shows_the_progress_to_a_terminal_and_tables_go_to_stdout(tmp_path: Path):
    pytest.importorskip("rich")
    watcher, terminal = os.openpty()
    try:
        done = run("after", "--smoke", temp=tmp_path, stderr=terminal)
        os.set_blocking(watcher, False)
        shown = os.read(watcher, 1 << 20).decode(errors="replace")
    finally:
        os.close(terminal)
        os.close(watcher)

    assert done.returncode == 0
    assert "after, 20 entries" in shown and "1/2" in shown
    assert "###" not in shown
    assert "\x1b" not in done.stdout


def test_unknown_benchmark_is_refused_with_the_known_ones(tmp_path: Path):
    done = run("hits", temp=tmp_path)

    assert done.returncode == 2
    assert f"'hits'; choose from {', '.join(NAMES)}" in done.stderr


def test_missing_plotting_library_is_told_before_anything_is_measured(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    main = load("__main__")
    monkeypatch.setattr(main, "is_possible", lambda: False)
    monkeypatch.setattr(main, "import_module", None)
    monkeypatch.setattr(sys, "argv", ["benchmarks"])

    with pytest.raises(SystemExit) as ended:
        main.main()

    assert ended.value.code == 2
    assert "--no-plots" in capsys.readouterr().err


def test_contender_that_is_not_installed_is_left_out(load: Load, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load("_figures"), "find_spec", lambda name: None)

    with load("_harness").Crew("benchmarks.bench_hit", ("floor", "lmdb")) as crew:
        names = list(crew.teams)

    assert names == ["floor"]


# Figures and verdicts.


@pytest.mark.parametrize(
    ("unit", "p95", "p99", "worst"),
    [
        pytest.param("s", 95.0, 99.0, 100.0, id="of times, 95 of 100 are shorter"),
        pytest.param("/s", 6.0, 2.0, 1.0, id="of rates, 95 of 100 are higher"),
    ],
)
def test_p95_is_on_the_bad_side(
    figures: ModuleType, unit: str, p95: float, p99: float, worst: float
):
    sample = figures.Sample.of("x", range(1, 101), unit)

    assert (sample.median, sample.n) == (50.5, 100)
    assert (sample.p95, sample.p99, sample.worst) == (p95, p99, worst)


@pytest.mark.parametrize(
    ("unit", "own", "reached", "asked"),
    [
        pytest.param("us", 1.0, True, "at most 1.5", id="a shorter time"),
        pytest.param("us", 4.0, False, "at most 1.5", id="a longer time"),
        pytest.param("KB", 4.0, False, "at most 1.5", id="more memory"),
        pytest.param("/s", 4.0, True, "at least 1.5", id="a higher rate"),
        pytest.param("/s", 1.0, False, "at least 1.5", id="a lower rate"),
    ],
)
def test_reach_bounds_times_from_above_and_rates_from_below(
    figures: ModuleType, unit: str, own: float, reached: bool, asked: str
):
    group = figures.Group(
        "text", samples(figures, unit, lmdb=2.0, respcache=own), [figures.Reach(1.5, "lmdb")]
    )

    (verdict,) = group.verdicts()

    assert verdict.value == own / 2
    assert verdict.is_reached is reached
    assert verdict.asked == asked


def test_table_says_which_reach_was_missed_and_is_silent_of_what_was_not_measured(
    figures: ModuleType,
):
    reaches = [
        figures.Reach(1.4, "floor"),
        figures.Reach(1, "lmdb"),
        figures.Reach(1, "floor", "respcache log"),
        figures.Reach(3.0, figure="worst"),
    ]
    group = figures.Group("text", samples(figures, floor=2.0, respcache=3.0), reaches)

    text = str(figures.Table("T", [group], ["floor"]))

    assert "respcache is 1.50 x floor, to reach at most 1.4: **not reached**" in text
    assert "respcache is 3 us, to reach at most 3: reached" in text
    assert "lmdb" not in text
    assert "log" not in text


def test_lost_entries_are_a_column_and_a_remark(figures: ModuleType):
    good, bad = (figures.Sample.of(name, [1.0], "/s", lost) for name, lost in (("a", 0), ("b", 7)))
    table = figures.Table("T", [figures.Group("8 processes", [good, bad])])

    text = str(table)

    assert "| lost |" in text
    assert "- 8 processes: b **lost 7** of what it had acknowledged" in text
    assert "a **lost" not in text
    assert table.to_json()["groups"][0]["samples"][1]["lost"] == 7


def test_run_is_read_as_it_was_written(figures: ModuleType, tmp_path: Path):
    group = figures.Group(
        "text", samples(figures, floor=2.0, respcache=3.0), [figures.Reach(1.4, "floor")]
    )
    table = figures.Table("T", [group], ["floor"], "t", ("median", "worst"), ("what", "whose"))
    written = a_run(figures, hit=[table])

    written.write(tmp_path / "run.json")
    read = figures.Run.read(tmp_path / "run.json")

    assert str(read.benchmarks["hit"][0]) == str(table)
    assert read.environment == written.environment
    assert (read.command, read.seconds) == (written.command, written.seconds)


# Contenders, and what they lose.


@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("fsync", [False, True], ids=["not durable", "durable"])
def test_contenders_do_the_same_job(load: Load, name: str, fsync: bool, tmp_path: Path):
    contender = load("contenders").load(name)
    path = str(tmp_path / "cache")
    handle = contender.open(path, fsync=fsync)
    contender.fill(handle, [("Who?", "Ada"), ("Where?", {"town": ["Lodz", 1.5, None]})])

    contender.store(handle, "WHO?", "Bob")
    contender.store(handle, "When?", "now")
    for _ in range(2):  # as it is, and opened again
        assert contender.lookup(handle, "whO?") == "Bob"
        assert contender.lookup(handle, "where?") == {"town": ["Lodz", 1.5, None]}
        assert contender.lookup(handle, "Why?") is None
        assert contender.count(handle) == 3
        contender.close(handle)
        handle = contender.open(path, fsync=fsync)

    assert Path(contender.where(path)).exists()
    contender.close(handle)


def forgetful(lost: set[str]) -> Any:
    """Return a contender that acknowledges all, and loses the questions *lost*."""
    kept: dict[str, Any] = {}

    def store(handle: None, question: str, response: Any) -> None:
        if question not in lost:
            kept[question] = response

    return SimpleNamespace(
        open=lambda path, fsync: None,
        store=store,
        fill=lambda handle, pairs: [store(None, *pair) for pair in pairs],
        lookup=lambda handle, question: kept.get(question),
        close=lambda handle: None,
    )


def worker_of(load: Load, monkeypatch: pytest.MonkeyPatch, contender: Any) -> tuple[Any, Any]:
    bench = load("bench_stores")
    monkeypatch.setattr(bench.contenders, "load", lambda name: contender)
    return bench, bench.Worker("forgetful")


@pytest.mark.parametrize("lost", [[], [111], [100, 103, 104]], ids=["none", "one", "three"])
def test_each_acknowledged_store_that_is_not_found_is_counted(
    load: Load, monkeypatch: pytest.MonkeyPatch, lost: list[int]
):
    question = load("_data").question
    _, worker = worker_of(load, monkeypatch, forgetful({question(number) for number in lost}))
    worker.prepare("x", serial=100, size=64, keys=0, lookups=0.0, fsync=False)
    for _ in range(10):
        worker._store()

    done = worker.work(at=0.0, seconds=0.001)

    assert [number for number, _ in done["stored"]] == list(range(100, 112))
    assert worker.count_lost("x", 64, 0, [done["stored"]]) == len(lost)


@pytest.mark.parametrize(
    ("kept", "lost"),
    [
        pytest.param(12, 0, id="the last of one process"),
        pytest.param(21, 0, id="the last of the other"),
        pytest.param(11, 1, id="one that its own process has replaced since"),
        pytest.param(0, 1, id="what was there at first"),
        pytest.param(None, 1, id="none"),
    ],
)
def test_hot_key_must_hold_the_last_answer_of_some_process(
    load: Load, monkeypatch: pytest.MonkeyPatch, kept: int | None, lost: int
):
    data = load("_data")
    answers = {} if kept is None else {data.question(0): data.version(kept, 64)}
    contender = forgetful(set())
    contender.lookup = lambda handle, question: answers.get(question)
    _, worker = worker_of(load, monkeypatch, contender)

    assert worker.count_lost("x", 64, 1, [[[0, 12]], [[0, 21]]]) == lost


def test_entry_that_was_there_and_that_nobody_stored_must_stay(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    data = load("_data")
    _, worker = worker_of(load, monkeypatch, forgetful({data.question(3)}))
    worker.fill("x", entries=5, size=64)

    assert worker.count_lost("x", 64, 5, []) == 1


def test_lookup_that_misses_what_was_there_is_counted(load: Load, monkeypatch: pytest.MonkeyPatch):
    contender = forgetful(set())
    contender.lookup = lambda handle, question: None
    bench, worker = worker_of(load, monkeypatch, contender)

    worker.prepare("x", serial=100, size=64, keys=5, lookups=0.9, fsync=False)

    assert worker.work(at=0.0, seconds=0.001)["missed"] == bench._WARM_UP


# The plots and the README.


def test_plots_are_drawn_from_the_figures_and_small(
    figures: ModuleType, load: Load, tmp_path: Path
):
    pytest.importorskip("matplotlib")
    plots = load("_plots")
    names = [name for name in plots._LOOKS if name != "pass"]
    rates, own = (
        [figures.Sample.of(name, [1.0, 2.0], unit) for name in names] for unit in ("/s", "us")
    )
    groups = [figures.Group(f"{count} processes", rates) for count in (1, 4, 8)]
    sizes = [figures.Sample.of(f"{size:,} entries", [size], "s") for size in (1_000, 1_000_000)]
    growth = [figures.Group(name, sizes) for name in names]
    hits = [figures.Group(f"{kind}, 1,000 entries", own) for kind in ("hit", "miss")]
    tables = [
        *(figures.Table(name, groups, name=name) for name in plots._RATES),
        *(figures.Table(name, growth, name=name) for name in plots._GROWTHS),
        *(figures.Table(name, hits, name=name) for name in ("after", "cold-lean", "hit")),
    ]

    drawn = plots.draw(a_run(figures, all=tables), tmp_path / "plots")
    fewer = plots.draw(a_run(figures, all=tables[1:]), tmp_path / "fewer")

    assert [path.name for path in drawn] == [
        "stores.png",
        "growth.png",
        "after.png",
        "cold.png",
        "hit.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert all(path.stat().st_size < 60_000 for path in drawn)
    assert [path.name for path in fewer] == ["growth.png", "after.png", "cold.png", "hit.png"]


def test_readme_has_a_place_for_each_benchmark_and_only_plots_that_are_there(load: Load):
    report = load("_report")
    text = report.README.read_text(encoding="utf-8")

    places = [match[2] for match in report._BLOCK.finditer(text)]

    assert sorted(places) == sorted(["run", "reaches", *load("__main__").NAMES])
    shown = re.findall(r"\]\(plots/([\w.]+)\)", text)
    assert sorted(shown) == sorted(path.name for path in report.FOLDER.iterdir())


def test_report_replaces_what_stands_in_its_places_and_nothing_else(
    figures: ModuleType, load: Load
):
    report = load("_report")
    group = figures.Group(
        "text", samples(figures, floor=2.0, respcache=3.0), [figures.Reach(1.4, "floor")]
    )
    table = figures.Table("A warm hit", [group], ["floor"])
    blocks = report.blocks(a_run(figures, hit=[table]))
    old = "".join(
        f"words {name}\n<!-- figures: {name} -->\nold\n<!-- end -->\n"
        for name in ("run", "reaches", "hit")
    )

    new = report.rewritten(old, blocks)

    assert "old" not in new
    assert all(f"words {name}\n<!-- figures: {name} -->\n" in new for name in blocks)
    assert "Command: `python -m benchmarks`, 2 minutes." in new
    assert str(table) in new
    row = [cell.strip() for cell in new[new.index("| A warm hit: text") :].split("|")[1:6]]
    assert row == [
        "A warm hit: text",
        "respcache",
        "1.50 x floor",
        "at most 1.4",
        "**not reached**",
    ]
    assert report.rewritten(new, blocks) == new


@pytest.mark.parametrize(
    ("places", "why"),
    [
        pytest.param(["run", "reaches", "hit", "lock"], "no figures of lock", id="part of a run"),
        pytest.param(["run", "reaches"], "no place for hit", id="a new benchmark"),
    ],
)
def test_report_mixes_no_figures_of_two_runs(
    figures: ModuleType, load: Load, places: list[str], why: str
):
    report = load("_report")
    text = "".join(f"<!-- figures: {name} -->\nold\n<!-- end -->\n" for name in places)
    blocks = report.blocks(a_run(figures, hit=[]))

    with pytest.raises(ValueError, match=why):
        report.rewritten(text, blocks)
