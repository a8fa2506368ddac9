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
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("processes")

STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))


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
from respcache._stores import log

log._FLOOR = 8_000  # so that a log is compacted again and again
sys.setswitchinterval(1e-5)
cache = Cache(args["path"], lock_timeout=50.0, on_error="raise", fsync=False)

def live(lane):
    rng = random.Random(lane)
    notes = os.open(f"{args['notes']}/{lane}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(fact):
        os.write(notes, json.dumps(fact).encode() + b"\\n")

    for number in range(args["steps"]):
        kind = rng.choices(["store", "batch", "lookup", "forget"], [6, 1, 16, 2])[0]
        questions = "abc" if kind == "batch" else rng.choice("abc")
        given = f"{lane}.{number}." + "x" * 300 if kind in ("store", "batch") else None
        begun = time.monotonic_ns()
        note([questions, kind, given, begun])
        if kind == "store":
            found = cache.store(questions, given)
        elif kind == "batch":
            found = cache.store_many(dict.fromkeys(questions, given)) == 3
        else:
            found = cache.get(questions) if kind == "lookup" else cache.forget(questions)
        note([found, time.monotonic_ns()])

def work(lane):
    try:
        live(lane)
    except BaseException as error:
        failed.append(repr(error))

failed = []
threads = [threading.Thread(target=work, args=(lane,)) for lane in args["lanes"]]
barrier()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(failed)
"""


def recorded(notes):
    """Return the steps of each question; each lane of them is one thread's."""
    history = defaultdict(list)
    for lane in notes.iterdir():
        # What the last line of a killed process lacks, it had not begun.
        facts = [json.loads(line) for line in lane.read_text().split("\n")[:-1]]
        for (questions, kind, given, begun), (found, ended) in zip(
            facts[::2], [*facts[1::2], [None, inf]], strict=False
        ):
            for question in questions:
                step = Step(
                    process=int(lane.name),
                    kind="store" if kind == "batch" else kind,
                    given=given and given.rstrip("x"),
                    found=found.rstrip("x") if isinstance(found, str) else found,
                    begun=begun,
                    ended=ended,
                )
                history[question].append(step)
    return history


def is_hidden(step, steps, threads):
    """Tell whether *step* missed beside a forget in its own process.

    That object hides at once what is about to be forgotten, for all its threads,
    while others find it until the forget is committed: such a miss says nothing.
    """
    return (
        step.kind == "lookup"
        and step.found is None
        and any(
            other.kind == "forget"
            and other.process // threads == step.process // threads
            and other.begun < step.ended
            and step.begun < other.ended
            for other in steps
        )
    )


def meddle(path, until):
    """Set the time of each version back to that of the first, as a tool that restores stamps does.

    Once each: a store that finds the file changed begins again.
    """
    stamp = last = None
    while not until.wait(0.003):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        stamp = stamp or status.st_mtime_ns
        if (status.st_ino, status.st_size) != last:
            last = status.st_ino, status.st_size
            os.utime(path, ns=(stamp, stamp))


def forgeries(steps):
    """Yield *steps* with one lookup that found what no order explains, and what that is.

    Values are stored once each, so what was surely replaced can't have come back.
    """
    lookups = [step for step in steps if step.kind == "lookup" and step.ended < inf]
    stores = [step for step in steps if step.kind == "store" and step.ended < inf]
    forgets = [step for step in steps if step.kind == "forget"]
    for lookup in lookups:
        begun, ended = lookup.begun, lookup.ended
        before = [each for each in stores if each.ended < begun]
        last = max(before, key=lambda step: step.begun, default=None)
        found = {"the future": next((s.given for s in stores if s.begun > ended), None)}
        if last is not None:
            found["the replaced"] = next((s.given for s in before if s.ended < last.begun), None)
            gone = [each for each in forgets if last.ended < each.begun and each.ended < begun]
            if gone:
                found["the forgotten"] = last.given
            if not any(each.ended > last.begun and each.begun < ended for each in forgets):
                yield "nothing", lookup, None
        for what, given in found.items():
            if given is not None:
                yield what, lookup, given


@pytest.mark.parametrize("turn", range(STRESS))
@pytest.mark.parametrize(
    ("processes", "threads", "disturbance"),
    [
        pytest.param(5, 1, "none", id="five processes"),
        pytest.param(5, 1, "mtime set back", id="five processes, mtime set back"),
        pytest.param(5, 1, "a process killed", id="five processes, one killed"),
        pytest.param(2, 4, "none", id="two processes of four threads"),
        pytest.param(3, 2, "a process killed", id="three processes of two threads, one killed"),
    ],
)
def test_recorded_history_is_explained_by_one_order(
    start, together, path, tmp_path, processes, threads, disturbance, turn
):
    """R19, R22, E24, E26: stores, batches, lookups, forgets of three questions, by one clock."""
    notes = tmp_path / "notes"
    notes.mkdir()
    lanes = [range(n * threads, (n + 1) * threads) for n in range(processes)]
    steps = 800 // (processes * threads)
    children = [start(RECORD, path=path, notes=notes, lanes=[*each], steps=steps) for each in lanes]
    together(children)
    over = threading.Event()
    meddler = threading.Thread(target=meddle, args=(path, over))
    try:
        if disturbance == "mtime set back":
            meddler.start()
        if disturbance == "a process killed":
            first = notes / "0"
            while not first.exists() or first.stat().st_size < 8_000:
                time.sleep(0.001)
            children.pop(0).kill()
        assert [child.hear() for child in children] == [[]] * len(children)
    finally:
        over.set()
        if meddler.ident is not None:
            meddler.join()
    history = {
        question: [step for step in steps if not is_hidden(step, steps, threads)]
        for question, steps in recorded(notes).items()
    }

    assert {question: stuck(steps) for question, steps in history.items()} == {
        question: [] for question in "abc"
    }

    # And it was a history worth checking.
    all_steps = [step for each in history.values() for step in each]
    of_others = [
        step
        for step in all_steps
        if step.kind == "lookup" and step.found and not step.found.startswith(f"{step.process}.")
    ]
    overlaps = sum(
        step.begun < other.begun < step.ended
        for each in history.values()
        for step in each
        for other in each
        if "lookup" != step.kind != other.kind
    )

    assert len(all_steps) >= 500
    assert len(of_others) >= 50
    assert overlaps >= 50
    assert path.stat().st_size < 50_000  # as a log it was compacted: more than 130 KB were stored

    # The same with one lookup forged, anywhere in it.
    rng = random.Random(turn)
    by_kind = defaultdict(list)
    for question, each in history.items():
        for what, lookup, found in forgeries(each):
            by_kind[what].append((question, lookup, found))
    for what in ("the future", "the replaced", "the forgotten", "nothing"):
        for question, lookup, found in rng.sample(by_kind[what], 10):
            forged = [replace(s, found=found) if s is lookup else s for s in history[question]]

            assert stuck(forged) != [], what
