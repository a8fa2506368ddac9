"""The errors that respcache raises.

::

    RespcacheError                        base, never raised itself
    ├── ConfigError        (ValueError)   an option is unknown, of the wrong type, or out of range
    ├── UncacheableError   (TypeError)    a question or a value is outside the JSON domain
    ├── LockTimeoutError   (TimeoutError) another process kept the file lock longer than asked
    └── StoreError         (OSError)      the file system or the file itself refused

A miss is a value (None), never an error, and what the caller's own functions
raise passes through unchanged. All arguments go into ``args``, so that each
error can be pickled to another process.
"""

from __future__ import annotations

__all__ = ["ConfigError", "LockTimeoutError", "RespcacheError", "StoreError", "UncacheableError"]


class RespcacheError(Exception):
    """Base of all errors of this package; never raised itself."""


class ConfigError(RespcacheError, ValueError):
    """An option is unknown, of the wrong type, or out of range; the message names it."""


class UncacheableError(RespcacheError, TypeError):
    """A question, context or value can't be kept unchanged as JSON.

    Args:
        place: Where, as a path into the value: ``$.messages[2].content``.
        why: What is wrong there, and what to do instead.
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


class LockTimeoutError(RespcacheError, TimeoutError):
    """The lock of a cache file was not had in time; nothing was written.

    Args:
        path: The lock file.
        waited: Seconds that were spent waiting.
    """

    def __init__(self, path: str, waited: float) -> None:
        super().__init__()
        self.args = (path, waited)
        self.path = path
        self.waited = waited

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        # OSError gives a meaning of its own to two or three arguments.
        return type(self), (self.path, self.waited)

    def __str__(self) -> str:
        return (
            f"{self.path}: held by another process (waited {self.waited:.3g} s); "
            "a larger lock_timeout waits longer"
        )


class StoreError(RespcacheError, OSError):
    """The cache file can't be read or written; the cause is in ``__cause__``.

    Args:
        path: The file or folder concerned.
        why: What was refused, and the remedy.
        errno: The number of the operating system's error, or None.
    """

    def __init__(self, path: str, why: str, errno: int | None = None) -> None:
        super().__init__()
        self.args = (path, why, errno)
        self.path = path
        self.why = why
        self.errno = errno

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None]]:
        return type(self), (self.path, self.why, self.errno)

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
