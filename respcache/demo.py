"""The demo: several processes ask about real texts through one cache file.

Each process is an agent that draws its questions by itself, popular ones more
often, so that the questions of all overlap. An answer is read out of the help
texts that come with Python and costs real work; nothing sleeps. At the end a
fresh reader looks for every answer that was had, and counts what is lost.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import wait
from random import Random
from tempfile import TemporaryDirectory

from ._cache import Cache
from ._switches import DISABLE, READONLY, REFRESH, is_on
from .errors import ConfigError, RespcacheError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import ModuleType
    from typing import Any

    from ._front import Hit

__all__ = ["Answer", "Library", "Report", "closest", "draw", "load_library", "run", "show"]

QUESTIONS = 300  # of each process: about 7 s with 4 processes on 2 cores

_WORD = re.compile(r"\w+")
_PATIENCE = 3.0  # seconds that a process gets to end by itself

# Where there are no help topics: modules whose docstrings say much, and whose
# import does nothing else.
_MODULES = (
    "argparse abc ast asyncio.events asyncio.tasks base64 bisect calendar cmd code codecs "
    "collections configparser contextlib copy csv datetime decimal difflib dis doctest "
    "email.message enum fractions functools gettext heapq html.parser http.client imaplib "
    "inspect io ipaddress itertools json logging mailbox math mimetypes multiprocessing.pool "
    "numbers operator optparse os pathlib pdb pickle pickletools platform plistlib pprint "
    "profile pydoc queue random re sched selectors shelve shlex shutil smtplib socket "
    "socketserver sqlite3 ssl statistics string struct subprocess tarfile tempfile textwrap "
    "threading timeit tokenize traceback turtle typing unittest.case unittest.mock "
    "urllib.parse urllib.request uuid warnings weakref xml.dom.minidom zipfile"
).split()


@dataclass(frozen=True, slots=True)
class Library:
    """The texts that are asked about.

    Attributes:
        kind: What they are, in the plural.
        texts: Each by its name.
    """

    kind: str
    texts: Mapping[str, str]

    @property
    def context(self) -> dict[str, Any]:
        """What an answer depends on besides its question: another Python has other texts."""
        whole = "\0".join(f"{name}\0{text}" for name, text in sorted(self.texts.items()))
        return {"texts": sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]}


@dataclass(frozen=True, slots=True)
class Answer:
    """One question that a process had answered.

    Attributes:
        question: As it was asked.
        names: The answer.
        seconds: Of work that it took, in this process or in the one before.
        is_hit: Whether it came from the cache.
        is_kept: Whether it is in the cache, by what this process was told.
    """

    question: str
    names: list[str]
    seconds: float
    is_hit: bool
    is_kept: bool


@dataclass(frozen=True, slots=True)
class _Failure:
    """What ended a process, and its trace."""

    error: RespcacheError
    trace: str


@dataclass(slots=True)
class Report:
    """What came out.

    Attributes:
        asked: Questions that were answered, by all processes.
        from_cache: Those whose answer was there.
        computed: Those whose answer had to be worked out.
        not_kept: Those that the cache then refused to keep.
        seconds_saved: Work that the answers from the cache had cost when they
            were worked out.
        seconds: From the first process's start to the last one's end.
        entries: In the file at the end, whoever stored them.
        lost: Different questions whose answer was kept, and that a fresh
            reader does not find, or finds with another answer.
        died: Processes that ended before their last question.
    """

    asked: int = 0
    from_cache: int = 0
    computed: int = 0
    not_kept: int = 0
    seconds_saved: float = 0.0
    seconds: float = 0.0
    entries: int = 0
    lost: int = 0
    died: int = 0
    _kept: dict[str, list[str]] = field(default_factory=dict, repr=False)

    def add(self, answer: Answer) -> None:
        """Count *answer*."""
        self.asked += 1
        if answer.is_hit:
            self.from_cache += 1
            self.seconds_saved += answer.seconds
        else:
            self.computed += 1
        if answer.is_kept:
            self._kept[answer.question] = answer.names
        else:
            self.not_kept += 1

    def audit(self, reader: Cache, context: dict[str, Any]) -> None:
        """Look up in *reader* all that was kept, and count what is lost."""
        self.lost = 0
        for question, names in self._kept.items():
            hit = reader.lookup(question, context=context)
            if hit is None or hit.response["names"] != names:
                self.lost += 1
        self.entries = len(reader)

    @property
    def is_good(self) -> bool:
        """Whether every process came to its end, and every answer was kept and found."""
        return not (self.lost or self.died or self.not_kept)

    def to_json(self) -> dict[str, int | float]:
        """Return the numbers by name."""
        numbers = {name: value for name, value in asdict(self).items() if name != "_kept"}
        for name in ("seconds_saved", "seconds"):
            numbers[name] = round(numbers[name], 3)
        return numbers

    def rows(self) -> list[tuple[str, str]]:
        """Return the table: labels and numbers; what is only there on bad days comes last."""
        rows = [
            ("asked", str(self.asked)),
            ("answered from the cache", str(self.from_cache)),
            ("computed", str(self.computed)),
            ("seconds saved", f"{self.seconds_saved:.1f}"),
            ("seconds taken", f"{self.seconds:.1f}"),
            ("entries in the file", str(self.entries)),
            ("lost", str(self.lost)),
        ]
        if self.not_kept:
            rows.append(("not kept", str(self.not_kept)))
        if self.died:
            rows.append(("processes that died", str(self.died)))
        return rows


# What is asked, and how it is answered.


def load_library() -> Library:
    """Return Python's help topics, or the docstrings of its modules where those were left out.

    Raises:
        StoreError: This Python has neither.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return Library("modules", _docstrings(_MODULES))
    return Library("help topics", topics)


