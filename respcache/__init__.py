"""A response cache that several processes share through one file, without a server.

::

    from respcache import Cache

    cache = Cache("answers.json")
    cache.store("What is our refund policy?", "30 days, with receipt.")
    hit = cache.lookup("what is our REFUND policy?")
    print(hit.response, hit.age)

Importing this package touches no file, and loads nothing before it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._admission import Leaf, Staleness, Step, admit
    from ._cache import Cache
    from ._config import Config
    from ._front import Event, Hit
    from ._keys import Normalizer
    from ._paths import Tree
    from ._steps import Done, StepCache
    from ._toolcall import ReadTool, Scope, ToolCall, ToolResult
    from ._tools import ToolCache
    from .errors import (
        ConfigError,
        LockTimeoutError,
        RespcacheError,
        StoreError,
        UncacheableError,
    )

__all__ = [
    "Cache",
    "Config",
    "ConfigError",
    "Done",
    "Event",
    "Hit",
    "Leaf",
    "LockTimeoutError",
    "Normalizer",
    "ReadTool",
    "RespcacheError",
    "Scope",
    "Staleness",
    "Step",
    "StepCache",
    "StoreError",
    "ToolCache",
    "ToolCall",
    "ToolResult",
    "Tree",
    "UncacheableError",
    "admit",
]

__version__ = "0.1.0"

_HOMES = {
    "Cache": "_cache",
    "Config": "_config",
    "Done": "_steps",
    "Event": "_front",
    "Hit": "_front",
    "Leaf": "_admission",
    "Normalizer": "_keys",
    "ReadTool": "_toolcall",
    "Scope": "_toolcall",
    "Staleness": "_admission",
    "Step": "_admission",
    "StepCache": "_steps",
    "ToolCache": "_tools",
    "ToolCall": "_toolcall",
    "ToolResult": "_toolcall",
    "Tree": "_paths",
    "admit": "_admission",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # importlib.import_module would cost a hook process half a millisecond more.
    home = __import__(f"{__name__}.{_HOMES.get(name, 'errors')}", fromlist=[name])
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
