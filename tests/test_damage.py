"""Damaged files: what can be read of them is served, nothing else, and the next store repairs them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from respcache import Cache, _atomic
from respcache.testing import FakeClock

GOOD = {
    "bat": "a flying mammal",
    "cat": {"legs": 4, "says": ["miau"]},
    "dog": "Wau \u00e9\n",
}

# Nothing in these is an entry.
_WRECKS = {
    "one brace": b"{",
    "byte E9": b"\xe9",
    "BOM alone": b"\xef\xbb\xbf",
    "BOM and a brace": b"\xef\xbb\xbf{",
    "list": b"[]",
    "null": b"null",
    "true": b"true",
    "number": b"5",
    "text": b'"text"',
    "NaN": b"NaN",
    "no JSON": b"hello",
    "NULs": b"\0" * 512,
    "UTF-16": '{"respcache": 1, "entries": {}}'.encode("utf-16"),
    "latin-1": b'{"respcache": 1, "entries": {"q//1f//\xe9": 1}}',
    "lone surrogate": b'{"respcache": 1, "entries": {"\\ud800": {"response": "\\udfff"}}}',
    "entries a number": b'{"respcache": 1, "entries": 5}',
    "entries a list": b'{"respcache": 1, "entries": [1, 2]}',
    "entries null": b'{"respcache": 1, "entries": null}',
    "entries of numbers": b'{"respcache": 1, "entries": {"q//1f//bat": 5}}',
    "entries of lists": b'{"respcache": 1, "entries": {"q//1f//bat": []}}',
    "entry without facts": b'{"respcache": 1, "entries": {"q//1f//bat": {"response": 1}}}',
    "no entries": b'{"respcache": 1}',
    "no version": b'{"entries": {}}',
    "some other object": b'{"a": 5, "b": [1], "c": {}}',
    "two objects": b"{}{}",
    "deeply nested": b'{"a":' * 100_000,
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "pickle": b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93.",
    "object tag": b'{"respcache": 1, "entries": {"q//1f//bat": {"py/object": "os.system"}}}',
    "log": b'{"q": 1}\n{"q": 2}\n',
    "header cut": b'{"respcache": 1, "limits": {"max_',
    "long number": b'{"respcache": 1, "entries": {}, "x": ' + b"9" * 5000 + b"}",
}
_WRECK_CASES = [pytest.param(data, id=name) for name, data in _WRECKS.items()]


def make(path, **options) -> Cache:
    return Cache(path, **{"fsync": False, "clock": FakeClock(), **options})


def write_real_file(path) -> bytes:
    """Write a small document with all that a document can have, and return its bytes."""
    cache = make(path, max_entries=50)
    cache.forget("elephant")
    cache.store("bat", GOOD["bat"])
    cache.store("cat", GOOD["cat"], context={})
    cache.store("dog", GOOD["dog"], ttl=1000, paths=[path.parent / "read.txt"])
    cache.close()
    return path.read_bytes()


def answers(cache: Cache) -> dict:
    return {
        "bat": cache.get("bat"),
        "cat": cache.get("cat", context={}),
        "dog": cache.get("dog"),
    }


def asides(path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name.startswith(f"{path.name}.corrupt-")]


def is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode("utf-8"), parse_constant=float.fromhex)  # which it refuses
    except (ValueError, RecursionError):
        return False
    return True


def snapshot(folder) -> dict:
    return {
        entry.name: (entry.stat().st_ino, entry.stat().st_mtime_ns, entry.stat().st_size)
        for entry in os.scandir(folder)
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


# Files in which nothing is left.


@pytest.mark.parametrize("data", _WRECK_CASES)
def test_damaged_file_is_an_empty_cache_that_the_next_store_repairs(path, warnings_of, data):
    """R21, R39: no exception, no answer, and the bad file is kept for people to look at."""
    path.write_bytes(data)
    cache = make(path)

    assert answers(cache) == dict.fromkeys(GOOD)
    assert cache.explain("bat").startswith("miss")
    assert list(cache.entries()) == []
    assert len(cache) == 0
    assert cache.store("new", "stored") is True
    assert is_json(path.read_bytes())
    assert make(path).get("new") == "stored"
    assert [hit.question for hit in make(path).entries()] == ["new"]
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == data
    [warning] = warnings_of()
    assert aside in warning
    assert "0 entries" in warning


@pytest.mark.parametrize("data", _WRECK_CASES)
def test_lookups_of_a_damaged_file_write_nothing(tmp_path, path, data):
    """R20, R21: a reader never repairs, or it would write back what another is writing."""
    path.write_bytes(data)
    before = snapshot(tmp_path)
    cache = make(path)
    for number in range(1000):
        assert cache.lookup(f"q{number % 7}") is None
    list(cache.entries())
    len(cache)

    assert snapshot(tmp_path) == before
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cache: cache.forget("bat"), id="forget"),
        pytest.param(lambda cache: cache.clear(), id="clear"),
        pytest.param(lambda cache: cache.invalidate("read.txt"), id="invalidate"),
        pytest.param(lambda cache: cache.prune(), id="prune"),
        pytest.param(lambda cache: cache.store_many({"a": "1", "b": "2"}), id="store_many"),
        pytest.param(lambda cache: cache.get_or_call("a", lambda: "1"), id="get_or_call"),
        pytest.param(lambda cache: cache.flush(), id="flush"),
        pytest.param(lambda cache: cache.merge(cache.path), id="merge"),
        pytest.param(lambda cache: cache.export(cache.path), id="export"),
        pytest.param(lambda cache: cache.stats(), id="stats"),
    ],
)
@pytest.mark.parametrize("data", [b"{", b"\xe9", b"null", b'{"respcache": 1, "entries": 5}'])
def test_no_method_raises_over_a_damaged_file(path, data, change):
    """R21."""
    path.write_bytes(data)
    cache = make(path)
    change(cache)

    assert cache.store("new", "stored") is True
    assert make(path).get("new") == "stored"


def test_hook_process_without_json_survives_damage(tmp_path):
    """R21: the C scanner of CPython 3.11 raises nothing where the json package is not loaded."""
    for number, data in enumerate(_WRECKS.values()):
        (tmp_path / f"{number}.json").write_bytes(data)
    source = """
