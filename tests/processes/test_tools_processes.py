"""Tool calls of several processes: one's write is every other's miss, also if it dies in it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from respcache import ToolCache

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="writes of processes need OFD locks"),
]

ROOT = Path(__file__).parent.parent.parent

# Calls what it hears. A tool that runs says "runs", and does what it is told until
# it is told how to end; so it is stopped wherever the test wants it.
AGENT = """
from respcache import Scope, ToolCache, ToolCall, ToolResult, Tree

def one(arguments, cwd):
    return [arguments["path"]]

def below(arguments, cwd):
    return Tree(arguments["path"])

tools = ToolCache(
    args["path"],
    reads={"Read": one, "List": below, "Fetch": (), "Survey": None},
    writes={"Edit": one, "Bash": None},
    **args["options"],
)

def run(call):
    found = "nothing"
    say("runs")
    while True:
        order, *given = hear()
        if order == "look":
            path = call.arguments["path"]
            if call.name == "List":
                found = sorted(os.listdir(path))
            else:
                with open(os.path.join(call.cwd or ".", path)) as file:
                    found = file.read()
        elif order == "change":
            with open(given[0], "w") as file:
                file.write(given[1])
        elif order == "exec":
            exec(given[0], globals())
        elif order == "return":
            return given[0] if given else found
        elif order == "fail":
            return ToolResult("failed", is_error=True)
        elif order == "raise":
            raise RuntimeError("of the tool")
        say("did")

def call(name, arguments, cwd, session):
    made = ToolCall(name, arguments, cwd=cwd, scope=Scope(session=session))
    try:
        result = tools.call(made, run, wait=3600.0)
    except RuntimeError as error:
        say(["raised", str(error)])
    else:
        say(["hit" if result.cached else "ran", result.content])

announce("time.sleep", "waits")
while True:
    order, *given = hear()
    if order == "call":
        call(*given)
    else:
        exec(given[0])
        say("did")
"""


class Caller:
    """A process that calls tools, told what they do."""

    def __init__(self, child):
        self.child = child
        self.hear, self.kill = child.hear, child.kill

    def begin(self, name, path, *, cwd=None, session="s"):
        """Begin a call."""
        self.child.tell(["call", name, {"path": str(path)}, cwd, session])

    def call(self, name, path, **options):
        """Begin a call; return what the process says first."""
        self.begin(name, path, **options)
        return self.hear()

    def do(self, order, *given):
        """Have the tool that runs, or the idle process, do something; wait until it is done."""
        self.child.tell([order, *given])
        assert self.hear() == "did"

    def end(self, order="return", *given):
        """Have the tool end; return what became of its call."""
        self.child.tell([order, *given])
        return self.hear()

    def read(self, path, name="Read", **options):
        """Call a reading tool that looks and returns, if it runs at all."""
        said = self.call(name, path, **options)
        if said != "runs":
            return said
        self.do("look")
        return self.end()

    def edit(self, path, text, order="return", *given, **options):
        """Call a writing tool that changes *path* and ends so."""
        assert self.call("Edit", path, **options) == "runs"
        self.do("change", str(path), text)
        return self.end(order, *given)


@pytest.fixture(params=["json", "jsonl"], ids=["document", "log"])
def path(request, path):
    """Where the shared file will be, in either format."""
    return path.with_name(f"tools.{request.param}")


@pytest.fixture
def caller(start, path):
    """Start a process that calls tools."""
    return lambda **options: Caller(start(AGENT, path=path, options=options))


@pytest.fixture
def repo(tmp_path):
    """A folder with two files."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text("old a")
    (folder / "b.py").write_text("old b")
    return folder


# One writes, the other has read.


def test_read_of_one_process_is_a_hit_in_another(caller, repo):
    one, other = caller(), caller()

    assert one.read(repo / "a.py") == ["ran", "old a"]
    assert other.read(repo / "a.py") == ["hit", "old a"]


