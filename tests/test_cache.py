"""The front's methods, in memory and in a document: both must agree."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import inspect
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respcache import (
    Cache,
    ConfigError,
    Event,
    Hit,
    Normalizer,
    StoreError,
    Tree,
    UncacheableError,
)
from respcache.testing import FakeClock

HANGS = 30.0
Make = Callable[..., Cache]


SUFFIXES = {"document": "json", "log": "jsonl"}


@pytest.fixture(params=["memory", *SUFFIXES])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Make]:
    """Make a cache in memory, or in a file of its own."""
    made: list[Cache] = []
    suffix = SUFFIXES.get(request.param)

    def make(**options: Any) -> Cache:
        path = None if suffix is None else tmp_path / f"cache-{len(made)}.{suffix}"
        cache = Cache(path, **{"clock": clock, "fsync": False, **options})
        made.append(cache)
        return cache

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def cache(make: Make) -> Cache:
    return make()


@pytest.fixture
def shared(tmp_path: Path, clock: FakeClock) -> Iterator[Make]:
    """Make caches that share one document."""
    made: list[Cache] = []

    def make(**options: Any) -> Cache:
        cache = Cache(tmp_path / "shared.json", **{"clock": clock, "fsync": False, **options})
        made.append(cache)
        return cache

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that answers are read from."""
    path = tmp_path / "repo" / "a.py"
    path.parent.mkdir()
    path.write_text("one")
    return path


class Counted:
    """A computation that counts its calls."""

    def __init__(self, response: Any = "made") -> None:
        self.calls = 0
        self.response = response

    def __call__(self) -> Any:
        self.calls += 1
        return self.response() if callable(self.response) else self.response


def found(hit: Hit | None) -> Hit:
    assert hit is not None
    return hit


def typed(value: Any) -> Any:
    """Return what is equal only for values that are equal in value and type."""
    if type(value) is list:
        return [typed(item) for item in value]
    if type(value) is dict:
        return {key: typed(item) for key, item in value.items()}
    return type(value).__name__, repr(value)


class TestLookup:
    def test_nothing_stored_is_a_miss(self, cache: Cache) -> None:
        assert cache.lookup("q") is None

    def test_hit_tells_response_question_stamp_and_age(
        self, cache: Cache, clock: FakeClock
    ) -> None:
        cache.store("What is our refund policy?", "30 days")
        clock.advance(2.5)

        assert cache.lookup("what is our REFUND policy?") == Hit(
            "30 days", "What is our refund policy?", 1_000_000_000.0, 2.5
        )

    def test_stored_none_is_a_hit(self, cache: Cache) -> None:
        """R38: a miss is not the same as a stored None."""
        cache.store("q", None)

        assert found(cache.lookup("q")).response is None
        assert cache.lookup("other") is None

    @pytest.mark.parametrize("response", [None, 0, False, 0.0, [], {}, [None], [""]])
    def test_empty_responses_are_hits(self, cache: Cache, response: Any) -> None:
        """R38"""
        compute = Counted(response)

        assert typed(cache.get_or_call("q", compute)) == typed(response)
        assert typed(cache.get_or_call("q", compute)) == typed(response)
        assert compute.calls == 1
        assert typed(found(cache.lookup("q")).response) == typed(response)

    def test_exact_wants_the_question_to_the_letter(self, cache: Cache) -> None:
        """R10: with folding on, one call can still ask for the exact question."""
        cache.store("grep Foo", "3 matches")

        assert found(cache.lookup("grep FOO")).question == "grep Foo"
        assert cache.lookup("grep FOO", exact=True) is None
        assert found(cache.lookup("grep Foo", exact=True)).response == "3 matches"

    def test_exact_keeps_composed_and_decomposed_apart(self, make: Make) -> None:
        """R12"""
        cache = make(normalizer=Normalizer(form="NFC"))
        cache.store("caf\u00e9", "r")

        assert cache.get("cafe\u0301") == "r"
        assert cache.lookup("cafe\u0301", exact=True) is None

    @pytest.mark.parametrize("question", [None, 3, b"q", ["q"], {"q": 1}, ("q",)])
    def test_question_that_is_no_text_is_a_miss(self, cache: Cache, question: Any) -> None:
        cache.store("q", "r")

        assert cache.lookup(question) is None
        assert cache.get(question, "default") == "default"

    def test_question_that_can_not_be_written_is_a_miss(self, make: Make) -> None:
        """R31: also as the very first question to a file."""
        cache = make()
        cache.store("q", "r")
        cache.close()

        assert cache.lookup("q\ud800") is None
        assert cache.lookup("q\ud800") is None
        assert "surrogate" in cache.explain("q\ud800")
        assert cache.get("q") == "r"

    @pytest.mark.parametrize(
        "context",
        [{"a": {1}}, {1: "a"}, {"a": float("nan")}, {"a": "\ud800"}, [1], "m", 3, {"a": object()}],
    )
    def test_context_that_can_not_be_a_key_is_a_miss(self, cache: Cache, context: Any) -> None:
        cache.store("q", "r")

        assert cache.lookup("q", context=context) is None
        assert cache.forget("q", context=context) is False

    def test_get_gives_the_response_alone(self, cache: Cache) -> None:
        cache.store("q", None)
        cache.store("q", "under a context", context={"a": 1})

        assert cache.get("q", "default") is None
        assert cache.get("other") is None
        assert cache.get("other", "default") == "default"
        assert cache.get("q", context={"a": 1}) == "under a context"

    def test_lookup_of_a_missing_file_makes_nothing(self, tmp_path: Path) -> None:
        with Cache(tmp_path / "folder" / "answers.json") as cache:
            assert cache.lookup("q") is None
            assert len(cache) == 0
            assert list(cache.entries()) == []
            assert cache.stats()["entries"] == 0
            cache.explain("q")

        assert list(tmp_path.iterdir()) == []

    def test_lookup_writes_nothing(self, shared: Make, tmp_path: Path) -> None:
        """R20: a reader never writes, and needs no lock file."""
        with shared() as writer:
            writer.store("q", "r", ttl=60)
        os.unlink(tmp_path / "shared.json.lock")
        before = (tmp_path / "shared.json").stat()
        reader = shared()

        assert reader.get("q") == "r"
        assert reader.get("other") is None
        assert [each.name for each in tmp_path.iterdir()] == ["shared.json"]
        assert (tmp_path / "shared.json").stat() == before


class TestSameQuestion:
    def test_case_does_not_count_by_default(self, cache: Cache) -> None:
        cache.store("Straße", "r")

        assert cache.get("STRASSE") == "r"

    def test_case_counts_if_asked(self, make: Make) -> None:
        """R10"""
        cache = make(case_sensitive=True)
        cache.store("Foo", "r")

        assert cache.lookup("FOO") is None
        assert cache.get("Foo") == "r"

    def test_space_counts_by_default(self, cache: Cache) -> None:
        cache.store("q", "r")

        assert cache.lookup(" q") is None
        assert cache.lookup("q\n") is None

    def test_space_at_the_ends_does_not_count_if_asked(self, make: Make) -> None:
        cache = make(trim_spaces=True)
        cache.store(" Q\t", "r")

        assert found(cache.lookup("q")).question == " Q\t"
        assert cache.get("\n\u3000q ") == "r"

    @pytest.mark.parametrize(
        ("normalizer", "one", "other", "is_same"),
        [
            pytest.param(Normalizer(form="NFC"), "caf\u00e9", "cafe\u0301", True, id="nfc"),
            pytest.param(Normalizer(), "caf\u00e9", "cafe\u0301", False, id="no-form"),
            pytest.param(Normalizer(form="NFC"), "x²", "x2", False, id="nfc-is-not-nfkc"),
            pytest.param(Normalizer(), "x²", "x2", False, id="no-compatible-form"),
            pytest.param(Normalizer(form="NFKC"), "x²", "x2", True, id="nfkc"),
            pytest.param(Normalizer(collapse=True), "a \n b", "a b", True, id="collapse"),
            pytest.param(Normalizer(), "İ", "i\u0307", True, id="dotted-capital-i"),
            pytest.param(Normalizer(), "İ", "i", False, id="dotted-capital-i-and-i"),
        ],
    )
    def test_normalizer_decides(
        self, make: Make, normalizer: Normalizer, one: str, other: str, is_same: bool
    ) -> None:
        """R11 R12"""
        cache = make(normalizer=normalizer)
        cache.store(one, "r")

        assert (cache.get(other) == "r") == is_same
        assert cache.get(one) == "r"

    def test_question_with_all_kinds_of_letters(self, cache: Cache) -> None:
        question = 'a/b//c "d" \\ e\n\t\0 \u2028 {"response": 1}, é 😀'
        cache.store(question, "r")

        assert found(cache.lookup(question, exact=True)).question == question

    def test_other_field_in_the_context_is_a_miss(self, cache: Cache) -> None:
        """R01: also a field that nobody has heard of."""
        cache.store("q", "r", context={"model": "m", "effort": "low"})

        assert cache.lookup("q", context={"model": "m", "effort": "high"}) is None
        assert cache.lookup("q", context={"model": "m", "effort": "low", "x_new": 1}) is None
        assert cache.lookup("q", context={"model": "m"}) is None
        assert cache.lookup("q", context={}) is None
        assert cache.lookup("q") is None
        assert cache.get("Q", context={"effort": "low", "model": "m"}) == "r"

    def test_context_is_never_folded(self, cache: Cache) -> None:
        """R03: normalization touches the question only."""
        cache.store("q", "r", context={"user": "Acme"})

        assert cache.lookup("q", context={"user": "acme"}) is None
        assert cache.lookup("q", context={"USER": "Acme"}) is None
        assert cache.lookup("q", context={"user": "Acme "}) is None

    def test_typed_values_in_a_context_are_apart(self, cache: Cache) -> None:
        """R07"""
        values = [True, 1, 1.0, "1", None, [1], {"a": 1}, 0.0, -0.0, False, 0, ""]
        for number, value in enumerate(values):
            assert cache.store("q", number, context={"x": value})

        assert [cache.get("q", context={"x": value}) for value in values] == list(
            range(len(values))
        )

    def test_changed_context_of_the_caller_does_not_matter(self, cache: Cache) -> None:
        context = {"messages": ["a"]}
        cache.store("q", "r", context=context)
        context["messages"].append("b")

        assert cache.lookup("q", context=context) is None
        assert cache.get("q", context={"messages": ["a"]}) == "r"


class TestIsolation:
    def test_namespaces_on_one_file_are_apart(self, shared: Make) -> None:
        """R02: also after both were closed and opened again."""
        one, other = shared(namespace="model-a"), shared(namespace="model-b")
        one.store("q", "a's")

        assert other.lookup("q") is None
        assert shared().lookup("q") is None

        for each in (one, other):
            each.close()

        assert shared(namespace="model-b").lookup("q") is None
        assert shared(namespace="model-a").get("q") == "a's"

    def test_namespaces_are_never_folded(self, shared: Make) -> None:
        """R03"""
        shared(namespace="Acme").store("q", "Acme's")

        for name in ("acme", "ACME", "Acme ", "Acme/", "A", "Acm", None):
            assert shared(namespace=name).lookup("q") is None

    def test_a_namespace_typed_into_a_question_reaches_nothing(self, shared: Make) -> None:
        """R03"""
        alice = shared(namespace="alice")
        alice.store("q", "alice's")
        key = alice._checked_key("q", None)

        for mine in (shared(namespace="bob"), shared()):
            for question in (
                "alice q",
                "alice/q",
                "=alice/1f//q",
                "/=alice/1f//q",
                key,
                f"{key}\n",
            ):
                assert mine.lookup(question) is None

    def test_only_the_shared_namespace_is_shared(self, shared: Make) -> None:
        shared().store("q", "everybody's")

        assert shared().get("q") == "everybody's"
        assert shared(namespace="n").lookup("q") is None

    def test_size_and_entries_are_of_the_namespace(self, shared: Make) -> None:
        one, other = shared(namespace="a"), shared(namespace="ab")
        one.store("q1", "r")
        other.store_many({"q2": "r", "q3": "r"})

        assert (len(one), len(other), len(shared())) == (1, 2, 0)
        assert [hit.question for hit in other.entries()] == ["q2", "q3"]
        assert one.stats()["entries"] == 1
        assert 0 < one.stats()["bytes"] < other.stats()["bytes"]

    def test_normalizers_on_one_file_are_apart(self, shared: Make) -> None:
        shared().store("Q", "folded")
        shared(case_sensitive=True).store("Q", "as typed")

        assert shared().get("q") == "folded"
        assert shared(case_sensitive=True).get("Q") == "as typed"
        assert shared(case_sensitive=True).lookup("q") is None


