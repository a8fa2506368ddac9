"""Each system call of a store fails once, and a disk is really full: the agent goes on.

``strace`` makes one call of a process fail. A first run counts what is called between
two marks; then each of these calls fails in a run of its own, by default with one
error of several in turn, and with each of them under stress.
"""

from __future__ import annotations

import marshal
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import respcache
from respcache import Cache

pytestmark = pytest.mark.xdist_group("processes")

STRESS = int(os.environ.get("RESPCACHE_STRESS", "1"))
DEADLINE = 60.0  # against hangs only
ERRORS = ("ENOSPC", "EIO", "EINTR", "EACCES")

# What a cache may call, by whichever names this machine and its C library have for it.
FAMILIES = {
    "write": "write pwrite64 writev",
    "fsync": "fsync fdatasync",
    "rename": "rename renameat renameat2",
    "open": "open openat",
    "flock": "flock",
    "fstat": "fstat fstat64 newfstatat fstatat64 statx stat lstat",
    "read": "read pread64 getdents64 readlink readlinkat",
    "close": "close",
    "mode": "fchmod chmod fchmodat fchown utimensat",
    "other": "ftruncate unlink unlinkat link linkat mkdir mkdirat fcntl lseek",
}
FAMILY = {name: family for family, names in FAMILIES.items() for name in names.split()}
STRACE = ("strace", "-f", "--seccomp-bpf", "-o")
MARK = "getsid"  # which nothing else calls

CHILD = """
import gc, marshal, os, sys

path, practice, *sys.path[:0] = sys.argv[1:]
warnings = []

class Logger:
    def warning(form, *given):
        warnings.append(form % given)

# To import the real one would take longer than all the rest.
sys.modules["logging"] = logging = type(sys)("logging")
logging.getLogger = lambda name: Logger

from respcache import Cache
from respcache._stores import log

def attempt(call, *given):
    try:
        return call(*given)
    except BaseException as error:
        return f"raised {type(error).__name__}: {error}"

def dated(when):
    os.utime(path, (when, when))

def answers(cache):
    return {hit.question: hit.response for hit in cache.entries()}

def neighbour():
    return Cache(path, lock_timeout=0.001, on_error="raise").store("neighbour", "n")

def open_files():
    # As Linux names them, from the folder on.
    gc.collect()
    folder = os.path.dirname(path) + "/"
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # of the listing itself
        if name.startswith(folder):
            found.append(name.removeprefix(folder))
    return found

# What is imported on the way is imported before the marks: those calls are not ours.
with Cache(practice, fsync=False) as cache:
    cache.get_or_call("q", lambda: "a")
    cache.store("q", "b")
    cache.forget("q")
    cache.store("q", "c", paths=[practice])
    cache.invalidate(practice)

cache = Cache(path, fsync=True)
said = {"warnings": warnings}
"""


@dataclass(frozen=True)
class Call:
    """One system call between the marks."""

    name: str
    number: int  # among all of its name in the process
    line: str  # how it looked when it did not fail
    is_locked: bool  # whether the lock was held by then


def nothing(path: Path) -> None:
    """Make no file."""


@dataclass(frozen=True)
class Case:
    """What happens to which file, and what may come of it."""

    name: str
    suffix: str
    act: str  # between the marks
    ready: str = ""  # before them
    prepare: Callable[[Path], None] = nothing
    kept: dict[str, str] = field(default_factory=dict)  # beside the answer to "q"
    right: str | None = "old"  # that answer, before
    allowed: tuple[Any, ...] = ()  # what the act may give
    is_damaged: bool = False


def cases(found: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in found]