def _docstrings(names: Iterable[str]) -> dict[str, str]:
    """Return what the modules called *names* say of themselves, of those that say much."""
    from importlib import import_module

    texts = {}
    for name in names:
        try:
            module = import_module(name)
        except ImportError:
            continue
        text = "\n".join(_docs(module))
        if len(text) > 500:
            texts[name] = text
    if len(texts) < 4:
        raise StoreError(
            sys.prefix, "this Python has no help topics and no docstrings; run a full one"
        )
    return texts


def _docs(module: ModuleType) -> Iterator[str]:
    things: list[object] = [module]
    for name, thing in sorted(vars(module).items()):
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__:
            things.append(thing)
            if isinstance(thing, type):
                things.extend(each for _, each in sorted(vars(thing).items()) if callable(each))
    for thing in things:
        doc = getattr(thing, "__doc__", None)
        if isinstance(doc, str):
            yield doc


def closest(texts: Mapping[str, str], names: Iterable[str], count: int = 3) -> list[str]:
    """Return the *count* texts that have most in common with those called *names*, best first.

    By the angle between counts of words, rare words weighing more. Every text
    is read for every answer, as an agent with no memory would.
    """
    counts = {name: Counter(_WORD.findall(text.lower())) for name, text in texts.items()}
    spread = Counter(word for each in counts.values() for word in each)
    weight = {word: math.log(len(counts) / number) ** 2 for word, number in spread.items()}
    wanted: Counter[str] = Counter()
    for name in names:
        wanted += counts.pop(name)
    scores = []
    for name, each in counts.items():
        common = sum(wanted[word] * number * weight[word] for word, number in each.items())
        length = math.sqrt(sum(number * number * weight[word] for word, number in each.items()))
        scores.append((-common / length if length else 0.0, name))
    return [name for _, name in sorted(scores)[:count]]


