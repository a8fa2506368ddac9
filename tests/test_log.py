"""The log: its lines, what damage costs, the cold look, compaction, and a model of it all."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from respcache import Cache
from respcache._stores import log as log_module
from respcache._stores import log_lines, log_view
from respcache.testing import FakeClock

Make = Callable[..., Cache]
LONG = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    """Open the log once more, as another process does."""
    made: list[Cache] = []

    def make(**options: Any) -> Cache:
        cache = Cache(options.pop("path", path), **options)
        made.append(cache)
        return cache

    yield make
    for cache in made:
        cache.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]


def is_filled(cache: Cache) -> bool:
    view: Any = cache._store._view  # type: ignore[attr-defined]
    return bool(view.is_filled)


class TestFormat:
    def test_each_commit_is_one_line_of_json_behind_a_header(self, make: Make, path: Path) -> None:
        cache = make()
        cache.store("Hello", "Hi\nthere \u2028 \u00e9")
        cache.forget("other")
        header, birth, stored, removed = lines(path)

        assert list(header) == ["respcache", "log", "limits", "complete"]
        assert birth["removed"]["keys"] == []
        assert stored["q//1f//hello"]["response"] == "Hi\nthere \u2028 \u00e9"
        assert removed["removed"]["keys"] == ["q//1f//other"]

    def test_bytes_once_written_never_change(self, make: Make, path: Path) -> None:
        cache = make()
        before = b""
        for number in range(5):
            cache.store(f"q{number % 3}", f"{number}")
            now = path.read_bytes()

            assert now.startswith(before)

            before = now

    def test_same_store_again_writes_nothing(self, make: Make, path: Path) -> None:
        cache = make()
        cache.store("q", "a")
        before = path.stat()

        assert cache.store("q", "a") is False
        assert make().store("q", "a") is False
        assert path.stat() == before

    def test_newer_version_is_neither_read_nor_written(self, make: Make, path: Path) -> None:
        path.write_bytes(b'{"respcache": 2, "log": true}\nwhatever\n')
        before = path.read_bytes()
        cache = make()

        assert cache.lookup("q") is None
        assert cache.store("q", "a") is False
        assert cache.get("q") == "a"
        assert path.read_bytes() == before

    def test_unknown_step_with_a_good_checksum_takes_all_away(self, make: Make, path: Path) -> None:
        """E13: what a newer version says may be that."""
        make().store("q", "a")
        with path.open("ab") as file:
            file.write(log_lines.seal(b'"begun": {"paths": ["/a"]}', 0, 0))
        cache = make()
        cache.lookup("other")

        assert cache.get("q") is None
        assert cache.store("q", "b") is True
        assert make().get("q") == "b"


class TestDamage:
    """E09, E12: damage costs entries, never a wrong or an older answer."""

    @pytest.fixture
    def data(self, make: Make, path: Path) -> bytes:
        cache = make(max_bytes=10_000)
        cache.store("gone", "stale")
        cache.store("q", "old")
        cache.store("kept", {"a": [1, None]})
        cache.forget("gone")
        cache.store("q", "new")
        cache.close()
        return path.read_bytes()

    def check(self, path: Path, make: Make) -> None:
        cold = make()
        assert cold.get("q") in (None, "new", "old")  # it opens its own line only
        full = make()
        full.lookup("nothing")

        assert full.get("nothing") is None
        assert full.get("q") in (None, "new")
        assert full.get("gone") is None
        assert full.get("kept") in (None, {"a": [1, None]})

        writer = make()

        assert writer.store("next", "n") is True
        assert writer.get("q") in (None, "new")
        assert writer.get("gone") is None
        for reader in (make(), full):
            assert reader.get("next") == "n"
            assert reader.get("gone") is None
        for cache in (cold, full, writer, reader):
            cache.close()

    def test_every_truncation(self, data: bytes, path: Path, make: Make) -> None:
        for length in range(len(data)):
            path.write_bytes(data[:length])

            # What was cut off is forgotten: the end of the file is the newest.
            cache = make()
            cache.lookup("nothing")
            if length >= data.index(b'"removed": {"id"', data.index(b'"stale"')) - 1:
                assert cache.get("kept") == {"a": [1, None]}
            assert cache.store("next", "n") is True
            assert make().get("next") == "n"
            assert [make().get("next") for _ in range(2)] == ["n", "n"]
            cache.close()

    @pytest.mark.parametrize("bit", [0, 3, 5, 7])
    def test_flipped_bit_at_every_byte(self, data: bytes, path: Path, make: Make, bit: int) -> None:
        # Without its last newline the last line is one that is being written still.
        for at in range(len(data) - 1):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            if bad.startswith(b'{"respcache": 9'):
                continue  # a newer version, left alone
            path.write_bytes(bytes(bad))
            for aside in path.parent.glob("*.corrupt-*"):
                aside.unlink()

            self.check(path, make)

    def test_torn_tail_is_ended_by_a_mark_and_stays_invalid(self, make: Make, path: Path) -> None:
        """E12: a line that is short by a byte, reported as failed, must not become valid."""
        make().store("q", "a")
        whole = path.read_bytes()
        make().store("late", "l")
        torn = path.read_bytes()[:-1]
        for cut in (1, 2, 30):
            path.write_bytes(torn[:-cut] if cut > 1 else torn)
            cache = make()

            assert cache.get("late") is None
            assert cache.store("next", "n") is True
            assert path.read_bytes().startswith(whole)
            assert b"#torn\n" in path.read_bytes()
            for reader in (cache, make()):
                assert (reader.get("late"), reader.get("q"), reader.get("next")) == (None, "a", "n")

    def test_torn_batch_counts_for_nothing(self, make: Make, path: Path) -> None:
        """E10: a batch that was cut off between its lines is not half there."""
        make().store("q", "a")
        before = path.read_bytes()
        make().store_many({"one": "1", "two": "2", "three": "3"})
        batch = path.read_bytes()[len(before) :].splitlines(keepends=True)
        for count in (1, 2):
            path.write_bytes(before + b"".join(batch[:count]))
            for question in ("one", "two"):
                assert make().get(question) is None
            cache = make()
            cache.lookup("nothing")

            assert cache.get("one") is None
            assert cache.store("next", "n") is True
            assert [make().get(q) for q in ("one", "q", "next")] == [None, "a", "n"]

    def test_bad_line_is_forgotten_with_all_before_it_and_repaired_by_the_next_writer(
        self, data: bytes, path: Path, make: Make, warnings_of: Any
    ) -> None:
        """E09, E11: what it replaced is unknown; readers look again until it is repaired."""
        bad = data.replace(b'"stale"', b'"STALE"')
        path.write_bytes(bad)
        reader = make()
        reader.lookup("nothing")

        assert reader.get("gone") is None
        assert [reader.get(q) for q in ("q", "kept")] == ["new", {"a": [1, None]}]
        assert path.read_bytes() == bad

        make().store("later", "l")

        assert reader.get("later") == "l"

        path.write_bytes(bad)
        writer = make()
        writer.lookup("nothing")
        writer.lookup("nothing at all")

        assert writer.store("next", "n") is True
        assert [writer.get(q) for q in ("q", "kept", "next")] == ["new", {"a": [1, None]}, "n"]
        assert len(warnings_of()) == 2  # one for each of two writers, of one damage each
        assert len(list(path.parent.glob("*.corrupt-*"))) == 2

    def test_larger_backup_copied_over_it_in_place_is_read_anew(
        self, make: Make, path: Path, tmp_path: Path
    ) -> None:
        """E08: it keeps the inode, and has grown."""
        other = make(path=tmp_path / "other.jsonl")
        other.store_many({f"q{number}": "x" * 100 for number in range(20)})
        cache = make()
        cache.store("gone", "g")
        cache.lookup("nothing")
        shutil.copyfile(tmp_path / "other.jsonl", path)

        assert cache.get("gone") is None
        assert cache.get("q7") == "x" * 100


class TestColdLook:
    """A process with one question finds its line from the end, and reads no other."""

    def test_hit_and_miss_read_no_other_line(self, make: Make) -> None:
        make().store_many({f"q{number}": f"a{number}" for number in range(100)})
        for question, answer in (("q0", "a0"), ("q57", "a57"), ("q99", "a99"), ("none", None)):
            cache = make()

            assert cache.get(question) == answer
            assert not is_filled(cache)

    def test_line_longer_than_a_step(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_view, "_STEP", 64)
        make().store_many({f"q{number}": f"{number}" * 300 for number in range(20)})
        for number in range(20):
            assert make().get(f"q{number}") == f"{number}" * 300

    def test_later_removals_are_honoured(self, make: Make, tmp_path: Path) -> None:
        """E09"""
        source = tmp_path / "a.py"
        source.write_text("x")
        cache = make()
        cache.store("forgotten", "f")
        cache.store("read", "r", paths=[source])
        cache.store("kept", "k")
        cache.forget("forgotten")
        cache.invalidate(source)
        cache.store("after", "a")

        assert [make().get(q) for q in ("forgotten", "read", "kept", "after")] == [
            None,
            None,
            "k",
            "a",
        ]

        cache.clear()

        assert make().get("kept") is None

    def test_evictions_by_limit_are_honoured(self, make: Make) -> None:
        cache = make(max_entries=2)
        for question in "abc":
            cache.store(question, question)

        assert [make().get(q) for q in "abc"] == [None, "b", "c"]

    def test_newest_of_one_question_wins(self, make: Make) -> None:
        cache = make()
        for number in range(3):
            cache.store("q", f"{number}")

        assert make().get("q") == "2"

    def test_identical_store_is_recognized_and_a_new_one_appended_unread(self, make: Make) -> None:
        make().store_many({f"q{number}": f"a{number}" for number in range(100)})
        same, new = make(), make()

        assert same.store("q5", "a5") is False
        assert new.store("new", "n") is True
        assert not is_filled(same)
        assert not is_filled(new)
        assert make().get("new") == "n"
        assert len(make()) == 101

    def test_smaller_limit_is_enforced_also_by_who_has_read_nothing(self, make: Make) -> None:
        make().store_many({f"q{number}": "a" for number in range(10)})

        assert make(max_entries=3).store("new", "n") is True
        assert make().store("newer", "n") is True
        assert [hit.question for hit in make().entries()] == ["q9", "new", "newer"]

    @pytest.mark.parametrize("question", ["q1", "no"])
    def test_same_question_again_reads_no_line_again(
        self, make: Make, monkeypatch: pytest.MonkeyPatch, question: str
    ) -> None:
        with make() as other:
            for number in range(3):
                other.store(f"q{number}", f"{number}")
        cache = make()
        first = cache.get(question)
        reads = []
        real = log_view._Reader.pread
        monkeypatch.setattr(
            log_view._Reader, "pread", lambda *given: reads.append(given) or real(*given)
        )

        assert cache.get(question) == first
        assert reads == []
        assert not is_filled(cache)

    @pytest.mark.parametrize("change", ["newer", "forgotten", "first"])
    def test_same_question_again_sees_what_came_since(self, make: Make, change: str) -> None:
        other = make()
        other.store("q0", "0")
        if change != "first":
            other.store("q1", "old")
        cache = make()
        cache.get("q1")
        cache.get("q1")
        if change == "forgotten":
            other.forget("q1")
        else:
            other.store("q1", "new")

        assert cache.get("q1") == (None if change == "forgotten" else "new")
        assert cache.get("q1") == (None if change == "forgotten" else "new")


class TestCompaction:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_module, "_FLOOR", 4096)

    def test_dead_lines_go_and_nothing_is_lost(self, make: Make, path: Path) -> None:
        cache, reader = make(), make()
        cache.store("first", "f")
        for number in range(200):
            cache.store(f"q{number % 10}", f"{number}" * 20)

            assert reader.get("first") == "f"

        assert path.stat().st_size < 10_000
        for each in (cache, reader, make()):
            assert len(each) == 11
            assert each.get("q9") == "199" * 20
        assert [make().get(f"q{number}") for number in range(10)] == [
            f"{190 + number}" * 20 for number in range(10)
        ]
        assert sorted(os.listdir(path.parent)) == ["answers.jsonl", "answers.jsonl.lock"]

    def test_order_ages_and_limits_go_along(self, make: Make, path: Path) -> None:
        clock = FakeClock()
        cache = make(clock=clock, max_entries=50)
        cache.store("first", "f", context={"m": 1}, ttl=1e6)
        clock.advance(10)
        for number in range(200):
            cache.store(f"q{number % 10}", f"{number}" * 20)
        hits = list(make(clock=clock).entries())

        assert [hit.question for hit in hits] == ["first", *(f"q{number}" for number in range(10))]
        assert hits[0].age == 10
        assert make(clock=clock).get("first", context={"m": 1}) == "f"
        assert json.loads(path.read_bytes().splitlines()[0])["limits"]["max_entries"] == 50

    def test_removals_stay_remembered(self, make: Make) -> None:
        """E02: a result that began before one is refused also after a compaction."""
        cache, other = make(), make()
        other.store("seed", "s")

        def compute() -> str:
            other.forget("q")
            for number in range(200):
                other.store(f"q{number % 10}", f"{number}" * 20)
            return "stale"

        assert cache.get_or_call("q", compute) == "stale"
        assert make().get("q") is None

    def test_store_of_another_during_the_copy_is_kept(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E26: the copy is made without the lock, and what came meanwhile is copied under it."""
        cache, other = make(), make()
        cache.store("seed", "s")
        real = log_module._Writer.flush
        came = []

        def flush(writer: Any) -> None:
            if not came and writer.offset > 300:
                came.append(True)
                assert other.store("meanwhile", "m") is True
                assert other.forget("seed") is True
            real(writer)

        monkeypatch.setattr(log_module._Writer, "flush", flush)
        for number in range(200):
            cache.store(f"q{number % 10}", f"{number}" * 20)

        assert came
        for each in (cache, other, make()):
            assert (each.get("meanwhile"), each.get("seed")) == ("m", None)
            assert each.get("q9") == "199" * 20

    def test_compaction_on_a_full_disk_costs_a_warning_only(
        self, make: Make, path: Path, monkeypatch: pytest.MonkeyPatch, warnings_of: Any
    ) -> None:
        cache = make()

        def refuse(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log_module.Replacement, "write", refuse)
        path.write_bytes(b"")
        monkeypatch.undo()
        cache.store("seed", "s")
        monkeypatch.setattr(log_module, "_FLOOR", 4096)
        monkeypatch.setattr(log_module.Replacement, "write", refuse)
        for number in range(100):
            assert cache.store(f"q{number % 5}", f"{number}" * 20) is True

        assert len(warnings_of()) >= 1
        assert make().get("q4") == "99" * 20
        assert not list(path.parent.glob("*.tmp"))


