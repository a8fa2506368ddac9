"""The entry of hook processes: an event of an agent's host in, at most one JSON object out.

::

    python -I -c "from respcache.hook import main; main()" --path answers.jsonl

It exits with 0 whatever happens, and prints nothing or one object that the host
takes. A broken cache, a full disk, garbage on stdin change nothing for the agent.
Nothing here but options, time and streams: what events mean is in ``_hosts``, what
may be served and kept in ``_conversations``.

A process pays for what is imported. So this and what it needs keep away from whatever
of the standard library is slow to load, and each thing is loaded when it is needed.
"""

from __future__ import annotations

import gc
import os
import sys
from time import monotonic

from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from ._conversations import Conversation
    from ._front import Hit
    from ._hosts import Event

__all__ = ["FLAGS", "ON_HIT", "VALUES", "Options", "main"]

ON_HIT = ("context", "block", "answer")
_BUDGET = 2.0
_RESERVE = 0.1  # of the budget, for what comes after a wait for a lock
_GRACE = 0.2  # seconds for cleaning up, after which the process ends anyhow
_LARGEST = 1 << 26  # bytes of an event; a larger one is none

FLAGS = {"--any-turn", "--shared", "--keep-on-edit", "--debug"}
VALUES = {"--path", "--host", "--on-hit", "--budget", "--tools"}


class _OutOfTime(BaseException):
    """The budget is spent; no handler of errors may take this for one of its own."""


