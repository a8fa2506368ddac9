"""Real interpreters for these tests: started together, spoken to in lines, always reaped.

A child runs a source string after ``PRELUDE``; both sides say JSON values, one a
line. Deadlines only guard against hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE = 30.0

PRELUDE = """
import importlib, json, os, signal, sys, threading, time
from respcache import Cache, LockTimeoutError

try:
    import fcntl
except ImportError:
    pass  # Windows

args = json.loads(sys.argv[1])

def say(value):
    # Past all buffers: what was said before a SIGKILL was said.
    os.write(1, json.dumps(value).encode() + b"\\n")

def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)  # the test is over
    return json.loads(line)

def barrier():
    say("ready")
    hear()

def patch(target, around, match=""):
    '''Have *around* called with the function *target*, such as "os.fsync", and its arguments.'''
    module, _, name = target.rpartition(".")
    module = importlib.import_module(module)
    real = getattr(module, name)

    def patched(*given, **named):
        if match and match not in str(given[0]):
            return real(*given, **named)
        return around(real, *given, **named)

    if real in os.supports_fd:
        os.supports_fd.add(patched)
    setattr(module, name, patched)
    return lambda: setattr(module, name, real)

def pause(target, after=False):
    '''Stop once, before or after the next call of *target*, until told to go on.'''

    def around(real, *given, **named):
        undo()
        result = real(*given, **named) if after else None
        say("paused")
        hear()
        return result if after else real(*given, **named)

    undo = patch(target, around)

def announce(target, word):
    '''Say *word* at the next call of *target*.'''
    left = [word]

    def around(real, *given, **named):
        if left:
            say(left.pop())
        return real(*given, **named)

    patch(target, around)

def die(target, when, number=1, match=""):
    '''Kill this process at call *number* of *target*: before it, after it, or half way.'''
    left = number

    def around(real, *given, **named):
        nonlocal left
        left -= 1
        if left:
            return real(*given, **named)
        if when == "after":
            real(*given, **named)
        elif when == "half":
            real(given[0], given[1][: len(given[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    patch(target, around, match)
"""

AGENT = """
from respcache.testing import FakeClock

options = args["options"]
if args["clock"] is not None:
    clock = options["clock"] = FakeClock(args["clock"])
cache = Cache(args["path"], **options)
while True:
    method, given, named = hear()
    try:
        if method == "run":
            exec(*given)
            answer = None
        elif method in ("advance", "set_wall"):
            answer = getattr(clock, method)(*given)
        else:
            answer = getattr(cache, method)(*given, **named)
        if method == "lookup" and answer is not None:
            answer = {"response": answer.response, "age": answer.age}
        elif method == "entries":
            answer = {hit.question: hit.response for hit in answer}
    except Exception as error:
        answer = {"error": type(error).__name__}
    say(answer)
"""

_END = object()


class Child:
    """An interpreter of its own that runs *source*."""

    def __init__(self, source: str, args: dict[str, Any], errors: Path) -> None:
        self._errors = errors
        program = PRELUDE + textwrap.dedent(source)
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(args, default=str)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # so that what it forks can be found, and ended
            )
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(json.loads(line))
        self._said.put(_END)

    def tell(self, value: Any = "go on") -> None:
        """Let the child hear *value*."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value, default=str).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Return what the child says next."""
        try:
            value = self._said.get(timeout=DEADLINE)
        except queue.Empty:
            raise AssertionError(f"the child said nothing for {DEADLINE} s") from None
        if value is _END:
            self._said.put(_END)
            code = self.process.wait(DEADLINE)
            raise AssertionError(f"the child ended with {code}\n{self._errors.read_text()}")
        return value

    def rest(self) -> list[Any]:
        """Return all that the child says until it ends."""
        values = []
        while True:
            value = self._said.get(timeout=DEADLINE)
            if value is _END:
                self._said.put(_END)
                return values
            values.append(value)

    def kill(self) -> None:
        """End the child by SIGKILL."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def wait(self) -> int:
        """Return the exit code, after the child has ended by itself."""
        return self.process.wait(DEADLINE)

    def reap(self) -> None:
        """End the child, and what it forked, whatever they do."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # which ends a fork that listens
        self._listener.join(1)
        if self._listener.is_alive():
            # A fork has the pipe still, so its group lives and the number is no other's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._listener.join(DEADLINE)
        self.process.stdout.close()


class Agent(Child):
    """A process with one cache, whose methods are called from here."""

    def order(self, method: str, *given: Any, **named: Any) -> None:
        """Have *method* called, without waiting for its answer."""
        self.tell([method, given, named])

    def __call__(self, method: str, *given: Any, **named: Any) -> Any:
        """Return the answer of *method*, or the name of its error in a dict."""
        self.order(method, *given, **named)
        return self.hear()


@pytest.fixture(autouse=True)
def _long_ones_unmeasured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no coverage slow down the children of long tests: others run the same lines."""
    if request.node.get_closest_marker("long"):
        for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the shared file will be, in a folder that holds nothing else."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder / "answers.json"


@pytest.fixture
def _launch(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    children: list[Child] = []

    def launch(kind: type[Child], source: str, args: dict[str, Any]) -> Child:
        child = kind(source, args, tmp_path / f"stderr-{len(children)}")
        children.append(child)
        return child

    try:
        yield launch
    finally:
        for child in children:
            child.reap()


@pytest.fixture
def start(_launch: Callable[..., Any]) -> Callable[..., Child]:
    """Start a child that runs a source, which finds the keywords in ``args``."""
    return lambda source, **args: _launch(Child, source, args)


@pytest.fixture
def agent(_launch: Callable[..., Any]) -> Callable[..., Agent]:
    """Start a process with one cache at a path; *clock* is where its FakeClock starts."""

    def start_agent(path: Path, *, clock: float | None = None, **options: Any) -> Agent:
        return _launch(Agent, AGENT, {"path": path, "clock": clock, "options": options})

    return start_agent


@pytest.fixture
def together() -> Callable[[list[Child]], None]:
    """Let children that stand before their barrier go at once."""

    def release(children: list[Child]) -> None:
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell()

    return release


@pytest.fixture
def strict() -> Callable[[Path], dict[str, Any]]:
    """Read a file as the strictest parser would: UTF-8, no NaN, no key twice."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        assert len(made) == len(pairs), "a key stands there twice"
        return made

    return lambda path: json.loads(
        path.read_bytes().decode("utf-8"), parse_constant=refuse, object_pairs_hook=unique
    )


@pytest.fixture
def questions_in(strict: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    """Return the responses in a raw document by their questions, without the package."""
    return lambda path: {
        entry["question"]: entry["response"] for entry in strict(path)["entries"].values()
    }
