"""The hook: what it keeps, serves and forgets, and that nothing it meets reaches the agent."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import respcache
import respcache.hook
from respcache import Cache, ToolCache, ToolCall, Tree, _conversations
from respcache.errors import ConfigError
from respcache.hook import Options, main
from respcache.testing import FakeClock

DATA = Path(__file__).parent / "data" / "hooks"
QUESTION, ANSWER = "Where are prices rounded?", "In money.py, by round_half_even()."

PROMPT = {
    "claude": "claude-UserPromptSubmit",
    "codex": "codex-UserPromptSubmit",
    "docker-agent": "docker-agent-user_prompt_submit",
    "gemini": "gemini-BeforeAgent",
}
END = {
    "claude": "claude-Stop",
    "codex": "codex-Stop",
    "docker-agent": "docker-agent-stop",
    "gemini": "gemini-AfterAgent",
}
EDIT = {
    "claude": "claude-PostToolUse-Edit",
    "codex": "codex-PostToolUse-apply_patch",
    "docker-agent": "docker-agent-post_tool_use-edit_file",
    "gemini": "gemini-AfterTool-replace",
}
SHELL = {
    "claude": "claude-PostToolUse-Bash",
    "codex": "codex-PostToolUse-Bash",
    "docker-agent": "docker-agent-post_tool_use-shell",
    "gemini": "gemini-AfterTool-run_shell_command",
}
HOSTS = list(PROMPT)
each_host = pytest.mark.parametrize("host", HOSTS)


class Host:
    """Sends recorded events to the hook, as a host in the folder *work* does."""

    def __init__(self, path: Path, work: Path, *options: str) -> None:
        self.path = path
        self.work = work
        self.options = options

    def send(self, name: str, *options: str, session: str | None = "s1", **changes: Any) -> Any:
        """Return what the hook says to the recorded event *name*; None: nothing."""
        text = (DATA / f"{name}.json").read_text("utf-8")
        given = {**json.loads(text.replace("/srv/shop", str(self.work))), **changes}
        if session is not None:
            given["thread-id" if "type" in given else "session_id"] = session
        return self.say(json.dumps(given), *options)

    def say(self, text: str, *options: str) -> Any:
        stdin, stdout = sys.stdin, sys.stdout
        sys.stdin, sys.stdout = io.StringIO(text), io.StringIO()
        try:
            main(["--path", str(self.path), *self.options, *options])
            said = sys.stdout.getvalue()
        finally:
            sys.stdin, sys.stdout = stdin, stdout
        if not said:
            return None
        assert said.endswith("}\n") and said.count("\n") == 1
        return json.loads(said)

    def turn(self, host: str, *options: str, session: str = "s1", **changes: Any) -> None:
        """Have a whole turn, without tools; *changes* are of its end."""
        self.send(PROMPT[host], *options, session=session)
        self.send(END[host], *options, session=session, **changes)

    @property
    def kept(self) -> dict[str, Any]:
        """What the file holds for this project."""
        with Cache(self.path, namespace=str(self.work)) as cache:
            return {hit.question: hit.response for hit in cache.entries()}


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("RESPCACHE_PATH", "RESPCACHE_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "money.py").write_text("pass")
    return folder


@pytest.fixture(params=["json", "jsonl"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / f"answers.{request.param}"


@pytest.fixture
def agent(path: Path, work: Path) -> Host:
    return Host(path, work)


in_a_log = pytest.mark.parametrize("path", ["jsonl"], indirect=True)


def context_of(said: Any) -> str:
    inner = said.get("hookSpecificOutput") or said["hook_specific_output"]
    return str(inner.get("additionalContext") or inner["additional_context"])


class TestStore:
    @each_host
    def test_answer_is_kept_for_the_project(self, agent: Host, host: str) -> None:
        agent.turn(host)

        assert agent.kept == {QUESTION: ANSWER}

    @pytest.mark.parametrize("name", ["docker-agent-stop", "gemini-AfterAgent", "codex-notify"])
    def test_event_with_both_texts_needs_no_other(self, agent: Host, name: str) -> None:
        agent.send(name)

        assert agent.kept == {QUESTION: ANSWER}

    def test_notify_comes_as_an_argument(self, agent: Host, work: Path) -> None:
        text = (DATA / "codex-notify.json").read_text("utf-8").replace("/srv/shop", str(work))
        agent.say("not read", text)

        assert agent.kept == {QUESTION: ANSWER}

    def test_notify_beside_hooks_keeps_the_answer_once(self, agent: Host) -> None:
        agent.turn("codex")
        agent.send("codex-notify")

        assert agent.kept == {QUESTION: ANSWER}
        assert agent.send(PROMPT["codex"], session="s2") is not None

    def test_prompt_is_kept_without_the_space_around_it(self, agent: Host) -> None:
        agent.send(PROMPT["claude"], prompt=f"  {QUESTION}\n")
        agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    def test_answer_that_names_no_prompt_needs_one_before_it(self, agent: Host) -> None:
        agent.send(END["claude"])

        assert not agent.path.exists()

    @in_a_log
    def test_prompt_without_an_id_of_its_turn_is_paired_with_the_last(self, agent: Host) -> None:
        agent.send(PROMPT["claude"], prompt_id=None)
        agent.send(END["claude"], prompt_id=None)

        assert agent.kept == {QUESTION: ANSWER}

    @in_a_log
    def test_end_of_another_turn_is_not_paired(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        agent.send(END["claude"], prompt_id="another")

        assert not agent.path.exists()

    @in_a_log
    def test_conversations_are_not_mixed_up(self, agent: Host) -> None:
        agent.send(PROMPT["claude"], session="s1", prompt="one?")
        agent.send(PROMPT["claude"], session="s2", prompt="two?")
        agent.send(END["claude"], session="s2", last_assistant_message="2")
        agent.send(END["claude"], session="s1", last_assistant_message="1")

        assert agent.kept == {"one?": "1", "two?": "2"}

    def test_hook_that_is_there_twice_counts_once(self, agent: Host) -> None:
        for _ in range(2):
            agent.send(PROMPT["claude"])
        for _ in range(2):
            agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    def test_same_answer_again_keeps_its_age(self, agent: Host) -> None:
        """A model that has been given the stored answer may just repeat it."""
        clock = FakeClock(time.time() - 7200)
        Cache(agent.path, namespace=str(agent.work), clock=clock).store(
            QUESTION, ANSWER, paths=Tree(agent.work)
        )
        agent.turn("claude")

        assert "2 hours ago" in context_of(agent.send(PROMPT["claude"], session="s2"))

    def test_another_answer_takes_the_place_of_the_old(self, agent: Host) -> None:
        agent.turn("claude")
        agent.turn("claude", session="s2", last_assistant_message="Nowhere any more.")

        assert agent.kept == {QUESTION: "Nowhere any more."}


class TestNotStored:
    """One row of what is not kept each; the first turn of a conversation if nothing else is said."""

    @pytest.mark.parametrize(
        ("host", "changes"),
        [
            pytest.param("claude", {"stop_hook_active": True}, id="stop-hook-active"),
            pytest.param("gemini", {"stop_hook_active": True}, id="retry"),
            pytest.param("claude", {"last_assistant_message": None}, id="null"),
            pytest.param("claude", {"last_assistant_message": ""}, id="empty"),
            pytest.param("docker-agent", {"stop_response": " \n"}, id="blank"),
            pytest.param("gemini", {"prompt_response": "[no response text]"}, id="no-text"),
            pytest.param("claude", {"background_tasks": [{"id": "b"}]}, id="background-tasks"),
            pytest.param("claude", {"agent_id": "a1"}, id="subagent"),
            pytest.param("docker-agent", {"parent_session_id": "p"}, id="sub-session"),
            pytest.param("claude", {"permission_mode": "plan"}, id="plan-mode"),
            pytest.param("codex", {"permission_mode": "plan"}, id="plan-mode-of-codex"),
            pytest.param("claude", {"status": "aborted"}, id="aborted"),
        ],
    )
    @in_a_log
    def test_answer(self, agent: Host, host: str, changes: dict[str, Any]) -> None:
        agent.turn(host, **changes)

        assert not agent.path.exists()

        agent.turn(host, session="s2")

        assert agent.kept == {QUESTION: ANSWER}

    @in_a_log
    def test_end_of_a_subagent_is_not_that_of_the_turn(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        agent.send(END["claude"], agent_id="a1", last_assistant_message="Found it.")
        agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    @each_host
    @in_a_log
    def test_follow_up(self, agent: Host, host: str) -> None:
        agent.turn(host)
        agent.send(PROMPT[host], prompt="And taxes?", **{"prompt_id": "p2", "turn_id": None})
        changes = {"prompt": "And taxes?", "last_user_message": "And taxes?", "prompt_id": "p2"}
        agent.send(END[host], **changes, turn_id=None)

        assert agent.kept == {QUESTION: ANSWER}

    @pytest.mark.parametrize("name", ["docker-agent-stop", "gemini-AfterAgent", "codex-notify"])
    @in_a_log
    def test_follow_up_of_which_the_end_alone_is_told(self, agent: Host, name: str) -> None:
        agent.send(name)
        changes = {"prompt": "And?", "last_user_message": "And?", "input-messages": ["And?"]}
        agent.send(name, **changes, **{"turn-id": "t2"})

        assert agent.kept == {QUESTION: ANSWER}

    @in_a_log
    def test_follow_up_is_kept_where_it_is_asked_for(self, agent: Host) -> None:
        agent.turn("claude")
        agent.send(PROMPT["claude"], "--any-turn", prompt="And taxes?", prompt_id="p2")
        agent.send(END["claude"], "--any-turn", prompt_id="p2", last_assistant_message="Too.")

        assert agent.kept == {QUESTION: ANSWER, "And taxes?": "Too."}

    @in_a_log
    def test_aborted_turn_and_what_comes_after_it(self, agent: Host) -> None:
        """The host tells of no end; the next prompt is a follow-up."""
        agent.send(PROMPT["claude"])
        agent.send(PROMPT["claude"], prompt="Shorter, please", prompt_id="p2")
        agent.send(END["claude"], prompt_id="p2")

        assert not agent.path.exists()

    @each_host
    @pytest.mark.parametrize("tools", [EDIT, SHELL], ids=["edit", "shell"])
    @pytest.mark.parametrize("options", [(), ("--keep-on-edit",)], ids=["default", "kept-on-edit"])
    @in_a_log
    def test_turn_that_changed_files(
        self, agent: Host, host: str, tools: dict[str, str], options: tuple[str, ...]
    ) -> None:
        agent.send(PROMPT[host], *options)
        agent.send(tools[host], *options)
        agent.send(END[host], *options)

        assert agent.kept == {}

    @in_a_log
    def test_tool_that_only_looks_is_no_reason(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        agent.send("claude-PostToolUse-Read")
        agent.send(SHELL["claude"], tool_input={"command": "git status --short"})
        agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    @in_a_log
    def test_write_of_an_earlier_turn_is_no_reason(self, agent: Host) -> None:
        agent.send(PROMPT["claude"], "--any-turn", prompt="Fix it")
        agent.send(EDIT["claude"], "--any-turn")
        agent.send(END["claude"], "--any-turn")
        agent.send(PROMPT["claude"], "--any-turn", prompt_id="p2")
        agent.send(END["claude"], "--any-turn", prompt_id="p2")

        assert agent.kept == {QUESTION: ANSWER}

    def test_answer_while_another_conversation_changed_the_project(self, agent: Host) -> None:
        """It may have been read before the change."""
        agent.turn("claude", session="s0", last_assistant_message="Old.")
        agent.send(PROMPT["claude"], session="s1")
        agent.send(EDIT["claude"], session="s2")
        agent.send(END["claude"], session="s1")

        assert agent.kept == {}

    def test_answer_while_another_project_was_changed_is_kept(
        self, agent: Host, tmp_path: Path
    ) -> None:
        agent.send(PROMPT["claude"], session="s1")
        agent.send(EDIT["claude"], session="s2", tool_input={"file_path": str(tmp_path / "x.py")})
        agent.send(END["claude"], session="s1")

        assert agent.kept == {QUESTION: ANSWER}

    @in_a_log
    def test_conversation_without_a_name(self, agent: Host) -> None:
        agent.send("docker-agent-stop", session=None, session_id="")

        assert not agent.path.exists()

    @in_a_log
    def test_blank_prompt(self, agent: Host) -> None:
        agent.send(PROMPT["claude"], prompt="  ")
        agent.send(END["claude"])

        assert not agent.path.exists()

    @in_a_log
    def test_prompt_that_is_not_the_one_that_began_the_turn(self, agent: Host) -> None:
        agent.send(PROMPT["gemini"])
        agent.send(END["gemini"], prompt="another")

        assert not agent.path.exists()

    @pytest.mark.parametrize("host", ["docker-agent", "gemini"])
    def test_turn_that_wrote_and_whose_prompt_was_lost(self, agent: Host, host: str) -> None:
        agent.send(EDIT[host])
        agent.send(END[host])

        assert agent.kept == {}


class TestServe:
    @each_host
    def test_hit_is_given_to_the_model_as_context_with_its_age(
        self, agent: Host, host: str
    ) -> None:
        agent.turn(host)
        said = agent.send(PROMPT[host], session="s2", prompt=f" {QUESTION.upper()} ")

        assert ANSWER in context_of(said)
        assert " ago" in context_of(said)

    @each_host
    def test_miss_says_nothing(self, agent: Host, host: str) -> None:
        agent.turn(host)

        assert agent.send(PROMPT[host], session="s2", prompt="And taxes?") is None

    @each_host
    @in_a_log
    def test_block_refuses_the_prompt_with_the_answer(self, agent: Host, host: str) -> None:
        agent.turn(host)
        said = agent.send(PROMPT[host], "--on-hit=block", session="s2")

        assert said["decision"] == ("deny" if host == "gemini" else "block")
        assert said["reason"].endswith(f"ago]\n{ANSWER}")
        assert sorted(said) == ["decision", "reason"]

    @in_a_log
    def test_prompt_that_was_refused_began_no_conversation(self, agent: Host) -> None:
        agent.turn("claude")
        agent.send(PROMPT["claude"], "--on-hit=block", session="s2")
        agent.send(PROMPT["claude"], "--on-hit=block", session="s2", prompt="other?", prompt_id="2")
        agent.send(END["claude"], session="s2", prompt_id="2", last_assistant_message="yes")

        assert agent.kept["other?"] == "yes"

    @in_a_log
    def test_answer_stands_for_the_models_in_gemini(self, agent: Host) -> None:
        agent.turn("gemini")

        assert agent.send(PROMPT["gemini"], "--on-hit", "answer", session="s2") is None

        said = agent.send("gemini-BeforeModel", "--on-hit", "answer", session="s2")
        (candidate,) = said["hookSpecificOutput"]["llm_response"]["candidates"]

        assert candidate["content"]["parts"] == [ANSWER]

    @in_a_log
    def test_answer_in_gemini_does_not_cut_a_loop_of_tools_short(self, agent: Host) -> None:
        agent.turn("gemini")
        request = {"messages": [{"role": "user", "content": QUESTION}] * 2}
        said = agent.send("gemini-BeforeModel", "--on-hit=answer", session="2", llm_request=request)

        assert said is None

    @pytest.mark.parametrize("mode", ["context", "block"])
    @in_a_log
    def test_request_to_the_model_is_left_alone_unless_asked(self, agent: Host, mode: str) -> None:
        agent.turn("gemini")

        assert agent.send("gemini-BeforeModel", f"--on-hit={mode}", session="s2") is None

    @pytest.mark.parametrize("host", ["claude", "codex", "docker-agent"])
    @in_a_log
    def test_answer_is_context_where_there_is_no_way_to_answer(
        self, agent: Host, host: str
    ) -> None:
        agent.turn(host)
        said = agent.send(PROMPT[host], "--on-hit=answer", session="s2")

        assert ANSWER in context_of(said)

    @each_host
    @in_a_log
    def test_follow_up_is_not_served(self, agent: Host, host: str) -> None:
        agent.turn(host)

        assert agent.send(PROMPT[host], prompt_id="p2", turn_id="t2") is None
        assert agent.send(PROMPT[host], "--any-turn", prompt_id="p3", turn_id="t3") is not None

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            (PROMPT["claude"], '{"type":"assistant","message":{"role":"assistant"}}'),
            (PROMPT["gemini"], '{"messages": [{"type": "gemini", "content": "Hi"}]}'),
        ],
    )
    @in_a_log
    def test_conversation_that_goes_on_an_older_one_has_follow_ups_only(
        self, agent: Host, tmp_path: Path, name: str, line: str
    ) -> None:
        """Resumed, or begun before the hook was there: the transcript tells."""
        agent.turn("claude", session="s0")
        transcript = tmp_path / "transcript.jsonl"
        transcript.write_text('{"type":"user","text":"what did the \\"assistant\\" say?"}\n')
        given = {"transcript_path": str(transcript)}

        assert agent.send(name, session="s1", **given) is not None

        transcript.write_text(transcript.read_text() + line + "\n")

        assert agent.send(name, session="s2", **given) is None

    @in_a_log
    def test_subagent_is_not_served(self, agent: Host) -> None:
        agent.turn("claude")

        assert agent.send(PROMPT["claude"], session="s2", agent_id="a1") is None

    @in_a_log
    def test_answer_that_is_no_text_is_served_as_json(self, agent: Host) -> None:
        Cache(agent.path, namespace=str(agent.work)).store(QUESTION, {"file": "money.py"})

        assert '{"file":"money.py"}' in context_of(agent.send(PROMPT["claude"]))

    @in_a_log
    def test_host_can_be_forced(self, agent: Host) -> None:
        agent.turn("claude")

        assert agent.send(PROMPT["claude"], "--host=gemini", session="s2") is None
        assert agent.send(PROMPT["claude"], "--host=codex", session="s2") is not None

    def test_flat_file_serves_and_keeps_what_it_has_a_place_for(
        self, tmp_path: Path, work: Path
    ) -> None:
        path = tmp_path / "flat.json"
        path.write_text(json.dumps({QUESTION.lower(): ANSWER}))
        agent = Host(path, work, "--shared", "--keep-on-edit")

        assert "not known" in context_of(agent.send(PROMPT["docker-agent"]))

        agent.send(END["docker-agent"], stop_response="Elsewhere.")

        assert json.loads(path.read_text()) == {QUESTION.lower(): "Elsewhere."}


class TestProjects:
    def test_projects_have_answers_of_their_own(self, agent: Host, tmp_path: Path) -> None:
        agent.turn("claude")
        other = Host(agent.path, tmp_path / "elsewhere")

        assert other.send(PROMPT["claude"], session="s2") is None

    @pytest.mark.parametrize("host", ["claude", "codex"])
    @in_a_log
    def test_answer_that_ends_in_another_project_is_not_kept(
        self, agent: Host, tmp_path: Path, host: str
    ) -> None:
        """Changes of the project that the turn began in would not be seen there."""
        other = Host(agent.path, tmp_path / "elsewhere")
        agent.send(PROMPT[host])
        other.send(END[host])

        assert agent.kept == other.kept == {}

    @in_a_log
    def test_folders_of_one_repository_share_theirs(self, agent: Host, work: Path) -> None:
        (work / "src").mkdir()
        agent.turn("claude")

        assert agent.send(PROMPT["claude"], session="s2", cwd=str(work / "src")) is not None

    @in_a_log
    def test_project_is_its_real_folder(self, agent: Host, work: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(work)
        agent.turn("claude")

        assert agent.send(PROMPT["claude"], session="s2", cwd=str(tmp_path / "link")) is not None

    @in_a_log
    def test_all_share_where_it_is_asked_for(self, path: Path, work: Path, tmp_path: Path) -> None:
        Host(path, work, "--shared").turn("claude")
        other = Host(path, tmp_path / "elsewhere", "--shared")

        assert other.send(PROMPT["claude"], session="s2") is not None
        assert Cache(path).get(QUESTION) == ANSWER

    def test_worktree_is_a_project(self, tmp_path: Path) -> None:
        (tmp_path / ".git").write_text("gitdir: elsewhere")
        (tmp_path / "a" / "b").mkdir(parents=True)

        assert _conversations.project_of(str(tmp_path / "a" / "b")) == str(tmp_path)
        assert _conversations.project_of("/") == "/"


class TestForget:
    @pytest.fixture(autouse=True)
    def _filled(self, agent: Host, tmp_path: Path) -> None:
        agent.turn("claude", session="s0")
        with Cache(agent.path) as cache:
            cache.store("elsewhere", "e", paths=[tmp_path / "elsewhere.py"])
            cache.store("no paths", "n")

    def shared(self, agent: Host) -> set[str]:
        with Cache(agent.path) as cache:
            return {hit.question for hit in cache.entries()}

    @each_host
    def test_edit_forgets_what_depends_on_its_project(self, agent: Host, host: str) -> None:
        agent.send(EDIT[host])

        assert agent.kept == {}
        assert self.shared(agent) == {"elsewhere", "no paths"}

    @each_host
    def test_shell_command_forgets_all_that_depends_on_files(self, agent: Host, host: str) -> None:
        agent.send(SHELL[host])

        assert agent.kept == {}
        assert self.shared(agent) == {"no paths"}

    def test_edit_elsewhere_forgets_nothing_here(self, agent: Host, tmp_path: Path) -> None:
        agent.send(EDIT["claude"], tool_input={"file_path": str(tmp_path / "elsewhere.py")})

        assert agent.kept == {QUESTION: ANSWER}
        assert self.shared(agent) == {"no paths"}

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            pytest.param("claude-PostToolUse-Read", {}, id="read"),
            pytest.param("claude-PostToolUse-Read", {"tool_name": "TodoWrite"}, id="neutral"),
            pytest.param(SHELL["claude"], {"tool_input": {"command": "ls -l"}}, id="harmless"),
            pytest.param("claude-FileChanged", {"file_path": ""}, id="no-file"),
            pytest.param("claude-PreToolUse", {}, id="before"),
        ],
    )
    def test_nothing_is_forgotten_for(
        self, agent: Host, name: str, changes: dict[str, Any]
    ) -> None:
        before = agent.path.read_bytes()
        agent.send(name, **changes)

        assert agent.path.read_bytes() == before

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            pytest.param("claude-PostToolUseFailure", {}, id="shell-that-failed"),
            pytest.param("claude-PostToolUse-Edit", {"tool_name": "mcp__fs__put"}, id="unknown"),
            pytest.param("claude-PostToolUse-Edit", {"tool_input": {}}, id="edit-of-no-file"),
            pytest.param("claude-PostToolUse-Edit", {"tool_input": None}, id="no-input"),
        ],
    )
    def test_everything_is_forgotten_for(
        self, agent: Host, name: str, changes: dict[str, Any]
    ) -> None:
        agent.send(name, **changes)

        assert agent.kept == {}
        assert self.shared(agent) == {"no paths"}

    def test_changed_file_is_forgotten_and_no_reason_against_the_turn(self, agent: Host) -> None:
        agent.send("claude-FileChanged")

        assert agent.kept == {}

        agent.send(PROMPT["claude"])
        agent.send("claude-FileChanged", file_path=str(agent.work.parent / "elsewhere.py"))
        agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    def test_relative_path_starts_at_the_agents_folder(self, agent: Host) -> None:
        agent.send(EDIT["docker-agent"], tool_input={"path": "money.py"})

        assert agent.kept == {}

    def test_write_that_can_not_be_noted_forgets_all_the_same(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.send(PROMPT["claude"])

        def refuse(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(_conversations, "_append", refuse)
        agent.send(EDIT["claude"])

        assert agent.kept == {}

    def test_kept_on_edit_stays(self, agent: Host) -> None:
        agent.turn("claude", "--keep-on-edit", session="s1", last_assistant_message="For ever.")
        agent.send(SHELL["claude"], session="s2")

        assert agent.kept == {QUESTION: "For ever."}

    def test_write_of_a_subagent_counts_for_the_turn(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        agent.send(EDIT["claude"], agent_id="a1")
        agent.send(END["claude"])

        assert agent.kept == {}

    @pytest.mark.parametrize("is_named", [False, True], ids=["beside", "named"])
    def test_tool_results_beside_are_forgotten_too(
        self, agent: Host, tmp_path: Path, is_named: bool
    ) -> None:
        beside = (tmp_path if is_named else agent.path.parent) / "tools.jsonl"
        tools = ToolCache(beside, reads={"List": lambda _, cwd: Tree(cwd)})
        call = ToolCall("List", {}, cwd=str(agent.work))
        tools.call(call, lambda _: ["money.py"])
        assert tools.call(call, lambda _: ["new"]).cached
        agent.send(EDIT["claude"], *(["--tools", str(beside)] if is_named else []))

        assert not tools.call(call, lambda _: ["new"]).cached

    def test_no_file_of_tool_results_is_made(self, agent: Host) -> None:
        agent.send(EDIT["claude"])

        assert not (agent.path.parent / "tools.jsonl").exists()


HELD = "held by another process"


@pytest.fixture
def hold(agent: Host) -> Iterator[Callable[[], None]]:
    """Take the lock of the file; what it gives lets it go."""
    agent.turn("claude", session="s0")
    fd = os.open(f"{agent.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield lambda: fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


class TestTrouble:
    """Nothing reaches the agent."""

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="nothing"),
            pytest.param(" \n", id="blank"),
            pytest.param("garbage", id="garbage"),
            pytest.param("{", id="half"),
            pytest.param("[]", id="a-list"),
            pytest.param("null", id="null"),
            pytest.param('{"hook_event_name": "Stop"} more', id="more-behind"),
            pytest.param('{"hook_event_name": "Stop"}{}', id="two"),
            pytest.param('{"hook_event_name": NaN}', id="nan"),
            pytest.param("[" * 100_000, id="deep"),
            pytest.param('{"hook_event_name": "\\ud800"}', id="surrogate"),
            pytest.param('{"hook_event_name": "Nothing"}', id="unknown-event"),
            pytest.param("{}", id="empty"),
        ],
    )
    @in_a_log
    def test_garbage(self, agent: Host, text: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert agent.say(text) is None
        assert capfd.readouterr() == ("", "")
        assert not agent.path.exists()

    @in_a_log
    def test_bytes_that_are_no_text_do_not_hide_a_change(
        self, agent: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The output of a tool is in the event, too."""
        agent.turn("claude")
        text = (DATA / "claude-PostToolUse-Bash.json").read_bytes()
        (tmp_path / "event").write_bytes(text.replace(b'"stdout": ""', b'"stdout": "\xff"'))
        with (tmp_path / "event").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            main(["--path", str(agent.path)])

        assert agent.kept == {}

    @in_a_log
    def test_byte_order_mark_is_no_garbage(self, agent: Host) -> None:
        agent.turn("claude")
        text = json.dumps(
            {
                "hook_event_name": "UserPromptSubmit",
                "session_id": "s2",
                "prompt": QUESTION,
                "cwd": str(agent.work),
            }
        )

        assert agent.say("\ufeff" + text + "\r\n") is not None

    @pytest.mark.parametrize("question", ["\ud800 what?", "a\0b", "x" * 1_000_000], ids=len)
    @in_a_log
    def test_strange_prompt(self, agent: Host, question: str) -> None:
        assert agent.send(PROMPT["claude"], prompt=question) is None

        agent.send(END["claude"])

        assert agent.send(PROMPT["claude"], session="s2") is None

    @pytest.mark.parametrize("session", ["../../x", "a/b", "", "\ud800", "é" * 300, "a" * 300, "."])
    @in_a_log
    def test_strange_name_of_a_conversation(
        self, agent: Host, session: str, tmp_path: Path
    ) -> None:
        agent.turn("claude", session=session)

        assert agent.kept == ({QUESTION: ANSWER} if session else {})
        assert sorted(each.name for each in tmp_path.iterdir()) == ["cache", "shop"]

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--unknown"],
            ["--path"],
            ["--path="],
            ["--budget", "soon"],
            ["--budget=0"],
            ["--budget=nan"],
            ["--on-hit=guess"],
            ["--host", "emacs"],
            ["word"],
            ["{}", "{}"],
        ],
        ids=" ".join,
    )
    def test_wrong_option_is_told_on_stderr_where_it_is_asked_for(
        self, arguments: list[str], agent: Host, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            Options(arguments)

        assert "\n" not in str(caught.value)
        assert agent.say("{}", *arguments) is None
        assert capfd.readouterr() == ("", "")

        agent.say("{}", *arguments, "--debug")

        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("respcache hook: ConfigError: ") and err.count("\n") == 1

    @pytest.mark.parametrize("place", ["a-folder", "below-a-file", "no-suffix", "link-to-itself"])
    @in_a_log
    def test_path_where_no_cache_can_be(
        self, agent: Host, tmp_path: Path, place: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        match place:
            case "a-folder":
                agent.path.mkdir()
            case "below-a-file":
                (tmp_path / "file").write_text("")
                agent.path = tmp_path / "file" / "answers.json"
            case "no-suffix":
                agent.path = tmp_path / "answers"
            case _:
                agent.path.symlink_to(agent.path)
        for name in (PROMPT, EDIT, END):
            assert agent.send(name["claude"]) is None
        assert agent.send(PROMPT["claude"], session="s2") is None
        assert capfd.readouterr() == ("", "")

    def test_damaged_file(self, agent: Host, capfd: pytest.CaptureFixture[str]) -> None:
        agent.turn("claude")
        agent.path.write_bytes(agent.path.read_bytes()[:-40] + b"\xff\x00")

        agent.send(PROMPT["claude"], session="s2")
        agent.send(EDIT["claude"], session="s2")
        agent.turn("claude", session="s3")

        assert agent.kept == {QUESTION: ANSWER}
        assert capfd.readouterr() == ("", "")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
    def test_folder_that_can_not_be_written(self, agent: Host) -> None:
        agent.turn("claude")
        agent.path.parent.chmod(0o500)
        try:
            assert agent.send(PROMPT["claude"], session="s2") is None
            agent.send(END["claude"], session="s2")
        finally:
            agent.path.parent.chmod(0o700)

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
    def test_disk_that_takes_nothing(
        self, agent: Host, number: int, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        agent.turn("claude")

        def refuse(*_: Any) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "write", refuse)
        said = [agent.send(PROMPT["claude"], session="s2"), agent.send(SHELL["claude"])]
        said.append(agent.send(END["claude"], session="s2"))
        monkeypatch.undo()

        assert said == [None, None, None]
        assert capfd.readouterr() == ("", "")

    def test_lock_that_another_holds_is_waited_for_within_the_budget(
        self, agent: Host, hold: Callable[[], None], capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert ANSWER in context_of(agent.send(PROMPT["claude"]))  # a look takes no lock

        agent.send(END["claude"], "--budget=0.5", "--debug", last_assistant_message="new")

        assert agent.kept == {QUESTION: ANSWER}
        assert HELD in capfd.readouterr().err

    def test_eviction_that_had_no_lock_is_made_up_for_before_anything_is_served(
        self, agent: Host, hold: Callable[[], None]
    ) -> None:
        agent.send(EDIT["claude"], "--budget=0.5")

        assert agent.kept == {QUESTION: ANSWER}
        assert agent.send(PROMPT["claude"], "--budget=0.5", session="s2") is None

        hold()

        assert agent.send(PROMPT["claude"], session="s3") is None
        assert agent.kept == {}
        assert list(agent.path.parent.glob("*.sessions/evictions/*")) == []

    @in_a_log
    def test_eviction_is_noted_before_the_lock_is_waited_for(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The host may kill a hook that takes too long."""
        agent.turn("claude")
        with monkeypatch.context() as killed:
            killed.setattr(Cache, "invalidate", lambda *_: (_ for _ in ()).throw(SystemExit))
            agent.send(EDIT["claude"])

        assert agent.kept == {QUESTION: ANSWER}
        assert agent.send(PROMPT["claude"], session="s2") is None
        assert agent.kept == {}

    @pytest.mark.parametrize("note", ["", '{"paths":["/tm', '{"paths": [5]}'])
    @in_a_log
    def test_note_of_an_eviction_that_can_not_be_read_says_everything(
        self, agent: Host, note: str
    ) -> None:
        agent.turn("claude")
        folder = Path(f"{agent.path}.sessions") / "evictions"
        folder.mkdir(parents=True)
        (folder / "0123").write_text(note)

        assert agent.send(PROMPT["claude"], session="s2") is None
        assert agent.kept == {}

    @in_a_log
    def test_evictions_that_wait_are_bounded(
        self, agent: Host, hold: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_conversations, "_MOST_NOTES", 2)
        for _ in range(5):
            agent.send(EDIT["claude"], "--budget=0.2", tool_input={"file_path": "/elsewhere"})
        notes = list(agent.path.parent.glob("*.sessions/evictions/*"))

        assert len(notes) == 3

        hold()

        assert agent.send(PROMPT["claude"], session="s2") is None
        assert agent.kept == {}  # many are one of everything

    @in_a_log
    def test_input_that_never_ends_is_left_within_the_budget(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        reader, writer = os.pipe()
        os.write(writer, b'{"hook_event_name": ')
        before = signal.getsignal(signal.SIGALRM)
        with os.fdopen(reader) as stdin, os.fdopen(writer, "w"):
            monkeypatch.setattr(sys, "stdin", stdin)
            main(["--path", str(agent.path), "--budget=0.05", "--debug"])

        assert "the budget is spent" in capfd.readouterr().err
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    @pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
    @in_a_log
    def test_stream_that_is_missing(
        self, agent: Host, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.turn("claude")
        given = (DATA / "claude-UserPromptSubmit.json").read_text("utf-8")
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(sys, name, None)
        main(
            ["--path", str(agent.path), "--debug", "--unknown" if name == "stderr" else "--shared"]
        )

        assert getattr(sys, name) is None

    @in_a_log
    def test_larger_event_than_there_is_is_none(
        self, agent: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.turn("claude")
        event = tmp_path / "event.json"
        event.write_text(
            json.dumps(
                {
                    "hook_event_name": "UserPromptSubmit",
                    "prompt": QUESTION,
                    "cwd": str(agent.work),
                    "session_id": "s2",
                    "more": "x" * 100_000,
                }
            )
        )
        for limit, is_read in ((1 << 20, True), (1 << 16, False)):
            monkeypatch.setattr(respcache.hook, "_LARGEST", limit)
            monkeypatch.setattr(sys, "stdout", out := io.StringIO())
            with event.open() as stdin:
                monkeypatch.setattr(sys, "stdin", stdin)
                main(["--path", str(agent.path), "--any-turn"])

            assert bool(out.getvalue()) is is_read


class TestDebug:
    @pytest.mark.parametrize("switch", ["1", "yes"])
    @in_a_log
    def test_variable_has_reasons_told(
        self,
        agent: Host,
        switch: str,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("RESPCACHE_DEBUG", switch)
        agent.turn("claude", permission_mode="plan")

        assert capfd.readouterr() == ("", "respcache hook: not kept: it is a plan\n")

    @in_a_log
    def test_variable_that_is_off_is_off(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("RESPCACHE_DEBUG", "0")
        agent.turn("claude", permission_mode="plan")

        assert capfd.readouterr() == ("", "")


class TestSwitches:
    @in_a_log
    def test_disabled_touches_no_file(self, agent: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RESPCACHE_DISABLE", "1")
        agent.turn("claude")
        agent.send(EDIT["claude"])

        assert list(agent.path.parent.iterdir()) == []

    def test_disabled_serves_nothing(self, agent: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        agent.turn("claude")
        monkeypatch.setenv("RESPCACHE_DISABLE", "1")

        assert agent.send(PROMPT["claude"], session="s2") is None

    def test_read_only_serves_and_writes_nothing(
        self, agent: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.turn("claude")
        before = {each: each.stat() for each in agent.path.parent.rglob("*")}
        monkeypatch.setenv("RESPCACHE_READONLY", "1")

        assert agent.send(PROMPT["claude"], session="s2") is not None

        agent.send(END["claude"], session="s2", last_assistant_message="new")
        agent.send(SHELL["claude"], session="s2")

        assert {each: each.stat() for each in agent.path.parent.rglob("*")} == before

    @in_a_log
    def test_read_only_serves_nothing_where_only_notes_tell_what_is_first(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.turn("docker-agent")
        monkeypatch.setenv("RESPCACHE_READONLY", "1")

        assert agent.send(PROMPT["docker-agent"], session="s2") is None
        assert agent.send(PROMPT["docker-agent"], "--any-turn", session="s2") is not None

    def test_read_only_serves_nothing_that_waits_for_its_eviction(
        self, agent: Host, hold: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.send(EDIT["claude"], "--budget=0.5")
        hold()
        monkeypatch.setenv("RESPCACHE_READONLY", "1")

        assert agent.send(PROMPT["claude"], session="s2") is None
        assert agent.kept == {QUESTION: ANSWER}

    def test_refresh_serves_nothing_and_keeps(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.turn("claude")
        monkeypatch.setenv("RESPCACHE_REFRESH", "1")

        assert agent.send(PROMPT["claude"], session="s2") is None

        agent.send(END["claude"], session="s2", last_assistant_message="new")
        monkeypatch.delenv("RESPCACHE_REFRESH")

        assert agent.kept == {QUESTION: "new"}


@in_a_log
class TestSessions:
    """The small files beside the cache."""

    def folder(self, agent: Host) -> Path:
        return Path(f"{agent.path}.sessions")

    def test_are_the_owners_alone(self, agent: Host) -> None:
        before = os.umask(0)
        try:
            agent.turn("claude")
        finally:
            os.umask(before)
        (file,) = self.folder(agent).iterdir()

        assert stat.S_IMODE(self.folder(agent).stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_keep_no_text_of_follow_ups(self, agent: Host) -> None:
        agent.turn("claude")
        agent.send(PROMPT["claude"], prompt="my secret", prompt_id="p2")

        assert "secret" not in (self.folder(agent) / "s1.jsonl").read_text()

    def test_note_a_write_once_a_turn(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        for _ in range(3):
            agent.send(EDIT["claude"])

        assert (self.folder(agent) / "s1.jsonl").read_text().count("wrote") == 1

    def test_half_a_line_is_passed_over(self, agent: Host) -> None:
        agent.send(PROMPT["claude"])
        with (self.folder(agent) / "s1.jsonl").open("a") as file:
            file.write('{"wro')
        agent.send(END["claude"])

        assert agent.kept == {QUESTION: ANSWER}

    @pytest.mark.parametrize(
        "line",
        ['{"prompt": 1, "turn": [], "since": {}}', "[]", "null", '{"since": [1, 2]}', "\x00"],
    )
    def test_strange_lines_do_no_harm(self, agent: Host, line: str) -> None:
        self.folder(agent).mkdir()
        (self.folder(agent) / "s1.jsonl").write_text(f"{line}\n")
        agent.turn("claude")

        assert set(agent.kept) <= {QUESTION}

    def test_oldest_go_when_there_are_too_many(
        self, agent: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_conversations, "_MOST", 3)
        for number in range(6):
            agent.turn("claude", session=f"s{number}")
            os.utime(self.folder(agent) / f"s{number}.jsonl", (number, number))
        agent.turn("claude", session="last")

        names = sorted(each.stem for each in self.folder(agent).iterdir())
        assert names == ["last", "s4", "s5"]

    def test_link_in_the_place_of_one_is_not_followed(self, agent: Host, tmp_path: Path) -> None:
        self.folder(agent).mkdir()
        (self.folder(agent) / "s1.jsonl").symlink_to(tmp_path / "target")
        agent.turn("claude")

        assert not (tmp_path / "target").exists()


class TestPath:
    def test_is_that_of_the_variable_without_an_option(
        self, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "own.jsonl"
        monkeypatch.setenv("RESPCACHE_PATH", str(path))
        monkeypatch.setattr(sys, "stdin", io.StringIO((DATA / "codex-notify.json").read_text()))
        main([])

        assert path.exists()

    def test_is_in_the_users_cache_folder_without_both(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO((DATA / "codex-notify.json").read_text()))
        main([])

        assert [each.name for each in (tmp_path / "home").rglob("answers.json")]


# What a hook process must not pay for.
HEAVY = (
    "typing",
    "dataclasses",
    "enum",
    "re",
    "pathlib",
    "logging",
    "json",
    "orjson",
    "filelock",
    "platformdirs",
    "typer",
    "asyncio",
    "inspect",
    "threading",
    "hashlib",
    "signal",
    "contextlib",
    "functools",
    "collections",
)
LOADED = """
import sys
sys.path.append(sys.argv.pop(1))
import os
os._exit = lambda code: None
before = set(sys.modules)
from respcache.hook import main
main()
print(" ".join(set(sys.modules) - before), file=sys.stderr)
"""


@pytest.mark.xdist_group("processes")
class TestImports:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            (PROMPT["claude"], True),
            (END["claude"], False),
            (EDIT["claude"], False),
            (SHELL["claude"], False),
            ("gemini-BeforeModel", True),
            ("codex-notify", False),
        ],
    )
    def test_nothing_slow_is_loaded(self, agent: Host, name: str, says: bool) -> None:
        agent.turn("claude", session="s0")
        text = (DATA / f"{name}.json").read_text().replace("/srv/shop", str(agent.work))
        if name == END["claude"]:
            agent.send(PROMPT["claude"], session=None)
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-S", "-B", "-c", LOADED, str(Path(respcache.__file__).parents[1])),
                *("--path", str(agent.path), "--on-hit=answer"),
            ],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
        )  # fmt: skip
        loaded = done.stderr.split()

        assert "respcache._cache" in loaded, done.stderr
        assert [each for each in HEAVY if each in loaded] == []
        assert bool(done.stdout) is says

    def test_follow_up_does_not_even_load_the_cache(self, agent: Host) -> None:
        agent.turn("claude", session="s1")
        given = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "go on"}
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-S", "-B", "-c", LOADED, str(Path(respcache.__file__).parents[1])),
                *("--path", str(agent.path)),
            ],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=60,
        )  # fmt: skip

        assert "respcache._conversations" in done.stderr
        assert "respcache._cache" not in done.stderr