class TestStore:
    def test_true_means_that_it_is_there(self, cache: Cache) -> None:
        assert cache.store("q", "r") is True
        assert cache.get("q") == "r"

    def test_replaces(self, cache: Cache) -> None:
        cache.store("q", "old")

        assert cache.store("Q", "new") is True
        assert found(cache.lookup("q")) == Hit("new", "Q", 1_000_000_000.0, 0.0)
        assert len(cache) == 1

    def test_same_pair_again_is_no_store_and_does_not_renew_the_age(
        self, cache: Cache, clock: FakeClock
    ) -> None:
        cache.store("q", {"a": [1]}, ttl=60)
        clock.advance(30)

        assert cache.store("q", {"a": [1]}, ttl=60) is False
        assert found(cache.lookup("q")).age == 30
        assert cache.stats()["stores"] == 1
        assert cache.stats()["refused"] == 0

        clock.advance(30)

        assert cache.lookup("q") is None

    def test_same_pair_again_rewrites_nothing(self, shared: Make, tmp_path: Path) -> None:
        cache = shared()
        cache.store("q", "r")
        before = (tmp_path / "shared.json").stat()

        assert cache.store("q", "r") is False
        assert cache.store_many([("q", "r")]) == 0
        assert shared().store("q", "r") is False
        assert (tmp_path / "shared.json").stat() == before

    def test_same_pair_after_its_ttl_is_stored_anew(self, cache: Cache, clock: FakeClock) -> None:
        cache.store("q", "r", ttl=60)
        clock.advance(60)

        assert cache.store("q", "r", ttl=60) is True
        assert found(cache.lookup("q")).age == 0

    def test_no_op_is_decided_by_the_file(self, shared: Make) -> None:
        """E15: not by what this one remembers."""
        mine, other = shared(), shared()
        mine.store("q", "old")
        other.store("q", "new")

        assert mine.store("q", "old") is True
        assert other.get("q") == "old"

    @pytest.mark.parametrize(
        "again",
        [
            pytest.param({"question": "Q"}, id="other-letters"),
            pytest.param({"response": "s"}, id="other-response"),
            pytest.param({"ttl": 61}, id="other-ttl"),
            pytest.param({"ttl": None}, id="no-ttl"),
            pytest.param({"paths": ()}, id="no-paths"),
        ],
    )
    def test_another_pair_is_stored(
        self, cache: Cache, clock: FakeClock, file: Path, again: dict[str, Any]
    ) -> None:
        """E15: the same ttl and signatures too."""
        given = {"question": "q", "response": "r", "ttl": 60, "paths": [file]}
        cache.store(**given)
        clock.advance(30)

        assert cache.store(**given) is False
        assert cache.store(**{**given, **again}) is True
        assert found(cache.lookup("q")).age == 0

    def test_changed_file_makes_the_same_pair_another(self, cache: Cache, file: Path) -> None:
        cache.store("q", "r", paths=[file])
        file.write_text("changed")

        assert cache.lookup("q") is None
        assert cache.store("q", "r", paths=[file]) is True
        assert cache.get("q") == "r"

    @pytest.mark.parametrize(
        ("one", "other"),
        [(1, True), (1, 1.0), (0, False), (0.0, -0.0), ("1", 1), ([1], [True]), ({}, [])],
    )
    def test_equal_responses_of_other_types_are_stored(
        self, cache: Cache, one: Any, other: Any
    ) -> None:
        """R07: the type that comes back is the type that went in."""
        cache.store("q", one)

        assert cache.store("q", other) is True
        assert typed(cache.get("q")) == typed(other)

    @pytest.mark.parametrize("question", ["", " ", "\n\t", "\u3000\xa0", "\x1c"])
    def test_blank_question_is_not_kept(self, cache: Cache, question: str) -> None:
        compute = Counted()

        assert cache.store(question, "r") is False
        assert cache.store_many({question: "r"}) == 0
        assert cache.lookup(question) is None
        assert [cache.get_or_call(question, compute) for _ in range(2)] == ["made", "made"]
        assert compute.calls == 2
        assert len(cache) == 0

    @pytest.mark.parametrize("response", ["", " ", "\n\t ", "\u3000"])
    def test_response_of_white_space_only_is_not_kept(self, cache: Cache, response: str) -> None:
        compute = Counted(response)

        assert cache.store("q", response) is False
        assert [cache.get_or_call("q", compute) for _ in range(2)] == [response, response]
        assert compute.calls == 2
        assert len(cache) == 0

    def test_response_that_holds_white_space_is_kept(self, cache: Cache) -> None:
        assert cache.store("list", [" "])
        assert cache.store("text", " a ")
        assert cache.get("text") == " a "

    def test_what_is_not_kept_leaves_what_is_there(self, cache: Cache) -> None:
        cache.store("q", "old")

        assert cache.store("q", "  ") is False
        assert cache.store("q", "new", ttl=0) is False
        assert cache.get("q") == "old"

    @pytest.mark.parametrize(
        ("arguments", "place"),
        [
            pytest.param({"question": 3}, "$.question", id="question-a-number"),
            pytest.param({"question": None}, "$.question", id="question-none"),
            pytest.param({"question": b"q"}, "$.question", id="question-bytes"),
            pytest.param({"question": "q\ud800"}, "$.question", id="question-surrogate"),
            pytest.param({"response": (1, 2)}, "$", id="tuple"),
            pytest.param({"response": {1: "a"}}, "$[1]", id="int-key"),
            pytest.param({"response": b"r"}, "$", id="bytes"),
            pytest.param({"response": float("nan")}, "$", id="nan"),
            pytest.param({"response": "r\ud800"}, "$", id="surrogate"),
            pytest.param(
                {"response": {"messages": [1, 2, {"content": {1}}]}},
                "$.messages[2].content",
                id="deep",
            ),
            pytest.param({"context": {"a": [{1}]}}, "$.context.a[0]", id="context"),
            pytest.param({"context": "m"}, "$.context", id="context-a-text"),
            pytest.param({"paths": [3]}, "paths[0]", id="path-a-number"),
            pytest.param({"paths": ["a", b"b"]}, "paths[1]", id="path-bytes"),
        ],
    )
    def test_value_outside_the_domain_is_refused_and_named(
        self, cache: Cache, arguments: dict[str, Any], place: str
    ) -> None:
        """R31 R32: for that entry alone; nothing is changed in silence."""
        cache.store("other", "r")

        with pytest.raises(UncacheableError) as caught:
            cache.store(**{"question": "q", "response": "r", **arguments})

        assert caught.value.place == place
        assert cache.lookup("q") is None
        assert cache.store("next", "r") is True
        assert cache.get("other") == "r"

    def test_file_is_strict_json_whatever_was_tried(self, shared: Make, tmp_path: Path) -> None:
        """R31 R32"""
        cache = shared()
        for number, response in enumerate(["\ud800", float("nan"), {1: 1}, "é\u2028😀", 1e300]):
            try:
                cache.store(f"q{number}", response)
            except UncacheableError:
                pass

        def refuse(name: str) -> None:
            raise ValueError(name)

        text = (tmp_path / "shared.json").read_bytes().decode("utf-8", "strict")
        document = json.loads(text, parse_constant=refuse)

        assert [entry["question"] for entry in document["entries"].values()] == ["q3", "q4"]

    @pytest.mark.parametrize("ttl", [-1, -0.5, "60", float("nan"), float("inf"), True, False])
    def test_wrong_ttl_is_an_error(self, cache: Cache, ttl: Any) -> None:
        """R38: negative is an error."""
        compute = Counted()

        with pytest.raises(ConfigError, match="ttl"):
            cache.store("q", "r", ttl=ttl)
        with pytest.raises(ConfigError, match="ttl"):
            cache.get_or_call("q", compute, ttl=ttl)
        with pytest.raises(ConfigError, match="ttl"):
            asyncio.run(cache.aget_or_call("q", compute, ttl=ttl))
        assert compute.calls == 0
        assert len(cache) == 0

    @pytest.mark.parametrize("ttl", [0, 0.0])
    def test_ttl_zero_means_do_not_keep(self, cache: Cache, ttl: float) -> None:
        """R38"""
        compute = Counted()

        assert cache.store("q", "r", ttl=ttl) is False
        assert cache.get_or_call("q", compute, ttl=ttl) == "made"
        assert cache.get_or_call("q", compute, ttl=ttl) == "made"
        assert compute.calls == 2
        assert len(cache) == 0

    def test_later_changes_of_the_given_value_do_not_show(self, cache: Cache) -> None:
        """R36"""
        response = {"a": [1]}
        cache.store("q", response)
        response["a"].append(2)

        assert cache.get("q") == {"a": [1]}