@pytest.mark.parametrize("session", ["s", "of another session"])
def test_write_of_one_process_evicts_what_another_has_read(caller, repo, session):
    """E05: also in other sessions, since they share one disk."""
    reader, writer = caller(), caller()
    for name, path in (("Read", repo / "a.py"), ("Read", repo / "b.py"), ("List", repo)):
        reader.read(path, name)
    writer.edit(repo / "a.py", "new a", session=session)

    assert reader.read(repo / "b.py") == ["hit", "old b"]
    assert reader.read(repo / "a.py") == ["ran", "new a"]
    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py"]]
    assert writer.read(repo / "a.py") == ["hit", "new a"]


def test_unknown_effects_of_one_process_evict_all_that_any_has_read(caller, repo):
    """E05: what has no paths only in its own scope."""
    reader, writer = caller(), caller()
    for session in ("s", "t"):
        reader.read(repo, "List", session=session)
        reader.call("Fetch", "page", session=session)
        reader.end("return", "the page")
    writer.call("Bash", "", session="t")
    (repo / "c.py").write_text("made by a command")
    writer.end()

    assert [reader.read(repo, "List", session=session)[0] for session in ("s", "t")] == [
        "ran",
        "ran",
    ]
    assert reader.call("Fetch", "page", session="s") == ["hit", "the page"]
    assert reader.call("Fetch", "page", session="t") == "runs"


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("look, begin, change, end, return", id="write within the read"),
        pytest.param("begin, look, change, end, return", id="read during the write"),
        pytest.param("begin, change, look, end, return", id="read after the change"),
        pytest.param("look, begin, return, change, end", id="returned before the change"),
        pytest.param("look, begin, change, return, end", id="returned before the end"),
    ],
)
@pytest.mark.parametrize("name", ["Read", "List"])
def test_read_in_flight_while_another_process_writes_is_returned_and_not_kept(
    caller, repo, name, order
):
    """R04: the race in slow motion, in each order of its steps."""
    reader, writer = caller(), caller()
    target = repo if name == "List" else repo / "c.py"
    (repo / "c.py").write_text("old c")
    assert reader.call(name, target) == "runs"
    returned = None
    for step in order.split(", "):
        match step:
            case "look":
                reader.do("look")
            case "return":
                returned = reader.end()
            case "begin":
                assert writer.call("Edit", repo / "c.py") == "runs"
            case "change":
                writer.do("exec", f"os.rename({str(repo / 'c.py')!r}, {str(repo / 'd.py')!r})")
                writer.do("change", str(repo / "c.py"), "new c, and longer")
            case "end":
                assert writer.end() == ["ran", "nothing"]

    assert returned[0] == "ran"  # to who asked
    assert reader.call(name, target) == "runs"
    reader.end("return", "what is fresh")
    assert writer.call(name, target) == ["hit", "what is fresh"]


def test_who_joins_a_running_read_after_a_write_does_not_get_what_was_read_before(caller, repo):
    """E06: whoever waited looks again, and the read from before the write is not kept."""
    leader, writer, follower = caller(), caller(), caller()
    assert leader.call("List", repo) == "runs"
    leader.do("look")
    assert writer.edit(repo / "c.py", "c") == ["ran", "nothing"]
    assert follower.call("List", repo) == "waits"

    assert leader.end() == ["ran", ["a.py", "b.py"]]
    assert follower.hear() == "runs"

    follower.do("look")

    assert follower.end() == ["ran", ["a.py", "b.py", "c.py"]]
    assert leader.read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]


# While a write runs.


@pytest.mark.parametrize("name", ["Edit", "Bash"])
def test_what_a_running_write_touches_is_hidden_from_all_processes(caller, repo, name):
    """E01: from before the tool runs until it has ended; nothing is kept meanwhile."""
    writer, reader = caller(), caller()
    writer.read(repo, "List")
    reader.read(repo / "b.py")
    assert writer.call(name, repo / "a.py") == "runs"

    assert [each.read(repo, "List")[0] for each in (reader, caller(), reader)] == ["ran"] * 3
    assert reader.read(repo / "b.py")[0] == ("ran" if name == "Bash" else "hit")

    writer.end()

    assert reader.read(repo, "List")[0] == "ran"
    assert reader.read(repo, "List")[0] == "hit"
    assert reader.read(repo / "b.py")[0] == ("ran" if name == "Bash" else "hit")