def draw(library: Library, number: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the *count* questions of the process *number*, each with the names it is about.

    The same for the same number. The first names are the popular ones (half as
    likely means twice as far down, as Zipf found for words), for all processes
    alike, and each spells as it likes.
    """
    random = Random(number)
    names = sorted(library.texts)
    Random(0).shuffle(names)
    weights = [1 / rank for rank in range(1, len(names) + 1)]
    for _ in range(count):
        chosen = sorted(set(random.choices(names, weights, k=random.choice((1, 2)))))
        about = " and ".join(map(repr, chosen))
        spell = random.choice((str, str.lower, str.upper))
        yield spell(f"Which {library.kind} are closest to {about}?"), chosen


# The processes.


def _is_answer(hit: Hit) -> bool:
    """Tell whether *hit* is what this demo stores: people edit the file that --path names."""
    match hit.response:
        case {"names": [*names], "seconds": float(seconds)}:
            return seconds >= 0 and all(type(name) is str for name in names)
    return False


def _ask(
    cache: Cache,
    refused: list[str],
    question: str,
    compute: Callable[[], list[str]],
    context: dict[str, Any],
) -> Answer:
    """Have *question* answered: from *cache*, or by *compute*, whose cost is kept along."""
    is_hit = True

    def measured() -> dict[str, Any]:
        nonlocal is_hit
        is_hit = False
        began = time.process_time()  # the work alone: the cores are shared with the others
        names = compute()
        return {"names": names, "seconds": round(time.process_time() - began, 6)}

    refused.clear()
    response = cache.get_or_call(question, measured, context=context)
    return Answer(question, response["names"], response["seconds"], is_hit, not refused)


def _work(number: int, count: int, path: str, library: Library, answers: Connection) -> None:
    """Be the process *number*: ask *count* questions, and send what came of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and closes the pipe
    context = library.context
    refused: list[str] = []
    with suppress(BrokenPipeError):
        try:
            with Cache(
                path,
                serve_if=_is_answer,
                on_error="raise",
                on_event=lambda event: event.kind == "refuse" and refused.append(event.subject),
            ) as cache:
                for question, names in draw(library, number, count):
                    answers.send(
                        _ask(
                            cache,
                            refused,
                            question,
                            lambda names=names: closest(library.texts, names),  # type: ignore[misc]
                            context,
                        )
                    )
            answers.send(None)
        except RespcacheError as error:
            from traceback import format_exc

            answers.send(_Failure(error, format_exc()))


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile, here and in processes that are started meanwhile.

    A terminal sends it to all of them. One that is still being started would
    die of it with a trace, before it could say that it does not want it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def run(
    library: Library,
    path: str,
    *,
    workers: int,
    questions: int,
    tell: Callable[[Report], object] = lambda report: None,
) -> Report:
    """Let *workers* processes ask *questions* each, through the cache file *path*.

    Whatever ends it, no process is left behind.

    Args:
        library: What they ask about.
        path: The file; made if missing.
        workers: How many processes.
        questions: How many questions each asks.
        tell: Gets the report so far, after each answer.

    Raises:
        RespcacheError: A process could not store; the others are stopped.
    """
    report = Report()
    processes: dict[Connection, BaseProcess] = {}
    began = time.monotonic()
    try:
        with _deaf():
            for number in range(1, workers + 1):
                _start(processes, number, questions, path, library)
        for message in _messages(processes):
            match message:
                case Answer():
                    report.add(message)
                    tell(report)
                case _Failure(error, trace):
                    error.add_note(trace)
                    raise error
                case EOFError():
                    report.died += 1
    finally:
        with _deaf():
            _stop(processes)
    report.seconds = time.monotonic() - began
    with Cache(path, serve_if=_is_answer, on_error="raise") as reader:
        report.audit(reader, library.context)
    return report


def _start(
    processes: dict[Connection, BaseProcess], number: int, count: int, path: str, library: Library
) -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_work, args=(number, count, path, library, theirs), name=f"agent {number}"
    )
    process.start()
    processes[ours] = process
    theirs.close()  # so that ours ends when the process does


def _messages(processes: Mapping[Connection, BaseProcess]) -> Iterator[object]:
    """Yield what *processes* send, until all have ended; an EOFError for one that died."""
    open = list(processes)
    while open:
        for each in wait(open, timeout=0.5):  # without an end, Windows would not hear Ctrl-C
            pipe: Connection = each  # type: ignore[assignment]
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                message = EOFError()
            if message is None or isinstance(message, EOFError):
                open.remove(pipe)
            yield message


def _stop(processes: Mapping[Connection, BaseProcess]) -> None:
    """End *processes*: by closing their pipes, which each finds at its next answer, else by force.

    Killed at any point, they leave a whole file behind.
    """
    for pipe in processes:
        pipe.close()
    for end in (lambda process: None, lambda process: process.terminate(), lambda p: p.kill()):
        deadline = time.monotonic() + _PATIENCE
        left = [process for process in processes.values() if process.is_alive()]
        for process in left:
            end(process)
        for process in left:
            process.join(max(0.0, deadline - time.monotonic()))
    for process in processes.values():
        process.join(0)
