"""What a step cache keeps, serves, forgets and tells: one process, all stores."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import respcache._inputs as inputs_module
from respcache import (
    Cache,
    ConfigError,
    Done,
    Hit,
    Leaf,
    Staleness,
    Step,
    StepCache,
    StoreError,
    ToolCache,
    ToolCall,
    Tree,
    UncacheableError,
)
from respcache._switches import DISABLE, READONLY, REFRESH
from respcache.replay import read

LONG = 30.0  # seconds after which a test that hangs fails

EXACT = Step("lint", reads_mutable_state=False, stale_is_unsafe=False)
TTL = Step("snippet", reads_mutable_state=True, stale_is_unsafe=False, staleness=Staleness.COSMETIC)
SHORT = Step("changes", reads_mutable_state=True, stale_is_unsafe=False)
NORMALIZED = Step("intent", reads_mutable_state=True, stale_is_unsafe=False, normalizable=True)
NONE = Step("answer", reads_mutable_state=True, stale_is_unsafe=True)
WRITE = Step("mail", reads_mutable_state=False, stale_is_unsafe=True, side_effects=True)
REPLAYED = Step(
    "order",
    reads_mutable_state=True,
    stale_is_unsafe=True,
    side_effects=True,
    normalizable=True,
    replay="exact",
)
KEPT = [EXACT, TTL, SHORT, NORMALIZED, REPLAYED]


def named(step: Step) -> str:
    return step.name


class Runs:
    """A step's computation that counts its runs, and gives their number or *output*."""

    def __init__(self, output: Any = None) -> None:
        self.prompts: list[str] = []
        self.output = output

    def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        return len(self.prompts) if self.output is None else self.output

    @property
    def count(self) -> int:
        return len(self.prompts)


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture(params=["memory", "document", "log"])
def path(request, tmp_path):
    suffix = {"memory": None, "document": "json", "log": "jsonl"}[request.param]
    return suffix and tmp_path / f"steps.{suffix}"


@pytest.fixture
def make(path, clock):
    made = []

    def make(**options) -> StepCache:
        options.setdefault("model", "m")
        options.setdefault("path", path)
        cache = StepCache(clock=clock, **options)
        made.append(cache)
        return cache

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def steps(make) -> StepCache:
    return make()


@pytest.fixture
def page(tmp_path) -> Path:
    page = tmp_path / "page.md"
    page.write_text("one\n\ntwo\n")
    return page


# What is served.


class TestServing:
    @pytest.mark.parametrize("step", KEPT, ids=named)
    def test_equal_run_is_served_with_its_age(self, steps, clock, runs, step):
        first = steps.run(step, "p", runs)
        clock.advance(5)
        second = steps.run(step, "p", runs)

        leaf = first.leaf
        assert first == Done(1, False, 0.0, leaf)
        assert (second.output, second.cached, second.leaf) == (1, True, leaf)
        assert second.age == pytest.approx(5, abs=1e-3)
        assert runs.prompts == ["p"]

    @pytest.mark.parametrize("step", [NONE, WRITE], ids=named)
    def test_step_of_no_leaf_runs_each_time(self, steps, runs, step):
        outputs = [steps.run(step, "p", runs).output for _ in range(3)]

        assert outputs == [1, 2, 3]
        assert steps.stats()["entries"] == 0
        assert steps.stats()["bypassed"] == 3

    def test_output_comes_back_equal_and_as_the_caller_s_own(self, steps, runs):
        runs.output = {"a": [1, 2.0, None, True, "ä"]}

        steps.run(EXACT, "p", runs)
        served = steps.run(EXACT, "p", runs).output
        served["a"].clear()

        assert steps.run(EXACT, "p", runs).output == {"a": [1, 2.0, None, True, "ä"]}
        assert runs.count == 1

    def test_none_is_an_output(self, steps):
        calls = []

        for _ in range(2):
            assert steps.run(EXACT, "p", calls.append).output is None
        assert calls == ["p"]

    def test_output_that_is_no_json_is_returned_and_not_kept(self, steps, runs):
        runs.output = {1, 2}

        assert steps.run(EXACT, "p", runs).output == {1, 2}
        assert steps.run(EXACT, "p", runs).cached is False
        assert steps.stats()["refused"] == 2

    def test_error_passes_through_and_nothing_is_kept(self, steps, runs):
        def fail(_):
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            steps.run(EXACT, "p", fail)

        assert steps.run(EXACT, "p", runs).cached is False

    def test_other_process_s_cache_is_served(self, make, path, runs):
        if path is None:
            pytest.skip("memory is one process's")
        make().run(TTL, "p", runs)

        assert make().run(TTL, "p", runs).cached is True

    def test_prompt_that_is_no_text_runs_each_time(self, steps, runs):
        steps.run(EXACT, ["p"], runs)
        steps.run(EXACT, ["p"], runs)

        assert runs.count == 2

    def test_equal_runs_at_once_run_once(self, steps, runs):
        begun, go = threading.Event(), threading.Event()
        done = []

        def slow(prompt):
            begun.set()
            go.wait(LONG)
            return runs(prompt)

        threads = [
            threading.Thread(target=lambda: done.append(steps.run(TTL, "p", slow).output))
            for _ in range(4)
        ]
        threads[0].start()
        begun.wait(LONG)
        for thread in threads[1:]:
            thread.start()
        go.set()
        for thread in threads:
            thread.join(LONG)

        assert done == [1] * 4
        assert runs.count == 1

    @pytest.mark.parametrize("step", KEPT, ids=named)
    def test_coroutine_is_awaited_once_for_equal_runs(self, steps, runs, step, page):
        async def compute(prompt):
            await asyncio.sleep(0)
            return runs(prompt)

        async def main():
            given = [steps.arun(step, "p", compute, inputs=page) for _ in range(3)]
            return await asyncio.gather(*given)

        outputs = asyncio.run(main())

        assert [done.output for done in outputs] == [1, 1, 1]
        assert sorted(done.cached for done in outputs) == [False, True, True]

    def test_plain_function_runs_in_a_thread_for_a_coroutine(self, steps):
        here = threading.get_ident()

        done = asyncio.run(steps.arun(NONE, "p", lambda _: threading.get_ident() != here))

        assert done.output is True

    def test_what_is_no_step_is_refused(self, steps, runs):
        with pytest.raises(ConfigError, match="pass a Step"):
            steps.run("lint", "p", runs)

    @pytest.mark.parametrize("wait", [-1, None, "1", float("nan")])
    def test_wait_that_is_no_duration_is_refused(self, steps, runs, wait):
        with pytest.raises(ConfigError, match="wait="):
            steps.run(EXACT, "p", runs, wait=wait)

    def test_flat_file_keeps_its_answers_and_steps_stay_in_memory(
        self, tmp_path, runs, warnings_of
    ):
        flat = tmp_path / "answers.json"
        flat.write_text('{"q": "a"}')
        steps = StepCache(flat, model="m")

        steps.run(EXACT, "p", runs)

        assert steps.run(EXACT, "p", runs).cached is True
        assert flat.read_text() == '{"q": "a"}'
        assert "outputs of steps stay in memory" in warnings_of()[0]


