"""The commands that look into a cache file and tend it, in this process."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from respcache import Cache, ToolCache, ToolCall, _terminal, cli
from respcache._commands import _tending as cli_tending
from respcache._entry import new_entry
from respcache._index import Put
from respcache._stores import new_id

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

needs_posix = pytest.mark.skipif(os.name == "nt", reason="needs terminals")


@pytest.fixture(autouse=True)
def _no_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RESPCACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


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


def test_debug_behind_the_end_of_options_is_what_was_asked(run: Any, tmp_path: Path) -> None:
    asked = ("--path", tmp_path / "a.json", "--", "--debug")
    run("set", *asked, "answer")

    assert run("get", *asked).out == "answer\n"


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
def test_debug_shows_the_trace_of_an_error(run: Any, tmp_path: Path, is_last: bool) -> None:
    args = ["import", tmp_path / "none.json", "--path", tmp_path / "a.json"]

    done = run(*args, "--debug") if is_last else run("--debug", *args)

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


# Terminals.


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


# What the documentation shows.

PAGE = Path(__file__).parent.parent / "docs" / "command.md"
LINES = r"((?:(?!```).*\n)*)"
BLOCK = re.compile(rf"^```sh\n{LINES}```\n\n```text\n{LINES}```\n", re.MULTILINE)


def plain(text: str) -> str:
    """Return *text* without what differs by the widths of columns."""
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines())


def pattern_of(expected: str) -> str:
    """Return what an output matches; ``…`` is a part of a line, or alone some lines."""
    return "".join(
        "(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in plain(expected).splitlines()
    )


@needs_posix
def test_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "respcache"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m respcache.cli "$@"\n')
    script.chmod(0o755)
    (tmp_path / "work").mkdir()
    env = {
        **os.environ,
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "RESPCACHE_PATH": str(tmp_path / "work" / "answers.json"),
    }
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for source, expected in blocks:
        done = subprocess.run(
            ["sh", "-c", f"exec 2>&1\n{source}"],
            cwd=tmp_path / "work",
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

        assert re.fullmatch(pattern_of(expected), plain(done.stdout)), f"{source}\n{done.stdout}"
    assert len(blocks) == 11


def test_page_and_readme_name_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")

    for command in [*COMMANDS, "demo"]:
        assert f"`{command}" in text or f"respcache {command}" in text


@pytest.mark.parametrize("verb", ["import", "export"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("bad.json", b"{bad", id="torn"),
        pytest.param("bad.json", b'{"a": "b", "c": 5}', id="flat with a number"),
        pytest.param("bad.jsonl", bytes(range(256)) * 20, id="bytes"),
    ],
)
def test_damaged_source_is_told_and_exit_code_1(
    run: Any, tmp_path: Path, verb: str, name: str, data: bytes
) -> None:
    bad, other = tmp_path / name, tmp_path / "other.json"
    bad.write_bytes(data)
    file, path = (bad, other) if verb == "import" else (other, bad)

    done = run(verb, file, "--path", path)

    assert done.code == 1
    assert f"{bad}: is damaged, and what can't be read was left out" in done.err
    assert bad.read_bytes() == data
