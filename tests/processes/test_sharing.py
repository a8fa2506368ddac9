"""What one process stores, every other one sees: through its own, long-lived object."""

from __future__ import annotations

import json
import os
import shutil

import pytest

pytestmark = pytest.mark.xdist_group("processes")

FORMATS = [pytest.param({}, id="document"), pytest.param({"format": "flat"}, id="flat")]

STORE_FIFTY = """
cache = Cache(args["path"], **args["options"])
mine = [f"question {args['number']}-{n}" for n in range(50)]
everyones = [f"question {number}-{n}" for number in range(8) for n in range(50)]
cache.lookup(everyones[0])
barrier()
say([q for q in mine if not cache.store(q, "answer to " + q) or cache.get(q) is None])
hear()
say([q for q in everyones if cache.get(q) != "answer to " + q])
say(len(cache))
"""


@pytest.mark.parametrize("options", FORMATS)
def test_eight_processes_store_and_each_ones_own_lookups_see_all(start, together, path, options):
    """R19: nobody opens the file anew to look up what the others stored."""
    children = [start(STORE_FIFTY, path=path, number=n, options=options) for n in range(8)]
    together(children)

    assert [child.hear() for child in children] == [[]] * 8  # not stored, or not seen at once

    for child in children:
        child.tell("all are done")

    assert [child.hear() for child in children] == [[]] * 8  # not seen
    assert [child.hear() for child in children] == [400] * 8


@pytest.mark.parametrize("options", FORMATS)
def test_who_stores_sees_what_another_stored_before(agent, path, options):
    """R19: one's own commit must not pass for having read what others committed."""
    one, other = agent(path, **options), agent(path, **options)
    one("get", "anything")
    other("store", "question-1", "one")
    one("store", "question-2", "two")

    assert one("get", "question-1") == "one"
    assert other("get", "question-2") == "two"


@pytest.mark.parametrize("options", FORMATS)
def test_who_stores_the_same_again_sees_what_another_stored_before(agent, path, options):
    """R19: a store that rewrites nothing has read the file all the same."""
    one, other = agent(path, **options), agent(path, **options)
    one("store", "question-1", "one")
    other("store", "question-2", "two")

    assert one("store", "question-1", "one") is False
    assert one("get", "question-2") == "two"


def test_store_that_another_process_overwrote_is_stored_again(agent, path):
    """R19, E15: "the same again" is judged by the file, not by memory."""
    one, other = agent(path), agent(path)
    one("store", "q", "mine")
    other("store", "q", "theirs")

    assert one("store", "q", "mine") is True
    assert other("get", "q") == "mine"


def test_what_one_process_forgets_or_clears_is_gone_for_all(agent, path):
    one, other = agent(path), agent(path)
    one("store_many", {"a": 1, "b": 2, "c": 3})
    other("get", "a")

    assert one("forget", "a") is True
    assert other("get", "a") is None
    assert other("get", "b") == 2
    assert other("clear") == 2
    assert one("entries") == {}


# Changes that a modification time hides.


def test_two_commits_within_one_tick_are_both_seen_by_a_third_process(agent, path):
    """R22, E24: all files get one stamp, as on a coarse clock, and have one size."""
    one, other, third = agent(path), agent(path), agent(path)
    one("store_many", {"one": "-", "other": "-"})
    third("get", "one")
    stamp = path.stat().st_mtime_ns
    for writer in (one, other):
        writer(
            "run",
            "def stamped(real, fd, data):\n"
            "    written = real(fd, data)\n"
            "    if fd > 2:\n"
            f"        os.utime(fd, ns=({stamp}, {stamp}))\n"
            "    return written\n"
            'patch("os.write", stamped)',
        )

    stamps = [stamp]
    for number in range(6):
        one("store", "one", str(number))
        stamps.append(path.stat().st_mtime_ns)
        other("store", "other", str(number))
        stamps.append(path.stat().st_mtime_ns)

        assert [third("get", "one"), third("get", "other")] == [str(number)] * 2
        assert [one("get", "other"), other("get", "one")] == [str(number)] * 2

    assert stamps == sorted(set(stamps))  # each strictly later, though no time passed


def test_two_commits_are_both_seen_with_the_mtime_set_back_after_each(agent, path):
    """R22: an outsider gives every version the stamp of the first."""
    one, other, third = agent(path), agent(path), agent(path)
    one("store_many", {"one": "-", "other": "-"})
    third("get", "one")
    stamp = path.stat().st_mtime_ns
    for number in range(6):
        one("store", "one", str(number))
        os.utime(path, ns=(stamp, stamp))
        other("store", "other", str(number))
        os.utime(path, ns=(stamp, stamp))

        assert [third("get", "one"), third("get", "other")] == [str(number)] * 2
        assert [one("get", "other"), other("get", "one")] == [str(number)] * 2