import sys
from respcache import Cache
# Loaded by a tool that measures coverage, for one.
for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
    del sys.modules[name]
for path in sys.argv[1:]:
    cache = Cache(path, fsync=False)
    assert cache.lookup("bat") is None, path
    assert cache.store("new", "stored"), path
    assert Cache(path).get("new") == "stored", path
"""
    paths = [str(tmp_path / f"{number}.json") for number in range(len(_WRECKS))]
    done = subprocess.run(
        [sys.executable, "-c", source, *paths], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr


# Files in which something is left.


def test_one_bad_entry_does_not_cost_the_good_ones(path, warnings_of):
    """R21."""
    write_real_file(path)
    document = json.loads(path.read_bytes())
    keys = list(document["entries"])
    for bad in (None, 5, "x", [], {}, {"response": 1}, {"question": "bat"}):
        document["entries"][keys[0]] = bad
        path.write_text(json.dumps(document))
        cache = make(path)

        assert answers(cache) == GOOD | {"bat": None}
        assert cache.store("new", "stored") is True
        assert is_json(path.read_bytes())
        assert answers(make(path)) == GOOD | {"bat": None}


_BAD_FACTS = [
    ("stored_at", "true"),
    ("stored_at", "1e999"),
    ("stored_at", "1" + "0" * 400),
    ("stored_at", '"1000000000"'),
    ("stored_at", "null"),
    ("ttl", "true"),
    ("ttl", "0"),
    ("ttl", "-1"),
    ("ttl", "1e999"),
    ("ttl", "1" + "0" * 400),
    ("ttl", '"60"'),
    ("ttl", "[]"),
    ("question", "5"),
    ("question", '"\\ud800"'),
    ("id", "5"),
    ("id", "null"),
    ("id", '"\\ud800"'),
    ("context", "[]"),
    ("context", '"x"'),
    ("context", '{"model": "\\ud800"}'),
    ("paths", "[]"),
    ("paths", '{"a.py": 5}'),
    ("paths", '{"a.py": [1, 2]}'),
    ("paths", '{"a.py": [1, 2, 3, 4, 1e999]}'),
    ("paths", '{"\\ud800": null}'),
    ("links", "[]"),
    ("links", '{"a.py": "x"}'),
    ("links", '{"a.py": [1]}'),
]


@pytest.mark.parametrize(
    ("fact", "value"), [pytest.param(*case, id=f"{case[0]} {case[1][:24]}") for case in _BAD_FACTS]
)
def test_entry_with_impossible_facts_costs_itself_at_most(path, clock, fact, value):
    """R21: it is never an exception, and never makes the file one that is no JSON."""
    cache = make(path, clock=clock)
    cache.store_many({"before": "b", "odd": "o", "after": "a"})
    document = json.loads(path.read_bytes())
    [key] = [key for key, form in document["entries"].items() if form["question"] == "odd"]
    document["entries"][key][fact] = "PLACE"
    path.write_text(json.dumps(document, indent=2).replace('"PLACE"', value))

    for reader in (cache, make(path, clock=clock), make(path, clock=clock, ttl=10)):
        assert reader.get("odd") in ("o", None)
        assert (reader.get("before"), reader.get("after")) == ("b", "a")
        assert {"before", "after"} <= {hit.question for hit in reader.entries()}
        assert len(reader) in (2, 3)
        assert reader.explain("odd")
    assert cache.prune() in (0, 1)
    assert cache.invalidate("a.py") in (0, 1)
    assert cache.store("new", "stored") is True
    assert is_json(path.read_bytes())
    reader = make(path, clock=clock)
    assert [reader.get(q) for q in ("before", "after", "new")] == ["b", "a", "stored"]


_OUTSIDE = {
    "a brace too many": lambda data: data + b"}",
    "text after it": lambda data: data + b"<<<<<<< HEAD\n",
    "text before it": lambda data: b"<<<<<<< HEAD\n" + data,
    "no first brace": lambda data: data[1:],
    "no version": lambda data: data.replace(b'"respcache": 1, ', b""),
    "NULs at the end": lambda data: data + b"\0" * 100,
    "NULs in the header": lambda data: data.replace(b'"limits"', b"\0" * 8),
    "no text in the header": lambda data: data.replace(b'"complete"', b'"compl\xe9te"'),
    "no text in the end": lambda data: data.replace(b'"bytes"', b'"b\xfftes"'),
    "entries called otherwise": lambda data: data.replace(b'"entries": {\n', b'"entrees": {\n'),
    "no removals": lambda data: data.replace(b'"removals"', b'"removal?"'),
    "an end that is no JSON": lambda data: data.replace(b'"end": {', b'"end": <'),
}


@pytest.mark.parametrize(
    "damage", [pytest.param(damage, id=name) for name, damage in _OUTSIDE.items()]
)
def test_damage_outside_the_entries_costs_none_of_them(path, warnings_of, damage):
    """R21."""
    data = damage(write_real_file(path))
    path.write_bytes(data)

    assert answers(make(path)) == GOOD
    assert make(path).store("new", "stored") is True
    assert is_json(path.read_bytes())
    assert answers(make(path)) == GOOD
    assert make(path).get("new") == "stored"
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == data
    assert len(warnings_of()) == 1


def test_file_that_was_written_twice_into_itself_is_repaired(path):
    """R21."""
    data = write_real_file(path)
    path.write_bytes(data + data)
    found = answers(make(path))

    assert all(found[question] in (None, GOOD[question]) for question in GOOD)
    assert make(path).store("new", "stored") is True
    assert is_json(path.read_bytes())
    assert answers(make(path)) == found


def test_result_under_way_is_not_kept_when_the_header_is_damaged(path):
    """E02: what the header remembered is not known any more."""
    write_real_file(path)
    cache = make(path)

    def compute():
        make(path).forget("slow")
        path.write_bytes(path.read_bytes().replace(b'"removals"', b'"removal?"'))
        return "stale"

    assert cache.get_or_call("slow", compute) == "stale"
    assert make(path).lookup("slow") is None


def test_entry_that_stands_twice_in_a_damaged_file_is_gone(path):
    """Which of the two is the newer, nobody can tell: never an older answer."""
    write_real_file(path)
    old = path.read_bytes()
    make(path).store("bat", "newer")
    line = next(line for line in old.split(b"\n") if b'"a flying mammal"' in line)
    path.write_bytes(path.read_bytes().replace(b'"end"', line + b"\n<", 1))

    found = answers(make(path))
    assert found["bat"] is None
    assert found["dog"] == GOOD["dog"]


@pytest.mark.parametrize("first", ["bat", "cat", "other"])
@pytest.mark.parametrize("order", ["bat cat", "cat bat"])
def test_key_that_became_another_entrys_key_answers_neither(path, first, order):
    """One flipped bit makes two of one; neither a cold look nor a full one may take the wrong."""
    right = {"bat": "flies", "cat": "purrs"}
    make(path).store_many({question: right[question] for question in order.split()})
    data = path.read_bytes()
    flipped = data.replace(b'//cat": {', b'//bat": {')
    assert len(flipped) == len(data)
    assert flipped != data
    path.write_bytes(flipped)

    reader = make(path)
    assert reader.get(first) in (None, right.get(first))
    for question, answer in right.items():
        assert reader.get(question) in (None, answer)
        assert make(path).get(question) in (None, answer)
    assert make(path).store("new", "stored") is True
    for question, answer in right.items():
        assert make(path).get(question) in (None, answer)


def test_damaged_key_answers_no_other_question(path):
    """One flipped bit in a key must not give one question's answer to another."""
    make(path).store_many({"cat": "purrs", "dog": "barks"})
    path.write_bytes(path.read_bytes().replace(b'//cat": {', b'//bat": {'))

    for _ in range(2):
        reader = make(path)
        assert reader.lookup("bat") is None
        assert reader.lookup("bat") is None
        assert reader.get("dog") == "barks"
        assert make(path).store("new", "stored") in (True, False)


