"""``respcache replay``: the exit code is the verdict, and what it prints can be read on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from respcache import cli

PIPELINE = """
from pathlib import Path

from respcache import Step, StepCache

SNIPPET = Step("snippet", reads_mutable_state=True, stale_is_unsafe=False)

def run(item, steps):
    print("talk")
    return steps.run(
        SNIPPET,
        item.prompt,
        lambda prompt: Path(item.inputs[0]).read_text(),
        inputs=item.inputs,
    )

def alike(one, other):
    return True

def moody(item, steps):
    return steps.run(SNIPPET, item.prompt, lambda _: item.rest["mood"])

class Stale(StepCache):
    def _key(self, step, leaf, prompt, content, *rest):
        return super()._key(step, leaf, prompt, [], *rest)

VALUE = 5
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"pipeline_{tmp_path.name.replace('-', '_')}"
    Path(f"{name}.py").write_text(PIPELINE)
    Path("page.md").write_text("page")
    line = {"step": "snippet", "model": "m", "prompt": "p", "inputs": ["page.md"]}
    Path("runs.jsonl").write_text(
        "".join(json.dumps({**line, "mood": mood}) + "\n" for mood in "ab")
    )
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def replay(folder, capfd):
    def call(*args: str, run: str = "run") -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["replay", "runs.jsonl", "--run", f"{folder}:{run}", *args])
        return ended.value.code, *capfd.readouterr()

    return call


def test_cache_that_may_be_switched_on_is_exit_code_0(replay):
    code, out, err = replay("--hit-budget", "0.5")

    assert code == 0
    assert out.splitlines()[:2] == [
        "step     leaf  runs  hits  wrong  rate",
        "snippet  ttl      2     1      0  0.50",
    ]
    assert out.count("pass  ") == 5 and "This cache may be switched on." in out
    assert "talk" in err and "talk" not in out


def test_cache_that_must_not_be_switched_on_is_exit_code_1(replay, folder):
    code, out, _ = replay("--hit-budget", "0.5", "--make", f"{folder}:Stale")

    assert code == 1
    assert "FAIL  invalidation" in out
    assert f"{Path('page.md').absolute()} was changed" in out


def test_json_is_the_report(replay):
    code, out, _ = replay("--hit-budget", "0.1", "--json")
    report = json.loads(out)

    assert code == 1
    assert report["passed"] is False
    assert report["checks"][0]["problems"] == ["hit rate 0.50 is above the budget, 0.1 ± 0.15"]


def test_budget_by_step_tolerance_and_comparison_are_taken(replay, folder):
    assert replay("--hit-budget", '{"snippet": 0.2}', "--tolerance", "0.3")[0] == 0
    assert replay("--hit-budget", "0.5", run="moody")[0] == 1
    assert (
        replay("--hit-budget", "0.5", "--same", f"{folder}:alike", run="moody")[1].count("pass")
        == 4
    )  # its source is passed to nobody


@pytest.mark.parametrize(
    ("args", "named"),
    [
        pytest.param(["--run", "nowhere:run"], "--run: nowhere can't be imported", id="module"),
        pytest.param(["--run", "run"], "'run' names no function", id="no module"),
        pytest.param(["--run", "json:nothing"], "json has no function 'nothing'", id="function"),
        pytest.param(["--hit-budget", "much"], "--hit-budget: is not JSON", id="budget"),
        pytest.param(["--hit-budget", "40"], "hit_budget=40", id="per cent"),
        pytest.param(["--tolerance", "2"], "tolerance=2.0", id="tolerance"),
    ],
)
def test_what_was_asked_wrongly_is_one_line_and_exit_code_2(replay, args, named):
    code, out, err = replay("--hit-budget", "0.5", *args)

    assert code == 2
    assert out == ""
    assert named in err and err.count("\n") == 1


def test_recording_that_is_not_there_is_one_line(replay, capfd, folder):
    Path("runs.jsonl").unlink()

    code, out, err = replay("--hit-budget", "0.5")

    assert (code, out) == (2, "")
    assert err == "respcache: runs.jsonl: can't be read: No such file or directory\n"