# What makes two runs one.

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_keys.json").read_text("utf-8"))


class TestKeys:
    @pytest.mark.parametrize(
        "golden", [pytest.param(each, id=each["id"]) for each in GOLDEN["steps"]]
    )
    def test_key_is_as_pinned(self, golden):
        steps = StepCache(model=golden["model"], **golden["options"])
        step = Step("s", reads_mutable_state=True, stale_is_unsafe=False)
        facts = [golden[name] for name in ("prompt", "inputs", "digest", "context")]

        assert steps._key(step, Leaf(golden["leaf"]), *facts) == golden["key"]

    @pytest.mark.parametrize("step", KEPT, ids=named)
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param({"prompt": "p"}, {"prompt": "q"}, id="prompt"),
            pytest.param({"model": "m"}, {"model": "n"}, id="model"),
            pytest.param({"digest": "1"}, {"digest": 1}, id="type of the digest"),
            pytest.param({"digest": None}, {"digest": "v1"}, id="digest or none"),
            pytest.param({"context": None}, {"context": {}}, id="context or none"),
            pytest.param({"context": {"u": 1}}, {"context": {"u": 2}}, id="context"),
            pytest.param({"context": {"u": 1}}, {"context": {"u": True}}, id="type in a context"),
            pytest.param({"namespace": None}, {"namespace": "n"}, id="namespace"),
        ],
    )
    def test_whatever_was_passed_in_is_in_the_key(self, make, path, runs, step, one, other):
        if path is None and {"model", "namespace"} & one.keys():
            pytest.skip("two caches in memory share nothing anyway")

        def run(prompt="p", digest=None, context=None, **options):
            return make(**options).run(step, prompt, runs, digest=digest, context=context)

        run(**one)

        assert run(**other).cached is False
        if path is not None:
            assert run(**one).cached is True

    def test_name_of_the_step_is_in_the_key(self, steps, runs):
        other = Step("lint-2", reads_mutable_state=False, stale_is_unsafe=False)
        steps.run(EXACT, "p", runs)

        assert steps.run(other, "p", runs).cached is False

    def test_name_of_an_input_is_in_the_key(self, steps, runs, tmp_path):
        """Two files of one content are two inputs: what is made of them may name them."""
        for name in ("a.md", "b.md"):
            (tmp_path / name).write_text("same")
        steps.run(TTL, "p", runs, inputs=tmp_path / "a.md")

        assert steps.run(TTL, "p", runs, inputs=tmp_path / "b.md").cached is False

    def test_order_of_inputs_is_in_the_key(self, steps, runs, tmp_path, page):
        """What compares an old file with a new one goes by it."""
        steps.run(TTL, "p", runs, inputs=[page, tmp_path / "missing"])

        assert steps.run(TTL, "p", runs, inputs=[tmp_path / "missing", page]).cached is False

    @pytest.mark.parametrize("step", [EXACT, TTL, REPLAYED], ids=named)
    @pytest.mark.parametrize("other", ["P", "p ", " p", "p\n", "\uff50"])
    def test_exact_leaf_and_write_take_the_prompt_to_the_letter(self, steps, runs, step, other):
        """Also a write that says that it is normalizable: writes are never matched loosely."""
        steps.run(step, "p", runs)

        assert steps.run(step, other, runs).cached is False

    @pytest.mark.parametrize(
        "other",
        ["SUMMARIZE   this.", " summarize this.\n", "Summarize\tthis.", "\uff33ummarize this."],
    )
    def test_normalized_leaf_ignores_spelling(self, steps, runs, other):
        steps.run(NORMALIZED, "Summarize this.", runs)

        assert steps.run(NORMALIZED, other, runs).cached is True

    def test_version_of_the_normalizer_is_in_the_key(self, make, path, runs, monkeypatch):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        make().run(NORMALIZED, "p", runs)
        after = make()
        monkeypatch.setattr(after._normalizer, "tag", "2ftck")

        assert after.run(NORMALIZED, "p", runs).cached is False

    def test_option_of_the_normalizer_is_in_the_key(self, make, path, runs):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        make().run(NORMALIZED, "p", runs)

        assert make(exact_quotes=True).run(NORMALIZED, "p", runs).cached is False

    @pytest.mark.parametrize(
        ("one", "other", "is_one"),
        [
            pytest.param('Find  "Foo"', 'find "Foo"', True, id="around double quotes"),
            pytest.param('find "Foo"', 'find "foo"', False, id="double quotes"),
            pytest.param('find "a  b"', 'find "a b"', False, id="space in quotes"),
            pytest.param("find `Foo`", "find `foo`", False, id="backquotes"),
            pytest.param("find 'Foo'", "find 'foo'", False, id="single quotes"),
            pytest.param("find “Foo”", "find “foo”", False, id="curly quotes"),
            pytest.param("find «Foo»", "find «foo»", False, id="angled quotes"),
            pytest.param("find „Foo“", "find „foo“", False, id="low quotes"),
            pytest.param("find 「Foo」", "find 「foo」", False, id="corner quotes"),
            pytest.param("Don't SAY it isn't", "don't say it isn't", True, id="apostrophes"),
            pytest.param("x\n```\nA\n  B\n```\n", "x\n```\nA\nB\n```\n", False, id="fence"),
            pytest.param("X\n```\nA\n```\n Y", "x\n```\nA\n```\ny", True, id="around a fence"),
            pytest.param("x ~~~A~~~", "x ~~~a~~~", False, id="tilde fence"),
            pytest.param("x ```A", "x ```a", False, id="open fence"),
            pytest.param('5" Screen', '5" screen', True, id="quote that is not closed"),
            pytest.param('a "b" c', "a \uff02b\uff02 c", False, id="quotes of another width"),
            pytest.param('"a" "b"', '"a"  "b"', True, id="between quotes"),
            pytest.param(' "a" ', '"a"', True, id="ends"),
            pytest.param("  a ", "A", True, id="no quotes"),
        ],
    )
    def test_exact_quotes_keeps_what_is_quoted(self, make, runs, one, other, is_one):
        steps = make(exact_quotes=True)
        steps.run(NORMALIZED, one, runs)

        assert steps.run(NORMALIZED, other, runs).cached is is_one

    def test_audit_lists_prompts_that_are_taken_for_one(self, make):
        prompts = ["Run A", "run a", "Run B", "run  a", "Run A", "say 'X'", "say 'x'"]

        assert make().audit(prompts) == [["Run A", "run a", "run  a"], ["say 'X'", "say 'x'"]]
        assert make(exact_quotes=True).audit(prompts) == [["Run A", "run a", "run  a"]]
        assert make().audit(["a", "b"]) == []


