"""One module per contender, each with the same seven names.

``where(path)`` is the file or folder that it makes of *path*;
``open(path, *, fsync=True)`` gives a handle, and *fsync* says whether a store waits
for the disk; ``fill(handle, pairs)`` stores many at once; ``store(handle, question,
response)`` has committed when it returns, and raises if it can't; ``lookup(handle,
question)`` gives the response, which is the caller's own, or None; ``count(handle)``
is how many entries there are; ``close(handle)``.

A question is one with all spellings of the same case folding. What is kept of an
answer says when it was stored and how it was asked, as a hit of respcache does.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def load(name: str) -> ModuleType:
    """Return the module of the contender *name*; one that wraps a library ends in ``_``."""
    module = f"{__name__}.{name.replace(' ', '_')}"
    return import_module(module if find_spec(module) else f"{module}_")
