"""``python -m benchmarks._report FILE``: show the run of that JSON in the README, with its plots.

What stands there between ``<!-- figures: name -->`` and ``<!-- end -->`` is replaced,
all of it or nothing, so that the figures are those of one run.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from ._figures import Run, environment_line, markdown
from ._plots import FOLDER, draw

README = Path(__file__).with_name("README.md")
_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._report", description=__doc__)
    parser.add_argument("file", type=Path, help="what python -m benchmarks --json has written")
    run = Run.read(parser.parse_args().file)
    try:
        text = rewritten(README.read_text(encoding="utf-8"), blocks(run))
    except ValueError as error:
        parser.error(str(error))
    README.write_text(text, encoding="utf-8")
    draw(run, FOLDER)


def blocks(run: Run) -> dict[str, str]:
    """Return what the README shows of *run*, by the names of the places."""
    minutes = max(1, round(run.seconds / 60))
    return {
        "run": f"{environment_line(run.environment)}. "
        f"Command: `{run.command}`, {minutes} minute{'s' if minutes > 1 else ''}.\n",
        "reaches": _reaches(run),
        **{name: "\n".join(map(str, tables)) for name, tables in run.benchmarks.items()},
    }


def rewritten(text: str, blocks: Mapping[str, str]) -> str:
    """Return *text* with *blocks* in their places.

    Raises:
        ValueError: There is a place without a block, or a block without a place.
    """
    places = [match[2] for match in _BLOCK.finditer(text)]
    missing = [name for name in places if name not in blocks]
    if missing:
        raise ValueError(f"the run has no figures of {', '.join(missing)}; run all benchmarks")
    homeless = [name for name in blocks if name not in places]
    if homeless:
        raise ValueError(f"the README has no place for {', '.join(homeless)}")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match[2]]}\n{match[3]}", text)


def _reaches(run: Run) -> str:
    head = ["what", "of", "measured", "to reach", ""]
    rows = [
        [
            f"{table.title}: {group.label}",
            verdict.reach.subject,
            verdict.measured,
            verdict.asked,
            verdict.outcome,
        ]
        for tables in run.benchmarks.values()
        for table in tables
        for group in table.groups
        for verdict in group.verdicts()
    ]
    return "\n".join(markdown([head, *rows], range(len(head)))) + "\n"


if __name__ == "__main__":
    main()
