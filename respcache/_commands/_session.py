"""What all commands share: which file is meant, and the options that many of them have."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._cache import Cache
from .._paths import default_path
from .._survey import FRONTS, demand, namespaces
from .._switches import DISABLE, READONLY, is_on
from .._terminal import say, write, write_json
from ..errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AsJson",
    "CaseSensitive",
    "Context",
    "File",
    "Front",
    "JsonContext",
    "Namespace",
    "Session",
    "TrimSpaces",
    "entries",
    "parse_context",
    "parse_json",
    "session_of",
    "write_count",
]


class Session:
    """One run of the command.

    Attributes:
        path: The file that was named before the sub-command.
        is_debug: Whether errors are shown with their trace.
        warnings: What the cache has warned of so far; told at the end.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.is_debug = False
        self.warnings: list[str] = []

    def file(self, path: Path | None) -> str:
        """Return the file that is meant, absolute."""
        named = path or self.path
        return default_path() if named is None else os.path.abspath(named)

    def heed_switches(self, *, writes: bool) -> None:
        """Refuse to go on where a switch leaves nothing to do.

        Raises:
            StoreError: It names the switch.
        """
        for name in (DISABLE, *((READONLY,) if writes else ())):
            if is_on(name):
                does = "nothing is written" if name == READONLY else "no file is opened"
                raise StoreError(name, f"is set, so {does}; unset it")

    def tell_missing(self, file: str) -> None:
        """Say so if there is no *file*."""
        if not os.path.lexists(file):
            say(f"respcache: {file}: there is no such file yet, which is an empty cache")

    @contextmanager
    def cache(
        self, path: Path | None, *, writes: bool = False, makes: bool = False, **options: Any
    ) -> Iterator[Cache]:
        """Give the cache of the file that is meant, whose entries are looked at or changed.

        Args:
            path: The file that was named after the sub-command.
            writes: Whether the command changes something.
            makes: Whether it makes a file that is not there, so that nothing is said.
            options: More for the cache.

        Raises:
            StoreError: A switch forbids it, or the file can't be read by this version.
        """
        self.heed_switches(writes=writes)
        with self.quiet_cache(path, **options) as cache:
            if not makes:
                self.tell_missing(str(cache.path))
            demand(cache)
            yield cache

    def quiet_cache(self, path: Path | None, **options: Any) -> Cache:
        """Return the cache of the file that is meant; a switch that is on means what it does.

        It imposes no limits on those who share the file.
        """
        return Cache(self.file(path), max_bytes=None, on_error="raise", **options)


def session_of(context: typer.Context) -> Session:
    """Return the session of a command."""
    session = context.obj
    assert isinstance(session, Session)
    return session


def _complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    session = ctx.find_object(Session) or Session()
    named = ctx.params.get("path") or (ctx.parent.params.get("path") if ctx.parent else None)
    try:
        with Cache(session.file(named and Path(named)), max_bytes=None) as cache:
            return [name for name in namespaces(cache) if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []  # a shell that completes has no place for errors


Context = typer.Context
File = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="FILE",
        help="The cache file.",
        show_default="RESPCACHE_PATH, or your cache folder",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="A partition of the file; '' is the shared one.",
        autocompletion=_complete_namespace,
        show_default=False,
    ),
]
Front = Annotated[
    str | None,
    typer.Option(
        "--front",
        metavar="|".join(FRONTS.values()),
        help="Questions, tool results or steps only.",
        autocompletion=lambda: list(FRONTS.values()),
        show_default=False,
    ),
]
CaseSensitive = Annotated[
    bool, typer.Option("--case-sensitive", help="As the cache that stored it was made.")
]
TrimSpaces = Annotated[
    bool, typer.Option("--trim-spaces", help="As the cache that stored it was made.")
]
JsonContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="JSON",
        help="All else that the answer depends on, as a JSON object.",
        show_default=False,
    ),
]


def entries(count: int) -> str:
    """Return so many entries in words."""
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def write_count(done: str, count: int, *, as_json: bool) -> None:
    """Write of how many entries what was *done*."""
    if as_json:
        write_json({done: count})
    else:
        write(f"{entries(count)} {done}")


def parse_json(text: str, name: str) -> Any:
    """Return the JSON value *text*, which was given as *name*.

    Raises:
        ConfigError: It is not JSON.
    """
    from json import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: is not JSON ({error})") from None


def parse_context(text: str | None) -> dict[str, Any] | None:
    """Return the context that was given as *text*.

    Raises:
        ConfigError: It is no JSON object.
    """
    if text is None:
        return None
    context = parse_json(text, "--context")
    if type(context) is not dict:
        raise ConfigError('--context: pass a JSON object, such as \'{"model": "m-1"}\'')
    return context
