"""The demo: several processes ask about real texts through one cache file.

Each process is an agent that draws its questions by itself, popular ones more
often, so that the questions of all overlap. An answer is read out of the help
texts that come with Python and costs real work; nothing sleeps. At the end a
fresh reader looks for every answer that was had, and counts what is lost.
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import wait
from random import Random
from tempfile import TemporaryDirectory

from ._cache import Cache
from ._switches import DISABLE, READONLY, REFRESH, is_on
from ._terminal import is_terminal, say
from .errors import ConfigError, RespcacheError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import ModuleType
    from typing import Any

    from ._front import Event, Hit

__all__ = ["Answer", "Library", "Report", "closest", "draw", "load_library", "run", "show"]

QUESTIONS = 600  # of all processes; about 250 different ones

_TROUBLE = ("lost", "not kept", "processes that died")  # rows whose numbers should be 0

_WORD = re.compile(r"\w+")
_BUDGET = 12.0  # seconds of asking, unless a number of questions is asked for
_PATIENCE = 3.0  # seconds that a process gets to end by itself

# Where there are no help topics: modules whose docstrings say much, and whose
# import does nothing else.
_MODULES = (  # noqa: SIM905 - as a list it is sixty lines
    "argparse ast asyncio.events asyncio.tasks base64 calendar cmd code codecs collections "
    "configparser contextlib csv datetime decimal difflib doctest email.message enum "
    "fractions functools heapq inspect io ipaddress itertools json logging mailbox math "
    "mimetypes numbers optparse os pathlib pdb pickletools platform plistlib queue random re "
    "sched selectors shelve shutil socket socketserver statistics subprocess tarfile tempfile "
    "textwrap threading timeit tokenize traceback unittest.case urllib.parse urllib.request "
    "weakref zipfile"
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
        seconds_saved: Work that the answers from the cache had cost when they
            were worked out.
        seconds_taken: From the first process's start to the last one's end.
        entries: In the file at the end, whoever stored them.
        lost: Different questions whose answer was kept, and that a fresh
            reader does not find, or finds with another answer.
        not_kept: Answers that were worked out and that the cache refused, as
            it does while it can't know whether they were overtaken.
        died: Processes that ended before their last question.
        warnings: What the cache warned of, each once.
    """

    asked: int = 0
    from_cache: int = 0
    computed: int = 0
    seconds_saved: float = 0.0
    seconds_taken: float = 0.0
    entries: int = 0
    lost: int = 0
    not_kept: int = 0
    died: int = 0
    warnings: list[str] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        """Count *answer*."""
        self.asked += 1
        if answer.is_hit:
            self.from_cache += 1
            self.seconds_saved += answer.seconds
        else:
            self.computed += 1
            self.not_kept += not answer.is_kept

    @property
    def is_good(self) -> bool:
        """Whether every process came to its end, and all that was kept is there."""
        return not (self.lost or self.died)

    def warn(self, text: str) -> None:
        """Note the warning *text*."""
        if text not in self.warnings:
            self.warnings.append(text)

    def to_json(self) -> dict[str, Any]:
        """Return it all by name."""
        form = asdict(self)
        for name in ("seconds_saved", "seconds_taken"):
            form[name] = round(form[name], 3)
        return form

    def rows(self) -> list[tuple[str, str]]:
        """Return the table: labels and numbers. What only bad days have comes last."""
        rows = [
            ("asked", str(self.asked)),
            ("answered from the cache", str(self.from_cache)),
            ("computed", str(self.computed)),
            ("seconds saved", f"{self.seconds_saved:.1f}"),
            ("seconds taken", f"{self.seconds_taken:.1f}"),
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

    By the words that they share, for their length; rare words weigh more. Every
    text is read for every answer, as an agent with no memory would.
    """
    counts = {name: Counter(_WORD.findall(text.lower())) for name, text in texts.items()}
    spread = Counter(chain.from_iterable(counts.values()))
    wanted: Counter[str] = Counter()
    for name in names:
        wanted += counts.pop(name)
    weights = {
        word: number * math.log(len(texts) / spread[word]) for word, number in wanted.items()
    }
    scores = []
    for name, each in counts.items():
        shared = sum(weights[word] * each[word] for word in weights if word in each)
        scores.append((-shared / math.sqrt(each.total() or 1), name))
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


def _work(number: int, count: int, seconds: float, path: str, parent: Connection) -> None:
    """Be the process *number*: ask *count* questions, *seconds* long, and send what came of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and closes the pipe
    refused: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "refuse":
            refused.append(event.subject)

    try:
        library: Library = parent.recv()
    except (EOFError, OSError):  # interrupted before, or in the middle of it
        return
    context = library.context
    with suppress(ConnectionError), _warnings_to(parent.send):
        try:
            with Cache(path, serve_if=_is_answer, on_event=watch, on_error="raise") as cache:
                until = time.monotonic() + seconds
                for question, names in draw(library, number, count):
                    if time.monotonic() > until:
                        break
                    compute = partial(closest, library.texts, names)
                    parent.send(_ask(cache, refused, question, compute, context))
            parent.send(None)
        except RespcacheError as error:
            from traceback import format_exc

            parent.send(_Failure(error, format_exc()))


@contextmanager
def _warnings_to(take: Callable[[str], object]) -> Iterator[None]:
    """Give what the cache warns of to *take*: all processes do, and a bar may be on the screen."""

    class Taker(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            take(record.getMessage())

    logger, taker = logging.getLogger("respcache"), Taker()
    logger.addHandler(taker)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(taker)


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
    seconds: float = math.inf,
    tell: Callable[[Report], object] | None = None,
) -> Report:
    """Let *workers* processes ask *questions* each, through the cache file *path*.

    Whatever ends it, no process is left behind.

    Args:
        library: What they ask about.
        path: The file; made if missing.
        workers: How many processes.
        questions: How many questions each asks, at most.
        seconds: How long each goes on asking.
        tell: Gets the report so far, after each answer.

    Raises:
        RespcacheError: A process could not store; the others are stopped.
    """
    report = Report()
    kept: dict[str, list[str]] = {}
    processes: dict[Connection, BaseProcess] = {}
    began = time.monotonic()
    try:
        with _deaf():
            for number in range(1, workers + 1):
                _start(processes, number, (number, questions, seconds, path))
        for pipe in processes:
            with suppress(ConnectionError):  # it died; its pipe will say so
                pipe.send(library)
        for message in _messages(processes):
            match message:
                case Answer():
                    report.add(message)
                    if message.is_kept:
                        kept[message.question] = message.names
                    if tell is not None:
                        tell(report)
                case _Failure(error, trace):
                    error.add_note(trace)
                    raise error
                case str():
                    report.warn(message)
                case EOFError():
                    report.died += 1
    finally:
        with _deaf():
            _stop(processes)
    report.seconds_taken = time.monotonic() - began
    with _warnings_to(report.warn), Cache(path, on_error="raise") as reader:
        report.lost = count_lost(reader, kept, library.context)
        report.entries = len(reader)
    return report


def count_lost(reader: Cache, kept: Mapping[str, list[str]], context: dict[str, Any]) -> int:
    """Return how many of the *kept* answers *reader* does not give, each looked up as asked."""
    lost = 0
    for question, names in kept.items():
        hit = reader.lookup(question, context=context)
        lost += hit is None or not _is_answer(hit) or hit.response["names"] != names
    return lost


def _start(
    processes: dict[Connection, BaseProcess], number: int, work: tuple[int, int, float, str]
) -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    # Without the library, for which it would wait until the process can read.
    process = context.Process(target=_work, args=(*work, theirs), name=f"agent {number}")
    process.start()
    processes[ours] = process
    theirs.close()  # so that ours ends when the process does


def _messages(processes: Mapping[Connection, BaseProcess]) -> Iterator[object]:
    """Yield what *processes* send, until all have ended; an EOFError for one that died."""
    open = list(processes)
    while open:
        for each in wait(open, timeout=0.5):  # endless, Windows would not hear Ctrl-C
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
    _join(processes.values())
    for process in processes.values():
        process.terminate()
    _join(processes.values())
    for process in processes.values():
        process.kill()
        process.join()


def _join(processes: Iterable[BaseProcess]) -> None:
    deadline = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


# What is shown.


def show(path: str | None, *, workers: int, questions: int | None, as_json: bool) -> bool:
    """Run the demo, with its progress on stderr and its table on stdout.

    Args:
        path: The cache file, which stays. None: one in a temporary folder,
            which does not.
        workers: How many processes.
        questions: How many questions each asks. None: a fair share of some
            seconds of work.
        as_json: Whether the table is one JSON object.

    Returns:
        Whether all went well.

    Raises:
        ConfigError: The environment turns the cache off, or *path* is not
            the name of a cache file.
        RespcacheError: The file can't be used.
    """
    for name in (DISABLE, READONLY, REFRESH):
        if is_on(name):
            raise ConfigError(f"{name}: is set, so there is nothing to show; unset it")
    if path is not None:
        _check_file(path)
    library = load_library()
    seconds = math.inf
    if questions is None:
        questions = max(1, QUESTIONS // workers)
        seconds = _BUDGET
    with _place(path) as file:
        say(
            f"{workers} process{'es' if workers > 1 else ''} asking {questions} questions each "
            f"about {len(library.texts)} {library.kind} of Python, through one file"
        )
        with _progress(workers * questions) as tell:
            report = run(
                library, file, workers=workers, questions=questions, seconds=seconds, tell=tell
            )
    _print_report(report, as_json=as_json)
    for text in report.warnings:
        say(f"respcache: {text}")
    if path is not None:
        say(f"The answers stay in {file}; run this again, and they are there.")
    return report.is_good


def _check_file(path: str) -> None:
    """Refuse a file that could not keep what the demo stores, before it is asked for long.

    Raises:
        ConfigError: It has a name of another kind, or it is flat.
    """
    # What is wrong with it otherwise, the first store will say.
    with _warnings_to(lambda text: None), Cache(path) as cache:  # noqa: ARG005
        if any(hit.stored_at is None for hit in cache.entries()):
            raise ConfigError(
                f"path={path!r}: is a flat file, which has no place for what the demo keeps; "
                "name another"
            )


@contextmanager
def _place(path: str | None) -> Iterator[str]:
    """Give the file *path*, or one in a folder that is gone afterwards, however it ends.

    Raises:
        StoreError: There is no place for such a folder.
    """
    if path is not None:
        yield os.path.abspath(path)
        return
    try:
        folder = TemporaryDirectory(prefix="respcache-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        why = f"can't be made: {error.strerror}; set TMPDIR, or name a file with --path"
        raise StoreError("a temporary folder", why, error.errno) from error
    try:
        yield os.path.join(folder.name, "answers.json")
    finally:
        with _deaf():
            folder.cleanup()


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Report], None]]:
    """Give a function that shows how far it is: by a bar on a terminal, else by ten lines."""
    if not is_terminal(sys.stderr):
        yield lambda report: _say_progress(report, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("answered"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[hits]} from the cache"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:
        bar = progress.add_task("", total=total, hits=0)
        yield lambda report: progress.update(bar, completed=report.asked, hits=report.from_cache)


def _say_progress(report: Report, total: int) -> None:
    done = report.asked
    if done * 10 // total > (done - 1) * 10 // total:
        say(f"{done} of {total} answered, {report.from_cache} from the cache")


def _print_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        import json

        sys.stdout.write(json.dumps(report.to_json()) + "\n")
        return
    if not is_terminal(sys.stdout):
        for label, number in report.rows():
            sys.stdout.write(f"{label:<24} {number:>8}\n")
        return
    from rich.box import ROUNDED
    from rich.console import Console
    from rich.table import Table

    table = Table(box=ROUNDED, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, number in report.rows():
        is_bad = label in _TROUBLE and number != "0"
        table.add_row(label, number, style="bold red" if is_bad else None)
    Console().print(table, highlight=False)
