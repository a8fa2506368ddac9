"""``export`` and ``import``, from file to file, and the demo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from .._survey import Selection
from .._terminal import one_line, progress, say
from .._transfer import export as export_to
from .._transfer import merge
from .._verify import audit
from ._session import AsJson, Context, File, Front, Namespace, session_of, write_count

__all__ = ["COMMANDS"]


def export(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write to.")],
    format: Annotated[
        str | None,
        typer.Option(
            metavar="document|log|flat",
            help="Of a new file; flat is docker-agent's.",
            autocompletion=lambda: ["document", "log", "flat"],
            show_default="by its suffix",
        ),
    ] = None,
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Copy what is fresh to another file: JSON Lines (.jsonl), a document or a flat file (.json).

    What that file already holds under the same keys is replaced, the rest of it stays.
    """
    within = Selection(front, namespace).prefixes()
    with progress("exporting"), session_of(context).cache(path) as cache:
        count = export_to(cache, file, within=within, format=format)
        source = str(cache.path)
    write_count("exported", count, as_json=as_json)
    _end_if_damaged(source)


def import_(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Take over what is fresh in another file: JSON Lines, a document, docker-agent's flat file.

    What is already here stays as it is. Entries of a flat file get the given namespace.
    """
    within = Selection(front, namespace).prefixes()
    with (
        progress("importing"),
        session_of(context).cache(
            path, writes=True, makes=True, namespace=namespace or None
        ) as cache,
    ):
        count = merge(cache, file, within=within)
    write_count("imported", count, as_json=as_json)
    _end_if_damaged(str(file))


def _end_if_damaged(path: str) -> None:
    """Tell if not all of *path* could be read, and end with 1: a backup would lack it.

    Raises:
        Exit: It is so.
    """
    if os.path.exists(path) and any(each.kind == "damaged" for each in audit(path).findings):
        say(
            f"respcache: {one_line(path)}: is damaged, and what can't be read was left out; "
            "see respcache verify"
        )
        raise typer.Exit(1)


def demo(
    context: Context,
    workers: Annotated[int, typer.Option(min=1, max=32, help="How many processes.")] = 4,
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="How many each asks.", show_default="some seconds of work"),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The cache file, which then stays."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as one JSON object.")
    ] = False,
) -> None:
    """Let several processes answer questions about Python's help through one cache file."""
    from ..demo import show

    session = session_of(context)
    if path is None and session.path is not None:
        path = str(session.path)
    is_good = show(path, workers=workers, questions=questions, as_json=as_json)
    session.warnings.clear()  # it has told them
    raise typer.Exit(0 if is_good else 1)


COMMANDS: dict[str, Any] = {"export": export, "import": import_, "demo": demo}