class Options:
    """What was asked for.

    Args:
        arguments: ``--path FILE``, ``--tools FILE``, ``--host HOST``, ``--on-hit MODE``,
            ``--budget SECONDS``, ``--any-turn``, ``--shared``, ``--keep-on-edit``,
            ``--debug``; the event as JSON, where the host hands it over so. A value
            may also stand behind ``=``.

    Raises:
        ConfigError: One of them is unknown, or not what it may be.
    """

    __slots__ = (
        "any_turn",
        "budget",
        "debug",
        "host",
        "keep_on_edit",
        "on_hit",
        "path",
        "payload",
        "shared",
        "tools",
    )

    def __init__(self, arguments: Sequence[str]) -> None:
        self.path = self.tools = self.host = self.payload = ""
        self.on_hit = ON_HIT[0]
        self.budget = _BUDGET
        self.any_turn = self.shared = self.keep_on_edit = self.debug = False
        left = list(arguments)
        while left:
            word = left.pop(0)
            name, equals, value = word.partition("=")
            if word in FLAGS:
                setattr(self, word[2:].replace("-", "_"), True)
            elif name in VALUES:
                if not equals:
                    if not left or left[0].startswith("--"):
                        raise ConfigError(f"{name}: give it a value")
                    value = left.pop(0)
                self._set(name, value)
            elif word.startswith("{") and not self.payload:
                self.payload = word
            else:
                known = ", ".join(sorted(FLAGS | VALUES))
                raise ConfigError(f"{word!r}: no option of the hook; it has {known}")

    def _set(self, name: str, value: str) -> None:
        if name == "--budget":
            try:
                self.budget = float(value)
            except ValueError:
                self.budget = 0.0
            if not 0 < self.budget <= 3600:
                raise ConfigError(f"--budget={value}: choose a number of seconds above 0")
            return
        choices: tuple[str, ...] = (value,)
        if name == "--host":
            from . import _hosts

            choices = _hosts.HOSTS
        elif name == "--on-hit":
            choices = ON_HIT
        if value not in choices:
            raise ConfigError(f"{name}={value}: choose one of {', '.join(choices)}")
        if not value:
            raise ConfigError(f"{name}: give it a value")
        setattr(self, name[2:].replace("-", "_"), value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Take part in what the host tells, and end within the budget.

    Args:
        arguments: See :class:`Options`. None: those of this process, without a leading
            ``hook``; and the process ends here, with 0, at once: what an
            interpreter does at its end costs a fifth of its start.
    """
    began = monotonic()
    if arguments is None:
        gc.disable()  # what it would look through while modules are loaded is no garbage
    given = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None and given[:1] == ["hook"]:
        del given[0]
    stderr = sys.stderr
    try:
        if not _is_debugged(given):
            sys.stderr = _Nowhere()  # warnings of the library are for others
        _run(given, began, arguments is None)
    except BaseException as error:  # noqa: BLE001 - nothing may reach the agent
        _say(error)
    finally:
        sys.stderr = stderr
        if arguments is None:
            os._exit(0)


def _is_debugged(given: list[str]) -> bool:
    if "RESPCACHE_DEBUG" in os.environ:
        from ._switches import is_on

        return is_on("RESPCACHE_DEBUG")
    return "--debug" in given


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> int:
        """Take *text*."""
        return len(text)

    def flush(self) -> None:
        """Do nothing."""


def _say(what: object) -> None:
    """Say *what* went otherwise than hoped, on stderr."""
    text = f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else str(what)
    try:
        sys.stderr.write(f"respcache hook: {text}\n")
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - then nobody is to hear of it
        pass


def _run(given: list[str], began: float, ends: bool) -> None:
    options = Options(given)
    end = began + options.budget
    disarm = _arm(options.budget, ends)
    try:
        output = _answer(options, lambda: end - monotonic() - options.budget * _RESERVE)
    finally:
        disarm()
    # From here on it is too late to be late: half an object would be worse.
    if output:
        _print(output)


# Time.


def _arm(seconds: float, ends: bool) -> Callable[[], None]:
    """Have :class:`_OutOfTime` raised after *seconds*; return what calls that off.

    *ends*: whether the process is to end, soon after, if it still goes on then.
    """
    try:
        # The signal module would load enum.
        from _signal import (  # type: ignore[import-not-found]
            ITIMER_REAL,
            SIG_DFL,
            SIGALRM,
            setitimer,
            signal,
        )
    except ImportError:  # Windows
        return _watch(seconds)
    is_late: list[bool] = []

    def stop(*_: Any) -> NoReturn:
        if is_late:
            os._exit(0)  # cleaning up takes too long as well
        is_late.append(True)
        raise _OutOfTime("the budget is spent")

    try:
        before = signal(SIGALRM, stop)
    except ValueError:  # not the main thread
        return _watch(seconds)
    setitimer(ITIMER_REAL, seconds, _GRACE if ends else 0)

    def disarm() -> None:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, SIG_DFL if before is None else before)  # None: one that C has set

    return disarm


def _watch(seconds: float) -> Callable[[], None]:
    """Have another thread end this process after *seconds*; return what calls that off."""
    from _thread import allocate_lock, start_new_thread

    running = allocate_lock()
    running.acquire()

    def wait() -> None:
        if not running.acquire(timeout=seconds):
            os._exit(0)

    start_new_thread(wait, ())
    return running.release


# Streams.


def _input() -> bytes:
    """Return all of stdin; nothing if there is none."""
    stdin = sys.stdin
    if stdin is None:
        return b""  # by its number another file might be read
    try:
        fd = stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return stdin.read().encode()  # no real stream
    parts = []
    size = 0
    while part := os.read(fd, 1 << 16):
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            raise ValueError(f"an event of more than {_LARGEST:,} bytes")
    return b"".join(parts)


def _print(output: bytes) -> None:
    stdout = sys.stdout
    if stdout is None:
        return
    try:
        fd = stdout.fileno()
    except (AttributeError, OSError, ValueError):
        stdout.write(output.decode())
        return
    while output:
        output = output[os.write(fd, output) :]


def _decoded(text: str) -> dict[str, Any]:
    """Return the one JSON object that *text* is.

    Raises:
        ValueError: It is none.
    """
    from ._json import scan

    text = text.strip("\ufeff \t\r\n")
    value, end = scan(text)
    if type(value) is not dict or end != len(text):
        raise ValueError("the event is not one JSON object")
    return value


# Events.


def _answer(options: Options, left: Callable[[], float]) -> bytes | None:
    """Return what is to be printed; None: nothing."""
    from ._hosts import detect, read
    from ._switches import DISABLE, are_set, is_on

    text = options.payload or _input().decode(errors="replace")
    if are_set() and is_on(DISABLE):
        return None
    payload = _decoded(text)
    host = options.host or detect(payload)
    event = None if host is None else read(payload, host)
    if event is None:
        return None
    from ._conversations import Conversation
    from ._paths import default_path

    conversation = Conversation(
        options.path or default_path(),
        event.session,
        event.cwd or os.getcwd(),
        any_turn=options.any_turn,
        shared=options.shared,
        keep_on_edit=options.keep_on_edit,
        left=left,
    )
    if event.kind == "answer":
        why: str | None = event.refusal
        if not event.is_inner:  # an inner agent's end is not that of the turn
            why = conversation.answered(event.prompt, event.turn, event.answer, event.refusal)
        if why is not None:
            _say(f"not kept: {why}")
        return None
    if event.kind in ("tool", "file"):
        _forget(event, conversation, options)
        return None
    return _serve(event, conversation, options)


def _serve(event: Event, conversation: Conversation, options: Options) -> bytes | None:
    from . import _hosts

    prompt = event.prompt
    if event.is_inner or prompt is None or not prompt.strip():
        return None
    # Before the model is called is where Gemini CLI takes an answer; the others have no
    # such place.
    answers = options.on_hit == "answer" and event.host == _hosts.GEMINI
    if event.kind == "request":
        hit = conversation.peek(prompt) if answers else None
        say = _hosts.reply
    else:
        blocks = options.on_hit == "block"
        hit = conversation.ask(prompt, event.turn, event.transcript, is_served=blocks)
        if answers:
            return None
        say = _hosts.refusal if blocks else _hosts.hint
    text = None if hit is None else _text_of(hit)
    if hit is None or not text:
        return None
    from ._json import encode

    return encode(say(event, text, hit.age)) + b"\n"


def _text_of(hit: Hit) -> str:
    from ._json import encode

    return hit.response if type(hit.response) is str else encode(hit.response).decode()


def _forget(event: Event, conversation: Conversation, options: Options) -> None:
    paths = [event.path] if event.kind == "file" else _touched(event)
    if not paths or paths == [""]:
        return
    folder = event.cwd or os.getcwd()
    try:
        if event.kind == "tool":
            conversation.wrote()
    finally:  # also where that could not be noted
        conversation.forget(
            [os.path.join(folder, os.path.expanduser(path)) for path in paths],
            _tools_beside(options),
        )


def _touched(event: Event) -> list[str]:
    """Return the paths that the tool of *event* may have changed."""
    from ._conversations import EVERYTHING
    from .presets import CODING_AGENT

    if event.tool in CODING_AGENT["reads"] or event.tool in CODING_AGENT["neutral"]:
        return []
    paths = CODING_AGENT["writes"].get(event.tool)
    found = None if paths is None else paths(event.arguments, event.cwd)
    return [EVERYTHING] if found is None else list(found)


def _tools_beside(options: Options) -> list[str]:
    """Return the file of tool results of the same project, if it is another one and there."""
    from ._paths import default_path

    path = os.path.abspath(options.path or default_path())
    tools = options.tools or os.path.join(os.path.dirname(path), "tools.jsonl")
    tools = os.path.abspath(tools)
    return [tools] if tools != path and os.path.exists(tools) else []


if __name__ == "__main__":
    main()
