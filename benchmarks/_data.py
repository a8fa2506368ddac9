"""Questions and responses, the same in every run."""

from __future__ import annotations

import random
from typing import Any

_WORDS = (
    "the a of to in is that for it as was with on are by this have from refund receipt order "
    "delivery customer account invoice within thirty days unless damaged original packaging "
    "returned store policy section agreement applies please contact support before shipping"
).split()


def question(number: int) -> str:
    return f"What does paragraph {number} of the Refund Policy say about returned orders?"


def text(number: int, size: int = 1024) -> str:
    """Return *size* characters of prose."""
    words = random.Random(number).choices(_WORDS, k=size // 2)
    return " ".join(words)[: size - 1] + "."


def form(number: int) -> dict[str, Any]:
    """Return what a structured answer looks like, about 1 KB as JSON."""
    return {
        "answer": text(number, 640),
        "sources": [
            {"title": text(number + page, 48), "page": page, "score": 0.75 + page / 64}
            for page in range(4)
        ],
        "tokens": {"prompt": 1200 + number, "completion": 210},
        "is_final": True,
        "warning": None,
    }


RESPONSES = {"text": text, "dict": form}
