"""What does a fresh process pay for one question, such as a hook?

Whole processes, from the start to the end of ``python -c program``, against
``python -c pass`` with the same flags. The interpreter is that of a bare
virtual environment, so that no other package has a part in its start; each
program adds the one folder that it needs to ``sys.path``.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import question, text
from ._harness import Effort, Group, Table, by_turns, is_installed, samples_of

_SIZES = (1_000, 10_000)
_FLAGS = (["-I"], ["-I", "-S"])  # with site, as people run it, and without
_BASE = "pass"
_REACHES = {1_000: {_BASE: 2.2}}

# Each of these exits with 1 on a miss.
_LOOKUPS = {
    "respcache": "from respcache import Cache\n"
    "raise SystemExit(Cache({path!r}).lookup({asked!r}) is None)",
    "diskcache": "from diskcache import Cache\n"
    "raise SystemExit(Cache({path!r}).get({asked!r}.casefold()) is None)",
    "sqlite3": "import sqlite3\n"
    "query = 'SELECT response FROM answers WHERE question = ?'\n"
    "rows = sqlite3.connect({path!r}).execute(query, ({asked!r}.casefold(),))\n"
    "raise SystemExit(rows.fetchone() is None)",
}


@dataclass(frozen=True)
class Job:
    """A program for each contender, and the status that it exits with."""

    label: str
    programs: Mapping[str, str]
    status: int = 0
    reaches: Mapping[str, float] = field(default_factory=dict)


def run(effort: Effort, folder: Path) -> list[Table]:
    python = _bare_interpreter(folder / "python")
    jobs = list(_jobs(effort, folder))
    return [_table([python, *flags], jobs, effort.rounds) for flags in _FLAGS]


def _bare_interpreter(folder: Path) -> str:
    builder = venv.EnvBuilder(symlinks=os.name != "nt")
    builder.create(folder)
    return str(builder.ensure_directories(folder).env_exe)


def _jobs(effort: Effort, folder: Path) -> Iterator[Job]:
    names = [name for name in _LOOKUPS if is_installed(name)]
    yield Job("import", {name: _program(name, f"import {name}") for name in names})
    with_class = [name for name in names if name != "sqlite3"]  # respcache loads it when asked
    yield Job(
        "import Cache", {name: _program(name, f"from {name} import Cache") for name in with_class}
    )
    for entries in sorted({min(size, effort.entries) for size in _SIZES}):
        paths = _fill(f"{folder}/{entries}", entries)
        for kind, number, status in (("hit", entries // 2, 0), ("miss", entries, 1)):
            programs = {
                name: _program(name, lookup.format(path=paths[name], asked=question(number)))
                for name, lookup in _LOOKUPS.items()
                if name in names
            }
            yield Job(f"{kind}, {entries:,} entries", programs, status, _REACHES.get(entries, {}))


def _fill(path: str, entries: int) -> dict[str, str]:
    """Store *entries* with each contender, and return where each has them."""
    pairs = [(question(number), text(number)) for number in range(entries)]
    paths = {"sqlite3": f"{path}.sqlite3"}
    with sqlite3.connect(paths["sqlite3"]) as database:
        database.execute("CREATE TABLE answers (question TEXT PRIMARY KEY, response TEXT)")
        folded = ((asked.casefold(), response) for asked, response in pairs)
        database.executemany("INSERT INTO answers VALUES (?, ?)", folded)
    database.close()
    for name, attribute in (("respcache", "path"), ("diskcache", "directory")):
        if is_installed(name):
            with contenders.load(name).open(path, pairs) as cache:
                paths[name] = getattr(cache, attribute)
    return paths


def _program(name: str, code: str) -> str:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    if name == "sqlite3":
        return code
    return f"import sys\nsys.path.append({str(Path(spec.origin).parents[1])!r})\n{code}"


def _table(command: list[str], jobs: list[Job], rounds: int) -> Table:
    def timed(program: str, status: int = 0) -> list[float]:
        began = perf_counter()
        done = subprocess.run([*command, "-c", program], stdin=subprocess.DEVNULL, check=False)
        seconds = perf_counter() - began
        if done.returncode != status:
            raise RuntimeError(f"exit status {done.returncode} instead of {status}:\n{program}")
        return [seconds]

    flags = " ".join(command[1:])
    runs = {
        (job.label, name): partial(timed, program, job.status)
        for job in jobs
        for name, program in job.programs.items()
    }
    runs["", _BASE] = partial(timed, "pass")
    values = by_turns(f"cold, {flags}", rounds, runs)
    groups = []
    for job in jobs:
        own = {_BASE: values["", _BASE]} | {name: values[job.label, name] for name in job.programs}
        groups.append(Group(job.label, samples_of(own, "ms"), job.reaches))
    return Table(f"A fresh process, python {flags} -c", groups, (_BASE, "diskcache", "sqlite3"))