@pytest.mark.parametrize(
    ("name", "end", "expected"),
    [
        pytest.param("Edit", "fail", "hit", id="known paths, an error result"),
        pytest.param("Edit", "raise", "ran", id="known paths, an exception"),
        pytest.param("Edit", "return", "ran", id="known paths, done"),
        pytest.param("Bash", "fail", "ran", id="unknown effects, an error result"),
        pytest.param("Bash", "raise", "ran", id="unknown effects, an exception"),
    ],
)
def test_how_a_write_ends_decides_whether_other_processes_hit_again(
    caller, repo, name, end, expected
):
    """E01: only who knows what it would have touched can say that it has not."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    writer.call(name, repo / "a.py")
    reader.read(repo, "List")
    writer.end(end)

    assert reader.read(repo, "List")[0] == expected
    assert caller().read(repo, "List")[0] == "hit"


def test_half_done_write_that_failed_is_seen_by_the_file_itself(caller, repo):
    """E01: its paths evict nothing, and its file has another signature."""
    writer, reader = caller(), caller()
    reader.read(repo / "a.py")
    writer.edit(repo / "a.py", "half of a", "fail")

    assert reader.read(repo / "a.py") == ["ran", "half of a"]


def test_two_writes_that_overlap_hide_until_both_have_ended(caller, repo):
    one, other, reader = caller(), caller(), caller()
    reader.read(repo, "List")
    assert one.call("Edit", repo / "a.py") == "runs"
    assert other.call("Edit", repo / "a.py") == "runs"
    one.end("fail")

    assert reader.read(repo, "List")[0] == "ran"

    other.end("fail")

    assert reader.read(repo, "List")[0] == "hit"


def test_write_that_has_begun_is_seen_in_a_compacted_file_that_forgot_its_begin(
    caller, path, repo, monkeypatch
):
    """E02: by a process with one question as well; all of it is carried on until it ends."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    assert writer.call("Edit", repo / "a.py") == "runs"
    before = path.stat().st_ino
    with ToolCache(path, fsync=False) as tools:
        # More than it remembers; of a log so many more that it is worth a compaction.
        for number in range(2300 if path.suffix == ".jsonl" else 130):
            tools.invalidate([repo.with_name(f"elsewhere-{number}")])
        monkeypatch.setattr("respcache._stores.log._FLOOR", 1)
        tools.invalidate([repo.with_name("elsewhere")])

    assert path.stat().st_ino != before
    assert [each.read(repo, "List")[0] for each in (caller(), reader, caller())] == ["ran"] * 3

    writer.end("fail")

    assert [each.read(repo, "List")[0] for each in (caller(), reader, writer)] == ["hit"] * 3


# Killed.


@pytest.mark.parametrize("name", ["Edit", "Bash"])
@pytest.mark.parametrize(
    "has_changed", [pytest.param(True, id="after"), pytest.param(False, id="before")]
)
def test_writer_that_was_killed_in_its_tool_counts_as_having_written(
    caller, repo, name, has_changed
):
    """E01: the next call of another process runs, and life goes on."""
    writer, reader, idle = caller(), caller(), caller()
    reader.read(repo, "List")
    assert writer.call(name, repo / "c.py") == "runs"
    if has_changed:
        writer.do("change", str(repo / "c.py"), "c")
    writer.kill()
    names = ["a.py", "b.py", "c.py"] if has_changed else ["a.py", "b.py"]

    assert reader.read(repo, "List") == ["ran", names]
    assert reader.read(repo, "List") == ["hit", names]
    assert idle.read(repo, "List") == ["hit", names]