def unavailable(folder: Path) -> str | None:
    """Return why no call can be made to fail here, or None."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace, by which system calls fail, is not installed"
    options = ["-e", f"trace={MARK}", "-e", f"inject={MARK}:error=ENOSPC:when=2"]
    program = [sys.executable, "-I", "-S", "-c", "import os; os.getsid(0); os.getsid(0)"]
    done = subprocess.run(
        [*STRACE, folder / "probe", *options, *program],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    if "No space left" in done.stderr:
        return None
    return f"strace makes no system call fail here: {done.stderr.strip()[-300:]}"


class Laboratory:
    """Runs children under strace, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()
        self._imports = [str(Path(respcache.__file__).parent.parent), *filter(None, sys.path)]

    def _run(
        self, case: Case, after: str, *options: str
    ) -> tuple[Path, list[str], subprocess.CompletedProcess[bytes]]:
        """Run a child; return the path of its file, what was traced, and how it ended."""
        folder = self.folder / f"{next(self._numbers)}"
        path = folder / "shared" / f"answers{case.suffix}"
        path.parent.mkdir(parents=True)
        (folder / "practice").mkdir()
        case.prepare(path)
        act = f"os.getsid(0)\nsaid['done'] = attempt(lambda: {case.act})\nos.getsid(0)\n"
        source = f"{CHILD}{case.ready}\n{act}{after}\nos.write(1, marshal.dumps(said))\n"
        # Compiled modules in a place of our own: what is read there is the same each time.
        program = [sys.executable, "-I", "-S", "-X", f"pycache_prefix={self.folder / 'compiled'}"]
        program += ["-c", source, str(path), str(folder / "practice" / path.name), *self._imports]
        done = subprocess.run(
            [*STRACE, folder / "trace", *options, *program], capture_output=True, timeout=DEADLINE
        )
        return path, (folder / "trace").read_text(errors="replace").splitlines(), done

    def calls(self, case: Case, after: str) -> list[Call]:
        """Return the calls between the marks, in order."""
        names = ",".join(f"?{name}" for name in (*FAMILY, MARK))
        for _ in range(2):  # the first one may compile modules
            _, lines, done = self._run(case, after, "-e", f"trace={names}")
            assert done.returncode == 0, done.stderr.decode()
        # A walk along the path looks at each folder above; to fail at one is enough.
        above = [str(folder) for folder in self.folder.parents]
        numbers: dict[str, Iterator[int]] = {}
        found: list[Call] = []
        marks = 0
        for line in lines:
            match = re.match(r'(?:\d+ +)?(\w+)\((?:AT_FDCWD, )?"?([^",]*)', line)
            if match is None:
                continue
            name, what = match.groups()
            number = next(numbers.setdefault(name, count(1)))
            if name == MARK:
                marks = number
            elif marks == 1 and what not in above[1:]:
                is_locked = any(call.name == "flock" for call in found)
                found.append(Call(name, number, line, is_locked))
        assert marks == 2
        return found

    def fail(
        self, case: Case, after: str, call: Call, error: str
    ) -> tuple[Path, dict[str, Any]] | None:
        """Let *call* fail with *error*; return the path of the file and what the child said.

        None if another call was hit: then this child called more or less before.
        """
        inject = f"inject={call.name}:error={error}:when={call.number}"
        path, lines, done = self._run(case, after, "-e", f"trace={call.name},{MARK}", "-e", inject)
        marks = 0
        for line in lines:
            marks += f"{MARK}(" in line
            if line.endswith("(INJECTED)"):
                break
        else:
            marks = 0
        if marks != 1:
            return None
        said = done.stderr.decode().splitlines(keepends=True)
        errors = "".join(line for line in said if not line.startswith("strace: "))
        assert done.returncode == 0, errors
        assert errors == "", "an exception that Python ignores is a bug as well"
        return path, marshal.loads(done.stdout)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Where system calls fail."""
    folder = tmp_path_factory.mktemp("faults")
    why = unavailable(folder)
    if why is not None:
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return Laboratory(folder)


def let_fail(
    lab: Laboratory,
    case: Case,
    after: str,
    judge: Callable[[Case, Path, dict[str, Any], Call, str], None],
    errors: tuple[str, ...] = ERRORS,
) -> tuple[set[str], list[str]]:
    """Let each call of *case* fail; return of which families they are, and what went wrong."""
    calls = lab.calls(case, after)
    jobs = [
        (call, error)
        for place, call in enumerate(calls)
        for error in (errors if STRESS > 1 else [errors[place % len(errors)]])
    ]

    def run(job: tuple[Call, str]) -> str | None:
        call, error = job
        for _ in range(5):
            try:
                found = lab.fail(case, after, call, error)
                if found is None:
                    continue
                path, said = found
                judge(case, path, said, call, error)
            except AssertionError as wrong:
                return f"{call.line}\nfailing with {error}: {wrong}"
            shutil.rmtree(path.parent.parent)
            return None
        return f"{call.line}\nwas never hit"

    with ThreadPoolExecutor(2) as pool:
        wrong = [each for each in pool.map(run, jobs) if each is not None]
    return {FAMILY[call.name] for call in calls}, wrong


def everything(path: Path) -> dict[str, Any]:
    """Return all answers in the file, as a process finds them that comes new."""
    return {hit.question: hit.response for hit in Cache(path).entries()}


def leftovers(path: Path) -> list[str]:
    """Return the files beside *path* that are neither it nor its lock nor its flights."""
    known = {path.name, f"{path.name}.lock", f"{path.name}.flight"}
    return sorted(p.name for p in path.parent.iterdir() if p.name not in known)


# Files to begin with. An mtime in the past: whatever replaces it is later in any case,
# and calls as much each time.

LONG_AGO = 10**9
OLD = {"other": "o" * 300, "more": "m" * 300}


def filled(path: Path) -> None:
    """Make a file of three entries."""
    with Cache(path, fsync=False) as cache:
        cache.store("other", OLD["other"])
        cache.store("q", "old")
        cache.store("more", OLD["more"])
    os.utime(path, (LONG_AGO, LONG_AGO))


def linked(path: Path) -> None:
    """Make such a file, and the path a link to it."""
    target = path.parent / "elsewhere" / path.name
    target.parent.mkdir()
    filled(target)
    path.symlink_to(target)


def wasteful(path: Path) -> None:
    """Make a log of such entries, of which more than half is dead."""
    with Cache(path, fsync=False) as cache:
        for number in range(20):
            cache.store("other", f"{number}" + "x" * 500)
    filled(path)


def torn(path: Path) -> None:
    """Make a log of such entries, with a line that was not written to its end."""
    filled(path)
    with path.open("ab") as file:
        file.write(b'{"q//1f//q": {"response": "torn", "quest')


def damaged(path: Path) -> None:
    """Make a file of such entries, after one that can't be read any more."""
    with Cache(path, fsync=False) as cache:
        cache.store("broken", "z" * 300)
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"zzz', b'z"zz'))
    os.utime(path, (LONG_AGO, LONG_AGO))

    assert path.read_bytes() != data


