"""Talk to people: data on stdout, everything else on stderr, and escapes on terminals only."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TextIO

    Tell = Callable[[int, int | None], None]

__all__ = ["is_terminal", "one_line", "progress", "say", "span", "table", "write", "write_json"]

_PATIENCE = 1.0  # seconds after which somebody who waits wants to see why
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def is_terminal(stream: TextIO) -> bool:
    """Tell whether escapes do on *stream* what they should.

    The environment is not asked for more: FORCE_COLOR would put them into files.
    """
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def say(text: str) -> None:
    """Say *text* on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Write the line *text* to stdout, in UTF-8 where its own encoding can't."""
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="surrogateescape") + b"\n")


def write_json(value: Any) -> None:
    """Write *value* to stdout as one line of JSON."""
    import json

    write(json.dumps(value, ensure_ascii=False))


def one_line(text: str) -> str:
    """Return *text* with what is no letter escaped: it may hold what drives a terminal."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def span(seconds: float | None) -> str:
    """Return so many seconds for people, rounded down: ``"12 s"``, ``"3 h"``; of None, ``"-"``."""
    if seconds is None:
        return "-"
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 1:.0f} s"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: str = "") -> None:
    """Write a table to stdout: with a frame on a terminal, else as aligned columns.

    Args:
        columns: The headers. All empty: there is no header.
        rows: The cells, each of one line.
        numbers: The headers of columns that are aligned to the right, in one text.
    """
    rights = [name in numbers.split() for name in columns]
    if is_terminal(sys.stdout):
        _frame(columns, rows, rights)
        return
    lines = [list(columns), *rows] if any(columns) else list(rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, rights, strict=True)
        ]
        write("  ".join(cells).rstrip())


def _frame(columns: Sequence[str], rows: Sequence[Sequence[str]], rights: list[bool]) -> None:
    from rich.box import ROUNDED
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=ROUNDED, show_header=any(columns))
    for name, is_right in zip(columns, rights, strict=True):
        made.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))  # Text: brackets in it are no markup
    Console().print(made, highlight=False)


@contextmanager
def progress(label: str) -> Iterator[Tell]:
    """Show on a terminal that *label* is under way, once it has taken a second.

    Gives a function that is told how much is done and how much there is in all;
    while it is not called, the bar tells only that something happens.
    """
    if not is_terminal(sys.stderr):
        yield lambda done, total: None  # noqa: ARG005
        return
    from threading import Timer

    bar = _Bar(label)
    timer = Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.tell
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


class _Bar:
    """A bar on stderr that is not there before it is started, by another thread."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._shown: Any = None
        self._task: Any = None
        self._known: tuple[int, int | None] = (0, None)

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        done, total = self._known
        self._task = shown.add_task(self._label, total=total, completed=done)
        shown.start()
        self._shown = shown

    def tell(self, done: int, total: int | None) -> None:
        self._known = (done, total)
        if self._shown is not None:
            self._shown.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        if self._shown is not None:
            self._shown.stop()