def test_results_beside_a_dead_writer_are_kept_and_it_is_buried_by_them(caller, repo):
    """E01: who meets it evicts what it may have touched, and nothing else."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    reader.read(repo / "b.py")
    assert writer.call("Edit", repo / "a.py") == "runs"
    writer.kill()

    assert reader.read(repo / "b.py") == ["hit", "old b"]
    assert caller().read(repo / "a.py")[0] == "ran"
    assert reader.read(repo, "List")[0] == "ran"


def test_read_that_began_in_a_write_whose_process_died_is_kept_only_if_it_began_later(caller, repo):
    """E01: the dead writer may have changed the folder after it was looked at."""
    writer, reader = caller(), caller()
    assert writer.call("Edit", repo / "c.py") == "runs"
    assert reader.call("List", repo) == "runs"
    reader.do("look")
    writer.do("change", str(repo / "c.py"), "c")
    writer.kill()

    assert reader.end() == ["ran", ["a.py", "b.py"]]
    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]
    assert caller().read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]


def test_stopped_writer_is_not_taken_for_a_dead_one(caller, repo):
    """E27: it may go on at any time, and what it touches stays hidden."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    assert writer.call("Edit", repo / "c.py") == "runs"
    os.kill(writer.child.process.pid, signal.SIGSTOP)

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py"]]
    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py"]]

    os.kill(writer.child.process.pid, signal.SIGCONT)
    writer.do("change", str(repo / "c.py"), "c")
    writer.end()

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]
    assert reader.read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]


def test_leader_killed_in_its_read_frees_all_who_wait(caller, repo):
    """R37: they run it themselves, at once."""
    leader, followers = caller(), [caller() for _ in range(3)]
    assert leader.call("Read", repo / "a.py") == "runs"
    assert [each.call("Read", repo / "a.py") for each in followers] == ["waits"] * 3
    leader.kill()

    assert [each.hear() for each in followers] == ["runs"] * 3

    for each in followers:
        each.do("look")

    assert [each.end() for each in followers] == [["ran", "old a"]] * 3
    assert caller().read(repo / "a.py") == ["hit", "old a"]


def test_eight_processes_that_read_the_same_at_once_run_the_tool_once(caller, repo):
    """R37: the one runs until all others wait."""
    callers = [caller() for _ in range(8)]
    for each in callers:
        each.begin("Read", repo / "a.py")
    said = [each.hear() for each in callers]

    assert sorted(said) == ["runs"] + ["waits"] * 7

    leader = callers.pop(said.index("runs"))
    leader.do("look")

    assert leader.end() == ["ran", "old a"]
    assert [each.hear() for each in callers] == [["hit", "old a"]] * 7


# Forks.

FORK = """
pid = os.fork()
if pid == 0:
    try:
        {in_child}
    finally:
        os._exit(1)
"""


def test_child_forked_in_a_write_does_not_keep_it_alive(caller, repo):
    """E18: its parent is dead, and nobody will end the write."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    assert writer.call("Edit", repo / "c.py") == "runs"
    writer.do("change", str(repo / "c.py"), "c")
    writer.do("exec", FORK.format(in_child="os.read(0, 1)"))  # until the test is over
    writer.kill()

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]

    for _ in range(200):  # the child may just be closing what it has inherited
        how, found = reader.read(repo, "List")
        if how == "hit":
            break

    assert (how, found) == ("hit", ["a.py", "b.py", "c.py"])


def test_child_forked_in_a_write_does_not_end_it(caller, repo):
    """E18: neither by its own death nor by what it does with the cache."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    assert writer.call("Edit", repo / "c.py") == "runs"
    in_child = f"""
        listed = ToolCall("List", {{"path": {str(repo)!r}}}, scope=Scope(session="s"))
        are_hits = [tools.call(listed, lambda call: "of the child").cached for _ in range(2)]
        tools.close()
        os._exit(7 if any(are_hits) else 0)"""
    writer.do("exec", FORK.format(in_child=in_child))
    writer.do("exec", "assert os.waitpid(pid, 0)[1] == 0")

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py"]]
    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py"]]

    writer.do("change", str(repo / "c.py"), "c")
    writer.end()

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]
    assert reader.read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]


def test_program_that_a_write_has_started_does_not_keep_it_alive(caller, repo):
    """A tool's server outlives the agent that started it."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    assert writer.call("Bash", "") == "runs"
    start = "subprocess.Popen([sys.executable, '-c', 'input()'], close_fds=False, stdout=2)"
    writer.do("exec", f"import subprocess; {start}")
    writer.kill()

    assert reader.read(repo, "List")[0] == "ran"
    assert reader.read(repo, "List")[0] == "hit"


# One process, several threads.

WRITE_IN_A_THREAD = """
def work(call):
    inside.set()
    leave.wait()

