"""Questions and responses, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

_TEXT = (
    "The customer may return an order within thirty days of its delivery, with the receipt and in "
    "the original packaging, unless the policy of the store says otherwise. Please contact support "
    "before shipping anything that was damaged: the refund is made to the account on the invoice."
)
_WORDS = _TEXT.split()
_TEXTS = 256  # different ones; making one takes longer than storing it


def question(number: int) -> str:
    return f"What does paragraph {number} of the Refund Policy say about returned orders?"


@cache
def _text(number: int, size: int) -> str:
    """Return *size* characters of prose."""
    words = random.Random(number).choices(_WORDS, k=size // 2)
    return " ".join(words)[: size - 1] + "."


def version(serial: int, size: int = 1024) -> str:
    """Return *size* characters of prose that begin with *serial*, made in no time."""
    return f"{serial:012} {_text(serial % _TEXTS, size - 13)}"


def pairs(
    start: int, stop: int, respond: Callable[[int], Any] = version
) -> Iterator[tuple[str, Any]]:
    """Yield questions and responses by their numbers."""
    return ((question(number), respond(number)) for number in range(start, stop))


def form(number: int) -> dict[str, Any]:
    """Return what a structured answer looks like, about 1 KB as JSON."""
    return {
        "answer": version(number, 640),
        "sources": [
            {"title": version(number + page, 48), "page": page, "score": 0.75 + page / 64}
            for page in range(4)
        ],
        "tokens": {"prompt": 1200 + number, "completion": 210},
        "is_final": True,
        "warning": None,
    }


RESPONSES: dict[str, Callable[[int], Any]] = {"text": version, "dict": form}
