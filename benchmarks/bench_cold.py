"""What does a fresh process pay for one question, such as a hook?

Whole processes, from the start to the end of ``python -c program``, against
``python -c pass`` with the same flags. The interpreter is that of a bare virtual
environment, whose start imports nothing but ``site``; each program adds to
``sys.path`` the one folder that it needs.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import venv
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from . import contenders
from ._data import question, text
from ._harness import Effort, Group, Sample, Table, by_turns, is_installed

_SIZES = (1_000, 10_000)
_FLAGS = (("-I",), ("-I", "-S"))
_PASS = "pass"
_REACH = 2.2  # at 1,000 entries

_IMPORTS = {
    "respcache": "from respcache import Cache",
    "diskcache": "from diskcache import Cache",
    "sqlite3": "import sqlite3",
}
# Each exits with 1 on a miss.
_LOOKUPS = {
    "respcache": "raise SystemExit(Cache({path!r}).lookup({question!r}) is None)",
    "diskcache": "raise SystemExit(Cache({path!r}).get({question!r}.casefold()) is None)",
    "sqlite3": "raise SystemExit(sqlite3.connect({path!r}).execute("
    "'SELECT response FROM answers WHERE question = ?', ({question!r}.casefold(),)"
    ").fetchone() is None)",
}