class TestStoreMany:
    def test_takes_pairs_and_mappings(self, cache: Cache) -> None:
        assert cache.store_many([("a", 1), ("b", 2)]) == 2
        assert cache.store_many({"c": 3}) == 1
        assert cache.store_many((f"d{n}", n) for n in range(3)) == 3
        assert cache.store_many([]) == 0
        assert [hit.question for hit in cache.entries()] == ["a", "b", "c", "d0", "d1", "d2"]

    @pytest.mark.parametrize(
        ("bad", "place"),
        [
            pytest.param(("q", {1}), "$[1]", id="response"),
            pytest.param(("q", {"m": [(1,)]}), "$[1].m[0]", id="deep-response"),
        ],
    )
    def test_all_or_nothing_and_the_place_is_named(
        self, cache: Cache, bad: tuple[Any, Any], place: str
    ) -> None:
        cache.store("before", "r")

        with pytest.raises(UncacheableError) as caught:
            cache.store_many([("a", "r"), bad, ("b", "r")])

        assert caught.value.place == place
        assert [hit.question for hit in cache.entries()] == ["before"]
        assert cache.stats()["stores"] == 1

    @pytest.mark.parametrize("question", [3, None, "q\ud800"])
    def test_bad_question_is_named_with_its_number(self, cache: Cache, question: Any) -> None:
        with pytest.raises(UncacheableError) as caught:
            cache.store_many([("a", "r"), (question, "r")])

        assert caught.value.place.startswith("$[1]")
        assert len(cache) == 0

    def test_what_store_would_not_keep_is_left_out(self, make: Make) -> None:
        cache = make(max_entry_bytes=10, store_if=lambda response: response != "bad")
        cache.store("same", "r")

        assert (
            cache.store_many(
                [("same", "r"), ("", "r"), ("q", " "), ("big", "r" * 20), ("b", "bad"), ("ok", "r")]
            )
            == 1
        )
        assert [hit.question for hit in cache.entries()] == ["same", "ok"]
        assert cache.stats()["refused"] == 4

    def test_is_one_commit(self, shared: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """E10 R35"""
        commits: list[Any] = []
        replace = os.replace
        monkeypatch.setattr(
            os, "replace", lambda *names: (commits.append(names), replace(*names))[1]
        )

        assert shared().store_many({f"q{number}": number for number in range(50)}) == 50
        assert len(commits) == 1

    def test_reader_sees_a_batch_whole_or_not_at_all(self, make: Make) -> None:
        """E10: while batches replace each other, all answers are of one batch."""
        cache = make()
        names = [f"q{number}" for number in range(5)]
        cache.store_many(dict.fromkeys(names, 0))
        stop = threading.Event()
        torn: list[Any] = []

        def read() -> None:
            while not stop.is_set():
                seen = [hit.response for hit in cache.entries()]
                if len(seen) != 5 or len(set(seen)) != 1:
                    torn.append(seen)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for number in range(1, 60):
                cache.store_many(dict.fromkeys(names, number))
        finally:
            stop.set()
            for reader in readers:
                reader.join(HANGS)

        assert torn == []

    def test_last_of_two_equal_questions_wins(self, cache: Cache) -> None:
        cache.store_many([("q", 1), ("Q", 2)])

        assert cache.get("q") == 2
        assert len(cache) == 1

    def test_ttl_of_the_cache_holds(self, make: Make, clock: FakeClock) -> None:
        cache = make(ttl=60)
        cache.store_many({"a": 1})
        clock.advance(60)

        assert cache.lookup("a") is None


class TestTtl:
    def test_expires_when_age_reaches_the_ttl(self, make: Make, clock: FakeClock) -> None:
        cache = make(ttl=60)
        cache.store("q", "r")
        clock.advance(59.999)

        assert cache.get("q") == "r"

        clock.advance(0.001)

        assert cache.lookup("q") is None
        assert len(cache) == 0
        assert list(cache.entries()) == []

    def test_a_hit_never_extends_life(self, make: Make, clock: FakeClock) -> None:
        cache = make(ttl=60)
        cache.store("q", "r")
        for _ in range(5):
            clock.advance(10)
            assert cache.get("q") == "r"
        clock.advance(10)

        assert cache.lookup("q") is None

    def test_without_ttl_it_never_expires(self, cache: Cache, clock: FakeClock) -> None:
        """R38: None means no expiry."""
        cache.store("q", "r")
        clock.advance(10**9)

        assert cache.get("q") == "r"

    def test_per_call_ttl_holds(self, cache: Cache, clock: FakeClock) -> None:
        cache.store("q", "r", ttl=5)
        clock.advance(5)

        assert cache.lookup("q") is None

    @pytest.mark.parametrize("ttl", [1000, None], ids=["longer", "for-ever"])
    def test_per_call_ttl_is_at_most_the_caches_own(
        self, make: Make, clock: FakeClock, ttl: float | None
    ) -> None:
        cache = make(ttl=60)
        cache.store("q", "r", ttl=ttl)
        clock.advance(60)

        assert cache.lookup("q") is None

    def test_stricter_of_stored_and_readers_counts(self, shared: Make, clock: FakeClock) -> None:
        short, long = shared(ttl=60), shared(ttl=3600)
        short.store("by short", "r")
        long.store("by long", "r")
        clock.advance(59)

        assert all(
            each.lookup(f"by {name}") for each in (short, long) for name in ("short", "long")
        )

        clock.advance(1)

        assert long.lookup("by short") is None
        assert short.lookup("by long") is None
        assert short.lookup("by short") is None
        assert long.get("by long") == "r"

    def test_reader_with_a_short_ttl_deletes_nothing(self, shared: Make, clock: FakeClock) -> None:
        """E15"""
        short, long = shared(ttl=1), shared()
        long.store("q", "r")
        clock.advance(10)

        assert short.lookup("q") is None
        assert short.prune() == 0
        assert short.store("other", "r") is True
        assert long.get("q") == "r"

    def test_what_is_too_old_for_a_reader_is_computed_and_kept_for_it(
        self, shared: Make, clock: FakeClock
    ) -> None:
        shared().store("q", "r")
        clock.advance(10)
        short = shared(ttl=5)
        compute = Counted("r")

        assert short.get_or_call("q", compute) == "r"
        assert short.get_or_call("q", compute) == "r"
        assert compute.calls == 1

    def test_clock_set_back_does_not_prolong_life(self, make: Make, clock: FakeClock) -> None:
        """R34 E28"""
        cache = make(ttl=60)
        cache.store("q", "r")
        clock.set_wall(clock() - 3600)
        clock.advance(59)

        assert cache.get("q") == "r"

        clock.advance(2)

        assert cache.lookup("q") is None

    def test_clock_set_back_by_less_than_the_ttl(self, make: Make, clock: FakeClock) -> None:
        """E28: back 30 s, 61 s pass, ttl 60."""
        cache = make(ttl=60)
        cache.store("q", "r")
        clock.set_wall(clock() - 30)
        clock.advance(61)

        assert cache.lookup("q") is None

    def test_clock_set_forward_expires(self, make: Make, clock: FakeClock) -> None:
        cache = make(ttl=60)
        cache.store("q", "r")
        clock.set_wall(clock() + 60)

        assert cache.lookup("q") is None

    def test_stamps_never_run_backwards(self, cache: Cache, clock: FakeClock) -> None:
        """R34"""
        cache.store("a", "r")
        clock.set_wall(clock() - 3600)
        cache.store("b", "r")
        one, other = cache.entries()

        assert other.stored_at is not None and one.stored_at is not None
        assert other.stored_at >= one.stored_at
        assert other.age == 0

    def test_stamp_from_the_future_is_no_hit_under_a_ttl(self, shared: Make) -> None:
        """R34: written by a process whose clock goes wrong."""
        wrong = shared(clock=FakeClock(1_000_000_100.0))
        wrong.store("with", "r", ttl=60)
        wrong.store("without", "r")
        right = shared()

        assert right.lookup("with") is None
        assert found(right.lookup("without")).age == 0
        assert shared(ttl=60).lookup("without") is None

    def test_stamp_from_the_future_is_counted_as_it_is_listed(self, shared: Make) -> None:
        shared(clock=FakeClock(1_000_000_100.0)).store("q", "r", ttl=60)
        right = shared()

        assert len(right) == right.stats()["entries"] == len(list(right.entries()))

    @given(now=st.floats(1_000_000_000, 2_000_000_000))
    def test_what_was_just_stored_is_fresh(self, now: float) -> None:
        """Whatever digits the clock gives: it may stand still between store and lookup."""
        cache = Cache(clock=FakeClock(now), ttl=60)

        assert cache.store("q", "r") is True
        assert cache.get("q") == "r"
        assert found(cache.lookup("q")).age == pytest.approx(0, abs=1e-6)


class TestLimits:
    def test_never_more_than_max_entries(self, make: Make) -> None:
        """R33: while nothing expires; the oldest commit goes first."""
        cache = make(max_entries=10, ttl=86_400)
        for number in range(40):
            cache.store(f"q{number}", "r")
            assert len(cache) <= 10

        assert [hit.question for hit in cache.entries()] == [f"q{n}" for n in range(30, 40)]

    def test_limit_holds_in_the_file(self, shared: Make, tmp_path: Path) -> None:
        """R33"""
        cache = shared(max_entries=3)
        for number in range(10):
            cache.store(f"q{number}", "r")
        document = json.loads((tmp_path / "shared.json").read_text("utf-8"))

        assert len(document["entries"]) == 3

    def test_smallest_limit_wins(self, shared: Make) -> None:
        """E15: a limit belongs to the file."""
        shared(max_entries=2).store("a", "r")
        large = shared(max_entries=100)
        for question in "bcd":
            large.store(question, "r")

        assert [hit.question for hit in large.entries()] == ["c", "d"]

    def test_limits_count_all_namespaces(self, shared: Make) -> None:
        one, other = shared(namespace="a", max_entries=2), shared(namespace="b", max_entries=2)
        one.store("q1", "r")
        other.store("q2", "r")
        other.store("q3", "r")

        assert (len(one), len(other)) == (0, 2)

    def test_hit_does_not_save_an_entry(self, make: Make) -> None:
        cache = make(max_entries=2)
        cache.store("a", "r")
        cache.store("b", "r")
        assert cache.get("a") == "r"
        cache.store("c", "r")

        assert cache.lookup("a") is None

    def test_batch_beyond_the_limit_brings_back_no_older_answer(self, make: Make) -> None:
        """R33: the first of the batch replaced one, and went by the limit itself."""
        cache = make(max_entries=1)
        cache.store("a", "old")
        cache.store_many([("a", "new"), ("b", "r")])
        for _ in range(2):
            assert cache.lookup("a") is None
            assert [hit.question for hit in cache.entries()] == ["b"]
            cache.close()

    def test_large_entry_evicts_as_many_as_needed(self, make: Make) -> None:
        """R33"""
        cache = make(max_bytes=4000)
        for number in range(10):
            cache.store(f"q{number}", "r" * 100)
        before = len(cache)
        cache.store("large", "r" * 3000)

        assert cache.get("large") == "r" * 3000
        assert cache.stats()["bytes"] <= 4000
        assert before - len(cache) >= 3

    def test_entry_over_max_bytes_evicts_nobody(self, make: Make) -> None:
        """R33"""
        cache = make(max_bytes=1000)
        cache.store("a", "r")

        assert cache.store("large", "r" * 1_000_000) is False
        assert cache.get("a") == "r"
        assert cache.stats()["refused"] == 1

    @pytest.mark.parametrize(
        ("response", "is_kept"),
        [
            pytest.param("é" * 4, True, id="just-10-bytes"),
            pytest.param("é" * 4 + "e", False, id="11-bytes"),
            pytest.param([1, 2, 3, 4], True, id="list-of-9-bytes"),
            pytest.param([1, 2, 3, 456], False, id="list-of-11-bytes"),
        ],
    )
    def test_max_entry_bytes_counts_encoded_bytes(
        self, make: Make, response: Any, is_kept: bool
    ) -> None:
        cache = make(max_entry_bytes=10)
        cache.store("a", "r")

        assert cache.store("q", response) is is_kept
        assert cache.get("a") == "r"

    def test_computed_response_over_the_limit_is_returned(self, make: Make) -> None:
        cache = make(max_entry_bytes=10)
        compute = Counted("r" * 100)

        assert cache.get_or_call("q", compute) == "r" * 100
        assert cache.get_or_call("q", compute) == "r" * 100
        assert compute.calls == 2

    def test_byte_count_is_right_after_overwriting_and_deleting(self, make: Make) -> None:
        """R33"""
        cache = make()
        cache.store("a", "r" * 100)
        small = cache.stats()["bytes"]
        cache.store("a", "r" * 1000)
        assert cache.stats()["bytes"] == small + 900
        cache.store("a", "r" * 100)
        assert cache.stats()["bytes"] == small
        cache.store("b", "r" * 100)
        assert cache.stats()["bytes"] == 2 * small
        cache.forget("b")
        assert cache.stats()["bytes"] == small
        cache.clear()

        assert cache.stats()["bytes"] == 0

    def test_expired_entries_are_swept_by_stores(
        self, shared: Make, clock: FakeClock, tmp_path: Path
    ) -> None:
        """R33: also those that nobody reads again."""
        cache = shared()
        cache.store("short", "r", ttl=5)
        clock.advance(5)
        cache.store("q", "r")

        assert "short" not in (tmp_path / "shared.json").read_text("utf-8")


class TestGetOrCall:
    def test_computes_once(self, cache: Cache) -> None:
        compute = Counted()

        assert [cache.get_or_call("q", compute) for _ in range(3)] == ["made"] * 3
        assert compute.calls == 1
        assert found(cache.lookup("q")).question == "q"

    def test_takes_what_is_stored(self, cache: Cache) -> None:
        cache.store("Q", None)
        compute = Counted()

        assert cache.get_or_call("q", compute) is None
        assert compute.calls == 0

    def test_context_and_ttl_go_along(self, cache: Cache, clock: FakeClock) -> None:
        compute = Counted()
        for context in ({"m": 1}, {"m": 2}, {"m": 1}):
            cache.get_or_call("q", compute, context=context, ttl=60)

        assert compute.calls == 2

        clock.advance(60)
        cache.get_or_call("q", compute, context={"m": 1}, ttl=60)

        assert compute.calls == 3

    @pytest.mark.parametrize("error", [RuntimeError("down"), KeyboardInterrupt(), SystemExit(3)])
    def test_error_of_compute_passes_through_unchanged(
        self, cache: Cache, error: BaseException
    ) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            cache.get_or_call("q", fail)

        assert caught.value is error
        assert caught.value.__cause__ is None and caught.value.__context__ is None
        assert len(cache) == 0
        assert cache.get_or_call("q", Counted()) == "made"

    @pytest.mark.parametrize(
        "error", [OSError("disk"), UncacheableError("$", "mine"), StopIteration()]
    )
    def test_error_of_compute_that_looks_like_ours_passes_too(
        self, cache: Cache, error: Exception
    ) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            cache.get_or_call("q", fail)

        assert caught.value is error
        assert cache.stats()["refused"] == 0

    @pytest.mark.parametrize(
        "response", [{1: "a"}, (1, 2), b"r", float("nan"), {1}, "\ud800", object()]
    )
    def test_value_that_can_not_be_kept_is_returned_and_counted(
        self, cache: Cache, response: Any
    ) -> None:
        """R32 R36: the second call returns what the first did, in value and type."""
        compute = Counted(response)

        assert cache.get_or_call("q", compute) is response
        assert cache.get_or_call("q", compute) is response
        assert compute.calls == 2
        assert cache.stats()["refused"] == 2
        assert len(cache) == 0

    @pytest.mark.parametrize(
        "arguments", [{"question": 3}, {"question": "\ud800"}, {"context": {"a": {1}}}]
    )
    def test_question_that_can_not_be_a_key_is_computed_each_time(
        self, cache: Cache, arguments: dict[str, Any]
    ) -> None:
        compute = Counted()
        for _ in range(2):
            assert cache.get_or_call(**{"question": "q", **arguments}, compute=compute) == "made"

        assert compute.calls == 2
        assert cache.stats()["refused"] == 2
        assert len(cache) == 0

    def test_result_of_a_miss_is_not_aliased(self, cache: Cache) -> None:
        """R36"""
        first = cache.get_or_call("q", lambda: {"a": [1]})
        first["a"].append(2)

        assert cache.get("q") == {"a": [1]}

    def test_result_of_a_hit_is_not_aliased(self, cache: Cache) -> None:
        """R36"""
        cache.store("q", {"a": [1], "b": {"c": "d"}})
        for _ in range(2):
            hit = found(cache.lookup("q"))
            assert hit.response == {"a": [1], "b": {"c": "d"}}
            hit.response["a"].append(2)
            hit.response["b"].clear()
        for _ in range(2):
            got = cache.get_or_call("q", Counted())
            assert got == {"a": [1], "b": {"c": "d"}}
            got.clear()
        next(cache.entries()).response.clear()

        assert cache.get("q") == {"a": [1], "b": {"c": "d"}}

    @pytest.mark.parametrize("wait", [-1, "1", None, True, float("inf"), float("nan")])
    def test_wrong_wait_is_an_error(self, cache: Cache, wait: Any) -> None:
        with pytest.raises(ConfigError, match="wait"):
            cache.get_or_call("q", Counted(), wait=wait)

    def test_same_key_within_its_own_compute(self, cache: Cache) -> None:
        """The inner call computes; what it stored is newer than the outer result."""
        inner = Counted("inner")

        def outer() -> str:
            assert cache.get_or_call("q", inner) == "inner"
            return "outer"

        assert cache.get_or_call("q", outer) == "outer"
        assert inner.calls == 1
        assert cache.get("q") == "inner"

    def test_another_key_within_a_compute(self, cache: Cache) -> None:
        assert cache.get_or_call("a", lambda: cache.get_or_call("b", Counted(1)) + 1) == 2
        assert (cache.get("a"), cache.get("b")) == (2, 1)

    def test_store_if_decides_what_is_kept(self, make: Make) -> None:
        cache = make(store_if=lambda response: response != "sorry")
        compute = Counted("sorry")

        assert cache.get_or_call("q", compute) == "sorry"
        assert cache.get_or_call("q", compute) == "sorry"
        assert cache.store("q", "sorry") is False
        assert compute.calls == 2
        assert cache.store("q", "fine") is True


ASYNC_KINDS: list[Any] = []


def kind(name: str) -> Callable[[Any], Any]:
    def register(make_compute: Any) -> Any:
        ASYNC_KINDS.append(pytest.param(make_compute, id=name))
        return make_compute

    return register


@kind("coroutine-function")
def _coroutine_function(seen: list[int]) -> Any:
    async def compute() -> str:
        await asyncio.sleep(0)
        seen.append(threading.get_ident())
        return "made"

    return compute


@kind("partial-of-one")
def _partial(seen: list[int]) -> Any:
    async def compute(response: str) -> str:
        seen.append(threading.get_ident())
        return response

    return functools.partial(compute, "made")


@kind("object-with-async-call")
def _object(seen: list[int]) -> Any:
    class Compute:
        async def __call__(self) -> str:
            seen.append(threading.get_ident())
            return "made"

    return Compute()


@kind("function-that-returns-a-coroutine")
def _returns_coroutine(seen: list[int]) -> Any:
    compute = _coroutine_function(seen)
    return lambda: compute()


class TestAsync:
    @pytest.mark.parametrize("make_compute", ASYNC_KINDS)
    def test_coroutine_runs_in_the_loop(self, cache: Cache, make_compute: Any) -> None:
        seen: list[int] = []

        async def main() -> list[Any]:
            compute = make_compute(seen)
            return [await cache.aget_or_call("q", compute) for _ in range(3)]

        assert asyncio.run(main()) == ["made"] * 3
        assert seen == [threading.get_ident()]
        assert cache.get("q") == "made"

    def test_plain_function_runs_in_a_thread(self, cache: Cache) -> None:
        seen: list[int] = []

        def compute() -> str:
            seen.append(threading.get_ident())
            return "made"

        assert asyncio.run(cache.aget_or_call("q", compute)) == "made"
        assert asyncio.run(cache.aget_or_call("q", compute)) == "made"
        assert len(seen) == 1
        assert seen[0] != threading.get_ident()

    def test_loop_goes_on_while_a_plain_function_computes(self, cache: Cache) -> None:
        go = threading.Event()

        async def main() -> Any:
            task = asyncio.create_task(cache.aget_or_call("q", lambda: go.wait(HANGS)))
            while not cache.stats()["misses"]:
                await asyncio.sleep(0)
            go.set()
            return await task

        assert asyncio.run(main()) is True

    @pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "coroutine"])
    def test_error_passes_through_unchanged(self, cache: Cache, is_plain: bool) -> None:
        error = RuntimeError("down")

        def fail() -> None:
            raise error

        async def afail() -> None:
            raise error

        with pytest.raises(RuntimeError) as caught:
            asyncio.run(cache.aget_or_call("q", fail if is_plain else afail))

        assert caught.value is error
        assert len(cache) == 0

    def test_tasks_share_one_computation(self, cache: Cache) -> None:
        """R37"""
        calls = 0

        async def main() -> list[Any]:
            started = 0
            everybody = asyncio.Event()

            async def compute() -> dict[str, list[int]]:
                nonlocal calls
                calls += 1
                await asyncio.wait_for(everybody.wait(), HANGS)
                return {"a": [1]}

            async def one() -> Any:
                nonlocal started
                started += 1
                if started == 20:
                    everybody.set()
                return await cache.aget_or_call("q", compute)

            return await asyncio.gather(*[one() for _ in range(20)])

        results = asyncio.run(main())

        assert calls == 1
        assert results == [{"a": [1]}] * 20
        assert len({id(each) for each in results}) == 20, "each caller has one of its own"
        assert cache.stats()["misses"] == 1
        assert cache.stats()["hits"] == 19

    def test_cancelled_leader_does_not_cancel_who_waits(self, cache: Cache) -> None:
        """E20 R18: what was cancelled is not kept."""

        async def main() -> Any:
            begun = asyncio.Event()

            async def never() -> str:
                begun.set()
                await asyncio.Event().wait()
                return "never"

            async def compute() -> str:
                return "made"

            leader = asyncio.create_task(cache.aget_or_call("q", never))
            await asyncio.wait_for(begun.wait(), HANGS)
            follower = asyncio.create_task(cache.aget_or_call("q", compute))
            await asyncio.sleep(0)
            assert not follower.done()
            leader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leader
            return await asyncio.wait_for(follower, HANGS)

        assert asyncio.run(main()) == "made"
        assert cache.get("q") == "made"

    def test_guard_holds(self, cache: Cache) -> None:
        """E06"""

        async def compute() -> str:
            cache.clear()
            return "old"

        assert asyncio.run(cache.aget_or_call("q", compute)) == "old"
        assert cache.lookup("q") is None

    def test_signatures_are_of_before(self, cache: Cache, file: Path) -> None:
        async def compute() -> str:
            text = file.read_text()
            file.write_text("changed meanwhile")
            return text

        assert asyncio.run(cache.aget_or_call("q", compute, paths=[file])) == "one"
        assert cache.lookup("q") is None

    def test_signature_is_that_of_get_or_call(self) -> None:
        one = inspect.signature(Cache.get_or_call).parameters
        other = inspect.signature(Cache.aget_or_call).parameters

        assert {n: (p.kind, p.default) for n, p in one.items()} == {
            n: (p.kind, p.default) for n, p in other.items()
        }


