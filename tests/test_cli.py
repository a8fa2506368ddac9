from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from respcache import (
    Cache,
    ConfigError,
    Hit,
    StoreError,
    __version__,
    cli,
    demo,
)

pytestmark = pytest.mark.xdist_group("processes")

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
QUICK = ("demo", "--workers", "2", "--questions", "12")
TEXTS = {
    "cat": "the cat has fur and whiskers and four paws",
    "dog": "the dog has fur and a tail and four paws",
    "fish": "the fish has scales and fins",
    "boat": "the boat has sails and a rudder",
    "": "",
}
LIBRARY = demo.Library("things", TEXTS)

needs_shared_flights = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes share flights where OFD locks are"
)
needs_posix = pytest.mark.skipif(os.name == "nt", reason="needs process groups and terminals")


@pytest.fixture(autouse=True)
def _no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESPCACHE_PATH", raising=False)


def call(*args: str, source: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process without a terminal, after *source*."""
    source += "; from respcache.cli import main; main()" if source else ""
    return subprocess.run(
        [sys.executable, *(["-c", source] if source else ["-m", "respcache.cli"]), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **env},
        check=False,
    )


def table(stdout: str) -> dict[str, float]:
    rows = [line.rsplit(maxsplit=1) for line in stdout.splitlines()]
    return {label: float(number) for label, number in rows}


def different(workers: int, questions: int) -> int:
    """Return how many different questions so many processes draw, spelling aside."""
    library = demo.load_library()
    return len(
        {
            question.casefold()
            for number in range(1, workers + 1)
            for question, _ in demo.draw(library, number, questions)
        }
    )


def hit(response: Any) -> Hit:
    return Hit(response, "?", 0.0, 0.0)


# The demo, as people run it.


def test_demo_loses_nothing_and_answers_repeated_questions_from_the_cache(tmp_path: Path) -> None:
    done = call(*QUICK, TMPDIR=str(tmp_path), TEMP=str(tmp_path), TMP=str(tmp_path))

    assert done.returncode == 0
    rows = table(done.stdout)
    assert list(rows) == [
        "asked",
        "answered from the cache",
        "computed",
        "seconds saved",
        "seconds taken",
        "entries in the file",
        "lost",
    ]
    assert rows["asked"] == 24
    assert rows["answered from the cache"] + rows["computed"] == 24
    assert rows["answered from the cache"] > 0
    assert rows["entries in the file"] == different(2, 12)
    assert rows["seconds taken"] > 0
    assert rows["lost"] == 0
    assert list(tmp_path.iterdir()) == []  # its folder is gone


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="plain"),
        pytest.param(
            {"FORCE_COLOR": "1", "GITHUB_ACTIONS": "true", "COLUMNS": "12"}, id="colours-forced"
        ),
    ],
)
def test_demo_without_a_terminal_writes_plain_lines(env: dict[str, str]) -> None:
    done = call(*QUICK, **env)

    assert CONTROL.findall(done.stdout + done.stderr) == []
    assert table(done.stdout)["lost"] == 0
    assert "24 of 24 answered" in done.stderr.splitlines()[-1]


@needs_posix
def test_demo_on_a_terminal_draws_a_bar_and_a_table() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "respcache.cli", *QUICK],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30"},
    )
    seen = b""
    try:
        os.close(theirs)
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)

    text = seen.decode(errors="replace")
    assert code == 0
    assert "\x1b[" in text
    assert "24/24" in text
    assert "answered from the cache" in text


def test_json_is_one_object_and_progress_stays_on_stderr() -> None:
    done = call(*QUICK, "--json")

    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert set(report) == {
        "asked",
        "from_cache",
        "computed",
        "seconds_saved",
        "seconds_taken",
        "entries",
        "lost",
        "not_kept",
        "died",
        "warnings",
    }
    assert report["asked"] == report["from_cache"] + report["computed"] == 24
    assert report["entries"] == different(2, 12)
    assert report["lost"] == report["not_kept"] == report["died"] == 0
    assert report["warnings"] == []
    assert "answered" in done.stderr


@needs_shared_flights
def test_a_question_that_processes_ask_at_once_is_computed_once(tmp_path: Path) -> None:
    """Six questions in all, each of some 100 ms, so that the processes meet at most of them."""
    library = demo.Library("things", dict.fromkeys("abc", TEXTS["cat"] * 20_000))
    report = demo.run(library, str(tmp_path / "a.json"), workers=4, questions=20)

    assert report.computed == report.entries == 6
    assert report.from_cache == 74


def test_second_run_on_a_named_file_computes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new" / "answers.json"
    first = json.loads(call(*QUICK, "--json", "--path", str(file)).stdout)
    done = call(*QUICK, "--json", "--path", str(file))

    second = json.loads(done.stdout)
    assert second["computed"] == 0
    assert second["from_cache"] == 24
    assert second["seconds_saved"] > first["seconds_saved"]
    assert second["entries"] == first["entries"] == len(Cache(file))
    assert str(file) in done.stderr


def test_demo_leaves_other_entries_of_a_named_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    with Cache(file) as cache:
        cache.store("Why?", "Because.")
    rows = table(call(*QUICK, "--path", str(file)).stdout)

    assert rows["entries in the file"] == different(2, 12) + 1
    assert Cache(file).get("why?") == "Because."


def test_demo_goes_on_over_entries_that_someone_edited(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    library = demo.load_library()
    with Cache(file) as cache:
        for question, _ in demo.draw(library, 1, 12):
            cache.store(question, "no idea", context=library.context)
    report = json.loads(call(*QUICK, "--json", "--path", str(file)).stdout)

    assert report["computed"] >= different(1, 12)
    assert report["lost"] == 0


def test_demo_repairs_a_damaged_file_and_says_so(tmp_path: Path) -> None:
    """An answer that a process began before the repair may be refused, one in each process."""
    file = tmp_path / "answers.json"
    call(*QUICK, "--path", str(file))
    file.write_bytes(file.read_bytes()[:700])
    done = call(*QUICK, "--json", "--path", str(file))

    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["lost"] == 0
    assert report["not_kept"] <= 2
    assert report["entries"] >= different(2, 12) - 2
    assert len(report["warnings"]) == 1
    assert "was damaged" in report["warnings"][0]
    assert f"respcache: {report['warnings'][0]}\n" in done.stderr


def test_demo_asks_about_docstrings_where_help_topics_were_left_out() -> None:
    done = call(*QUICK, source="import sys; sys.modules['pydoc_data.topics'] = None")

    assert done.returncode == 0
    assert re.search(r"about [4-6]\d modules of Python", done.stderr)
    assert table(done.stdout)["lost"] == 0


@needs_posix
@pytest.mark.parametrize(
    "lines", [pytest.param(1, id="while-they-start"), pytest.param(2, id="while-they-ask")]
)
def test_ctrl_c_ends_all_processes_and_takes_the_folder_away(tmp_path: Path, lines: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "respcache.cli", "demo", "--workers", "3", "--questions", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(lines)]
        was_there = list(tmp_path.glob("respcache-demo-*"))
        while process.poll() is None:  # one that comes in the moment of a start is not heard
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue
        out, rest = process.communicate(timeout=60)
        deadline = time.monotonic() + 30
        while (left := _group_is_alive(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        if _group_is_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    assert "processes asking" in said[0]
    assert len(was_there) == 1
    assert process.returncode == 130
    assert out == ""
    assert rest.splitlines()[-1] == "respcache: interrupted"
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []
    assert not left


def _group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# Errors.


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_says_what_to_install(missing: str) -> None:
    done = call("demo", source=f"import sys; sys.modules[{missing!r}] = None")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == ("respcache: the command needs its extra: pip install 'respcache[cli]'\n")


@pytest.mark.parametrize("module", ["respcache.cli", "respcache.demo"])
def test_importing_the_module_loads_nothing_of_the_extra(module: str) -> None:
    """Each process of the demo imports both."""
    source = f"import sys, {module}; print({{'typer', 'rich', 'click'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        pytest.param(["nonsense"], "nonsense", id="no-such-command"),
        pytest.param(["demo", "--nonsense"], "--nonsense", id="no-such-option"),
        pytest.param(["demo", "--workers", "0"], "--workers", id="too-few-workers"),
        pytest.param(["demo", "--workers", "33"], "--workers", id="too-many-workers"),
        pytest.param(["demo", "--workers", "few"], "--workers", id="no-number"),
        pytest.param(["demo", "--questions", "0"], "--questions", id="no-questions"),
        pytest.param(["demo", "--path", "answers.txt"], "answers.txt", id="no-such-format"),
        pytest.param(["demo", "--path", ""], "path=''", id="empty-path"),
    ],
)
def test_usage_error_exits_2_and_names_what_was_wrong(args: list[str], named: str) -> None:
    done = call(*args)

    assert done.returncode == 2
    assert done.stdout == ""
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_file_that_cannot_be_used_is_one_line_and_exits_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call(*QUICK, "--path", str(tmp_path / "file" / "answers.json"))

    announced, *rest = done.stderr.splitlines()
    assert done.returncode == 1
    assert done.stdout == ""
    assert "processes asking" in announced
    assert len(rest) == 1
    assert rest[0].startswith("respcache: ")
    assert str(tmp_path / "file") in rest[0]


def test_debug_shows_the_trace_of_the_process_that_failed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call("--debug", *QUICK, "--path", str(tmp_path / "file" / "answers.json"))

    assert done.returncode == 1
    assert done.stderr.count("Traceback (most recent call last)") >= 2
    assert "in _work" in done.stderr


def test_file_of_a_newer_version_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text('{"respcache": 99}')
    done = call(*QUICK, "--path", str(file))

    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        f"respcache: {file}: was written by a newer respcache (format 99); upgrade to share it"
    ]
    assert file.read_text() == '{"respcache": 99}'


def test_flat_file_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text('{"why?": "because"}')
    done = call(*QUICK, "--path", str(file))

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "flat file" in done.stderr
    assert file.read_text() == '{"why?": "because"}'


def test_damaged_file_is_a_miss_in_a_process_that_has_not_loaded_json(tmp_path: Path) -> None:
    """CPython 3.11's scanner sets no exception while ``json.decoder`` is not loaded."""
    file = tmp_path / "answers.json"
    file.write_text('{"respcache": 1, "entries": {"a')
    source = "import sys; from respcache import Cache; print(Cache(sys.argv[1]).lookup('a'))"
    done = subprocess.run(
        [sys.executable, "-c", source, str(file)], capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "None\n", done.stderr


def test_store_into_a_damaged_file_is_committed(tmp_path: Path) -> None:
    """The copy set aside is a link, which changes the file's ctime while it is held."""
    file = tmp_path / "answers.json"
    with Cache(file) as cache:
        cache.store_many([("a", "A" * 100), ("b", "B" * 100)])
    file.write_bytes(file.read_bytes()[:-150])

    assert Cache(file, on_error="raise").store("c", "C")
    assert Cache(file).get("a") == "A" * 100
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 1


def test_damaged_file_keeps_computed_answers_again_once_it_is_repaired(tmp_path: Path) -> None:
    """The first may be refused, since what was forgotten before is unknown; not all for ever."""
    file = tmp_path / "answers.json"
    with Cache(file) as cache:
        cache.store_many([("a", "A" * 100), ("b", "B" * 100)])
    file.write_bytes(file.read_bytes()[:-150])
    cache = Cache(file)
    for question in "cde":
        cache.get_or_call(question, question.upper)

    assert Cache(file).get("d") == "D"
    assert Cache(file).get("e") == "E"


# The other commands.


def test_version_is_that_of_the_package() -> None:
    done = call("--version")

    assert done.returncode == 0
    assert done.stdout == f"respcache {__version__}\n"


def test_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="respcache")

    assert command.load() is cli.main


def test_path_prints_where_the_default_cache_lives() -> None:
    done = call("path")

    assert done.returncode == 0
    assert done.stdout == f"{platformdirs.user_cache_path('respcache') / 'answers.json'}\n"


def test_path_prints_what_the_environment_names_and_makes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "other" / "mine.json"
    done = call("path", RESPCACHE_PATH=str(file))

    assert done.stdout == f"{file}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param("here.json", Path("here.json").absolute, id="relative-to-working-folder"),
        pytest.param("~/mine.json", lambda: Path.home() / "mine.json", id="home"),
        pytest.param(
            "", lambda: platformdirs.user_cache_path("respcache") / "answers.json", id="empty"
        ),
    ],
)
def test_default_path_is_absolute(
    monkeypatch: pytest.MonkeyPatch, named: str, expected: Any
) -> None:
    monkeypatch.setenv("RESPCACHE_PATH", named)

    assert cli.default_path() == str(expected())


