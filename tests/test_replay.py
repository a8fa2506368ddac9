"""What a replay lets pass, and what it finds: each check against a cache that is broken on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import respcache.replay as replay_module
from respcache import ConfigError, Done, RespcacheError, Staleness, Step, StepCache
from respcache._switches import DISABLE, READONLY, REFRESH
from respcache.replay import Report, read, replay
from respcache.testing import assert_replay

SNIPPET = Step(
    "snippet", reads_mutable_state=True, stale_is_unsafe=False, staleness=Staleness.COSMETIC
)
LINT = Step("lint", reads_mutable_state=False, stale_is_unsafe=False)
INTENT = Step("intent", reads_mutable_state=True, stale_is_unsafe=False, normalizable=True)
ANSWER = Step("answer", reads_mutable_state=True, stale_is_unsafe=True)
ORDER = Step(
    "order", reads_mutable_state=True, stale_is_unsafe=True, side_effects=True, replay="exact"
)
STEPS = {step.name: step for step in (SNIPPET, LINT, INTENT, ANSWER, ORDER)}
TIME = 1_000_000_000.0


@pytest.fixture
def pages(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    for name in "ab":
        (pages / f"{name}.md").write_text(f"page {name}\n")
    return pages


def line(step: Step = SNIPPET, prompt: str = "p", **facts: Any) -> dict[str, Any]:
    return {"step": step.name, "model": "m", "prompt": prompt, "at": TIME, **facts}


def write(*lines: dict[str, Any]) -> Path:
    path = Path("runs.jsonl")
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def text_of(item) -> str:
    """Return what a step makes of *item*: of its spelling nothing, of its sources all."""
    sources = "".join(Path(path).read_text() for path in item.inputs)
    return f"{item.step}: {item.prompt.strip().lower()} {sources}"


def run(item, steps) -> Done:
    return steps.run(
        STEPS[item.step],
        item.prompt,
        lambda prompt: text_of(item),
        inputs=item.inputs,
        digest=item.digest,
        context=item.context,
    )


def check(report: Report, name: str):
    return next(check for check in report.checks if check.name == name)


def failed(report: Report) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


# A cache as it should be.


def test_sound_pipeline_passes_with_its_figures(pages):
    night = [
        line(SNIPPET, inputs=["pages/a.md"]),
        line(SNIPPET, inputs=["pages/b.md"]),
        line(LINT, inputs=["pages/a.md"]),
        line(INTENT, "Which page?"),
        line(INTENT, "which  page?".upper().replace("  ", " ")),
        line(ANSWER, inputs=["pages/a.md"]),
        line(ORDER, "one of each"),
    ]

    report = replay(write(*night, *night), run, hit_budget=0.5, tolerance=0.1)

    assert report.passed, str(report)
    assert (report.runs, report.hits, report.wrong, report.sources) == (14, 7, 0, 2)
    assert report.hit_rate == report.valid_hit_rate == 0.5
    assert report.steps["intent"] == {"leaf": "normalized", "runs": 4, "hits": 3, "wrong": 0}
    assert [check.name for check in report.checks] == [
        "hit rate",
        "invalidation",
        "kill switch",
        "wrong hits",
        "declared reads",
    ]
    assert "may be switched on" in str(report) and "must not" not in str(report)
    assert json.loads(json.dumps(report.to_json()))["passed"] is True


def test_recording_of_real_runs_replays(pages):
    with StepCache("steps.jsonl", model="m") as steps, steps.record("runs.jsonl"):
        for _ in range(2):
            steps.run(SNIPPET, "p", lambda _: "what it made then", inputs=["pages/a.md"])

    assert_replay("runs.jsonl", run, hit_budget=0.5)


def test_coroutine_function_runs(pages):
    async def arun(item, steps):
        async def compute(_):
            await asyncio.sleep(0)
            return text_of(item)

        done = await steps.arun(STEPS[item.step], item.prompt, compute, inputs=item.inputs)
        return done.output

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, arun, hit_budget=0.5)

    assert report.passed, str(report)
    assert report.sources == 1


def test_originals_and_environment_are_left_as_they_were(pages, monkeypatch):
    monkeypatch.setenv(REFRESH, "1")
    before = {each: (each.stat().st_mtime_ns, each.stat().st_ctime_ns) for each in pages.iterdir()}
    recording = write(line(inputs=["pages"]), line(inputs=["pages"]))

    report = replay(recording, run_over_folder, hit_budget=0.5)

    assert report.passed, str(report)
    assert report.sources == 2
    assert before == {
        each: (each.stat().st_mtime_ns, each.stat().st_ctime_ns) for each in pages.iterdir()
    }
    assert os.environ[REFRESH] == "1" and DISABLE not in os.environ


def run_over_folder(item, steps):
    def compute(_):
        return [each.read_text() for each in sorted(Path(item.inputs[0]).iterdir())]

    return steps.run(SNIPPET, item.prompt, compute, inputs=item.inputs)


def test_ttl_runs_out_as_it_did_when_it_was_recorded(pages):
    day = [line(INTENT, at=TIME + 600 * number) for number in range(4)]

    report = replay(write(*day), run, hit_budget=0.5, tolerance=0)

    assert report.steps["intent"]["hits"] == 2  # 15 minutes last for one more run each
    assert report.passed, str(report)


def test_source_whose_output_has_expired_is_tried_with_a_fresh_one(pages):
    recording = write(
        line(inputs=["pages/a.md"]), line(INTENT, at=TIME + 86400), line(INTENT, at=TIME + 86400)
    )

    report = replay(recording, run, hit_budget=0.33, make=StaleForever)

    assert failed(report) == ["invalidation"]


def test_missing_source_is_made_and_taken_away_again(pages):
    def run_maybe(item, steps):
        def compute(_):
            return os.path.exists(item.inputs[0])

        return steps.run(SNIPPET, item.prompt, compute, inputs=item.inputs)

    recording = write(line(inputs=["later/new.md"]), line(inputs=["later/new.md"]))

    report = replay(recording, run_maybe, hit_budget=0.5)

    assert report.passed, str(report)
    assert report.sources == 1
    assert not Path("later").exists()


def test_step_that_fails_on_a_changed_source_has_missed(pages):
    def strict(item, steps):
        def compute(_):
            text = Path(item.inputs[0]).read_text()
            if text != "page a\n":
                raise ValueError("not what it was")
            return text

        return steps.run(SNIPPET, item.prompt, compute, inputs=item.inputs)

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, strict, hit_budget=0.5)

    assert report.passed, str(report)


def test_outputs_that_vary_are_compared_by_the_caller(pages, tmp_path):
    counter = [0]

    def vague(item, steps):
        def compute(_):
            counter[0] += 1
            return {"said": "yes", "draft": counter[0]}

        return steps.run(LINT, item.prompt, compute)

    recording = write(line(LINT), line(LINT))

    strict = replay(recording, vague, hit_budget=0.5)
    loose = replay(
        recording, vague, hit_budget=0.5, same=lambda one, other: one["said"] == other["said"]
    )

    assert failed(strict) == ["kill switch", "wrong hits"]
    assert loose.passed, str(loose)


def test_caches_that_are_made_by_the_caller_have_its_options(pages):
    seen = []

    def make(path, **options):
        seen.append(options["model"])
        return StepCache(path, **options, ttls={"cosmetic": 1})

    recording = write(line(), line(at=TIME + 2))

    assert replay(recording, run, hit_budget=0.0, make=make).passed


def test_progress_is_told(pages):
    told = []

    replay(
        write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"])),
        run,
        hit_budget=0.5,
        tell=lambda *given: told.append(given),
    )

    assert ("cache on", 0, 2) in told and ("cache on", 2, 2) in told
    assert ("sources", 1, 1) in told
    assert told[-1] == ("cache off", 2, 2)


def test_what_steps_print_does_not_reach_stdout(pages, capfd):
    def loud(item, steps):
        print("talk")
        return run(item, steps)

    replay(write(line(), line()), loud, hit_budget=0.5)

    out, err = capfd.readouterr()
    assert out == "" and "talk" in err


# Check 1: the hit rate.


@pytest.mark.parametrize(("budget", "word"), [(0.9, "below the budget"), (0.1, "above the budget")])
def test_hit_rate_that_is_far_from_its_budget_fails(pages, budget, word):
    report = replay(write(line(), line()), run, hit_budget=budget)

    assert failed(report) == ["hit rate"]
    assert word in check(report, "hit rate").problems[0]
    assert "must not be switched on" in str(report)


def test_hit_rate_at_the_edge_of_the_tolerance_passes(pages):
    recording = write(*[line()] * 10)

    assert replay(recording, run, hit_budget=0.75, tolerance=0.15).passed
    assert not replay(recording, run, hit_budget=0.7, tolerance=0.15).passed


def test_budget_of_one_step_is_held_against_its_runs(pages):
    recording = write(line(), line(), line(ANSWER), line(ANSWER))

    report = replay(recording, run, hit_budget={"snippet": 0.9, "answer": 0.0, "never": 0.5})

    assert check(report, "hit rate").problems == [
        "snippet: hit rate 0.50 is below the budget, 0.9 ± 0.15",
        "never has a hit budget, and was never run",
    ]


class WithoutModel(StepCache):
    """The commonest of bugs: the model is not in the key."""

    def _key(self, *given: Any) -> str:
        model, self.model = self.model, "any"
        try:
            return super()._key(*given)
        finally:
            self.model = model


def of_model(item, steps):
    return steps.run(LINT, item.prompt, lambda prompt: f"{steps.model} says {prompt}")


def test_key_without_the_model_is_caught(pages):
    recording = write(line(LINT), line(LINT, model="n"))

    assert failed(replay(recording, of_model, hit_budget=0.0)) == []
    report = replay(recording, of_model, hit_budget=0.5, make=WithoutModel)

    assert failed(report) == ["hit rate", "wrong hits"]
    assert check(report, "hit rate").problems == [
        "lint: line 2 is served what line 1 made, but differs in model; it is left out of the key"
    ]
    assert check(report, "wrong hits").problems == [
        "lint: line 2 is served 'm says p'; a fresh run makes 'n says p'"
    ]
    assert (report.hit_rate, report.valid_hit_rate) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("left_out", "one", "other"),
    [
        pytest.param("context", {"context": {"user": 1}}, {"context": {"user": 2}}, id="context"),
        pytest.param("digest", {"digest": "v1"}, {"digest": "v2"}, id="digest"),
        pytest.param("inputs", {"inputs": ["pages/a.md"]}, {"inputs": ["pages/b.md"]}, id="inputs"),
        pytest.param("prompt", {"prompt": "p"}, {"prompt": "q"}, id="prompt"),
    ],
)
def test_input_that_the_run_leaves_out_is_named(pages, left_out, one, other):
    """Also where the outputs happen to be the same."""

    def forgetful(item, steps):
        given = {"inputs": item.inputs, "digest": item.digest, "context": item.context}
        given.pop(left_out, None)
        prompt = "always" if left_out == "prompt" else item.prompt
        return steps.run(LINT, prompt, lambda _: "the same", **given)

    report = replay(
        write(line(LINT, **{"prompt": "p", **one}), line(LINT, **{"prompt": "p", **other})),
        forgetful,
        hit_budget=0.5,
    )

    assert f"differs in {left_out}" in check(report, "hit rate").problems[0]
    assert "hit rate" in failed(report)


def test_prompts_that_differ_in_spelling_are_no_finding_on_the_normalized_leaf(pages):
    report = replay(write(line(INTENT, "A b"), line(INTENT, "a  B ")), lower, hit_budget=0.5)

    assert report.passed, str(report)


def lower(item, steps):
    return steps.run(INTENT, item.prompt, lambda _: " ".join(item.prompt.lower().split()))


# Check 2: sources.


class StaleForever(StepCache):
    """Its time to live does all the work: the digest of the inputs is for show."""

    def _key(self, step: Any, leaf: Any, prompt: Any, content: Any, *rest: Any) -> str:
        return super()._key(step, leaf, prompt, [], *rest)


def test_digest_for_show_is_caught_and_its_source_named(pages):
    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, run, hit_budget=0.5, make=StaleForever)

    assert failed(report) == ["invalidation"]
    assert check(report, "invalidation").problems == [
        f"{pages / 'a.md'} was changed, and snippet was still served (line 1)"
    ]


def test_source_that_is_recorded_and_no_longer_passed_is_caught(pages):
    def forgetful(item, steps):
        return steps.run(SNIPPET, item.prompt, lambda _: text_of(item))

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, forgetful, hit_budget=0.5)

    assert failed(report) == ["invalidation", "declared reads"]


def test_each_file_that_was_read_of_a_folder_is_changed(pages):
    class OfNames(StepCache):
        """Its digest of a folder is of the names in it."""

        def _key(self, step, leaf, prompt, content, *rest):
            listing = [sorted(os.listdir(name)) for name, _ in content]
            return super()._key(step, leaf, prompt, listing, *rest)

    recording = write(line(inputs=["pages"]), line(inputs=["pages"]))

    report = replay(recording, run_over_folder, hit_budget=0.5, make=OfNames)

    assert [problem.split(" ")[0] for problem in check(report, "invalidation").problems] == [
        str(pages / "a.md"),
        str(pages / "b.md"),
    ]


def test_digest_by_stamps_is_caught(pages):
    """The change has the old stamp, as a restored backup or a quick editor leaves it."""

    class OfStamps(StepCache):
        def _key(self, step, leaf, prompt, content, *rest):
            stamps = [os.stat(name).st_mtime_ns for name, _ in content]
            return super()._key(step, leaf, prompt, stamps, *rest)

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    assert failed(replay(recording, run, hit_budget=0.5, make=OfStamps)) == ["invalidation"]


def test_pipeline_without_sources_says_that_none_was_changed(pages):
    report = replay(write(line(), line()), run, hit_budget=0.5)

    assert "no kept step reads a source" in check(report, "invalidation").summary


def test_link_out_of_the_copies_never_leads_back_to_an_original(pages, tmp_path):
    outside = tmp_path / "outside.md"
    outside.write_text("original")
    (pages / "link.md").symlink_to(outside)
    recording = write(line(inputs=["pages"]), line(inputs=["pages"]))

    report = replay(recording, run_over_folder, hit_budget=0.5)

    assert report.passed, str(report)
    assert report.sources == 3
    assert outside.read_text() == "original"


# Check 3: the switch.


class StillServes(StepCache):
    """An off switch that is not asked."""

    def run(self, step, prompt, compute, **given):
        kept = self.__dict__.setdefault("kept", {})
        if prompt not in kept:
            kept[prompt] = compute(prompt)
            return Done(kept[prompt], False, 0.0, None)
        return Done(kept[prompt], True, 0.0, None)


def test_off_switch_that_still_serves_is_caught(pages):
    report = replay(write(line(LINT), line(LINT)), run, hit_budget=0.5, make=StillServes)

    assert failed(report) == ["kill switch"]
    assert check(report, "kill switch").problems[0] == "off, lint was still served (line 1)"


@pytest.mark.parametrize("touch", ["read", "write"])
def test_off_switch_that_touches_the_file_is_caught(pages, touch):
    class Touches(StepCache):
        def run(self, *given, **named):
            if os.environ.get(DISABLE):
                with open(self.path, "rb" if touch == "read" else "ab"):
                    pass
            return super().run(*given, **named)

    report = replay(write(line(LINT), line(LINT)), run, hit_budget=0.5, make=Touches)

    assert failed(report) == ["kill switch"]
    assert "still uses its folder: steps.jsonl" in check(report, "kill switch").problems[0]


def test_pipeline_that_is_another_with_the_cache_off_is_caught(pages):
    def dependent(item, steps):
        done = run(item, steps)
        return f"{done.output} ({'off' if os.environ.get(DISABLE) else 'on'})"

    report = replay(write(line(LINT), line(LINT)), dependent, hit_budget=0.5)

    assert failed(report) == ["kill switch"]
    assert "gives 'lint: p  (off)'; on, it gives 'lint: p  (on)'" in str(report)


# Check 4: wrong hits.


def test_hit_that_a_fresh_run_does_not_make_is_caught(pages):
    """An input that is nowhere: not in the recording, not in the key."""

    def hidden(item, steps):
        return steps.run(LINT, item.prompt, lambda _: item["mood"])

    report = replay(write(line(LINT, mood="good"), line(LINT, mood="bad")), hidden, hit_budget=0.5)

    assert failed(report) == ["wrong hits"]
    assert report.wrong == 1
    assert report.steps["lint"]["wrong"] == 1


def test_normalizer_that_takes_opposites_for_one_is_caught(pages):
    class Loose(StepCache):
        def _normalize(self, prompt):
            return prompt.lower().replace("de", "").replace("un", "")

    recording = write(line(INTENT, "activate user 4471"), line(INTENT, "deactivate user 4471"))

    report = replay(recording, run, hit_budget=0.5, make=Loose)

    assert "wrong hits" in failed(report)


def test_outer_step_s_hit_is_compared_though_the_inner_one_did_not_run(pages):
    def nested(item, steps):
        def outer(prompt):
            return steps.run(SNIPPET, prompt, lambda _: text_of(item), inputs=item.inputs).output

        return steps.run(INTENT, item.prompt, outer, inputs=item.inputs)

    recording = write(line(INTENT, inputs=["pages/a.md"]), line(INTENT, inputs=["pages/a.md"]))

    report = replay(recording, nested, hit_budget=0.33)

    assert report.passed, str(report)
    assert report.runs == 3


# Files that were not declared.


def opens(path):
    with open(path) as file:
        return file.read()


def lists(path):
    return sorted(os.listdir(os.path.dirname(path)))


def opens_low(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        pytest.param(opens, "b.md", id="open"),
        pytest.param(opens_low, "b.md", id="os.open"),
        pytest.param(lambda path: Path(path).read_text(), "b.md", id="pathlib"),
        pytest.param(lists, "", id="listing"),
    ],
)
def test_file_that_a_step_opens_and_does_not_declare_is_named(pages, how, named):
    def sly(item, steps):
        return steps.run(
            SNIPPET, item.prompt, lambda _: how(str(pages / "b.md")), inputs=item.inputs
        )

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, sly, hit_budget=0.5)

    assert failed(report) == ["declared reads"]
    assert check(report, "declared reads").problems == [
        f"snippet reads {pages / named if named else pages}, and does not declare it"
    ]


def test_file_that_is_opened_in_a_thread_of_the_step_is_named(pages):
    import threading

    def sly(item, steps):
        def compute(_):
            thread = threading.Thread(target=opens, args=[str(pages / "b.md")])
            thread.start()
            thread.join()
            return "done"

        return steps.run(SNIPPET, item.prompt, compute)

    assert failed(replay(write(line(), line()), sly, hit_budget=0.5)) == ["declared reads"]


def test_original_that_is_read_past_the_item_is_named(pages):
    def past(item, steps):
        return steps.run(
            SNIPPET, item.prompt, lambda _: (pages / "a.md").read_text(), inputs=item.inputs
        )

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, past, hit_budget=0.5)

    assert failed(report) == ["declared reads"]


def test_file_that_an_inner_step_opens_counts_for_the_step_around_it(pages):
    """The inner output is in the outer one, which is served when the file has changed."""

    def nested(item, steps):
        def inner(_):
            return (pages / "b.md").read_text()

        def outer(prompt):
            return steps.run(ANSWER, prompt, inner, inputs=[pages / "b.md"]).output

        return steps.run(SNIPPET, item.prompt, outer, inputs=item.inputs)

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    report = replay(recording, nested, hit_budget=0.33)

    assert check(report, "declared reads").problems == [
        f"snippet reads {pages / 'b.md'}, and does not declare it"
    ]


@pytest.mark.parametrize("how", ["coroutines", "plain", "threads"])
def test_steps_at_once_do_not_answer_for_each_other(pages, how):
    def paths(item):
        return [os.path.join(item.inputs[0], name) for name in ("a.md", "b.md")]

    async def gathered(item, steps):
        async def compute(path):
            await asyncio.sleep(0)
            return Path(path).read_text()

        kind = compute if how == "coroutines" else opens
        given = [
            steps.arun(SNIPPET, path, lambda p, path=path: kind(path), inputs=[path])
            for path in paths(item)
        ]
        return [done.output for done in await asyncio.gather(*given)]

    def threaded(item, steps):
        with ThreadPoolExecutor() as pool:
            given = [
                pool.submit(steps.run, SNIPPET, path, opens, inputs=[path]) for path in paths(item)
            ]
            return [future.result().output for future in given]

    recording = write(line(inputs=["pages"]), line(inputs=["pages"]))

    report = replay(recording, threaded if how == "threads" else gathered, hit_budget=0.5)

    assert report.passed, str(report)


@pytest.mark.parametrize("digest", [None, "v1"])
def test_database_that_a_step_connects_to_is_named_unless_there_is_a_digest(pages, digest):
    sqlite3.connect(pages / "records.db").execute("create table t (x)")

    def asks(item, steps):
        def compute(_):
            sqlite3.connect(":memory:")
            return sqlite3.connect(pages / "records.db").execute("select * from t").fetchall()

        return steps.run(SNIPPET, item.prompt, compute, digest=digest)

    report = replay(write(line(digest=digest), line(digest=digest)), asks, hit_budget=0.5)

    assert failed(report) == ([] if digest else ["declared reads"])


def test_external_writes_are_declared_again(pages):
    with StepCache(model="m") as steps, steps.record("runs.jsonl"):
        for paths in (None, ["pages/a.md"], []):
            steps.run(ORDER, "p", lambda _: "order: p ")
            steps.external_write(paths)
        steps.run(ORDER, "p", lambda _: "order: p ")

    report = replay("runs.jsonl", run, hit_budget=0.25, tolerance=0)

    assert report.passed, str(report)
    assert len(read("runs.jsonl")) == 4


def test_step_that_takes_its_input_away_is_no_crash(pages):
    def takes(item, steps):
        def compute(_):
            Path(item.inputs[0]).unlink(missing_ok=True)
            return "taken"

        return steps.run(SNIPPET, item.prompt, compute, inputs=item.inputs)

    report = replay(write(line(inputs=["pages/a.md"])), takes, hit_budget=0.0)

    assert report.passed, str(report)
    assert (pages / "a.md").exists()


def test_inputs_that_are_not_there_are_told(pages):
    report = replay(write(line(inputs=["nowhere.md"])), lower_missing, hit_budget=0.0)

    assert "inputs that are not there: 1" in check(report, "invalidation").summary


def lower_missing(item, steps):
    return steps.run(SNIPPET, item.prompt, str.lower, inputs=item.inputs)


def test_comparison_that_fails_is_told_by_its_error(pages):
    def fails(one, other):
        raise KeyError("mine")

    with pytest.raises(RespcacheError, match="the replay failed: KeyError: 'mine'"):
        replay(write(line(), line()), run, hit_budget=0.5, same=fails)


def test_own_scratch_files_imports_and_uncached_steps_are_no_findings(pages, tmp_path):
    (tmp_path / "late_module.py").write_text("VALUE = 5\n")

    def busy(item, steps):
        def compute(_):
            import sys
            import tempfile
            import zoneinfo

            with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError):
                zoneinfo.ZoneInfo.no_cache("Europe/Berlin")

            sys.path.insert(0, str(tmp_path))
            import late_module

            del sys.modules["late_module"]
            with tempfile.TemporaryDirectory() as folder:
                scratch = Path(folder, "scratch")
                scratch.write_text("x")
                return late_module.VALUE, scratch.read_text()

        def read_b(_):
            return (pages / "b.md").read_text()

        steps.run(ANSWER, item.prompt, read_b)
        return steps.run(SNIPPET, item.prompt, lambda _: list(compute(_)))

    report = replay(write(line(), line()), busy, hit_budget=0.25)

    assert report.passed, str(report)


# What can go wrong with the run itself.


def test_item_that_can_not_be_run_is_told_with_its_line(pages):
    def fails(item, steps):
        if item.line == 2:
            raise KeyError("gone")
        return run(item, steps)

    report = replay(write(line(), line(), line()), fails, hit_budget=0.5)

    assert failed(report) == ["run"]
    assert check(report, "run").problems == ["line 2: KeyError: 'gone'"]


def test_run_that_wants_to_exit_is_told(pages):
    def leaves(item, steps):
        raise SystemExit(3)

    assert "line 1: SystemExit: 3" in str(replay(write(line()), leaves, hit_budget=0.0))


def test_run_past_the_given_cache_is_told(pages):
    mine = StepCache(model="m")

    report = replay(write(line()), lambda item, steps: run(item, mine), hit_budget=0.0)

    assert check(report, "run").problems == ["line 1: runs no step with the cache that it is given"]


def test_item_is_the_run_s_own_to_change(pages):
    def greedy(item, steps):
        inputs = list(item.inputs)
        item.inputs.append("more")
        item.context["user"] = 2
        return steps.run(SNIPPET, item.prompt, lambda _: "x", inputs=inputs)

    recording = write(*[line(inputs=["pages/a.md"], context={"user": 1})] * 2)

    assert_replay(recording, greedy, hit_budget=0.5)


def test_result_that_is_no_json_is_told(pages):
    report = replay(write(line()), lambda item, steps: {1, 2}, hit_budget=0.0)

    assert "line 1: what it gives is no JSON value" in check(report, "run").problems[0]


def test_process_that_dies_is_told(pages):
    def dies(item, steps):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RespcacheError, match=f"ended early, with -{int(signal.SIGKILL)}"):
        replay(write(line()), dies, hit_budget=0.5)


def test_who_is_told_may_stop_it(pages):
    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    with pytest.raises(StopError):
        replay(write(line()), run, hit_budget=0.5, tell=stop)


def test_without_fork_it_runs_here(pages, monkeypatch):
    monkeypatch.delattr(os, "fork")
    monkeypatch.setenv(READONLY, "1")
    pids = []

    def here(item, steps):
        pids.append(os.getpid())
        return run(item, steps)

    recording = write(line(inputs=["pages/a.md"]), line(inputs=["pages/a.md"]))

    assert replay(recording, here, hit_budget=0.5).passed
    assert failed(replay(recording, here, hit_budget=0.5, make=StaleForever)) == ["invalidation"]
    assert set(pids) == {os.getpid()}
    assert os.environ[READONLY] == "1" and DISABLE not in os.environ


@pytest.mark.parametrize(
    ("options", "named"),
    [
        pytest.param({"hit_budget": 40}, "hit_budget=40", id="per cent"),
        pytest.param({"hit_budget": "0.4"}, "hit_budget='0.4'", id="text"),
        pytest.param({"hit_budget": {"s": 2}}, "s=2", id="of a step"),
        pytest.param({"hit_budget": 0.4, "tolerance": -1}, "tolerance=-1", id="tolerance"),
    ],
)
def test_option_that_can_not_be_is_refused_by_name(pages, options, named):
    with pytest.raises(ConfigError, match=named):
        replay(write(line()), run, **options)


def test_empty_recording_is_refused(pages):
    with pytest.raises(ConfigError, match="holds no recorded runs"):
        replay(write(), run, hit_budget=0.5)


def test_recording_that_is_not_there_is_refused(pages):
    with pytest.raises(ConfigError, match="can't be read"):
        replay("missing.jsonl", run, hit_budget=0.5)


def test_assertion_shows_the_whole_report(pages):
    with pytest.raises(AssertionError) as error:
        assert_replay(write(line(), line()), run, hit_budget=0.0)

    assert "FAIL  hit rate" in str(error.value)
    assert assert_replay("runs.jsonl", run, hit_budget=0.5).passed
    assert read("runs.jsonl")[0].prompt == "p"


def test_report_is_short_enough_to_be_shown(pages):
    report = replay(write(line(), line()), run, hit_budget=0.5)

    assert repr(report).startswith("Report(passed=True, hit_rate=0.50")
    assert replay_module.__doc__ and "necessary, not sufficient" in replay_module.__doc__