class Staged:
    """Threads that ask one cache, and a count of those that wait for another's answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._waiting: set[int] = set()
        self._changed = threading.Condition()
        sleep = time.sleep

        def noted(seconds: float) -> None:
            with self._changed:
                self._waiting.add(threading.get_ident())
                self._changed.notify_all()
            sleep(min(seconds, 0.001))

        monkeypatch.setattr(time, "sleep", noted)

    def start(self, ask: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                self.results.append(ask())
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def until_waiting(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._waiting) >= count, HANGS)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(HANGS)
        assert not any(thread.is_alive() for thread in self._threads), "a thread hangs"


class Leader:
    """A computation that is held until it is released."""

    def __init__(self, response: Any = "made") -> None:
        self.calls = 0
        self.began = threading.Event()
        self.release = threading.Event()
        self._response = response

    def __call__(self) -> Any:
        self.calls += 1
        self.began.set()
        assert self.release.wait(HANGS)
        if isinstance(self._response, Exception):
            raise self._response
        return self._response


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Staged]:
    staged = Staged(monkeypatch)
    yield staged
    staged.join()


class TestSingleFlight:
    def test_twenty_threads_compute_once(self, cache: Cache, staged: Staged) -> None:
        """R37"""
        leader = Leader({"a": 1})
        for _ in range(20):
            staged.start(lambda: cache.get_or_call("q", leader))
        staged.until_waiting(19)
        leader.release.set()
        staged.join()

        assert leader.calls == 1
        assert staged.results == [{"a": 1}] * 20
        assert cache.stats()["misses"] == 1
        assert cache.stats()["hits"] == 19

    def test_leader_fails_and_the_others_compute(self, cache: Cache, staged: Staged) -> None:
        """R37: the failure is the leader's, and is not kept."""
        leader = Leader(RuntimeError("down"))
        staged.start(lambda: cache.get_or_call("q", leader))
        assert leader.began.wait(HANGS)
        compute = Counted()
        for _ in range(5):
            staged.start(lambda: cache.get_or_call("q", compute))
        staged.until_waiting(5)
        leader.release.set()
        staged.join()

        assert [str(error) for error in staged.errors] == ["down"]
        assert staged.results == ["made"] * 5
        assert cache.get("q") == "made"

    def test_refused_results_do_not_queue(self, make: Make, staged: Staged) -> None:
        """E20: all who waited compute together, which a queue would make impossible."""
        cache = make(store_if=lambda _: False)
        leader = Leader()
        staged.start(lambda: cache.get_or_call("q", leader))
        assert leader.began.wait(HANGS)
        together = threading.Barrier(7)
        for _ in range(7):
            staged.start(lambda: cache.get_or_call("q", lambda: together.wait(HANGS) >= 0))
        staged.until_waiting(7)
        leader.release.set()
        staged.join()

        assert staged.errors == []
        assert staged.results.count(True) == 7

    def test_different_keys_never_wait(self, cache: Cache, staged: Staged) -> None:
        """R37: other questions, contexts and namespaces are inside together."""
        together = threading.Barrier(6)

        def compute() -> int:
            together.wait(HANGS)
            return 1

        for context in (None, {}, {"a": 1}):
            for question in ("q", "r"):
                staged.start(
                    lambda q=question, c=context: cache.get_or_call(q, compute, context=c)  # type: ignore[misc]
                )
        staged.join()

        assert staged.results == [1] * 6

    def test_follower_gets_no_answer_that_was_overtaken(self, cache: Cache, staged: Staged) -> None:
        """E06: it joined after the removal, so the leader's answer is too old for it."""
        leader = Leader("old")
        staged.start(lambda: ("leader", cache.get_or_call("q", leader)))
        assert leader.began.wait(HANGS)
        cache.forget("q")
        staged.start(lambda: ("follower", cache.get_or_call("q", Counted("new"))))
        staged.until_waiting(1)
        leader.release.set()
        staged.join()

        assert sorted(staged.results) == [("follower", "new"), ("leader", "old")]
        assert cache.get("q") == "new"

    @pytest.mark.parametrize("wait", [0, 0.01])
    def test_after_its_wait_a_caller_computes_for_itself(
        self, cache: Cache, staged: Staged, wait: float
    ) -> None:
        leader = Leader("leader's")
        staged.start(lambda: cache.get_or_call("q", leader))
        assert leader.began.wait(HANGS)
        try:
            assert cache.get_or_call("q", Counted("mine"), wait=wait) == "mine"
            assert cache.get("q") == "mine"
        finally:
            leader.release.set()
        staged.join()

        assert staged.results == ["leader's"]
        assert cache.get("q") == "mine", "the newer entry stays"
        assert cache.stats()["refused"] == 1

    def test_lookup_never_waits_for_a_computation(self, cache: Cache, staged: Staged) -> None:
        cache.store("other", "r")
        leader = Leader()
        staged.start(lambda: cache.get_or_call("q", leader))
        assert leader.began.wait(HANGS)
        try:
            assert cache.lookup("q") is None
            assert cache.get("other") == "r"
            assert cache.store("third", "r") is True
        finally:
            leader.release.set()

    def test_closing_while_others_compute_harms_nobody(self, cache: Cache, staged: Staged) -> None:
        leader = Leader()
        staged.start(lambda: cache.get_or_call("q", leader))
        assert leader.began.wait(HANGS)
        cache.close()
        leader.release.set()
        staged.join()

        assert staged.results == ["made"]
        assert cache.get("q") == "made"


