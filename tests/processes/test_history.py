"""A recorded history of several processes, and whether one order of its steps explains it.

For each question the cache is a register. A history is explained if each
operation can be given one instant between its begin and its end, so that every
lookup finds what the last store before it had put, or nothing after a forget.
So no lookup misses a store that ended before it began, none returns what was
replaced before it began, and no two processes see two orders.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(params=["json", "jsonl"], ids=["document", "log"])
def path(request: pytest.FixtureRequest, path: Path) -> Path:
    """Where the shared file will be, in either format."""
    return path.with_suffix(f".{request.param}")


@dataclass(frozen=True)
class Step:
    """One operation; *ended* is infinite for one whose process was killed in it."""

    process: int
    kind: str
    given: Any
    found: Any
    begun: float
    ended: float

    def after(self, value: Any) -> tuple[bool, Any]:
        """Tell whether it goes with *value*, and what is kept after it."""
        was_seen = self.ended < inf
        match self.kind:
            case "store":
                return self.found is True or not was_seen, self.given
            case "forget":
                return self.found == (value is not None) or not was_seen, None
            case _:
                return self.found == value or not was_seen, value


def stuck(steps: list[Step]) -> list[Step]:
    """Return the steps of one question where the best order can't go on; [] if one explains all."""
    by_process = defaultdict(list)
    for step in sorted(steps, key=lambda step: step.begun):
        by_process[step.process].append(step)
    lanes = list(by_process.values())
    states = [((0,) * len(lanes), None)]
    seen = set(states)
    best, stop = -1, []
    while states:
        places, value = states.pop()
        ahead = [
            (n, lane[place])
            for n, (lane, place) in enumerate(zip(lanes, places, strict=True))
            if place < len(lane)
        ]
        first_end = min((step.ended for _, step in ahead), default=inf)
        if first_end == inf:
            return []  # all that is left was killed, and may have had no effect
        if sum(places) > best:
            best, stop = sum(places), [step for _, step in ahead]
        for n, step in ahead:
            goes, kept = step.after(value)
            if goes and step.begun <= first_end:  # else it came after one that is still ahead
                state = (*places[:n], places[n] + 1, *places[n + 1 :]), kept
                if state not in seen:
                    seen.add(state)
                    states.append(state)
    return stop


# The checker itself.


def store(process, value, begun, ended):
    return Step(process, "store", value, True, begun, ended)


def lookup(process, found, begun, ended):
    return Step(process, "lookup", None, found, begun, ended)


def forget(process, found, begun, ended):
    return Step(process, "forget", None, found, begun, ended)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([store(1, "a", 0, 1), lookup(2, None, 2, 3)], id="misses a store"),
        pytest.param(
            [store(1, "a", 0, 1), store(1, "b", 2, 3), lookup(2, "a", 4, 5)],
            id="finds the replaced",
        ),
        pytest.param(
            [store(1, "a", 0, 1), store(2, "b", 2, 3), lookup(2, "a", 4, 5)],
            id="finds what it replaced itself",
        ),
        pytest.param([store(1, "a", 2, 3), lookup(2, "a", 0, 1)], id="finds the future"),
        pytest.param([lookup(2, "z", 0, 1)], id="finds what nobody stored"),
        pytest.param(
            [store(1, "a", 0, 1), forget(1, True, 2, 3), lookup(2, "a", 4, 5)],
            id="finds the forgotten",
        ),
        pytest.param([store(1, "a", 0, 1), forget(2, False, 2, 3)], id="forgets nothing"),
        pytest.param([forget(2, True, 0, 1)], id="forgets what was not there"),
        pytest.param(
            [store(1, "a", 0, 9), lookup(2, "a", 1, 2), lookup(3, None, 3, 4)],
            id="unsees a store that another saw",
        ),
        pytest.param(
            [
                *(store(1, "a", 0, 9), store(2, "b", 0, 9)),
                *(lookup(3, "a", 1, 2), lookup(3, "b", 3, 4)),
                *(lookup(4, "b", 1, 2), lookup(4, "a", 3, 4)),
            ],
            id="two orders for two readers",
        ),
        pytest.param(
            [store(1, "a", 0, inf), lookup(2, "a", 1, 2), lookup(3, None, 3, 4)],
            id="unsees what a killed process stored",
        ),
        pytest.param(
            [Step(1, "store", "a", False, 0, 1), lookup(2, "a", 2, 3)], id="a store that says False"
        ),
    ],
)
def test_checker_finds_fault_with_a_forged_history(steps):
    assert stuck(steps) != []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([], id="nothing"),
        pytest.param([lookup(1, None, 0, 1)], id="a miss at first"),
        pytest.param([store(1, "a", 0, 3), lookup(2, None, 1, 2)], id="a store not yet seen"),
        pytest.param([store(1, "a", 0, 3), lookup(2, "a", 1, 2)], id="a store seen already"),
        pytest.param(
            [
                *(store(1, "a", 0, 3), store(2, "b", 0, 3)),
                *(lookup(3, "b", 4, 5), lookup(4, "b", 4, 5)),
            ],
            id="two stores at once",
        ),
        pytest.param(
            [store(1, "a", 0, 1), forget(2, True, 2, 5), lookup(1, "a", 3, 4)], id="forgotten later"
        ),
        pytest.param([store(1, "a", 0, inf), lookup(2, None, 5, 6)], id="killed before its commit"),
        pytest.param([store(1, "a", 0, inf), lookup(2, "a", 5, 6)], id="killed after its commit"),
    ],
)
def test_checker_accepts_a_history_that_some_order_explains(steps):
    assert stuck(steps) == []


