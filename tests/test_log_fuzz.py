"""Logs as no writer leaves them: whatever became of the bytes, nothing raises, no answer is wrong.

What may be answered follows from the bytes. A line that a writer wrote counts
where it stands there whole. Where lines are missing and a bad one is in their
place, that is damage: what it said is unknown, so it and all before it are
forgotten. What was cut off at the end is forgotten too, and the rest is as it was
before. Where lines are missing without a trace, or are in another order, or are
those of another log, that is forgery: then a question has an answer that was
once stored under it, or none.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from respcache import Cache
from respcache.testing import FakeClock

PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]  # what explains is slow
STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))
EXAMPLES = 100 * STRESS
pytestmark = pytest.mark.timeout(120 * STRESS)
QUESTIONS = "abcd"
KEPT = 3  # entries at most, so that some are evicted


reads = 0


def counted(real):
    """Return *real*, which fails where something reads on and on."""

    def read(*given):
        global reads
        reads += 1
        assert reads < 5_000, "reads without end"
        return real(*given)

    return read


@pytest.fixture(scope="module", autouse=True)
def _quick_and_quiet():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        if hasattr(os, "pread"):
            patch.setattr(os, "pread", counted(os.pread))
        patch.setattr(logging.getLogger("respcache"), "disabled", True)
        yield


def make(path):
    global reads
    reads = 0
    return Cache(path, clock=FakeClock(), max_entries=KEPT)


def make_full(path):
    """Open the log once more, and read all its lines."""
    cache = make(path)
    cache.lookup("one")
    cache.lookup("another")
    return cache


def answers(cache):
    return {question: cache.get(question) for question in QUESTIONS}


def cold_answers(path):
    """Return what processes with one question each find."""
    return {question: make(path).get(question) for question in QUESTIONS}


# Real logs, and what is right at each of their lines.


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from(QUESTIONS), st.integers(0, 3)),
        st.tuples(st.just("read"), st.sampled_from(QUESTIONS), st.integers(0, 3)),
        st.tuples(st.just("batch"), st.sampled_from(["ab", "bcd", "da"]), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.sampled_from(QUESTIONS)),
        st.tuples(st.sampled_from(["clear", "invalidate", "tear"])),
    ),
    min_size=4,
    max_size=14,
)


def response_of(number, kind):
    """Return a response of that step alone; some look like the lines of a log."""
    return [
        f"v{number}",
        {"n": number, "text": '\n{"q//1f//a": {"response": "fake", "question": "a"}}\n#torn\n'},
        f"{number}" * 300,
        number,
    ][kind]


def is_whole(line):
    found = re.search(rb', "sum": "([0-9a-f]{8})"}\n$', line)
    return found is not None and int(found[1], 16) == crc32(line[: found.start()])


class Log:
    """A real log at *path*: what *steps* left, with responses numbered from *first*.

    Attributes:
        lines: Its lines.
        right: Of each line, what is kept once it is there: (response, line) by question.
        stored: All that was ever stored under each question.
    """

    def __init__(self, path, steps, first=0):
        self.path = path
        self.lines = []
        self.right = []
        self.stored = {question: [] for question in QUESTIONS}
        self._kept = {}  # oldest first
        self._read = set()  # from the source
        self._cache = make(path)
        self._source = path.with_name("source.py")
        for number, step in enumerate([("batch", ["seed"], 0), *steps], first):
            self._do(number, *step)
        self._cache.close()
        self.data = path.read_bytes()
        self.numbers = {line: n for n, line in enumerate(self.lines) if is_whole(line)}

    def _do(self, number, kind, questions=(), which=0):
        cache, kept, before = self._cache, self._kept, dict(self._kept)
        response = response_of(number, which)
        stored = []
        if kind == "forget":
            assert cache.forget(questions) is (kept.pop(questions, None) is not None)
        elif kind == "clear":
            assert cache.clear() == len(kept)
            kept.clear()
        elif kind == "invalidate":
            touched = [question for question in kept if question in self._read]
            assert cache.invalidate(self._source) == len(touched)
            for question in touched:
                del kept[question]
        elif kind == "tear":
            with self.path.open("ab") as file:
                file.write(self.lines[-1].rstrip(b"\n")[:-20])
        else:
            stored = [*questions]
            self._read.difference_update(stored)
            if kind == "read":
                self._read.update(stored)
                assert cache.store(questions, response, paths=[self._source]) is True
            else:
                assert cache.store_many(dict.fromkeys(stored, response)) == len(stored)
        old = len(self.lines)
        self.lines = self.path.read_bytes().splitlines(keepends=True)
        for question in stored:
            start = b'{"q//1f//%b": ' % question.encode()
            [line] = [line for line in self.lines[old:] if line.startswith(start)]
            self.stored.setdefault(question, []).append(response)
            kept.pop(question, None)
            kept[question] = (response, line)
        for question in [*kept][:-KEPT]:
            del kept[question]
        # A commit of several lines counts with its last.
        new = len(self.lines) - len(self.right)
        self.right += [before] * (new - 1) + [dict(kept)] * (new > 0)


# What may be answered.


class Verdict:
    """What *data*, which was *log*, may be found to say."""

    def __init__(self, log, data):
        self._log = log
        lines = re.findall(rb"[^\n]*\n", data)
        self.is_forged = False
        self.is_damaged = lines[:1] != log.lines[:1]
        # A torn line may stand where a newer answer was, but is passed.
        self.is_odd = self.is_damaged
        self.missed = {question: [] for question in QUESTIONS}  # by who sees no damage after it
        last, is_bad, alive = 0, False, set()
        for line in lines[1:]:
            number = log.numbers.get(line)
            if number is not None:
                missing = any(is_whole(each) for each in log.lines[last + 1 : number])
                if number <= last or (last and missing and not is_bad):
                    self.is_forged = True
                last, is_bad = number, False
                alive.add(line)
            elif is_whole(line):
                self.is_forged = True
            elif not line.endswith(b"#torn\n"):
                is_bad = self.is_damaged = True
                for each in alive:
                    for key, entry in json.loads(each).items():
                        if key[7:] in self.missed and key.startswith("q//1f//"):
                            self.missed[key[7:]].append(entry["response"])
                alive.clear()
            elif line not in log.lines:
                self.is_odd = True
                # Within a commit it says that the rest of it was never written.
                more = int(log.lines[last].rpartition(b'"more": "')[2][:12], 16) if last else 0
                self.is_forged |= more > 0
        kept = log.right[last] if last else {}
        self.right = {
            question: kept[question][0] if question in kept and kept[question][1] in alive else None
            for question in QUESTIONS
        }

    def check(self, found, *, is_cold=False, also=()):
        """Check the answers *found*; those of the log *also* may be forged in."""
        for question, answer in found.items():
            allowed = [self.right[question]]
            if self.is_odd:
                allowed.append(None)
            if self.is_damaged and is_cold:
                allowed += [None, *self.missed[question]]
            if self.is_forged:
                allowed += [None, *self._log.stored[question]]
            for other in also if self.is_forged else ():
                allowed += other.stored[question]

            assert answer in allowed, (question, self.__dict__)


def check(log, data, other):
    """Check what is found, and what becomes of stores, where *log* has become *data*."""
    path = log.path
    verdict = Verdict(log, data)
    path.write_bytes(log.data)
    watcher = make_full(path)
    last = answers(watcher)
    path.write_bytes(data)

    # Whoever looks.
    full = make_full(path)
    found = answers(full)
    listed = {hit.question: hit.response for hit in full.entries()}
    verdict.check(found, also=[other])
    verdict.check({q: listed.get(q) for q in QUESTIONS}, also=[other])
    verdict.check(cold_answers(path), is_cold=True, also=[other])
    for question, answer in answers(watcher).items():
        if answer != last[question]:  # by what it had read before
            verdict.check({question: answer}, is_cold=True, also=[other])

    assert len(full) == len(listed)
    assert full.explain("a").startswith("miss" if found["a"] is None else "hit")
    assert path.read_bytes() == data  # who looks writes nothing

    # Whoever stores: one who has read all, one who has read nothing, one who had read it before.
    for store in (full, make(path), watcher):
        path.write_bytes(data)
        is_stored = store.store("new", "n")

        assert store.get("new") == "n"
        if not is_stored:
            # Of a newer version, it says: left alone.
            assert re.match(rb'{"respcache": *[1-9]', data)
            assert path.read_bytes() == data
            continue

        assert make(path).get("new") == "n"

        fresh = make_full(path)
        agreed = answers(fresh)
        verdict.check(
            {q: answer for q, answer in agreed.items() if answer is not None}, also=[other]
        )
        if store is full:
            # It has seen all damage, and mended it.
            assert is_clean(path.read_bytes())
            assert answers(store) == agreed
            if not verdict.is_forged:
                assert cold_answers(path) == agreed

        assert fresh.get("new") == "n"
        assert store.forget("a") in (True, False)
        assert store.store("b", "newest") is True
        for reader in (store, watcher, make_full(path)):
            assert (reader.get("a"), reader.get("b")) == (None, "newest")
            assert {h.question: h.response for h in reader.entries()}.get("b") == "newest"
        assert (make(path).get("a"), make(path).get("b")) == (None, "newest")
        assert store.get_or_call("c", lambda: "computed") in [
            "computed",
            agreed["c"],
            *log.stored["c"],
            *other.stored["c"],
        ]
        assert len(make(path)) <= KEPT


def is_clean(data):
    """Tell whether a full reader finds nothing wrong in *data*."""
    if b'"log": true' not in data[:100]:
        return json.loads(data)["respcache"] == 1  # a document by now
    header, *lines = re.findall(rb"[^\n]*\n|[^\n]+$", data)
    return json.loads(header)["respcache"] == 1 and all(
        is_whole(line) or line.endswith(b"#torn\n") for line in lines
    )


# What becomes of the bytes.


def places(data):
    """Places in *data*, with those beside the ends of lines preferred."""
    ends = [found.end() for found in re.finditer(rb"\n", data)]
    near = st.builds(
        lambda end, by: min(max(end + by, 0), len(data)),
        st.sampled_from([0, *ends]),
        st.integers(-3, 3),
    )
    return st.one_of(st.integers(0, len(data)), near)


SCRAPS = {
    "end of a line": b"\n",
    "another end of a line": b"\r\n",
    "vertical tab": b"\v",
    "zeros": b"\0" * 512,
    "zeros and an end": b"\0" * 512 + b"\n",
    "torn mark": b"#torn\n",
    "torn line": b'{"q//1f//a": {"response": "to#torn\n',
    "brace": b"{",
    "other brace": b"}\n",
    "quote": b'"',
    "start of a header": b'{"respcache": 1',
    "header": b'{"respcache": 1, "log": true, "limits": {}, "complete": true}\n',
    "header of a document": b'{"respcache": 1}\n',
    "no UTF-8": b"\xff",
}


def scraps(data, other):
    """Bytes that may come from anywhere: noise, marks, pieces of this log and of another."""

    def pieces(data):
        return st.tuples(places(data), places(data)).map(lambda at: data[min(at) : max(at)])

    return st.one_of(
        st.binary(min_size=1, max_size=40),
        st.sampled_from([*SCRAPS.values()]),
        pieces(data),
        pieces(other),
    )


@st.composite
def damaged(draw, data, other):
    """Return *data* after one to three accidents with its bytes."""
    for _ in range(draw(st.integers(1, 3))):
        accident = draw(st.sampled_from(["cut", "lose", "overwrite", "insert", "flip"]))
        at = draw(places(data))
        if accident == "cut":
            data = data[:at]
        elif accident == "lose":
            end = draw(places(data))
            data = data[: min(at, end)] + data[max(at, end) :]
        elif accident == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        else:
            scrap = draw(scraps(data, other))
            data = data[:at] + scrap + data[at + len(scrap) * (accident == "overwrite") :]
    return data


@st.composite
def rearranged(draw, data, other):
    """Return *data* with its lines, and those of another log, in another order."""
    lines = data.splitlines(keepends=True)
    strange = other.splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 3))):
        at, to = (draw(st.integers(0, max(len(lines) - 1, 0))) for _ in range(2))
        match draw(st.sampled_from(["delete", "repeat", "swap", "take", "replace", "join"])):
            case "delete":
                del lines[at : to + 1]
            case "repeat":
                lines[to:to] = lines[at : at + 1]
            case "swap" if lines:
                lines[at], lines[to] = lines[to], lines[at]
            case "take":
                lines[at:at] = draw(st.lists(st.sampled_from(strange), max_size=3))
            case "replace":
                lines[at : at + 1] = [draw(st.sampled_from(strange))]
            case "join":
                lines += strange[draw(st.integers(0, 2)) :]
    return b"".join(lines)


GOOD = b'{"respcache": 1, "log": true, "limits": {}, "complete": true}\n'
HEADERS = {
    "none": b"",
    "good": GOOD,
    "end of a line": b"\n",
    "BOM": b"\xef\xbb\xbf" + GOOD,
    "space": b" " + GOOD,
    "spaced": b'{ "respcache" : 1 , "log" : true, "limits": {}, "complete": true}\n',
    "CR LF": GOOD[:-1] + b"\r\n",
    "no end": GOOD[:-1],
    "vertical tab": GOOD[:-1] + b"\v",
    "more after it": GOOD[:-1] + b" {}\n",
    "smaller limit": GOOD.replace(b"{}", b'{"max_entries": 2}'),
    "limit 0": GOOD.replace(b"{}", b'{"max_entries": 0}'),
    "limit a text": GOOD.replace(b"{}", b'{"max_entries": "9"}'),
    "limits a list": GOOD.replace(b"{}", b"[]"),
    "incomplete": GOOD.replace(b'"complete": true', b'"complete": false'),
    "complete a number": GOOD.replace(b'"complete": true', b'"complete": 1'),
    "no facts": b'{"respcache": 1, "log": true}\n',
    "no log": GOOD.replace(b'"log": true', b'"log": false'),
    "log a number": GOOD.replace(b'"log": true', b'"log": 1'),
    "a fact more": GOOD.replace(b"}\n", b', "later": [1]}\n'),
    "of a document": b'{"respcache": 1}\n',
    "start of a document": b'{"respcache": 1, "limits": {}, "entries": {\n',
    "newer": GOOD.replace(b"1", b"2"),
    "much newer": GOOD.replace(b"1", b"9" * 30),
    "version 0": GOOD.replace(b"1", b"0"),
    "version -1": GOOD.replace(b"1", b"-1"),
    "version 1.0": GOOD.replace(b"1", b"1.0"),
    "version a text": GOOD.replace(b"1", b'"1"'),
    "version null": GOOD.replace(b"1", b"null"),
    "version true": GOOD.replace(b": 1,", b": true,"),
    "no version": GOOD.replace(b'"respcache": 1, ', b""),
    "version's name damaged": GOOD.replace(b"respcache", b"Respcache"),
    "version second": b'{"log": true, "respcache": 1, "limits": {}, "complete": true}\n',
    "of a flat file": b'{"a question": "an answer"}\n',
    "object": b"{}\n",
    "list": b"[]\n",
    "null": b"null\n",
    "zeros": b"\0" * 100 + b"\n",
    "long": b"x" * 70_000 + b"\n",
}


# The tests.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def fuzz(folder, steps, others, change):
    """Check a log of *steps* after *change*, which is given the bytes of another log, too."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        log = Log(Path(name) / "answers.jsonl", steps)
        other = Log(Path(name) / "other.jsonl", others, first=100)
        check(log, change(log.data, other.data), other)