# Inputs.


class TestInputs:
    @pytest.mark.parametrize("step", KEPT, ids=named)
    def test_changed_input_is_a_miss_and_the_old_content_a_hit_again(self, steps, runs, page, step):
        steps.run(step, "p", runs, inputs=[page])
        before = page.read_text()
        page.write_text("one\n")

        assert steps.run(step, "p", runs, inputs=[page]).output == 2
        page.write_text(before)
        assert steps.run(step, "p", runs, inputs=[page]).output == 1

    def test_touched_input_is_a_hit(self, steps, runs, page):
        steps.run(TTL, "p", runs, inputs=[page])
        os.utime(page)

        assert steps.run(TTL, "p", runs, inputs=[page]).cached is True

    def test_edit_of_equal_size_within_a_tick_of_the_clock_is_a_miss(self, steps, runs, page):
        """The racy entry of git: a status that was taken just now proves nothing."""
        for text in ("aaa", "bbb", "ccc"):
            page.write_text(text)
            stamp = 1_000_000_000 * 10**9
            os.utime(page, ns=(stamp, stamp))
            assert steps.run(TTL, "p", runs, inputs=page).cached is False

    def test_settled_file_is_not_read_again(self, steps, runs, page, monkeypatch):
        monkeypatch.setattr(inputs_module, "_SETTLED", -(10**18))
        reads = []
        real = inputs_module._read
        monkeypatch.setattr(inputs_module, "_read", lambda fd: reads.append(fd) or real(fd))

        for _ in range(3):
            steps.run(TTL, "p", runs, inputs=page)

        assert len(reads) == 1
        page.write_text("other")
        assert steps.run(TTL, "p", runs, inputs=page).cached is False

    def test_stamp_of_the_future_is_never_settled(self, steps, runs, page, monkeypatch):
        reads = []
        real = inputs_module._read
        monkeypatch.setattr(inputs_module, "_read", lambda fd: reads.append(fd) or real(fd))
        ahead = 4_000_000_000 * 10**9
        os.utime(page, ns=(ahead, ahead))

        steps.run(TTL, "p", runs, inputs=page)
        steps.run(TTL, "p", runs, inputs=page)

        assert len(reads) == 3  # before, after, and again

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda d: (d / "a.md").write_text("x"), id="edit"),
            pytest.param(lambda d: (d / "sub" / "b.md").write_text("x"), id="edit below"),
            pytest.param(lambda d: (d / "new.md").write_text(""), id="new file"),
            pytest.param(lambda d: (d / "a.md").unlink(), id="file gone"),
            pytest.param(lambda d: (d / "a.md").rename(d / "c.md"), id="new name"),
            pytest.param(lambda d: (d / "empty").mkdir(), id="empty folder"),
            pytest.param(lambda d: (d / "link").symlink_to("a.md"), id="link"),
        ],
    )
    @pytest.mark.parametrize("wrap", [str, Tree], ids=["path", "tree"])
    def test_change_below_an_input_folder_is_a_miss(self, steps, runs, tmp_path, change, wrap):
        folder = tmp_path / "docs"
        (folder / "sub").mkdir(parents=True)
        (folder / "a.md").write_text("a")
        (folder / "sub" / "b.md").write_text("b")
        given = wrap(str(folder))
        steps.run(TTL, "p", runs, inputs=[given])
        assert steps.run(TTL, "p", runs, inputs=[given]).cached is True

        change(folder)

        assert steps.run(TTL, "p", runs, inputs=[given]).cached is False

    def test_folder_with_a_link_back_to_itself_ends(self, steps, runs, tmp_path):
        folder = tmp_path / "docs"
        folder.mkdir()
        (folder / "again").symlink_to(folder)

        assert steps.run(TTL, "p", runs, inputs=folder).cached is False
        assert steps.run(TTL, "p", runs, inputs=folder).cached is True

    def test_folder_may_hold_the_cache_itself(self, steps, runs, tmp_path):
        """Each output that is kept, would else be a change."""
        outputs = [steps.run(TTL, "p", runs, inputs=tmp_path).output for _ in range(2)]
        steps.run(EXACT, "q", runs)

        assert outputs == [1, 1]
        assert steps.run(TTL, "p", runs, inputs=tmp_path).output == 1
        (tmp_path / "steps.jsonl.md").touch()
        assert steps.run(TTL, "p", runs, inputs=tmp_path).output == 3

    def test_content_behind_a_link_counts(self, steps, runs, tmp_path, page):
        link = tmp_path / "link"
        link.symlink_to(page)
        steps.run(TTL, "p", runs, inputs=link)
        page.write_text("other")

        assert steps.run(TTL, "p", runs, inputs=link).cached is False

    def test_missing_input_that_appears_is_a_miss(self, steps, runs, tmp_path):
        missing = tmp_path / "missing"
        steps.run(TTL, "p", runs, inputs=[missing])
        assert steps.run(TTL, "p", runs, inputs=[missing]).cached is True
        missing.touch()

        assert steps.run(TTL, "p", runs, inputs=[missing]).cached is False

    @pytest.mark.parametrize("step", KEPT, ids=named)
    def test_input_that_moves_during_the_run_keeps_nothing(self, steps, page, step):
        def compute(_):
            page.write_text("moved")
            return "of both"

        assert steps.run(step, "p", compute, inputs=page).output == "of both"
        assert steps.stats()["entries"] == 0

    def test_input_that_moves_and_moves_back_during_the_run_keeps_nothing(self, steps, page):
        def compute(_):
            before = page.read_text()
            page.write_text("moved")
            page.write_text(before)
            return "of both"

        steps.run(TTL, "p", compute, inputs=page)

        assert steps.stats()["entries"] == 0

    @pytest.mark.parametrize("is_above", [False, True], ids=["link", "link above"])
    def test_link_that_leads_elsewhere_and_back_during_the_run_keeps_nothing(
        self, steps, tmp_path, is_above
    ):
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "page.md").write_text(name)
        link = tmp_path / "link"
        target, given = ("{}", link / "page.md") if is_above else ("{}/page.md", link)
        link.symlink_to(tmp_path / target.format("one"))

        def compute(_):
            for name in ("other", "one"):
                link.unlink()
                link.symlink_to(tmp_path / target.format(name))
            return "of both"

        steps.run(TTL, "p", compute, inputs=given)

        assert steps.stats()["entries"] == 0

    def test_missing_input_that_comes_and_goes_during_the_run_keeps_nothing(self, steps, tmp_path):
        (tmp_path / "other").mkdir()
        missing = tmp_path / "other" / "deep" / "missing"

        def compute(_):
            missing.parent.mkdir()
            missing.touch()
            missing.unlink()
            missing.parent.rmdir()
            return "of both"

        steps.run(TTL, "p", compute, inputs=missing)

        assert steps.stats()["entries"] == 0

    def test_input_that_moves_during_a_coroutine_keeps_nothing(self, steps, page):
        async def compute(_):
            page.write_text("moved")
            return 1

        asyncio.run(steps.arun(TTL, "p", compute, inputs=page))

        assert steps.stats()["entries"] == 0

    def test_relative_input_is_the_same_after_the_step_has_changed_the_folder(
        self, steps, runs, tmp_path, page, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "other").mkdir()

        def compute(prompt):
            os.chdir(tmp_path / "other")
            return runs(prompt)

        steps.run(TTL, "p", compute, inputs="page.md")
        os.chdir(tmp_path)

        assert steps.run(TTL, "p", compute, inputs="page.md").cached is True

    def test_input_that_can_not_be_read_runs_each_time(self, steps, runs, page, monkeypatch):
        real = os.open

        def refuse(path, *given, **named):
            if os.fspath(path) == str(page):
                raise PermissionError(13, "Permission denied")
            return real(path, *given, **named)

        monkeypatch.setattr(os, "open", refuse)

        assert [steps.run(TTL, "p", runs, inputs=page).output for _ in range(2)] == [1, 2]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
    def test_pipe_as_an_input_does_not_hang_and_runs_each_time(self, steps, runs, tmp_path):
        os.mkfifo(tmp_path / "pipe")

        outputs = [steps.run(TTL, "p", runs, inputs=tmp_path / "pipe").output for _ in range(2)]

        assert outputs == [1, 2]

    def test_file_that_is_written_while_it_is_read_runs_each_time(
        self, steps, runs, page, monkeypatch
    ):
        real = inputs_module._read

        def read_and_write(fd):
            found = real(fd)
            page.write_text(page.read_text() + "more")
            return found

        monkeypatch.setattr(inputs_module, "_read", read_and_write)

        assert steps.run(TTL, "p", runs, inputs=page).output == 1
        assert steps.stats()["entries"] == 0

    @pytest.mark.parametrize("wrong", [[5], [""], ["a\0b"], [None], 5])
    def test_what_is_no_path_is_refused_by_its_place(self, steps, runs, wrong):
        with pytest.raises(UncacheableError, match="inputs"):
            steps.run(TTL, "p", runs, inputs=wrong)

        assert runs.count == 0

    def test_none_is_no_input(self, steps, runs):
        steps.run(TTL, "p", runs, inputs=None)

        assert steps.run(TTL, "p", runs).cached is True

    def test_generator_of_inputs_is_gone_through_once(self, steps, runs, page):
        steps.run(TTL, "p", runs, inputs=(each for each in [page]))
        page.write_text("other")

        assert steps.run(TTL, "p", runs, inputs=(each for each in [page])).cached is False

    def test_function_gives_the_digest_and_is_asked_again_after_the_run(self, steps, runs):
        version = [1]

        def compute(prompt):
            version[0] += 1
            return runs(prompt)

        steps.run(TTL, "p", compute, digest=lambda: version[0])
        assert steps.stats()["entries"] == 0

        steps.run(TTL, "p", runs, digest=lambda: version[0])
        assert steps.run(TTL, "p", runs, digest=lambda: version[0]).cached is True
        version[0] += 1
        assert steps.run(TTL, "p", runs, digest=lambda: version[0]).cached is False

    def test_digest_that_is_changed_in_place_during_the_run_keeps_nothing(self, steps, runs):
        state = {"v": 1}

        def compute(prompt):
            state["v"] = 2
            return runs(prompt)

        steps.run(TTL, "p", compute, digest=lambda: state)
        state["v"] = 1

        assert steps.run(TTL, "p", runs, digest=lambda: state).cached is False

    def test_digest_that_changes_its_type_only_keeps_nothing(self, steps, runs):
        versions = iter([1, True])

        steps.run(TTL, "p", runs, digest=lambda: next(versions))

        assert steps.stats()["entries"] == 0

    def test_digest_that_fails_after_the_run_does_not_cost_its_output(
        self, steps, runs, tmp_path, warnings_of
    ):
        version = iter([1])  # the second call raises

        with steps.record(tmp_path / "runs.jsonl"):
            done = steps.run(TTL, "p", runs, digest=lambda: next(version))

        assert done.output == 1
        assert steps.stats()["entries"] == 0

    def test_digest_that_fails_before_the_run_passes_through(self, steps, runs):
        def fail():
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            steps.run(TTL, "p", runs, digest=fail)

        assert runs.count == 0

    @pytest.mark.parametrize("digest", [b"\0", {1}, float("nan")], ids=["bytes", "set", "nan"])
    def test_digest_that_is_no_json_runs_each_time(self, steps, runs, digest):
        assert [steps.run(TTL, "p", runs, digest=digest).output for _ in range(2)] == [1, 2]