LOADED = """
cache.get("q")
assert cache.store("warm", "up")
dated(10**9)
cache.get("q"), cache.get("other")
"""
WITH_WARM = {**OLD, "warm": "up"}


# A store.

STORE = """
said["temps"] = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")]
said["pending"] = cache.stats()["pending"]
said["here"] = attempt(cache.get, "q")
said["there"] = attempt(lambda: answers(Cache(path)))
said["alone"] = attempt(lambda: Cache(path).get("q"))
said["neighbour"] = attempt(neighbour)
said["next"] = attempt(cache.store, "p", "second")
said["left"] = cache.stats()["pending"]
said["here then"] = [attempt(cache.get, question) for question in ("q", "p")]
said["open"] = open_files()
"""


def judge_store(case: Case, path: Path, said: dict[str, Any], call: Call, error: str) -> None:
    """Served here, readable by all, and both are written by the next one."""
    assert said["done"] is True or said["done"] is False, said["done"]
    assert said["pending"] == (0 if said["done"] else 1)
    assert said["done"] or said["warnings"]
    assert said["temps"] == []
    assert said["here"] == "new"
    assert said["alone"] in (("new",) if said["done"] else ("new", case.right))
    there = dict(said["there"])
    assert there.pop("q", None) == said["alone"]
    assert there == case.kept

    assert said["neighbour"] is (None if case.is_damaged else True), "no lock is left behind"
    assert said["next"] is True
    assert said["left"] == 0
    assert said["here then"] == ["new", "second"]
    if FAMILY[call.name] not in ("fstat", "close"):  # without which it may not close, or can't
        # The lock, what was loaded, and for a log its end, to append to.
        assert len(said["open"]) <= (3 if case.suffix == ".jsonl" else 2), said["open"]

    there = everything(path)
    assert there.pop("neighbour", None) == (None if case.is_damaged else "n")
    assert there == {**case.kept, "q": "new", "p": "second"}
    assert [Cache(path).get(question) for question in ("q", "p")] == ["new", "second"]
    assert path.is_symlink() == (case.prepare is linked)
    assert Cache(path, fsync=False, lock_timeout=0.001, on_error="raise").store("third", "t")
    copies = [name for name in leftovers(path) if name.startswith(f"{path.name}.corrupt-")]
    assert len(copies) == (1 if case.is_damaged else 0)
    assert set(leftovers(path)) <= {*copies, "elsewhere"}