# All that a log can have; then one that ends with what was taken away, and one with
# something right before that, of which the first line to be met from the end tells.
LOGS = [
    [
        ("store", "d", 0),  # to be evicted
        ("store", "c", 0),
        ("forget", "c"),
        ("read", "b", 0),
        ("forget", "b"),
        ("forget", "b"),
        ("tear",),
        ("batch", "ab", 1),
        ("read", "b", 0),
        ("invalidate",),
        ("store", "a", 2),
        ("tear",),
        ("batch", "ab", 3),
        ("batch", ["seed"], 0),
    ],
    [("store", "a", 0), ("store", "b", 0), ("forget", "c"), ("forget", "d"), ("forget", "c")],
    [("store", "a", 0), ("forget", "d"), ("store", "c", 0), ("forget", "c"), ("store", "b", 0)],
]
LINES = 21  # of the longest


def fuzz_all(folder, changes):
    """Check real logs after each of *changes*, which are given their lines, in turn."""
    for steps in LOGS:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            log = Log(Path(name) / "answers.jsonl", steps)
            other = Log(Path(name) / "other.jsonl", [("store", "a", 0), ("read", "b", 1)], 100)
            assert len(log.lines) <= LINES
            for number, change in enumerate(changes):
                if number <= len(log.lines):
                    check(log, change(log.lines), other)
                    for aside in Path(name).glob("*.corrupt-*"):
                        aside.unlink()


