"""The log, with real processes: compaction among many writers, and writers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from respcache import Cache

pytestmark = pytest.mark.xdist_group("processes")

LONG = 60

WRITE = """
import sys, time
from pathlib import Path
from respcache import Cache
from respcache._stores import log

log._FLOOR = 20_000
path, me, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache = Cache(path, lock_timeout=60.0, on_error="raise")
folder = Path(path).parent
(folder / f"ready-{me}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for number in range(count):
    assert cache.store(f"{me}-{number}", "v" * 200)
    assert cache.store(f"hot-{me}", f"{number}" + "h" * 400)
(folder / f"done-{me}").touch()
while not (folder / "all").exists():
    time.sleep(0.001)
for who in range(8):
    for number in range(count):
        assert cache.get(f"{who}-{number}") == "v" * 200, (me, who, number)
    assert cache.get(f"hot-{who}") == f"{count - 1}" + "h" * 400
assert len(cache) == 8 * (count + 1)
"""

ACKNOWLEDGE = """
import sys
from respcache import Cache

path, first, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
cache = Cache(path, lock_timeout=60.0, on_error="raise")
for number in range(first, first + 100_000):
    assert cache.store(f"q{number}", f"{number}:" + "v" * size)
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def wait_for(folder: Path, names: list[str]) -> None:
    deadline = time.monotonic() + LONG
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < deadline, "a child is missing"
        time.sleep(0.005)


def test_eight_writers_lose_nothing_while_the_log_is_compacted_under_them(path: Path) -> None:
    """R19, E26: each instance's own lookups see all of it."""
    count = 60
    children = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(path), str(me), str(count)])
        for me in range(8)
    ]
    try:
        wait_for(path.parent, [f"ready-{me}" for me in range(8)])
        (path.parent / "go").touch()
        wait_for(path.parent, [f"done-{me}" for me in range(8)])
        (path.parent / "all").touch()
        codes = [child.wait(LONG) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()

    assert codes == [0] * 8
    assert len(Cache(path)) == 8 * (count + 1)
    # Without compaction it would hold each of the 480 hot lines.
    assert path.stat().st_size < 8 * count * 350 + 8 * count * 500
    assert not list(path.parent.glob("*.tmp"))


@pytest.mark.parametrize(("size", "kills"), [(1_000, 20), (100_000, 10)], ids=["1 KB", "100 KB"])
def test_killed_writers_lose_nothing_that_was_acknowledged(
    path: Path, size: int, kills: int
) -> None:
    """E12: a torn tail is passed by all, and the next writer goes on at once."""
    chance = random.Random(size)
    acknowledged: list[int] = []
    for first in range(0, kills * 1_000_000, 1_000_000):
        child = subprocess.Popen(
            [sys.executable, "-c", ACKNOWLEDGE, str(path), str(first), str(size)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            child.stdout.readline()
            acknowledged.append(first)
            time.sleep(chance.random() * 0.02)
            os.kill(child.pid, signal.SIGKILL)
            rest, _ = child.communicate(timeout=LONG)
        finally:
            child.kill()
            child.wait()
        acknowledged += [int(line) for line in rest.split(b"\n")[:-1]]
        successor = Cache(path, lock_timeout=0.001, on_error="raise")

        assert successor.store("next", f"{len(acknowledged)}") is True
        assert Cache(path).get("next") == f"{len(acknowledged)}"

        successor.close()
    reader = Cache(path)
    lost = [
        number for number in acknowledged if reader.get(f"q{number}") != f"{number}:" + "v" * size
    ]

    assert lost == []
    assert not list(path.parent.glob("*.corrupt-*"))
