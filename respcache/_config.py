"""Options: which there are, what they may be, and what is wrong with one that is not."""

from __future__ import annotations

import os

from ._keys import Normalizer
from ._rules import LONGEST
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["UNSET", "Config", "check", "check_ttl", "enabled_options"]


class _Unset:
    """Stands for an argument that was not given, where None means something."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()


def _flag(value: Any) -> str | None:
    return None if type(value) is bool else "choose True or False"


def _maybe_flag(value: Any) -> str | None:
    return None if value is None else _flag(value)


def _count(value: Any) -> str | None:
    if value is None or (type(value) is int and value > 0):
        return None
    return "choose a whole number above 0, or None for no limit"


def _duration(value: Any) -> str | None:
    if type(value) in (int, float) and 0 < value < float("inf"):
        return None
    return "choose a number of seconds above 0"


def _ttl(value: Any) -> str | None:
    if value is None or (_duration(value) is None and value <= LONGEST):
        return None
    return f"choose a number of seconds above 0, up to {LONGEST:g}, or None for ever"


def _function(value: Any) -> str | None:
    return None if value is None or callable(value) else "choose a function, or None"


def _clock(value: Any) -> str | None:
    return None if callable(value) else "choose a function that gives seconds since the epoch"


def _path(value: Any) -> str | None:
    if value is None or (isinstance(value, str | os.PathLike) and type(os.fspath(value)) is str):
        text = "" if value is None else os.fspath(value)
        if value is None or (text and "\0" not in text):
            return None
    return "choose the path of a file, or None for memory only"


def _namespace(value: Any) -> str | None:
    if value is None or (type(value) is str and value):
        try:
            (value or "").encode()
        except UnicodeEncodeError:
            return "choose a text without lone surrogates"
        return None
    return "choose a text that is not empty, or None for the shared one"


def _normalizer(value: Any) -> str | None:
    return (
        None if value is None or isinstance(value, Normalizer) else "choose a Normalizer, or None"
    )


def _mode(value: Any) -> str | None:
    if type(value) is int and value & 0o600 == 0o600 and not value & ~0o666:
        return None
    return "choose permissions such as 0o600 or 0o660; the owner must read and write"


def _one_of(*choices: str | None) -> Callable[[Any], str | None]:
    return lambda value: (
        None if value in choices else f"choose one of {', '.join(map(repr, choices))}"
    )


def _turns(value: Any) -> str | None:
    if value is None or (type(value) is int and value > 0):
        return None
    return "choose a whole number of turns above 0, or None to count none"


def _marker(value: Any) -> str | None:
    is_fit = value is None or callable(value) or (type(value) is str and value)
    return None if is_fit else "choose a text, a function of the hit, or None"


_OF_QUESTIONS = ("case_sensitive", "trim_spaces", "normalizer")

# Of tool caches only.
_TOOLS: dict[str, tuple[Any, Callable[[Any], str | None]]] = {
    "ttl_turns": (None, _turns),
    "marker": (None, _marker),
    "report_duration": ("original", _one_of("original", "zero")),
    "text_only": (False, _flag),
}

_RULES: dict[str, tuple[Any, Callable[[Any], str | None]]] = {
    "enabled": (False, _flag),
    "path": (None, _path),
    "case_sensitive": (False, _flag),
    "trim_spaces": (False, _flag),
    "normalizer": (None, _normalizer),
    "namespace": (None, _namespace),
    "ttl": (None, _ttl),
    "max_entries": (None, _count),
    "max_entry_bytes": (None, _count),
    "max_bytes": (268_435_456, _count),
    "store_if": (None, _function),
    "serve_if": (None, _function),
    "on_event": (None, _function),
    "on_error": ("warn", _one_of("warn", "raise")),
    "format": (None, _one_of(None, "document", "log", "flat")),
    "fsync": (None, _maybe_flag),
    "mode": (0o600, _mode),
    "lock_timeout": (10.0, _duration),
}


def check(**options: Any) -> None:
    """Refuse the first of *options* that is not what it may be.

    Raises:
        ConfigError: It names the option and what to choose instead.
    """
    for name, value in options.items():
        rule = _clock if name == "clock" else (_RULES.get(name) or _TOOLS[name])[1]
        wrong = rule(value)
        if wrong is not None:
            raise ConfigError(f"{name}={value!r}: {wrong}")


def check_ttl(ttl: Any) -> None:
    """Refuse a per-call *ttl* that is not None, 0 (do not keep) or seconds above 0."""
    if not (type(ttl) is int and ttl == 0) and not (type(ttl) is float and ttl == 0):
        check(ttl=ttl)


class Config:
    """The options of a cache as one value, for config files and for passing on.

    Args:
        enabled: Whether there is a cache at all; without it
            :meth:`Cache.from_config` gives None.
        options: All options of :class:`Cache`, with its defaults.

    Raises:
        ConfigError: An option is unknown (the nearest known one is named) or
            not what it may be.
    """

    __slots__ = ("clock", *_RULES)

    enabled: bool
    path: str | None

    def __init__(self, *, enabled: bool = False, **options: Any) -> None:
        for name in options:
            if name not in self.__slots__:
                raise ConfigError(f"{name}: {_suggest(name, self.__slots__)}")
        check(enabled=enabled, **options)
        for name, (default, _) in _RULES.items():
            setattr(self, name, options.get(name, default))
        self.clock = options.get("clock")
        self.enabled = enabled

    @classmethod
    def of(cls, config: Config | Mapping[str, Any]) -> Config:
        """Return *config* as a Config."""
        if isinstance(config, Config):
            return config
        if not hasattr(config, "keys"):
            raise ConfigError(f"config={config!r}: pass a Config or a mapping of options")
        for name in config:
            if type(name) is not str:
                raise ConfigError(f"{name!r}: option names are text")
        return cls(**config)

    def options(self) -> dict[str, Any]:
        """Return what :class:`Cache` takes, the path included."""
        given = {name: getattr(self, name) for name in _RULES if name != "enabled"}
        return given if self.clock is None else {**given, "clock": self.clock}

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, (default, _) in _RULES.items()
            if getattr(self, name) != default
        ]
        return f"Config({', '.join(changed)})"


def enabled_options(
    config: Config | Mapping[str, Any], base_dir: Any, *, of_tools: bool = False
) -> dict[str, Any] | None:
    """Return the options of a cache that *config* asks for, or None if it is not enabled.

    Raises:
        ConfigError: An option is unknown or not what it may be, or the path
            leads out of *base_dir*.
    """
    if of_tools and not isinstance(config, Config):
        options = _tool_options(config)
        enabled = options.pop("enabled", False)
    else:
        asked = Config.of(config)
        options, enabled = asked.options(), asked.enabled
        if of_tools:
            options = {
                name: value
                for name, value in options.items()
                if name == "clock" or value != _RULES[name][0]
            }
            for name in _OF_QUESTIONS:
                if name in options:
                    raise ConfigError(f"{name}: a tool cache has no such option")
    if options.get("path") is not None:
        options["path"] = _anchored(options["path"], base_dir)
    if enabled:
        return options
    if not isinstance(config, Config) and config and "enabled" not in config:
        from logging import getLogger

        getLogger("respcache").warning(
            "the cache is off: its config has %s, but no 'enabled': true",
            ", ".join(sorted(config)),
        )
    return None


def _tool_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options of *config*, those that a tool cache has."""
    if not hasattr(config, "keys"):
        raise ConfigError(f"config={config!r}: pass a Config or a mapping of options")
    known = [*(name for name in _RULES if name not in _OF_QUESTIONS), *_TOOLS, "clock", "ttl_secs"]
    for name, value in config.items():
        if name not in known:
            raise ConfigError(f"{name}: {_suggest(str(name), known)}")
        try:
            check(**{"ttl" if name == "ttl_secs" else name: value})
        except ConfigError:
            if name != "ttl_secs":
                raise
            raise ConfigError(f"ttl_secs={value!r}: {_ttl(value)}") from None
    if "ttl" in config and "ttl_secs" in config:
        raise ConfigError("ttl_secs: another name of ttl; give one of them")
    return {"ttl" if name == "ttl_secs" else name: value for name, value in config.items()}


def _suggest(name: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0)
    return f"unknown option; did you mean {str(near[0])!r}?"


def _anchored(path: Any, base_dir: Any) -> str:
    """Return *path* absolute: as it is, or within *base_dir* (None: the working folder).

    Raises:
        ConfigError: A relative path leads out of *base_dir*, by ``..`` or by a link.
    """
    text = os.fspath(path)
    if os.path.isabs(text):
        return str(text)
    base = os.path.abspath(os.getcwd() if base_dir is None else os.fspath(base_dir))
    full = os.path.normpath(os.path.join(base, text))
    for inner, outer in ((full, base), (os.path.realpath(full), os.path.realpath(base))):
        if os.path.commonpath([inner, outer]) != outer or inner == outer:
            raise ConfigError(
                f"path={text!r}: leads out of {base}; give an absolute path if it should"
            )
    return full
