"""One module per contender, each with the same three names.

``open(path, pairs=(), *, fsync=True)`` gives a handle with *pairs* of question
and response stored; ``store(handle, question, response)`` has committed when it
returns; ``lookup(handle, question)`` gives the response, which is the caller's
own. A question is one with all spellings of the same case folding. A contender
keeps a text as it likes and anything else as JSON.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def load(name: str) -> ModuleType:
    """Return the module of the contender *name*; one that wraps a library ends in ``_``."""
    module = f"{__name__}.{name}"
    return import_module(module if find_spec(module) else f"{module}_")