# The parts of the demo.


def test_lost_answers_are_counted_and_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone deletes the file after the last answer; a fresh reader finds nothing."""
    honest = demo.run

    def sabotaged(library: demo.Library, path: str, **options: Any) -> demo.Report:
        def tell(report: demo.Report) -> None:
            if report.asked == 5:
                os.unlink(path)

        return honest(library, path, **{**options, "tell": tell})

    monkeypatch.setattr(demo, "run", sabotaged)
    with pytest.raises(SystemExit) as ended:
        cli.main(["demo", "--workers", "1", "--questions", "5", "--path", str(tmp_path / "a.json")])

    rows = table(capsys.readouterr().out)
    asked = {question for question, _ in demo.draw(demo.load_library(), 1, 5)}
    assert ended.value.code == 1
    assert rows["lost"] == len(asked)
    assert rows["entries in the file"] == 0


def test_process_that_is_killed_is_counted_and_costs_no_answer(tmp_path: Path) -> None:
    from multiprocessing import active_children

    def kill_one(report: demo.Report) -> None:
        if report.asked == 1:
            min(active_children(), key=lambda process: process.name).kill()

    report = demo.run(LIBRARY, str(tmp_path / "a.json"), workers=2, questions=2000, tell=kill_one)

    assert report.died == 1
    assert 2000 <= report.asked < 4000
    assert report.lost == 0
    assert not report.is_good


def test_error_of_a_process_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    from multiprocessing import active_children

    (tmp_path / "a.json").mkdir()
    with pytest.raises(StoreError) as caught:
        demo.run(LIBRARY, str(tmp_path / "a.json"), workers=3, questions=2000)

    assert "a.json" in str(caught.value)
    assert "in _work" in "".join(caught.value.__notes__)
    assert active_children() == []


def test_closest_names_share_the_rarest_words() -> None:
    assert demo.closest(TEXTS, ["cat"], 2)[0] == "dog"
    assert demo.closest(TEXTS, ["boat"], 1) == ["dog"]
    assert demo.closest(TEXTS, ["fish", "cat"], 1) == ["dog"]


def test_closest_leaves_out_what_was_asked_about() -> None:
    assert sorted(demo.closest(TEXTS, ["cat", "dog"], 9)) == ["", "boat", "fish"]


def test_process_draws_the_same_questions_each_time() -> None:
    assert list(demo.draw(LIBRARY, 3, 50)) == list(demo.draw(LIBRARY, 3, 50))
    assert list(demo.draw(LIBRARY, 3, 50)) != list(demo.draw(LIBRARY, 4, 50))


def test_questions_of_processes_overlap_in_more_than_one_spelling() -> None:
    library = demo.load_library()
    one, other = (
        {question for question, _ in demo.draw(library, number, 100)} for number in (1, 2)
    )

    assert one & other
    assert len({question.casefold() for question in one}) < len(one)


def test_questions_about_different_texts_are_different() -> None:
    """Case is folded, so no two texts may have names that differ in case only."""
    library = demo.load_library()
    by_question: dict[str, list[str]] = {}
    for question, names in demo.draw(library, 1, 5000):
        by_question.setdefault(question.casefold(), names)
        assert by_question[question.casefold()] == names

    assert len({name.casefold() for name in library.texts}) == len(library.texts) > 50


def test_context_changes_with_each_text() -> None:
    changed = demo.Library("things", {**TEXTS, "boat": "the boat has oars"})
    renamed = demo.Library("things", {**TEXTS, "boa": "t"})

    assert demo.Library("things", dict(reversed(TEXTS.items()))).context == LIBRARY.context
    assert len({str(each.context) for each in (LIBRARY, changed, renamed)}) == 3


def test_python_without_any_text_is_an_error_with_a_remedy() -> None:
    with pytest.raises(StoreError, match="run a full one"):
        demo._docstrings(["no_such_module"])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param({"names": ["a"], "seconds": 0.5}, True, id="answer"),
        pytest.param({"names": [], "seconds": 0.0}, True, id="nothing-close"),
        pytest.param("text", False, id="text"),
        pytest.param({"names": ["a"]}, False, id="no-cost"),
        pytest.param({"names": ["a"], "seconds": "0.5"}, False, id="cost-as-text"),
        pytest.param({"names": ["a"], "seconds": -1.0}, False, id="cost-below-zero"),
        pytest.param({"names": "abc", "seconds": 0.5}, False, id="names-as-text"),
        pytest.param({"names": [1], "seconds": 0.5}, False, id="names-as-numbers"),
    ],
)
def test_only_what_the_demo_stores_is_served_by_it(response: Any, expected: bool) -> None:
    assert demo._is_answer(hit(response)) is expected


def test_report_saves_the_cost_of_hits_alone() -> None:
    report = demo.Report()
    report.add(demo.Answer("a", ["x"], 2.0, is_hit=False, is_kept=True))
    report.add(demo.Answer("A", ["x"], 2.0, is_hit=True, is_kept=True))
    report.add(demo.Answer("b", ["y"], 4.0, is_hit=False, is_kept=False))

    assert (report.asked, report.from_cache, report.computed) == (3, 1, 2)
    assert report.seconds_saved == 2.0
    assert report.not_kept == 1


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        pytest.param("lost", False, id="lost"),
        pytest.param("died", False, id="died"),
        pytest.param("not_kept", True, id="not-kept"),
    ],
)
def test_report_shows_trouble(name: str, is_good: bool) -> None:
    report = demo.Report(**{name: 7})

    assert demo.Report().is_good
    assert report.is_good is is_good
    assert "7" in dict(report.rows()).values()
    assert "7" not in dict(demo.Report().rows()).values()


def test_lost_counts_what_is_missing_or_other_than_it_was() -> None:
    cache = Cache()
    context = LIBRARY.context
    kept = {name: [name] for name in ("same", "SAME", "missing", "changed", "elsewhere", "odd")}
    kept["SAME"] = ["same"]
    for name in ("same", "elsewhere", "changed"):
        cache.store(name, {"names": [name], "seconds": 0.5}, context=context)
    cache.store("changed", {"names": ["other"], "seconds": 0.5}, context=context)
    cache.forget("elsewhere", context=context)
    cache.store("elsewhere", {"names": ["elsewhere"], "seconds": 0.5})
    cache.store("odd", "text", context=context)

    assert demo.count_lost(cache, kept, context) == 4
    assert demo.count_lost(cache, {"same": ["same"], "SAME": ["same"]}, context) == 0


@pytest.mark.parametrize("name", ["RESPCACHE_DISABLE", "RESPCACHE_READONLY", "RESPCACHE_REFRESH"])
def test_demo_is_refused_while_a_switch_is_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")

    with pytest.raises(ConfigError, match=f"{name}.*unset it"):
        demo.show(None, workers=1, questions=1, as_json=True)


def test_missing_place_for_a_folder_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "TemporaryDirectory", full)
    with pytest.raises(StoreError, match=r"No space left.*--path"), demo._place(None):
        pass


def test_progress_is_told_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in range(1, 1235):
        demo._say_progress(demo.Report(asked=asked), 1234)

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "1234 of 1234 answered, 0 from the cache"


# Pipes and shells.


@needs_posix
@pytest.mark.parametrize("count", [pytest.param(3, id="few"), pytest.param(2000, id="many")])
def test_reader_of_a_pipe_that_goes_away_is_no_error(tmp_path: Path, count: int) -> None:
    file = tmp_path / "a.jsonl"
    Cache(file).store_many({f"question {n}": "answer" for n in range(count)})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "respcache.cli", "list", "--path", str(file)],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)

    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_full_stdout_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "respcache.cli", "path"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == b"respcache: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("respcache ver", ["verify"], id="command"),
        pytest.param("respcache list --exp", ["--expired"], id="option"),
        pytest.param("respcache list --namespace a", ["acme", "alpha"], id="namespace"),
        pytest.param("respcache list --front t", ["tools"], id="front"),
    ],
)
def test_shell_completes_commands_options_and_namespaces(
    tmp_path: Path, words: str, expected: list[str]
) -> None:
    file = tmp_path / "a.json"
    for name in ("acme", "alpha", "beta"):
        Cache(file, namespace=name).store("q", "a")
    done = call(
        _RESPCACHE_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
        RESPCACHE_PATH=str(file),
        source="import sys; sys.argv[0] = 'respcache'",
    )

    assert done.stdout.split() == expected


def test_completion_of_a_file_that_can_not_be_read_is_empty(tmp_path: Path) -> None:
    done = call(
        _RESPCACHE_COMPLETE="complete_bash",
        COMP_WORDS="respcache list --namespace a",
        COMP_CWORD="3",
        RESPCACHE_PATH=str(tmp_path / "a.txt"),
    )

    assert (done.stdout.strip(), done.stderr) == ("", "")


# The way to a hook.

HOOK = """
import sys
before = set(sys.modules)
import types
hook = types.ModuleType("respcache.hook")
hook.main = lambda rest: print(rest)
sys.modules["respcache.hook"] = hook
from respcache.cli import main
main(["hook", "--path", "P"])
print(sorted(set(sys.modules) - before))
"""


def test_hook_is_reached_before_anything_heavy_is_imported() -> None:
    """In a child without site, whose own imports would hide ours."""
    source = f"import sys; sys.path[:0] = {sys.path!r}\n{HOOK}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    passed, loaded = done.stdout.splitlines()
    heavy = {"typing", "typer", "rich", "click", "json", "re", "pathlib", "logging", "argparse"}
    assert passed == "['--path', 'P']"
    assert heavy & set(names_in(loaded)) == set()


def names_in(text: str) -> list[str]:
    return json.loads(text.replace("'", '"'))  # type: ignore[no-any-return]