def edit_in_place(path, old, new):
    """Edit the file, equal in size, inode and mtime; ctime alone tells, a tick later."""
    before = path.stat()
    data = path.read_bytes()
    edited = data.replace(old, new)
    assert len(edited) == len(data) and edited != data
    with path.open("r+b") as file:
        file.write(edited)
    while True:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if path.stat().st_ctime_ns != before.st_ctime_ns:
            break
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )


def test_edit_in_place_with_size_and_mtime_kept_is_seen(agent, path):
    """R22, E24: and the next store builds on it."""
    writer, reader = agent(path), agent(path)
    writer("store", "q", "old")
    reader("get", "q")
    edit_in_place(path, b'"old"', b'"new"')

    assert reader("get", "q") == "new"
    assert writer("store", "p", "more") is True
    assert reader("entries") == {"q": "new", "p": "more"}


@pytest.mark.parametrize("how", ["commit", "edit"])
def test_change_while_the_file_is_being_read_is_seen_by_the_next_lookup(agent, path, how):
    """E24: the signature is of before the reading, else the old content has the new one's."""
    writer, reader = agent(path), agent(path)
    writer("store", "q", "old")
    reader("run", 'pause("os.read", after=True)')
    reader.order("get", "q")
    assert reader.hear() == "paused"
    if how == "commit":
        writer("store", "q", "new")
    else:
        edit_in_place(path, b'"old"', b'"new"')
    reader.tell()
    reader.hear()  # begun before the change, it may find either

    assert reader("get", "q") == "new"


@pytest.mark.parametrize("how", ["renamed over", "copied over"])
def test_older_backup_put_back_is_seen(agent, path, how):
    """R22, E08: "different", not "newer"."""
    writer, reader = agent(path), agent(path)
    writer("store", "q", "old")
    backup = path.with_name("backup")
    shutil.copy2(path, backup)
    writer("store", "q", "new")
    writer("store", "p", "later")
    reader("get", "q")
    if how == "renamed over":
        os.replace(backup, path)
    else:
        shutil.copy2(backup, path)

    assert reader("get", "q") == "old"
    assert reader("get", "p") is None
    assert writer("store", "r", "more") is True
    assert reader("entries") == {"q": "old", "r": "more"}


# Old or new, never a mixture.


BATCHES = """
cache = Cache(args["path"], fsync=False)
barrier()
generation = 0
while not os.path.exists(args["stop"]):
    generation += 1
    assert cache.store_many((f"q{n}", generation) for n in range(20)) == 20
"""

LOOK_AT_BATCHES = """
cache = Cache(args["path"])
barrier()
seen, mixed = set(), []
while len(seen) < 60 and not mixed:
    batch = [hit.response for hit in cache.entries()]
    if batch:
        seen.add(batch[0])
        if len(batch) != 20 or len(set(batch)) != 1:
            mixed.append(batch)
say(mixed)
"""


def test_batch_is_seen_whole_or_not_at_all(start, together, path, tmp_path):
    """E10: by 60 looks each at different batches, while the next ones are written."""
    stop = tmp_path / "stop"
    writer = start(BATCHES, path=path, stop=stop)
    readers = [start(LOOK_AT_BATCHES, path=path) for _ in range(2)]
    together([writer, *readers])

    assert [reader.hear() for reader in readers] == [[], []]

    stop.touch()

    assert writer.wait() == 0


STORE_UNTIL_STOPPED = """
cache = Cache(args["path"])
stored = []
barrier()
while len(stored) < 150 and not os.path.exists(args["stop"]):
    question = f"question {args['number']}-{len(stored)}"
    assert cache.store(question, "x" * 500)
    stored.append(question)
say(stored)
"""


def test_raw_file_parses_at_any_time_while_six_processes_store(
    start, together, path, tmp_path, strict, questions_in
):
    """R20: 150 different versions read without a lock, none torn, and nothing is left beside."""
    stop = tmp_path / "stop"
    writers = [start(STORE_UNTIL_STOPPED, path=path, number=n, stop=stop) for n in range(6)]
    together(writers)
    versions = set()
    while len(versions) < 150 and any(w.process.poll() is None for w in writers):
        if path.exists():
            versions.add(json.dumps(sorted(strict(path)["entries"])))
    stop.touch()
    stored = [question for writer in writers for question in writer.hear()]

    assert len(versions) >= 50
    assert sorted(questions_in(path)) == sorted(stored)
    assert sorted(p.name for p in path.parent.iterdir()) == ["answers.json", "answers.json.lock"]


