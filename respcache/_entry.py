"""An entry, and the line of text that files keep of it.

One line an entry, the key first and the response after it, so that one entry
is found and read without parsing the others::

    "q//1f//hello": {"response": "Hi", "question": "Hello", "id": "9f...", "stored_at": 1764450000.1}

``context`` holds a short digest of each field of the context, ``meta`` what a front
keeps beside the response (the turn and the duration of a tool call), ``ttl`` the seconds
that the entry stays fresh, ``paths`` the signature of each file before it was
read, ``links`` the other names of those files.
"""

from __future__ import annotations

from ._json import check, decode, encode, quote, scan
from ._rules import LONGEST, TREE, fold, is_fresh

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Dependency = str | list[int] | None

__all__ = [
    "Entry",
    "facts_of",
    "from_form",
    "from_line",
    "key_of",
    "line_start",
    "new_entry",
    "with_line",
]

_RESPONSE = ': {"response": '
_MARK = ('"' + _RESPONSE).encode()
_STORED_AT, _TTL, _PATHS = b', "stored_at": ', b', "ttl": ', b', "paths": '


class Entry:
    """One response, with all that decides whether it may be served.

    ``value`` is the response where it is immutable; of a list or dict ``raw``,
    its JSON text, is kept, so that each caller gets its own. ``line`` is what a
    file keeps, dropped where no file is; ``size`` the bytes of a new response;
    ``is_checked`` whether a front has seen that key and question belong together.
    """

    __slots__ = (
        "context",
        "id",
        "is_checked",
        "key",
        "line",
        "links",
        "meta",
        "paths",
        "question",
        "raw",
        "size",
        "stored_at",
        "ttl",
        "value",
    )

    def __init__(
        self,
        key: str,
        question: str,
        value: Any,
        *,
        raw: str | None,
        id: str,
        stored_at: float,
        ttl: float | None = None,
        context: dict[str, str] | None = None,
        paths: dict[str, Dependency] | None = None,
        links: dict[str, list[str]] | None = None,
        meta: dict[str, Any] | None = None,
        line: bytes | None = None,
    ) -> None:
        self.key = key
        self.question = question
        self.value = value
        self.raw = raw
        self.id = id
        self.stored_at = stored_at
        self.ttl = ttl
        self.context = context
        self.paths = paths
        self.links = links
        self.meta = meta
        self.line = line
        self.size = 0
        self.is_checked = False

    @property
    def response(self) -> Any:
        """The response; a list or dict is decoded afresh."""
        return self.value if self.raw is None else decode(self.raw)

    def touched(self) -> tuple[tuple[str, bool], ...]:
        """Return what a removal by path is held against: (folded path, is a tree)."""
        return _touched(self.paths, self.links or {}) if self.paths else ()

    def still_says(self, other: Entry, now: float) -> bool:
        """Tell whether this is fresh and *other* says the same, of the same files, for as long."""
        return (
            is_fresh(self.stored_at, self.ttl, now)
            and self.question == other.question
            and self.raw == other.raw
            and type(self.value) is type(other.value)
            and self.value == other.value
            and (type(self.value) is not float or repr(self.value) == repr(other.value))
            and self.ttl == other.ttl
            and self.paths == other.paths
            and self.context == other.context
        )


def _touched(
    paths: dict[str, Dependency], links: dict[str, list[str]]
) -> tuple[tuple[str, bool], ...]:
    return tuple(
        (name, kept == TREE)
        for path, kept in paths.items()
        for name in (
            fold(path.replace("\\", "/") if path[1:2] == ":" else path),
            *links.get(path, ()),
        )
    )


def facts_of(data: bytes, at: int, stop: int) -> tuple[float | None, tuple[tuple[str, bool], ...]]:
    """Return the deadline and what removals by path touch, of the line that ends at *stop*.

    By its last facts, without the response: what an index needs of each line.

    Raises:
        ValueError: The line, which begins at *at* of *data*, is damaged.
    """
    touched: tuple[tuple[str, bool], ...] = ()
    end = stop - 1
    if data[stop - 2] == 125:
        end = data.rfind(_PATHS, at, stop)
        if end < 0:
            raise ValueError("not the facts of an entry")
        facts, _ = scan("{" + data[end + 2 : stop].decode())
        paths, links = facts["paths"], facts.get("links") or {}
        if type(paths) is not dict or not _are_dependencies(paths) or not _are_names(links):
            raise ValueError("not the facts of an entry")
        touched = _touched(paths, links)
    facts = data[max(end - 80, at) : end]
    start = facts.rfind(_TTL)
    if start < 0:
        return None, touched
    stored_at = facts.rfind(_STORED_AT) + len(_STORED_AT)
    return float(facts[stored_at:start]) + float(facts[start + len(_TTL) :]), touched


def new_entry(key: str, question: str, response: Any, place: str = "$", **facts: Any) -> Entry:
    """Return the entry of *response*, with its line.

    Args:
        key: Its key.
        question: As it was asked.
        response: What to keep.
        place: The name of *response* in an error.
        facts: The other attributes of an Entry.

    Raises:
        UncacheableError: *question* or *response* is outside the JSON domain.
    """
    data = encode(response, place)
    kept = type(response) is list or type(response) is dict
    entry = Entry(
        key, question, None if kept else response, raw=data.decode() if kept else None, **facts
    )
    entry.line = _line(entry, data)
    entry.size = len(data)
    return entry


