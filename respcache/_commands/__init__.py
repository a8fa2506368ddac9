"""The sub-commands of ``respcache``: nothing but words, since what they do is elsewhere."""

from __future__ import annotations

import logging
import os
import sys

from .._terminal import one_line, say
from ..errors import ConfigError, RespcacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._session import Session

__all__ = ["run"]

_INTERRUPTED = 130


def run(args: Sequence[str]) -> int:
    """Run the command with *args*, and return its exit code.

    ``--debug`` may stand anywhere, since who sees an error adds it at the end.
    """
    from ._app import make_app
    from ._session import Session

    _fill_streams()
    session = Session()
    talk = _Talk()
    logger = logging.getLogger("respcache")
    logger.addHandler(talk)
    before, logger.propagate = logger.propagate, False
    try:
        code = _run(make_app(), _debug_first(args), session, talk)
    finally:
        logger.propagate = before
        logger.removeHandler(talk)
    for text in dict.fromkeys(talk.texts):
        say(f"respcache: {one_line(text)}")
    _forget_what_is_not_written()
    return code


def _fill_streams() -> None:
    """Let streams that the caller has closed lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _debug_first(args: Sequence[str]) -> list[str]:
    options = list(args)
    rest = options[options.index("--") :] if "--" in options else []
    options = options[: len(options) - len(rest)]
    if "--debug" in options:
        options = ["--debug", *(each for each in options if each != "--debug")]
    return options + rest


class _Talk(logging.Handler):
    """Keep what the cache warns of until the end: a bar may be on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _run(app: object, args: Sequence[str], session: Session, talk: _Talk) -> int:
    import typer

    assert isinstance(app, typer.Typer)
    session.warnings = talk.texts
    try:
        # Not standalone: Typer would tell errors in several lines, with boxes.
        code = app(list(args), prog_name="respcache", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except (RespcacheError, OSError) as error:  # OSError: stdout is full, for one
        if isinstance(error, BrokenPipeError):
            return 1  # whoever read has seen enough
        _tell(error, session)
        talk.texts[:] = [text for text in talk.texts if text != str(error)]
        return 2 if isinstance(error, ConfigError) else 1
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        # Of Typer, or of Click below older ones; both have errors for people.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        name = "respcache" if context is None else context.command_path
        message = " ".join(error.format_message().split()).rstrip(".")
        say(f"respcache: {message}; see {name} --help")
        return 2
    if code == _INTERRUPTED:
        say("respcache: interrupted")
    return code if isinstance(code, int) else 0


def _tell(error: Exception, session: Session) -> None:
    if session.is_debug:
        from traceback import print_exception

        print_exception(error)
    else:
        say(f"respcache: {one_line(str(error))}")


def _forget_what_is_not_written() -> None:
    """Let the interpreter's end not fail once more at a stdout that takes nothing any more."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