def test_planted_file_with_two_versions_is_no_exception(path):
    """R39: whatever the one says and the other, for a cold look and for a full one."""
    make(path).store_many({"one": "1", "two": "2"})
    data = path.read_bytes()
    planted = data.replace(b'"limits"', b'"respcache": 2, "limits"')
    size = int(json.loads(data)["end"]["bytes"])
    planted = planted.replace(
        b'"bytes": %d' % size, b'"bytes": %d' % (size + len(planted) - len(data))
    )
    path.write_bytes(planted)
    cache = make(path)

    for _ in range(2):
        assert cache.get("one") in ("1", None)
        assert cache.get("two") in ("2", None)
        assert len(list(cache.entries())) in (0, 1, 2)
        assert cache.store("new", "stored") in (True, False)


def test_response_that_looks_like_the_file_is_not_taken_for_it(path):
    """Neither by the cold look for one line nor by the rescue of a damaged file."""
    cache = make(path)
    cache.store("real", "r")
    line = next(line for line in path.read_text().split("\n") if '"real"' in line)
    for text in (f"\n{line}", f"\n{line.replace('real', 'fake')},\n", '"entries": {\n' + line):
        cache.store("odd", text)
        assert make(path).get("odd") == text
        assert make(path).get("real") == "r"
        assert make(path).lookup("fake") is None
    path.write_bytes(path.read_bytes()[:-3])

    assert make(path).get("odd") == text
    assert make(path).get("real") == "r"
    assert make(path).lookup("fake") is None


