"""The command as a whole: its own options, and all its sub-commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _asking, _hooking, _looking, _moving, _replaying, _tending
from ._session import session_of

__all__ = ["make_app"]


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from .. import __version__

        typer.echo(f"respcache {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback has seen to it
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the trace of errors.")] = False,
    path: Annotated[
        Path | None,
        typer.Option("--path", metavar="FILE", help="The cache file; a command takes it, too."),
    ] = None,
) -> None:
    """Look into and tend a response cache that several agent processes share through one file."""
    session = session_of(context)
    session.is_debug = debug
    session.path = path
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def make_app() -> typer.Typer:
    """Return the app; run it with a ``Session`` as its ``obj``."""
    app = typer.Typer(
        rich_markup_mode=None,  # plain lines, on which scripts can rely
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_options)
    for commands in (_asking, _looking, _tending, _moving, _replaying, _hooking):
        for name, function in commands.COMMANDS.items():
            app.command(name)(function)
    # Reached before this where it stands first; its options are its own to read.
    passing = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command("hook", context_settings=passing)(_hooking.hook)
    return app
