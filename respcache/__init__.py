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

    from ._cache import Cache
    from ._config import Config
    from ._front import Event, Hit
    from ._keys import Normalizer
    from ._paths import Tree
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
    "Event",
    "Hit",
    "LockTimeoutError",
    "Normalizer",
    "ReadTool",
    "RespcacheError",
    "Scope",
    "StoreError",
    "ToolCache",
    "ToolCall",
    "ToolResult",
    "Tree",
    "UncacheableError",
]

__version__ = "0.1.0"

_HOMES = {
    "Cache": "_cache",
    "Config": "_config",
    "Event": "_front",
    "Hit": "_front",
    "Normalizer": "_keys",
    "ReadTool": "_toolcall",
    "Scope": "_toolcall",
    "ToolCache": "_tools",
    "ToolCall": "_toolcall",
    "ToolResult": "_toolcall",
    "Tree": "_paths",
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