# Forgetting.


class TestForgetting:
    @pytest.mark.parametrize(
        ("step", "ttl"), [(TTL, 6 * 3600), (SHORT, 15 * 60), (NORMALIZED, 15 * 60)], ids=str
    )
    def test_output_expires_with_its_class(self, steps, clock, runs, step, ttl):
        steps.run(step, "p", runs)
        clock.advance(ttl - 1)
        assert steps.run(step, "p", runs).cached is True
        clock.advance(1)

        assert steps.run(step, "p", runs).cached is False

    @pytest.mark.parametrize("step", [EXACT, REPLAYED], ids=named)
    def test_exact_output_does_not_expire(self, steps, clock, runs, step):
        steps.run(step, "p", runs)
        clock.advance(10 * 365 * 86400)

        assert steps.run(step, "p", runs).cached is True

    @pytest.mark.parametrize("step", KEPT, ids=named)
    def test_ttl_of_the_cache_bounds_every_leaf(self, make, clock, runs, step):
        steps = make(ttl=10)
        steps.run(step, "p", runs)
        clock.advance(10)

        assert steps.run(step, "p", runs).cached is False

    def test_class_has_the_seconds_that_the_cache_says(self, make, clock, runs):
        steps = make(ttls={"cosmetic": 10})
        steps.run(TTL, "p", runs)
        clock.advance(10)

        assert steps.run(TTL, "p", runs).cached is False

    def test_stricter_seconds_of_a_later_release_hold_for_what_is_there(
        self, make, path, clock, runs
    ):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        make().run(TTL, "p", runs)
        clock.advance(10)

        assert make(ttls={"cosmetic": 10}).run(TTL, "p", runs).cached is False

    @pytest.mark.parametrize("change", ["class", "leaf"])
    def test_output_that_was_kept_under_another_class_is_refused(self, steps, runs, change):
        """After a review: what was kept under the old one is not to be trusted."""
        facts = {"reads_mutable_state": True, "stale_is_unsafe": False}
        before = Step("s", **facts, staleness=Staleness.COSMETIC)
        after = (
            Step("s", **facts, staleness=Staleness.MISLEADING)
            if change == "class"
            else Step("s", reads_mutable_state=False, stale_is_unsafe=False)
        )
        steps.run(before, "p", runs)

        assert steps.run(after, "p", runs).output == 2
        assert steps.run(after, "p", runs).cached is True
        assert steps.run(before, "p", runs).output == 3

    def test_stamp_from_the_future_is_not_fresh(self, steps, clock, runs, path):
        if path is None:
            pytest.skip("a clock that is set back is hidden within one cache")
        steps.run(TTL, "p", runs)
        steps.close()
        clock.set_wall(clock() - 3600)
        later = StepCache(path, model="m", clock=clock)

        assert later.run(TTL, "p", runs).cached is False

    def test_serve_if_and_store_if_see_outputs(self, make, runs):
        seen: list[Hit] = []
        steps = make(
            store_if=lambda output: output != 1, serve_if=lambda hit: seen.append(hit) or True
        )

        cached = [steps.run(EXACT, "p", runs).cached for _ in range(3)]

        assert cached == [False, False, True]
        assert [hit.response for hit in seen] == [2]

    def test_output_above_the_limit_is_not_kept(self, make, runs):
        runs.output = "x" * 100
        steps = make(max_entry_bytes=50)

        assert [steps.run(EXACT, "p", runs).cached for _ in range(2)] == [False, False]

    def test_oldest_goes_first(self, make, runs):
        steps = make(max_entries=2)
        for prompt in "abc":
            steps.run(EXACT, prompt, runs)

        assert [steps.run(EXACT, prompt, runs).cached for prompt in "cba"] == [True, True, False]