inside, leave = threading.Event(), threading.Event()
call_it = lambda: tools.call(ToolCall("Edit", {"path": args["file"]}), work)
thread = threading.Thread(target=call_it, daemon=True)
thread.start()
inside.wait()
"""


def test_close_in_another_thread_leaves_a_running_write_alone(start, path, caller, repo):
    """The cache that is closed is opened again by its next use, and the write still runs."""
    reader = caller()
    reader.read(repo, "List")
    writer = Caller(start(AGENT, path=path, options={}, file=str(repo / "c.py")))
    writer.read(repo / "a.py")
    writer.do("exec", WRITE_IN_A_THREAD)
    writer.do("exec", "tools.close()")

    assert reader.read(repo, "List")[0] == "ran"
    assert reader.read(repo, "List")[0] == "ran"

    writer.do("exec", "leave.set(); thread.join()")

    assert reader.read(repo, "List")[0] == "ran"
    assert reader.read(repo, "List")[0] == "hit"


# The file is another one by the time that the result comes.


def deleted(path):
    path.unlink()


def begun_anew(path):
    path.unlink()
    ToolCache(path).invalidate(["/elsewhere"])


def restored_from_a_backup(path):
    os.replace(path.with_name("backup"), path)


@pytest.mark.parametrize("outsider", [deleted, begun_anew, restored_from_a_backup])
def test_read_in_flight_while_the_file_was_changed_by_an_outsider_is_not_kept(
    caller, path, repo, outsider
):
    """E02: whether a write came between can't be known any more."""
    reader, writer = caller(), caller()
    reader.read(repo / "b.py")
    shutil.copy2(path, path.with_name("backup"))
    writer.do("exec", "tools.invalidate(['/elsewhere'])")  # which the backup has not heard of
    assert reader.call("List", repo) == "runs"
    reader.do("look")
    writer.edit(repo / "c.py", "c")
    outsider(path)

    assert reader.end() == ["ran", ["a.py", "b.py"]]
    assert writer.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]
    assert reader.read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]


# What can't be committed.

FULL = """
import errno

def refuse(real, fd, data, *more):
    if os.path.realpath(f"/proc/self/fd/{fd}").startswith(os.path.dirname(args["path"])):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(fd, data, *more)

unfull = [patch("os.write", refuse), patch("os.writev", refuse)]
"""


def test_eviction_that_a_full_disk_refuses_is_none_that_others_miss(caller, path, repo):
    """E04: the file goes, since stale answers can't be taken back."""
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    reader.read(repo / "b.py")
    writer.do("exec", FULL)
    writer.edit(repo / "c.py", "c")

    assert not path.exists()
    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]


HOLD = """
with open(args["lock"], "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("holds")
    hear()
"""


def test_eviction_that_had_no_lock_is_committed_before_anything_else(start, caller, path, repo):
    """E04: until then the one who wrote serves nothing that it touches."""
    writer, reader = caller(lock_timeout=0.01), caller()
    reader.read(repo, "List")
    holder = start(HOLD, lock=path.with_name(f"{path.name}.lock"))
    assert holder.hear() == "holds"
    writer.edit(repo / "c.py", "c")

    assert writer.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]

    holder.tell()
    holder.wait()
    writer.read(repo / "b.py")

    assert reader.read(repo, "List") == ["hit", ["a.py", "b.py", "c.py"]]  # the writer's


@pytest.mark.parametrize("switch", ["RESPCACHE_DISABLE", "RESPCACHE_READONLY"])
def test_write_of_a_process_with_the_cache_off_evicts_once_it_is_on_again(caller, repo, switch):
    writer, reader = caller(), caller()
    reader.read(repo, "List")
    writer.do("exec", f"os.environ[{switch!r}] = '1'")
    writer.edit(repo / "c.py", "c")
    writer.do("exec", f"del os.environ[{switch!r}]")
    writer.read(repo / "b.py")

    assert reader.read(repo, "List") == ["ran", ["a.py", "b.py", "c.py"]]


# Names of files and folders, which all formats keep alike.