@pytest.mark.parametrize("scrap", [pytest.param(scrap, id=name) for name, scrap in SCRAPS.items()])
def test_log_with_a_scrap_between_its_lines_gives_no_older_answer(folder, scrap):
    """E09, E11: each line after it is at another place than the others say."""
    fuzz_all(
        folder,
        [
            lambda lines, at=at: b"".join([*lines[:at], scrap, *lines[at:]])
            for at in range(LINES + 1)
        ],
    )


@pytest.mark.parametrize(
    "name", ["end of a line", "vertical tab", "zeros", "torn mark", "brace", "other brace"]
)
def test_log_with_a_scrap_over_its_lines_gives_no_older_answer(folder, name):
    """E09: over the end of one line and the start of the next."""
    scrap = SCRAPS[name]

    def overwrite(lines, end):
        data = b"".join(lines)
        at = max(len(b"".join(lines[:end])) - 1 - len(scrap) // 2, 0)
        return data[:at] + scrap + data[at + len(scrap) :]

    fuzz_all(folder, [lambda lines, at=at: overwrite(lines, at) for at in range(LINES + 1)])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines, at: [*lines[:at], *lines[at + 1 :]], id="lost"),
        pytest.param(lambda lines, at: [*lines[:at], *lines[at + 2 :]], id="lost with the next"),
        pytest.param(lambda lines, at: [*lines[:1], *lines[at:]], id="lost with all before it"),
        pytest.param(lambda lines, at: [*lines[: at + 1], *lines[at:]], id="twice"),
        pytest.param(lambda lines, at: [*lines, *lines[at:]], id="again at the end"),
        pytest.param(
            lambda lines, at: [*lines[:at], *lines[at + 1 :], *lines[at : at + 1]], id="moved last"
        ),
        pytest.param(
            lambda lines, at: [lines[0], *lines[at : at + 1], *lines[1:at], *lines[at + 1 :]],
            id="moved first",
        ),
    ],
)
def test_log_with_a_line_lost_doubled_or_moved_gives_what_was_stored_once(folder, change):
    """Whoever edits it by hand makes no process wait for ever, or raise."""
    fuzz_all(
        folder,
        [lambda lines, at=at: b"".join(change(lines, at)) for at in range(1, LINES + 1)],
    )