def test_reader_changes_nothing_on_disk(agent, path):
    """R20: no lock file, no stamp, no byte."""
    agent(path)("store", "q", "a")
    path.with_name("answers.json.lock").unlink()
    before = (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes())
    reader = agent(path)
    found = [reader("get", "q"), reader("get", "no such"), reader("entries"), reader("stats")]

    assert found[:3] == ["a", None, {"q": "a"}]
    assert [p.name for p in path.parent.iterdir()] == ["answers.json"]
    assert (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes()) == before


# Each process has a clock of its own.


def test_ttl_runs_out_at_the_same_age_in_every_process(agent, path):
    writer = agent(path, clock=1000.0, ttl=60.0)
    reader = agent(path, clock=1000.0)
    writer("store", "q", "a")
    reader("advance", 59.0)

    assert reader("lookup", "q") == {"response": "a", "age": 59.0}

    reader("advance", 1.0)

    assert reader("lookup", "q") is None
    assert writer("lookup", "q") == {"response": "a", "age": 0.0}

    writer("advance", 60.0)

    assert writer("lookup", "q") is None


@pytest.mark.parametrize(
    ("stored", "own", "last"),
    [
        pytest.param(60.0, 10.0, 9.0, id="the readers"),
        pytest.param(10.0, 60.0, 9.0, id="the stored"),
        pytest.param(None, 10.0, 9.0, id="the readers alone"),
    ],
)
def test_stricter_ttl_of_writer_and_reader_counts(agent, path, stored, own, last):
    writer, reader = agent(path, clock=1000.0, ttl=stored), agent(path, clock=1000.0, ttl=own)
    writer("store", "q", "a")
    reader("advance", last)

    assert reader("get", "q") == "a"

    reader("advance", 1.0)

    assert reader("get", "q") is None


def test_short_ttl_of_one_process_takes_no_entry_from_another(agent, path):
    """E15: what one reader finds too old, others still want."""
    patient, hasty = agent(path, clock=1000.0), agent(path, clock=5000.0, ttl=1.0)
    patient("store", "q", "a")

    assert hasty("get", "q") is None

    hasty("store", "p", "b")
    hasty("prune")

    assert patient("get", "q") == "a"


def test_clock_that_is_behind_makes_entries_with_a_ttl_a_miss(agent, path):
    """E28: an age below zero proves nothing; without a ttl no age is asked for."""
    ahead, behind = agent(path, clock=5000.0), agent(path, clock=1000.0)
    ahead("store", "lasting", "a")
    ahead("store", "fleeting", "b", ttl=60.0)

    assert behind("lookup", "lasting") == {"response": "a", "age": 0.0}
    assert behind("lookup", "fleeting") is None
    assert ahead("get", "fleeting") == "b"


@pytest.mark.parametrize("hour", [-3600.0, 3600.0])
def test_processes_whose_clocks_differ_see_each_others_stores_in_the_order_of_commits(
    agent, path, hour
):
    """The newest commit counts, whatever time it claims."""
    right, wrong = agent(path, clock=100_000.0), agent(path, clock=100_000.0 + hour)
    for number in range(3):
        right("store", "q", f"right {number}")
        assert wrong("get", "q") == f"right {number}"
        wrong("store", "q", f"wrong {number}")
        assert right("get", "q") == f"wrong {number}"


def test_wall_clock_set_back_does_not_lengthen_a_life(agent, path):
    """E28, R34: in the process whose clock it was, and in the one that stored."""
    writer, reader = agent(path, clock=1000.0), agent(path, clock=1000.0)
    writer("store", "q", "a", ttl=60.0)
    for process in (writer, reader):
        process("set_wall", 970.0)
        process("advance", 59.0)

        assert process("get", "q") == "a"

        process("advance", 2.0)

        assert process("get", "q") is None


def test_wall_clock_set_ahead_ends_a_life_early_and_for_this_process_alone(agent, path):
    """E28: too early is a miss; the entry itself stays for the others."""
    writer, reader = agent(path, clock=1000.0), agent(path, clock=1000.0)
    writer("store", "q", "a", ttl=60.0)
    reader("set_wall", 4600.0)

    assert reader("get", "q") is None
    assert writer("get", "q") == "a"