class TestExternalWrites:
    def test_replay_of_a_write_never_passes_one(self, steps, runs):
        steps.run(REPLAYED, "p", runs)

        assert steps.external_write() == 1
        assert steps.run(REPLAYED, "p", runs).output == 2

    def test_replay_of_a_write_never_passes_one_with_paths(self, steps, runs, tmp_path):
        """What it changed is not known: anything that is written may undo it."""
        steps.run(REPLAYED, "p", runs)
        steps.external_write([tmp_path / "somewhere"])

        assert steps.run(REPLAYED, "p", runs).output == 2

    def test_step_that_read_the_path_is_forgotten_and_no_other(self, steps, runs, tmp_path, page):
        other = tmp_path / "other.md"
        other.touch()
        steps.run(TTL, "of page", runs, inputs=page)
        steps.run(TTL, "of other", runs, inputs=other)
        steps.run(TTL, "of records", runs, digest="v1")
        steps.run(TTL, "of who knows", runs)
        steps.run(EXACT, "pure", runs)

        assert steps.external_write(page) == 2
        assert steps.run(TTL, "of page", runs, inputs=page).cached is False
        assert steps.run(TTL, "of who knows", runs).cached is False
        assert steps.run(TTL, "of other", runs, inputs=other).cached is True
        assert steps.run(TTL, "of records", runs, digest="v1").cached is True
        assert steps.run(EXACT, "pure", runs).cached is True

    def test_paths_of_a_write_may_be_gone_through_once_only(self, steps, runs, tmp_path, page):
        with steps.record(tmp_path / "runs.jsonl"):
            steps.run(TTL, "p", runs, inputs=page)

            assert steps.external_write(each for each in [page]) == 1

    def test_write_below_an_input_folder_forgets(self, steps, runs, tmp_path):
        steps.run(TTL, "p", runs, inputs=tmp_path)

        assert steps.external_write(tmp_path / "new" / "file") == 1

    def test_unknown_write_forgets_every_step(self, steps, runs, page):
        for step in KEPT:
            steps.run(step, "p", runs, inputs=page if step is TTL else ())

        assert steps.external_write() == len(KEPT)
        assert all(steps.run(step, "p", runs).cached is False for step in KEPT)

    def test_other_namespaces_forget_too(self, make, path, runs):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        other = make(namespace="other")
        other.run(REPLAYED, "p", runs)
        make().external_write()

        assert other.run(REPLAYED, "p", runs).cached is False

    @pytest.mark.parametrize("paths", [None, ["x"]], ids=["unknown", "paths"])
    def test_output_under_way_is_not_kept_past_one(self, steps, paths):
        def compute(_):
            steps.external_write(paths)
            return "before"

        steps.run(REPLAYED, "p", compute)

        assert steps.stats()["entries"] == 0

    def test_write_of_a_tool_cache_in_the_same_file_counts(self, make, path, runs, page):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        steps = make()
        steps.run(REPLAYED, "p", runs)
        steps.run(TTL, "p", runs, inputs=page)
        with ToolCache(path, writes={"Edit": [page]}) as tools:
            tools.call(ToolCall("Edit", {}), lambda _: "done")

        assert steps.run(REPLAYED, "p", runs).cached is False
        assert steps.run(TTL, "p", runs, inputs=page).cached is False

    @pytest.mark.parametrize("paths", [None, ["x"]], ids=["unknown", "paths"])
    def test_write_that_is_declared_while_the_cache_is_off_is_made_up_for(
        self, steps, runs, monkeypatch, paths
    ):
        steps.run(REPLAYED, "p", runs)
        with monkeypatch.context() as off:
            off.setenv(DISABLE, "1")
            assert steps.external_write(paths) == 0

        assert steps.run(REPLAYED, "p", runs).cached is False

    def test_what_is_no_path_is_refused(self, steps):
        with pytest.raises(UncacheableError):
            steps.external_write([5])


