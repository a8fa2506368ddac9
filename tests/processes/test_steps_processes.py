"""Steps of several processes: one output for all, and no replay past anybody's write."""

from __future__ import annotations

import sys

import pytest

from respcache import Step, StepCache
from respcache.replay import read

pytestmark = pytest.mark.xdist_group("processes")

ORDER = {
    "reads_mutable_state": False,
    "stale_is_unsafe": True,
    "side_effects": True,
    "replay": "exact",
}
PAGE = {"reads_mutable_state": True, "stale_is_unsafe": False}

# Runs a step for each line that it hears, and stops in it where it is told to.
WORKER = """
from respcache import Step, StepCache

steps = StepCache(args["path"], model="m")

def compute(prompt):
    if args["stops"]:
        say("runs")
        hear()
    return [prompt, os.getpid()]

while True:
    name, facts, prompt, inputs = hear()
    done = steps.run(Step(name, **facts), prompt, compute, inputs=inputs)
    say([done.cached, done.output])
"""


@pytest.fixture
def worker(start, tmp_path):
    return lambda *, stops=False: start(WORKER, path=tmp_path / "steps.jsonl", stops=stops)


def test_output_of_one_process_is_served_in_another(worker, tmp_path):
    one, other = worker(), worker()
    page = tmp_path / "page.md"
    page.write_text("a")
    run = ["page", PAGE, "p", [str(page)]]
    one.tell(run)
    cached, output = one.hear()
    other.tell(run)

    assert cached is False
    assert other.hear() == [True, output]
    page.write_text("b")
    other.tell(run)
    assert other.hear()[0] is False


@pytest.mark.skipif(sys.platform != "linux", reason="flights of processes need OFD locks")
def test_equal_runs_of_processes_run_once(worker):
    one, others = worker(stops=True), [worker(), worker()]
    run = ["page", PAGE, "p", []]
    one.tell(run)
    assert one.hear() == "runs"
    for other in others:
        other.tell(run)
    one.tell()
    cached, output = one.hear()

    assert cached is False
    assert [other.hear() for other in others] == [[True, output]] * 2


def test_process_that_dies_in_a_step_keeps_nothing_and_frees_the_others(worker):
    one, other = worker(stops=True), worker()
    run = ["page", PAGE, "p", []]
    one.tell(run)
    assert one.hear() == "runs"
    one.kill()
    other.tell(run)

    assert other.hear()[0] is False


@pytest.mark.parametrize("paths", [None, ["somewhere"]], ids=["unknown", "paths"])
def test_replay_never_passes_the_write_that_another_process_declares(worker, tmp_path, paths):
    one = worker()
    run = ["order", ORDER, "p", []]
    one.tell(run)
    assert one.hear()[0] is False
    one.tell(run)
    assert one.hear()[0] is True
    StepCache(tmp_path / "steps.jsonl", model="any").external_write(paths)
    one.tell(run)

    assert one.hear()[0] is False


def test_output_under_way_is_not_kept_past_the_write_of_another_process(worker, tmp_path):
    one = worker(stops=True)
    one.tell(["order", ORDER, "p", []])
    assert one.hear() == "runs"
    here = StepCache(tmp_path / "steps.jsonl", model="m")
    here.external_write()
    one.tell()
    assert one.hear()[0] is False

    assert here.run(Step("order", **ORDER), "p", lambda _: "anew").cached is False


def test_input_that_another_process_changes_during_the_run_keeps_nothing(worker, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a")
    one = worker(stops=True)
    one.tell(["page", PAGE, "p", [str(page)]])
    assert one.hear() == "runs"
    page.write_text("b")
    one.tell()
    assert one.hear()[0] is False

    here = StepCache(tmp_path / "steps.jsonl", model="m")
    assert here.stats()["entries"] == 0


def test_processes_may_record_into_one_file(start, together, tmp_path):
    source = """
    from respcache import Step, StepCache

    step = Step("s", reads_mutable_state=False, stale_is_unsafe=False)
    steps = StepCache(model="m")
    barrier()
    with steps.record(args["path"]):
        for number in range(200):
            steps.run(step, f"{args['name']} {number} " + "x" * 5000, lambda _: 1)
    say("done")
    """
    path = tmp_path / "runs.jsonl"
    children = [start(source, path=path, name=name) for name in "abc"]
    together(children)
    for each in children:
        assert each.hear() == "done"

    items = read(path)

    assert len(items) == 600
    for name in "abc":
        mine = [item.prompt.split()[1] for item in items if item.prompt.startswith(name)]
        assert mine == [str(number) for number in range(200)]
