"""Plain functions as tools: their names, and their arguments as JSON."""

from __future__ import annotations

import os
import sys

from ._toolcall import ToolCall
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._tools import ToolCache

__all__ = ["decorated"]


def decorated(
    tools: ToolCache,
    function: Any,
    name: str | None,
    register: Callable[[str], None],
    *,
    writes: bool,
) -> Any:
    """Return *function* such that each call of it is a call of a tool of *tools*.

    Args:
        tools: The cache.
        function: A function, or a coroutine function.
        name: The tool's name; None: the function's own.
        register: Gets the name.
        writes: Whether it changes something.

    Raises:
        ConfigError: There is no name that is its own.
    """
    from functools import wraps
    from inspect import (
        Parameter,
        isasyncgenfunction,
        iscoroutinefunction,
        isgeneratorfunction,
        signature,
        unwrap,
    )

    inner = unwrap(function)
    tool = _name_of(function) if name is None else name
    if writes and (isgeneratorfunction(inner) or isasyncgenfunction(inner)):
        raise ConfigError(f"{tool}: yields, and goes on when the call is over; use stream()")
    register(tool)
    shape = signature(function)
    packed = {
        each.name: dict if each.kind is Parameter.VAR_KEYWORD else list
        for each in shape.parameters.values()
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }

    def call_of(given: tuple[Any, ...], named: dict[str, Any]) -> ToolCall:
        bound = shape.bind(*given, **named)
        bound.apply_defaults()
        arguments = {
            each: packed[each](value) if each in packed else value
            for each, value in bound.arguments.items()
        }
        return ToolCall(tool, arguments)

    if iscoroutinefunction(inner):

        @wraps(function)
        async def acalled(*given: Any, **named: Any) -> Any:
            async def compute(_: ToolCall) -> Any:
                return await function(*given, **named)  # a wrapper of one, perhaps

            return (await tools.acall(call_of(given, named), compute)).content

        return acalled

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        return tools.call(call_of(given, named), lambda _: function(*given, **named)).content

    return called


def _name_of(function: Any) -> str:
    module = getattr(function, "__module__", None)
    own = getattr(function, "__qualname__", None)
    if type(module) is not str or type(own) is not str or "<lambda>" in own:
        raise ConfigError(
            f"{function!r}: has no name of its own, and others would share its results; pass name="
        )
    if module == "__main__":
        # Each script is called so; two of them may share the file.
        script = getattr(sys.modules["__main__"], "__file__", None)
        module = os.path.realpath(script) if script else module
    return f"{module}.{own}"
