"""The front for pipeline steps: admission decides what is kept, and inputs are in the key."""

from __future__ import annotations

import re
import time

from ._admission import Leaf, Staleness, Step, admit, checked_ttls
from ._call import Call, awaited
from ._entry import Entry, new_entry
from ._front import Event, Front, Hit
from ._inputs import Inputs, Snapshot, dependencies, named
from ._json import encode
from ._keys import Normalizer, digest, field_digests
from ._paths import EVERYTHING
from ._rules import stricter
from ._stores import new_id
from ._switches import DISABLE, REFRESH, are_set, is_on
from .errors import ConfigError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal

    from ._paths import PathLike, Tree
    from ._recording import Recorder

__all__ = ["Done", "StepCache"]

_VERSION = "1"
_EXACT = "x"  # stands in a key where the tag of a normalizer would

# A fence, or a text within quotes on one line: one that is not closed there is no quote,
# and must not turn what is quoted below inside out. An apostrophe opens one only
# where no word ends, and closes one only where none goes on.
_QUOTED = re.compile(
    r"(?s:```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z))"
    r"|`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”|„[^“”\n]+[“”]|«[^»\n]+»|\u2018[^\u2019\n]+\u2019|「[^」\n]+」"
    r"|(?<!\w)'[^'\n]+'(?!\w)"
)


