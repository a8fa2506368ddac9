"""What a tool cache is told and gives back: calls, results, and how a tool reads."""

from __future__ import annotations

from ._config import UNSET, check_ttl
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ._paths import PathLike, Tree

    Found = PathLike | Tree | Iterable[PathLike | Tree] | None
    Extractor = Callable[[Mapping[str, Any], str], Found]

__all__ = ["ReadTool", "Scope", "ToolCall", "ToolResult", "check_extractor"]


class _Value:
    """Compared and shown by its slots."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # most hold JSON values

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"


class Scope(_Value):
    """Whose call it is: calls of other agents, users or sessions share no result.

    Args:
        agent: The agent. None: any.
        user: Who asks. None: nobody in particular.
        session: The run, within which turns are counted. None: no run.
    """

    __slots__ = ("agent", "session", "user")

    def __init__(
        self, *, agent: str | None = None, user: str | None = None, session: str | None = None
    ) -> None:
        self.agent = agent
        self.user = user
        self.session = session


class ToolCall(_Value):
    """One call of a tool.

    Args:
        name: The tool's name, compared to the letter.
        arguments: What it is called with, as JSON would have it.
        call_id: Stamped on the result, also on a hit.
        turn: The turn of the run that asks. None: without one.
        cwd: The folder that relative paths start from. None: the process's.
        gated: It needs somebody's approval: neither served nor kept.
        scope: Whose it is. None: nobody's in particular.
    """

    __slots__ = ("arguments", "call_id", "cwd", "gated", "name", "scope", "turn")

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str | None = None,
        turn: int | None = None,
        cwd: str | None = None,
        gated: bool = False,
        scope: Scope | None = None,
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.call_id = call_id
        self.turn = turn
        self.cwd = cwd
        self.gated = gated
        self.scope = scope


class ToolResult(_Value):
    """What a tool gave, or what is kept of it.

    Args:
        content: Any JSON value; the caller's own copy on a hit.
        is_error: The tool says that it failed: not kept.
        call_id: The id of the call that asked for it.
        duration: Seconds that the tool ran when it really ran. None: unknown.
        cached: Whether it is a hit.
        age: Seconds since a hit was made. None: it is not a hit.
        complete: False for what was cut off or cancelled: not kept.
        asked_user: True if a person was asked meanwhile: not kept.
    """

    __slots__ = (
        "age",
        "asked_user",
        "cached",
        "call_id",
        "complete",
        "content",
        "duration",
        "is_error",
    )

    def __init__(
        self,
        content: Any,
        is_error: bool = False,
        call_id: str | None = None,
        duration: float | None = None,
        cached: bool = False,
        age: float | None = None,
        complete: bool = True,
        asked_user: bool = False,
    ) -> None:
        self.content = content
        self.is_error = is_error
        self.call_id = call_id
        self.duration = duration
        self.cached = cached
        self.age = age
        self.complete = complete
        self.asked_user = asked_user


class ReadTool(_Value):
    """How the results of a reading tool are kept.

    Args:
        paths: Gives the files and ``Tree``s that a call reads, of its arguments
            and folder; or a list of them; ``()`` for none. None, or a function
            that gives None or raises: any file, so that every write forgets it.
        version: The tool's own; another version shares no results.
        per_caller: The result depends on who asks: kept per ``scope.user``,
            and not at all without one.
        ttl: Seconds that its results stay fresh, instead of the cache's own.
            None: for ever. 0: they are not kept.

    Raises:
        ConfigError: One of them is not what it may be.
    """

    __slots__ = ("paths", "per_caller", "ttl", "version")

    def __init__(
        self,
        paths: Extractor | Found,
        *,
        version: str = "1",
        per_caller: bool = False,
        ttl: float | None = UNSET,
    ) -> None:
        check_extractor(paths, "paths")
        if type(version) is not str:
            raise ConfigError(f"version={version!r}: choose a text")
        if type(per_caller) is not bool:
            raise ConfigError(f"per_caller={per_caller!r}: choose True or False")
        if ttl is not UNSET:
            check_ttl(ttl)
        self.paths = paths
        self.version = version
        self.per_caller = per_caller
        self.ttl = ttl


def check_extractor(paths: Any, name: str) -> None:
    """Refuse what is neither a function, a list of paths nor None.

    Raises:
        ConfigError: It names *name*.
    """
    if not (paths is None or callable(paths) or isinstance(paths, list | tuple)):
        raise ConfigError(
            f"{name}={paths!r}: choose a function of arguments and folder, a list of paths, or None"
        )
