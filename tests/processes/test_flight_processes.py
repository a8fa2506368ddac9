"""Of many processes that want one answer, one computes; what came in between decides what stays."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from respcache import Cache

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="flights of processes need OFD locks"),
]

AN_HOUR = 3600.0  # nobody may wait for it

# Asks once. Says "computing" when it must compute, and is told the result;
# says "waiting" when it waits for another.
ASK = """
def compute():
    say("computing")
    result = hear()
    if result == "raise":
        raise RuntimeError("of the leader")
    return result

if args.get("refuses"):
    cache = Cache(args["path"], store_if=lambda response: False)
else:
    cache = Cache(args["path"])
announce("time.sleep", "waiting")
try:
    say(["got", cache.get_or_call(
        args.get("question", "q"), compute, paths=args.get("paths", ()), wait=args["wait"])])
except RuntimeError as error:
    say(["raised", str(error)])
say(cache.stats())
hear()
say(cache.get(args.get("question", "q")))
"""


@pytest.fixture
def ask(start, path):
    """Start a process that asks once."""
    return lambda wait=AN_HOUR, **args: start(ASK, path=path, wait=wait, **args)


@pytest.fixture
def waiting(ask):
    """Start processes that ask for what another computes, and wait."""

    def start_waiting(count, **args):
        followers = [ask(**args) for _ in range(count)]
        assert [follower.hear() for follower in followers] == ["waiting"] * count
        return followers

    return start_waiting


def test_eight_processes_that_ask_at_once_compute_once(ask, questions_in, path):
    """R37: the one computes until all others wait; they find its answer in the file."""
    children = [ask() for _ in range(8)]
    first = [child.hear() for child in children]

    assert sorted(first) == ["computing"] + ["waiting"] * 7

    children[first.index("computing")].tell("the answer")

    assert [child.hear() for child in children] == [["got", "the answer"]] * 8
    assert questions_in(path) == {"q": "the answer"}

    stats = [child.hear() for child in children]

    assert sorted((each["hits"], each["misses"], each["stores"]) for each in stats) == [
        (0, 1, 1),
        *[(1, 0, 0)] * 7,
    ]


def test_leader_killed_in_its_computation_frees_all_who_wait(ask, waiting):
    """R37: they take over at once, though each would have waited for an hour."""
    leader = ask()
    assert leader.hear() == "computing"
    followers = waiting(3)
    leader.kill()

    assert [follower.hear() for follower in followers] == ["computing"] * 3

    for number, follower in enumerate(followers):
        follower.tell(f"answer {number}")

    assert [follower.hear() for follower in followers] == [
        ["got", f"answer {number}"] for number in range(3)
    ]


def test_what_the_leader_raises_is_the_leaders_alone(ask, waiting):
    """R37: nothing is kept, and the others compute for themselves."""
    leader = ask()
    assert leader.hear() == "computing"
    (follower,) = waiting(1)
    leader.tell("raise")

    assert leader.hear() == ["raised", "of the leader"]
    assert follower.hear() == "computing"

    follower.tell("the answer")

    assert follower.hear() == ["got", "the answer"]


def test_who_waited_in_vain_computes_beside_the_others(ask, waiting):
    """E20: a result that nobody may keep does not make a queue of those who wait for it."""
    leader = ask(refuses=True)
    assert leader.hear() == "computing"
    followers = waiting(4, refuses=True)
    leader.tell("not kept")

    assert leader.hear() == ["got", "not kept"]
    assert [follower.hear() for follower in followers] == ["computing"] * 4  # none is done yet


def test_caller_computes_for_itself_when_its_wait_is_over(ask):
    leader = ask()
    assert leader.hear() == "computing"
    impatient = ask(wait=0.05)

    assert impatient.hear() == "waiting"
    assert impatient.hear() == "computing"

    impatient.tell("its own")

    assert impatient.hear() == ["got", "its own"]

    leader.tell("too late")

    assert leader.hear() == ["got", "too late"]
    assert leader.hear()["refused"] == 1
    leader.tell()
    assert leader.hear() == "its own"


def test_different_questions_never_wait_for_each_other(ask):
    """R37: all compute at the same time."""
    children = [ask(question=f"question {number}") for number in range(4)]

    assert [child.hear() for child in children] == ["computing"] * 4


def test_flight_of_one_namespace_is_none_of_another(start, path):
    source = ASK.replace("Cache(args", 'Cache(namespace=args["namespace"], path=args')
    children = [start(source, path=path, wait=AN_HOUR, namespace=name) for name in ("a", "b")]

    assert [child.hear() for child in children] == ["computing"] * 2


def test_leader_may_store_while_it_leads(agent, ask, path):
    """E20: flights lie in a file of their own, so that no leader blocks its own commit."""
    leader = ask()
    assert leader.hear() == "computing"

    assert agent(path, lock_timeout=0.5)("store", "p", "of another") is True

    leader.tell("the answer")

    assert leader.hear() == ["got", "the answer"]
    assert leader.hear()["stores"] == 1
    assert {p.name for p in path.parent.iterdir()} == {
        path.name,
        f"{path.name}.lock",
        f"{path.name}.flight",
    }


NESTED = """
cache = Cache(args["path"])

