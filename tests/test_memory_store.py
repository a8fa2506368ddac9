"""The store in memory keeps the contract of all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respcache._rules import Removal
from respcache._stores import new_id
from respcache._stores.memory import MemoryStore
from respcache.testing import FakeClock

from .store_contract import MakeStore, StoreContract

if TYPE_CHECKING:
    from respcache._stores import Store


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self, clock: FakeClock) -> MakeStore:
        def make(max_entries: int | None = None, max_bytes: int | None = None) -> Store:
            limits = {"max_entries": max_entries, "max_bytes": max_bytes}
            return MemoryStore(limits=limits, now=clock)

        return make

    def test_is_not_flat(self, store: Store) -> None:
        assert store.is_flat is False

    def test_removal_without_a_commit_is_a_removal(self, store: Store, put: Any) -> None:
        """There is nowhere else that it could still be."""
        put("k")

        assert store.remove(Removal(new_id(), keys=["k"]), commit=False) == 1
        assert store.get("k") is None
        assert store.pending == 0
