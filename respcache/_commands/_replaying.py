"""``replay``: whether a cache of steps may be switched on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._terminal import one_line, progress, table, write, write_json
from ..errors import ConfigError
from ._session import AsJson, parse_json

__all__ = ["COMMANDS"]

_COLUMNS = ("step", "leaf", "runs", "hits", "wrong", "rate")


def replay(
    recording: Annotated[
        Path, typer.Argument(metavar="RECORDING", help="What StepCache.record has written.")
    ],
    run: Annotated[
        str,
        typer.Option(metavar="PACKAGE.MODULE:FUNCTION", help="Runs one item with a StepCache."),
    ],
    hit_budget: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="How many of the runs are expected to be served, from 0 to 1; "
            "or a JSON object of step to share.",
        ),
    ],
    tolerance: Annotated[
        float, typer.Option(metavar="SHARE", help="How far off the hit rate may be.")
    ] = 0.15,
    same: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="Compares two outputs, where equal ones may differ.",
            show_default=False,
        ),
    ] = None,
    make: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="Makes the cache, from a path, model= and clock=.",
            show_default="StepCache",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a recording again, and tell whether its cache may be switched on (exit code 0) or not (1).

    Functions are imported as from a script in the working folder. Each recorded
    run happens at least once more, and once again for each file that it reads.
    """
    from .. import replay as replays

    options: dict[str, Any] = {"tolerance": tolerance}
    for name, spec in (("same", same), ("make", make)):
        if spec is not None:
            options[name] = _function(spec, f"--{name}")
    budget = parse_json(hit_budget, "--hit-budget")
    function = _function(run, "--run")
    with progress("replaying") as tell:
        report = replays.replay(
            recording,
            function,
            hit_budget=budget,
            tell=lambda _, done, total: tell(done, total),
            **options,
        )
    if as_json:
        write_json(report.to_json())
    else:
        _write_report(report)
    raise typer.Exit(0 if report.passed else 1)


def _write_report(report: Any) -> None:
    rows = [
        (
            one_line(name),
            step["leaf"],
            *(str(step[count]) for count in ("runs", "hits", "wrong")),
            f"{step['hits'] / step['runs']:.2f}",
        )
        for name, step in report.steps.items()
    ]
    table(_COLUMNS, rows, numbers="runs hits wrong rate")
    for line in report.verdict():
        write(one_line(line))


def _function(spec: str, option: str) -> Any:
    """Return the function that *spec* names.

    Raises:
        ConfigError: There is none of that name; what an import raises is told with it.
    """
    from importlib import import_module

    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(f"{option}: {spec!r} names no function; write package.module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{option}: {module} can't be imported: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{option}: {module} has no function {name!r}")
    return found


COMMANDS: dict[str, Any] = {"replay": replay}
