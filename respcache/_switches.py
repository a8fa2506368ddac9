"""The environment's switches, read anew at each call.

``RESPCACHE_DISABLE``: no cache at all. ``RESPCACHE_READONLY``: serve, never
write. ``RESPCACHE_REFRESH``: skip reads, still store. Set to ``0``, ``false``,
``no``, ``off`` or nothing, in any case, a switch is off; ``1``, ``true``, ``yes``
and ``on`` turn it on. Any other word does too, with a warning: each switch only
makes a cache more careful.
"""

from __future__ import annotations

import os

__all__ = ["are_set", "is_on"]

DISABLE, READONLY, REFRESH = "RESPCACHE_DISABLE", "RESPCACHE_READONLY", "RESPCACHE_REFRESH"
_OFF = ("", "0", "false", "no", "off")
_ON = ("1", "true", "yes", "on")

_warned: set[tuple[str, str]] = set()

_NAMES = (DISABLE, READONLY, REFRESH)

try:
    _a, _b, _c = (os.environ.encodekey(name) for name in _NAMES)
except AttributeError:
    _a, _b, _c = _NAMES


def are_set() -> bool:
    """Tell whether any switch stands in the environment, on or off.

    ``name in os.environ`` costs 1 to 2 us, most of it for encoding the name, on
    each hit three times. Its own dict is asked instead, with encoded names;
    what has none (a dict that a test put there, another Python) is asked the
    slow way.
    """
    try:
        data = os.environ._data  # type: ignore[attr-defined]
        return _a in data or _b in data or _c in data
    except AttributeError:
        return any(name in os.environ for name in _NAMES)


def is_on(name: str) -> bool:
    """Tell whether the switch *name* is on."""
    value = os.environ.get(name, "")
    word = value.strip().lower()
    if word in _OFF:
        return False
    if word not in _ON and (name, value) not in _warned:
        _warned.add((name, value))
        from logging import getLogger

        getLogger("respcache").warning(
            "%s=%r is no word that is known, and counts as on; say 1 or 0", name, value
        )
    return True
