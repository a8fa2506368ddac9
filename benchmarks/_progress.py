"""How far a run is: a bar where a person watches, else a line for each stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ._figures import is_installed

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_bar: tuple[Progress, TaskID] | None = None


@contextmanager
def watched(name: str, place: int, count: int) -> Iterator[None]:
    """Show how far the benchmark *name* is, number *place* (from 0) of *count*."""
    global _bar
    if not (sys.stderr.isatty() and is_installed("rich")):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    progress = Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,  # no thread of its own beside what is measured
    )
    with progress:
        progress.add_task("benchmarks", total=count, completed=place)
        _bar = progress, progress.add_task(name)
        try:
            yield
        finally:
            _bar = None


def show(stage: str, number: int, count: int) -> None:
    """Tell that *number* of *count* steps of *stage* are done."""
    if _bar is not None:
        progress, task = _bar
        progress.update(task, description=stage, completed=number, total=count, refresh=True)
    elif not number:
        print(stage, file=sys.stderr, flush=True)
