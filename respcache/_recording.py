"""Recordings: the inputs of real runs, by which a cache can be tried before it is switched on."""

from __future__ import annotations

import json
import os
from copy import deepcopy

from ._atomic import APPEND, write
from ._json import encode
from ._paths import absolute
from .errors import ConfigError, StoreError, UncacheableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self

    from ._admission import Step
    from ._paths import PathLike

__all__ = ["Item", "Recorder", "Write", "read", "read_all"]


class Item:
    """One recorded run; ``item["step"]`` is ``item.step``.

    Attributes:
        step: The name of the step.
        model: The model of the cache that recorded it.
        prompt: The prompt.
        inputs: The paths that it read, as they were given. In a replay, those of
            private copies: read these.
        digest: The digest that was given, or None.
        context: The context that was given, or None.
        at: When it ended, in seconds since the epoch.
        rest: What else its line says, ``item["name"]`` as well.
        line: The number of its line.
    """

    __slots__ = ("at", "context", "digest", "inputs", "line", "model", "prompt", "rest", "step")

    def __init__(
        self,
        step: str,
        model: str,
        prompt: str,
        inputs: list[str],
        digest: Any,
        context: dict[str, Any] | None,
        at: float,
        rest: dict[str, Any],
        line: int,
    ) -> None:
        self.step = step
        self.model = model
        self.prompt = prompt
        self.inputs = inputs
        self.digest = digest
        self.context = context
        self.at = at
        self.rest = rest
        self.line = line

    def copy(self, inputs: list[str] | None = None) -> Item:
        """Return an item of its own, with other *inputs* if they are given."""
        return Item(
            self.step,
            self.model,
            self.prompt,
            list(self.inputs if inputs is None else inputs),
            deepcopy(self.digest),
            deepcopy(self.context),
            self.at,
            deepcopy(self.rest),
            self.line,
        )

    def __getitem__(self, name: str) -> Any:
        return self.rest[name] if name in self.rest else getattr(self, name)

    def __repr__(self) -> str:
        return f"Item({self.step!r}, {self.prompt!r}, line={self.line})"


class Write:
    """An external write that was declared between recorded runs.

    Attributes:
        paths: What it changed, as it was given; None: unknown.
        at: When, in seconds since the epoch.
        line: The number of its line.
    """

    __slots__ = ("at", "line", "paths")

    def __init__(self, paths: list[str] | None, at: float, line: int) -> None:
        self.paths = paths
        self.at = at
        self.line = line


class Recorder:
    """Add runs to a recording until it is closed.

    Args:
        path: The file.
        mode: Its permissions, if it is made.
        on_close: Gets this recorder.
    """

    def __init__(self, path: PathLike, mode: int, on_close: Callable[[Recorder], object]) -> None:
        self.path = os.path.abspath(path)
        self._mode = mode
        self._on_close = on_close
        self._fd: int | None = None
        self._has_warned = self._is_closed = False

    def open(self) -> int:
        """Open the file, if it is not open yet, and return its descriptor.

        Raises:
            StoreError: It can't be opened.
        """
        if self._fd is None:
            try:
                self._fd = os.open(self.path, APPEND | os.O_CREAT, self._mode)
            except OSError as error:
                raise StoreError(self.path, f"can't record there: {error.strerror}") from None
        return self._fd

    def add(
        self,
        step: Step,
        model: str,
        prompt: str,
        inputs: list[str],
        digest: bytes | None,
        context: Any,
        at: float,
    ) -> None:
        """Write one run; *digest* is JSON, None where it can't be told."""

        def line() -> bytes:
            if digest is None:
                raise UncacheableError("digest", "it can't be told")
            if type(prompt) is not str or not (context is None or type(context) is dict):
                raise UncacheableError("prompt or context", "is of a kind that is not kept")
            form = {"step": step.name, "model": model, "prompt": prompt, "inputs": inputs}
            rest = encode({"context": context, "at": at})
            return encode(form)[:-1] + b',"digest":' + digest + b"," + rest[1:]

        self._write(line, f"a run of {step.name!r}")

    def add_write(self, paths: list[str] | None, at: float) -> None:
        """Write that something outside was changed."""
        self._write(lambda: encode({"external_write": paths, "at": at}), "an external write")

    def _write(self, line: Callable[[], bytes], what: str) -> None:
        """Write a line at once: other processes may record here, too."""
        try:
            write(self.open(), line() + b"\n")
        except (OSError, UncacheableError) as error:
            if not self._has_warned:
                self._has_warned = True
                from logging import getLogger

                getLogger("respcache").warning("%s: %s is not recorded: %s", self.path, what, error)

    def close(self) -> None:
        """End the recording."""
        if not self._is_closed:
            self._is_closed = True
            self._on_close(self)
            if self._fd is not None:
                os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read(path: PathLike) -> list[Item]:
    """Return the runs that are recorded in the file *path*, as :func:`read_all` does."""
    return [each for each in read_all(path) if isinstance(each, Item)]


def read_all(path: PathLike) -> list[Item | Write]:
    """Return the runs and the external writes that are recorded in the file *path*.

    What a killed process left of a last line is passed over.

    Raises:
        ConfigError: There is no such file, or a line is not of a recording; it
            names the line.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{name}: can't be read: {error.strerror}") from None
    items: list[Item | Write] = []
    for number, line in enumerate(lines, 1):
        try:
            form = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise ConfigError(f"{name}, line {number}: is no JSON ({error}); take it out") from None
        if form is not None:
            items.append(_item(name, number, form))
    return items


def _item(name: str, number: int, form: Any) -> Item | Write:
    match form:
        case {"external_write": [*_] | None as paths, "at": int() | float() as at}:
            if _are_paths(paths or []):
                return Write(paths, at, number)
        case {"step": str(step), "model": str(model), "prompt": str(prompt)}:
            inputs = form.pop("inputs", [])
            digest, context = form.pop("digest", None), form.pop("context", None)
            at = form.pop("at", 0.0)
            rest = {key: form[key] for key in form if key not in ("step", "model", "prompt")}
            if (
                type(inputs) is list
                and _are_paths(inputs)
                and (context is None or type(context) is dict)
                and type(at) in (int, float)
            ):
                return Item(step, model, prompt, inputs, digest, context, at, rest, number)
    raise ConfigError(
        f"{name}, line {number}: is no recorded run; "
        'it needs texts "step", "model" and "prompt", a list "inputs" of paths and a "context" '
        "that is an object or null"
    )


def _are_paths(names: list[Any]) -> bool:
    if not all(type(name) is str for name in names):
        return False
    try:
        return len(list(absolute(names))) == len(names)
    except UncacheableError:
        return False