REMOVALS = [
    pytest.param(lambda cache, file: cache.clear(), id="clear"),
    pytest.param(lambda cache, file: cache.forget("Q"), id="forget"),
    pytest.param(lambda cache, file: cache.invalidate([file]), id="invalidate"),
    pytest.param(lambda cache, file: cache.invalidate(file.parent), id="invalidate-folder"),
]
BYSTANDERS = [
    pytest.param(lambda cache, file: cache.forget("other"), id="forget-another"),
    pytest.param(
        lambda cache, file: cache.forget("q", context={"a": 1}), id="forget-another-context"
    ),
    pytest.param(lambda cache, file: cache.invalidate(f"{file}x"), id="invalidate-another"),
    pytest.param(lambda cache, file: cache.prune(), id="prune"),
    pytest.param(lambda cache, file: cache.store("other", "r"), id="store-another"),
]


class TestGuard:
    """What was computed while it was overtaken is returned, and never stored."""

    @pytest.mark.parametrize("had_entry", [False, True], ids=["new", "expired-before"])
    @pytest.mark.parametrize("remove", REMOVALS)
    def test_removal_while_it_is_computed(
        self,
        cache: Cache,
        clock: FakeClock,
        file: Path,
        remove: Callable[[Cache, Path], Any],
        had_entry: bool,
    ) -> None:
        """E06 R16"""
        if had_entry:
            cache.store("q", "older", ttl=1)
            clock.advance(1)

        def compute() -> str:
            remove(cache, file)
            return "old"

        assert cache.get_or_call("q", compute, paths=[file]) == "old"
        assert cache.lookup("q") is None
        assert cache.stats()["refused"] == 1
        assert cache.get_or_call("q", Counted("new"), paths=[file]) == "new"
        assert cache.get("q") == "new"

    @pytest.mark.parametrize("remove", REMOVALS)
    def test_removal_by_another_instance(
        self, shared: Make, file: Path, remove: Callable[[Cache, Path], Any]
    ) -> None:
        """E06 R16: as another process would."""
        mine, other = shared(), shared()
        mine.store("before", "r")

        def compute() -> str:
            remove(other, file)
            return "old"

        assert mine.get_or_call("q", compute, paths=[file]) == "old"
        assert mine.lookup("q") is None
        assert other.lookup("q") is None

    @pytest.mark.parametrize("do", BYSTANDERS)
    def test_what_does_not_touch_it_does_not_matter(
        self, cache: Cache, file: Path, do: Callable[[Cache, Path], Any]
    ) -> None:
        cache.store("other", "r")
        cache.store("q", "r", context={"a": 1})

        def compute() -> str:
            do(cache, file)
            return "made"

        assert cache.get_or_call("q", compute, paths=[file]) == "made"
        assert cache.get("q") == "made"

    def test_clear_of_another_namespace_does_not_matter(self, shared: Make) -> None:
        mine, other = shared(namespace="a"), shared(namespace="ab")

        assert mine.get_or_call("q", lambda: other.clear()) == 0
        assert mine.lookup("q") is not None

    def test_limits_and_age_do_not_guard(self, make: Make, clock: FakeClock) -> None:
        """Not what limits or age take away: it was not wrong."""
        cache = make(max_entries=1)
        cache.store("q", "old", ttl=1)
        clock.advance(1)

        assert cache.get_or_call("q", lambda: cache.store("other", "r")) is True
        assert cache.get("q") is True

    def test_newer_entry_wins(self, cache: Cache) -> None:
        """E03"""

        def compute() -> str:
            cache.store("q", "newer")
            return "older"

        assert cache.get_or_call("q", compute) == "older"
        assert cache.get("q") == "newer"

    def test_newer_entry_of_another_instance_wins(self, shared: Make) -> None:
        """E03"""
        mine, other = shared(), shared()

        assert mine.get_or_call("q", lambda: other.store("q", "newer") and "older") == "older"
        assert mine.get("q") == "newer"

    def test_too_many_removals_to_remember_refuse(self, make: Make) -> None:
        """E02: what was forgotten of them might have touched it."""
        cache = make()

        def compute() -> str:
            for number in range(140 if str(cache.path).endswith(".json") else 1100):
                cache.forget(f"other {number}")
            return "made"

        assert cache.get_or_call("q", compute) == "made"
        assert cache.lookup("q") is None

    def test_a_plain_store_is_never_refused(self, cache: Cache) -> None:
        cache.store("q", "old")
        cache.clear()

        assert cache.store("q", "old") is True

    def test_removal_before_the_computation_does_not_refuse(self, cache: Cache) -> None:
        cache.store("q", "old")
        cache.forget("q")

        assert cache.get_or_call("q", Counted()) == "made"
        assert cache.get("q") == "made"

    def test_removal_in_a_file_that_is_new(self, shared: Make) -> None:
        """E06: with no file yet, the ticket is of nothing."""
        mine, other = shared(), shared()

        assert mine.get_or_call("q", lambda: other.clear()) == 0
        assert mine.lookup("q") is None


class TestForget:
    def test_tells_whether_it_was_kept(self, cache: Cache) -> None:
        cache.store("Q", "r")

        assert cache.forget("q") is True
        assert cache.forget("q") is False
        assert cache.lookup("Q") is None
        assert len(cache) == 0

    def test_takes_the_one_context_only(self, cache: Cache) -> None:
        for context in (None, {"a": 1}, {"a": 2}):
            cache.store("q", "r", context=context)

        assert cache.forget("q", context={"a": 1}) is True
        assert cache.lookup("q", context={"a": 1}) is None
        assert cache.get("q") == cache.get("q", context={"a": 2}) == "r"

    @pytest.mark.parametrize("question", [3, None, "\ud800", b"q"])
    def test_question_that_can_not_be_a_key_was_not_kept(self, cache: Cache, question: Any) -> None:
        assert cache.forget(question) is False

    def test_takes_nothing_of_other_namespaces(self, shared: Make) -> None:
        one, other = shared(namespace="a"), shared(namespace="b")
        one.store("q", "r")

        assert other.forget("q") is False
        assert one.get("q") == "r"

    def test_is_seen_by_others_at_once(self, shared: Make) -> None:
        one, other = shared(), shared()
        one.store("q", "r")
        assert other.get("q") == "r"
        one.forget("q")

        assert other.lookup("q") is None


class TestClear:
    def test_counts_what_it_took(self, cache: Cache) -> None:
        cache.store_many({"a": 1, "b": 2})

        assert cache.clear() == 2
        assert cache.clear() == 0
        assert list(cache.entries()) == []
        assert cache.store("a", 1) is True

    @pytest.mark.parametrize("name", [None, "a", "ab", "a/b"])
    def test_takes_its_own_namespace_only(self, shared: Make, name: str | None) -> None:
        names = [None, "a", "ab", "a/b", "A"]
        for each in names:
            shared(namespace=each).store("q", "r")

        assert shared(namespace=name).clear() == 1
        assert [len(shared(namespace=each)) for each in names] == [
            int(each != name) for each in names
        ]


def symlink(link: Path, target: Path) -> Path:
    os.symlink(target, link)
    return link


def rewrite_in_place(file: Path) -> None:
    """Change a byte, and put size and mtime back, once the clock has ticked."""
    before = file.stat()
    deadline = time.monotonic() + HANGS
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        assert time.monotonic() < deadline
        with open(file, "r+b") as stream:
            stream.write(b"ONE")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def replace_by_older(file: Path) -> None:
    other = file.with_name("backup")
    other.write_text("older")
    os.utime(other, ns=(1, 1))
    os.replace(other, file)


