"""The document: its form, edits by hand, what a store writes, and how a change is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from binascii import crc32

import pytest

from respcache import Cache

ODD = {
    "text": "Hi",
    "quotes": 'she said "no"\\ and\nleft\r\n\ttwice',
    "control": "\x00\x1f\x7f",
    "astral": "\U0001f600 \u00e9 \u2028 \u2029 \ufeff",
    "looks like a line": '", "question": "x"},\n"q//1f//other": {"response": "y"',
    "none": None,
    "true": True,
    "one": 1,
    "float": 1.0,
    "minus zero": -0.0,
    "tiny": 5e-324,
    "largest": 2**64 - 1,
    "smallest": -(2**63),
    "list": [1, [2, [{}]], "],\n"],
    "dict": {"response": {"q//1f//text": {"response": 1}}, "end": {"entries": 0, "bytes": 0}},
}


def strict(data: bytes):
    """Parse *data* as the strictest reader would: UTF-8, no constants, no key twice."""

    def pairs(items):
        keys = [key for key, _ in items]
        assert len(keys) == len(set(keys)), f"a key twice: {keys}"
        return dict(items)

    def refuse(name):
        raise ValueError(name)

    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=refuse)


def replace_file(path, data: bytes) -> None:
    """Put *data* at *path* as editors do: a new file, renamed over the old."""
    other = path.with_name("editor's copy")
    other.write_bytes(data)
    os.replace(other, path)


def asides(path) -> list[str]:
    return [name for name in os.listdir(path.parent) if ".corrupt-" in name]


def key_of(document, question: str) -> str:
    [key] = [key for key, form in document["entries"].items() if form["question"] == question]
    return key


class Calls:
    """Count the calls of one function of ``os`` that concern one path."""

    def __init__(self, monkeypatch, name: str, path) -> None:
        self.count = 0
        real = getattr(os, name)

        def call(*args, **options):
            if os.fspath(path) in [arg for arg in args if isinstance(arg, str)]:
                self.count += 1
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


@pytest.fixture
def make(path, clock):
    """Open caches on the same file, as several processes would."""

    def open_cache(**options) -> Cache:
        return Cache(path, **{"fsync": False, "clock": clock, **options})

    return open_cache


# Its form.


def test_file_is_json_for_a_strict_parser(make, path):
    cache = make()
    for question, response in ODD.items():
        cache.store(question, response)

    document = strict(path.read_bytes())
    assert {form["question"]: form["response"] for form in document["entries"].values()} == ODD


def test_every_response_comes_back_from_the_file_equal_in_value_and_type(make):
    make().store_many(ODD)
    reader = make()

    for question, response in ODD.items():
        hit = reader.lookup(question)
        assert repr(hit.response) == repr(response)
        assert type(hit.response) is type(response)


def test_header_starts_with_name_and_version(make, path):
    make().store("hello", "Hi")

    assert path.read_bytes().startswith(b'{"respcache": 1')


def test_each_entry_is_one_line_with_its_key_at_the_start(make, path):
    make().store_many(ODD)

    data = path.read_bytes()
    lines = data.decode().split("\n")
    for key in strict(data)["entries"]:
        assert sum(line.startswith(json.dumps(key, ensure_ascii=False)) for line in lines) == 1


def test_file_is_readable_for_people(make, path):
    make().store("What is our refund policy?", "30 days, \u00e9l\u00e8ve.\u2026")

    text = path.read_text(encoding="utf-8")
    assert "what is our refund policy?" in text
    assert "30 days, \u00e9l\u00e8ve.\u2026" in text


def test_entries_stand_oldest_commit_first(make, path):
    cache = make()
    for question in ("b", "a", "c"):
        cache.store(question, "first")
    cache.store("b", "second")

    document = strict(path.read_bytes())
    order = [form["question"] for form in document["entries"].values()]
    assert order == ["a", "c", "b"]
    assert [hit.question for hit in make().entries()] == ["a", "c", "b"]


def test_last_line_counts_the_entries(make, path):
    cache = make()
    for number in range(3):
        cache.store(f"q{number}", "a")

    data = path.read_bytes()
    last = data.rstrip(b"\n").rsplit(b"\n", 1)[1]
    assert data.endswith(b"\n")
    assert last.startswith(b'"end": ')
    assert strict(data)["end"]["entries"] == 3


@pytest.mark.parametrize("left", [0, 1])
def test_file_without_entries_is_valid_as_well(make, path, left):
    cache = make()
    for number in range(1 + left):
        cache.store(f"q{number}", "a")
    cache.forget("q0")

    document = strict(path.read_bytes())
    assert len(document["entries"]) == left
    assert document["end"]["entries"] == left
    assert make().get("q1") == ("a" if left else None)


# Edits by hand.


def _pretty(document, _):
    return json.dumps(document, indent=2).encode()


def _pretty_utf8(document, _):
    return (json.dumps(document, indent=4, ensure_ascii=False) + "\n").encode()


def _compact(document, _):
    return json.dumps(document, separators=(",", ":")).encode()


def _changed(document, data):
    document["entries"][key_of(document, "two")]["response"] = "changed"
    return json.dumps(document, indent=2).encode()


def _changed_same_size(_, data):
    return data.replace(b'"second"', b'"SECOND"')


def _changed_other_size(_, data):
    return data.replace(b'"second"', b'"the second"')


def _removed(document, _):
    del document["entries"][key_of(document, "two")]
    return json.dumps(document, indent=2).encode()


def _removed_line(_, data):
    return b"\n".join(line for line in data.split(b"\n") if b'"second"' not in line)


def _added(document, _):
    key = key_of(document, "two")
    document["entries"][key.replace("two", "four")] = document["entries"][key] | {
        "question": "four",
        "response": "fourth",
        "id": "0123456789abcdef",
    }
    return json.dumps(document, indent=2).encode()


def _reordered(document, _):
    document["entries"] = dict(reversed(document["entries"].items()))
    return json.dumps(document, indent=2).encode()


def _reordered_header(document, _):
    head = {"respcache": document.pop("respcache"), "entries": document.pop("entries")}
    return json.dumps(head | document, indent=2).encode()


def _bom(_, data):
    return b"\xef\xbb\xbf" + data


def _bom_and_pretty(document, _):
    return b"\xef\xbb\xbf" + json.dumps(document, indent=2).encode()


def _crlf(_, data):
    return data.replace(b"\n", b"\r\n")


def _no_last_newline(_, data):
    return data.rstrip(b"\n")


def _blank_lines(_, data):
    return b"\n \t" + data.replace(b",\n", b",\n\n") + b"\n\n"


def _no_end(document, _):
    del document["end"]
    return json.dumps(document, indent=2).encode()


_EDITS = [
    pytest.param(edit, changes, id=edit.__name__.strip("_"))
    for edit, changes in [
        (_pretty, {}),
        (_pretty_utf8, {}),
        (_compact, {}),
        (_changed, {"two": "changed"}),
        (_changed_same_size, {"two": "SECOND"}),
        (_changed_other_size, {"two": "the second"}),
        (_removed, {"two": None}),
        (_removed_line, {"two": None}),
        (_added, {"four": "fourth"}),
        (_reordered, {}),
        (_reordered_header, {}),
        (_bom, {}),
        (_bom_and_pretty, {}),
        (_crlf, {}),
        (_no_last_newline, {}),
        (_blank_lines, {}),
        (_no_end, {}),
    ]
]


@pytest.mark.parametrize(("edit", "changes"), _EDITS)
def test_edit_by_hand_is_honoured(make, path, warnings_of, edit, changes):
    """By one who had loaded the file, by one who opens it, and by the next store."""
    before = {"one": "first", "two": "second", "three": ["third"], "four": None}
    expected = before | changes
    old = make()
    old.store_many({question: answer for question, answer in before.items() if answer})
    data = path.read_bytes()
    replace_file(path, edit(json.loads(data), data))

    assert {question: old.get(question) for question in expected} == expected
    assert {question: make().get(question) for question in expected} == expected
    assert make().store("five", "fifth") is True
    document = strict(path.read_bytes())
    assert {form["question"]: form["response"] for form in document["entries"].values()} == {
        question: answer for question, answer in expected.items() if answer is not None
    } | {"five": "fifth"}
    assert document["end"]["entries"] == len(document["entries"])
    assert {question: make().get(question) for question in expected} == expected
    assert asides(path) == []
    assert warnings_of() == []


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded-before", "opened-after"])
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda data: data.replace(b"second", b"sEcond"), id="same-length"),
        pytest.param(lambda data: data.replace(b"second", b"the second"), id="longer"),
        pytest.param(lambda data: json.dumps(json.loads(data), indent=2).encode(), id="formatted"),
    ],
)
def test_store_after_an_edit_by_hand_writes_an_end_mark_that_is_right(make, path, edit, is_loaded):
    """Else every reader would parse the whole file from then on, for ever."""
    cache = make()
    cache.store_many({"one": "first", "two": "second"})
    replace_file(path, edit(path.read_bytes()))
    writer = cache if is_loaded else make()
    writer.get("one")
    assert writer.store("three", "third") is True

    head, entries, _ = re.split(rb'(?<="entries": {\n)|(?<=}\n)(?=},\n"end": )', path.read_bytes())
    lines = [line.removesuffix(b",") + b",\n" for line in entries.splitlines()]
    total = crc32(head) + sum(map(crc32, lines))
    assert json.loads(path.read_bytes())["end"]["sum"] == f"{total:016x}"


def test_order_made_by_hand_is_the_order_of_eviction(make, path):
    make().store_many({"one": "1", "two": "2", "three": "3"})
    replace_file(path, _reordered(json.loads(path.read_bytes()), b""))

    make(max_entries=3).store("four", "4")

    assert [hit.question for hit in make().entries()] == ["two", "one", "four"]


def test_limits_and_memory_survive_an_edit_by_hand(make, path):
    """What a ticket is checked against is not lost by pretty-printing."""
    cache = make(max_entries=2)
    cache.store("one", "1")

    def compute():
        make().forget("slow")
        replace_file(path, _pretty(json.loads(path.read_bytes()), b""))
        return "stale"

    assert cache.get_or_call("slow", compute) == "stale"
    other = make()
    assert other.lookup("slow") is None
    other.store_many({"two": "2", "three": "3"})
    assert [hit.question for hit in other.entries()] == ["two", "three"]


def test_tool_that_sorts_all_keys_costs_nothing(make, path, warnings_of):
    """Such as ``jq -S``: then the version does not stand first."""
    make().store_many({"one": "1", "two": "2"})
    document = json.loads(path.read_bytes())
    replace_file(path, json.dumps(document, indent=2, sort_keys=True).encode())

    cache = make()
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert cache.store("three", "3") is True
    assert sorted(hit.question for hit in make().entries()) == ["one", "three", "two"]
    assert asides(path) == []
    assert warnings_of() == []


@pytest.mark.parametrize(
    "response",
    [
        pytest.param('"\\ud83d\\ude00"', id="escaped pair"),
        pytest.param('["\\ud83d\\ude00", "\\u00e9"]', id="escaped pair in a list"),
        pytest.param("18446744073709551615", id="largest int"),
        pytest.param('{"a": 1E2, "b": -0.0}', id="other floats"),
    ],
)
def test_what_json_wrote_comes_back_equal(make, path, response):
    """E13: json escapes and spaces what we and orjson don't."""
    make().store("one", "PLACE")
    replace_file(path, path.read_bytes().replace(b'"PLACE"', response.encode()))

    assert repr(make().get("one")) == repr(json.loads(response))
    make().store("two", "2")
    assert repr(make().get("one")) == repr(json.loads(response))
    strict(path.read_bytes())