class TestThreads:
    def test_store_waits_for_a_thread_that_is_just_reading_all_lines(
        self, make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What one thread indexes and what another appends meanwhile must not mix."""
        with make() as other:
            for number in range(3):
                other.store(f"q{number}", f"{number}")
        cache = make()
        cache.get("q0")  # the second question is what makes it read all
        reading, go_on, stored = threading.Event(), threading.Event(), threading.Event()
        real = log_view.LogView._take_lines

        def take(view: Any, data: bytes) -> int:
            if threading.current_thread() is reader:
                reading.set()
                assert go_on.wait(LONG)
            return real(view, data)

        def store() -> None:
            cache.store("new", "4")
            stored.set()

        monkeypatch.setattr(log_view.LogView, "_take_lines", take)
        reader = threading.Thread(target=lambda: cache.get("q1"))
        writer = threading.Thread(target=store)
        reader.start()
        try:
            assert reading.wait(LONG)
            writer.start()
            stored.wait(0.3)  # as far as it comes while the reader stands
        finally:
            go_on.set()
            reader.join(LONG)
            writer.join(LONG)

        assert cache.store("newer", "5")
        assert b"#torn" not in path.read_bytes()
        for each in (cache, make()):
            assert [hit.question for hit in each.entries()] == ["q0", "q1", "q2", "new", "newer"]

    def test_store_counts_once_if_a_lookup_has_read_it_before_it_returned(
        self, make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = make()
        for number in range(3):
            cache.store(f"q{number}", f"{number}")
        real = log_module.write

        def write(fd: int, data: bytes) -> None:
            real(fd, data)
            assert cache.get("new") == "4"

        monkeypatch.setattr(log_module, "write", write)

        assert cache.store("new", "4")
        assert cache.store("new", "4") is False

        monkeypatch.undo()

        assert cache.store("newer", "5")
        assert b"#torn" not in path.read_bytes()
        for each in (cache, make()):
            assert [hit.question for hit in each.entries()] == ["q0", "q1", "q2", "new", "newer"]


class TestConversion:
    def test_document_and_log_convert_into_each_other(self, tmp_path: Path) -> None:
        clock = FakeClock()
        document, log = tmp_path / "a.json", tmp_path / "b.jsonl"
        source = Cache(document, clock=clock)
        source.store("q", {"a": 1}, context={"m": 1}, ttl=100, paths=[tmp_path])
        source.store("r", "text")
        clock.advance(10)

        assert source.export(log) == 2

        middle = Cache(log, clock=clock)
        back = Cache(tmp_path / "c.json", clock=clock)

        assert back.merge(log) == 2
        for cache in (source, middle, back):
            assert [(h.question, h.response, h.age) for h in cache.entries()] == [
                ("q", {"a": 1}, 10),
                ("r", "text", 10),
            ]

    @pytest.mark.parametrize(("name", "other"), [("a.json", "b.jsonl"), ("a.jsonl", "b.json")])
    def test_content_decides_where_the_suffix_is_wrong(
        self, tmp_path: Path, name: str, other: str
    ) -> None:
        Cache(tmp_path / other).store("q", "a")
        shutil.copyfile(tmp_path / other, tmp_path / name)
        cache = Cache(tmp_path / name)

        assert cache.get("q") == "a"
        assert cache.store("r", "b") is True
        assert Cache(tmp_path / name).get("r") == "b"


class TwoInstances(RuleBasedStateMachine):
    """Two instances of one file against a plain dict, with compaction and reopening in between."""

    suffix = "jsonl"
    questions = st.sampled_from(["a", "b", "c", "d"])

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / f"answers.{self.suffix}"
        self.floor = log_module._FLOOR
        log_module._FLOOR = 1500
        self.caches = [Cache(self.path), Cache(self.path)]
        self.model: dict[str, Any] = {}

    @rule(who=st.integers(0, 1), question=questions, value=st.text(min_size=1, max_size=40))
    def store(self, who: int, question: str, value: str) -> None:
        if not value.strip():
            return
        same = self.model.get(question) == value
        try:
            value.encode()
        except UnicodeEncodeError:
            return

        assert self.caches[who].store(question, value) is not same

        self.model[question] = value

    @rule(who=st.integers(0, 1), question=questions)
    def forget(self, who: int, question: str) -> None:
        assert self.caches[who].forget(question) is (question in self.model)

        self.model.pop(question, None)

    @rule(who=st.integers(0, 1), question=questions)
    def lookup(self, who: int, question: str) -> None:
        assert self.caches[who].get(question) == self.model.get(question)

    @rule(who=st.integers(0, 1))
    def clear(self, who: int) -> None:
        assert self.caches[who].clear() == len(self.model)

        self.model.clear()

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.caches[who].close()
        self.caches[who] = Cache(self.path)

    @rule(cut=st.integers(1, 60))
    def crash(self, cut: int) -> None:
        """Leave half a line at the end, as a killed writer does."""
        if self.suffix == "jsonl" and self.path.exists() and self.path.stat().st_size:
            line = log_lines.seal(b'"removed": {"id": "dead", "scope": ""}', 0, 0)
            with self.path.open("ab") as file:
                file.write(line[: min(cut, len(line) - 1)])

    @invariant()
    def fresh_reader_agrees(self) -> None:
        with Cache(self.path) as fresh:
            for question in "abcd":
                assert fresh.get(question) == self.model.get(question)
            assert len(fresh) == len(self.model)

    def teardown(self) -> None:
        log_module._FLOOR = self.floor
        for cache in self.caches:
            cache.close()
        shutil.rmtree(self.folder)


class TwoDocuments(TwoInstances):
    suffix = "json"


TestTwoLogs = TwoInstances.TestCase
TestTwoDocuments = TwoDocuments.TestCase
for case in (TestTwoLogs, TestTwoDocuments):
    case.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class TestColdTicket:
    """What a process with one question takes note of before its work, without an index."""

    def newest_removal(self, make: Make) -> str | None:
        full = make()
        full.lookup("one")
        len(full)
        return full._begun("one")[0]

    @pytest.mark.parametrize("last", ["store", "forget", "invalidate", "limit"])
    def test_is_that_of_one_who_has_read_all(self, make: Make, last: str) -> None:
        cache = make(max_entries=3)
        cache.store("one", "1", paths=["/a"])
        cache.forget("two")
        cache.store("three", "3")
        match last:
            case "store":
                cache.store("four", "4")
            case "forget":
                cache.forget("three")
            case "invalidate":
                cache.invalidate("/elsewhere")
            case _:
                cache.store_many([("four", "4"), ("five", "5")])
        cold = make()

        assert cold._begun("one")[0] == self.newest_removal(make)
        assert not is_filled(cold)

    def test_of_half_a_commit_is_that_before_it(self, make: Make, path: Path) -> None:
        """What a killed writer has left does not count."""
        cache = make(max_entries=2)
        cache.store("one", "1")
        cache.forget("two")
        before = self.newest_removal(make)
        cache.store_many([("four", "4"), ("five", "5")])
        *whole, _ = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(whole))

        assert make()._begun("one")[0] == before

    def test_torn_line_is_passed_over(self, make: Make, path: Path) -> None:
        cache = make()
        cache.store("one", "1")
        cache.forget("two")
        with path.open("ab") as file:
            file.write(b'{"q//1f//tor')

        assert make()._begun("one")[0] == self.newest_removal(make)

    def test_without_a_file_there_is_none(self, make: Make) -> None:
        assert make()._begun("one") == [None, None]
