"""What does a fresh process pay for one question, such as a hook?

Whole processes, from the start to the end of ``python -c program``, against
``python -c pass`` with the same flags. The interpreter is that of a bare
virtual environment, so that no other package has a part in its start; each
program adds the one folder that it needs to ``sys.path``. Those that must decode
a record take the standard library's json, which loads faster than orjson.
"""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import pairs, question
from ._figures import LOG, SUBJECT, Group, Reach, Table, is_installed, samples_of
from ._harness import Effort, by_turns

_SIZES = (1_000, 10_000, 100_000)
_MOST = {SUBJECT: 10_000}  # a document is for fewer
_FLAGS = {"cold": ["-I"], "cold-lean": ["-I", "-S"]}  # with site, as people run it, and without
_BASE = "pass"
_REACHES = {
    ("hit", 1_000): [Reach(2.2, _BASE), Reach(1.6, _BASE, LOG)],
    ("miss", 1_000): [Reach(2.2, _BASE)],
    ("hit", 100_000): [Reach(3.0, _BASE, LOG)],
}

# How each comes to the response, which is None on a miss.
_RECORD = "record and json.loads(record)[2]"
_RESPCACHE = "from respcache import Cache\nresponse = Cache({path!r}).get({asked!r})"
_LOOKUPS = {
    SUBJECT: _RESPCACHE,
    LOG: _RESPCACHE,
    "diskcache": "import json\nfrom diskcache import Cache\n"
    "record = Cache({path!r}).get({asked!r}.casefold())\n"
    f"response = {_RECORD}",
    "sqlite3": "import json, sqlite3\n"
    "query = 'SELECT record FROM answers WHERE question = ?'\n"
    "rows = sqlite3.connect({path!r}).execute(query, ({asked!r}.casefold(),))\n"
    "record, = rows.fetchone() or [None]\n"
    f"response = {_RECORD}",
    "lmdb": "import json, lmdb\n"
    "with lmdb.open({path!r}, map_size=2**36, subdir=False).begin() as transaction:\n"
    "    record = transaction.get({asked!r}.casefold().encode())\n"
    f"response = {_RECORD}",
    "files": "import hashlib, json\n"
    "name = hashlib.sha256({asked!r}.casefold().encode()).hexdigest()\n"
    "try:\n"
    "    with open(f'{path}/{{name[:2]}}/{{name[2:]}}.json', 'rb') as file:\n"
    "        record = file.read()\n"
    "except FileNotFoundError:\n"
    "    record = None\n"
    f"response = {_RECORD}",
}
_IMPORTS = {
    "import": {name: f"import {name}" for name in (SUBJECT, "diskcache", "sqlite3", "lmdb")},
    # respcache loads it when it is asked for.
    "import Cache": {name: f"from {name} import Cache" for name in (SUBJECT, "diskcache")},
}


@dataclass(frozen=True)
class Job:
    """A program for each contender, and the status that it exits with."""

    label: str
    programs: Mapping[str, str]
    status: int = 0
    reaches: Sequence[Reach] = ()


def run(effort: Effort, folder: Path) -> list[Table]:
    python = bare_interpreter(folder / "python")
    jobs = list(_jobs(effort, folder))
    return [_table(name, [python, *flags], jobs, effort.rounds) for name, flags in _FLAGS.items()]


def bare_interpreter(folder: Path) -> str:
    builder = venv.EnvBuilder(symlinks=os.name != "nt")
    builder.create(folder)
    return str(builder.ensure_directories(folder).env_exe)


def _jobs(effort: Effort, folder: Path) -> Iterator[Job]:
    for label, codes in _IMPORTS.items():
        programs = {name: program(name, code) for name, code in codes.items() if is_installed(name)}
        yield Job(label, programs)
    for entries in effort.counts(_SIZES, effort.most):
        names = [
            name for name in _LOOKUPS if is_installed(name) and entries <= _MOST.get(name, entries)
        ]
        paths = {name: fill(name, f"{folder}/{entries}", entries) for name in names}
        for kind, number, status in (("hit", entries // 2, 0), ("miss", entries, 1)):
            programs = {
                name: program(name, _LOOKUPS[name].format(path=paths[name], asked=question(number)))
                + "\nraise SystemExit(response is None)"
                for name in names
            }
            reaches = _REACHES.get((kind, entries), ())
            yield Job(f"{kind}, {entries:,} entries", programs, status, reaches)


def fill(name: str, path: str, entries: int) -> str:
    """Store *entries* with the contender *name*, and return where it has them."""
    contender = contenders.load(name)
    handle = contender.open(path, fsync=False)
    contender.fill(handle, pairs(0, entries))
    contender.close(handle)
    return str(contender.where(path))


def program(name: str, code: str) -> str:
    """Return *code*, with the folder of the library of the contender *name*."""
    spec = find_spec(SUBJECT if name == LOG else name)
    if spec is None or spec.origin is None or name == "sqlite3":
        return code  # it needs the standard library alone
    return f"import sys\nsys.path.append({str(Path(spec.origin).parents[1])!r})\n{code}"


def _table(name: str, command: list[str], jobs: list[Job], rounds: int) -> Table:
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
    bases = (_BASE, "diskcache", "sqlite3")
    return Table(f"A fresh process, python {flags} -c", groups, bases, name)