@pytest.mark.parametrize(
    "response",
    [
        pytest.param('"\\ud800"', id="lone surrogate"),
        pytest.param('["\\ud800"]', id="lone surrogate in a list"),
        pytest.param('{"\\udfff": 1}', id="lone surrogate in a key"),
        pytest.param("1" + "0" * 30, id="big int"),
        pytest.param("[1" + "0" * 30 + "]", id="big int in a list"),
        pytest.param("1e999", id="infinite"),
        pytest.param("[1e999]", id="infinite in a list"),
        pytest.param("[" * 300 + "]" * 300, id="deep"),
        pytest.param("NaN", id="no JSON"),
    ],
)
@pytest.mark.parametrize("keeps_size", [True, False], ids=["same size", "other size"])
def test_what_readers_disagree_on_is_never_served_changed(make, path, response, keeps_size):
    """E13: an entry outside the JSON domain costs itself at most, whichever library is loaded."""
    import orjson  # noqa: F401 - it is used for decoding once it is there

    cache = make()
    cache.store("before", "b")
    cache.store("odd", "." * (len(response) - 2 if keeps_size else 1))
    cache.store("after", "a")
    line = json.dumps("." * (len(response) - 2 if keeps_size else 1)).encode()
    replace_file(path, path.read_bytes().replace(line, response.encode()))

    for reader in (cache, make()):
        assert reader.get("odd") in (None, json.loads(response))
        assert type(reader.get("odd")) in (type(None), type(json.loads(response)))
        assert (reader.get("before"), reader.get("after")) == ("b", "a")
        assert next(hit.question for hit in reader.entries()) == "before"
    assert make().store("new", "n") is True
    reader = make()
    assert [reader.get(question) for question in ("before", "after", "new")] == ["b", "a", "n"]
    strict(path.read_bytes())


