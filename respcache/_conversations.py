"""The front for conversations with agents: which prompt may be served, which answer may be kept.

The hosts of agents tell of a turn in several events, each to a process of its own:
a prompt, writes of tools, an answer. What they have to tell each other stands in
``<cache file>.sessions/``, one small file a conversation, to which each appends a
line of JSON: no lock is waited for, and nothing of it gets among the answers that
people look at. A second cache would cost each event its locks and checksums, which
is more than what the event itself asks for.

::

    {"prompt": "How is it built?", "turn": "t1", "since": ["878d23af091e36b3", null]}
    {"wrote": true}
    {"ended": true}

A line that a killed process has left half is passed over. Files are 0600 in a folder
of 0700; the oldest go when there are too many. Of a conversation whose file is gone,
the host's transcript still tells that it is not at its first prompt.
"""

from __future__ import annotations

import os

from ._json import encode, scan
from .errors import UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._cache import Cache
    from ._front import Hit

__all__ = ["EVERYTHING", "Conversation", "evict", "project_of"]

EVERYTHING = "/"  # whatever was read from any file lies below it

_MOST = 500  # conversations that are remembered
_MOST_NOTES = 100  # of evictions that wait; more are one of everything
_HEAD = 1 << 20  # bytes of a transcript that are looked through
# How transcripts mark what the model said. A quote within a text would be escaped.
_SPOKEN = (b'"assistant"', b'"gemini"')
_APPEND = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
_MODE = 0o600


def project_of(folder: str) -> str:
    """Return the real root of the repository that *folder* is in, or else the real folder."""
    real = found = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(found, ".git")):
        above = os.path.dirname(found)
        if above == found:
            return real
        found = above
    return found


class Turn:
    """One prompt of a conversation, and what came after it.

    Attributes:
        prompt: Its text. None: it is not to be kept, or nobody told.
        name: The host's name for the turn; None: it has none.
        project: Where it began; None: nobody told.
        since: What had happened to the cache when it began: the id of the last
            removal, and that of the answer that was there. None: nobody told.
        wrote: Whether a tool has changed something since.
        ended: Whether it was answered.
    """

    __slots__ = ("ended", "name", "project", "prompt", "since", "wrote")

    def __init__(
        self, prompt: str | None, name: str | None, since: Any, project: Any = None
    ) -> None:
        self.prompt = prompt
        self.name = name
        self.since = since
        self.project = project
        self.wrote = False
        self.ended = False