def outer():
    say("outer")
    hear()
    return cache.get_or_call(args["second"], lambda: "inner", wait=args["wait"])

say(cache.get_or_call(args["first"], outer, wait=args["wait"]))
"""


@pytest.mark.parametrize(
    "wait", [pytest.param(0.2, id="after the wait"), pytest.param(AN_HOUR, id="at once")]
)
def test_two_questions_nested_crosswise_end(start, path, wait):
    """E20: who leads never waits, so neither waits for what the other can't finish."""
    one = start(NESTED, path=path, first="a", second="b", wait=wait)
    other = start(NESTED, path=path, first="b", second="a", wait=wait)
    assert [one.hear(), other.hear()] == ["outer", "outer"]
    one.tell()
    other.tell()

    assert [one.hear(), other.hear()] == ["inner", "inner"]


def test_same_question_within_its_own_computation_computes_directly(start, path):
    child = start(NESTED, path=path, first="a", second="A", wait=AN_HOUR)
    assert child.hear() == "outer"
    child.tell()

    assert child.hear() == "inner"


ASK_ASYNC = """
import asyncio

async def main():
    cache = Cache(args["path"])
    asked = asyncio.create_task(cache.aget_or_call("q", lambda: "of the coroutine", wait=3600.0))
    for _ in range(20):
        await asyncio.sleep(0.002)
    say("the loop goes on" if not asked.done() else "did not wait")
    say(["got", await asked])

asyncio.run(main())
"""


def test_coroutine_that_waits_for_another_process_leaves_its_loop_to_others(start, ask, path):
    leader = ask()
    assert leader.hear() == "computing"
    coroutine = start(ASK_ASYNC, path=path)

    assert coroutine.hear() == "the loop goes on"

    leader.tell("of the leader")

    assert coroutine.hear() == ["got", "of the leader"]


ASK_CANCELLED = """
import asyncio

async def main():
    cache = Cache(args["path"])

    async def compute():
        say("computing")
        await asyncio.sleep(3600)

    asked = asyncio.create_task(cache.aget_or_call("q", compute))
    await asyncio.to_thread(hear)
    asked.cancel()
    try:
        await asked
    except asyncio.CancelledError:
        say("cancelled")
    await asyncio.to_thread(hear)

asyncio.run(main())
"""


def test_cancelled_leader_frees_the_other_processes(start, waiting, path):
    """E20: and is cancelled alone."""
    leader = start(ASK_CANCELLED, path=path)
    assert leader.hear() == "computing"
    followers = waiting(2)
    leader.tell("cancel")

    assert leader.hear() == "cancelled"
    assert [follower.hear() for follower in followers] == ["computing"] * 2


# Forgotten while it is computed.


@pytest.mark.parametrize("how", ["forget", "clear", "invalidate", "invalidate the folder"])
def test_result_of_what_another_process_forgot_meanwhile_is_returned_and_not_kept(
    agent, ask, path, tmp_path, how
):
    """E06: it was computed from what was there before."""
    source = tmp_path / "source.txt"
    source.write_text("as it was")
    other = agent(path)
    other("store", "unrelated", "kept")
    leader = ask(paths=[str(source)])
    assert leader.hear() == "computing"
    match how:
        case "forget":
            other("forget", "Q")
        case "clear":
            other("clear")
        case "invalidate":
            other("invalidate", [source])
        case _:
            other("invalidate", [tmp_path])
    leader.tell("stale")

    assert leader.hear() == ["got", "stale"]
    assert leader.hear()["refused"] == 1
    assert other("get", "q") is None
    leader.tell()
    assert leader.hear() is None