# Versions.


def _version_cases():
    for version in ("2", "99", str(10**30)):
        for name, form in {
            "as written": b'{"respcache": %b, "what": ["we", {"do": "not"}], "know": null}\n',
            "compact": b'{"respcache":%b}',
            "pretty": b'{\n  "respcache": %b,\n  "entries": 5\n}\n',
            "BOM": b'\xef\xbb\xbf{"respcache": %b, "entries": {}}',
            "not JSON": b'{"respcache": %b, "log": true}\n{"q": 1}\n\xff\xfe',
        }.items():
            yield pytest.param(form % version.encode(), id=f"{version[:4]} {name}")


@pytest.mark.parametrize("data", list(_version_cases()))
def test_newer_version_is_neither_read_nor_written(make, path, warnings_of, data):
    """E13: an older release leaves it as it is, byte for byte."""
    path.write_bytes(data)
    before = path.stat()
    cache = make()

    assert cache.lookup("one") is None
    assert cache.store("one", "1") is False
    assert cache.store_many({"two": "2"}) == 0
    assert cache.forget("three") is False
    assert cache.invalidate("a.py") == 0
    assert cache.clear() == 0
    assert cache.prune() == 0
    assert cache.flush() is False
    assert path.read_bytes() == data
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert asides(path) == []
    [warning] = warnings_of()
    assert "newer" in warning
    assert "upgrade" in warning