in_a_log = pytest.mark.parametrize("path", ["jsonl"], ids=["log"], indirect=True)


@in_a_log
def test_relative_path_means_the_file_in_the_real_folder_of_the_call(caller, repo, tmp_path):
    """E05: one process in one repository, and one in the other."""
    second = tmp_path / "second"
    second.mkdir()
    (second / "a.py").write_text("the other a")
    (tmp_path / "link").symlink_to(repo)
    one, other = caller(), caller()

    assert one.read("a.py", cwd=str(repo)) == ["ran", "old a"]
    assert other.read("a.py", cwd=str(second)) == ["ran", "the other a"]
    assert other.read("a.py", cwd=str(tmp_path / "link")) == ["hit", "old a"]


@in_a_log
def test_folder_that_came_in_the_place_of_one_that_was_moved_has_results_of_its_own(
    caller, repo, tmp_path
):
    """E05, E29: a link leads on to the one that was moved, and was what it was read by."""
    link = tmp_path / "link"
    link.symlink_to(repo)
    one, other = caller(), caller()
    assert one.read("a.py", cwd=str(link)) == ["ran", "old a"]
    repo.rename(tmp_path / "moved")
    link.unlink()
    link.symlink_to(tmp_path / "moved")
    repo.mkdir()
    (repo / "a.py").write_text("of the new folder")

    assert other.read("a.py", cwd=str(repo)) == ["ran", "of the new folder"]


@in_a_log
@pytest.mark.parametrize("how", ["symlink", "hard link", "folder link", "other case"])
def test_write_by_another_name_evicts_what_another_process_has_read(caller, repo, tmp_path, how):
    """E29: real paths compared folded, and the file's own signature."""
    match how:
        case "symlink":
            name = tmp_path / "name.py"
            name.symlink_to(repo / "a.py")
        case "hard link":
            name = tmp_path / "name.py"
            os.link(repo / "a.py", name)
        case "folder link":
            (tmp_path / "link").symlink_to(repo)
            name = tmp_path / "link" / "a.py"
        case _:
            name = repo / "A.PY"
    reader, writer = caller(), caller()
    reader.read(repo / "a.py")
    writer.edit(name, "new a")

    assert reader.read(repo / "a.py")[0] == "ran"


@in_a_log
def test_link_that_was_pointed_elsewhere_is_another_file(caller, repo, tmp_path):
    """E29: by an outsider, before and while a process reads it."""
    link = tmp_path / "link.py"
    link.symlink_to(repo / "a.py")
    reader, other = caller(), caller()
    assert reader.read(link) == ["ran", "old a"]
    link.unlink()
    link.symlink_to(repo / "b.py")

    assert other.read(link) == ["ran", "old b"]

    assert reader.call("Read", link) == ["hit", "old b"]
    writer = caller()
    writer.edit(repo / "b.py", "new b")

    assert other.read(link) == ["ran", "new b"]


@in_a_log
def test_write_while_the_link_it_goes_through_is_pointed_elsewhere_evicts_both(
    caller, repo, tmp_path
):
    """E29: where it led before, and where it leads after the run."""
    (repo / "c").mkdir()
    (repo / "d").mkdir()
    link = tmp_path / "link"
    link.symlink_to(repo / "c")
    reader, writer = caller(), caller()
    for name in "cd":
        reader.read(repo / name, "List")
    assert writer.call("Edit", link / "new.py") == "runs"
    link.unlink()
    link.symlink_to(repo / "d")
    writer.do("change", str(link / "new.py"), "new")
    writer.end()

    assert reader.read(repo / "c", "List") == ["ran", []]
    assert reader.read(repo / "d", "List") == ["ran", ["new.py"]]


# All together.


def test_two_agents_of_forty_steps_on_one_file_get_no_stale_answer(tmp_path):
    """R13, R16: the example; its answers are compared with a fresh run each."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "coding_agents.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr

    steps, stale, rate = re.search(
        r"(\d+) steps.* (\d+) stale answers.* hit rate (0\.\d+)", done.stdout
    ).groups()

    assert (steps, stale) == ("80", "0")
    assert float(rate) > 0.3