# Every truncation, every flipped byte.


def _check_after_damage(path, good_now: dict, bad: bytes) -> None:
    """Check what holds for a file *bad* that should answer *good_now* at most."""
    path.write_bytes(bad)
    for name in asides(path):
        path.with_name(name).unlink()
    first = answers(make(path))
    one = make(path)
    assert one.lookup("nothing of this kind") is None
    second = answers(one)
    for question, right in good_now.items():
        assert first[question] in (None, right)
        assert second[question] in (None, right)
    if not is_newer(bad):
        assert one.store("new", "stored") is True
        assert is_json(path.read_bytes())
        assert (make(path).get("new"), answers(make(path))) == ("stored", second)
        kept = asides(path)
        assert len(kept) == 1 or (kept == [] and is_json(bad))
        assert all(path.with_name(name).read_bytes() == bad for name in kept)


def is_newer(data: bytes) -> bool:
    """Tell whether *data* claims to be of a version above 1, which is left as it is."""
    digits = data.removeprefix(b'{"respcache": ')
    return len(digits) < len(data) and digits[:1].isdigit() and digits[:1] not in (b"0", b"1")


@pytest.mark.parametrize("form", ["as written", "pretty"])
def test_truncation_at_every_byte_costs_what_is_cut_off(path, form):
    """R21, R20: what stands before the cut is served and kept, and nothing else."""
    data = write_real_file(path)
    if form == "pretty":
        data = json.dumps(json.loads(data), indent=1).encode()
    ends = {}
    for question in GOOD:
        at = data.index(b'"question": "%b"' % question.encode())
        if form == "pretty":
            ends[question] = data.index(b"\n  }", at) + 4
        else:
            ends[question] = data.rindex(b"}", at, data.index(b"\n", at)) + 1
    for size in range(1, len(data)):
        _check_after_damage(path, GOOD, data[:size])
        found = answers(make(path))
        for question, end in ends.items():
            assert found[question] == (GOOD[question] if size >= end else None), (size, question)