def test_entries_wait_in_memory_beside_a_newer_version(make, path):
    old = make()
    old.store("kept", "k")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'{"respcache": 1', b'{"respcache": 2'))
    assert old.lookup("kept") is None
    old.store("new", "n")
    assert old.get("new") == "n"

    replace_file(path, data)

    assert old.get("kept") == "k"
    assert old.flush() is True
    assert make().get("new") == "n"


def test_newer_version_is_left_alone_wherever_it_stands(make, path):
    """E13: also after a tool has sorted the keys."""
    data = json.dumps({"entries": {}, "respcache": 2, "zeta": []}, indent=2).encode()
    path.write_bytes(data)

    assert make().store("one", "1") is False
    assert path.read_bytes() == data


@pytest.mark.parametrize("version", ["true", '"1"', "-1", "1.5", "null", "[]", "{}", "0", "1e0"])
def test_version_that_is_no_version_is_damage(make, path, warnings_of, version):
    make().store_many({"one": "1", "two": "2"})
    data = path.read_bytes().replace(b'{"respcache": 1', b'{"respcache": ' + version.encode())
    replace_file(path, data)

    cache = make()
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert path.read_bytes() == data
    assert cache.store("three", "3") is True
    assert strict(path.read_bytes())["respcache"] == 1
    assert type(strict(path.read_bytes())["respcache"]) is int
    assert [hit.question for hit in make().entries()] == ["one", "two", "three"]
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == data
    assert len(warnings_of()) == 1


