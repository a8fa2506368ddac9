"""``prune``, ``clear``, ``invalidate`` and ``verify``: what keeps a file in order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._survey import Selection, rows
from .._terminal import one_line, progress, say, table, write, write_json
from .._verify import audit, repair
from ..errors import ConfigError
from ._session import (
    AsJson,
    Context,
    File,
    Front,
    Namespace,
    entries,
    session_of,
    write_count,
)

if TYPE_CHECKING:
    from .._verify import Report

__all__ = ["COMMANDS"]


def prune(context: Context, path: File = None, as_json: AsJson = False) -> None:
    """Take out what can't be served any more: expired, or read from files that have changed."""
    with progress("pruning"), session_of(context).cache(path, writes=True) as cache:
        gone = cache.prune()
    write_count("pruned", gone, as_json=as_json)


def clear(
    context: Context,
    all_: Annotated[bool, typer.Option("--all", help="Everything in the file.")] = False,
    path: File = None,
    front: Front = None,
    namespace: Namespace = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget everything, or all of a namespace or a front, and results under way."""
    selection = Selection(front, namespace)
    if all_ is not selection.is_all:
        raise ConfigError(
            "clear: say what to forget: --all for everything, or --namespace NAME, or --front NAME"
        )
    with session_of(context).cache(path, writes=True) as cache:
        if not yes:
            count = sum(1 for _ in rows(cache, selection))
            _confirm(f"Forget {entries(count)} of {one_line(str(cache.path))}?")
        with progress("clearing"):
            gone = selection.clear(cache)
    write_count("cleared", gone, as_json=as_json)


def _confirm(question: str) -> None:
    """Go on only if somebody says yes.

    Raises:
        ConfigError: There is nobody to ask.
        Exit: They said something else.
    """
    if not sys.stdin.isatty():
        raise ConfigError("clear: nobody can be asked, since stdin is no terminal; pass --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("respcache: nothing was forgotten")
        raise typer.Exit(1)


def invalidate(
    context: Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="What has changed.")],
    path: File = None,
    as_json: AsJson = False,
) -> None:
    """Forget whatever was read from these files or folders, in all fronts and namespaces."""
    with progress("invalidating"), session_of(context).cache(path, writes=True) as cache:
        gone = cache.invalidate(paths)
    write_count("invalidated", gone, as_json=as_json)


def verify(
    context: Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair it, and keep a copy of what was damaged.")
    ] = False,
    path: File = None,
    as_json: AsJson = False,
) -> None:
    """Audit every line of the file, and its lock. Exit code: 0 all is well, 1 it is not."""
    session = session_of(context)
    session.heed_switches(writes=fix)
    file = session.file(path)
    session.tell_missing(file)
    report = _audit(file)
    copies: list[str] = []
    found = report
    if fix:
        with progress("repairing"):
            copies = repair(report)
        report = _audit(file)
    session.warnings.clear()  # the report has told
    if as_json:
        write_json({**report.to_json(), "fixed": _fixed(found, report), "copies": copies})
    else:
        _print(report)
    for each in _fixed(found, report):
        say(f"respcache: repaired: {one_line(each)}")
    for copy in copies:
        say(f"respcache: a copy of what was there is at {one_line(copy)}")
    if not report.is_good and not fix:
        say("respcache: respcache verify --fix repairs what can be repaired, and keeps a copy")
    raise typer.Exit(0 if report.is_good else 1)


def _audit(file: str) -> Report:
    with progress("verifying") as tell:
        return audit(file, tell)


def _fixed(before: Report, after: Report) -> list[str]:
    left = {str(finding) for finding in after.findings}
    return [str(each) for each in before.findings if each.is_bad and str(each) not in left]


def _print(report: Report) -> None:
    facts = {
        "file": one_line(report.path),
        "format": report.format or "-",
        "bytes": f"{report.size:,}",
        "lines": f"{report.lines:,}",
        "entries": f"{report.entries:,}",
        "dead lines": f"{report.dead:,}",
        "torn tails, repaired": f"{report.repaired:,}",
        "damaged": f"{report.damaged:,}",
        "permissions": ", ".join(f"{name} {mode}" for name, mode in report.modes.items()) or "-",
        "verdict": "good" if report.is_good else "not good",
    }
    table(("", ""), list(facts.items()))
    for finding in report.findings:
        write(one_line(("" if finding.is_bad else "note: ") + str(finding)))


COMMANDS: dict[str, Any] = {
    "prune": prune,
    "clear": clear,
    "invalidate": invalidate,
    "verify": verify,
}
