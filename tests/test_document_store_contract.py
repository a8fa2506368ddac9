"""The store of one JSON document keeps the contract of all stores, also between instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respcache._index import Put
from respcache._plan import REFUSED, SAME, STORED
from respcache._rules import Removal
from respcache._stores import new_id
from respcache._stores.document import DocumentStore
from respcache.testing import FakeClock

from .store_contract import MakeStore, StoreContract, make_entry

if TYPE_CHECKING:
    from respcache._stores import Store


class TestDocumentStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, clock: FakeClock) -> Iterator[MakeStore]:
        """Open one more store of a file."""
        opened: list[DocumentStore] = []

        def open_store(name: str, **limits: int | None) -> Store:
            store = DocumentStore(
                str(tmp_path / name),
                mode=0o600,
                fsync=False,
                lock_timeout=10.0,
                limits={"max_entries": None, "max_bytes": None, **limits},
                on_error="raise",
                now=clock,
            )
            opened.append(store)
            return store

        yield open_store
        for store in opened:
            store.close()

    @pytest.fixture
    def make_store(self, open_store: MakeStore) -> MakeStore:
        count = iter(range(100))
        return lambda **limits: open_store(f"store-{next(count)}.json", **limits)

    @pytest.fixture
    def store(self, open_store: MakeStore) -> Store:
        return open_store("answers.json")

    @pytest.fixture
    def other(self, open_store: MakeStore) -> Store:
        """A second instance of the same file, as another process has it."""
        return open_store("answers.json")

    def test_is_not_flat(self, store: Store) -> None:
        assert store.is_flat is False

    def test_each_commit_is_seen_by_the_other(self, store: Store, other: Store, put: Any) -> None:
        """R19: each instance's own lookups see all."""
        assert other.get("a") is None

        put("a")

        assert other.get("a") is not None

        other.put([Put(make_entry("b", clock=FakeClock()))])

        assert [entry.key for entry in store.entries()] == ["a", "b"]
        assert store.get("a") is not None and store.get("b") is not None

        other.remove(Removal(new_id(), keys=["a"]))

        assert store.get("a") is None
        assert store.measure("")[0] == 1

    def test_same_again_is_decided_by_the_file(
        self, store: Store, other: Store, put: Any, clock: FakeClock
    ) -> None:
        """E15"""
        put("k", "old")

        assert other.put([Put(make_entry("k", "new", clock=clock))]) == [STORED]
        assert put("k", "old") == STORED
        assert other.put([Put(make_entry("k", "old", clock=clock))]) == [SAME]

    def test_removal_by_the_other_refuses_a_put(
        self, store: Store, other: Store, put: Any, clock: FakeClock
    ) -> None:
        """E06"""
        put("other")
        ticket = store.ticket("k")
        other.remove(Removal(new_id(), scope=""))

        assert store.put([Put(make_entry("k", clock=clock), ticket)]) == [REFUSED]

    def test_limits_of_the_file_are_the_smallest(
        self, open_store: MakeStore, store: Store, put: Any, clock: FakeClock
    ) -> None:
        """E15"""
        open_store("answers.json", max_entries=2).put([Put(make_entry("a", clock=clock))])
        for key in "bcd":
            put(key)

        assert [entry.key for entry in store.entries()] == ["c", "d"]