@pytest.mark.parametrize("data", [b"", b"\n", b" \t\r\n"])
def test_empty_file_is_an_empty_cache(make, path, warnings_of, data):
    path.write_bytes(data)
    cache = make()

    assert cache.lookup("one") is None
    assert cache.store("one", "1") is True
    assert make().get("one") == "1"
    assert asides(path) == []
    assert warnings_of() == []


# What a store writes, and upon what.


def test_stores_of_two_who_opened_the_same_empty_file_are_both_there(make):
    """R19: the second has not looked since, and merges with what is on disk."""
    a, b = make(), make()
    assert (a.lookup("k1"), b.lookup("k1")) == (None, None)

    a.store("k1", "1")
    b.store("k2", "2")

    assert {hit.question for hit in make().entries()} == {"k1", "k2"}


def test_own_lookups_see_what_others_stored_before_an_own_store(make):
    """R19: a store takes over all that it read under the lock."""
    a, b = make(), make()
    a.store("a1", "1")
    b.store("b1", "2")
    a.store("a2", "3")

    assert a.get("b1") == "2"


def test_own_lookups_see_what_others_stored_before_an_own_store_of_nothing_new(make):
    """R19: nor is it lost where the same is stored again and nothing is written."""
    a, b = make(), make()
    a.store("a1", "1")
    b.store("b1", "2")
    assert a.store("a1", "1") is False
    assert a.store_many({"a1": "1"}) == 0

    assert a.get("b1") == "2"


def test_same_answer_again_writes_nothing(make, path, clock):
    cache = make()
    cache.store("one", {"a": [1]})
    before = path.stat()
    data = path.read_bytes()
    clock.advance(10)

    assert cache.store("one", {"a": [1]}) is False
    assert make().store("one", {"a": [1]}) is False
    assert cache.store_many({"one": {"a": [1]}}) == 0
    assert path.read_bytes() == data
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert cache.lookup("one").age == 10


def test_same_answer_again_takes_no_lock(make, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    cache = make()
    cache.store("one", "1")

    def refuse(fd, how):
        raise AssertionError("a lock was taken")

    monkeypatch.setattr(fcntl, "flock", refuse)

    assert cache.store("one", "1") is False


def test_same_answer_is_written_again_after_another_changed_it(make):
    """E15: what counts as the same is what is on disk, not what was."""
    a, b = make(), make()
    a.store("one", "old")
    b.store("one", "new")

    assert a.store("one", "old") is True
    assert b.get("one") == "old"


def test_same_answer_is_written_again_after_another_deleted_it(make, path):
    """E15."""
    a = make()
    a.store("one", "1")
    path.unlink()

    assert a.store("one", "1") is True
    assert make().get("one") == "1"


@pytest.mark.parametrize(("one", "other"), [(None, 60), (60, None), (60, 61)])
def test_same_answer_with_another_ttl_is_written(make, clock, one, other):
    """E15."""
    make().store("q", "a", ttl=one)

    assert make().store("q", "a", ttl=other) is True
    clock.advance(60.5)
    assert (make().lookup("q") is None) == (other == 60)


def test_short_ttl_of_a_reader_takes_nothing_from_others(make, clock):
    """E15: only the ttl that is kept in an entry removes it."""
    patient, hasty = make(), make(ttl=5)
    patient.store("one", "1")
    clock.advance(10)

    assert hasty.lookup("one") is None
    assert hasty.prune() == 0
    assert hasty.store("two", "2") is True
    assert patient.get("one") == "1"


def test_smallest_limit_of_those_who_store_holds_for_all(make, path):
    """E15: it stands in the file."""
    make(max_entries=3).store("q0", "a")
    wide = make(max_entries=100)
    for number in range(1, 6):
        wide.store(f"q{number}", "a")

    assert [hit.question for hit in wide.entries()] == ["q3", "q4", "q5"]
    assert strict(path.read_bytes())["limits"]["max_entries"] == 3


def test_limit_of_one_who_only_looks_removes_nothing(make, path):
    """E15."""
    make().store_many({"one": "1", "two": "2"})
    before = path.read_bytes()
    tight = make(max_entries=1)

    assert (tight.get("one"), tight.get("two")) == ("1", "2")
    assert tight.store("one", "1") is False
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "forget",
    [
        pytest.param(lambda cache: cache.forget("q0"), id="forget"),
        pytest.param(lambda cache: cache.clear(), id="clear"),
        pytest.param(lambda cache: cache.invalidate("a.py"), id="invalidate"),
        pytest.param(lambda cache: cache.prune(), id="prune"),
    ],
)
def test_limit_stays_when_entries_go(make, clock, forget):
    """E15."""
    make(max_entries=2).store("q0", "a", ttl=1, paths=["a.py"])
    clock.advance(2)
    forget(make())

    other = make()
    for number in range(1, 5):
        other.store(f"q{number}", "a")
    assert len(make()) == 2


