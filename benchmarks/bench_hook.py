"""What does an agent wait for, when its host runs a hook at each prompt?

Whole processes, from the start to the end: each gets the event of a prompt on its
stdin, looks up the answer, notes that the conversation has begun, and prints the
answer as context for the model. Against ``python -I -c pass``, and against hooks that
are written by hand on diskcache and on SQLite and keep their notes in the same place.
The interpreter is that of a bare virtual environment, as for ``cold``; each program
adds the one folder that it needs to ``sys.path``. respcache runs by the command that
``install-hook`` writes, which does without ``site``, and as the ``respcache`` script. Every prompt is the first of its
conversation.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from respcache._install import words_of

from ._data import question
from ._figures import LOG, SUBJECT, Group, Reach, Table, is_installed, samples_of
from ._harness import Effort, by_turns
from .bench_cold import bare_interpreter, fill, program

_SIZES = (1_000, 100_000)
_MOST = {SUBJECT: 10_000}  # a document is for fewer
_BASE = "pass"
_SCRIPT = "import sys; from respcache.cli import main; sys.exit(main())"
_REACHES = {
    ("hit", 1_000): [Reach(1.6, _BASE), Reach(1.6, _BASE, LOG)],
    ("hit, by the script", 1_000): [Reach(2.2, _BASE), Reach(2.2, _BASE, LOG)],
}

# What a hook does by hand: no more than the event asks for.
_BY_HAND = """
import json, sys
event = json.load(sys.stdin)
asked = event['prompt'].strip().casefold()
{look}
if record:
    said = {{'hookEventName': 'UserPromptSubmit', 'additionalContext': json.loads(record)[2]}}
    print(json.dumps({{'hookSpecificOutput': said}}))
"""
_LOOKS = {
    "diskcache": "from diskcache import Cache\n"
    "cache = Cache({path!r})\n"
    "record = cache.get(asked)\n"
    "cache.set('session ' + event['session_id'], asked, expire=86400)",
    "sqlite3": "import sqlite3\n"
    "database = sqlite3.connect({path!r}, isolation_level=None)\n"
    "query = 'SELECT record FROM answers WHERE question = ?'\n"
    "record, = database.execute(query, (asked,)).fetchone() or [None]\n"
    "note = ('session ' + event['session_id'], json.dumps(asked))\n"
    "database.execute('INSERT OR REPLACE INTO answers VALUES (?, ?)', note)",
}


@dataclass(frozen=True)
class _Job:
    """One prompt, and for each contender what runs."""

    label: str
    prompt: str
    is_hit: bool
    commands: Mapping[str, Sequence[str]]
    reaches: Sequence[Reach] = ()


def run(effort: Effort, folder: Path) -> list[Table]:
    python = bare_interpreter(folder / "python")
    jobs = list(_jobs(effort, folder))
    serial = itertools.count()

    def timed(job: _Job | None, command: Sequence[str]) -> list[float]:
        event = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": f"session-{next(serial)}",
            "prompt_id": "turn-1",
            "transcript_path": "",
            "cwd": str(folder),
            "permission_mode": "default",
            "prompt": "" if job is None else job.prompt,
        }
        text = json.dumps(event).encode()
        began = perf_counter()
        done = subprocess.run([python, *command], input=text, stdout=subprocess.PIPE, check=False)
        seconds = perf_counter() - began
        if done.returncode or (job is not None and bool(done.stdout) is not job.is_hit):
            raise RuntimeError(f"{command} exited with {done.returncode}: {done.stdout[:200]!r}")
        return [seconds]

    runs = {
        (job.label, name): partial(timed, job, command)
        for job in jobs
        for name, command in job.commands.items()
    }
    runs["", _BASE] = partial(timed, None, ["-I", "-c", "pass"])
    values = by_turns("hook, at a prompt", effort.rounds, runs)
    groups = []
    for job in jobs:
        own = {_BASE: values["", _BASE]} | {name: values[job.label, name] for name in job.commands}
        groups.append(Group(job.label, samples_of(own, "ms"), job.reaches))
    bases = (_BASE, "diskcache", "sqlite3")
    return [Table("A hook at a prompt", groups, bases, "hook")]


def _jobs(effort: Effort, folder: Path) -> Iterator[_Job]:
    for entries in effort.counts(_SIZES, effort.most):
        names = [
            name
            for name in (SUBJECT, LOG, *_LOOKS)
            if is_installed(name) and entries <= _MOST.get(name, entries)
        ]
        paths = {name: fill(name, f"{folder}/{entries}", entries) for name in names}
        for kind, number in (("hit", entries // 2), ("miss", entries)):
            yield _Job(
                f"{kind}, {entries:,} entries",
                question(number),
                kind == "hit",
                {name: _command(name, paths[name]) for name in names},
                _REACHES.get((kind, entries), ()),
            )
        kind = "hit, by the script"
        yield _Job(
            f"{kind}, {entries:,} entries",
            question(entries // 2),
            True,
            {name: _script(name, paths[name]) for name in names if name not in _LOOKS},
            _REACHES.get((kind, entries), ()),
        )


def _script(name: str, path: str) -> list[str]:
    """Return what the script does that installers make of the entry point."""
    return ["-I", "-c", program(name, _SCRIPT), "hook", "--path", path, "--shared"]


def _command(name: str, path: str) -> list[str]:
    if name in _LOOKS:
        code = _BY_HAND.format(look=_LOOKS[name].format(path=path))
        return ["-I", "-c", program(name, code)]
    _, *words = words_of(["--path", path, "--shared"])
    return words