class Conversation:
    """One conversation, seen by the process of one event.

    Args:
        path: The file of the cache.
        session: The host's name for the conversation. "": it has none, and nothing
            is known of it.
        folder: Where the agent works.
        any_turn: Whether follow-ups are served and kept as well.
        shared: Whether all projects share their answers.
        keep_on_edit: Whether an answer outlives changes of the project's files.
        left: Gives how many seconds there are to wait for locks.
    """

    def __init__(
        self,
        path: str,
        session: str,
        folder: str,
        *,
        any_turn: bool = False,
        shared: bool = False,
        keep_on_edit: bool = False,
        left: Callable[[], float],
    ) -> None:
        self._path = os.path.abspath(path)
        self._file = ""
        if session:
            self._file = os.path.join(_folder_of(self._path), _file_name(session) + ".jsonl")
        self._project = project_of(folder)
        self._any_turn = any_turn
        self._shared = shared
        self._keep_on_edit = keep_on_edit
        self._left = left

    # What hosts tell.

    def ask(
        self, prompt: str, turn: str | None, transcript: str, *, is_served: bool = False
    ) -> Hit | None:
        """Note that *prompt* begins a turn, and return what is kept for it and may be served.

        Args:
            prompt: The text; white space at its ends does not count.
            turn: The host's name for the turn; None: it has none.
            transcript: The host's file of the conversation, which may tell that it
                goes on an older one. "": there is none.
            is_served: Whether a hit takes the place of the turn, which then never was.
        """
        turns = self._turns()
        if turn is not None and turns and turns[-1].name == turn:
            return None  # it was told before: the hook is there twice
        is_first = bool(self._file) and not turns and not _has_spoken(transcript)
        if is_first and not transcript and _is_readonly():
            is_first = False  # no note may be made, so none says anything
        if not (is_first or self._any_turn):
            self._add({"prompt": None, "turn": turn})
            return None
        question = prompt.strip()
        cache = self._cache()
        hit = self._look(cache, question)
        if hit is None or not is_served:
            # After the look: it has found what this asks for again.
            since, project = _since(cache, question), self._project
            self._add({"prompt": question, "turn": turn, "since": since, "project": project})
        return hit

    def peek(self, prompt: str) -> Hit | None:
        """Return what is kept for *prompt*, which is known to be the first."""
        return self._look(self._cache(), prompt.strip())

    def wrote(self) -> None:
        """Note that a tool has changed something in the turn that goes on."""
        turns = self._turns()
        if not turns or turns[-1].ended:
            self._add({"prompt": None, "wrote": True})  # of a turn whose begin nobody told
        elif not turns[-1].wrote:
            self._add({"wrote": True})

    def answered(
        self, prompt: str | None, turn: str | None, answer: str, refusal: str
    ) -> str | None:
        """End the turn, and keep *answer* if that may be; return why it was not kept.

        Args:
            prompt: The text, where the host tells it again. None: it is the one
                that the turn began with.
            turn: As in :meth:`ask`.
            answer: What the agent said.
            refusal: Why the host's own words forbid to keep it; "": they do not.
        """
        turns = self._turns()
        found = _turn_of(turns, turn)
        number = len(turns)
        if found is not None:
            number = turns.index(found) + 1
        if found is None or (found.ended and found is turns[-1] and prompt is not None):
            if prompt is None:
                return "no prompt of this turn is known"
            if found is not None and turn is not None:
                return "the turn was answered before"
            found, number = Turn(prompt.strip(), turn, None), number + 1
            self._add({"prompt": None, "turn": turn, "ended": True})
        elif found.ended:
            return "the turn was answered before"
        else:
            self._add({"ended": True})
        if number == 1:
            _sweep(_folder_of(self._path))
        if refusal:
            return refusal
        if not self._any_turn and (number > 1 or not self._file):
            return "it is not known to be the first answer of its conversation"
        if found.wrote:
            return "something was changed in this turn"
        question = found.prompt if prompt is None else prompt.strip()
        if not question:
            return "the prompt is not known"
        if found.prompt is not None and found.prompt != question:
            return "the turn began with another prompt"
        if not self._shared and found.project not in (None, self._project):
            return "the turn began in another project"
        return self._keep(question, answer, found.since)

    # Answers.

    def forget(self, paths: Sequence[str], beside: Sequence[str] = ()) -> None:
        """Forget what was read from *paths*, in the cache's file and in those *beside* it.

        Raises:
            StoreError, LockTimeoutError: It can't be committed now, and waits for
                the next event.
        """
        failed = None
        for path in (self._path, *beside):
            try:
                evict(self._cache(path), paths)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _cache(self, path: str | None = None) -> Cache:
        from ._cache import Cache

        return Cache(
            self._path if path is None else path,
            namespace=None if self._shared else self._project,
            lock_timeout=max(self._left(), 0.001),
            on_error="raise",
        )

    def _look(self, cache: Cache, question: str) -> Hit | None:
        if not question:
            return None
        evict(cache, ())  # what another process could not tell must not be served
        return cache.lookup(question)

    def _keep(self, question: str, answer: str, since: Any) -> str | None:
        from ._paths import Tree

        cache = self._cache()
        evict(cache, ())
        paths = () if self._keep_on_edit else [Tree(self._project)]
        if since is None:
            kept = cache.store(question, answer, paths=paths)
        else:
            kept = cache._store_since(question, answer, paths, since)
        return None if kept else "the cache did not take it: it is the same, or overtaken"

    # The file of the conversation.

    def _turns(self) -> list[Turn]:
        """Return the turns so far, oldest first."""
        turns: list[Turn] = []
        for record in _records(self._file):
            if "prompt" in record:
                prompt, name = record["prompt"], record.get("turn")
                since = record.get("since")
                turns.append(
                    Turn(
                        prompt if type(prompt) is str else None,
                        name if type(name) is str else None,
                        since if _is_since(since) else None,
                        record.get("project"),
                    )
                )
            if turns:
                turns[-1].wrote |= record.get("wrote") is True
                turns[-1].ended |= record.get("ended") is True
        return turns

    def _add(self, record: dict[str, Any]) -> None:
        if self._file and not _is_readonly():
            _append(self._file, record)


def _turn_of(turns: list[Turn], name: str | None) -> Turn | None:
    """Return the turn of that *name*; without one, or of turns without, the last."""
    if not turns:
        return None
    if name is None or turns[-1].name is None:
        return turns[-1]
    return next((turn for turn in reversed(turns) if turn.name == name), None)