@pytest.mark.parametrize("bit", [0, 5, 6, 7])
def test_flipped_bit_at_any_byte_costs_its_own_entry_at_most(path, bit):
    """R21: a valid text in a response's place can't be told from the right one in a document."""
    data = write_real_file(path)
    lines = data.split(b"\n")
    bounds = {}
    for question in GOOD:
        [line] = [line for line in lines if b'"question": "%b"' % question.encode() in line]
        at = data.index(line)
        bounds[question] = (at, at + line.index(b', "question"'), at + len(line))
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << bit
        bad = bytes(bad)
        good_now = dict(GOOD)
        for question, (begin, end, _) in bounds.items():
            if begin <= at < end and is_json(bad):
                del good_now[question]
        _check_after_damage(path, good_now, bad)
        found = answers(make(path))
        for question, (begin, _, end) in bounds.items():
            if not begin - 2 <= at < end + 1 and not is_newer(bad):
                assert found[question] == GOOD[question], (at, bad)


# Once per damage.


def test_damage_is_set_aside_and_warned_of_once(path, warnings_of):
    """R21: however many open the file and store."""
    path.write_bytes(b"{")
    caches = [make(path) for _ in range(5)]
    for cache in caches:
        cache.lookup("one")
    for number, cache in enumerate(caches):
        assert cache.store(f"q{number}", "a") is True

    assert len(asides(path)) == 1
    assert len(warnings_of()) == 1
    assert len(make(path)) == 5


def test_three_copies_of_damaged_files_are_kept_at_most(path):
    """E25: the newest."""
    cache = make(path)
    wrecks = [f"damage {number}".encode() for number in range(5)]
    for number, data in enumerate(wrecks):
        path.write_bytes(data)
        assert cache.store(f"q{number}", "a") is True

    kept = [path.with_name(name).read_bytes() for name in sorted(asides(path))]
    assert kept == wrecks[2:]


def test_foreign_files_beside_damaged_ones_are_left_alone(path):
    """E25: only copies of this very file are counted and removed."""
    others = [
        "answers.json.corrupt",
        "answers.json.corrupt-",
        "answers.json.corrupt-mine",
        "answers.json.corrupt-20200101.txt",
        "answers.json.bak",
        "answers.json.x.corrupt-20200101-000000-000000000",
        "other.json.corrupt-20200101-000000-000000000",
    ]
    for name in others:
        path.with_name(name).write_text("mine")
    cache = make(path)
    for number in range(6):
        path.write_bytes(b"damage %d" % number)
        assert cache.store(f"q{number}", "a") is True

    assert [name for name in others if path.with_name(name).read_text() != "mine"] == []


def test_path_is_never_absent_while_a_damaged_file_is_set_aside(path, monkeypatch):
    """E25: readers see the damaged file until the repaired one is in its place."""
    path.write_bytes(b"{")
    seen = []

    def watch(name):
        real = getattr(os, name)

        def call(*args, **options):
            seen.append(path.exists())
            result = real(*args, **options)
            seen.append(path.exists())
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("link", "rename", "replace", "unlink", "open"):
        watch(name)

    assert make(path).store("new", "stored") is True
    assert len(seen) > 4
    assert all(seen)


