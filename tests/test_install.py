"""Settings of hosts: the hook gets in, and nothing else is lost."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import respcache
from respcache import _install
from respcache._install import Installation, install
from respcache.errors import ConfigError, StoreError

WRITTEN = ["claude", "codex", "gemini"]
EVENTS = {
    "claude": ["UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop"],
    "codex": ["UserPromptSubmit", "PostToolUse", "Stop"],
    "gemini": ["BeforeAgent", "AfterTool", "AfterAgent"],
}
OTHERS: dict[str, Any] = {
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "permissions": {"allow": ["Bash(make:*)"], "deny": []},
    "hooks": {
        "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}],
        "PostToolUse": [
            {
                "matcher": "Write",
                "hooks": [{"type": "command", "command": "make fmt", "timeout": 5}],
            }
        ],
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo respcache"}]}],
    },
    "model": "opus",
    "env": {"Ä": "ö", "n": "1.0"},
    "cleanupPeriodDays": 30,
    "ratio": 0.5,
    "nothing": None,
}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "RESPCACHE_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host" / "settings.json"


def put(settings: Path, host: str = "claude", *options: str) -> Installation:
    return install(host, settings=settings, options=["--path", "/c/a.jsonl", *options], write=True)


def read(settings: Path) -> Any:
    return json.loads(settings.read_text("utf-8"))


def backups(settings: Path) -> list[Path]:
    return sorted(settings.parent.glob(f"{settings.name}.bak-*"))


def ours(found: Any) -> list[dict[str, Any]]:
    return [
        hook
        for groups in found["hooks"].values()
        for group in groups
        for hook in group["hooks"]
        if "respcache.hook" in hook["command"]
    ]


class TestSnippet:
    @pytest.mark.parametrize("host", WRITTEN)
    def test_has_the_events_of_the_host(self, host: str, settings: Path) -> None:
        made = install(host, settings=settings, options=["--path", "a.jsonl"])

        assert list(json.loads(made.snippet)["hooks"]) == EVENTS[host]
        assert not settings.exists()

    @pytest.mark.parametrize(
        ("host", "timeout"), [("claude", 12), ("codex", 12), ("gemini", 12_000)]
    )
    def test_timeout_is_in_the_hosts_unit(self, host: str, timeout: int, settings: Path) -> None:
        made = install(host, settings=settings, options=["--path", "a.jsonl"])

        assert {hook["timeout"] for hook in ours(json.loads(made.snippet))} == {timeout}

    def test_timeout_leaves_room_for_the_budget(self, settings: Path) -> None:
        made = install("claude", settings=settings, options=["--budget=30"])

        assert {hook["timeout"] for hook in ours(json.loads(made.snippet))} == {40}

    def test_command_is_the_lean_one_with_the_options(self, settings: Path, tmp_path: Path) -> None:
        options = ["--any-turn", "--path", str(tmp_path / "a b'c.jsonl"), "--on-hit=block"]
        made = install("claude", settings=settings, options=options)
        words = shlex.split(ours(json.loads(made.snippet))[0]["command"])

        assert words[0] == sys.executable
        assert words[1:3] == ["-I", "-S"]
        assert words[4].endswith("from respcache.hook import main; main()")
        assert words[5] == str(Path(respcache.__file__).parents[1])
        assert words[6:] == [
            *("--path", str(tmp_path / "a b'c.jsonl"), "--host", "claude"),
            *("--on-hit", "block", "--any-turn"),
        ]

    def test_relative_path_is_made_absolute(
        self, settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The hook runs in the folder of the agent."""
        monkeypatch.chdir(tmp_path)
        made = install("claude", settings=settings, options=["--path=a.jsonl", "--tools=t.jsonl"])

        assert f"--path {tmp_path}/a.jsonl" in made.snippet
        assert f"--tools {tmp_path}/t.jsonl" in made.snippet

    def test_path_is_named_also_if_it_is_the_default(self, settings: Path, tmp_path: Path) -> None:
        """The hook need not find out itself, which costs more than all else."""
        made = install("claude", settings=settings)

        assert f"--path {tmp_path}/home/cache/respcache/answers.json" in made.snippet

    def test_gemini_answers_before_the_model_is_called_if_asked(self, settings: Path) -> None:
        made = install("gemini", settings=settings, options=["--on-hit=answer"])

        assert "BeforeModel" in json.loads(made.snippet)["hooks"]

    def test_docker_agent_gets_yaml_with_tools_in_groups_only(self) -> None:
        made = install("docker-agent", options=["--path", "/c/a.jsonl"])
        commands = re.findall(r"command: (.*)", made.snippet)

        assert made.settings is None
        assert made.snippet.startswith("hooks:\n  user_prompt_submit:\n    - type: command\n")
        assert "  post_tool_use:\n    - matcher: " in made.snippet
        assert len(commands) == 3
        assert all("respcache.hook" in json.loads(command) for command in commands)

    def test_codex_gets_a_line_for_notify_too(self, settings: Path) -> None:
        notify = install("codex", settings=settings, options=["--path", "/c/a.jsonl"]).notify
        assert notify is not None
        name, _, words = notify.partition(" = ")

        assert name == "notify"
        assert json.loads(words)[-4:] == ["--path", "/c/a.jsonl", "--host", "codex"]
        assert install("claude", settings=settings).notify is None

    @pytest.mark.parametrize(
        ("host", "options", "why"),
        [
            ("emacs", [], "choose one of claude, codex, docker-agent, gemini"),
            ("claude", ["--unknown"], "--unknown"),
            ("claude", ["--on-hit=answer"], "Gemini CLI alone"),
            ("claude", ["--host=codex"], "contradicts claude"),
            ("claude", ["{}"], "no option"),
        ],
    )
    def test_wrong_wish_is_one_line(self, host: str, options: list[str], why: str) -> None:
        with pytest.raises(ConfigError) as caught:
            install(host, options=options)

        assert why in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_docker_agents_yaml_is_not_written(self, settings: Path) -> None:
        for wish in ({"write": True}, {"settings": settings}):
            with pytest.raises(ConfigError, match="paste the snippet"):
                install("docker-agent", **wish)  # type: ignore[arg-type]