@pytest.mark.parametrize(
    "header", [pytest.param(header, id=name) for name, header in HEADERS.items()]
)
def test_log_under_whatever_header_gives_no_older_answer(folder, header):
    """E13: before its own, instead of it, and instead of it and the line after it."""
    fuzz_all(folder, [lambda lines, at=at: header + b"".join(lines[at:]) for at in range(3)])


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(STEPS, STEPS, st.data())
def test_damaged_log_gives_no_older_answer(folder, steps, others, data):
    """E08, E09, E11, E12: cuts, holes, noise, pieces of other logs and flipped bits, anywhere."""
    fuzz(folder, steps, others, lambda *logs: data.draw(damaged(*logs)))


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(STEPS, STEPS, st.data())
def test_log_with_lines_rearranged_gives_no_answer_that_was_never_stored(
    folder, steps, others, data
):
    """Each line is whole, so nobody can tell: but none raises, and all is well after a store."""
    fuzz(folder, steps, others, lambda *logs: data.draw(rearranged(*logs)))


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)), st.data())
def test_file_of_any_bytes_is_a_log_to_store_on(folder, noise, data):
    steps = [("store", "a", 0), ("store", "b", 1)]
    header = data.draw(st.sampled_from([*HEADERS.values()]))
    fuzz(folder, steps, steps, lambda *_: header + noise)


