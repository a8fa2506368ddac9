"""The inside of a fresh interpreter: ``python -m benchmarks._child bench contender``.

Reads ``[task, arguments]`` a line, calls that method of the benchmark's
``Worker``, and writes what it returns, a line of JSON each.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(bench: str, contender: str) -> None:
    worker = import_module(bench).Worker(contender)
    for line in sys.stdin:
        task, arguments = json.loads(line)
        print(json.dumps(getattr(worker, task)(**arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