def test_limit_of_bytes_counts_what_is_on_disk(make, path):
    make(max_bytes=1000).store("q0", "x" * 300)
    for number in range(1, 9):
        make().store(f"q{number}", "x" * 300)

    stats = make().stats()
    assert stats["entries"] == 2
    assert stats["bytes"] <= 1000


def test_lookups_of_an_unchanged_file_open_it_once(make, path, monkeypatch):
    """R35: 20,000 entries, 10,000 lookups, one reading."""
    writer = make()
    writer.store_many({f"q{number}": str(number) for number in range(20_000)})
    reader = make()
    opened = Calls(monkeypatch, "open", path)

    for number in range(10_000):
        assert reader.get(f"q{number}") == str(number)
    assert opened.count == 1


def test_own_store_is_not_read_back(make, path, monkeypatch):
    """R35: the signature is taken again after the rename, which changes ctime."""
    cache = make()
    cache.store("one", "1")
    opened = Calls(monkeypatch, "open", path)

    assert cache.get("one") == "1"
    cache.store("two", "2")
    assert (cache.get("one"), cache.get("two")) == ("1", "2")
    assert opened.count == 0


def test_store_after_anothers_reads_and_writes_once(make, path, monkeypatch):
    """R35."""
    a, b = make(), make()
    a.store("a1", "1")
    b.store("b1", "2")
    opened = Calls(monkeypatch, "open", path)
    written = Calls(monkeypatch, "replace", path)

    a.store("a2", "3")
    assert (a.get("a1"), a.get("b1"), a.get("a2")) == ("1", "2", "3")
    assert opened.count == 1
    assert written.count == 1


def test_batch_is_written_once(make, path, monkeypatch):
    """R35."""
    cache = make()
    cache.store("zero", "0")
    written = Calls(monkeypatch, "replace", path)

    assert cache.store_many({f"q{number}": "a" for number in range(500)}) == 500
    assert written.count == 1


# How a change is seen.


def test_store_of_another_is_seen_at_once(make):
    a, b = make(), make()
    assert a.lookup("one") is None
    b.store("one", "1")

    assert a.get("one") == "1"