def with_line(entry: Entry) -> Entry:
    """Return *entry*, with its line written again if it was dropped."""
    if entry.line is None:
        entry.line = _line(entry, encode(entry.response))
    return entry


def _line(entry: Entry, data: bytes) -> bytes:
    rest = f', "question": {quote(entry.question)}'
    if entry.context is not None:
        rest += f', "context": {encode(entry.context).decode()}'
    if entry.meta is not None:
        rest += f', "meta": {encode(entry.meta).decode()}'
    rest += f', "id": {quote(entry.id)}, "stored_at": {entry.stored_at!r}'
    if entry.ttl is not None:
        rest += f', "ttl": {entry.ttl!r}'
    # Last: what a line ends with tells an indexer whether it must read it.
    if entry.paths is not None:
        rest += f', "paths": {encode(entry.paths).decode()}'
    if entry.links is not None:
        rest += f', "links": {encode(entry.links).decode()}'
    return b"%s%s%s}" % (line_start(entry.key), data, rest.encode())


def line_start(key: str) -> bytes:
    """Return how the line of *key* starts, up to its response."""
    # No file holds a lone surrogate: a key with one is just not found.
    return f"{quote(key)}{_RESPONSE}".encode(errors="surrogatepass")


def key_of(line: bytes, start: int = 0) -> str:
    """Return the key of the entry that begins at *start* of *line*.

    Raises:
        ValueError: It is not the line of an entry.
    """
    # No string can hold the mark: a quote within one is escaped.
    end = line.find(_MARK, start + 1)
    if end < 0 or line[start] != 34:
        raise ValueError("not the line of an entry")
    key = line[start + 1 : end]
    if b"\\" in key:
        return str(scan(line[start : end + 1].decode())[0])
    return key.decode()


def from_line(key: str, line: bytes) -> Entry:
    """Return the entry of *line*, whose key is *key*.

    Raises:
        ValueError: The line is damaged.
    """
    try:
        return _from_line(key, line)
    except TypeError as error:  # outside the JSON domain
        raise ValueError(str(error)) from None


def _from_line(key: str, line: bytes) -> Entry:
    text = line.decode()
    start = text.index(_RESPONSE, len(key)) + len(_RESPONSE)
    value, end = scan(text, start)
    if text[end : end + 2] != ", ":
        raise ValueError("no facts after the response")
    facts, stop = scan("{" + text[end + 2 :])
    if stop != len(text) - end - 1:
        raise ValueError("text after the entry")
    check(value)  # what JSON readers disagree on must not be served
    if type(value) is list or type(value) is dict:
        return _checked(key, None, text[start:end], facts, line)
    return _checked(key, value, None, facts, line)


def from_form(key: str, form: Any) -> Entry:
    """Return the entry of *form*, a decoded JSON object, with a line of its own.

    Raises:
        ValueError: It has not the shape of an entry.
    """
    if type(form) is not dict or "response" not in form:
        raise ValueError("no response")
    facts = {name: value for name, value in form.items() if name != "response"}
    response = form["response"]
    try:
        data = encode(response)
        kept = type(response) is list or type(response) is dict
        entry = _checked(
            key, None if kept else response, data.decode() if kept else None, facts, None
        )
        entry.line = _line(entry, data)
    except TypeError as error:  # outside the JSON domain
        raise ValueError(str(error)) from None
    return entry


def _checked(key: str, value: Any, raw: str | None, facts: Any, line: bytes | None) -> Entry:
    match facts:
        case {"question": str(question), "id": str(id), "stored_at": stored_at} if _is_time(
            stored_at
        ):
            ttl = facts.get("ttl")
            entry = Entry(
                key,
                question,
                value,
                raw=raw,
                id=id,
                stored_at=stored_at,
                ttl=ttl,
                context=facts.get("context"),
                paths=facts.get("paths"),
                links=facts.get("links"),
                meta=facts.get("meta"),
                line=line,
            )
            if (
                (ttl is None or (_is_time(ttl) and ttl > 0))
                and all(
                    part is None or type(part) is dict
                    for part in (entry.context, entry.paths, entry.links, entry.meta)
                )
                and _are_dependencies(entry.paths)
                and _are_names(entry.links or {})
            ):
                return entry
    raise ValueError("not the facts of an entry")


def _are_names(links: Any) -> bool:
    return type(links) is dict and all(
        type(names) is list and all(type(name) is str for name in names) for names in links.values()
    )


def _is_time(value: Any) -> bool:
    """Tell whether *value* is a number of seconds that can be reckoned with."""
    return type(value) in (int, float) and -LONGEST <= value <= LONGEST


def _are_dependencies(paths: dict[str, Any] | None) -> bool:
    return all(
        kept is None
        or kept == TREE
        or (type(kept) is list and len(kept) == 5 and all(type(n) is int for n in kept))
        for kept in (paths or {}).values()
    )