class TestPaths:
    """What was read from a file is served while the file is the same."""

    def test_unchanged_file_is_a_hit(self, cache: Cache, file: Path) -> None:
        cache.store("q", "r", paths=[file])

        assert cache.get("q") == "r"
        assert file.read_text() == "one"
        assert cache.get("q") == "r"

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda file: file.write_text("longer"), id="written"),
            pytest.param(lambda file: os.utime(file, (1, 1)), id="touched"),
            pytest.param(lambda file: file.unlink(), id="removed"),
            pytest.param(lambda file: file.rename(file.with_name("b.py")), id="moved-away"),
            pytest.param(replace_by_older, id="replaced-by-an-older"),
            pytest.param(rewrite_in_place, id="edited-in-place-with-its-mtime-put-back"),
            pytest.param(lambda file: (file.unlink(), file.mkdir()), id="now-a-folder"),
        ],
    )
    def test_changed_file_is_a_miss(
        self, cache: Cache, file: Path, change: Callable[[Path], Any]
    ) -> None:
        """R22: not newer but different."""
        cache.store("q", "r", paths=[file])
        change(file)

        assert cache.lookup("q") is None
        assert cache.get_or_call("q", Counted("new"), paths=[file]) == "new"
        assert cache.get("q") == "new"

    def test_file_that_appears_is_a_change(self, cache: Cache, file: Path) -> None:
        """R14: a cached "not found"."""
        missing = file.with_name("new.py")
        cache.store("q", "not found", paths=[missing])
        assert cache.get("q") == "not found"
        missing.write_text("here")

        assert cache.lookup("q") is None

    def test_any_of_several_files_counts(self, cache: Cache, file: Path) -> None:
        other = file.with_name("b.py")
        other.write_text("two")
        cache.store("q", "r", paths=[file, str(other)])
        other.write_text("changed")

        assert cache.lookup("q") is None

    def test_file_that_changed_since_it_was_read_is_no_hit(self, cache: Cache, file: Path) -> None:
        """The signature that counts is of before the reading."""
        before = {file: os.stat(file)}
        file.write_text("changed")
        cache.store("q", "read from the old one", paths=before)

        assert cache.lookup("q") is None

    def test_mapping_of_an_unchanged_file_is_a_hit(self, cache: Cache, file: Path) -> None:
        cache.store("q", "r", paths={str(file): os.stat(file)})

        assert cache.get("q") == "r"

    def test_file_that_changes_while_it_is_computed(self, cache: Cache, file: Path) -> None:
        """R16"""

        def compute() -> str:
            text = file.read_text()
            file.write_text("changed meanwhile")
            return text

        assert cache.get_or_call("q", compute, paths=[file]) == "one"
        assert cache.lookup("q") is None

    def test_paths_may_come_from_a_generator(self, cache: Cache, file: Path) -> None:
        cache.get_or_call("q", Counted(), paths=(path for path in [file]))
        cache.store("r", "r", paths=iter([file]))
        file.write_text("changed")

        assert cache.lookup("q") is None
        assert cache.lookup("r") is None

    def test_relative_path_is_of_the_working_folder_at_the_store(
        self, cache: Cache, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """E30"""
        monkeypatch.chdir(file.parent)
        cache.store("q", "r", paths="a.py")
        monkeypatch.chdir(tmp_path)

        assert cache.get("q") == "r"

        file.write_text("changed")

        assert cache.lookup("q") is None

    def test_tree_is_not_walked_at_the_hit(self, cache: Cache, file: Path) -> None:
        """It is forgotten by invalidate only."""
        cache.store("q", "a.py", paths=[Tree(file.parent)])
        file.with_name("b.py").write_text("two")

        assert cache.get("q") == "a.py"
        assert cache.invalidate(file.with_name("b.py")) == 1
        assert cache.lookup("q") is None

    def test_prune_takes_what_has_changed(self, cache: Cache, file: Path) -> None:
        cache.store("changed", "r", paths=[file])
        cache.store("stays", "r")
        file.write_text("changed")

        assert cache.prune() == 1
        assert [hit.question for hit in cache.entries()] == ["stays"]


class TestInvalidate:
    @pytest.mark.parametrize(
        ("changed", "count"),
        [
            pytest.param(lambda file: file, 1, id="path"),
            pytest.param(lambda file: str(file), 1, id="text"),
            pytest.param(lambda file: [file], 1, id="list"),
            pytest.param(lambda file: (each for each in [file]), 1, id="generator"),
            pytest.param(lambda file: file.parent, 1, id="folder"),
            pytest.param(lambda file: f"{file.parent}/", 1, id="folder-with-a-slash"),
            pytest.param(lambda file: file.parent.parent, 1, id="folder-above"),
            pytest.param(lambda file: Tree(file.parent), 1, id="tree"),
            pytest.param(lambda file: f"{file.parent}/sub/../a.py", 1, id="dots"),
            pytest.param(lambda file: f"{file.parent}/./a.py", 1, id="dot"),
            pytest.param(lambda file: str(file).upper(), 1, id="upper-case"),
            pytest.param(
                lambda file: symlink(file.with_name("link.py"), file), 1, id="link-to-the-file"
            ),
            pytest.param(
                lambda file: symlink(file.parent.parent / "link", file.parent) / "a.py",
                1,
                id="through-a-linked-folder",
            ),
            pytest.param(lambda file: file.with_name("b.py"), 0, id="sibling"),
            pytest.param(lambda file: f"{file}x", 0, id="longer-name"),
            pytest.param(lambda file: str(file)[:-1], 0, id="shorter-name"),
            pytest.param(lambda file: file / "below", 0, id="below-a-plain-path"),
            pytest.param(lambda file: [], 0, id="nothing"),
        ],
    )
    def test_takes_what_was_read_there(
        self, cache: Cache, file: Path, changed: Callable[[Path], Any], count: int
    ) -> None:
        """R14 E29: paths are made absolute and real, and compared folded."""
        cache.store("q", "r", paths=[file])
        cache.store("without paths", "r")

        assert cache.invalidate(changed(file)) == count
        assert (cache.lookup("q") is None) == bool(count)
        assert cache.get("without paths") == "r"

    @pytest.mark.parametrize(
        "read",
        [
            pytest.param(
                lambda file: symlink(file.with_name("link.py"), file), id="link-to-the-file"
            ),
            pytest.param(
                lambda file: symlink(file.parent.parent / "link", file.parent) / "a.py",
                id="through-a-linked-folder",
            ),
            pytest.param(lambda file: f"{file.parent}/sub/../a.py", id="dots"),
            pytest.param(lambda file: Tree(file.parent.parent), id="tree-above"),
        ],
    )
    def test_entry_that_was_read_by_another_name_is_taken(
        self, cache: Cache, file: Path, read: Callable[[Path], Any]
    ) -> None:
        """R14 E29"""
        (file.parent / "sub").mkdir()
        cache.store("q", "r", paths=[read(file)])
        assert cache.get("q") == "r"

        assert cache.invalidate(file) == 1

    def test_link_that_leads_elsewhere_by_now(self, cache: Cache, file: Path) -> None:
        """E29: the file that it led to when it was read counts too."""
        other = file.with_name("b.py")
        other.write_text("one")
        link = symlink(file.with_name("link.py"), file)
        cache.store("q", "r", paths=[link])
        link.unlink()
        symlink(link, other)

        assert cache.lookup("q") is None, "another file has another signature"
        assert cache.invalidate(file) == 1

    def test_home_folder_is_expanded(
        self, cache: Cache, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(file.parent))
        monkeypatch.setenv("USERPROFILE", str(file.parent))
        cache.store("q", "r", paths=["~/a.py"])

        assert cache.invalidate(file) == 1

    def test_missing_file_can_be_named(self, cache: Cache, file: Path) -> None:
        missing = file.with_name("new.py")
        cache.store("q", "not found", paths=[missing])

        assert cache.invalidate(missing) == 1

    def test_takes_from_all_namespaces(self, shared: Make, file: Path) -> None:
        """R15: they share one disk."""
        for name in (None, "a", "b"):
            shared(namespace=name).store("q", "r", paths=[file])

        assert shared(namespace="c").invalidate(file) == 3

    @pytest.mark.parametrize("paths", [[3], [None], [b"a"], ["a\ud800"], [["a"]]])
    def test_what_is_no_path_is_named(self, cache: Cache, paths: Any) -> None:
        with pytest.raises(UncacheableError) as caught:
            cache.invalidate(paths)

        assert caught.value.place == "paths[0]"


class TestPrune:
    def test_takes_what_has_expired(self, cache: Cache, clock: FakeClock) -> None:
        cache.store("a", "r", ttl=5)
        cache.store("b", "r", ttl=6)
        cache.store("c", "r")
        clock.advance(5)

        assert cache.prune() == 1
        assert cache.prune() == 0
        assert [hit.question for hit in cache.entries()] == ["b", "c"]

    def test_works_on_the_whole_file(self, shared: Make, clock: FakeClock) -> None:
        shared(namespace="a").store("q", "r", ttl=5)
        clock.advance(5)

        assert shared(namespace="b").prune() == 1

    def test_is_no_removal_that_guards(self, cache: Cache, clock: FakeClock) -> None:
        cache.store("q", "r", ttl=5)
        clock.advance(5)

        assert cache.get_or_call("q", lambda: cache.prune()) == 1
        assert cache.get("q") == 1

    def test_empty_cache_has_nothing_to_prune(self, cache: Cache) -> None:
        assert cache.prune() == 0


class TestEntries:
    def test_oldest_commit_first(self, cache: Cache, clock: FakeClock) -> None:
        for question in "abc":
            cache.store(question, question.upper())
            clock.advance(1)
        cache.store("a", "again")
        hits = list(cache.entries())

        assert [(hit.question, hit.response, hit.age) for hit in hits] == [
            ("b", "B", 2.0),
            ("c", "C", 1.0),
            ("a", "again", 0.0),
        ]
        assert all(isinstance(hit, Hit) for hit in hits)

    def test_is_an_iterator(self, cache: Cache) -> None:
        cache.store_many({"a": 1, "b": 2})
        entries = cache.entries()

        assert iter(entries) is entries
        assert next(entries).question == "a"

    def test_can_be_gone_through_while_others_store(self, cache: Cache) -> None:
        cache.store_many({f"q{number}": number for number in range(10)})
        seen = []
        for hit in cache.entries():
            seen.append(hit.response)
            cache.forget(hit.question)
            cache.store(f"new {hit.question}", 1)

        assert seen == list(range(10))

    def test_contexts_are_entries_of_their_own(self, cache: Cache) -> None:
        cache.store("q", 1, context={"a": 1})
        cache.store("q", 2, context={"a": 2})

        assert [hit.response for hit in cache.entries()] == [1, 2]
        assert len(cache) == 2


class TestHit:
    def test_equal_hits_are_equal(self) -> None:
        assert Hit([1], "q", 1.0, 2.0) == Hit([1], "q", 1.0, 2.0)
        assert Hit([1], "q", 1.0, 2.0) != Hit([2], "q", 1.0, 2.0)
        assert Hit(1, "q", 1.0, 2.0) != 1

    def test_repr_shows_all(self) -> None:
        assert repr(Hit("r", "q", 1.0, 2.5)) == (
            "Hit(response='r', question='q', stored_at=1.0, age=2.5)"
        )

    def test_is_not_hashable_as_its_response_may_be_a_list(self) -> None:
        with pytest.raises(TypeError):
            hash(Hit("r", "q", 1.0, 2.5))


class TestStats:
    def test_counts(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = make(max_entry_bytes=100)
        cache.store("a", "r")
        cache.store("a", "r")
        cache.store("b", "r" * 200)
        cache.lookup("a")
        cache.get("missing")
        cache.get_or_call("a", Counted())
        cache.get_or_call("c", Counted())
        cache.get_or_call("d", Counted({1}))
        monkeypatch.setenv("RESPCACHE_REFRESH", "1")
        cache.lookup("a")
        cache.get_or_call("a", Counted())
        monkeypatch.delenv("RESPCACHE_REFRESH")
        stats = cache.stats()

        assert stats.pop("bytes") > 0
        assert stats == {
            "hits": 2,
            "misses": 3,
            "bypassed": 2,
            "stores": 3,
            "refused": 2,
            "pending": 0,
            "entries": 2,
        }

    def test_one_call_counts_once_however_often_it_looks(self, cache: Cache) -> None:
        cache.get_or_call("q", Counted())
        cache.get_or_call("q", Counted())

        assert cache.stats()["misses"] == 1
        assert cache.stats()["hits"] == 1

    def test_call_that_fails_counts_as_a_miss(self, cache: Cache) -> None:
        with pytest.raises(ZeroDivisionError):
            cache.get_or_call("q", lambda: 1 / 0)

        assert cache.stats()["misses"] == 1

    def test_counts_are_of_this_object_and_sizes_of_the_file(self, shared: Make) -> None:
        one, other = shared(), shared()
        one.store("q", "r")
        one.lookup("q")

        assert other.stats()["hits"] == other.stats()["stores"] == 0
        assert other.stats()["entries"] == 1
        assert other.stats()["bytes"] == one.stats()["bytes"]


class TestPredicates:
    def test_hit_that_may_no_longer_be_served_is_a_miss(self, make: Make, clock: FakeClock) -> None:
        cache = make(serve_if=lambda hit: hit.age < 5)
        cache.store("q", "r")

        assert cache.get("q") == "r"

        clock.advance(5)

        assert cache.lookup("q") is None
        assert cache.stats()["misses"] == 1

    def test_serve_if_gets_the_hit(self, make: Make) -> None:
        seen: list[Hit] = []
        cache = make(serve_if=lambda hit: seen.append(hit) or True)
        cache.store("Q", {"a": 1})
        hit = cache.lookup("q")

        assert seen == [Hit({"a": 1}, "Q", 1_000_000_000.0, 0.0)]
        assert hit == seen[0]

    def test_refused_hit_is_computed_and_replaced(self, make: Make) -> None:
        cache = make(serve_if=lambda hit: hit.response != "bad schema")
        cache.store("q", "bad schema")

        assert cache.get_or_call("q", Counted("good")) == "good"
        assert asyncio.run(cache.aget_or_call("q", Counted())) == "good"

    def test_serve_if_is_not_asked_about_what_can_not_be_served_anyway(
        self, make: Make, clock: FakeClock, file: Path
    ) -> None:
        def refuse(hit: Hit) -> bool:
            raise AssertionError(hit)

        cache = make(serve_if=refuse)
        cache.store("old", "r", ttl=1)
        cache.store("changed", "r", paths=[file])
        clock.advance(1)
        file.write_text("changed")

        assert cache.lookup("old") is None
        assert cache.lookup("changed") is None
        assert cache.lookup("missing") is None

    def test_store_if_is_asked_on_every_path(self, make: Make) -> None:
        seen: list[Any] = []
        cache = make(store_if=lambda response: seen.append(response))

        assert cache.store("q", 1) is False
        assert cache.store_many([("q", 2), ("r", 3)]) == 0
        assert cache.get_or_call("q", Counted(4)) == 4
        assert asyncio.run(cache.aget_or_call("q", Counted(5))) == 5
        assert seen == [1, 2, 3, 4, 5]
        assert len(cache) == 0
        assert cache.stats()["refused"] == 5

    def test_truth_of_what_they_return_counts(self, make: Make) -> None:
        cache = make(store_if=lambda _: "yes", serve_if=lambda _: [])
        cache.store("q", "r")

        assert len(cache) == 1
        assert cache.lookup("q") is None

    def test_errors_of_predicates_pass_through(self, make: Make) -> None:
        def fail(_: Any) -> bool:
            raise RuntimeError("mine")

        storing, serving = make(store_if=fail), make(serve_if=fail)
        serving.store("q", "r")

        with pytest.raises(RuntimeError, match="mine"):
            storing.store("q", "r")
        with pytest.raises(RuntimeError, match="mine"):
            storing.get_or_call("q", Counted())
        with pytest.raises(RuntimeError, match="mine"):
            serving.lookup("q")
        assert len(storing) == 0
        assert storing.get_or_call("", Counted()) == "made", "no flight is left over"


class TestEvents:
    @pytest.fixture
    def events(self) -> list[Event]:
        return []

    @pytest.fixture
    def told(self, make: Make, events: list[Event]) -> Cache:
        return make(on_event=events.append, max_entry_bytes=100)

    @pytest.mark.parametrize(
        ("use", "expected"),
        [
            pytest.param(lambda c, f: c.lookup("Kept"), [("hit", "Kept", 5.0)], id="hit"),
            pytest.param(lambda c, f: c.get("kept"), [("hit", "kept", 5.0)], id="get"),
            pytest.param(lambda c, f: c.lookup("no"), [("miss", "no", None)], id="miss"),
            pytest.param(
                lambda c, f: c.lookup("Kept", exact=True), [("miss", "Kept", None)], id="not-exact"
            ),
            pytest.param(lambda c, f: c.store("q", "r"), [("store", "q", None)], id="store"),
            pytest.param(lambda c, f: c.store("kept", "r"), [], id="same-again"),
            pytest.param(
                lambda c, f: c.store("q", "r" * 200), [("refuse", "q", None)], id="too-large"
            ),
            pytest.param(lambda c, f: c.store("", "r"), [("refuse", "", None)], id="blank"),
            pytest.param(
                lambda c, f: c.store_many([("a", 1), (" ", 2), ("b", 3)]),
                [("store", "a", None), ("refuse", " ", None), ("store", "b", None)],
                id="store-many",
            ),
            pytest.param(
                lambda c, f: c.get_or_call("kept", Counted()), [("hit", "kept", 5.0)], id="call-hit"
            ),
            pytest.param(
                lambda c, f: c.get_or_call("q", Counted()),
                [("miss", "q", None), ("store", "q", None)],
                id="call-miss",
            ),
            pytest.param(
                lambda c, f: c.get_or_call("q", Counted({1})),
                [("miss", "q", None), ("refuse", "q", None)],
                id="call-uncacheable",
            ),
            pytest.param(
                lambda c, f: c.get_or_call("q", lambda: c.clear()),
                [("miss", "q", None), ("clear", None, None), ("refuse", "q", None)],
                id="call-overtaken",
            ),
            pytest.param(
                lambda c, f: asyncio.run(c.aget_or_call("q", Counted())),
                [("miss", "q", None), ("store", "q", None)],
                id="async-call-miss",
            ),
            pytest.param(lambda c, f: c.forget("kept"), [("forget", "kept", None)], id="forget"),
            pytest.param(
                lambda c, f: c.invalidate([f]), [("invalidate", [str], None)], id="invalidate"
            ),
            pytest.param(lambda c, f: c.clear(), [("clear", None, None)], id="clear"),
            pytest.param(lambda c, f: c.prune(), [("prune", None, None)], id="prune"),
            pytest.param(lambda c, f: (len(c), list(c.entries()), c.stats()), [], id="sizes"),
        ],
    )
    def test_each_use_tells(
        self,
        told: Cache,
        events: list[Event],
        clock: FakeClock,
        file: Path,
        use: Callable[[Cache, Path], Any],
        expected: list[tuple[str, Any, float | None]],
    ) -> None:
        told.store("kept", "r")
        clock.advance(5)
        events.clear()
        use(told, file)

        assert [(event.kind, event.subject, event.age) for event in events] == [
            (kind, [str(file)] if subject == [str] else subject, age)
            for kind, subject, age in expected
        ]
        assert all(event.front == "cache" for event in events)
        assert all(event.duration >= 0 for event in events)

    def test_bypassed_lookups_are_told(
        self, told: Cache, events: list[Event], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RESPCACHE_REFRESH", "1")
        told.lookup("q")
        told.get_or_call("q", Counted())

        assert [event.kind for event in events] == ["bypass", "bypass", "store"]

    def test_pending_is_told(
        self, shared: Make, events: list[Event], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = shared(on_event=events.append)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _full_disk)
            assert cache.store("q", "r") is False

        assert [event.kind for event in events] == ["pending"]
        assert cache.stats()["pending"] == 1
        assert cache.get("q") == "r", "served here"
        assert shared().lookup("q") is None
        assert cache.flush() is True
        assert shared().get("q") == "r"

    def test_computing_does_not_count_into_the_duration(
        self, told: Cache, events: list[Event], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def compute() -> str:
            now[0] += 1000
            return "made"

        told.get_or_call("q", compute)

        assert [(event.kind, event.duration) for event in events] == [
            ("miss", 0.0),
            ("store", 0.0),
        ]

    def test_what_it_raises_passes_through(self, make: Make) -> None:
        """A loop guard stops an agent this way."""

        def guard(event: Event) -> None:
            if event.kind == "hit":
                raise RuntimeError("the same question again")

        cache = make(on_event=guard)
        cache.store("q", "r")

        with pytest.raises(RuntimeError, match="same question"):
            cache.lookup("q")
        with pytest.raises(RuntimeError, match="same question"):
            cache.get_or_call("q", Counted())

    def test_repr_shows_all(self) -> None:
        assert repr(Event("hit", "cache", "q", 1.0, 0.5)) == (
            "Event(kind='hit', front='cache', subject='q', age=1.0, duration=0.5)"
        )


def _full_disk(*names: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class TestOnError:
    def test_warn_keeps_it_here_and_says_so_once(
        self, shared: Make, monkeypatch: pytest.MonkeyPatch, warnings_of: Any
    ) -> None:
        cache = shared()
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _full_disk)
            assert cache.store("q", {"a": 1}) is False
            assert cache.store("p", "r") is False
            assert cache.get_or_call("c", Counted()) == "made"

        assert len(warnings_of()) == 1
        assert "disk is full" in warnings_of()[0]
        assert [cache.get(each) for each in "qpc"] == [{"a": 1}, "r", "made"]
        assert cache.store("next", "r") is True
        assert cache.stats()["pending"] == 0
        assert len(shared()) == 4

    def test_raise_is_a_store_error_and_nothing_is_kept(
        self, shared: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = shared(on_error="raise")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _full_disk)
            with pytest.raises(StoreError) as caught:
                cache.store("q", "r")
            with pytest.raises(StoreError):
                cache.get_or_call("q", Counted())

        assert caught.value.errno == errno.ENOSPC
        assert isinstance(caught.value.__cause__, OSError)
        assert cache.lookup("q") is None
        assert cache.stats()["pending"] == 0
        assert cache.get_or_call("q", Counted()) == "made", "no flight is left over"


class TestExplain:
    def test_hit_tells_text_key_and_age(self, cache: Cache, clock: FakeClock) -> None:
        cache.store("Q?", "r")
        clock.advance(7)
        lines = cache.explain("q?").splitlines()

        assert lines[0] == "hit: stored 7 s ago"
        assert lines[1:] == ["normalized: 'q?'", f"key: {cache._checked_key('q?', None)}"]

    def test_miss_tells_that_nothing_is_kept(self, cache: Cache) -> None:
        lines = cache.explain("q").splitlines()

        assert lines[0].startswith("miss: nothing is kept")
        assert lines[1] == "normalized: 'q'"

    def test_miss_by_age_tells_the_ttl(self, make: Make, clock: FakeClock) -> None:
        cache = make(ttl=60)
        cache.store("q", "r", ttl=100)
        clock.advance(61)
        verdict = cache.explain("q").splitlines()[0]

        assert verdict.startswith("miss: ")
        assert "61 s ago" in verdict and "ttl of 60 s" in verdict

    def test_miss_by_a_changed_file_names_it(self, cache: Cache, file: Path) -> None:
        cache.store("q", "r", paths=[file])
        file.write_text("changed")
        verdict = cache.explain("q").splitlines()[0]

        assert verdict.startswith("miss: ")
        assert str(file) in verdict

    def test_miss_by_serve_if_is_named(self, make: Make) -> None:
        cache = make(serve_if=lambda hit: False)
        cache.store("q", "r")
        verdict = cache.explain("q").splitlines()[0]

        assert verdict.startswith("miss: ")
        assert "serve_if" in verdict

    @pytest.mark.parametrize(
        ("stored", "asked", "expected"),
        [
            pytest.param({"m": 1}, {"m": 2}, ["another 'm'"], id="other-value"),
            pytest.param({"m": 1}, {"m": 1.0}, ["another 'm'"], id="other-type"),
            pytest.param({"m": 1, "e": 2}, {"m": 1}, ["with context field 'e'"], id="more"),
            pytest.param({"m": 1}, {"m": 1, "e": 2}, ["without context field 'e'"], id="fewer"),
            pytest.param(None, {"m": 1}, ["without context field 'm'"], id="without-context"),
            pytest.param({"m": 1}, None, ["with context field 'm'"], id="with-context"),
            pytest.param({}, None, ["empty context"], id="empty-context"),
            pytest.param(
                {"m": 1, "x": 1}, {"m": 2, "y": 1}, ["another 'm'", "'x'", "'y'"], id="several"
            ),
        ],
    )
    def test_field_that_differs_is_named(
        self, cache: Cache, stored: Any, asked: Any, expected: list[str]
    ) -> None:
        """R06: a way to see why a call missed."""
        cache.store("What?", "r", context=stored)
        cache.store("Other?", "r", context=stored)
        lines = cache.explain("what?", context=asked).splitlines()

        assert lines[0].startswith("miss: nothing is kept")
        assert len(lines) == 4
        assert lines[3].startswith("kept as 'What?'")
        for each in expected:
            assert each in lines[3]

    def test_other_namespace_is_named(self, shared: Make) -> None:
        shared(namespace="Acme").store("q", "r")
        shared().store("q", "r")
        lines = shared(namespace="acme").explain("q").splitlines()

        assert "namespace 'Acme'" in lines[3]
        assert "shared namespace" in lines[4]

    def test_other_normalizer_is_named(self, shared: Make) -> None:
        shared(case_sensitive=True).store("Q", "r")
        lines = shared().explain("Q").splitlines()

        assert lines[3].startswith("kept as 'Q'")
        assert "normalizer '1'" in lines[3] and "'1f'" in lines[3]

    @pytest.mark.parametrize(
        ("question", "context", "place"),
        [(3, None, "$.question"), ("\ud800", None, "$.question"), ("q", {"a": {1}}, "$.context.a")],
    )
    def test_what_can_not_be_a_key_is_named(
        self, cache: Cache, question: Any, context: Any, place: str
    ) -> None:
        text = cache.explain(question, context=context)

        assert text.startswith("miss: ")
        assert place in text

    def test_counts_and_tells_nothing(self, make: Make) -> None:
        events: list[Event] = []
        cache = make(on_event=events.append)
        cache.explain("q")

        assert events == []
        assert cache.stats()["misses"] == 0


class TestMoving:
    def test_export_writes_what_another_cache_reads(
        self, make: Make, clock: FakeClock, tmp_path: Path, file: Path
    ) -> None:
        cache = make()
        cache.store("a", {"x": [1]}, ttl=60)
        cache.store("b", None, context={"m": 1})
        cache.store("c", "read", paths=[file])
        cache.store("old", "r", ttl=5)
        clock.advance(10)

        assert cache.export(tmp_path / "copy.json") == 3

        with Cache(tmp_path / "copy.json", clock=clock) as copy:
            assert found(copy.lookup("A")) == Hit({"x": [1]}, "a", 1_000_000_000.0, 10.0)
            assert found(copy.lookup("b", context={"m": 1})).response is None
            assert copy.get("c") == "read"
            assert [hit.question for hit in copy.entries()] == ["a", "b", "c"]
            clock.advance(50)
            assert copy.lookup("a") is None
            file.write_text("changed")
            assert copy.lookup("c") is None

    def test_export_replaces_what_is_there(self, make: Make, tmp_path: Path) -> None:
        cache = make()
        cache.store("q", "mine")
        with Cache(tmp_path / "copy.json", fsync=False) as copy:
            copy.store("q", "theirs")
            copy.store("other", "stays")

            assert cache.export(tmp_path / "copy.json") == 1
            assert copy.get("q") == "mine"
            assert copy.get("other") == "stays"

    def test_export_of_nothing_makes_nothing(self, cache: Cache, tmp_path: Path) -> None:
        assert cache.export(tmp_path / "copy.json") == 0
        assert not (tmp_path / "copy.json").exists()

    def test_merge_leaves_what_is_there(self, make: Make, tmp_path: Path) -> None:
        with Cache(tmp_path / "other.json", fsync=False) as other:
            other.store("q", "theirs")
            other.store("new", "theirs")
        cache = make()
        cache.store("Q", "mine")

        assert cache.merge(tmp_path / "other.json") == 1
        assert found(cache.lookup("q")).response == "mine"
        assert cache.get("new") == "theirs"
        assert cache.merge(tmp_path / "other.json") == 0

    def test_merge_takes_ages_contexts_and_paths_along(
        self, make: Make, clock: FakeClock, tmp_path: Path, file: Path
    ) -> None:
        with Cache(tmp_path / "other.json", clock=clock, fsync=False) as other:
            other.store("a", {"x": [1]}, ttl=60)
            other.store("b", None, context={"m": 1})
            other.store("c", "read", paths=[file])
            other.store("old", "r", ttl=5)
        clock.advance(10)
        cache = make()

        assert cache.merge(str(tmp_path / "other.json")) == 3
        assert found(cache.lookup("a")) == Hit({"x": [1]}, "a", 1_000_000_000.0, 10.0)
        assert found(cache.lookup("b", context={"m": 1})).response is None

        file.write_text("changed")
        clock.advance(50)

        assert cache.lookup("a") is None
        assert cache.lookup("c") is None

    def test_both_work_in_one_namespace(self, shared: Make, tmp_path: Path) -> None:
        for name in (None, "a", "b"):
            shared(namespace=name).store("q", f"of {name}")

        assert shared(namespace="a").export(tmp_path / "copy.json") == 1
        assert shared(namespace="c").merge(tmp_path / "copy.json") == 0
        assert Cache(namespace="a").merge(tmp_path / "shared.json") == 1

    def test_there_and_back_is_the_same(self, make: Make, tmp_path: Path) -> None:
        cache = make()
        cache.store_many({f"q{number}": {"n": number} for number in range(20)})
        before = list(cache.entries())
        cache.export(tmp_path / "copy.json")
        cache.clear()

        assert cache.merge(tmp_path / "copy.json") == 20
        assert list(cache.entries()) == before

    def test_missing_file_is_an_error(self, cache: Cache, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="no such file"):
            cache.merge(tmp_path / "missing.json")
        assert not (tmp_path / "missing.json").exists()

    @pytest.mark.parametrize("name", ["copy.txt", "copy"])
    def test_suffix_that_tells_no_format_is_an_error(
        self, cache: Cache, tmp_path: Path, name: str
    ) -> None:
        cache.store("q", "r")
        (tmp_path / name).write_text("{}")

        with pytest.raises(ConfigError):
            cache.export(tmp_path / name)
        with pytest.raises(ConfigError):
            cache.merge(tmp_path / name)

    def test_limits_hold_for_what_is_merged(self, make: Make, tmp_path: Path) -> None:
        with Cache(tmp_path / "other.json", fsync=False) as other:
            other.store_many({f"q{number}": "r" for number in range(10)})
        cache = make(max_entries=3)
        cache.merge(tmp_path / "other.json")

        assert len(cache) == 3


class TestLifecycle:
    def test_a_cache_is_true_while_it_is_empty(self, cache: Cache) -> None:
        assert bool(cache) is True
        assert len(cache) == 0

    def test_flush_without_anything_pending(self, cache: Cache) -> None:
        assert cache.flush() is True

    def test_closed_cache_opens_again(self, cache: Cache) -> None:
        cache.store("q", "r")
        cache.close()
        cache.close()

        assert cache.get("q") == "r"
        assert cache.store("p", "r") is True

        cache.close()

        assert cache.get_or_call("x", Counted()) == "made"
        assert len(cache) == 3

    def test_with_gives_the_cache_and_closes_it(self, make: Make) -> None:
        cache = make()
        with cache as entered:
            assert entered is cache
            cache.store("q", "r")

        assert cache.get("q") == "r"

    def test_error_in_a_with_block_passes_through(self, make: Make) -> None:
        with pytest.raises(RuntimeError, match="mine"), make() as cache:
            cache.store("q", "r")
            raise RuntimeError("mine")

        assert cache.get("q") == "r"

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a list of descriptors")
    @pytest.mark.parametrize("suffix", SUFFIXES.values())
    def test_close_lets_go_of_all_descriptors(self, tmp_path: Path, suffix: str) -> None:
        """At once, not when garbage is collected: a folder may be removed right after."""

        def opened() -> list[str]:
            links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            paths = [os.readlink(link) for link in links if os.path.islink(link)]
            return [path for path in paths if path.startswith(str(tmp_path))]

        cache = Cache(tmp_path / f"answers.{suffix}", fsync=False)
        cache.store("q", "r")
        cache.get_or_call("p", Counted())
        assert opened()
        gc.disable()
        try:
            cache.close()

            assert opened() == []
        finally:
            gc.enable()

    def test_what_is_pending_is_flushed_at_the_end(
        self, shared: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with shared() as cache, monkeypatch.context() as patch:
            patch.setattr(os, "replace", _full_disk)
            cache.store("q", "r")
            assert cache.flush() is False

        assert shared().get("q") == "r"

    def test_memory_is_of_one_object(self) -> None:
        one, other = Cache(), Cache()
        one.store("q", "r")

        assert other.lookup("q") is None


# One step of each kind, drawn at random; the same ones go to both caches.
questions = st.sampled_from(["a", "A", "b", "ß", "SS", "", " ", "long question"])
contexts = st.none() | st.sampled_from([{}, {"m": 1}, {"m": 1.0}, {"m": [1, {"n": None}]}])
responses = st.sampled_from(
    ["r", "s", " ", None, 1, 1.0, True, [], [1], {"a": [1]}, "é" * 50, (1,)]
)
ttls = st.sampled_from([None, 0, 1, 10, 100])
steps = st.one_of(
    st.tuples(st.just("store"), questions, responses, contexts, ttls, st.booleans()),
    st.tuples(st.just("call"), questions, responses, contexts, ttls),
    st.tuples(st.just("lookup"), questions, contexts, st.booleans()),
    st.tuples(st.just("many"), st.lists(st.tuples(questions, responses), max_size=3)),
    st.tuples(st.just("forget"), questions, contexts),
    st.tuples(st.sampled_from(["clear", "prune", "close", "change", "invalidate"])),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 1, 9, 50])),
    st.tuples(st.just("back"), st.sampled_from([1, 100])),
)


def take(cache: Cache, step: tuple[Any, ...], path: Path) -> Any:
    match step:
        case ("store", question, response, context, ttl, has_path):
            try:
                return cache.store(
                    question,
                    response,
                    context=context,
                    ttl=ttl,
                    paths=[path] if has_path else (),
                )
            except UncacheableError as error:
                return str(error)
        case ("call", question, response, context, ttl):
            return typed(cache.get_or_call(question, lambda: response, context=context, ttl=ttl))
        case ("lookup", question, context, exact):
            hit = cache.lookup(question, context=context, exact=exact)
            return hit and (typed(hit.response), hit.question, hit.stored_at, hit.age)
        case ("many", pairs):
            try:
                return cache.store_many(pairs)
            except UncacheableError as error:
                return str(error)
        case ("forget", question, context):
            return cache.forget(question, context=context)
        case ("invalidate",):
            return cache.invalidate(path)
        case ("clear" | "prune" | "close" as name,):
            return getattr(cache, name)()
    return None


class TestAgreement:
    @pytest.mark.parametrize("suffix", SUFFIXES.values())
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        taken=st.lists(steps, min_size=5, max_size=25),
        ttl=st.sampled_from([None, 5, 60]),
        max_entries=st.sampled_from([None, 1, 3]),
        max_bytes=st.sampled_from([None, 400, 1000]),
    )
    def test_memory_and_file_do_the_same(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        suffix: str,
        taken: list[tuple[Any, ...]],
        ttl: float | None,
        max_entries: int | None,
        max_bytes: int | None,
    ) -> None:
        """R32: memory and file agree, also with a second instance that only reads."""
        folder = tmp_path_factory.mktemp("agreement")
        file = folder / "read.txt"
        file.write_text("0")
        clock = FakeClock()
        options: Any = {
            "clock": clock,
            "ttl": ttl,
            "max_entries": max_entries,
            "max_bytes": max_bytes,
            "fsync": False,
        }
        with (
            Cache(**options) as memory,
            Cache(folder / f"a.{suffix}", **options) as kept,
            Cache(folder / f"a.{suffix}", **options) as reader,
        ):
            for number, step in enumerate(taken):
                if step[0] == "advance":
                    clock.advance(step[1])
                elif step[0] == "back":
                    clock.set_wall(clock() - step[1])
                elif step[0] == "change":
                    file.write_text("x" * (number + 2))
                assert take(memory, step, file) == take(kept, step, file)
                assert list(memory.entries()) == list(kept.entries()) == list(reader.entries())
                assert len(memory) == len(kept) == len(reader) == len(list(memory.entries()))
                stats = memory.stats()
                assert stats == kept.stats()
                assert stats["hits"] + stats["misses"] + stats["bypassed"] == sum(
                    each[0] in ("lookup", "call") for each in taken[: number + 1]
                )


class TestStoreSince:
    """A response that one process begins to work on and another one stores."""

    @pytest.fixture(params=["json", "jsonl"])
    def make(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        return lambda: Cache(tmp_path / f"answers.{request.param}")

    @pytest.mark.parametrize("is_new", [True, False], ids=["no-file-yet", "a-file"])
    def test_is_kept_if_nothing_came_between(self, make: Any, is_new: bool) -> None:
        if not is_new:
            make().store("other", "o")
        since = make()._begun("q")
        make().store("another", "o")

        assert make()._store_since("q", "a", (), since)
        assert make().get("q") == "a"

    def test_is_refused_if_its_files_changed_since(self, make: Any, tmp_path: Path) -> None:
        make().store("other", "o")
        since = make()._begun("q")
        make().invalidate(tmp_path / "a.py")

        assert not make()._store_since("q", "a", Tree(tmp_path), since)
        assert make()._store_since("q", "a", Tree(tmp_path / "elsewhere"), since)

    def test_is_refused_if_a_newer_answer_is_there(self, make: Any) -> None:
        since = make()._begun("q")
        make().store("q", "newer")

        assert not make()._store_since("q", "a", (), since)
        assert make().get("q") == "newer"

    def test_same_answer_again_keeps_its_age(self, make: Any) -> None:
        make().store("q", "a")
        before = make().lookup("q").stored_at
        since = make()._begun("q")

        assert not make()._store_since("q", "a", (), since)
        assert make().lookup("q").stored_at == before

    def test_another_answer_takes_the_place_of_the_one_that_was_there(self, make: Any) -> None:
        make().store("q", "a")

        assert make()._store_since("q", "b", (), make()._begun("q"))
        assert make().get("q") == "b"

    @pytest.mark.parametrize("switch", ["RESPCACHE_DISABLE", "RESPCACHE_READONLY"])
    def test_switch_keeps_it_out(
        self, make: Any, switch: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        since = make()._begun("q")
        monkeypatch.setenv(switch, "1")

        assert not make()._store_since("q", "a", (), since)

        monkeypatch.delenv(switch)

        assert make().get("q") is None