# Commits that were cut off.


def three_in_a_batch(path, size):
    """Store a batch of three; return what was there before, and the three lines."""
    make(path).store("seed", "s")
    make(path).forget("seed")
    before = path.read_bytes()
    make(path).store_many({"a": "1", "b": "2" * size, "c": "3"})
    return before, path.read_bytes()[len(before) :].splitlines(keepends=True)


def nothing_of_it(path):
    return (
        [answers(make_full(path))[q] for q in "abc"]
        == [cold_answers(path)[q] for q in "abc"]
        == [None] * 3
    )


def test_batch_that_was_cut_at_any_byte_counts_for_nothing_also_after_the_next_store(folder):
    """E10, E12: wherever what comes next begins."""
    path = folder / "cut.jsonl"
    before, lines = three_in_a_batch(path, 1)
    batch = b"".join(lines)
    kept = []
    for length in range(len(batch)):
        path.write_bytes(before + batch[:length])
        assert make(path).store("next", "n") is True
        if not nothing_of_it(path):
            kept.append(length)

    assert kept == []


def test_batch_that_was_cut_counts_for_nothing_also_if_a_line_comes_to_stand_where_it_ended(folder):
    """E10: of another commit, whose line is whole and ends it."""
    path = folder / "place.jsonl"
    before, lines = three_in_a_batch(path, 500)
    torn = before + lines[0] + lines[1][:10]
    end = len(before + lines[0] + lines[1])
    path.write_bytes(torn)
    make(path).store("next", "n")
    rest = end - path.stat().st_size
    path.write_bytes(torn)
    make(path).store("next", "n" * (1 + rest))

    assert path.stat().st_size == end
    assert nothing_of_it(path)
    assert make(path).store("another", "n") is True
    assert nothing_of_it(path)


