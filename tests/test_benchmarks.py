"""The benchmarks run, and say what they measured as a table and as JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.xdist_group("processes")

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, temp: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temp)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks._harness")


@pytest.mark.parametrize("name", ["hit", "document", "cold", "lock"])
def test_benchmark_prints_tables_writes_json_and_leaves_nothing(name: str, tmp_path: Path):
    figures, temp = tmp_path / "figures.json", tmp_path / "temp"
    temp.mkdir()

    done = run(name, "--smoke", "--json", str(figures), temp=temp)

    assert done.returncode == 0, done.stderr
    document = json.loads(figures.read_text())
    assert document["environment"]["versions"]["respcache"]
    assert list(document["benchmarks"]) == [name]
    for table in document["benchmarks"][name]:
        assert f"### {table['title']}" in done.stdout
        # On a busy machine one may not get its lock at all.
        assert any(sample["median"] > 0 for group in table["groups"] for sample in group["samples"])
        for group in table["groups"]:
            assert "respcache" in [sample["name"] for sample in group["samples"]]
            assert all(sample["n"] > 0 for sample in group["samples"])
    assert "| respcache " in done.stdout
    assert list(temp.iterdir()) == []


def test_unknown_benchmark_is_refused_with_the_known_ones(tmp_path: Path):
    done = run("hits", temp=tmp_path)

    assert done.returncode == 2
    assert "'hits'; choose from hit, document, cold, lock" in done.stderr


@pytest.mark.parametrize(
    ("unit", "p95"),
    [
        pytest.param("s", 95.0, id="of times, 95 of 100 are shorter"),
        pytest.param("/s", 6.0, id="of rates, 95 of 100 are higher"),
    ],
)
def test_p95_is_on_the_bad_side(harness: ModuleType, unit: str, p95: float):
    sample = harness.Sample.of("x", range(1, 101), unit)

    assert (sample.median, sample.p95, sample.n) == (50.5, p95, 100)


def test_table_says_which_reach_was_missed(harness: ModuleType):
    samples = [
        harness.Sample(name, us, us, "us", 1) for name, us in (("floor", 2), ("respcache", 3))
    ]
    table = harness.Table(
        "T", [harness.Group("text", samples, {"floor": 1.4, "lmdb": 1})], ["floor"]
    )

    text = str(table)

    assert "1.50 x floor, to reach 1.4: **not reached**" in text
    assert "lmdb" not in text


def test_contender_that_is_not_installed_is_left_out(
    harness: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(harness.util, "find_spec", lambda name: None)

    with harness.Crew("benchmarks.bench_hit", ("floor", "lmdb")) as crew:
        names = list(crew.children)

    assert names == ["floor"]
