"""``hook``, as far as people see it, and ``install-hook``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._hosts import HOSTS
from .._terminal import one_line, say, write, write_json
from ._session import AsJson, Context, File, session_of

__all__ = ["COMMANDS"]


def install_hook(
    context: Context,
    host: Annotated[
        str,
        typer.Argument(
            metavar="|".join(HOSTS), help="Whose hooks.", autocompletion=lambda: list(HOSTS)
        ),
    ],
    write_it: Annotated[
        bool,
        typer.Option("--write", help="Write the settings, with a backup, instead of showing them."),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The settings file; a project's, for one.",
            show_default="your own of that host",
        ),
    ] = None,
    path: File = None,
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Tool results to forget as well.",
            show_default="tools.jsonl beside the cache file, if it is there",
        ),
    ] = None,
    on_hit: Annotated[
        str,
        typer.Option(
            metavar="context|block|answer",
            help="What a hit does.",
            autocompletion=lambda: ["context", "block", "answer"],
        ),
    ] = "context",
    any_turn: Annotated[
        bool, typer.Option("--any-turn", help="Serve and keep follow-ups too.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="One namespace for all projects.")
    ] = False,
    keep_on_edit: Annotated[
        bool, typer.Option("--keep-on-edit", help="Answers outlive edits of files.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="After which the hook ends, whatever.", show_default="2"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what puts the hook into the settings of an agent's host, or write it.

    Other settings and other hooks stay. What each host lets a hook do is in docs/hooks.md.
    """
    from .._install import install

    options = [f"--on-hit={on_hit}"]
    for name, value in (
        ("path", path or session_of(context).path),
        ("tools", tools),
        ("budget", budget),
    ):
        if value is not None:
            options.append(f"--{name}={value}")
    for name, is_asked in (
        ("any-turn", any_turn),
        ("shared", shared),
        ("keep-on-edit", keep_on_edit),
    ):
        if is_asked:
            options.append(f"--{name}")
    made = install(host, settings=settings, options=options, write=write_it)
    if as_json:
        write_json(vars(made))
        return
    if made.is_written:
        kept = f"; what was there is in {made.backup}" if made.backup else ""
        write(f"written: {made.settings}{kept}")
    elif write_it:
        write(f"as it should be already: {made.settings}")
    else:
        write(made.snippet.rstrip("\n"))
        if made.settings is not None:
            say(f"This belongs into {one_line(made.settings)}; --write puts it there.")
        if made.notify is not None:
            say(f"Or, to keep answers without hooks, in config.toml: {made.notify.rstrip()}")
    for note in made.notes:
        say(note)


def hook(context: Context) -> None:
    """Take part in an event of an agent's host, told on stdin; hosts run it, not people.

    See docs/hooks.md for its options. It always exits with 0.
    """
    from ..hook import main

    session = session_of(context)
    before = [] if session.path is None else ["--path", str(session.path)]
    main([*before, *context.args, *(["--debug"] if session.is_debug else [])])


COMMANDS: dict[str, Any] = {"install-hook": install_hook}