def test_damage_is_set_aside_where_there_are_no_hard_links(path, monkeypatch):
    def refuse(source, target, **options):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path.write_bytes(b"damage")

    assert make(path).store("new", "stored") is True
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == b"damage"


@pytest.mark.parametrize("has_links", [True, False])
def test_damage_on_a_full_disk_is_set_aside_and_warned_of_once(
    path, monkeypatch, warnings_of, has_links
):
    """R21, R29: each later store tries again, and each would set another copy aside."""
    path.write_bytes(b"damage")
    real = os.write

    def full(fd, data):
        if os.path.isfile(f"/proc/self/fd/{fd}") or not os.path.exists("/proc/self/fd"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    cache = make(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        if not has_links:
            patch.setattr(os, "link", _refuse_link)
        for number in range(5):
            assert cache.store(f"q{number}", "a") is False
            assert path.read_bytes() == b"damage"
        during = len(asides(path))

    assert cache.store("q5", "a") is True
    assert make(path).get("q5") == "a"
    assert during <= 1
    assert len(asides(path)) == 1
    assert sum("damaged" in warning for warning in warnings_of()) == 1
    assert sum("disk is full" in warning for warning in warnings_of()) == 1


def _refuse_link(source, target, **options):
    raise OSError(errno.EPERM, "no links here")


def test_damage_in_a_folder_that_can_not_be_listed_is_repaired(path, monkeypatch):
    """R21: how many copies there are is a matter of tidiness, no condition of storing."""
    path.write_bytes(b"damage")

    def refuse(*args):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), *args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        assert make(path).store("new", "stored") is True

    assert make(path).get("new") == "stored"
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == b"damage"


def test_copy_that_leads_nowhere_does_not_stop_a_repair(path):
    """R21: a link in the place of an older copy, or a copy that is removed at this moment."""
    os.symlink("nowhere", f"{path}.corrupt-20260101-000000-000000000")
    path.write_bytes(b"damage")

    assert make(path).store("new", "stored") is True
    assert make(path).get("new") == "stored"


def test_copy_that_can_not_be_made_leaves_no_half_of_one(path, monkeypatch):
    """R29."""
    import shutil

    path.write_bytes(b"damage")

    def half(source, target, **options):
        with open(target, "wb") as file:
            file.write(b"dam")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = make(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", _refuse_link)
        for name in ("copy", "copy2", "copyfile", "copyfileobj"):
            patch.setattr(shutil, name, half)
        cache.store("q", "a")

    assert all(path.with_name(name).read_bytes() == b"damage" for name in asides(path))
    assert path.read_bytes() == b"damage" or asides(path)
    assert cache.store("q2", "a") is True
    assert make(path).get("q2") == "a"


def test_file_that_another_has_repaired_meanwhile_is_not_set_aside(path, warnings_of):
    path.write_bytes(b"{")
    late = make(path)
    assert late.lookup("q1") is None
    make(path).store("q1", "a")

    assert late.store("q2", "a") is True
    assert (late.get("q1"), late.get("q2")) == ("a", "a")
    assert len(asides(path)) == 1
    assert len(warnings_of()) == 1


def test_damage_that_was_copied_back_is_another_damage(path):
    cache = make(path)
    for number in range(2):
        path.write_bytes(b"the same")
        assert cache.store(f"q{number}", "a") is True

    assert len(asides(path)) == 2


def test_set_aside_keeps_the_last_three(tmp_path, monkeypatch):
    """E25: by the stamps in their names."""
    path = tmp_path / "a.json"
    second = 1_767_225_600_000_000_000  # 2026-01-01
    for number, now in enumerate((1, 3, 2, 86_400_000_000_000)):
        path.unlink(missing_ok=True)
        path.write_bytes(b"x" * number)
        monkeypatch.setattr(_atomic, "time_ns", lambda now=now: second + now)
        _atomic.set_aside(str(path))

    assert sorted(asides(path)) == [
        "a.json.corrupt-20260101-000000-000000002",
        "a.json.corrupt-20260101-000000-000000003",
        "a.json.corrupt-20260102-000000-000000000",
    ]
