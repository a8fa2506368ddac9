"""What every store promises, once: a store's test file is a fixture and little more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from respcache._entry import Entry, new_entry
from respcache._index import Index, Put
from respcache._plan import REFUSED, SAME, STORED
from respcache._rules import Removal
from respcache._stores import new_id
from respcache.testing import FakeClock

if TYPE_CHECKING:
    from respcache._stores import Store

HANGS = 30.0
MakeStore = Callable[..., "Store"]


def make_entry(key: str, response: Any = "r", *, clock: FakeClock, **facts: Any) -> Entry:
    return new_entry(key, f"asked: {key}", response, id=new_id(), stored_at=clock(), **facts)


class StoreContract:
    """The promises of :class:`respcache._stores.Store`.

    A child gives the fixture ``make_store``: called with the limits, it returns
    a new and empty store that asks ``clock`` for the time.
    """

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Store:
        return make_store()

    @pytest.fixture
    def put(self, store: Store, clock: FakeClock) -> Callable[..., str]:
        """Put one entry, and return what became of it."""

        def put(key: str, response: Any = "r", *, renew: bool = False, **facts: Any) -> str:
            entry = make_entry(key, response, clock=clock, **facts)
            return store.put([Put(entry)], renew=renew)[0]

        return put

    def keys(self, store: Store) -> list[str]:
        return [entry.key for entry in store.entries()]

    # get and put

    def test_nothing_is_there_at_first(self, store: Store) -> None:
        assert store.get("k") is None
        assert list(store.entries()) == []
        assert store.measure("") == (0, 0)
        assert store.pending == 0
        assert store.flush() is True

    @pytest.mark.parametrize(
        "response",
        [None, "", 0, False, 1.0, 'é\n"\\', [], {}, [1, {"a": None}], {"b": 1, "a": [2]}],
    )
    def test_entry_comes_back_equal(
        self, store: Store, put: Callable[..., str], clock: FakeClock, response: Any
    ) -> None:
        facts = {
            "ttl": 60,
            "context": {"model": "0a1b2c3d"},
            "paths": {"/a/b": [1, 2, 3, 4, 5], "/gone": None, "/t": "tree"},
            "links": {"/a/b": ["/real/b"]},
        }

        assert put("k", response, **facts) == STORED

        entry = store.get("k")

        assert entry is not None
        assert (type(entry.response), repr(entry.response)) == (type(response), repr(response))
        assert (entry.key, entry.question, entry.stored_at) == ("k", "asked: k", clock())
        assert {name: getattr(entry, name) for name in facts} == facts

    @pytest.mark.parametrize(
        "key", ["q//1f//a", "", "a/b", 'a"b\\c', "\n", "é😀", '": {"response": ', "\u2028"]
    )
    def test_any_key_is_found_again(self, store: Store, put: Callable[..., str], key: str) -> None:
        put("q//1//other")
        put(f"q//1//{key}", key)
        entry = store.get(f"q//1//{key}")

        assert entry is not None
        assert entry.response == key
        assert store.get(f"q//1//{key}x") is None

    def test_expired_entry_is_still_got(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        """The front decides what is fresh: it may be stricter."""
        put("k", ttl=60)
        clock.advance(60)

        assert store.get("k") is not None

    def test_response_is_never_aliased(self, store: Store, put: Callable[..., str]) -> None:
        """R36"""
        response = {"a": [1]}
        put("k", response)
        response["a"].append(2)
        for _ in range(2):
            entry = store.get("k")
            assert entry is not None
            assert entry.response == {"a": [1]}
            entry.response["a"].append(3)

    def test_put_replaces_and_goes_to_the_end(self, store: Store, put: Callable[..., str]) -> None:
        put("a")
        put("b")

        assert put("a", "new") == STORED
        assert self.keys(store) == ["b", "a"]

    def test_same_again_is_not_stored(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        put("k")
        before = store.get("k")
        clock.advance(1)

        assert put("k") == SAME
        assert before is not None and getattr(store.get("k"), "id", None) == before.id

    def test_same_again_is_stored_if_it_shall_renew(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        put("k")
        clock.advance(1)

        assert put("k", renew=True) == STORED
        assert getattr(store.get("k"), "stored_at", None) == clock()

    def test_same_again_is_stored_once_it_has_expired(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        put("k", ttl=60)
        clock.advance(60)

        assert put("k", ttl=60) == STORED

    def test_each_put_of_a_batch_has_a_fate(self, make_store: MakeStore, clock: FakeClock) -> None:
        store = make_store(max_bytes=5000)
        store.put([Put(make_entry("same", clock=clock)), Put(make_entry("there", clock=clock))])
        fates = store.put(
            [
                Put(make_entry("new", clock=clock)),
                Put(make_entry("same", clock=clock)),
                Put(make_entry("large", "r" * 6000, clock=clock)),
                Put(make_entry("there", "mine", clock=clock), yields=True),
            ]
        )

        assert fates == [STORED, SAME, REFUSED, SAME]
        assert self.keys(store) == ["same", "there", "new"]

    def test_yielding_put_of_the_very_same_entry_takes_nothing_over(
        self, store: Store, clock: FakeClock
    ) -> None:
        entry = make_entry("k", clock=clock)
        store.put([Put(entry)])
        again = new_entry("k", entry.question, "r", id=entry.id, stored_at=entry.stored_at)

        assert store.put([Put(again, yields=True)]) == [SAME]

    def test_batch_is_seen_whole(self, store: Store, clock: FakeClock) -> None:
        """E10: one reader counts while another thread replaces batches."""
        names = [f"k{number}" for number in range(4)]

        def batch(number: int) -> list[Put]:
            return [Put(make_entry(name, number, clock=clock)) for name in names]

        store.put(batch(0))
        stop = threading.Event()
        torn: list[Any] = []

        def read() -> None:
            while not stop.is_set():
                seen = [entry.response for entry in store.entries()]
                if len(seen) != 4 or len(set(seen)) != 1:
                    torn.append(seen)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(1, 50):
                store.put(batch(number))
        finally:
            stop.set()
            reader.join(HANGS)

        assert torn == []

    @pytest.mark.parametrize("is_new", [True, False], ids=["new-keys", "replaced-keys"])
    def test_reader_between_two_steps_of_a_commit_sees_all_of_them_or_none(
        self, store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, is_new: bool
    ) -> None:
        """E10: looked at from within, before each change of an index."""
        before = [] if is_new else ["a", "b"]
        store.put([Put(make_entry(key, "old", clock=clock)) for key in before])
        seen: list[list[str]] = []
        is_looking = False

        def looked_at(change: Callable[..., None]) -> Callable[..., None]:
            def changed(*arguments: Any) -> None:
                nonlocal is_looking
                if not is_looking:
                    is_looking = True
                    seen.append([entry.response for entry in store.entries()])
                    found = [store.get(key) for key in "ab"]
                    seen.append([entry.response for entry in found if entry is not None])
                    is_looking = False
                change(*arguments)

            return changed

        with monkeypatch.context() as patch:
            for name in ("add", "drop"):
                patch.setattr(Index, name, looked_at(getattr(Index, name)))
            store.put([Put(make_entry(key, "new", clock=clock)) for key in "ab"])

        assert seen or is_new
        assert all(each in (["old"] * len(before), ["new", "new"]) for each in seen)
        assert [entry.response for entry in store.entries()] == ["new", "new"]

    def test_threads_that_put_lose_nothing(self, store: Store, clock: FakeClock) -> None:
        """R19"""

        def work(name: int) -> None:
            for number in range(10):
                store.put([Put(make_entry(f"{name}-{number}", clock=clock))])

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANGS)

        assert len(self.keys(store)) == 40

    # remove and discard

    def fill(self, store: Store, clock: FakeClock) -> None:
        for key, facts in (
            ("q//1//a", {"paths": {"/repo/a.py": None}}),
            ("q//1//b", {"paths": {"/repo": "tree"}}),
            ("q/=n/1//a", {"paths": {"/Repo/A.py": [1, 2, 3, 4, 5]}}),
            ("q/=n/1//c", {}),
        ):
            store.put([Put(make_entry(key, clock=clock, **facts))])

    @pytest.mark.parametrize(
        ("removal", "left"),
        [
            pytest.param(
                {"keys": ["q//1//a", "no"]}, ["q//1//b", "q/=n/1//a", "q/=n/1//c"], id="keys"
            ),
            pytest.param({"paths": ["/repo/a.py"]}, ["q/=n/1//c"], id="path-in-all-scopes"),
            pytest.param({"paths": ["/repo"]}, ["q/=n/1//c"], id="folder"),
            pytest.param(
                {"paths": ["/repo/b.py"]}, ["q//1//a", "q/=n/1//a", "q/=n/1//c"], id="in-a-tree"
            ),
            pytest.param({"scope": "q//"}, ["q/=n/1//a", "q/=n/1//c"], id="scope"),
            pytest.param({"everything": True}, [], id="everything"),
            pytest.param(
                {"keys": ["no"]}, ["q//1//a", "q//1//b", "q/=n/1//a", "q/=n/1//c"], id="no-key"
            ),
        ],
    )
    def test_remove_takes_what_it_touches(
        self, store: Store, clock: FakeClock, removal: dict[str, Any], left: list[str]
    ) -> None:
        self.fill(store, clock)

        assert store.remove(Removal(new_id(), **removal)) == 4 - len(left)
        assert self.keys(store) == left
        assert all((store.get(key) is not None) == (key in left) for key in ("q//1//a", "q//1//b"))
        assert store.measure("")[0] == len(left)
        assert store.pending == 0

    def test_removed_key_can_be_put_again(self, store: Store, put: Callable[..., str]) -> None:
        put("k")
        store.remove(Removal(new_id(), keys=["k"]))

        assert put("k") == STORED

    def test_discard_takes_just_those_entries(self, store: Store, put: Callable[..., str]) -> None:
        for key in "abc":
            put(key)
        old = {entry.key: entry for entry in store.entries()}
        put("a", "newer")

        assert store.discard([old["a"], old["b"]]) == 1
        assert self.keys(store) == ["c", "a"]
        assert store.discard([old["b"]]) == 0
        assert store.discard([]) == 0

    # ticket

    @pytest.mark.parametrize("is_new", [True, False], ids=["nothing-stored", "something-stored"])
    @pytest.mark.parametrize(
        ("removal", "fate"),
        [
            pytest.param({"keys": ["q//1//k"]}, REFUSED, id="its-key"),
            pytest.param({"scope": "q//"}, REFUSED, id="its-scope"),
            pytest.param({"paths": ["/repo/a.py"]}, REFUSED, id="its-path"),
            pytest.param({"everything": True}, REFUSED, id="everything"),
            pytest.param({"keys": ["q//1//other"]}, STORED, id="another-key"),
            pytest.param({"scope": "q/=n/"}, STORED, id="another-scope"),
            pytest.param({"paths": ["/repo/b.py"]}, STORED, id="another-path"),
        ],
    )
    def test_put_is_refused_if_a_removal_touched_it_since_its_ticket(
        self, store: Store, clock: FakeClock, removal: dict[str, Any], fate: str, is_new: bool
    ) -> None:
        """E06 R16"""
        if not is_new:
            store.put([Put(make_entry("q//1//other", clock=clock))])
        ticket = store.ticket("q//1//k")
        store.remove(Removal(new_id(), **removal))
        entry = make_entry("q//1//k", clock=clock, paths={"/repo/a.py": None})

        assert store.put([Put(entry, ticket)]) == [fate]
        assert (store.get("q//1//k") is not None) == (fate == STORED)

    def test_ticket_taken_after_the_removal_admits(self, store: Store, clock: FakeClock) -> None:
        store.remove(Removal(new_id(), everything=True))
        ticket = store.ticket("k")

        assert store.put([Put(make_entry("k", clock=clock), ticket)]) == [STORED]

    @pytest.mark.parametrize("was_there", [True, False])
    def test_put_is_refused_if_the_key_got_a_newer_entry(
        self, store: Store, put: Callable[..., str], clock: FakeClock, was_there: bool
    ) -> None:
        """E03"""
        if was_there:
            put("k", "old")
        ticket = store.ticket("k")
        put("k", "newer")

        assert store.put([Put(make_entry("k", "mine", clock=clock), ticket)]) == [REFUSED]
        assert getattr(store.get("k"), "response", None) == "newer"

    def test_put_replaces_the_entry_that_its_ticket_saw(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        put("k", "old")
        ticket = store.ticket("k")
        put("other")

        assert store.put([Put(make_entry("k", "mine", clock=clock), ticket)]) == [STORED]

    def test_discarding_and_limits_do_not_guard(
        self, make_store: MakeStore, clock: FakeClock
    ) -> None:
        store = make_store(max_entries=1)
        store.put([Put(make_entry("k", clock=clock))])
        ticket = store.ticket("k")
        store.discard(list(store.entries()))
        store.put([Put(make_entry("other", clock=clock))])

        assert store.put([Put(make_entry("k", clock=clock), ticket)]) == [STORED]

    # entries and measure

    def test_entries_are_those_of_the_beginning(
        self, store: Store, put: Callable[..., str]
    ) -> None:
        put("a")
        put("b")
        seen = []
        for entry in store.entries():
            seen.append(entry.key)
            put(f"{entry.key} again")

        assert seen == ["a", "b"]
        assert self.keys(store) == ["a", "b", "a again", "b again"]

    def test_measure_counts_what_is_fresh_under_a_scope(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        put("q//1//a", ttl=60)
        put("q//1//b")
        put("q/=n/1//c", "r" * 100)

        assert store.measure("q//")[0] == 2
        assert store.measure("q/=n/")[0] == 1
        assert store.measure("q/=n/")[1] > 100
        assert store.measure("")[1] == store.measure("q//")[1] + store.measure("q/=n/")[1]

        clock.advance(60)

        assert store.measure("q//")[0] == 1

    def test_bytes_are_right_after_replacing_and_removing(
        self, store: Store, put: Callable[..., str]
    ) -> None:
        """R33"""
        put("k", "r" * 10)
        small = store.measure("")[1]
        put("k", "r" * 30)
        assert store.measure("")[1] == small + 20
        put("l", "r" * 10)
        assert store.measure("")[1] == 2 * small + 20
        store.remove(Removal(new_id(), keys=["k"]))
        assert store.measure("")[1] == small
        store.discard(list(store.entries()))

        assert store.measure("") == (0, 0)

    # limits

    def test_oldest_goes_out_first(self, make_store: MakeStore, clock: FakeClock) -> None:
        """R33"""
        store = make_store(max_entries=3)
        for key in "abcdef":
            store.put([Put(make_entry(key, clock=clock))])

        assert self.keys(store) == ["d", "e", "f"]

    def test_bytes_are_limited(self, make_store: MakeStore, clock: FakeClock) -> None:
        """R33"""
        store = make_store(max_bytes=2000)
        for number in range(30):
            store.put([Put(make_entry(f"k{number}", "r" * 100, clock=clock))])
            assert store.measure("")[1] <= 2000

        assert self.keys(store)[-1] == "k29"
        assert len(self.keys(store)) > 5

    def test_too_large_an_entry_evicts_nobody(
        self, make_store: MakeStore, clock: FakeClock
    ) -> None:
        """R33"""
        store = make_store(max_bytes=2000)
        store.put([Put(make_entry("k", clock=clock))])

        assert store.put([Put(make_entry("large", "r" * 2000, clock=clock))]) == [REFUSED]
        assert self.keys(store) == ["k"]

    def test_expired_entries_are_swept_by_a_put(
        self, store: Store, put: Callable[..., str], clock: FakeClock
    ) -> None:
        """R33"""
        put("a", ttl=60)
        put("b")
        clock.advance(60)
        put("c")

        assert self.keys(store) == ["b", "c"]

    # close

    def test_closed_store_opens_again(self, store: Store, put: Callable[..., str]) -> None:
        put("a")
        store.close()

        assert store.get("a") is not None

        store.close()
        store.close()

        assert put("a") == SAME
        assert put("b") == STORED
        assert self.keys(store) == ["a", "b"]

    def test_close_forgets_no_removal(self, store: Store, clock: FakeClock) -> None:
        """E06: a result that is under way while the store is closed."""
        store.put([Put(make_entry("other", clock=clock))])
        ticket = store.ticket("k")
        store.close()
        store.remove(Removal(new_id(), keys=["k"]))
        store.close()

        assert store.put([Put(make_entry("k", clock=clock), ticket)]) == [REFUSED]
