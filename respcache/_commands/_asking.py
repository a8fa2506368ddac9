"""``get``, ``set`` and ``explain``: one question, as programs ask it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._config import UNSET
from .._paths import Tree
from .._terminal import say, write, write_json
from ..errors import ConfigError
from ._session import (
    AsJson,
    CaseSensitive,
    Context,
    File,
    JsonContext,
    Namespace,
    TrimSpaces,
    parse_context,
    parse_json,
    session_of,
)

__all__ = ["COMMANDS"]


def get(
    context: Context,
    question: Annotated[str, typer.Argument(help="The question.")],
    path: File = None,
    namespace: Namespace = None,
    of: JsonContext = None,
    case_sensitive: CaseSensitive = False,
    trim_spaces: TrimSpaces = False,
    as_json: AsJson = False,
) -> None:
    """Print the response to a question. Exit code: 0 a hit, 1 a miss, 2 wrong usage.

    A text is printed as it is, any other response as JSON.
    """
    with session_of(context).quiet_cache(
        path,
        namespace=namespace or None,
        case_sensitive=case_sensitive,
        trim_spaces=trim_spaces,
    ) as cache:
        hit = cache.lookup(question, context=parse_context(of))
    if as_json:
        write_json(
            {"hit": False}
            if hit is None
            else {
                "hit": True,
                "response": hit.response,
                "question": hit.question,
                "stored_at": hit.stored_at,
                "age": hit.age,
            }
        )
    elif hit is not None and type(hit.response) is str:
        write(hit.response)
    elif hit is not None:
        write_json(hit.response)
    raise typer.Exit(1 if hit is None else 0)


def set_(
    context: Context,
    question: Annotated[str, typer.Argument(help="The question.")],
    response: Annotated[str, typer.Argument(help="The response; - reads it from stdin.")],
    json_value: Annotated[
        bool, typer.Option("--json-value", help="The response is JSON, not a text.")
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long it stays fresh.", show_default="for ever"),
    ] = None,
    depends: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="A file that it was read from, or a folder for all below it; may be repeated.",
            show_default=False,
        ),
    ] = None,
    path: File = None,
    namespace: Namespace = None,
    of: JsonContext = None,
    case_sensitive: CaseSensitive = False,
    trim_spaces: TrimSpaces = False,
    as_json: AsJson = False,
) -> None:
    """Keep a response to a question.

    One newline at the end of what is read from stdin is left out, as get adds one.
    """
    text = _from_stdin() if response == "-" else response
    told: list[str] = []
    with session_of(context).cache(
        path,
        writes=True,
        makes=True,
        namespace=namespace or None,
        case_sensitive=case_sensitive,
        trim_spaces=trim_spaces,
        on_event=lambda event: told.append(event.kind),
    ) as cache:
        is_stored = cache.store(
            question,
            parse_json(text, "RESPONSE") if json_value else text,
            context=parse_context(of),
            paths=[Tree(each) if os.path.isdir(each) else each for each in depends or ()],
            ttl=UNSET if ttl is None else ttl,
        )
    is_refused = "refuse" in told
    if as_json:
        write_json({"stored": is_stored, "kept": not is_refused})
    if is_refused:
        say("respcache: not kept: a blank question or response is not, nor what has a ttl of 0")
    elif not is_stored:
        say("respcache: the same is kept already, and keeps its age")
    raise typer.Exit(1 if is_refused else 0)


def _from_stdin() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"RESPONSE: stdin is not UTF-8 at byte {error.start}") from None


def explain(
    context: Context,
    question: Annotated[str, typer.Argument(help="The question.")],
    path: File = None,
    namespace: Namespace = None,
    of: JsonContext = None,
    case_sensitive: CaseSensitive = False,
    trim_spaces: TrimSpaces = False,
    as_json: AsJson = False,
) -> None:
    """Tell why a question hits or misses."""
    with session_of(context).quiet_cache(
        path,
        namespace=namespace or None,
        case_sensitive=case_sensitive,
        trim_spaces=trim_spaces,
    ) as cache:
        text = cache.explain(question, context=parse_context(of))
    if as_json:
        first, *rest = text.split("\n")
        verdict, _, why = first.partition(": ")
        write_json({"verdict": verdict, "why": why, "details": rest})
    else:
        write(text)


COMMANDS: dict[str, Any] = {"get": get, "set": set_, "explain": explain}