def test_who_asks_after_a_forget_does_not_get_the_answer_of_before(agent, ask, waiting, path):
    """E06: whoever waited looks again, and takes nothing from the leader."""
    other = agent(path)
    other("store", "unrelated", "kept")
    leader = ask()
    assert leader.hear() == "computing"
    other("forget", "q")
    (follower,) = waiting(1)
    leader.tell("of before")

    assert leader.hear() == ["got", "of before"]
    assert follower.hear() == "computing"

    follower.tell("of after")

    assert follower.hear() == ["got", "of after"]
    assert other("get", "q") == "of after"


def test_result_is_kept_if_what_was_forgotten_meanwhile_does_not_touch_it(
    agent, ask, path, tmp_path
):
    """E06: a guard that refused everything would be no cache."""
    source = tmp_path / "source.txt"
    source.write_text("as it was")
    other, namesake = agent(path), agent(path, namespace="of its own")
    leader = ask(paths=[str(source)])
    assert leader.hear() == "computing"
    other("store", "p", "a")
    other("forget", "p")
    other("invalidate", [tmp_path / "other.txt"])
    namesake("store", "q", "b")
    namesake("clear")
    leader.tell("good")

    assert leader.hear() == ["got", "good"]
    assert other("get", "q") == "good"


def test_file_that_changes_while_it_is_read_makes_the_result_a_miss(agent, ask, path, tmp_path):
    """The signature is of before the computation."""
    source = tmp_path / "source.txt"
    source.write_text("as it was")
    leader = ask(paths=[str(source)])
    assert leader.hear() == "computing"
    source.write_text("as it is now, and longer")
    leader.tell("stale")

    assert leader.hear() == ["got", "stale"]
    assert agent(path)("get", "q") is None


def test_newer_answer_of_another_process_is_not_overwritten(agent, ask, path):
    """E03, E06: the computed result is the older one by now."""
    other = agent(path)
    other("store", "q", "old", ttl=0.000001)  # there, and too old to be served
    leader = ask()
    assert leader.hear() == "computing"

    assert other("store", "q", "newer") is True

    leader.tell("older")

    assert leader.hear() == ["got", "older"]
    assert other("get", "q") == "newer"


# The file is another one by the time that the result comes.


def deleted(path, other):
    path.unlink()


def deleted_and_begun_anew(path, other):
    path.unlink()
    assert other("store", "p", "begun anew") is True


def emptied(path, other):
    os.truncate(path, 0)


def cut_off(path, other):
    os.truncate(path, path.stat().st_size // 2)


def replaced_by_another_cache(path, other):
    Cache(path.with_name("another.json")).store("p", "elsewhere")
    os.replace(path.with_name("another.json"), path)


def restored_from_a_backup(path, other):
    os.replace(path.with_name("backup"), path)


@pytest.mark.parametrize(
    "outsider",
    [
        deleted,
        deleted_and_begun_anew,
        emptied,
        cut_off,
        replaced_by_another_cache,
        restored_from_a_backup,
    ],
)
def test_result_that_was_begun_under_another_file_is_returned_and_not_kept(
    agent, ask, path, outsider
):
    """E02: what was forgotten meanwhile can't be known any more."""
    other = agent(path)
    other("store", "unrelated", "kept")
    shutil.copy2(path, path.with_name("backup"))
    other("forget", "unrelated")  # which the backup has not heard of
    leader = ask()
    assert leader.hear() == "computing"
    outsider(path, other)
    leader.tell("stale")

    assert leader.hear() == ["got", "stale"]
    assert leader.hear()["refused"] == 1
    assert agent(path)("get", "q") is None

    # And life goes on.
    assert other("store", "q", "fresh") is True
    leader.tell()
    assert leader.hear() == "fresh"


def test_result_that_was_begun_before_there_was_a_file_is_kept(agent, ask, path):
    """E02: as long as the file remembers all since its first commit."""
    leader = ask()
    assert leader.hear() == "computing"
    agent(path)("store", "p", "the first commit")
    leader.tell("good")

    assert leader.hear() == ["got", "good"]
    assert agent(path)("get", "q") == "good"


def test_result_that_was_begun_before_there_was_a_file_is_refused_if_it_was_forgotten(
    agent, ask, path
):
    """E02, E06: a forget of what is not there is a commit all the same."""
    leader = ask()
    assert leader.hear() == "computing"

    assert agent(path)("forget", "q") is False

    leader.tell("stale")

    assert leader.hear() == ["got", "stale"]
    assert agent(path)("get", "q") is None