# What real processes did.


RECORD = """
import random
rng = random.Random(args["process"])
log = os.open(args["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(fact):
    os.write(log, json.dumps(fact).encode() + b"\\n")

cache = Cache(args["path"], lock_timeout=50.0, on_error="raise")
barrier()
for number in range(args["steps"]):
    question = rng.choice("abc")
    kind = rng.choices(["store", "lookup", "forget"], [4, 8, 1])[0]
    given = f"{args['process']}.{number}" if kind == "store" else None
    begun = time.monotonic_ns()
    note([question, kind, given, begun])
    if kind == "store":
        found = cache.store(question, given)
    else:
        found = cache.get(question) if kind == "lookup" else cache.forget(question)
    note([found, time.monotonic_ns()])
say("done")
"""


def recorded(logs):
    """Return the steps of each question."""
    history = defaultdict(list)
    for process, log in enumerate(logs):
        facts = [json.loads(line) for line in log.read_text().splitlines()]
        for (question, kind, given, begun), result in zip(
            facts[::2], [*facts[1::2], [None, inf]], strict=False
        ):
            history[question].append(Step(process, kind, given, result[0], begun, result[1]))
    return history


def meddle(path, until):
    """Set the time of each version back to that of the first, as a tool that restores stamps does.

    Once each: a store that finds the file changed begins again.
    """
    stamp = inode = None
    while not until.wait(0.003):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        stamp = stamp or status.st_mtime_ns
        if status.st_ino != inode:
            inode = status.st_ino
            os.utime(path, ns=(stamp, stamp))


@pytest.mark.parametrize("disturbance", ["none", "mtime set back", "a process killed"])
def test_history_of_five_processes_is_explained_by_one_order(
    start, together, path, tmp_path, disturbance
):
    """R19, R22, E24: stores, lookups and forgets of three questions, by the system's clock."""
    logs = [tmp_path / f"log-{n}" for n in range(5)]
    children = [
        start(RECORD, path=path, log=log, process=n, steps=250) for n, log in enumerate(logs)
    ]
    together(children)
    over = threading.Event()
    meddler = threading.Thread(target=meddle, args=(path, over))
    try:
        if disturbance == "mtime set back":
            meddler.start()
        if disturbance == "a process killed":
            while not logs[0].exists() or logs[0].stat().st_size < 2_000:
                time.sleep(0.001)
            children[0].kill()
        survivors = children[1:] if disturbance == "a process killed" else children
        assert [child.hear() for child in survivors] == ["done"] * len(survivors)
    finally:
        over.set()
        if meddler.ident is not None:
            meddler.join()
    history = recorded(logs)

    assert {question: stuck(steps) for question, steps in history.items()} == {
        question: [] for question in "abc"
    }

    # And it was a history worth checking.
    steps = [step for each in history.values() for step in each]
    of_others = [
        step
        for step in steps
        if step.kind == "lookup" and step.found and not step.found.startswith(f"{step.process}.")
    ]

    assert len(steps) >= 1000
    assert len(of_others) >= 50

    # Forged at its end: a lookup misses what was stored after all that had been done.
    kept = next(each for each in history.values() if all(step.ended < inf for step in each))
    last = max(step.ended for step in kept)
    settled = store(97, "settled", last + 1, last + 2)
    true = lookup(98, "settled", last + 3, last + 4)

    assert stuck([*kept, settled, true]) == []
    assert stuck([*kept, settled, replace(true, found=None)]) != []