class TestSwitches:
    def test_off_means_off(self, make, path, runs, page, monkeypatch, tmp_path):
        steps = make()
        steps.run(TTL, "p", runs, inputs=page)
        monkeypatch.setenv(DISABLE, "1")
        before = {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
        monkeypatch.setattr(inputs_module, "_read", None)
        monkeypatch.setattr(steps, "_key", None)

        with steps.record(tmp_path / "recording"), steps.record(tmp_path / "no" / "folder"):
            done = steps.run(TTL, "p", runs, inputs=page)

        assert done == Done(2, False, 0.0, Leaf.TTL)
        assert {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before

    def test_read_only_serves_and_keeps_nothing(self, steps, runs, monkeypatch):
        steps.run(EXACT, "p", runs)
        monkeypatch.setenv(READONLY, "1")

        assert steps.run(EXACT, "p", runs).cached is True
        assert [steps.run(EXACT, "q", runs).cached for _ in range(2)] == [False, False]

    def test_refresh_runs_and_keeps(self, steps, runs, monkeypatch):
        steps.run(EXACT, "p", runs)
        monkeypatch.setenv(REFRESH, "1")

        assert steps.run(EXACT, "p", runs).output == 2
        monkeypatch.delenv(REFRESH)
        assert steps.run(EXACT, "p", runs).output == 2
        assert steps.stats()["steps"]["lint"]["bypassed"] == 1


class TestTelling:
    def test_stats_hold_each_step_against_its_budget(self, make, runs):
        steps = make(hit_budgets={"lint": 0.5, "never": 0.1})
        for step in (EXACT, EXACT, EXACT, NONE):
            steps.run(step, "p", runs)

        stats = steps.stats()

        assert (stats["hits"], stats["misses"], stats["bypassed"]) == (2, 1, 1)
        assert stats["steps"] == {
            "lint": {"hits": 2, "misses": 1, "bypassed": 0, "hit_rate": 2 / 3, "budget": 0.5},
            "never": {"hits": 0, "misses": 0, "bypassed": 0, "hit_rate": 0.0, "budget": 0.1},
            "answer": {"hits": 0, "misses": 0, "bypassed": 1, "hit_rate": 0.0, "budget": None},
        }

    def test_events_tell_of_every_run(self, make, runs):
        events = []
        steps = make(on_event=events.append)
        steps.run(EXACT, "p", runs)
        steps.run(EXACT, "p", runs)
        steps.run(NONE, "q", runs)
        steps.external_write()

        assert [(event.kind, event.front, event.subject) for event in events] == [
            ("miss", "steps", "lint: p"),
            ("store", "steps", "lint: p"),
            ("hit", "steps", "lint: p"),
            ("bypass", "steps", "answer: q"),
            ("invalidate", "steps", None),
        ]

    def test_entries_show_step_and_prompt(self, steps, runs):
        steps.run(EXACT, "p", runs)

        assert [(hit.question, hit.response) for hit in steps.entries()] == [("lint: p", 1)]

    def test_fronts_of_one_file_do_not_mix(self, make, path, runs, clock):
        if path is None:
            pytest.skip("two caches in memory share nothing anyway")
        make().run(EXACT, "p", runs)
        with Cache(path, clock=clock) as cache:
            cache.store("lint: p", "mine")

            assert len(cache) == 1
            assert make().run(EXACT, "p", runs).output == 1

    def test_class_and_leaf_stand_in_the_file(self, make, path, runs):
        if path is None:
            pytest.skip("memory has no file")
        make().run(TTL, "p", runs)

        assert '"meta": {"step":"snippet","leaf":"ttl","class":"cosmetic"}' in path.read_text()

    def test_done_shows_what_it_is(self):
        done = Done([1], True, 2.0, Leaf.TTL)

        assert repr(done) == "Done(output=[1], cached=True, age=2.0, leaf=Leaf.TTL)"
        assert done != Done([1], False, 2.0, Leaf.TTL)


class TestRecording:
    def test_recording_has_the_inputs_of_every_run_and_no_output(self, steps, runs, tmp_path, page):
        runs.output = "secret"
        recording = tmp_path / "runs.jsonl"
        with steps.record(recording):
            steps.run(TTL, "p", runs, inputs=[page], digest=lambda: 7, context={"u": 1})
            steps.run(TTL, "p", runs, inputs=[page], digest=7, context={"u": 1})
            steps.run(NONE, "q", runs)
        steps.run(EXACT, "later", runs)

        items = read(recording)

        assert [(item.step, item.prompt, item.model) for item in items] == [
            ("snippet", "p", "m"),
            ("snippet", "p", "m"),
            ("answer", "q", "m"),
        ]
        assert items[0].inputs == [str(page)]
        assert (items[0].digest, items[0].context) == (7, {"u": 1})
        assert (items[2].inputs, items[2].digest, items[2].context) == ([], None, None)
        assert "secret" not in recording.read_text()
        assert recording.stat().st_mode & 0o777 == 0o600

    def test_relative_input_is_recorded_as_it_was_given(
        self, steps, runs, tmp_path, page, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        with steps.record("runs.jsonl"):
            steps.run(TTL, "p", runs, inputs=["page.md"])

        assert read("runs.jsonl")[0].inputs == ["page.md"]

    def test_coroutines_are_recorded(self, steps, runs, tmp_path):
        with steps.record(tmp_path / "runs.jsonl"):
            asyncio.run(steps.arun(EXACT, "p", runs))

        assert [item.prompt for item in read(tmp_path / "runs.jsonl")] == ["p"]

    def test_recording_is_added_to_and_closing_twice_is_harmless(self, steps, runs, tmp_path):
        for prompt in "ab":
            recorder = steps.record(tmp_path / "runs.jsonl")
            steps.run(EXACT, prompt, runs)
            recorder.close()
            recorder.close()

        assert [item.prompt for item in read(tmp_path / "runs.jsonl")] == ["a", "b"]

    def test_run_that_can_not_be_recorded_runs_and_is_told_once(
        self, steps, runs, tmp_path, warnings_of
    ):
        with steps.record(tmp_path / "runs.jsonl"):
            for context in ({"u": {1}}, ["u"], {"u": {1}}):
                assert steps.run(EXACT, "p", runs, context=context).output
            assert steps.run(EXACT, 5, runs).output
            steps.run(EXACT, "p", runs)

        assert len(warnings_of()) == 1
        assert "a run of 'lint' is not recorded" in warnings_of()[0]
        assert len(read(tmp_path / "runs.jsonl")) == 1

    def test_recording_in_an_input_folder_is_no_input(self, steps, runs, tmp_path):
        with steps.record(tmp_path / "runs.jsonl"):
            for _ in range(2):
                done = steps.run(TTL, "p", runs, inputs=tmp_path)

        assert done.cached is True

    def test_recording_that_can_not_be_opened_is_told(self, steps, tmp_path):
        with pytest.raises(StoreError, match="can't record there"):
            steps.record(tmp_path / "missing" / "runs.jsonl")

    def test_unfinished_last_line_is_passed_over(self, tmp_path):
        line = json.dumps({"step": "s", "model": "m", "prompt": "p"})
        (tmp_path / "runs.jsonl").write_text(f"{line}\n\n{line}\n{line[:20]}")

        items = read(tmp_path / "runs.jsonl")

        assert [item.line for item in items] == [1, 3]
        assert items[0]["prompt"] == "p"

    def test_what_a_person_added_to_a_line_is_there(self, tmp_path):
        line = json.dumps({"step": "s", "model": "m", "prompt": "p", "ticket": 5})
        (tmp_path / "runs.jsonl").write_text(line)

        assert read(tmp_path / "runs.jsonl")[0]["ticket"] == 5

    @pytest.mark.parametrize(
        ("line", "named"),
        [
            pytest.param("{", "line 2: is no JSON", id="torn"),
            pytest.param("[]", "line 2: is no recorded run", id="list"),
            pytest.param('{"step": "s"}', "line 2: is no recorded run", id="no prompt"),
            pytest.param(
                '{"step": "s", "model": "m", "prompt": "p", "inputs": "a"}',
                'a list "inputs"',
                id="inputs",
            ),
            pytest.param(
                '{"step": "s", "model": "m", "prompt": "p", "inputs": ["a\\u0000"]}',
                "line 2: is no recorded run",
                id="path",
            ),
            pytest.param("[" * 100_000, "line 2: is no JSON", id="deep"),
        ],
    )
    def test_line_that_is_no_run_is_named(self, tmp_path, line, named):
        good = json.dumps({"step": "s", "model": "m", "prompt": "p"})
        (tmp_path / "runs.jsonl").write_text(f"{good}\n{line}\n{good}\n")

        with pytest.raises(ConfigError, match=named):
            read(tmp_path / "runs.jsonl")

    def test_recording_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match=r"runs\.jsonl: can't be read"):
            read(tmp_path / "runs.jsonl")