# What these tests judge by.


@pytest.mark.parametrize(
    ("order", "is_forged", "is_damaged", "right", "missed"),
    [
        # Of header, birth, seed, a = v1, b = v2, A = v3, other log's, bad one and half a one.
        pytest.param("hisabA", False, False, ("v3", "v2"), [], id="as it was"),
        pytest.param("hisab", False, False, ("v1", "v2"), [], id="cut"),
        pytest.param("hisab~", False, False, ("v1", "v2"), [], id="cut in a line"),
        pytest.param("hisabx", False, True, (None, None), ["v1"], id="damaged last"),
        pytest.param("hisxbA", False, True, ("v3", "v2"), [], id="damaged before the newest"),
        pytest.param("hisaxA", False, True, ("v3", None), ["v1"], id="damaged in between"),
        pytest.param("hisaA", True, False, None, [], id="lost without a trace"),
        pytest.param("hisabAa", True, False, None, [], id="older line again"),
        pytest.param("hisabAo", True, False, None, [], id="line of another"),
        pytest.param("habA", False, False, ("v3", "v2"), [], id="lost before all"),
        pytest.param("xisabA", False, True, ("v3", "v2"), [], id="header damaged"),
    ],
)
def test_verdict_tells_damage_from_forgery(folder, order, is_forged, is_damaged, right, missed):
    with tempfile.TemporaryDirectory(dir=folder) as name:
        steps = [("store", "a", 0), ("store", "b", 0), ("store", "a", 0)]
        log = Log(Path(name) / "answers.jsonl", steps)
        other = Log(Path(name) / "other.jsonl", steps, first=100)
    lines = dict(zip("hisabA", log.lines, strict=True))
    lines |= {"o": other.lines[3], "x": log.lines[4].replace(b"v", b"V"), "~": b'{"q//1f//a": {'}
    verdict = Verdict(log, b"".join(lines[name] for name in order))

    assert (verdict.is_forged, verdict.is_damaged) == (is_forged, is_damaged)
    assert verdict.missed["a"] == missed
    if right is not None:
        assert (verdict.right["a"], verdict.right["b"]) == right
