"""One JSON domain for keys and values, and its text, whichever library reads it.

In: str without lone surrogates, bool, None, int with ``-2**63 <= n < 2**64``,
finite float, list, and dict with str keys, at most 250 levels deep; exact types
only. What is in comes back equal in value and type from every JSON reader. What
is not in (a tuple, a set, an int key, bytes, NaN, an enum) is refused with its
place: json would change it in silence.

CPython's C coders are taken from ``_json``: the ``json`` package costs a hook
process 10 ms, most of it for ``re``. Where they are missing, ``json`` is used.
"""

from __future__ import annotations

import sys

from .errors import UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["DEPTH", "check", "decode", "encode", "quote", "scan"]

DEPTH = 250  # orjson writes at most 254 levels

# Past so many decoded values this is a long-lived process, and orjson, three
# times as fast, has earned the 30 ms that importing it costs.
_MANY = 1000

_left = _MANY
_loads: Callable[[str], Any] | None = None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _from_c() -> tuple[Any, Any, Any]:
    from _json import encode_basestring, make_encoder, make_scanner

    class Context:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = staticmethod(_refuse_constant)
        memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own interface

    make: Any = make_encoder  # the stubs of a private module are stricter than it is

    def encoder(sort: bool) -> Callable[[Any], str]:
        c = make(None, None, encode_basestring, None, ":", ",", sort, False, False)
        return lambda value: "".join(c(value, 0))

    context: Any = Context()
    return encode_basestring, encoder, make_scanner(context)


def _from_json() -> tuple[Any, Any, Any]:
    from json import JSONDecoder, JSONEncoder
    from json.encoder import encode_basestring

    def encoder(sort: bool) -> Callable[[Any], str]:
        return JSONEncoder(
            ensure_ascii=False, allow_nan=False, sort_keys=sort, separators=(",", ":")
        ).encode

    decoder: Any = JSONDecoder(parse_constant=_refuse_constant)
    return encode_basestring, encoder, decoder.scan_once


try:
    quote, _encoder, _scan = _from_c()
    _plain_encode = _encoder(False)
    _sorted_encode = _encoder(True)
except (ImportError, TypeError):  # another Python, or another signature of the private coders
    quote, _encoder, _scan = _from_json()
    _plain_encode = _encoder(False)
    _sorted_encode = _encoder(True)


def encode(value: Any, place: str = "$", *, sort: bool = False) -> bytes:
    """Return *value* as compact JSON in UTF-8.

    Args:
        value: What to encode.
        place: The name of *value* in an error.
        sort: Sort the keys by code point, for a canonical form.

    Raises:
        UncacheableError: Something in *value* is outside the JSON domain.
    """
    kind = type(value)
    if kind is str:
        text = quote(value)
    elif _inside(value, kind, DEPTH):
        text = _sorted_encode(value) if sort else _plain_encode(value)
    else:
        raise _refusal(value, place)
    try:
        return text.encode()  # type: ignore[no-any-return]
    except UnicodeEncodeError:
        raise _refusal(value, place) from None


def check(value: Any) -> None:
    """Refuse what :func:`encode` refuses.

    Raises:
        UncacheableError: Something in *value* is outside the JSON domain.
    """
    if type(value) is not str:
        encode(value)
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(value, "$") from None


def scan(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the value that begins at *start* of *text*, and where it ends.

    Raises:
        ValueError: There is none.
    """
    try:
        return _scan(text, start)  # type: ignore[no-any-return]
    except StopIteration:
        raise ValueError(f"no JSON value at {start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (SystemError, ImportError):
        # The C scanner takes its error from the json package, and stumbles
        # where that can't be imported.
        raise ValueError("not JSON") from None


def decode(text: str) -> Any:
    """Return the value of *text*, which :func:`encode` wrote."""
    global _left, _loads
    if _loads is not None:
        return _loads(text)
    _left -= 1
    if _left < 0 or "orjson" in sys.modules:
        try:
            from orjson import loads
        except ImportError:
            _left = sys.maxsize
        else:
            _loads = loads
    return _scan(text, 0)[0]


def _inside(value: Any, kind: type, depth: int) -> bool:
    """Tell whether *value* is in the domain, but for surrogates, which encoding finds."""
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is float:
        return bool(value - value == 0)
    if not depth:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not _inside(item, type(item), depth - 1):
                return False
        return True
    return kind is list and all(_inside(item, type(item), depth - 1) for item in value)


def _refusal(value: Any, place: str) -> UncacheableError:
    """Return the error that names the first bad place in *value*."""
    try:
        _refuse(value, place, DEPTH)
    except UncacheableError as error:
        return error
    return UncacheableError(place, "is outside the JSON domain")  # changed meanwhile by a thread


def _refuse(value: Any, place: str, depth: int) -> None:
    """Raise the error that names the first bad place in *value*."""
    kind = type(value)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UncacheableError(
                place,
                f"a lone surrogate ({value[error.start]!r}) can't be written as UTF-8; "
                "replace it, for example by text.encode(errors='replace').decode()",
            ) from None
    elif kind is dict:
        for key, item in value.items() if depth else ():
            inner = (
                f"{place}.{key}" if type(key) is str and key.isidentifier() else f"{place}[{key!r}]"
            )
            if type(key) is not str:
                raise UncacheableError(inner, f"the key is {_name(key)}; JSON has str keys only")
            _refuse(key, inner, depth)
            _refuse(item, inner, depth - 1)
        if not depth:
            raise UncacheableError(place, f"nested more than {DEPTH} levels deep")
    elif kind is list:
        for number, item in enumerate(value) if depth else ():
            _refuse(item, f"{place}[{number}]", depth - 1)
        if not depth:
            raise UncacheableError(place, f"nested more than {DEPTH} levels deep")
    elif not _inside(value, kind, depth):
        why = {
            int: "an int outside -2**63 ... 2**64-1 changes in other JSON readers; keep it as a str",
            tuple: "a tuple would come back as a list; pass list(...)",
            set: "a set has no JSON form; pass sorted(...)",
            bytes: "bytes have no JSON form; decode them to str",
        }
        if kind is float:  # not in the table: an int of 5,000 digits can't be shown
            raise UncacheableError(place, f"{value!r} is not JSON; use None or a str")
        raise UncacheableError(
            place,
            why.get(kind, f"{_name(value)} would not come back as it is; pass plain JSON types"),
        )


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
