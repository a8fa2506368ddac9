"""The ``respcache`` command.

Data goes to stdout, talk to stderr. Exit codes: 0, 1 for what went wrong, 2 for
what was asked wrongly. Nothing here but words: what commands do is elsewhere.
"""

# No "from __future__ import annotations" here: Typer evaluates the annotations of
# commands, and can't see names that are local to the functions that add them.

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

if TYPE_CHECKING:
    import typer

__all__ = ["main"]

_HINT = "respcache: the command needs its extra: pip install 'respcache[cli]'\n"


def main(args: Sequence[str] | None = None) -> None:
    """Run the command with *args*, by default those of the process, and exit."""
    try:
        _main(args)
    except KeyboardInterrupt:
        _end_interrupted()


def _end_interrupted() -> NoReturn:
    sys.stderr.write("respcache: interrupted\n")
    sys.exit(130)


def _main(args: Sequence[str] | None) -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write(_HINT)
        sys.exit(2)
    from .errors import ConfigError, RespcacheError

    switches: set[str] = set()
    try:
        _make_app(switches)(args, prog_name="respcache")
    except (RespcacheError, OSError) as error:  # OSError: stdout is full, for one
        if "debug" in switches:
            from traceback import print_exception

            print_exception(error)
        else:
            sys.stderr.write(f"respcache: {error}\n")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def default_path() -> str:
    """Return where the cache lives that commands use: RESPCACHE_PATH, or the user's cache folder."""
    import os

    asked = os.environ.get("RESPCACHE_PATH")
    if asked:
        return os.path.abspath(os.path.expanduser(asked))
    from platformdirs import user_cache_path

    return str(user_cache_path("respcache") / "answers.json")


def _make_app(switches: set[str]) -> "typer.Typer":
    """Return the app; *switches* gets the names of the global options that are on."""
    import typer

    app = typer.Typer(
        help="A response cache that several agent processes share through one file.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # errors as plain lines, on which scripts can rely
        pretty_exceptions_enable=False,
    )

    def tell_version(is_asked: bool) -> None:
        if is_asked:
            from . import __version__

            typer.echo(f"respcache {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[  # noqa: ARG001 - its callback has seen to it
            bool,
            typer.Option(
                "--version", callback=tell_version, is_eager=True, help="Print the version."
            ),
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the trace of errors.")] = False,
    ) -> None:
        if debug:
            switches.add("debug")

    for add in (_add_demo, _add_path):
        add(app)
    return app


def _add_demo(app: "typer.Typer") -> None:
    import typer

    @app.command()
    def demo(
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
        from .demo import show

        try:
            is_good = show(path, workers=workers, questions=questions, as_json=as_json)
        except KeyboardInterrupt:  # here, since each Typer has another way to end then
            _end_interrupted()
        raise typer.Exit(0 if is_good else 1)


def _add_path(app: "typer.Typer") -> None:
    import typer

    @app.command()
    def path() -> None:
        """Print where the default cache lives; RESPCACHE_PATH names another place."""
        typer.echo(default_path())


if __name__ == "__main__":
    main()
