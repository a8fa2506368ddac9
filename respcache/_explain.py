"""Say why a question hits or misses."""

from __future__ import annotations

from ._keys import field_digests, split_key
from ._rules import is_fresh, stricter
from ._switches import DISABLE, REFRESH, are_set, is_on
from .errors import UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._cache import Cache
    from ._entry import Entry

__all__ = ["explain"]


def explain(cache: Cache, question: str, context: Any) -> str:
    """Return the lines of :meth:`Cache.explain`."""
    if are_set():
        for name in (DISABLE, REFRESH):
            if is_on(name):
                return f"bypass: {name} is set"
    verdict = "miss" if cache._look(question, context) is None else "hit"
    try:
        key = cache._checked_key(question, context)
        digests = field_digests(context)
    except UncacheableError as error:
        return f"miss: the question can't be a key: {error}"
    entries = {entry.key: entry for entry in cache._do(lambda store: list(store.entries()))}
    mine = entries.pop(key, None)
    if cache._is_flat:
        return f"{verdict}: {_state(cache, mine)}\nkey: {key!r} in a flat file"
    text = split_key(key)[3]
    lines = [
        f"{verdict}: {_state(cache, mine)}",
        f"normalized: {text!r}",
        f"key: {key if key.isprintable() else repr(key)}",
    ]
    lines += [
        f"kept as {other.question!r} {_difference(key, digests, other)}"
        for other in entries.values()
        if other.key.startswith("q/")
        and (split_key(other.key)[3] == text or other.question == question)
    ]
    return "\n".join(lines)


def _state(cache: Cache, entry: Entry | None) -> str:
    if entry is None:
        return "nothing is kept under this key"
    now = cache._now()
    age = f"stored {max(0.0, now - entry.stored_at):.0f} s ago"
    ttl = stricter(entry.ttl, cache._ttl)
    if entry.stored_at != entry.stored_at:
        age = "stored at an unknown time (a flat file keeps no ages)"
    if ttl is not None and entry.stored_at > now:
        return "stored in the future: a clock was set back, and its age can't be told"
    if not is_fresh(entry.stored_at, ttl, now):
        return f"{age}, not fresh under a ttl of {ttl:g} s"
    if entry.paths:
        from ._paths import is_unchanged

        changed = [path for path, kept in entry.paths.items() if not is_unchanged({path: kept})]
        if changed:
            return f"{age}, changed since: {', '.join(changed)}"
    if cache._serve(entry, cache._ttl) is None:
        return f"{age}, refused by serve_if"
    return age


def _difference(key: str, digests: dict[str, str] | None, other: Entry) -> str:
    namespace, tag, _, _ = split_key(key)
    its_namespace, its_tag, _, _ = split_key(other.key)
    found = []
    if namespace != its_namespace:
        found.append(
            f"in namespace {its_namespace.removeprefix('=')!r}"
            if its_namespace
            else "in the shared namespace"
        )
    if tag != its_tag:
        found.append(f"under normalizer {its_tag!r}, not {tag!r}")
    mine, its = digests or {}, other.context or {}
    for field in dict.fromkeys([*mine, *its]):
        if field not in its:
            found.append(f"without context field {field!r}")
        elif field not in mine:
            found.append(f"with context field {field!r}")
        elif mine[field] != its[field]:
            found.append(f"with another {field!r} in its context")
    if (digests is None) != (other.context is None) and not mine and not its:
        found.append("with an empty context, which is not none at all")
    return ", ".join(found)
