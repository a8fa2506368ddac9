"""``respcache hook`` and ``respcache install-hook``, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from respcache import Cache, cli


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("RESPCACHE_PATH", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def respcache(capsys):
    def call(*args: object) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(each) for each in args])
        return ended.value.code, *capsys.readouterr()

    return call


def test_snippet_is_shown_and_nothing_is_written(respcache, home):
    code, out, err = respcache("install-hook", "claude", "--path", "a.jsonl", "--any-turn")

    hooks = json.loads(out)["hooks"]
    command = hooks["Stop"][0]["hooks"][0]["command"]
    assert code == 0
    assert f"--path {home / 'a.jsonl'} --host claude --any-turn" in command
    assert "--write puts it there" in err
    assert not (home / ".claude").exists()


def test_settings_are_written_once_beside_what_is_there(respcache, home):
    settings = home / "settings.json"
    settings.write_text('{"model": "m", "hooks": {"Stop": []}}')
    asked = ("install-hook", "claude", "--settings", settings, "--write")

    first, second = respcache(*asked), respcache(*asked)

    assert first[0] == second[0] == 0
    assert first[1].startswith(f"written: {settings}; what was there is in {settings}.bak-")
    assert second[1] == f"as it should be already: {settings}\n"
    assert list(json.loads(settings.read_text())) == ["model", "hooks"]


def test_path_before_the_command_is_meant_as_well(respcache, home):
    _, out, _ = respcache("--path", "b.json", "install-hook", "docker-agent")

    assert f"--path {home / 'b.json'} --host docker-agent" in out
    assert out.startswith("hooks:\n  user_prompt_submit:\n")


def test_json_has_all_that_is_known(respcache, home):
    code, out, err = respcache("install-hook", "codex", "--json")

    made = json.loads(out)
    assert (code, err) == (0, "")
    assert made["settings"] == str(home / ".codex" / "hooks.json")
    assert made["notify"].startswith("notify = [")
    assert made["is_written"] is False


@pytest.mark.parametrize(
    ("args", "named"),
    [
        pytest.param(["nobody"], "choose one of claude, codex, docker-agent, gemini", id="host"),
        pytest.param(["claude", "--on-hit", "answer"], "Gemini CLI alone", id="answer"),
        pytest.param(["claude", "--on-hit", "x"], "--on-hit=x: choose one of", id="on-hit"),
        pytest.param(["claude", "--budget", "0"], "--budget=0.0: choose", id="budget"),
        pytest.param(["docker-agent", "--write"], "its YAML is not written", id="yaml"),
    ],
)
def test_what_was_asked_wrongly_is_one_line_and_exit_code_2(respcache, args, named):
    code, out, err = respcache("install-hook", *args)

    assert (code, out) == (2, "")
    assert named in err and err.count("\n") == 1


@pytest.mark.parametrize("before", [[], ["--debug"]], ids=["first", "after an option"])
def test_hook_takes_part_through_the_command(home, before):
    """It is reached before Typer where it stands first, and by Typer where it does not."""
    payload = {
        "session_id": "s1",
        "cwd": str(home),
        "hook_event_name": "stop",
        "last_user_message": "How?",
        "stop_response": "So.",
    }

    done = subprocess.run(
        [sys.executable, "-m", "respcache.cli", *before, "hook", "--path", "a.jsonl"],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(home)},
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [hit.response for hit in Cache(Path("a.jsonl"), namespace=str(home)).entries()] == [
        "So."
    ]


@pytest.mark.parametrize("stream", ["<&-", ">&-"])
@pytest.mark.parametrize("command", ["list", "verify --json", "set s -", "clear --all"])
def test_closed_stream_is_no_traceback(home, command, stream):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m respcache.cli {command} {stream}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "Traceback" not in done.stderr


def test_path_before_the_hook_is_the_hook_s(home, monkeypatch, capsys):
    given = []
    monkeypatch.setattr("respcache.hook.main", given.append)
    with pytest.raises(SystemExit):
        cli.main(["--path", "b.jsonl", "hook", "--any-turn"])

    assert given == [["--path", "b.jsonl", "--any-turn"]]


def test_hook_that_is_asked_wrongly_still_exits_with_0(home):
    done = subprocess.run(
        [sys.executable, "-m", "respcache.cli", "hook", "--wrong"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