class TestSettings:
    @pytest.mark.parametrize(
        ("host", "variable", "default", "name"),
        [
            ("claude", "CLAUDE_CONFIG_DIR", "home/.claude", "settings.json"),
            ("codex", "CODEX_HOME", "home/.codex", "hooks.json"),
            ("gemini", None, "home/.gemini", "settings.json"),
        ],
    )
    def test_are_the_users_own(
        self,
        host: str,
        variable: str | None,
        default: str,
        name: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        made = install(host, options=["--path=/c/a.jsonl"], write=True)

        assert made.settings == str(tmp_path / default / name)
        assert (made.is_written, made.backup) == (True, None)
        assert list(read(Path(made.settings))["hooks"]) == EVENTS[host]

        if variable:
            monkeypatch.setenv(variable, str(tmp_path / "other"))

            assert install(host).settings == str(tmp_path / "other" / name)

    @pytest.mark.parametrize("text", ["", " \n", "{}", '{"hooks": {}}'])
    def test_empty_file_gets_nothing_but_the_hooks(self, settings: Path, text: str) -> None:
        settings.write_text(text)
        put(settings)

        assert read(settings) == json.loads(
            install("claude", settings=settings, options=["--path=/c/a.jsonl"]).snippet
        )


@pytest.mark.parametrize(
    "command",
    [
        "notify-me && respcache hook --path x",
        "respcache hook --path x; ./mine.sh",
        "my-wrapper respcache hook --path x | tee log",
        "echo respcache hook >> log",
        "python3 -c 'from respcache.hook import main' ; ./mine.sh",
        "respcache hook '",
    ],
)
def test_command_that_does_more_than_our_hook_is_not_ours_to_replace(command):
    assert not _install._is_ours({"type": "command", "command": command})


@pytest.mark.parametrize(
    "command",
    ["respcache hook --path x", "/usr/bin/respcache hook", _install.command_of(["--path", "/a b"])],
)
def test_command_of_our_hook_is_ours(command):
    assert _install._is_ours({"type": "command", "command": command})


class TestMerge:
    @pytest.mark.parametrize("host", WRITTEN)
    def test_everything_else_stays_in_its_order(self, host: str, settings: Path) -> None:
        settings.write_text(json.dumps(OTHERS, indent=2, ensure_ascii=False))
        made = put(settings, host)
        found = read(settings)

        assert list(found) == list(OTHERS)
        assert {**found, "hooks": None} == {**OTHERS, "hooks": None}
        for event, groups in OTHERS["hooks"].items():
            assert found["hooks"][event][: len(groups)] == groups
        assert list(found["hooks"])[:3] == list(OTHERS["hooks"])
        assert len(ours(found)) == len(EVENTS[host])
        assert made.is_change and made.is_written
        assert "Ä" in settings.read_text("utf-8")

    def test_second_time_changes_nothing(self, settings: Path) -> None:
        settings.write_text(json.dumps(OTHERS))
        put(settings)
        before = settings.stat(), settings.read_bytes()
        made = put(settings)

        assert (settings.stat(), settings.read_bytes()) == before
        assert (made.is_change, made.is_written, made.backup) == (False, False, None)
        assert len(backups(settings)) == 1

    def test_second_time_changes_nothing_with_hooks_that_came_behind(self, settings: Path) -> None:
        put(settings)
        found = read(settings)
        found["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "say done"}]})
        found["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "beep"})
        settings.write_text(json.dumps(found))

        assert not put(settings).is_change

    def test_other_options_replace_the_hook_where_it_is(self, settings: Path) -> None:
        put(settings)
        found = read(settings)
        found["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "say done"}]})
        settings.write_text(json.dumps(found))
        put(settings, "claude", "--any-turn")
        after = read(settings)

        assert len(ours(after)) == len(EVENTS["claude"])
        assert all("--any-turn" in hook["command"] for hook in ours(after))
        assert after["hooks"]["Stop"][1] == found["hooks"]["Stop"][1]

    def test_event_that_is_no_longer_wanted_loses_the_hook(self, settings: Path) -> None:
        put(settings, "gemini", "--on-hit=answer")
        found = read(settings)
        assert "BeforeModel" in found["hooks"]
        found["hooks"]["AfterTool"].append(
            {"matcher": "old", "hooks": [*ours(found)[:1], {"type": "command", "command": "beep"}]}
        )
        settings.write_text(json.dumps(found))
        put(settings, "gemini")
        after = read(settings)

        assert list(after["hooks"]) == EVENTS["gemini"]
        # A matcher that somebody made stays: it may name tools that write.
        group = after["hooks"]["AfterTool"][1]
        assert group["matcher"] == "old"
        assert group["hooks"][1] == {"type": "command", "command": "beep"}

    @pytest.mark.parametrize(
        "command",
        [
            "respcache hook --path x",
            "/usr/local/bin/respcache hook",
            "'/opt/a/respcache' hook",
            r"C:\venv\Scripts\respcache.exe hook",
            'python -c "from respcache.hook import main; main()"',
        ],
    )
    def test_hook_that_was_put_there_by_hand_is_replaced(
        self, settings: Path, command: str
    ) -> None:
        by_hand = {"hooks": [{"type": "command", "command": command}]}
        settings.write_text(json.dumps({"hooks": {"Stop": [by_hand]}}))
        put(settings)

        assert command not in settings.read_text()
        assert len(read(settings)["hooks"]["Stop"]) == 1

    @pytest.mark.parametrize("command", ["echo respcache", "my-respcache hook", "hook respcache"])
    def test_hook_of_others_is_none_of_ours(self, settings: Path, command: str) -> None:
        other = {"hooks": [{"type": "command", "command": command}]}
        settings.write_text(json.dumps({"hooks": {"Stop": [other], "Notification": [other]}}))
        put(settings)

        assert read(settings)["hooks"]["Stop"][0] == other
        assert read(settings)["hooks"]["Notification"] == [other]

    @pytest.mark.parametrize("strange", [1, "x", None, {"hooks": 1}, {"hooks": [1]}, []])
    def test_strange_entries_among_the_hooks_stay(self, settings: Path, strange: Any) -> None:
        settings.write_text(json.dumps({"hooks": {"Stop": [strange], "Other": strange}}))
        put(settings)

        assert read(settings)["hooks"]["Stop"][0] == strange
        assert read(settings)["hooks"]["Other"] == strange

    def test_switched_off_hooks_are_told(self, settings: Path) -> None:
        settings.write_text('{"disableAllHooks": true}')

        assert "disableAllHooks" in " ".join(put(settings).notes)


class TestFile:
    def test_backup_holds_what_was_there(self, settings: Path) -> None:
        text = json.dumps(OTHERS)
        settings.write_text(text)
        settings.chmod(0o640)
        made = put(settings)
        (backup,) = backups(settings)

        assert made.backup == str(backup)
        assert re.fullmatch(r"settings\.json\.bak-\d{8}-\d{6}", backup.name)
        assert backup.read_text() == text
        assert stat.S_IMODE(settings.stat().st_mode) == 0o640

    def test_two_backups_within_a_second_are_two(self, settings: Path) -> None:
        settings.write_text("{}")
        for option in ("--any-turn", "--shared", "--keep-on-edit"):
            put(settings, "claude", option)

        assert len(backups(settings)) == 3

    @pytest.mark.parametrize("indent", [2, 4, "\t"])
    def test_indentation_stays(self, settings: Path, indent: int | str) -> None:
        settings.write_text(json.dumps({"a": {"b": 1}}, indent=indent))
        put(settings)

        assert settings.read_text() == json.dumps(read(settings), indent=indent) + "\n"

    def test_line_ends_and_mark_of_byte_order_stay(self, settings: Path) -> None:
        settings.write_bytes(b'\xef\xbb\xbf{\r\n  "a": 1\r\n}\r\n')
        put(settings)
        text = settings.read_bytes()

        assert text.startswith(b'\xef\xbb\xbf{\r\n  "a": 1,\r\n')
        assert text.count(b"\n") == text.count(b"\r\n")

    def test_link_stays_a_link(self, settings: Path, tmp_path: Path) -> None:
        target = tmp_path / "dotfiles.json"
        target.write_text("{}")
        settings.symlink_to(target)
        put(settings)

        assert settings.is_symlink()
        assert ours(read(target))

    def test_lone_surrogate_stays_an_escape(self, settings: Path) -> None:
        settings.write_text('{"a": "\\ud800 ä"}')
        put(settings)

        assert read(settings)["a"] == "\ud800 ä"

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b'{"a": 1, // a comment\n"b": 2}', id="comment"),
            pytest.param(b'/* why */ {"a": 1}', id="comment-before"),
            pytest.param(b'{"a": 1,}', id="comma"),
            pytest.param(b'{"a": 1', id="half"),
            pytest.param(b'{"a": 1, "a": 2}', id="name-twice"),
            pytest.param(b'{"a": NaN}', id="nan"),
            pytest.param(b'{"a": 1e999}', id="too-large"),
            pytest.param(b"[]", id="list"),
            pytest.param(b'{"a": "\xff"}', id="not-utf-8"),
            pytest.param(b"[" * 100_000, id="deep"),
            pytest.param(b'{"hooks": []}', id="hooks-are-a-list"),
            pytest.param(b'{"hooks": {"Stop": {}}}', id="event-is-an-object"),
            pytest.param(b'{"hooks": null}', id="hooks-are-null"),
        ],
    )
    @pytest.mark.parametrize("write", [False, True])
    def test_what_can_not_be_merged_stays_as_it_is(
        self, settings: Path, data: bytes, write: bool
    ) -> None:
        settings.write_bytes(data)

        with pytest.raises(ConfigError) as caught:
            install("claude", settings=settings, write=write)

        assert str(settings) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert settings.read_bytes() == data
        assert list(settings.parent.iterdir()) == [settings]

    def test_file_that_is_changed_meanwhile_stays_as_it_is(
        self, settings: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.write_text("{}")
        real = _install._backup

        def change(path: str) -> str:
            backup = real(path)
            settings.write_text('{"new": 1}')
            return backup

        monkeypatch.setattr(_install, "_backup", change)

        with pytest.raises(StoreError, match="was changed meanwhile"):
            put(settings)

        assert read(settings) == {"new": 1}
        assert list(settings.parent.iterdir()) == [settings]

    def test_write_protected_file_stays_as_it_is(self, settings: Path) -> None:
        settings.write_text("{}")
        settings.chmod(0o400)

        with pytest.raises(StoreError, match=r"chmod u\+w"):
            put(settings)

        assert settings.read_text() == "{}"

    def test_disk_that_is_full_leaves_all_as_it_was(
        self, settings: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.write_text("{}")

        def refuse(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", refuse)

        with pytest.raises(StoreError, match="No space left"):
            put(settings)

        monkeypatch.undo()
        assert settings.read_text() == "{}"
        assert list(settings.parent.iterdir()) == [settings]

    def test_folder_in_its_place_is_told(self, settings: Path) -> None:
        settings.mkdir()

        with pytest.raises(StoreError, match="can't be read"):
            put(settings)


PAGE = (Path(respcache.__file__).parents[1] / "docs" / "hooks.md").read_text("utf-8")


@pytest.mark.skipif(os.name == "nt", reason="the page shows paths of Unix")
class TestPage:
    """docs/hooks.md shows what install-hook does."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The page has the short command; all else must be as it is written."""
        monkeypatch.setattr(_install, "words_of", lambda options: ["respcache", "hook", *options])

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    @pytest.mark.parametrize(("number", "host"), list(enumerate(WRITTEN)))
    def test_shows_the_json_of_each_host(self, number: int, host: str, settings: Path) -> None:
        made = install(host, settings=settings, options=["--path", "/home/ada/answers.jsonl"])

        assert self.blocks("json")[number] == made.snippet
        assert len(self.blocks("json")) == len(WRITTEN)

    def test_shows_the_yaml_and_the_toml(self, settings: Path) -> None:
        options = ["--path", "/home/ada/answers.jsonl"]

        assert self.blocks("yaml") == [install("docker-agent", options=options).snippet]
        assert self.blocks("toml") == [install("codex", settings=settings, options=options).notify]

    def test_names_every_option(self) -> None:
        from respcache.hook import FLAGS, ON_HIT, VALUES

        for option in (*FLAGS, *VALUES):
            assert f"`{option}" in PAGE
        for mode in ON_HIT:
            assert f"| `{mode}`" in PAGE