DO = 'cache.store("q", "new")'
ALONE = "neighbour = lambda: None"  # who would repair it, and start its memory anew
STORES = [
    Case("document, loaded", ".json", DO, LOADED, filled, WITH_WARM),
    Case("document, unopened", ".json", DO, "", filled, OLD),
    Case("document, none yet", ".json", DO, right=None),
    Case("document, future", ".json", DO, LOADED + "dated(4 * 10**9)", filled, WITH_WARM),
    Case("document, link", ".json", DO, "", linked, OLD),
    Case("document, damaged", ".json", DO, ALONE, damaged, OLD, is_damaged=True),
    Case("log, loaded", ".jsonl", DO, LOADED, filled, WITH_WARM),
    Case("log, unopened", ".jsonl", DO, "", filled, OLD),
    Case("log, none yet", ".jsonl", DO, right=None),
    Case("log, indexed", ".jsonl", DO, 'cache.get("other"), cache.get("more")', filled, OLD),
    Case(
        "log, grown",
        ".jsonl",
        DO,
        LOADED + 'Cache(path).store("more", "new")',
        filled,
        {**WITH_WARM, "more": "new"},
    ),
    Case("log, compacted", ".jsonl", DO, LOADED + "log._FLOOR = 2_000", wasteful, WITH_WARM),
    Case("log, torn", ".jsonl", DO, "", torn, OLD),
    Case("log, damaged", ".jsonl", DO, ALONE, damaged, OLD, is_damaged=True),
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", cases(STORES))
def test_store_whose_system_call_fails_is_served_and_written_with_the_next(lab, case):
    """Whatever fails: the file can be read, no lock or file stays behind, no link goes."""
    families, wrong = let_fail(lab, case, STORE, judge_store)

    assert families >= {"write", "fsync", "flock", "fstat"}
    assert (case.suffix == ".jsonl" and case.prepare is not wasteful) or "rename" in families
    assert not wrong, "\n".join(wrong)


# A removal.

REMOVAL = """
said["pending"] = cache.stats()["pending"]
said["here"] = attempt(cache.get, "q")
said["there"] = attempt(lambda: answers(Cache(path)))
said["alone"] = attempt(lambda: Cache(path).get("q"))
said["next"] = attempt(cache.store, "p", "second")
said["left"] = cache.stats()["pending"]
said["here then"] = [attempt(cache.get, question) for question in ("q", "p")]
"""


def judge_removal(case: Case, path: Path, said: dict[str, Any], call: Call, error: str) -> None:
    """Hidden here, gone with the next commit, and on a full disk gone at once."""
    is_full = error == "ENOSPC" and call.is_locked
    writes = FAMILY[call.name] in ("write", "fsync", "rename") or "O_CREAT" in call.line
    there = dict(said["there"])
    found = there.pop("q", None)

    assert said["done"] in case.allowed
    assert said["here"] is None
    assert found is None or (said["pending"] and said["warnings"])
    assert found is None or not (is_full and writes)
    assert said["alone"] == found
    assert there == case.kept or (is_full and there == {}), "only a full disk costs the file"
    assert said["next"] is True
    assert said["left"] == 0
    assert said["here then"] == [None, "second"]
    assert everything(path) == {**there, "p": "second"}
    assert Cache(path).get("q") is None
    assert Cache(path, fsync=False, lock_timeout=0.001, on_error="raise").store("third", "t")
    assert leftovers(path) == []


FORGET = 'cache.forget("q")'
READ_FROM = 'cache.forget("q"), cache.store("q", "old", paths=[practice])\n'
REMOVALS = [
    Case("document", ".json", FORGET, LOADED, filled, WITH_WARM, allowed=(True,)),
    Case("log", ".jsonl", FORGET, LOADED, filled, WITH_WARM, allowed=(True,)),
    # Of a file that could not be read, nobody knows what was in it.
    Case("log, unopened", ".jsonl", FORGET, "", filled, OLD, allowed=(True, False)),
    Case(
        "log, of a path",
        ".jsonl",
        "cache.invalidate(os.path.dirname(practice))",
        "practice += '.txt'\nopen(practice, 'w').close()" + LOADED + READ_FROM,
        filled,
        WITH_WARM,
        allowed=(1,),
    ),
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", cases(REMOVALS))
def test_removal_whose_system_call_fails_never_comes_undone(lab, case):
    """E04."""
    errors = ERRORS if STRESS > 1 else ("ENOSPC",)
    families, wrong = let_fail(lab, case, REMOVAL, judge_removal, errors)

    assert families >= {"write", "fsync", "flock", "fstat"}
    assert not wrong, "\n".join(wrong)


# A look.

LOOK = """
said["next"] = attempt(cache.get, "q")
said["all"] = attempt(answers, cache)
"""


def judge_look(case: Case, path: Path, said: dict[str, Any], call: Call, error: str) -> None:
    """Right, or less than that, and right the next time."""
    whole = case.kept if case.right is None else {**case.kept, "q": case.right}

    if isinstance(said["done"], dict):
        assert said["done"].items() <= whole.items()
    else:
        assert said["done"] in case.allowed
    assert said["next"] == case.right
    assert said["all"] == whole == everything(path)


def looks() -> Iterator[Case]:
    get = 'cache.get("q")'
    three = 'cache.get("q"), cache.get("other"), cache.get("more")\n'
    changed = 'Cache(path).store("q", "new")'
    taken = 'Cache(path).forget("q")'
    for kind, suffix in (("document", ".json"), ("log", ".jsonl")):
        unopened = Case(f"{kind}, unopened", suffix, get, "", filled, OLD, allowed=("old", None))
        yield unopened
        yield replace(unopened, name=f"{kind}, second question", ready='cache.get("other")')
        yield replace(unopened, name=f"{kind}, loaded", ready=three)
        new = replace(unopened, ready=three + changed, right="new", allowed=("new", None))
        yield replace(new, name=f"{kind}, changed since")
        yield replace(
            new, name=f"{kind}, taken since", ready=three + taken, right=None, allowed=(None,)
        )
        yield replace(new, name=f"{kind}, all", act="answers(cache)")
        yield replace(unopened, name=f"{kind}, how many", act="len(cache)", allowed=(3, 0))
    yield replace(unopened, name="log, indexed", ready='cache.get("other"), cache.get("more")')
    compact = "log._FLOOR = 2_000\nother = Cache(path)\nother.get('q'), other.get('more')\n"
    yield replace(
        new,
        name="log, compacted since",
        ready=f"{three}{compact}other.store('q', 'new')",
        prepare=wasteful,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", cases(list(looks())))
def test_look_whose_system_call_fails_is_right_or_a_miss(lab, case):
    """Never an exception, and never an older answer."""
    families, wrong = let_fail(lab, case, LOOK, judge_look, ("EIO", "EACCES"))

    assert "fstat" in families
    assert not wrong, "\n".join(wrong)


# A call.

CALL = """
said["here"] = attempt(cache.get, "q")
said["next"] = attempt(cache.store, "p", "second")
said["here then"] = [attempt(cache.get, question) for question in ("q", "p")]
"""


def judge_call(case: Case, path: Path, said: dict[str, Any], call: Call, error: str) -> None:
    """What was kept or what was computed; later that, or what was kept."""
    assert said["done"] in case.allowed
    assert said["here"] in (said["done"], case.right)
    assert said["next"] is True
    assert said["here then"] == [said["here"], "second"]
    there = everything(path)
    assert there.pop("q", None) == said["here"]
    assert there == {**case.kept, "p": "second"}
    assert Cache(path, fsync=False, lock_timeout=0.001, on_error="raise").store("third", "t")
    assert leftovers(path) == []


ASK = 'cache.get_or_call("q", lambda: "computed")'
GONE = 'cache.forget("q")\ndated(10**9)\ncache.get("other")'
CALLS = [
    Case(f"{kind}, {what}", suffix, ASK, ready, filled, OLD, right, allowed=(right, "computed"))
    for kind, suffix in (("document", ".json"), ("log", ".jsonl"))
    for what, ready, right in (("hit", 'cache.get("other")', "old"), ("miss", GONE, None))
]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", cases(CALLS))
def test_call_whose_system_call_fails_gives_a_result(lab, case):
    if case.right is None:
        case = replace(case, allowed=("computed",))
    families, wrong = let_fail(lab, case, CALL, judge_call)

    assert "fstat" in families
    assert not wrong, "\n".join(wrong)


# A disk that is really full, to its last byte.

ON_A_SMALL_DISK = """
import logging, os, subprocess, sys
from respcache import Cache
from respcache._stores import log

folder = sys.argv[1]
path = folder + "/answers.jsonl"
durable = sys.argv[2] == "fsync"
warnings = []

class Handler(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())

logging.getLogger("respcache").addHandler(Handler())
ballast = os.open(folder + "/ballast", os.O_WRONLY | os.O_CREAT)

def fill():
    for size in (65536, 4096, 1):
        try:
            while os.write(ballast, b"x" * size) == size:
                pass
        except OSError:
            pass

def free(size=None):
    left = 0 if size is None else os.fstat(ballast).st_size - size
    os.ftruncate(ballast, left)
    os.lseek(ballast, left, os.SEEK_SET)

def data():
    with open(path, "rb") as file:
        return file.read()

def elsewhere(source):
    '''Return what another process says that runs *source*.'''
    source = "import sys\\nfrom respcache import Cache\\ncache = Cache(sys.argv[1])\\n" + source
    done = subprocess.run(
        [sys.executable, "-c", source, path], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()

def others():
    '''Return the questions and lengths of answers that another process finds.'''
    found = elsewhere("for hit in cache.entries(): print(hit.question, len(hit.response))")
    return dict(zip(found[::2], map(int, found[1::2])))

def names():
    return sorted(set(os.listdir(folder)) - {"answers.jsonl", "answers.jsonl.lock", "ballast"})

cache = Cache(path, fsync=durable)
"""

KEEPS_ALL = """
assert cache.store("zero", "0" * 5000)
before = data()
fill()
assert cache.store("one", "1" * 20000) is False
assert cache.store("two", "2" * 20000) is False
assert cache.stats()["pending"] == 2
assert cache.get("zero") == "0" * 5000
assert cache.get("one") == "1" * 20000 and cache.get("two") == "2" * 20000
assert data().startswith(before)
assert others() == {"zero": 5000}
assert elsewhere("print(cache.get('zero') == '0' * 5000, cache.get('one'))") == ["True", "None"]
assert warnings and all("the disk is full" in warning for warning in warnings), warnings
free()
assert cache.store("three", "3") is True
assert cache.stats()["pending"] == 0
assert others() == {"zero": 5000, "one": 20000, "two": 20000, "three": 1}
assert names() == []
print("held")
"""

TEARS_A_LINE = """
assert cache.store("zero", "0" * 5000)
assert cache.store("one", "1" * 5000)
before = data()
fill()
free(8192)
assert cache.store("long", "l" * 20000) is False
after = data()
assert after.startswith(before + b'{"q//') and not after.endswith(b"\\n"), "a short write"
assert cache.get("long") == "l" * 20000
assert others() == {"zero": 5000, "one": 5000}
assert elsewhere("print(cache.get('one') == '1' * 5000, cache.get('long'))") == ["True", "None"]
assert elsewhere("print(cache.store('next', 'n' * 5000))") == ["False"]
assert data().startswith(after)
assert others() == {"zero": 5000, "one": 5000}
free()
assert elsewhere("print(cache.store('next', 'n' * 5000))") == ["True"]
assert data().startswith(after + b"#torn\\n")
assert others() == {"zero": 5000, "one": 5000, "next": 5000}
assert cache.get("next") == "n" * 5000 and cache.get("long") == "l" * 20000
assert cache.flush() is True
assert others() == {"zero": 5000, "one": 5000, "next": 5000, "long": 20000}
assert names() == []
print("held")
"""

FORGETS = """
source = folder + "/source"
open(source, "w").close()
assert cache.store("stale", "s", paths=[source]) and cache.store("kept", "k")
fill()
assert cache.store("long", "l" * 20000) is False
assert others() == {"stale": 1, "kept": 1}
assert cache.ACT
assert cache.get("stale") is None
assert "stale" not in others()
assert elsewhere("print(cache.get('stale'))") == ["None"]
assert elsewhere("print(cache.store('next', 'n'), cache.get('stale'))") == ["True", "None"]
free()
assert cache.store("last", "z") is True
found = others()
assert found.pop("kept", 1) == 1 and found.pop("long", 20000) == 20000  # or lost with the file
assert found == {"next": 1, "last": 1}
assert cache.get("stale") is None
assert names() == ["source"]
print("held")
"""

COMPACTS_LATER = """
log._FLOOR = 1_000_000
for number in range(20):
    assert cache.store("hot", f"{number}" + "h" * 3000)
assert cache.store("kept", "k" * 3000)
while len(data()) % 4096 > 3000:
    assert cache.store("hot", "h" * 500)
whole = len(data())
log._FLOOR = 20_000
fill()
assert cache.store("small", "s") is True  # it has room in the last page; a copy has none
assert len(data()) > whole
assert warnings and all("the disk is full" in warning for warning in warnings), warnings
found = others()
assert found["kept"] == 3000 and found["small"] == 1 and len(found) == 3
assert names() == []
free()
assert cache.store("next", "n") is True
assert len(data()) < whole / 2
assert others() == {**found, "next": 1}
assert names() == []
print("held")
"""


@pytest.mark.parametrize("durable", ["fsync", "no fsync"])
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(KEEPS_ALL, id="keeps all"),
        pytest.param(TEARS_A_LINE, id="tears a line"),
        pytest.param(FORGETS.replace("ACT", 'forget("stale") is True'), id="forgets"),
        pytest.param(FORGETS.replace("ACT", "invalidate(source) == 1"), id="invalidates"),
        pytest.param(COMPACTS_LATER, id="compacts later"),
    ],
)
def test_log_on_a_really_full_disk(tmp_path, source, durable):
    """R29, E04: a file system of 256 KB, that is gone with the process that mounted it."""
    script = 'mount -t tmpfs -o size=256k tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", tmp_path, sys.executable]
    try:
        done = subprocess.run(
            [*command, ON_A_SMALL_DISK + source, durable],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("nothing may be mounted here")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "held\n"
    assert list(tmp_path.iterdir()) == []
