"""Clocks that are wrong: those of the processes, and the one that stamps the file."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from respcache import Cache
from respcache._stores import log
from respcache.testing import FakeClock

DAY = 86_400
NOW = 1_700_000_000.0


@pytest.fixture(params=["jsonl", "json"], ids=["log", "document"])
def path(request, tmp_path):
    return tmp_path / f"answers.{request.param}"


@pytest.fixture
def process(path):
    """Open the file with a wall clock of its own, as another process does."""
    made = []

    def process(ahead=0.0, **options):
        clock = FakeClock(NOW + ahead)
        cache = Cache(path, clock=clock, fsync=False, **options)
        cache.clock = clock
        made.append(cache)
        return cache

    yield process
    for cache in made:
        cache.close()


def pass_time(seconds, *caches):
    for cache in caches:
        cache.clock.advance(seconds)


# The clock of the file system: a change is seen if the stamps are other ones, not later ones.


SHIFTS = [
    pytest.param(lambda ns: ns + DAY * 10**9, id="a day ahead"),
    pytest.param(lambda ns: ns - DAY * 10**9, id="a day back"),
    pytest.param(lambda ns: ns - 1, id="a nanosecond back"),
    pytest.param(lambda ns: 0, id="1970"),
    pytest.param(lambda ns: 4_102_444_800 * 10**9, id="2100"),
    pytest.param(lambda ns: 253_402_300_799 * 10**9, id="9999"),
    pytest.param(lambda ns: 1_700_000_000 * 10**9, id="always the same"),
]


def stamp(path, shift):
    before = path.stat().st_mtime_ns
    os.utime(path, ns=(before, shift(before)))


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("floor", [1 << 20, 1_000], ids=["growing", "compacting"])
def test_stores_are_seen_at_once_whatever_the_files_stamps_say(
    path, process, monkeypatch, shift, when, floor
):
    """R22, E24: stamps set before a store, or set back by a tool after it."""
    monkeypatch.setattr(log, "_FLOOR", floor)
    one, other = process(), process()
    one.store("first", "f")
    for number in range(12):
        writer, reader = (one, other) if number % 2 else (other, one)

        assert reader.get("first") == "f"  # it knows the file as it is

        if when == "before":
            stamp(path, shift)
        assert writer.store("q", f"{number}" * 50) is True
        if when == "after":
            stamp(path, shift)

        assert reader.get("q") == f"{number}" * 50
        assert writer.get("q") == f"{number}" * 50
        assert process().get("q") == f"{number}" * 50
        assert writer.forget("gone") is (number > 0)
        if when == "after":
            stamp(path, shift)
        assert reader.get("gone") is None
        assert reader.store("gone", f"{number}") is True
        if when == "after":
            stamp(path, shift)
        assert writer.get("gone") == f"{number}"
        assert len(reader) == len(writer) == 3


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("how", ["renamed", "copied in place"])
def test_older_backup_with_whatever_stamp_is_seen_and_stored_on(
    path, process, tmp_path, shift, how
):
    """E08: what came after it is not there any more, for all who had read that."""
    one, other = process(), process()
    one.store_many({"q": "old", "kept": "k"})
    backup = tmp_path / "backup"
    shutil.copy2(path, backup)
    one.store_many({"q": "new", "later": "l"})
    for cache in (one, other):
        assert [cache.get(q) for q in ("q", "kept", "later")] == ["new", "k", "l"]

    stamp(backup, shift)
    if how == "renamed":
        os.replace(backup, path)
    else:
        shutil.copyfile(backup, path)
        stamp(path, shift)

    for cache in (one, other, process()):
        assert [cache.get(q) for q in ("q", "kept", "later")] == ["old", "k", None]
    assert one.store("again", "a") is True
    assert [other.get(q) for q in ("q", "kept", "later", "again")] == ["old", "k", None, "a"]


def test_stamps_that_jump_make_nobody_store_what_is_there(path, process):
    """E15: the same answer again is seen to be the same, in a file of any age."""
    one, other = process(), process()
    one.store("q", "a")
    for shift in (DAY, -2 * DAY):
        stamp(path, lambda ns, shift=shift: ns + shift * 10**9)
        before = path.read_bytes()

        assert other.store("q", "a") is False
        assert process().store("q", "a") is False
        assert path.read_bytes() == before


@pytest.fixture
def one_tick(monkeypatch):
    """Have all happen within one tick of the clock by which files are stamped."""

    def still(real):
        def stat(*given, **named):
            status = real(*given, **named)
            stamps = dict.fromkeys(("st_mtime_ns", "st_ctime_ns"), int(NOW) * 10**9)
            facts = {name: getattr(status, name) for name in dir(status) if name[:3] == "st_"}
            return os.stat_result(tuple(status), facts | stamps)

        return stat

    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, still(getattr(os, name)))


def test_stores_within_one_tick_of_the_clock_are_seen_and_kept(path, process, one_tick):
    """E24: by their places and sizes alone."""
    one, other = process(), process()
    kept = {}
    for number in range(60):
        for name, writer, reader in (("one", one, other), ("other", other, one)):
            for question in (f"{name} {number % 5}", "hot"):
                kept[question] = f"{name} {number}" * 5
                assert writer.store(question, kept[question]) is True
                assert reader.get(question) == kept[question]
        assert {hit.question: hit.response for hit in process().entries()} == kept
        assert writer.forget("one 0") is ("one 0" in kept)
        assert reader.get("one 0") is process().get("one 0") is None
        kept.pop("one 0", None)

    assert [one.get(q) for q in kept] == [other.get(q) for q in kept] == [*kept.values()]


def test_store_within_one_tick_of_a_compaction_is_kept(path, process, monkeypatch, one_tick):
    """E07: nobody writes on into the file that was just replaced, which nobody reads."""
    one, other = process(), process()
    one.store_many({"hot": 0, "q": 0})
    for cache in (one, other):
        cache.get("another")
        for number in range(1, 60):
            cache.store("hot", f"{number}" * 50)
    renamed = []
    real = os.replace

    def replace(*given):
        one.get("another")  # so it knows all that is in the old file
        real(*given)
        renamed.append(given)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(log, "_FLOOR", 1_000)
    other.store("q", 1)

    assert renamed
    assert one.store("q", 2) is True
    assert [cache.get("q") for cache in (one, other, process())] == [2, 2, 2]
    assert one.store("q", 3) is True
    assert [cache.get("q") for cache in (one, other, process())] == [3, 3, 3]


# The clocks of the processes.


@pytest.mark.parametrize("ahead", [DAY, -DAY, 30 * 365 * DAY], ids=["ahead", "back", "30 years"])
def test_entry_without_ttl_is_seen_by_all_whatever_the_clock_of_who_stored_it(path, process, ahead):
    right, wrong = process(), process(ahead)
    right.store("of right", "r")
    wrong.store("of wrong", "w")
    for cache in (right, wrong, process(), process(ahead)):
        assert cache.get("of right") == "r"
        assert cache.get("of wrong") == "w"
        assert cache.lookup("of wrong").age == (0 if ahead > 0 or cache.clock() < NOW else DAY)
        assert len(cache) == 2
        assert {hit.question for hit in cache.entries()} == {"of right", "of wrong"}


@pytest.mark.parametrize("ahead", [DAY, -DAY], ids=["ahead", "back"])
@pytest.mark.parametrize("compacted", [False, True])
def test_newest_commit_wins_whatever_the_stamps_of_the_entries(
    path, process, monkeypatch, ahead, compacted
):
    """R22: who comes last is right, not whose clock is ahead."""
    right, wrong = process(), process(ahead)
    for first, last in ((right, wrong), (wrong, right)):
        assert first.store("q", "old") is True
        assert last.store("q", "new") is True
        if compacted:
            with monkeypatch.context() as patch:
                patch.setattr(log, "_FLOOR", 100)
                for number in range(20):
                    last.store("hot", f"{number}{ahead}" * 20)
        for cache in (first, last, process(), process(ahead)):
            assert cache.get("q") == "new"


def test_oldest_commit_goes_first_whatever_the_stamps_of_the_entries(process):
    """R35: an entry that seems to be of tomorrow is no more kept than others."""
    ahead, back, right = (process(by, max_entries=3) for by in (DAY, -DAY, 0))
    for number, cache in enumerate((ahead, back, right, ahead, back)):
        assert cache.store(f"q{number}", number) is True

    for cache in (ahead, back, right, process()):
        assert [hit.response for hit in cache.entries()] == [2, 3, 4]


@pytest.mark.parametrize("ahead", [DAY, -DAY], ids=["ahead", "back"])
def test_forget_keeps_out_results_under_way_whatever_the_clocks(process, ahead):
    """E02: what began before it is told by what was seen, not by time."""
    right, wrong = process(), process(ahead)
    right.store("seed", "s")
    for computing, forgetting in ((right, wrong), (wrong, right)):

        def compute(forgetting=forgetting):
            forgetting.forget("q")
            return "stale"

        assert computing.get_or_call("q", compute) == "stale"
        assert [each.get("q") for each in (right, wrong, process())] == [None] * 3


def test_clock_that_is_set_back_makes_no_entry_live_longer(process):
    """E28: 30 s back, 61 s pass, ttl 60: in the process itself and in all others."""
    jumping, steady = process(), process()
    jumping.store("of jumping", "a", ttl=60)
    steady.store("of steady", "a", ttl=60)
    jumping.clock.set_wall(NOW - 30)
    pass_time(59, jumping, steady)

    for cache in (jumping, steady):
        assert [cache.get(q) for q in ("of jumping", "of steady")] == ["a", "a"]

    jumping.store("set back", "b", ttl=60)
    pass_time(2, jumping, steady)

    for cache in (jumping, steady, process(61)):
        assert [cache.get(q) for q in ("of jumping", "of steady")] == [None, None]
        assert cache.get("set back") == "b"

    pass_time(58, jumping, steady)

    for cache in (jumping, steady, process(119)):
        assert cache.get("set back") is None
        assert len(cache) == 0


def test_entry_from_a_clock_ahead_is_not_served_and_not_immortal(process):
    """An age below zero proves nothing; it goes when its own time is over, at the latest."""
    right, wrong = process(), process(DAY)
    wrong.store("q", "w", ttl=60)
    for seconds in (0, 61, DAY - 100):
        pass_time(seconds, right, wrong)

        assert right.get("q") is None

    pass_time(DAY, right, wrong)  # past its stamp and its ttl

    assert right.get("q") is None
    assert process(3 * DAY).get("q") is None
    assert right.store("r", "r") is True
    assert [hit.question for hit in wrong.entries()] == ["r"]
    assert [hit.question for hit in process(-DAY).entries()] == ["r"]


def test_entry_from_a_clock_ahead_gives_way_to_the_same_from_a_right_one(process):
    right, wrong = process(), process(DAY)
    wrong.store("q", "a", ttl=60)

    assert right.store("q", "a", ttl=60) is True  # not taken for the same, which is fresh
    assert right.get("q") == process().get("q") == "a"

    pass_time(61, right)

    assert right.get("q") is None


def test_entry_from_a_clock_back_expires_no_later_than_a_right_one_would(process):
    right, wrong = process(), process(-DAY)
    wrong.store("q", "w", ttl=60)
    wrong.store("long", "w", ttl=DAY + 60)

    assert right.get("q") is None
    assert wrong.get("q") == "w"
    assert right.get("long") == "w"

    pass_time(61, right, wrong)

    assert wrong.get("q") is None
    assert right.get("long") is None
    assert wrong.get("long") == "w"

    wrong.clock.set_wall(NOW + 61)  # a time server puts it right

    assert wrong.get("long") is None


def test_process_with_a_clock_back_takes_nothing_from_others(process):
    right, wrong = process(), process(-DAY)
    right.store_many({"a": 1, "b": 2})
    right.store("timed", 3, ttl=60)

    assert wrong.get("timed") is None  # of tomorrow, for all it knows
    assert wrong.prune() == 0
    assert wrong.store("c", 4) is True
    assert [right.get(q) for q in ("a", "b", "timed", "c")] == [1, 2, 3, 4]


def test_process_with_a_clock_ahead_takes_from_others_what_has_a_ttl_at_most(process):
    right, wrong = process(), process(DAY)
    right.store_many({"a": 1, "b": 2})
    right.store("short", 3, ttl=60)
    right.store("long", 4, ttl=2 * DAY)
    wrong.store("c", 5)
    wrong.prune()

    assert [right.get(q) for q in ("a", "b", "long", "c")] == [1, 2, 4, 5]
    assert right.get("short") in (3, None)
    assert right.store("short", 3, ttl=60) in (True, False)
    assert right.get("short") == 3


def test_clock_that_jumps_to_and_fro_loses_nothing_and_is_followed(path, process, monkeypatch):
    """R22: two processes, one whose clock is set at each step, with compaction on the way."""
    monkeypatch.setattr(log, "_FLOOR", 2_000)
    jumping, steady = process(), process()
    kept = {}
    for number in range(60):
        jumping.clock.set_wall(NOW + (-1) ** number * number * DAY)
        for name, cache in (("jumping", jumping), ("steady", steady)):
            question = f"{name} {number % 7}"
            assert cache.store(question, number) is True
            kept[question] = number

        assert [steady.get(q) for q in kept] == [jumping.get(q) for q in kept] == [*kept.values()]

    assert {hit.question: hit.response for hit in process().entries()} == kept
    if path.suffix == ".jsonl":
        assert path.stat().st_size < 10_000


def test_real_processes_see_each_other_with_the_files_stamps_in_the_future(path):
    """The same by the clocks of this machine."""
    one, other = Cache(path), Cache(path)
    ahead = time.time_ns() + DAY * 10**9
    one.store("q", "0", ttl=60)
    for number in range(1, 10):
        os.utime(path, ns=(ahead, ahead))
        assert other.get("q") == f"{number - 1}"
        assert one.store("q", f"{number}", ttl=60) is True

        assert other.get("q") == Cache(path).get("q") == f"{number}"
