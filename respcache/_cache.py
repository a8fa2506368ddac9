"""The front for questions: which are the same, and what may be kept."""

from __future__ import annotations

import time

from ._config import UNSET, Config, check, check_ttl, enabled_options
from ._entry import Entry, new_entry
from ._front import Event, Front, Hit
from ._index import Ticket
from ._keys import Normalizer, field_digests, flat_key, key_head, split_key
from ._rules import Removal
from ._stores import FormatSwitched, new_id
from ._switches import DISABLE, READONLY, REFRESH, are_set, is_on
from .errors import ConfigError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, Literal, TypeVar, overload

    from ._call import Call
    from ._paths import PathLike, Tree

    T = TypeVar("T")
    Paths = PathLike | Tree | Iterable[PathLike | Tree] | Mapping[PathLike | Tree, os.stat_result]

else:

    def overload(function: T) -> T:
        """Stand in for typing.overload: a hook process must not load typing."""
        return function


__all__ = ["Cache"]


class Cache(Front):
    """Remember responses to questions, in memory or in one file that many processes share.

    Two questions are one if they are equal after normalization, in the same
    namespace and under an equal context. A lookup sees every change that any
    process committed before it began. A process killed at any time leaves a
    whole file. Nothing is read or written before the first use.

    Args:
        path: The file: a JSON document (``.json``), or a log (``.jsonl``) for many
            entries and busy writers. None: memory, this process only.
            Relative to the working folder at this moment.
        case_sensitive: Whether ``A`` and ``a`` are different questions.
        trim_spaces: Whether white space at both ends is ignored.
        normalizer: Other rules, instead of these two.
        namespace: A hard partition of the file, never normalized. None: the
            shared one.
        ttl: Seconds that an entry stays fresh; expired when age >= ttl. The
            stricter of this and of what is stored counts. None: for ever.
        max_entries: Entries in the whole file; the oldest go first. The
            smallest limit among those who store wins. None: no limit.
        max_entry_bytes: UTF-8 bytes of one encoded response; a larger one is
            not kept and evicts nobody. None: no limit.
        max_bytes: Encoded bytes of all entries, as for *max_entries*.
        store_if: Gets a response, tells whether it may be kept.
        serve_if: Gets a :class:`Hit`, tells whether it may still be served;
            one that may not is a miss.
        on_event: Gets an :class:`Event` for each lookup, store and removal.
            What it raises passes through.
        on_error: ``"warn"``: what can't be committed stays pending: served
            here while nothing newer is committed for its key, tried again with
            later stores and :meth:`flush`; one warning in the log. ``"raise"``:
            a StoreError or LockTimeoutError, and the entry is not kept.
        format: ``"document"``, ``"log"`` or ``"flat"`` (docker-agent's), for a path
            with another suffix. None: by the suffix; a flat ``.json`` file is
            recognized and stays one.
        fsync: Whether a commit waits for the disk. None: yes for documents, no
            for logs, which may lose their last lines in a power cut.
        mode: Permissions of the files that are made.
        lock_timeout: Seconds to wait for the file lock. After one wait that
            ran out, later stores do not wait until one succeeds.
        clock: Gives seconds since the epoch; see :class:`~respcache.testing.FakeClock`.

    Raises:
        ConfigError: An option is not what it may be; the message names it.
    """

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        case_sensitive: bool = False,
        trim_spaces: bool = False,
        normalizer: Normalizer | None = None,
        namespace: str | None = None,
        ttl: float | None = None,
        max_entries: int | None = None,
        max_entry_bytes: int | None = None,
        max_bytes: int | None = 268_435_456,
        store_if: Callable[[Any], object] | None = None,
        serve_if: Callable[[Hit], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_error: Literal["warn", "raise"] = "warn",
        format: Literal["document", "log", "flat"] | None = None,
        fsync: bool | None = None,
        mode: int = 0o600,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check(case_sensitive=case_sensitive, trim_spaces=trim_spaces, normalizer=normalizer)
        if normalizer is not None and (case_sensitive or trim_spaces):
            raise ConfigError(
                "normalizer: goes without case_sensitive and trim_spaces; "
                "pass Normalizer(fold=..., trim=...)"
            )
        self._normalizer = normalizer or Normalizer(fold=not case_sensitive, trim=trim_spaces)
        self._normalize = self._normalizer.function()
        self._head = ""
        super().__init__(
            "cache",
            "q",
            path=path,
            namespace=namespace,
            ttl=ttl,
            max_entries=max_entries,
            max_entry_bytes=max_entry_bytes,
            max_bytes=max_bytes,
            store_if=store_if,
            serve_if=serve_if,
            on_event=on_event,
            on_error=on_error,
            format=format,
            fsync=fsync,
            mode=mode,
            lock_timeout=lock_timeout,
            clock=clock,
        )
        if self._is_flat:
            self._check_flat()

    @classmethod
    def from_config(
        cls, config: Config | Mapping[str, Any], *, base_dir: PathLike | None = None
    ) -> Cache | None:
        """Return the cache that *config* asks for, or None if it is not enabled.

        Args:
            config: A :class:`Config`, or a mapping with ``enabled`` and the
                options of this class.
            base_dir: The folder of relative paths. None: the working folder.

        Raises:
            ConfigError: An option is unknown or not what it may be, or the
                path leads out of *base_dir*.
        """
        options = enabled_options(config, base_dir)
        return None if options is None else cls(**options)

    # Looking.

    def lookup(
        self, question: str, *, context: dict[str, Any] | None = None, exact: bool = False
    ) -> Hit | None:
        """Return what is stored for *question*, or None.

        Takes no lock, writes nothing and never waits for one who stores. A
        file that can't be read is an empty cache.

        Args:
            question: The question; one that can't be a key is a miss.
            context: All else that the answer depends on.
            exact: Only if the question that was stored is equal to the letter.
        """
        began = time.perf_counter() if self._on_event is not None else 0.0
        if are_set() and (is_on(DISABLE) or is_on(REFRESH)):
            self._bypassed += 1
            self._tell("bypass", question, began)
            return None
        hit = self._look(question, context, exact)
        # An increment could only be lost if the interpreter switched threads
        # within the statement, which CPython does not.
        if hit is None:
            self._misses += 1
        else:
            self._hits += 1
        if self._on_event is not None:
            self._tell("miss" if hit is None else "hit", question, began, hit.age if hit else None)
        return hit

    def get(
        self, question: str, default: Any = None, *, context: dict[str, Any] | None = None
    ) -> Any:
        """Return the response to *question*, or *default*; see :meth:`lookup`."""
        hit = self.lookup(question, context=context)
        return default if hit is None else hit.response

    def _look(self, question: str, context: Any, exact: bool = False) -> Hit | None:
        if type(question) is not str:
            return None
        try:
            if context is None and self._head:
                entry = self._store.get(self._head + self._normalize(question))
            else:
                entry = self._do(lambda store: store.get(self._key(question, context)))
        except UncacheableError:
            return None
        except FormatSwitched as switched:
            self._open(switched.format)
            return self._look(question, context, exact)
        if entry is None or (exact and not self._is_exact(entry, question)):
            return None
        if not entry.is_checked and not self._belongs(entry):
            return None
        return self._serve(entry, self._ttl)

    def _belongs(self, entry: Entry) -> bool:
        """Tell whether *entry* stands under the key of its question; damage may have moved it."""
        entry.is_checked = self._is_flat or (
            split_key(entry.key)[3] == self._normalize(entry.question)
        )
        return entry.is_checked

    def _is_exact(self, entry: Entry, question: str) -> bool:
        if self._is_flat and (self._normalizer.fold or self._normalizer.trim):
            return False  # what was asked is not kept there
        return entry.question == question

    # Keys.

    def _open(self, format: str | None, *, is_asked_for: bool = False) -> None:
        before: Any = getattr(self, "_store", None)
        super()._open(format, is_asked_for=is_asked_for)
        if before is not None:
            from ._transfer import carry_over

            carry_over(self, before.surrender(), before.is_flat)
        self._head = "" if self._is_flat else key_head(self._scope, self._normalizer, None)

    def _key(self, question: str, context: Any) -> str:
        """Return the key of *question*.

        Raises:
            UncacheableError: *context* can't be in a key.
        """
        if self._is_flat:
            if context is not None or self.namespace is not None:
                raise UncacheableError(
                    "$.context", "a flat file has no place for it; any other .json file has"
                )
            normalizer = self._normalizer
            return flat_key(question, fold=normalizer.fold, trim=normalizer.trim)
        if context is None:
            return self._head + self._normalize(question)
        if type(context) is not dict:
            raise UncacheableError("$.context", "pass a dict of what the answer depends on")
        return key_head(self._scope, self._normalizer, context) + self._normalize(question)

    def _checked_key(self, question: Any, context: Any, place: str = "$") -> str:
        """Return the key of *question*, at *place*, for keeping something under it.

        Raises:
            UncacheableError: *question* or *context* is outside the JSON domain.
            ConfigError: The file is flat, which the options do not go with.
        """
        if type(question) is not str:
            kind = type(question).__name__
            raise UncacheableError(f"{place}.question", f"a question is a str, not {kind}")
        try:
            question.encode()
        except UnicodeEncodeError:
            raise UncacheableError(
                f"{place}.question", "a lone surrogate can't be written as UTF-8; replace it"
            ) from None
        if self._is_flat:
            self._check_flat()
        return self._key(question, context)

    def _check_flat(self) -> None:
        """Refuse options that a flat file has no place for."""
        if self.namespace is not None:
            raise ConfigError(f"namespace={self.namespace!r}: a flat file has no namespaces")
        if self._normalizer.form is not None or self._normalizer.collapse:
            raise ConfigError(
                f"normalizer={self._normalizer!r}: a flat file knows only fold and trim"
            )

    # Storing.

    def store(
        self,
        question: str,
        response: Any,
        *,
        context: dict[str, Any] | None = None,
        paths: Paths = (),
        ttl: float | None = UNSET,
    ) -> bool:
        """Keep *response*, and tell whether it is committed.

        Then every process sees it that looks up afterwards, whatever else was
        stored meanwhile. Killed on the way, this process leaves the old entry
        or the new one.

        Args:
            question: The question. A blank one is not kept.
            response: Plain JSON types. A text of white space only is not kept.
            context: All else that the answer depends on: model, prompt, user.
            paths: The files and ``Tree``s that the answer was read from, or a
                mapping of each path to its ``os.stat`` from before it was
                read. A hit whose file has changed since is a miss.
            ttl: Seconds that it stays fresh, at most the cache's own. None:
                for ever. 0: it is not kept.

        Returns:
            False if nothing was committed: the same is stored already and
            fresh (then its age stays), it may not be kept, or it is pending.

        Raises:
            UncacheableError: *question*, *context* or *response* is outside
                the JSON domain; the message names the place.
            ConfigError: *ttl* is below zero or no number.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        began = time.perf_counter()
        if ttl is not UNSET:
            check_ttl(ttl)
        if are_set() and (is_on(DISABLE) or is_on(READONLY)):
            return False
        signed = _sign(paths)
        return self._commit(
            question,
            lambda: self._entry(question, response, context, signed, ttl, "$"),
            began,
        )

    def _begun(self, question: str) -> list[str | None]:
        """Return what has happened so far, for :meth:`_store_since` in any process.

        Raises:
            UncacheableError: *question* can't be a key.
        """
        key = self._checked_key(question, None)
        ticket = self._do(lambda store: store.ticket(key))
        return [ticket.removal, ticket.entry]

    def _store_since(
        self, question: str, response: Any, paths: Paths, since: list[str | None]
    ) -> bool:
        """Keep *response* as :meth:`store` does, unless it was overtaken; tell whether it was kept.

        Args:
            question: As in :meth:`store`.
            response: As in :meth:`store`.
            paths: As in :meth:`store`.
            since: What :meth:`_begun` gave when the work on it began, maybe in
                another process.
        """
        began = time.perf_counter()
        if are_set() and (is_on(DISABLE) or is_on(READONLY)):
            return False
        signed = _sign(paths)
        # As it is kept, its age stays, unlike that of what a caller has computed
        # here: whoever gave this response may have had it from us.
        return self._commit(
            question,
            lambda: self._entry(question, response, None, signed, UNSET, "$"),
            began,
            Ticket(since[0], since[1]),
            renews=False,
        )

    def store_many(self, pairs: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> int:
        """Keep all *pairs* of question and response in one commit, all or none.

        Other processes see the whole batch or nothing of it; so does who comes
        after a crash. What :meth:`store` would not keep is left out.

        Returns:
            How many were committed.

        Raises:
            UncacheableError: One is outside the JSON domain; none is kept.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        items = list(pairs.items() if hasattr(pairs, "items") else pairs)
        for number, pair in enumerate(items):
            if type(pair) not in (tuple, list) or len(pair) != 2:
                raise UncacheableError(f"$[{number}]", "pass pairs of a question and a response")
        began = time.perf_counter()
        if are_set() and (is_on(DISABLE) or is_on(READONLY)):
            return 0
        return self._commit_all(
            [question for question, _ in items],
            lambda: [
                self._entry(question, response, None, {}, UNSET, f"$[{number}]")
                for number, (question, response) in enumerate(items)
            ],
            began,
        )

    def _entry(
        self,
        question: str,
        response: Any,
        context: Any,
        signed: dict[str, Any],
        ttl: Any,
        place: str,
    ) -> Entry | None:
        """Return the entry to keep, or None if it may not be kept.

        Raises:
            UncacheableError: Something is outside the JSON domain.
        """
        key = self._checked_key(question, context, place)
        own = self._ttl if ttl is UNSET else ttl
        if own == 0 or not question.strip():
            return None
        if type(response) is str and not response.strip():
            return None
        entry = new_entry(
            key,
            key if self._is_flat else question,
            response,
            place,
            id=new_id(),
            stored_at=self._stamp(),
            ttl=own,
            context=None if context is None else field_digests(context),
            **signed,
        )
        if self._max_entry_bytes is not None and entry.size > self._max_entry_bytes:
            return None
        if self._store_if is not None and not self._store_if(response):
            return None
        return entry

    # Computing.

    def get_or_call(
        self,
        question: str,
        compute: Callable[[], T],
        *,
        context: dict[str, Any] | None = None,
        paths: Paths = (),
        ttl: float | None = UNSET,
        wait: float = 30.0,
    ) -> T:
        """Return the stored response, or compute and keep it.

        Single flight: threads, tasks and processes that ask the same meanwhile
        wait, then look again. If nothing was kept, all who waited compute at
        once. A process that dies in its computation frees the others. A result
        that was overtaken by a removal, or by a newer entry, is returned and
        not kept; so is one that can't be kept.

        Args:
            question: The question; one that can't be a key is computed each time.
            compute: Makes the response. What it raises passes through
                unchanged, and nothing is kept.
            context: As in :meth:`store`.
            paths: As in :meth:`store`; each signature is taken before *compute*.
            ttl: As in :meth:`store`.
            wait: Seconds after which a caller computes for itself. 0: at once.

        Raises:
            ConfigError: *ttl* or *wait* is below zero or no number.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        return self._call(question, context, paths, ttl, wait).run(compute)  # type: ignore[no-any-return]

    @overload
    async def aget_or_call(
        self,
        question: str,
        compute: Callable[[], Awaitable[T]],
        *,
        context: dict[str, Any] | None = None,
        paths: Paths = (),
        ttl: float | None = UNSET,
        wait: float = 30.0,
    ) -> T: ...

    @overload
    async def aget_or_call(  # noqa: F811 - an overload, but not by typing's own name
        self,
        question: str,
        compute: Callable[[], T],
        *,
        context: dict[str, Any] | None = None,
        paths: Paths = (),
        ttl: float | None = UNSET,
        wait: float = 30.0,
    ) -> T: ...

    async def aget_or_call(  # noqa: F811
        self,
        question: str,
        compute: Callable[[], Any],
        *,
        context: dict[str, Any] | None = None,
        paths: Paths = (),
        ttl: float | None = UNSET,
        wait: float = 30.0,
    ) -> Any:
        """Return the stored response, or compute and keep it, without stopping the event loop.

        As :meth:`get_or_call`; waiting for another's computation or for the
        file lock leaves the loop to others. A leader that is cancelled does
        not cancel who waits for it.

        Args:
            question: As in :meth:`get_or_call`.
            compute: A coroutine function, or a plain one, which runs in a thread.
            context: As in :meth:`store`.
            paths: As in :meth:`get_or_call`.
            ttl: As in :meth:`store`.
            wait: As in :meth:`get_or_call`.
        """
        from ._call import awaited

        call = self._call(question, context, paths, ttl, wait)
        return await call.arun(lambda: awaited(compute))

    def _call(self, question: str, context: Any, paths: Any, ttl: Any, wait: Any) -> Call:
        from ._call import Call

        if ttl is not UNSET:
            check_ttl(ttl)
        if paths != ():
            from ._paths import repeatable

            paths = repeatable(paths)
        return Call(
            self,
            question,
            look=lambda: self._look(question, context),
            key=lambda: self._checked_key(question, context),
            sign=lambda: _sign(paths),
            entry=lambda response, signed: self._entry(
                question, response, context, signed, ttl, "$"
            ),
            wait=wait,
        )

    # Forgetting.

    def forget(self, question: str, *, context: dict[str, Any] | None = None) -> bool:
        """Forget *question*, also if it is being computed; tell whether it was kept.

        Raises:
            StoreError, LockTimeoutError: With ``on_error="raise"`` only. The
                entry is hidden here at once, and forgotten before anything
                else is committed.
        """
        try:
            return bool(
                self._remove(
                    "forget",
                    question,
                    lambda: Removal(new_id(), keys=[self._checked_key(question, context)]),
                )
            )
        except UncacheableError:
            return False

    # Explaining and moving.

    def explain(self, question: str, *, context: dict[str, Any] | None = None) -> str:
        """Return, for a person, why *question* hits or misses.

        The normalized text and the key; then the entries of the same text under
        another context, namespace or normalizer, each with what differs.
        """
        from ._explain import explain

        return explain(self, question, context)

    def export(self, path: PathLike) -> int:
        """Write the entries of this namespace to the file *path*, and return how many.

        In the format of its suffix, in one commit. Ages, contexts and paths go
        along; what the file already holds under the same keys is replaced.

        Raises:
            StoreError, LockTimeoutError: It can't be written.
            UncacheableError: It is flat, and an entry has what that can't hold.
        """
        from ._transfer import export

        return export(self, path)

    def merge(self, path: PathLike) -> int:
        """Take over what the file *path* holds in this namespace; return how many entries.

        What is already there wins. Ages, contexts and paths come along; what
        has expired does not.

        Raises:
            StoreError: There is no such file, or it can't be read.
        """
        from ._transfer import merge

        return merge(self, path)


def _sign(paths: Any) -> dict[str, Any]:
    if paths == ():
        return {}
    from ._paths import sign

    return sign(paths)