def test_store_of_another_is_seen_with_the_old_mtime_put_back(make, path):
    """R22: size, inode or ctime differ as well."""
    a, b = make(), make()
    b.store("one", "old")
    assert a.get("one") == "old"
    before = path.stat()
    b.store("one", "new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert path.stat().st_size == before.st_size
    assert a.get("one") == "new"


def test_commits_within_one_tick_are_all_seen(make, path):
    """R22, R20: on a clock so coarse that all versions have one mtime and one size."""
    a, b = make(), make()
    for number in range(50):
        b.store("one", f"version {number:02}")
        os.utime(path, ns=(0, 1_000_000_000))
        assert a.get("one") == f"version {number:02}"


def test_two_commits_between_looks_are_seen_though_sizes_and_times_are_equal(make, path):
    """R22: the inode of the version that is loaded can't come back, since it is kept open."""
    a, b = make(), make()
    b.store("one", "version 00")
    os.utime(path, ns=(0, 1_000_000_000))
    assert a.get("one") == "version 00"
    loaded = path.stat().st_ino
    inodes = set()
    for number in range(1, 41):
        b.store("one", f"version {number:02}")
        os.utime(path, ns=(0, 1_000_000_000))
        inodes.add(path.stat().st_ino)

    assert loaded not in inodes
    assert a.get("one") == "version 40"


def test_edit_in_place_of_the_same_size_with_mtime_put_back_is_seen(make, path):
    """E24, R22: by ctime, which nobody can put back."""
    cache = make()
    cache.store("one", "second")
    assert cache.get("one") == "second"
    before = path.stat()
    data = path.read_bytes().replace(b'"second"', b'"SECOND"')
    after = before
    while after.st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()

    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    assert cache.get("one") == "SECOND"
    assert make().get("one") == "SECOND"


def test_older_backup_put_back_is_a_reload(make, path, tmp_path):
    """R22: different, not newer."""
    cache = make()
    cache.store("one", "old")
    backup = tmp_path / "backup"
    shutil.copy2(path, backup)
    os.utime(backup, ns=(0, 10**18))
    cache.store("one", "new")
    cache.store("two", "2")
    assert cache.get("one") == "new"
    os.replace(backup, path)

    assert cache.get("one") == "old"
    assert cache.lookup("two") is None
    assert cache.store("three", "3") is True
    assert [hit.question for hit in make().entries()] == ["one", "three"]


def test_copy_over_the_same_inode_is_a_reload(make, path, tmp_path):
    """E08: ``cp`` of a larger and of a smaller backup keeps the inode."""
    cache = make()
    small, large = tmp_path / "small", tmp_path / "large"
    cache.store("one", "1")
    shutil.copyfile(path, small)
    cache.store("two", "2" * 1000)
    shutil.copyfile(path, large)
    cache.store("three", "3")
    cache.store("one", "changed")
    cache.forget("two")
    assert cache.get("one") == "changed"
    inode = path.stat().st_ino

    for backup, expected in ((large, ["one", "two"]), (small, ["one"]), (large, ["one", "two"])):
        shutil.copyfile(backup, path)
        assert path.stat().st_ino == inode
        assert cache.get("one") == "1"
        assert [hit.question for hit in cache.entries()] == expected
        assert cache.lookup("three") is None


def test_deleted_file_is_an_empty_cache(make, path):
    """E08: whatever was in it before, and without a word."""
    cache = make()
    cache.store("one", "1")
    assert cache.get("one") == "1"
    path.unlink()

    assert cache.lookup("one") is None
    assert list(cache.entries()) == []
    assert len(cache) == 0
    assert not path.exists()
    assert cache.store("two", "2") is True
    assert [hit.question for hit in make().entries()] == ["two"]


def test_change_during_the_reading_is_seen_at_the_next_look(make, path, monkeypatch):
    """E24: the signature is taken before the bytes are read."""
    make().store("one", "old")
    other = make()
    reader = make()
    new = path.read_bytes().replace(b'"old"', b'"new!"')
    real = os.read
    read = []

    def read_then_change(fd, size):
        data = real(fd, size)
        if not read and data:
            read.append(data)
            path.write_bytes(new)
        return data

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read_then_change)
        assert reader.get("one") in ("old", "new!")

    assert read
    assert reader.get("one") == "new!"
    assert other.get("one") == "new!"


