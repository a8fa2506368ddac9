"""The lines of a log: their form, their checksum, and what they say.

::

    {"respcache": 1, "log": true}
    {"removed": {"id": "41c0...", "keys": []}, "last": "000000000000", "more": "000000000000", "sum": "5e1f20aa"}
    {"q//1f//hello": {"response": "Hi", ...}, "last": "00000000001e", "more": "000000000000", "sum": "0f3c7d42"}

``last`` is where the last line before it begins that took something away; ``more``
how many bytes further the last line of its commit begins: until that is there, the
commit does not count. In that one it is how far back the first one begins, as a
negative number, so that no line of another commit is taken for it that came to
stand where a killed writer's would have; 0 in a commit of one line.
"""

from __future__ import annotations

from binascii import crc32

from .._entry import Entry, from_line
from .._json import encode, scan
from .._rules import Removal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "STEPS",
    "TORN",
    "TRAILER",
    "body_of",
    "dropped",
    "ends_commit",
    "entry_of",
    "has_open",
    "header_of",
    "is_whole",
    "last_of",
    "more_of",
    "removed",
    "says",
    "seal",
    "takes_away",
]

STEPS = (b'{"removed": ', b'{"dropped": ', b'{"limits": ')  # lines of no entry
TORN = b"#torn\n"
TRAILER = len(b', "last": "000000000000", "more": "000000000000", "sum": "00000000"}\n')
_OPEN = b', "open": '
_SUM = len(b', "sum": "00000000"}\n')


def seal(body: bytes, last: int, more: int) -> bytes:
    """Return *body*, the inside of a line, as a line.

    Args:
        body: What it says.
        last: Where the last line before it is that took something away; 0: none is.
        more: How many bytes further the last line of its commit begins, or how far
            back, as a negative number, the first one of which this is the last.
    """
    line = b'{%s, "last": "%012x", "more": "%012x"' % (body, last, more)
    return b'%s, "sum": "%08x"}\n' % (line, crc32(line))


def is_whole(data: bytes, at: int = 0, after: int | None = None) -> bool:
    """Tell whether the checksum of the line between *at* and *after* is right."""
    after = len(data) if after is None else after
    mark = after - _SUM
    return mark > at and data[mark:after] == b', "sum": "%08x"}\n' % crc32(data[at:mark])


def ends_commit(data: bytes, after: int) -> bool:
    """Tell whether the line that ends at *after* is the last of its commit."""
    at = after - _SUM - 13
    return data.startswith(b"000000000000", at) or data.startswith(b"-", at)


def more_of(data: bytes, after: int) -> int:
    """Return what the line that ends at *after* says of its commit; see ``seal``."""
    return int(data[after - _SUM - 13 : after - _SUM - 1], 16)


def last_of(line: bytes) -> int:
    return int(line[-TRAILER + 11 : -TRAILER + 23], 16)


def body_of(line: bytes) -> bytes:
    return line[1:-TRAILER]


def takes_away(line: bytes) -> bool:
    return line.startswith((b'{"removed": ', b'{"dropped": '))


def entry_of(key: str, line: bytes) -> Entry | None:
    try:
        return from_line(key, body_of(line))
    except ValueError:
        return None


def says(line: bytes) -> list[tuple[str, Any]]:
    """Return the steps of *line*, each of the shape that its kind has."""
    try:
        steps = scan("{" + body_of(line).decode() + "}")[0]
    except ValueError:
        steps = {}
    match steps:
        case {"removed": dict(what)}:
            return [("removed", what)]
        case {"dropped": [*keys]} if all(type(key) is str for key in keys):
            return [("dropped", keys)]
        case {"limits": dict(what)} if all(type(limit) is int for limit in what.values()):
            return [("limits", what)]
    return [("removed", {})]  # what can't be read touches everything


def header_of(line: bytes) -> dict[str, Any] | None:
    try:
        text = line.decode()
        header, end = scan(text)
    except ValueError:
        return None
    if text[end:] != "\n":
        return None
    match header:
        case {
            "respcache": 1,
            "log": True,
            "limits": dict(limits),
            "complete": bool(is_complete),
        } if all(type(limit) is int and limit > 0 for limit in limits.values()):
            writes = header.get("open", [])
            if type(writes) is list and all(type(form) is dict for form in writes):
                opened = [Removal.from_json(form) for form in writes]
                return {"limits": limits, "complete": is_complete, "open": opened}
    return None


def removed(removal: Removal, open: int) -> bytes:
    """Return the body of a line that says *removal*, with *open* writes under way after it."""
    return b'"removed": ' + encode(removal.to_json()) + _open(open)


def dropped(keys: list[str], open: int) -> bytes:
    """Return the body of a line that evicts *keys*, with *open* writes under way."""
    return b'"dropped": ' + encode(keys) + _open(open)


def _open(count: int) -> bytes:
    return b', "open": %d' % count if count else b""


def has_open(line: bytes) -> bool:
    """Tell whether writes are under way after *line*, which takes something away."""
    return _OPEN in line[-TRAILER - 20 : -TRAILER]
