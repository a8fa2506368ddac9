"""``python -m benchmarks [names] [--json FILE] [--quick]``: run them, and print the tables."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from ._harness import FULL, QUICK, SMOKE, environment_line, write_json

NAMES = ("hit", "document", "cold", "lock")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=f"of {', '.join(NAMES)}; none: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
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

    print(environment_line(), end="\n\n", flush=True)
    tables = {}
    for name in asked.names:
        bench = import_module(f"{__package__}.bench_{name}")
        with TemporaryDirectory(prefix="respcache-bench-") as folder:
            tables[name] = bench.run(asked.effort, Path(folder))
        for table in tables[name]:
            print(table, flush=True)
    if asked.json is not None:
        write_json(asked.json, tables)


if __name__ == "__main__":
    main()