def test_replacement_between_look_and_reading_is_the_new_version_or_the_old(make, monkeypatch):
    """The file goes away between the stat and the open, and comes back."""
    writer = make()
    writer.store("one", "old")
    reader = make()
    real = os.open
    steps = []

    def vanish_first(name, flags, *args, **options):
        if str(name).endswith("answers.json") and not steps:
            steps.append(name)
            os.rename(name, f"{name}.away")
            try:
                return real(name, flags, *args, **options)
            finally:
                os.rename(f"{name}.away", name)
        return real(name, flags, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", vanish_first)
        assert reader.lookup("one") is None

    assert steps
    assert reader.get("one") == "old"


def test_lookup_never_waits_for_a_thread_that_stores(make, path, monkeypatch):
    """R24: neither for its lock nor for its disk."""
    cache = make(fsync=True)
    cache.store("one", "1")
    inside, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(fd):
        inside.set()
        go_on.wait(30)
        real(fd)

    monkeypatch.setattr(os, "fsync", slow)
    thread = threading.Thread(target=cache.store, args=("two", "2"))
    thread.start()
    try:
        assert inside.wait(30)

        assert cache.get("one") == "1"
        assert cache.lookup("two") is None
        assert make().get("one") == "1"
        assert thread.is_alive()
    finally:
        go_on.set()
        thread.join(30)
    assert cache.get("two") == "2"


# Tickets: a result that was overtaken while it was computed.


def _forget(make, path, cache):
    make().forget("slow")


def _clear(make, path, cache):
    make().clear()


def _invalidate(make, path, cache):
    make().invalidate([path.parent / "read.txt"])


def _delete(make, path, cache):
    path.unlink()


def _delete_and_make_anew(make, path, cache):
    path.unlink()
    make().store("other", "o")


def _restore_backup(make, path, cache):
    replace_file(path, (path.parent / "backup").read_bytes())


def _put_foreign_file(make, path, cache):
    foreign = Cache(path.parent / "foreign.json", fsync=False)
    foreign.store("else", "where")
    os.replace(path.parent / "foreign.json", path)


def _damage(make, path, cache):
    replace_file(path, b'{"respcache": 1, "entries": {"q')


def _empty(make, path, cache):
    path.write_bytes(b"")


def _many_removals(make, path, cache):
    other = make()
    for number in range(200):
        other.forget(f"nothing {number}")


@pytest.mark.parametrize(
    "overtake",
    [
        pytest.param(each, id=each.__name__.strip("_"))
        for each in (
            _forget,
            _clear,
            _invalidate,
            _delete,
            _delete_and_make_anew,
            _restore_backup,
            _put_foreign_file,
            _damage,
            _empty,
            _many_removals,
        )
    ],
)
def test_result_that_was_overtaken_is_returned_and_not_kept(make, path, overtake):
    """E02: a file that was deleted, restored or exchanged can't confuse the guard."""
    cache = make()
    cache.store("kept", "k")
    (path.parent / "backup").write_bytes(path.read_bytes())
    cache.forget("gone")

    def compute():
        overtake(make, path, cache)
        return "stale"

    answer = cache.get_or_call("slow", compute, paths=[path.parent / "read.txt"])

    assert answer == "stale"
    assert cache.lookup("slow") is None
    assert make().lookup("slow") is None
    assert cache.stats()["refused"] == 1


def test_result_is_kept_beside_other_changes(make):
    cache = make()
    cache.store("kept", "k")

    def compute():
        other = make()
        other.store("another", "a")
        other.forget("kept")
        other.invalidate("elsewhere.py")
        other.prune()
        return "fresh"

    assert cache.get_or_call("slow", compute) == "fresh"
    assert make().get("slow") == "fresh"
    assert make().get("another") == "a"


def test_newer_answer_of_another_stays(make):
    cache = make()

    def compute():
        make().store("slow", "newer")
        return "older"

    assert cache.get_or_call("slow", compute) == "older"
    assert (cache.get("slow"), make().get("slow")) == ("newer", "newer")


def test_result_from_before_the_first_file_is_kept(make):
    cache = make()

    def compute():
        make().store("another", "a")
        return "fresh"

    assert cache.get_or_call("slow", compute) == "fresh"
    assert {hit.question for hit in make().entries()} == {"another", "slow"}


def test_result_from_before_the_first_file_is_overtaken_by_its_first_removal(make):
    """E02: no file yet is a state as well."""
    cache = make()

    def compute():
        make().forget("slow")
        return "stale"

    assert cache.get_or_call("slow", compute) == "stale"
    assert make().lookup("slow") is None


def test_result_from_before_a_file_that_came_and_went_is_not_kept(make, path):
    """E02: two states of "no file" are not one."""
    cache = make()

    def compute():
        make().forget("slow")
        assert cache.lookup("another") is None
        path.unlink()
        assert cache.lookup("another") is None
        return "stale"

    assert cache.get_or_call("slow", compute) == "stale"
    assert make().lookup("slow") is None


@pytest.mark.parametrize(
    "overtake", [_forget, _delete, _restore_backup, _put_foreign_file, _damage, _many_removals]
)
def test_plain_store_is_never_refused(make, path, overtake):
    """E02: it takes its ticket under the lock."""
    cache = make()
    cache.store("kept", "k")
    (path.parent / "backup").write_bytes(path.read_bytes())
    cache.forget("gone")
    overtake(make, path, cache)

    assert cache.store("slow", "stored") is True
    assert make().get("slow") == "stored"
