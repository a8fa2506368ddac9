"""The environment's switches: off means off, and each is read at the call."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from respcache import Cache, Event, Normalizer, _cache, _switches
from respcache._switches import DISABLE, READONLY, REFRESH, are_set, is_on
from respcache.testing import FakeClock

NAMES = [DISABLE, READONLY, REFRESH]


@pytest.fixture(params=["memory", "document", "log"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    suffix = {"memory": None, "document": "json", "log": "jsonl"}[request.param]
    return None if suffix is None else tmp_path / f"answers.{suffix}"


@pytest.fixture
def cache(path: Path | None, clock: FakeClock) -> Any:
    """A cache that holds one answer."""
    with Cache(path, clock=clock, fsync=False) as cache:
        cache.store("kept", "answer")
        yield cache


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


class TestWords:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(
        "word", ["", "0", "false", "no", "off", "FALSE", "No", "OFF", " off ", "  "]
    )
    def test_word_that_means_off(
        self, monkeypatch: pytest.MonkeyPatch, warnings_of: Any, name: str, word: str
    ) -> None:
        """R40"""
        monkeypatch.setenv(name, word)

        assert not is_on(name)
        assert are_set()
        assert warnings_of() == []

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE", "Yes", "ON", " 1 "])
    def test_word_that_means_on(
        self, monkeypatch: pytest.MonkeyPatch, warnings_of: Any, name: str, word: str
    ) -> None:
        """R40"""
        monkeypatch.setenv(name, word)

        assert is_on(name)
        assert are_set()
        assert warnings_of() == []

    @pytest.mark.parametrize("name", NAMES)
    def test_unknown_word_counts_as_on_and_warns_once(
        self, monkeypatch: pytest.MonkeyPatch, warnings_of: Any, name: str
    ) -> None:
        """R40: not a guess in silence."""
        monkeypatch.setattr(_switches, "_warned", set())
        monkeypatch.setenv(name, "maybe")

        assert is_on(name)
        assert is_on(name)
        assert len(warnings_of()) == 1
        assert name in warnings_of()[0] and "'maybe'" in warnings_of()[0]

        monkeypatch.setenv(name, "perhaps")

        assert is_on(name)
        assert len(warnings_of()) == 2

    def test_nothing_set_is_off(self) -> None:
        assert not are_set()
        assert not any(map(is_on, NAMES))

    @pytest.mark.parametrize("name", NAMES)
    def test_is_read_at_each_call(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        for _ in range(2):
            monkeypatch.setenv(name, "1")
            assert are_set() and is_on(name)
            monkeypatch.delenv(name)
            assert not are_set() and not is_on(name)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_plain_dict_in_the_place_of_the_environment_is_read(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setattr(os, "environ", {})

        assert not are_set() and not is_on(name)

        os.environ[name] = "1"

        assert are_set() and is_on(name)

    @pytest.mark.parametrize("name", NAMES)
    def test_what_putenv_and_update_set_is_read(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "0")
        os.environ.update({name: "1"})

        assert are_set() and is_on(name)

        os.environ.pop(name)

        assert not are_set()


# Each use of a cache, with what it gives while the cache is off.
USES: list[Any] = [
    pytest.param(lambda c: c.lookup("kept"), None, id="lookup"),
    pytest.param(lambda c: c.lookup("kept", exact=True), None, id="lookup-exact"),
    pytest.param(lambda c: c.get("kept", "default"), "default", id="get"),
    pytest.param(lambda c: c.store("new", "r"), False, id="store"),
    pytest.param(lambda c: c.store("new", "r", context={"a": 1}), False, id="store-context"),
    pytest.param(lambda c: c.store("new", "r", paths=["a"]), False, id="store-paths"),
    pytest.param(lambda c: c.store_many([("new", "r")]), 0, id="store-many"),
    pytest.param(lambda c: c.get_or_call("kept", lambda: "made"), "made", id="get-or-call"),
    pytest.param(
        lambda c: asyncio.run(c.aget_or_call("kept", lambda: "made")), "made", id="aget-or-call"
    ),
    pytest.param(lambda c: c.forget("kept"), False, id="forget"),
    pytest.param(lambda c: c.invalidate(["a"]), 0, id="invalidate"),
    pytest.param(lambda c: c.clear(), 0, id="clear"),
    pytest.param(lambda c: c.prune(), 0, id="prune"),
    pytest.param(lambda c: list(c.entries()), [], id="entries"),
    pytest.param(len, 0, id="len"),
    pytest.param(bool, True, id="bool"),
    pytest.param(lambda c: c.stats()["entries"], 0, id="stats"),
    pytest.param(lambda c: c.stats()["bytes"], 0, id="stats-bytes"),
    pytest.param(lambda c: c.flush(), True, id="flush"),
    pytest.param(lambda c: c.close(), None, id="close"),
]


class TestDisable:
    @pytest.mark.parametrize(("use", "expected"), USES)
    def test_every_use_does_as_if_there_were_no_cache(
        self,
        cache: Cache,
        monkeypatch: pytest.MonkeyPatch,
        use: Callable[[Cache], Any],
        expected: Any,
    ) -> None:
        """R40"""
        monkeypatch.setenv(DISABLE, "1")

        assert use(cache) == expected

        monkeypatch.delenv(DISABLE)

        assert cache.get("kept") == "answer", "no entry was deleted"
        assert len(cache) == 1, "nothing was kept"

    def test_explain_says_that_it_is_off(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DISABLE, "yes")

        assert DISABLE in cache.explain("kept")

    def test_merge_takes_nothing_over(
        self, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R40: off means that nothing is kept."""
        with Cache(tmp_path / "other.json", fsync=False) as other:
            other.store("theirs", "r")
        before = files(tmp_path)
        monkeypatch.setenv(DISABLE, "1")

        assert cache.merge(tmp_path / "other.json") == 0
        assert files(tmp_path) == before

        monkeypatch.delenv(DISABLE)

        assert cache.get("theirs") is None

    def test_export_writes_nothing(
        self, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R40"""
        monkeypatch.setenv(DISABLE, "1")

        assert cache.export(tmp_path / "copy.json") == 0
        assert not (tmp_path / "copy.json").exists()

    def test_get_or_call_computes_each_time(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DISABLE, "1")
        calls: list[int] = []
        for _ in range(2):
            assert cache.get_or_call("new", lambda: calls.append(1)) is None

        assert len(calls) == 2

    @pytest.mark.parametrize(("use", "expected"), USES)
    def test_no_key_is_computed(
        self,
        path: Path | None,
        monkeypatch: pytest.MonkeyPatch,
        use: Callable[[Cache], Any],
        expected: Any,
    ) -> None:
        """R40: a cache that is off costs nothing, and can't fail."""

        def refuse(*arguments: object) -> None:
            raise AssertionError("a key was computed")

        cache = Cache(path, normalizer=Normalizer(trim=True))
        monkeypatch.setattr(Normalizer, "__call__", refuse)
        for name in ("key_head", "field_digests", "new_entry"):
            monkeypatch.setattr(_cache, name, refuse)
        monkeypatch.setenv(DISABLE, "1")

        assert use(cache) == expected

    def test_values_that_can_not_be_kept_pass_too(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DISABLE, "1")

        assert cache.store("q", {1, 2}) is False
        assert cache.lookup("q", context={"a": object()}) is None
        assert cache.get_or_call("q", lambda: (1, 2)) == (1, 2)

    def test_lookups_are_counted_as_bypassed(
        self, path: Path | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[Event] = []
        cache = Cache(path, on_event=events.append)
        monkeypatch.setenv(DISABLE, "1")
        cache.lookup("q")
        cache.get("q")
        cache.get_or_call("q", lambda: 1)
        asyncio.run(cache.aget_or_call("q", lambda: 1))
        cache.store("q", 1)
        cache.clear()
        counts = cache.stats()

        assert counts == {
            "hits": 0,
            "misses": 0,
            "bypassed": 4,
            "stores": 0,
            "refused": 0,
            "pending": 0,
            "entries": 0,
            "bytes": 0,
        }
        assert [event.kind for event in events] == ["bypass"] * 4

    def test_entries_are_back_when_it_is_on_again(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R40: acts on the next call."""
        for _ in range(2):
            monkeypatch.setenv(DISABLE, "1")
            assert cache.lookup("kept") is None
            monkeypatch.setenv(DISABLE, "off")
            assert cache.get("kept") == "answer"

    def test_switch_within_a_call_acts_on_the_next(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def compute() -> str:
            monkeypatch.setenv(DISABLE, "1")
            return "made"

        assert cache.get_or_call("new", compute) == "made"
        assert cache.lookup("kept") is None

        monkeypatch.delenv(DISABLE)

        assert cache.get("kept") == "answer"


CHILD = """
import json, os, sys
folder = sys.argv[1]
opened = []
def hook(event, arguments):
    if event in ("open", "os.listdir", "os.mkdir", "os.rename", "os.remove", "os.link"):
        if isinstance(arguments[0], (str, bytes)) and os.fsdecode(arguments[0]).startswith(folder):
            opened.append([event, os.fsdecode(arguments[0])])
sys.addaudithook(hook)

from respcache import Cache
cache = Cache(os.path.join(folder, "answers.json"))
use = sys.argv[2]
if use == "all":
    import asyncio
    cache.lookup("q")
    cache.get("q", context={"a": 1})
    cache.store("q", "r")
    cache.store_many({"q": "r"})
    cache.get_or_call("q", lambda: "r")
    asyncio.run(cache.aget_or_call("q", lambda: "r"))
    cache.forget("q")
    cache.invalidate(os.path.join(folder, "read.txt"))
    cache.clear()
    cache.prune()
    list(cache.entries()), len(cache), bool(cache), cache.stats(), cache.explain("q")
    cache.export(os.path.join(folder, "copy.json"))
    cache.flush()
    cache.close()
elif use == "merge":
    cache.merge(os.path.join(folder, "other.json"))
elif use == "lookup":
    assert cache.get("kept") == "answer"
print(json.dumps(opened))
"""


@pytest.mark.xdist_group("processes")
class TestFilesOpened:
    def opened(self, folder: Path, use: str, **environment: str) -> list[list[str]]:
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(folder), use],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout)  # type: ignore[no-any-return]

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in ("answers.json", "other.json"):
            with Cache(tmp_path / name, fsync=False) as cache:
                cache.store("kept", "answer")
        return tmp_path

    def test_the_witness_sees_what_is_opened(self, folder: Path) -> None:
        opened = self.opened(folder, "lookup")

        assert opened == [["open", str(folder / "answers.json")]]

    def test_disabled_opens_no_file(self, folder: Path) -> None:
        """R40"""
        before = files(folder)

        assert self.opened(folder, "all", RESPCACHE_DISABLE="1") == []
        assert files(folder) == before

    def test_disabled_merge_opens_no_file(self, folder: Path) -> None:
        """R40"""
        assert self.opened(folder, "merge", RESPCACHE_DISABLE="1") == []

    def test_disabled_makes_no_file(self, tmp_path: Path) -> None:
        """R30: also in a folder that is not there."""
        assert self.opened(tmp_path / "missing", "all", RESPCACHE_DISABLE="1") == []
        assert list(tmp_path.iterdir()) == []


class TestReadonly:
    def test_serves(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(READONLY, "1")

        assert cache.get("kept") == "answer"
        assert cache.get_or_call("kept", lambda: "made") == "answer"
        assert len(cache) == 1

    def test_what_is_computed_is_returned_and_not_kept(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(READONLY, "1")

        assert cache.get_or_call("new", lambda: "made") == "made"
        assert asyncio.run(cache.aget_or_call("new", lambda: "again")) == "again"
        assert cache.store("new", "r") is False
        assert cache.store_many({"new": "r"}) == 0
        assert cache.lookup("new") is None
        assert len(cache) == 1

    @pytest.mark.parametrize("is_there", [True, False], ids=["file", "no-file"])
    def test_no_file_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
    ) -> None:
        """No lock, no flight, no temp file, not even beside a file that is missing."""
        folder = tmp_path / "folder"
        folder.mkdir()
        if is_there:
            with Cache(tmp_path / "answers.json", fsync=False) as cache:
                cache.store("kept", "answer", paths=[tmp_path / "read.txt"])
            os.rename(tmp_path / "answers.json", folder / "answers.json")
        before = files(folder)
        monkeypatch.setenv(READONLY, "1")
        with Cache(folder / "answers.json") as cache:
            cache.store("new", "r")
            cache.store_many({"new": "r"})
            cache.get_or_call("new", lambda: "made")
            asyncio.run(cache.aget_or_call("new", lambda: "made"))
            cache.get_or_call("kept", lambda: "made")
            cache.prune()
            cache.flush()
            cache.forget("other")
            cache.invalidate(tmp_path / "read.txt")
            cache.clear()
            cache.explain("kept")
            list(cache.entries())

        assert files(folder) == before

    def test_merge_writes_nothing(
        self, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Serve, never write."""
        with Cache(tmp_path / "other.json", fsync=False) as other:
            other.store("theirs", "r")
        before = files(tmp_path)
        monkeypatch.setenv(READONLY, "1")

        assert cache.merge(tmp_path / "other.json") == 0
        assert files(tmp_path) == before

    def test_what_is_removed_is_hidden_and_committed_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E04: a removal that can't be committed stays pending here."""
        with Cache(tmp_path / "a.json", fsync=False) as cache, Cache(tmp_path / "a.json") as other:
            cache.store("kept", "answer")
            monkeypatch.setenv(READONLY, "1")

            assert cache.forget("kept") is True
            assert cache.lookup("kept") is None
            assert other.get("kept") == "answer"
            assert cache.stats()["pending"] == 1
            assert cache.flush() is False

            monkeypatch.delenv(READONLY)

            assert cache.flush() is True
            assert other.lookup("kept") is None

    def test_what_is_computed_after_a_hidden_removal_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E04: the removal is committed with it, but came before the computation."""
        with Cache(tmp_path / "a.json", fsync=False) as cache, Cache(tmp_path / "a.json") as other:
            cache.store("kept", "answer")
            monkeypatch.setenv(READONLY, "1")
            cache.forget("kept")
            monkeypatch.delenv(READONLY)

            assert cache.get_or_call("kept", lambda: "new") == "new"
            assert cache.get("kept") == other.get("kept") == "new"
            assert cache.stats()["pending"] == 0

    def test_acts_on_the_next_call(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        """R40"""
        monkeypatch.setenv(READONLY, "1")
        assert cache.store("new", "r") is False
        monkeypatch.setenv(READONLY, "0")
        assert cache.store("new", "r") is True


class TestRefresh:
    def test_reads_are_skipped(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(REFRESH, "1")

        assert cache.lookup("kept") is None
        assert cache.get("kept", "default") == "default"
        assert REFRESH in cache.explain("kept")
        assert cache.stats()["bypassed"] == 2

    def test_same_pair_is_stored_again_with_a_new_age(
        self, cache: Cache, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Never a no-op."""
        clock.advance(100)

        assert cache.store("kept", "answer") is False

        monkeypatch.setenv(REFRESH, "1")

        assert cache.store("kept", "answer") is True

        monkeypatch.delenv(REFRESH)
        clock.advance(5)
        hit = cache.lookup("kept")

        assert hit is not None
        assert hit.age == 5

    @pytest.mark.parametrize("is_async", [False, True], ids=["get_or_call", "aget_or_call"])
    def test_what_is_computed_replaces_what_was_kept(
        self, cache: Cache, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, is_async: bool
    ) -> None:
        clock.advance(100)
        monkeypatch.setenv(REFRESH, "1")
        for response in ("answer", "new answer"):
            if is_async:
                found = asyncio.run(cache.aget_or_call("kept", lambda r=response: r))  # type: ignore[misc]
            else:
                found = cache.get_or_call("kept", lambda r=response: r)  # type: ignore[misc]
            assert found == response
        monkeypatch.delenv(REFRESH)
        hit = cache.lookup("kept")

        assert hit is not None
        assert (hit.response, hit.age) == ("new answer", 0)

    def test_removal_while_it_is_computed_still_guards(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E06"""
        monkeypatch.setenv(REFRESH, "1")

        assert cache.get_or_call("kept", lambda: (cache.clear(), "old")[1]) == "old"

        monkeypatch.delenv(REFRESH)

        assert cache.lookup("kept") is None

    def test_with_readonly_nothing_is_read_or_written(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(REFRESH, "1")
        monkeypatch.setenv(READONLY, "1")

        assert cache.get_or_call("kept", lambda: "made") == "made"
        assert cache.store("kept", "made") is False

        monkeypatch.delenv(REFRESH)

        assert cache.get("kept") == "answer"

    def test_entries_and_removals_go_on(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(REFRESH, "1")

        assert [hit.question for hit in cache.entries()] == ["kept"]
        assert cache.forget("kept") is True
