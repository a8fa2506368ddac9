from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
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
    ToolCache,
    ToolCall,
    __version__,
    _terminal,
    cli,
    demo,
)
from respcache._commands import _tending as cli_tending
from respcache._entry import new_entry
from respcache._index import Put
from respcache._stores import new_id

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


# The commands that look into a file and tend it, in this process.

FORMATS = [pytest.param("a.json", id="document"), pytest.param("a.jsonl", id="log")]


class Done:
    """What one run of the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Input(io.TextIOWrapper):
    """A stdin that may be called a terminal."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run the command here, with no terminal anywhere."""

    def call_main(*args: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", Input(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(map(str, args)))
        out, err = capsys.readouterr()
        assert "Traceback" not in err or "--debug" in args
        assert CONTROL.findall(out + err) == []
        return Done(ended.value.code, out, err)  # type: ignore[arg-type]

    return call_main


@pytest.fixture(params=FORMATS)
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a cache file, which RESPCACHE_PATH names."""
    path = tmp_path / request.param
    monkeypatch.setenv("RESPCACHE_PATH", str(path))
    return path


def fill(file: Path) -> None:
    """Let each front keep something, in two namespaces."""
    with Cache(file) as cache, Cache(file, namespace="acme") as acme:
        cache.store("Why?", "Because.")
        cache.store("Why?", ["of", "that"], context={"model": "m-1"})
        acme.store("Who?", "Ada", ttl=1e6)
        entry = new_entry("s//1/ab/cd", "plan", "steps", id=new_id(), stored_at=1e9)
        cache._store.put([Put(entry)])
    with ToolCache(file, reads={"Read": ["a.txt"]}, max_entries=None) as tools:
        tools.call(ToolCall("Read", {"path": "a.txt"}), lambda call: "content")


def expire(file: Path) -> None:
    """Keep one entry that has expired, and one whose file has changed."""
    notes = file.parent / "notes.txt"
    notes.write_text("old")
    with Cache(file, clock=lambda: 1e9) as cache:
        cache.store("late", "x", ttl=5)
        cache.store("stale", "y", paths=[notes])
    notes.write_text("newer")


# Which file, and which option where.


@pytest.mark.parametrize("args", [("--path", "F", "path"), ("path", "--path", "F")])
def test_path_may_stand_before_or_after_the_command(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESPCACHE_PATH", "other.json")
    done = run(*(arg.replace("F", "mine.json") for arg in args))

    assert (done.code, done.out) == (0, f"{tmp_path / 'mine.json'}\n")


def test_path_after_the_command_wins(run: Any, tmp_path: Path) -> None:
    done = run("--path", "one.json", "path", "--path", tmp_path / "two.json", "--json")

    assert done.json == {"path": str(tmp_path / "two.json"), "exists": False}


def test_without_a_command_the_help_is_shown_and_nothing_done(run: Any) -> None:
    done = run()

    assert done.code == 2
    assert done.out == ""
    assert "Usage: respcache" in done.err
    for command in COMMANDS:
        assert f"  {command} " in done.err


COMMANDS = {
    "path": [],
    "stats": [],
    "list": [],
    "show": ["Why?"],
    "get": ["Why?"],
    "set": ["a", "b"],
    "explain": ["Why?"],
    "prune": [],
    "clear": ["--all", "--yes"],
    "invalidate": ["x"],
    "verify": [],
    "export": ["out.jsonl"],
    "import": ["in.jsonl"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_path(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "in.jsonl"):
        fill(tmp_path / name)
    done = run(command, *COMMANDS[command], "--json", "--path", "a.json")

    assert done.code == 0
    assert done.err == ""
    assert done.json is not None


@pytest.mark.parametrize("command", [*COMMANDS, "demo"])
def test_every_command_has_help(run: Any, command: str) -> None:
    done = run(command, "--help")

    assert done.code == 0
    assert done.out.startswith(f"Usage: respcache {command} ")
    assert "--json" in done.out


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["nonsense"], id="command"),
        pytest.param(["get"], id="missing"),
        pytest.param(["get", "a", "b"], id="too-many"),
        pytest.param(["list", "--limit", "0"], id="range"),
        pytest.param(["list", "--front", "nobody"], id="front"),
        pytest.param(["invalidate"], id="no-paths"),
        pytest.param(["get", "q", "--path", "a.txt"], id="suffix"),
        pytest.param(["set", "q", "{", "--json-value"], id="json-value"),
        pytest.param(["set", "q", "a", "--ttl", "-1"], id="ttl"),
        pytest.param(["get", "q", "--context", "[1]"], id="context-no-object"),
        pytest.param(["get", "q", "--context", "{"], id="context-no-json"),
        pytest.param(["export", "x.txt"], id="export-suffix"),
        pytest.param(["export", "x.json", "--format", "odd"], id="export-format"),
        pytest.param(["clear"], id="clear-what"),
        pytest.param(["clear", "--all", "--namespace", "x"], id="clear-both"),
        pytest.param(["clear", "--all"], id="clear-unasked"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_2(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "a.json")
    monkeypatch.setenv("RESPCACHE_PATH", "a.json")
    done = run(*args)

    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("respcache: ")
    assert done.err.count("\n") == 1
    assert len(Cache(tmp_path / "a.json")) == 2  # as before


@pytest.mark.parametrize(
    "command", ["stats", "list", "show", "set", "prune", "invalidate", "export", "verify"]
)
def test_file_of_a_newer_version_is_one_line_that_says_what_to_do(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text('{"respcache": 99}')
    done = run("--path", "a.json", command, *COMMANDS[command])

    assert done.code == 1
    assert "upgrade" in done.out + done.err
    assert done.err.count("\n") == 1
    assert (tmp_path / "a.json").read_text() == '{"respcache": 99}'


def test_debug_shows_the_trace_of_an_error(run: Any, tmp_path: Path) -> None:
    done = run("--debug", "import", tmp_path / "none.json", "--path", tmp_path / "a.json")

    assert done.code == 1
    assert "Traceback (most recent call last)" in done.err
    assert "no such file" in done.err


@pytest.mark.parametrize("command", ["stats", "list", "show", "prune", "verify"])
def test_file_that_is_not_there_is_told_and_not_made(
    run: Any, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "a.json"
    done = run(command, *COMMANDS[command], "--path", file)

    assert f"{file}: there is no such file yet" in done.err
    assert done.code == (1 if command == "show" else 0)
    assert not file.exists()


@pytest.mark.parametrize("switch", ["RESPCACHE_DISABLE", "RESPCACHE_READONLY"])
@pytest.mark.parametrize("command", ["set", "prune", "clear", "invalidate", "import"])
def test_command_that_writes_names_the_switch_that_forbids_it(
    run: Any, file: Path, monkeypatch: pytest.MonkeyPatch, command: str, switch: str
) -> None:
    fill(file)
    before = file.read_bytes()
    monkeypatch.setenv(switch, "1")
    done = run(command, *COMMANDS[command])

    assert done.code == 1
    assert switch in done.err
    assert done.err.count("\n") == 1
    assert file.read_bytes() == before


def test_off_means_a_miss(run: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(file)
    monkeypatch.setenv("RESPCACHE_DISABLE", "1")

    assert run("get", "Why?").code == 1
    assert run("explain", "Why?").out == "bypass: RESPCACHE_DISABLE is set\n"
    assert run("list").code == 1


# Asking.


def test_text_is_printed_alone_and_as_it_is(run: Any, file: Path) -> None:
    fill(file)
    done = run("get", "WHY?")

    assert (done.code, done.out, done.err) == (0, "Because.\n", "")


def test_miss_prints_nothing_and_exits_1(run: Any, file: Path) -> None:
    fill(file)
    done = run("get", "when?")

    assert (done.code, done.out, done.err) == (1, "", "")


@pytest.mark.parametrize(
    "value", ['{"a":[1,2.5,null,true,"\u00e9"]}', "null", '"text"', "[]", "12"]
)
def test_json_comes_back_as_json(run: Any, file: Path, value: str) -> None:
    assert run("set", "q", value, "--json-value").code == 0
    done = run("get", "q", "--json")

    assert done.json["response"] == json.loads(value)
    assert done.json["hit"] is True
    if value != '"text"':
        assert run("get", "q").json == json.loads(value)


def test_what_get_prints_set_takes_from_stdin(run: Any, file: Path) -> None:
    text = "one\n\ntwo \u00e9 \n"
    Cache(file).store("q", text)
    out = run("get", "q").out
    run("set", "copy", "-", stdin=out.encode())

    assert Cache(file).get("copy") == text


def test_stdin_that_is_not_utf8_is_refused_with_its_place(run: Any, file: Path) -> None:
    done = run("set", "q", "-", stdin=b"ab\xff")

    assert done.code == 2
    assert "not UTF-8 at byte 2" in done.err


def test_value_outside_the_json_domain_is_refused_with_its_place(run: Any, file: Path) -> None:
    done = run("set", "q", '{"a": [NaN]}', "--json-value")

    assert done.code == 1
    assert "$.a[0]" in done.err
    assert not file.exists()


def test_set_tells_what_became_of_it(run: Any, file: Path) -> None:
    assert run("set", "q", "a", "--json").json == {"stored": True, "kept": True}

    again = run("set", "q", "a", "--json")
    assert (again.code, again.json) == (0, {"stored": False, "kept": True})
    assert "keeps its age" in again.err

    blank = run("set", "q", " ", "--json")
    assert (blank.code, blank.json) == (1, {"stored": False, "kept": False})
    assert Cache(file).get("q") == "a"


def test_options_of_set_are_those_of_the_entry(run: Any, file: Path) -> None:
    notes = file.parent / "notes.txt"
    notes.write_text("old")
    (file.parent / "src").mkdir()
    args = ("--namespace", "acme", "--context", '{"model": "m"}')
    run("set", "q", "a", *args, "--ttl", "60", "--depends", notes, "--depends", file.parent / "src")
    entry = run("show", "q", "--json").json[0]

    assert entry["namespace"] == "acme"
    assert entry["ttl"] == 60.0
    assert list(entry["context"]) == ["model"]
    assert entry["paths"][str(file.parent / "src")] == "tree"
    assert run("get", "q", *args).out == "a\n"
    assert run("get", "q").code == 1
    assert run("get", "q", "--namespace", "acme").code == 1

    notes.write_text("newer")
    assert run("get", "q", *args).code == 1


def test_rules_of_the_cache_that_stored_it_can_be_asked_for(run: Any, file: Path) -> None:
    Cache(file, case_sensitive=True).store("Who?", "A")
    Cache(file, trim_spaces=True).store("Why?", "B")

    assert run("get", "Who?", "--case-sensitive").out == "A\n"
    assert run("get", "  why? ", "--trim-spaces").out == "B\n"
    assert run("get", "Who?").code == 1


def test_explain_tells_why(run: Any, file: Path) -> None:
    fill(file)

    assert run("explain", "why?").out.startswith("hit: stored ")
    done = run("explain", "who?", "--json")
    assert done.json["verdict"] == "miss"
    assert "acme" in done.json["details"][-1]


def test_command_imposes_no_limit_on_the_file(run: Any, file: Path) -> None:
    Cache(file, max_bytes=10**12).store("q", "a")
    run("set", "other", "b")

    assert run("stats", "--json").json["limits"] == {"max_bytes": 10**12}


# Looking.


def test_stats_count_every_front_and_namespace(run: Any, file: Path) -> None:
    fill(file)
    expire(file)
    found = run("stats", "--json").json

    assert [(g["front"], g["namespace"], g["entries"], g["over"]) for g in found["groups"]] == [
        ("cache", None, 4, 2),
        ("cache", "acme", 1, 0),
        ("steps", None, 1, 0),
        ("tools", None, 1, 0),
    ]
    assert found["format"] == ("document" if file.suffix == ".json" else "log")
    assert (found["entries"], found["over"], found["writes"]) == (7, 2, 0)
    assert found["bytes"] == sum(group["bytes"] for group in found["groups"])
    assert found["file_bytes"] == file.stat().st_size
    assert found["damaged"] is False


def test_stats_are_a_table_of_aligned_columns(run: Any, file: Path) -> None:
    fill(file)
    lines = run("stats").out.splitlines()

    assert f"file                {file}" in lines
    assert any(re.fullmatch(r"cache  acme +1 +0 +\d+ +\d s +\d s", line) for line in lines)


def test_stats_say_that_something_can_not_be_read(run: Any, file: Path) -> None:
    fill(file)
    file.write_bytes(file.read_bytes().replace(b"Because.", b"Because\n", 1))
    done = run("stats")

    assert done.code == 0
    assert "respcache verify" in done.err


def test_list_has_every_front_the_newest_first(run: Any, file: Path) -> None:
    fill(file)
    found = run("list", "--json").json

    assert [entry["front"] for entry in found] == ["tools", "steps", "cache", "cache", "cache"]
    assert [entry["question"] for entry in found] == [
        'Read {"path":"a.txt"}',
        "plan",
        "Who?",
        "Why?",
        "Why?",
    ]
    assert "response" not in found[0]
    assert run("list").out.splitlines()[1].endswith('Read {"path":"a.txt"}')


@pytest.mark.parametrize(
    ("args", "count"),
    [
        pytest.param(["--front", "tools"], 1, id="front"),
        pytest.param(["--namespace", "acme"], 1, id="namespace"),
        pytest.param(["--namespace", ""], 4, id="shared-namespace"),
        pytest.param(["--front", "cache", "--namespace", ""], 2, id="both"),
        pytest.param(["--namespace", "none"], 0, id="nothing"),
    ],
)
def test_list_of_a_part(run: Any, file: Path, args: list[str], count: int) -> None:
    fill(file)

    assert len(run("list", "--json", *args).json) == count


def test_expired_and_the_rest_are_all_there_is(run: Any, file: Path) -> None:
    fill(file)
    expire(file)

    over = run("list", "--expired", "--json").json
    assert {entry["question"]: entry["state"] for entry in over} == {
        "late": "expired",
        "stale": "changed",
    }
    done = run("list")
    assert "late" not in done.out
    assert "2 more can't be served" in done.err


def test_limit_shows_the_newest_and_tells_of_the_rest(run: Any, file: Path) -> None:
    fill(file)
    done = run("list", "--limit", "2")

    assert [line.split()[-1] for line in done.out.splitlines()] == [
        "question",
        '{"path":"a.txt"}',
        "plan",
    ]
    assert "3 more" in done.err


def test_what_could_drive_a_terminal_is_escaped_in_lists(run: Any, file: Path) -> None:
    Cache(file, namespace="\x1b[2J").store("a\x1b]0;title\x07\nb", "r")
    done = run("list")

    assert len(done.out.splitlines()) == 2
    assert "a\\x1b]0;title\\x07\\nb" in done.out


def test_show_has_all_that_is_kept_in_every_context(run: Any, file: Path) -> None:
    fill(file)
    done = run("show", "why?")

    assert done.code == 0
    assert "Because.\n" in done.out
    assert '["of", "that"]\n' in done.out
    assert "context    model\n" in done.out
    assert len(run("show", "why?", "--json").json) == 2


def test_show_finds_one_entry_by_its_key(run: Any, file: Path) -> None:
    fill(file)
    (key,) = (entry["key"] for entry in run("list", "--json", "--front", "tools").json)

    (entry,) = run("show", key, "--json").json
    assert entry["response"] == "content"
    assert entry["meta"]["duration"] >= 0


def test_show_of_what_is_not_kept_exits_1(run: Any, file: Path) -> None:
    fill(file)
    done = run("show", "when?")

    assert (done.code, done.out) == (1, "")
    assert "respcache list" in done.err


def test_flat_file_is_looked_into_too(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"why?": "because"}')
    args = ("--path", file)

    assert run("get", "Why?", *args).out == "because\n"
    assert run("stats", "--json", *args).json["format"] == "flat"
    (entry,) = run("list", "--json", *args).json
    assert (entry["front"], entry["age"], entry["namespace"]) == ("cache", None, None)
    assert "because" in run("show", "why?", *args).out
    assert run("clear", "--namespace", "x", "--yes", *args).out == "0 entries cleared\n"
    assert run("clear", "--all", "--yes", *args).out == "1 entry cleared\n"


# Tending.


def test_prune_takes_out_what_expired_lists(run: Any, file: Path) -> None:
    fill(file)
    expire(file)

    assert run("prune").out == "2 entries pruned\n"
    assert run("prune", "--json").json == {"pruned": 0}
    assert len(run("list", "--json").json) == 5


def test_invalidate_forgets_in_all_fronts(run: Any, file: Path) -> None:
    notes = file.parent / "notes.txt"
    Cache(file, namespace="acme").store("q", "a", paths=[notes])
    with ToolCache(file, reads={"Read": [str(notes)]}) as tools:
        tools.call(ToolCall("Read", {}), lambda call: "content")

    assert run("invalidate", notes).out == "2 entries invalidated\n"
    assert run("list", "--json").json == []


@pytest.mark.parametrize(
    ("args", "gone"),
    [
        pytest.param(["--all"], 5, id="all"),
        pytest.param(["--namespace", "acme"], 1, id="namespace"),
        pytest.param(["--namespace", ""], 4, id="shared-namespace"),
        pytest.param(["--front", "cache"], 3, id="front"),
        pytest.param(["--front", "steps", "--namespace", ""], 1, id="both"),
    ],
)
def test_clear_forgets_what_is_named_and_no_more(
    run: Any, file: Path, args: list[str], gone: int
) -> None:
    fill(file)

    assert run("clear", "--yes", "--json", *args).json == {"cleared": gone}
    assert len(run("list", "--json").json) == 5 - gone
    assert run("list", "--json", *args[args == ["--all"] :]).json == []


def test_clear_is_not_undone_by_a_result_that_began_before(run: Any, file: Path) -> None:
    fill(file)

    def compute() -> str:
        run("clear", "--all", "--yes")
        return "stale"

    Cache(file).get_or_call("slow", compute)
    assert run("list", "--json").json == []


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [
        pytest.param("y\n", 0, 0, id="yes"),
        pytest.param("YES\n", 0, 0, id="in-full"),
        pytest.param("n\n", 1, 5, id="no"),
        pytest.param("\n", 1, 5, id="enter"),
        pytest.param("", 1, 5, id="end-of-input"),
    ],
)
def test_clear_asks_on_a_terminal(
    run: Any, file: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    fill(file)
    monkeypatch.setattr(Input, "isatty", lambda self: True)
    done = run("clear", "--all", stdin=answer.encode())

    assert f"Forget 5 entries of {file}? [y/N]" in done.err
    assert done.code == code
    assert len(run("list", "--json").json) == left


def test_nobody_to_ask_is_told_with_the_remedy(run: Any, file: Path) -> None:
    fill(file)
    done = run("clear", "--namespace", "acme")

    assert done.code == 2
    assert "--yes" in done.err
    assert len(run("list", "--json").json) == 5


def test_verify_tells_of_a_good_file(run: Any, file: Path) -> None:
    fill(file)
    done = run("verify")

    assert (done.code, done.err) == (0, "")
    assert re.search(r"^entries +5$", done.out, re.MULTILINE)
    assert re.search(r"^verdict +good$", done.out, re.MULTILINE)


def test_verify_finds_damage_and_fix_repairs_it_with_a_copy(run: Any, file: Path) -> None:
    fill(file)
    damaged = file.read_bytes().replace(b"Because.", b"Becauze.")
    file.write_bytes(damaged)

    found = run("verify")
    assert found.code == 1
    assert re.search(r"^verdict +not good$", found.out, re.MULTILINE)
    assert "checksum" in found.out
    assert "--fix" in found.err
    assert file.read_bytes() == damaged

    fixed = run("verify", "--fix", "--json")
    assert fixed.code == 0
    assert fixed.json["good"] is True
    assert len(fixed.json["fixed"]) == 1
    (copy,) = fixed.json["copies"]
    assert Path(copy).read_bytes() == damaged
    assert copy in fixed.err
    assert run("verify").code == 0


def test_fix_changes_nothing_of_a_good_file(run: Any, file: Path) -> None:
    fill(file)
    before = file.read_bytes()
    done = run("verify", "--fix", "--json")

    assert (done.code, done.json["fixed"], done.json["copies"]) == (0, [], [])
    assert file.read_bytes() == before


# Moving.


@pytest.mark.parametrize("target", FORMATS)
def test_export_and_import_carry_every_front_and_namespace(
    run: Any, file: Path, target: str
) -> None:
    fill(file)
    expire(file)
    (file.parent / "out").mkdir()
    out, back = file.parent / "out" / target, file.parent / "out" / f"back-{target}"
    keys = sorted(entry["key"] for entry in run("list", "--json").json)

    assert run("export", out).out == "6 entries exported\n"  # what changed is not known to it
    assert run("import", out, "--path", back, "--json").json == {"imported": 6}
    assert sorted(entry["key"] for entry in run("list", "--json", "--path", back).json) == keys


def test_export_and_import_of_a_part(run: Any, file: Path) -> None:
    fill(file)
    out = file.parent / "out.jsonl"

    assert run("export", out, "--namespace", "acme").out == "1 entry exported\n"
    assert run("export", out, "--front", "tools").out == "1 entry exported\n"
    other = file.parent / "other.json"
    assert run("import", out, "--front", "cache", "--path", other).out == "1 entry imported\n"


def test_flat_file_is_written_and_read(run: Any, file: Path) -> None:
    Cache(file).store("Why?", "Because.")
    flat = file.parent / "flat.json"

    assert run("export", flat, "--format", "flat").out == "1 entry exported\n"
    assert json.loads(flat.read_text()) == {"why?": "Because."}
    other = file.parent / "other.jsonl"
    assert run("import", flat, "--path", other, "--namespace", "acme").out == "1 entry imported\n"
    assert Cache(other, namespace="acme").get("WHY?") == "Because."


def test_what_a_flat_file_has_no_place_for_is_refused_whole(run: Any, file: Path) -> None:
    fill(file)
    flat = file.parent / "flat.json"
    done = run("export", flat, "--format", "flat")

    assert done.code == 1
    assert done.err.count("\n") == 1
    assert not flat.exists()


def test_import_leaves_what_is_there(run: Any, file: Path) -> None:
    Cache(file).store("q", "mine")
    other = file.parent / "other.json"
    Cache(other).store_many({"q": "theirs", "r": "theirs"})

    assert run("import", other).out == "1 entry imported\n"
    assert Cache(file).get("q") == "mine"


# Terminals, pipes and shells.


@needs_posix
def test_tables_and_bars_are_drawn_on_terminals(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    started = threading.Event()
    start = _terminal._Bar.start

    def tell_start(bar: Any) -> None:
        start(bar)
        started.set()

    honest = cli_tending.audit

    def slow_audit(*args: Any) -> Any:
        assert started.wait(30)
        return honest(*args)

    monkeypatch.setattr(_terminal, "_PATIENCE", 0.0)
    monkeypatch.setattr(_terminal._Bar, "start", tell_start)
    monkeypatch.setattr(cli_tending, "audit", slow_audit)
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setattr(sys, "stderr", screen)
        for args in (["list"], ["verify"]):
            with pytest.raises(SystemExit):
                cli.main(args)
        monkeypatch.undo()
        text = os.read(ours, 100_000).decode()
    os.close(ours)

    assert "\x1b[" in text
    assert "\u256d" in text  # the corner of a frame
    assert "verifying" in text
    assert "Because" not in text


def test_no_bar_is_shown_before_a_second_has_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(_terminal, "_PATIENCE", 100.0)
    with _terminal.progress("working") as tell:
        tell(1, 2)

    assert capsys.readouterr().err == ""


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
