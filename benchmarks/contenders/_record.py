"""What the stores that know only bytes keep of an answer: when, how it was asked, and it."""

from __future__ import annotations

import time
from typing import Any

import orjson


def encode(question: str, response: Any) -> bytes:
    return orjson.dumps((time.time(), question, response))


def decode(record: bytes | memoryview) -> Any:
    """Return the response of *record*."""
    return orjson.loads(record)[2]