def _since(cache: Cache, question: str) -> list[str | None] | None:
    try:
        return cache._begun(question)
    except (OSError, TypeError, ValueError):
        return None  # such a question can't be kept either


def _is_since(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == 2
        and all(each is None or type(each) is str for each in value)
    )


def _has_spoken(transcript: str) -> bool:
    """Tell whether the model has said something in *transcript*, as far as can be seen."""
    if not transcript:
        return False
    try:
        with open(transcript, "rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return False  # none was written yet
    return any(mark in head for mark in _SPOKEN)


def _is_readonly() -> bool:
    from ._switches import READONLY, are_set, is_on

    return are_set() and is_on(READONLY)


# Evictions, which must not be lost.


def evict(cache: Cache, paths: Sequence[str]) -> None:
    """Forget what was read from *paths* in the file of *cache*, in all its fronts.

    And what could not be forgotten earlier: an eviction that can't be committed is
    left beside the conversations, and every later event commits it before it serves
    or keeps anything.

    Args:
        cache: A cache of the file, with ``on_error="raise"``.
        paths: Absolute paths. None at all: only what was left.

    Raises:
        StoreError, LockTimeoutError: It can't be committed now.
        UncacheableError: Something in *paths* is not a path.
    """
    folder = os.path.join(_folder_of(cache.path or ""), "evictions")
    try:
        left = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        left = []  # as good as always
    overdue = [path for file in left for path in _noted(file)]
    if not paths and not overdue:
        return
    if paths and not _is_readonly():
        # First: the host may kill a hook that waits for the lock.
        left += _leave(folder, list(paths), len(left))
    cache.invalidate(list(dict.fromkeys([*overdue, *paths])))
    if not _is_readonly():
        for file in left:
            try:
                os.unlink(file)
            except OSError:
                pass  # another process was as fast


def _noted(file: str) -> list[str]:
    """Return the paths that the note *file* names: everything, if it can't be read."""
    found = [path for record in _records(file) for path in record.get("paths", ())]
    return found if found and all(type(path) is str for path in found) else [EVERYTHING]


def _leave(folder: str, paths: list[str], count: int) -> list[str]:
    """Leave a note in *folder*, which has *count*, that *paths* are to be evicted; return it.

    Nothing, where there is no room for one: then the eviction has this one try.
    """
    name = os.path.join(folder, os.urandom(8).hex() if count < _MOST_NOTES else "everything")
    try:
        if count < _MOST_NOTES:
            _append(name, {"paths": paths})
        elif not os.path.exists(name):
            _append(name, {"paths": [EVERYTHING]})
    except (OSError, UncacheableError):
        pass  # an empty one, which a full disk has room for, says everything
    return [name]


# Small files.


def _folder_of(path: str) -> str:
    return path + ".sessions"


def _file_name(session: str) -> str:
    """Return *session* as the name of a file: as it is, if it can be one."""
    plain = session.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum() and len(session) <= 64:
        return session
    from ._keys import digest

    return "=" + digest(session.encode(errors="surrogatepass"))


def _append(file: str, record: dict[str, Any]) -> None:
    """Append *record* to *file*, which is made if it is missing, its folder as well.

    Raises:
        OSError: It can't be.
    """
    # A line break on both sides: what a killed process has left is a line by itself.
    line = b"\n" + encode(record) + b"\n"
    try:
        fd = os.open(file, _APPEND, _MODE)
    except FileNotFoundError:
        from ._atomic import make_folder

        make_folder(os.path.dirname(file), _MODE)
        fd = os.open(file, _APPEND, _MODE)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def _records(file: str) -> list[dict[str, Any]]:
    """Return what stands in *file*, but for lines that can't be read; nothing if there is none."""
    if not file:
        return []
    try:
        with open(file, "rb") as opened:
            lines = opened.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines:
        if line:
            try:
                record, _ = scan(line.decode())
            except ValueError:
                continue
            if type(record) is dict:
                found.append(record)
    return found


def _sweep(folder: str) -> None:
    """Remove the files of the oldest conversations, when there are too many."""
    try:
        with os.scandir(folder) as entries:
            files = [each for each in entries if each.name.endswith(".jsonl")]
        if len(files) <= _MOST:
            return
        files.sort(key=lambda each: each.stat(follow_symlinks=False).st_mtime_ns)
        for each in files[:-_MOST]:
            os.unlink(each.path)
    except OSError:
        pass  # another process is at it
