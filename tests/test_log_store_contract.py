"""The store of one log keeps the contract of all stores, and what a document keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respcache._stores.log import LogStore
from respcache.testing import FakeClock

from .store_contract import MakeStore
from .test_document_store_contract import TestDocumentStore as DocumentContract

if TYPE_CHECKING:
    from respcache._stores import Store


class TestLogStore(DocumentContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, clock: FakeClock) -> Iterator[MakeStore]:
        """Open one more store of a file."""
        opened: list[LogStore] = []

        def open_store(name: str, **limits: int | None) -> Store:
            store = LogStore(
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
        return lambda **limits: open_store(f"store-{next(count)}.jsonl", **limits)

    # This looks at the index from within one thread. A log's index changes in
    # place, which other threads are kept from seeing; that is tested with one.
    test_reader_between_two_steps_of_a_commit_sees_none_of_them = None
