"""Fixtures that most tests want: a fake clock, and an environment without switches."""

from __future__ import annotations

import logging

import pytest
from hypothesis import settings

from respcache import _switches
from respcache.testing import FakeClock

settings.register_profile("no deadline", deadline=None)  # no test asserts a time
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (_switches.DISABLE, _switches.READONLY, _switches.REFRESH):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture):
    """Return what the package has warned of so far."""
    caplog.set_level(logging.WARNING, logger="respcache")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "respcache"]