class Done:
    """What a step gave.

    Attributes:
        output: Its output. A list or dict is the caller's own.
        cached: Whether it was kept before, and the step did not run.
        age: Seconds since it ran. 0.0 if it just did.
        leaf: Where admission has put the step.
    """

    __slots__ = ("age", "cached", "leaf", "output")

    def __init__(self, output: Any, cached: bool, age: float, leaf: Leaf) -> None:
        self.output = output
        self.cached = cached
        self.age = age
        self.leaf = leaf

    def __repr__(self) -> str:
        return (
            f"Done(output={self.output!r}, cached={self.cached!r}, age={self.age!r}, "
            f"leaf={self.leaf!s})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Done) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # an output may be a list


class StepCache(Front):
    """Remember outputs of pipeline steps, each as the leaf allows that :func:`admit` puts it on.

    Two runs are the same if step, model, prompt, content of the inputs, digest
    and context are equal; on the normalized leaf prompts may differ in white
    space, case and Unicode form. The staleness class is kept with each output:
    one that was kept under another class is not served. All processes that
    share the file see an output once it is committed; a process that dies in a
    step leaves nothing of it.

    Args:
        path: As in :class:`Cache`.
        model: Names the model, and whatever of its settings changes outputs.
        ttls: Seconds by staleness class, instead of 6 hours for cosmetic and 15
            minutes for misleading.
        hit_budgets: The share of runs, by name of step, that is expected to be
            served; kept with the statistics, and what a replay is held against.
        exact_quotes: Whether the normalized leaf keeps texts within quotes and
            code fences as they are.
        namespace: As in :class:`Cache`.
        ttl: Seconds that no output is served beyond, whatever its leaf. None: no
            such bound.
        max_entries: This and all further options as in :class:`Cache`.
        max_entry_bytes: As in :class:`Cache`.
        max_bytes: As in :class:`Cache`.
        store_if: As in :class:`Cache`; gets the output.
        serve_if: As in :class:`Cache`.
        on_event: As in :class:`Cache`; the subject of an event is ``"step: prompt"``.
        on_error: As in :class:`Cache`.
        format: ``"document"`` or ``"log"``.
        fsync: As in :class:`Cache`.
        mode: As in :class:`Cache`.
        lock_timeout: As in :class:`Cache`.
        clock: As in :class:`Cache`.

    Raises:
        ConfigError: An option is not what it may be; the message names it.
    """

    _keeps = "outputs of steps"

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        model: str,
        ttls: Mapping[Staleness, float] | Mapping[str, float] | None = None,
        hit_budgets: Mapping[str, float] | None = None,
        exact_quotes: bool = False,
        namespace: str | None = None,
        ttl: float | None = None,
        max_entries: int | None = None,
        max_entry_bytes: int | None = None,
        max_bytes: int | None = 268_435_456,
        store_if: Callable[[Any], object] | None = None,
        serve_if: Callable[[Hit], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_error: Literal["warn", "raise"] = "warn",
        format: Literal["document", "log"] | None = None,
        fsync: bool | None = None,
        mode: int = 0o600,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if type(exact_quotes) is not bool:
            raise ConfigError(f"exact_quotes={exact_quotes!r}: choose True or False")
        if type(model) is not str or not model.strip():
            raise ConfigError(f"model={model!r}: name the model; its outputs are kept apart")
        self.model = model
        self._ttls = checked_ttls(ttls)
        self._budgets = {} if hit_budgets is None else checked_budgets(hit_budgets)
        self._normalizer = Normalizer(form="NFKC", collapse=True, trim=True)
        self._exact_quotes = exact_quotes
        self._seen: dict[str, list[int]] = {}  # by step: served, run, run past the cache
        self._recorders: list[Recorder] = []
        super().__init__(
            "steps",
            "s",
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
        self._inputs = Inputs()
        if self.path is not None:
            self._inputs.own.append(self.path)

    # Running.

    def run(
        self,
        step: Step,
        prompt: str,
        compute: Callable[[str], Any],
        *,
        inputs: PathLike | Tree | Iterable[PathLike | Tree] = (),
        digest: Any = None,
        context: dict[str, Any] | None = None,
        wait: float = 30.0,
    ) -> Done:
        """Return what is kept of *step* for *prompt*, or run it.

        Equal runs at the same time, in any process, run once. An output is kept
        only if its inputs are after the run what they were before it.

        Args:
            step: The step.
            prompt: The prompt, in full.
            compute: Runs the step: gets *prompt*, gives a JSON value. What it
                raises passes through; nothing is kept.
            inputs: The files and folders that it reads, one or several; their
                content, names and order are in the key. One that is missing is an
                input as well; with one that can't be read it runs, and is not kept.
            digest: What stands for records that it reads: a version, a hash, any
                JSON value, or a function that gives one and is asked again after
                the run; what that raises first passes through, and afterwards has
                nothing kept. None: it reads none.
            context: All else that the output depends on: a user, a conversation.
            wait: Seconds to wait for an equal run elsewhere, before running.

        Raises:
            ConfigError: *step* is no :class:`Step`, or *wait* no duration.
            UncacheableError: Something in *inputs* is not a path.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        work = _Run(self, step, prompt, inputs, digest, context)
        if work.is_plain:
            return work.ended(work.done(compute(prompt)))
        return work.ended(work.call(wait).run(lambda: work.done(compute(prompt))))

    async def arun(
        self,
        step: Step,
        prompt: str,
        compute: Callable[[str], Any],
        *,
        inputs: PathLike | Tree | Iterable[PathLike | Tree] = (),
        digest: Any = None,
        context: dict[str, Any] | None = None,
        wait: float = 30.0,
    ) -> Done:
        """Return what is kept of *step* for *prompt*, or run it, without stopping the event loop.

        As :meth:`run`; files are read in a thread.

        Args:
            step: As in :meth:`run`.
            prompt: As in :meth:`run`.
            compute: A coroutine function, or a plain one, which runs in a thread.
            inputs: As in :meth:`run`.
            digest: As in :meth:`run`; a function of this kind is plain.
            context: As in :meth:`run`.
            wait: As in :meth:`run`.
        """
        work = _Run(self, step, prompt, inputs, digest, context)

        async def compute_it() -> Done:
            return work.done(await awaited(compute, prompt))

        if work.is_plain:
            return work.ended(await compute_it())
        return work.ended(await work.call(wait).arun(compute_it))

    def _key(
        self, step: Step, leaf: Leaf, prompt: str, content: Any, digest_: Any, context: Any
    ) -> str:
        """Return the key of one run.

        Raises:
            UncacheableError: Something in it is outside the JSON domain.
        """
        if type(prompt) is not str:
            raise UncacheableError("$.prompt", f"a prompt is a str, not {type(prompt).__name__}")
        if context is not None and type(context) is not dict:
            raise UncacheableError("$.context", "pass a dict of what the output depends on")
        tag, text = _EXACT, prompt
        if leaf is Leaf.NORMALIZED:
            tag, text = self._tag(), self._normalize(prompt)
        parts = [step.name, tag, self.model, text, content, digest_, context]
        return f"{self._scope}{_VERSION}/{digest(encode(parts, '$', sort=True))}"

    def _tag(self) -> str:
        return self._normalizer.tag + "q" * self._exact_quotes

    def _normalize(self, prompt: str) -> Any:
        if not self._exact_quotes:
            return self._normalizer(prompt)
        return _around_quotes(prompt)

    def _ttl_of(self, step: Step, leaf: Leaf) -> float | None:
        """Return the seconds for which an output may be served; None: no bound of time."""
        kind = self._ttls.get(step.staleness)
        return stricter(kind if leaf in (Leaf.TTL, Leaf.NORMALIZED) else None, self._ttl)

    # Forgetting.

    def external_write(self, paths: Any = None) -> int:
        """Declare that something outside was changed; return how many outputs it forgets.

        No step with side effects is answered with an earlier result past it,
        nor a step that declared neither inputs nor a digest, nor one that read
        *paths*; outputs under way that it touches are not kept. All processes see
        it. What can't be committed is hidden here at once, and committed before
        anything else is. Declared while the cache is off, it forgets everything
        when it is on again.

        Args:
            paths: The files and folders that changed; one, or several. None:
                unknown. Then every output of a step is forgotten, and whatever
                else in the file was read from files.

        Raises:
            UncacheableError: Something in *paths* is not a path.
            StoreError, LockTimeoutError: With ``on_error="raise"`` only.
        """
        if are_set() and is_on(DISABLE):
            self._has_missed_a_write = True
            return 0
        found = None if paths is None else named(paths)
        for recorder in list(self._recorders):
            recorder.add_write(None if found is None else list(found), self._now())
        return self._invalidate_all() if found is None else self.invalidate(list(found.values()))

    # Telling.

    def contract(self, step: Step) -> str:
        """Return the sentence that says how old a result of *step* may be."""
        leaf = admit(step)
        ttl = self._ttl_of(step, leaf)
        if leaf is Leaf.NONE and step.replay is None:
            return "this step never serves a stored result"
        bound = "of any age" if ttl is None else f"up to {_duration(ttl)} old"
        if leaf is Leaf.NONE:
            return (
                f"this step may serve its own result {bound}, for the same prompt, inputs and "
                "context, until an external write is declared"
            )
        sentence = f"this step may serve a result {bound}"
        if leaf is Leaf.NORMALIZED:
            return sentence + ", also of a prompt that differs in white space, case or Unicode form"
        if leaf is Leaf.EXACT:
            return sentence + ", while its prompt, model, inputs and context are equal"
        return sentence

    def decision_table(self, steps: Iterable[Step]) -> str:
        """Return a Markdown table of *steps*, for a design and for the test that holds it true."""
        rows = [
            "| Step | Mutable state | Stale unsafe | Side effects | Leaf | Invalidation |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for step in steps:
            leaf = admit(step)
            facts = (
                step.name.replace("|", "\\|").replace("\n", " "),
                _yes(step.reads_mutable_state),
                _yes(step.stale_is_unsafe) if step.reads_mutable_state else "n/a",
                _yes(step.side_effects),
                leaf.value,
                self._invalidation(step, leaf),
            )
            rows.append(f"| {' | '.join(facts)} |")
        return "\n".join(rows) + "\n"

    def _invalidation(self, step: Step, leaf: Leaf) -> str:
        if leaf is Leaf.NONE:
            return "none (recompute)" if step.replay is None else "external write, or other context"
        ttl = self._ttl_of(step, leaf)
        parts = [] if ttl is None else [f"TTL {_duration(ttl)}"]
        parts.append("input digest")
        if leaf is Leaf.NORMALIZED:
            parts.append(f"normalizer {self._tag()}")
        return " + ".join(parts)

    def audit(self, questions: Iterable[str]) -> list[list[str]]:
        """Return which of *questions* the normalized leaf takes for one, as lists of them.

        For a person to judge, before a step is called normalizable: the prompts
        that were recorded, say, of ``respcache.replay.read(path)``.
        """
        groups: dict[str, dict[str, None]] = {}
        for question in questions:
            text = encode(self._normalize(question), "$.question").decode()
            groups.setdefault(text, {})[question] = None
        return [list(group) for group in groups.values() if len(group) > 1]

    def record(self, path: PathLike) -> Recorder:
        """Write the inputs of all further runs to the file *path*, as JSON Lines.

        One line a run, added to what is there; outputs are not in it. Returned
        is a context manager, whose end, or ``close()``, ends the recording.
        Several processes may record into one file. With the cache off nothing
        is recorded; a disk that is full costs lines and one warning. External
        writes are recorded, too.

        Raises:
            StoreError: The file can't be opened.
        """
        from ._recording import Recorder

        recorder = Recorder(path, self._mode, self._end_recording)
        if not (are_set() and is_on(DISABLE)):
            recorder.open()
        self._recorders.append(recorder)
        self._inputs.own.append(recorder.path)
        return recorder

    def _end_recording(self, recorder: Recorder) -> None:
        self._recorders.remove(recorder)
        self._inputs.own.remove(recorder.path)

    def stats(self) -> dict[str, Any]:
        """Return what :meth:`Cache.stats` does, and ``steps``: by name, what this object has seen.

        Of each step ``hits``, ``misses`` and ``bypassed``, the ``hit_rate``, which
        is of all runs, and its ``budget``, or None.
        """
        steps = {}
        for name in dict.fromkeys([*self._budgets, *self._seen]):
            hits, misses, bypassed = self._seen.get(name, (0, 0, 0))
            runs = hits + misses + bypassed
            steps[name] = {
                "hits": hits,
                "misses": misses,
                "bypassed": bypassed,
                "hit_rate": hits / runs if runs else 0.0,
                "budget": self._budgets.get(name),
            }
        return {**super().stats(), "steps": steps}


class _Run:
    """One run of a step: what it is known by, and what may be kept of it."""

    __slots__ = (
        "_before",
        "_cache",
        "_context",
        "_digest",
        "_given",
        "_inputs",
        "_key",
        "_leaf",
        "_prompt",
        "_step",
        "is_plain",
    )

    def __init__(
        self, cache: StepCache, step: Step, prompt: str, inputs: Any, digest: Any, context: Any
    ) -> None:
        if not isinstance(step, Step):
            raise ConfigError(f"step={step!r}: pass a Step")
        self._cache = cache
        self._step = step
        self._prompt = prompt
        self._inputs: dict[str, str] = {}
        self._given = digest  # a value, or what gives one
        self._digest: bytes | None = None  # as JSON: what gave it may be changed meanwhile
        self._context = context
        self._leaf = admit(step)
        self._key = ""
        self._before: Snapshot | None = None
        cache._make_up()
        is_off = are_set() and is_on(DISABLE)
        self.is_plain = is_off or (self._leaf is Leaf.NONE and step.replay is None)
        if not is_off:
            self._inputs = named(inputs)
        if self.is_plain:
            cache._bypassed += 1
            cache._tell("bypass", self._subject(), time.perf_counter())

    def call(self, wait: float) -> Call:
        return Call(
            self._cache,
            self._subject(),
            look=self._look,
            key=self._find_key,
            sign=self._sign,
            entry=self._entry,
            wait=wait,
            is_slow=True,
        )

    def done(self, output: Any) -> Done:
        return Done(output, False, 0.0, self._leaf)

    def ended(self, done: Done) -> Done:
        """Count and record the run that gave *done*."""
        cache = self._cache
        seen = cache._seen.setdefault(self._step.name, [0, 0, 0])
        is_set = are_set()
        is_past = self.is_plain or (is_set and is_on(REFRESH))
        seen[0 if done.cached else 2 if is_past else 1] += 1
        if cache._recorders and not (is_set and is_on(DISABLE)):
            digest = self._digest or self._digest_now()
            for recorder in list(cache._recorders):
                recorder.add(
                    self._step,
                    cache.model,
                    self._prompt,
                    list(self._inputs),
                    digest,
                    self._context,
                    cache._now(),
                )
        return done

    def _subject(self) -> str:
        return f"{self._step.name}: {self._prompt}"

    def _find_key(self) -> str:
        if not self._key:
            before = self._cache._inputs.take(self._inputs)
            value = self._given() if callable(self._given) else self._given
            self._digest = encode(value, "$.digest", sort=True)
            self._key = self._cache._key(
                self._step, self._leaf, self._prompt, before.content, value, self._context
            )
            self._before = before
        return self._key

    def _digest_now(self) -> bytes | None:
        """Return the digest after the run; None: it can't be told, which must not cost the output."""
        try:
            value = self._given() if callable(self._given) else self._given
            return encode(value, "$.digest", sort=True)
        except Exception as error:  # noqa: BLE001 - a database that is away, for one
            from logging import getLogger

            getLogger("respcache").debug("%s: its digest failed: %r", self._step.name, error)
            return None

    def _look(self) -> Hit | None:
        cache, step = self._cache, self._step
        try:
            key = self._find_key()
        except UncacheableError:
            return None
        entry = cache._do(lambda store: store.get(key))
        if entry is None or entry.meta != self._meta():
            return None  # it was kept under another class, or on another leaf
        hit = cache._serve(entry, cache._ttl_of(step, self._leaf))
        if hit is None:
            return None
        done = Done(hit.response, True, hit.age or 0.0, self._leaf)
        return Hit(done, hit.question, hit.stored_at, hit.age)  # theirs is serve_if's to keep

    def _meta(self) -> dict[str, Any]:
        step = self._step
        return {"step": step.name, "leaf": self._leaf.value, "class": step.staleness.value}

    def _sign(self) -> dict[str, Any]:
        step = self._step
        found = dependencies(self._inputs.values())
        is_declared = bool(found) or self._given is not None
        # What it reads or changes is not known: whatever is written may be that.
        if step.side_effects or (step.reads_mutable_state and not is_declared):
            return EVERYTHING
        return found

    def _entry(self, done: Done, signed: dict[str, Any]) -> Entry | None:
        """Return the entry to keep, or None if it may not be kept.

        Raises:
            UncacheableError: The output is outside the JSON domain, or an input
                can't be read any more.
        """
        cache = self._cache
        if cache._inputs.take(self._inputs) != self._before or self._digest_now() != self._digest:
            return None
        entry = new_entry(
            self._key,
            self._subject(),
            done.output,
            "$.output",
            id=new_id(),
            stored_at=cache._stamp(),
            ttl=cache._ttl_of(self._step, self._leaf),
            context=None if self._context is None else field_digests(self._context),
            meta=self._meta(),
            **signed,
        )
        if cache._max_entry_bytes is not None and entry.size > cache._max_entry_bytes:
            return None
        if cache._store_if is not None and not cache._store_if(done.output):
            return None
        return entry


def checked_budgets(budgets: Mapping[str, float]) -> dict[str, float]:
    """Return *budgets*, shares of runs by name of step.

    Raises:
        ConfigError: One is no share.
    """
    if not hasattr(budgets, "items"):
        raise ConfigError(f"hit_budgets={budgets!r}: pass a mapping of step to a share of its runs")
    for name, budget in budgets.items():
        if type(budget) not in (int, float) or not 0 <= budget <= 1:
            raise ConfigError(
                f"hit_budgets: {name}={budget!r}: choose a share of the runs, from 0 to 1"
            )
    return dict(budgets)


_PIECE = Normalizer(form="NFKC", collapse=True)


def _around_quotes(prompt: str) -> list[str]:
    """Return *prompt* in pieces: normalized ones, and between them those within quotes, as typed."""
    pieces = []
    at = 0
    for quoted in _QUOTED.finditer(prompt):
        pieces += [_PIECE(prompt[at : quoted.start()]), quoted.group()]
        at = quoted.end()
    pieces.append(_PIECE(prompt[at:]))
    pieces[0] = pieces[0].lstrip()
    pieces[-1] = pieces[-1].rstrip()  # of one alone, both ends
    return pieces


def _duration(seconds: float) -> str:
    amount, unit = (seconds, "second") if seconds < 60 else (seconds / 60, "minute")
    return f"{amount:g} {unit}{'' if amount == 1 else 's'}"


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
