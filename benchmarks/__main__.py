"""``python -m benchmarks [names]``: run them, print the tables, draw the plots."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from ._figures import Run, environment, environment_line
from ._harness import FULL, QUICK, SMOKE
from ._plots import FOLDER, draw, is_possible
from ._progress import watched

NAMES = ("hit", "document", "cold", "lock", "stores", "after", "growth", "tools", "hook")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; none: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="FOLDER",
        help="draw the plots there; a full run of all draws those of the README",
    )
    parser.add_argument(
        "--no-plots", dest="draws", action="store_false", help="draw none, also after a full run"
    )
    effort = parser.add_mutually_exclusive_group()
    for flag, less, why in (
        ("--quick", QUICK, "fewer rounds, noisier figures"),
        ("--smoke", SMOKE, "next to nothing, only to see that all runs"),
    ):
        effort.add_argument(
            flag, dest="effort", action="store_const", const=less, default=FULL, help=why
        )
    asked = parser.parse_args()
    for name in asked.names:
        if name not in NAMES:
            parser.error(f"there is no benchmark {name!r}; choose from {', '.join(NAMES)}")
    names = asked.names or NAMES
    plots = asked.plots or (FOLDER if asked.effort is FULL and set(names) == set(NAMES) else None)
    if not asked.draws:
        plots = None
    if plots is not None and not is_possible():
        parser.error("the plots need matplotlib: pip install -e '.[bench]', or --no-plots")

    facts = environment()
    print(environment_line(facts), end="\n\n", flush=True)
    began = monotonic()
    tables = {}
    for place, name in enumerate(names):
        bench = import_module(f"{__package__}.bench_{name}")
        with (
            TemporaryDirectory(prefix="respcache-bench-") as folder,
            watched(name, place, len(names)),
        ):
            tables[name] = bench.run(asked.effort, Path(folder))
        for table in tables[name]:
            print(table, flush=True)
    flags = {id(QUICK): ["--quick"], id(SMOKE): ["--smoke"]}.get(id(asked.effort), [])
    command = " ".join(["python -m benchmarks", *asked.names, *flags])
    run = Run(command, monotonic() - began, facts, tables)
    if asked.json is not None:
        run.write(asked.json)
    if plots is not None:
        for path in draw(run, plots):
            print(f"drawn: {path}")


if __name__ == "__main__":
    main()
