"""``path``, ``stats``, ``list`` and ``show``: the whole file, as people look at it."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Annotated, Any

import typer

from .._survey import Row, Selection, find, rows, summary
from .._terminal import one_line, progress, say, span, table, write, write_json
from ._session import AsJson, Context, File, Front, Namespace, session_of

__all__ = ["COMMANDS"]


def path_(context: Context, path: File = None, as_json: AsJson = False) -> None:
    """Print which cache file is meant; RESPCACHE_PATH names another."""
    file = session_of(context).file(path)
    if as_json:
        write_json({"path": file, "exists": os.path.exists(file)})
    else:
        write(file)


def stats(
    context: Context,
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Count what the file holds, by front and namespace."""
    selection = Selection(front, namespace)
    with progress("reading"), session_of(context).cache(path) as cache:
        found = summary(cache, rows(cache, selection))
    if as_json:
        write_json(found)
        return
    limits = ", ".join(f"{name} {limit:,}" for name, limit in found["limits"].items())
    facts = {
        "file": one_line(found["path"]),
        "format": found["format"],
        "file bytes": f"{found['file_bytes']:,}",
        "limits": limits or "none",
        "entries": f"{found['entries']:,}",
        "expired or changed": f"{found['over']:,}",
        "writes under way": f"{found['writes']:,}",
    }
    table(("", ""), list(facts.items()))
    if found["groups"]:
        write("")
        table(
            ("front", "namespace", "entries", "over", "bytes", "newest", "oldest"),
            [
                (
                    group["front"],
                    _namespace(group["namespace"]),
                    f"{group['entries']:,}",
                    f"{group['over']:,}",
                    f"{group['bytes']:,}",
                    span(group["newest"]),
                    span(group["oldest"]),
                )
                for group in found["groups"]
            ],
            numbers="entries over bytes newest oldest",
        )
    if found["damaged"]:
        say("respcache: something in the file can't be read; respcache verify tells what")


def list_(
    context: Context,
    expired: Annotated[
        bool,
        typer.Option("--expired", help="What can't be served any more, and prune takes out."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The newest N only.", show_default="all")
    ] = None,
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """List what the file holds, the newest first."""
    selection = Selection(front, namespace)
    with progress("reading"), session_of(context).cache(path) as cache:
        found = list(rows(cache, selection))
    wanted = [row for row in reversed(found) if (row.state != "fresh") is expired]
    others = len(found) - len(wanted)
    shown = wanted[:limit]
    if as_json:
        _write_list([row.to_json() for row in shown])
        return
    if shown:
        table(
            ("age", "left", "bytes", "front", "namespace", "question"),
            [
                (
                    span(row.age),
                    row.state if expired else span(row.left),
                    f"{row.size:,}",
                    row.front,
                    _namespace(row.namespace),
                    one_line(row.entry.question),
                )
                for row in shown
            ],
            numbers="age left bytes",
        )
    if len(shown) < len(wanted):
        say(f"respcache: {len(wanted) - len(shown):,} more; --limit shows more of them")
    if others and not expired:
        say(f"respcache: {others:,} more can't be served any more; --expired lists them")


def show(
    context: Context,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION|KEY", help="A question, or a key as list --json has.")
    ],
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is kept of a question, in every namespace and context. Exit code 1: nothing."""
    selection = Selection(front, namespace)
    with progress("reading"), session_of(context).cache(path) as cache:
        found = find(cache, question, selection)
    if as_json:
        _write_list([row.to_full_json() for row in found])
    for number, row in enumerate(() if as_json else found):
        if number:
            write("")
        _show(row)
    if not found:
        say("respcache: nothing is kept of it; respcache list shows what there is")
        raise typer.Exit(1)


def _show(row: Row) -> None:
    entry = row.entry
    facts = {
        "question": one_line(entry.question),
        "key": one_line(entry.key),
        "front": row.front,
        "namespace": _namespace(row.namespace),
        "state": row.state,
        "stored": "-" if row.age is None else f"{_date(entry.stored_at)}, {span(row.age)} ago",
        "left": span(row.left),
        "bytes": f"{row.size:,}",
        "context": one_line(", ".join(entry.context or ())) or "-",
        "paths": one_line(", ".join(entry.paths or ())) or "-",
    }
    for name, value in facts.items():
        write(f"{name:<10} {value}")
    write("")
    if type(entry.value) is str and entry.raw is None:
        write(entry.value)
    else:
        write_json(entry.response)


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s since 1970"


def _namespace(name: str | None) -> str:
    return "-" if name is None else one_line(name)


def _write_list(values: list[Any]) -> None:
    """Write *values* as one JSON array, an element a line."""
    from json import dumps

    lines = ",\n".join(dumps(value, ensure_ascii=False) for value in values)
    write(f"[\n{lines}\n]" if values else "[]")


COMMANDS: dict[str, Any] = {"path": path_, "stats": stats, "list": list_, "show": show}
