"""The dialects of hosts: whose an event is, what it means, and what each host takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respcache import _hosts

DATA = Path(__file__).parent / "data" / "hooks"
SCHEMA: dict[str, Any] = json.loads((DATA / "codex-output-schema.json").read_text("utf-8"))
QUESTION, ANSWER = "Where are prices rounded?", "In money.py, by round_half_even()."


def payload(name: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads((DATA / f"{name}.json").read_text("utf-8")), **changes}


def event(name: str, **changes: Any) -> Any:
    given = payload(name, **changes)
    host = _hosts.detect(given)
    assert host is not None
    return _hosts.read(given, host)


RECORDED = sorted(path.stem for path in DATA.glob("*.json") if path.stem != "codex-output-schema")


def complaint(output: dict[str, Any], schema: dict[str, Any], place: str = "$") -> str | None:
    """Return what Codex would not take in *output*, which denies what it does not know."""
    for name, value in output.items():
        known = schema.get(name)
        if known is None:
            return f"{place}.{name} is unknown"
        if isinstance(known, dict):
            if not isinstance(value, dict):
                return f"{place}.{name} is no object"
            if "hookEventName" in known and "hookEventName" not in value:
                return f"{place}.{name} names no event"
            inner = complaint(value, known, f"{place}.{name}")
            if inner:
                return inner
        elif isinstance(known, list):
            if value not in known:
                return f"{place}.{name} is {value!r}"
        elif not isinstance(value, {"string": str, "boolean": bool}[known]):
            return f"{place}.{name} is no {known}"
    if output.get("decision") == "block" and not output.get("reason"):
        return f"{place}: a block without a reason"
    return None


class TestDetect:
    @pytest.mark.parametrize("name", RECORDED)
    def test_host_is_told_from_the_event_alone(self, name: str) -> None:
        expected = name.split("-")[0].replace("docker", "docker-agent")

        assert _hosts.detect(payload(name)) == (None if expected == "cursor" else expected)

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param({}, id="nothing"),
            pytest.param({"hook_event_name": None}, id="no-name"),
            pytest.param({"hook_event_name": ["Stop"]}, id="a-list"),
            pytest.param({"hook_event_name": "sessionStart"}, id="camel-case"),
            pytest.param({"hook_event_name": ""}, id="empty"),
        ],
    )
    def test_what_nobody_sends_is_nobodys(self, given: dict[str, Any]) -> None:
        assert _hosts.detect(given) is None


class TestRead:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("claude-UserPromptSubmit", "prompt"),
            ("claude-Stop", "answer"),
            ("claude-PostToolUse-Edit", "tool"),
            ("claude-PostToolUse-Bash", "tool"),
            ("claude-PostToolUse-Read", "tool"),
            ("claude-PostToolUseFailure", "tool"),
            ("claude-FileChanged", "file"),
            ("claude-SubagentStop", None),
            ("claude-StopFailure", None),
            ("claude-SessionStart", None),
            ("claude-PreToolUse", None),
            ("codex-UserPromptSubmit", "prompt"),
            ("codex-Stop", "answer"),
            ("codex-PostToolUse-Bash", "tool"),
            ("codex-PostToolUse-apply_patch", "tool"),
            ("codex-notify", "answer"),
            ("docker-agent-user_prompt_submit", "prompt"),
            ("docker-agent-stop", "answer"),
            ("docker-agent-after_llm_call", None),
            ("docker-agent-subagent_stop", None),
            ("docker-agent-post_tool_use-edit_file", "tool"),
            ("docker-agent-post_tool_use-shell", "tool"),
            ("gemini-BeforeAgent", "prompt"),
            ("gemini-BeforeModel", "request"),
            ("gemini-AfterAgent", "answer"),
            ("gemini-AfterTool-replace", "tool"),
            ("gemini-AfterTool-run_shell_command", "tool"),
        ],
    )
    def test_kind(self, name: str, kind: str | None) -> None:
        found = event(name)

        assert (None if found is None else found.kind) == kind

    def test_every_recorded_event_is_in_the_table_above(self) -> None:
        (mark,) = self.test_kind.pytestmark

        assert {name for name, _ in mark.args[1]} == set(RECORDED) - {"cursor-stop"}

    @pytest.mark.parametrize(
        "name",
        [
            "claude-UserPromptSubmit",
            "codex-UserPromptSubmit",
            "docker-agent-user_prompt_submit",
            "gemini-BeforeAgent",
            "gemini-BeforeModel",
        ],
    )
    def test_prompt(self, name: str) -> None:
        assert event(name).prompt == QUESTION

    @pytest.mark.parametrize(
        ("name", "is_asked_again"),
        [
            ("claude-Stop", False),
            ("codex-Stop", False),
            ("codex-notify", True),
            ("docker-agent-stop", True),
            ("gemini-AfterAgent", True),
        ],
    )
    def test_answer(self, name: str, is_asked_again: bool) -> None:
        found = event(name)

        assert found.answer == ANSWER
        assert found.prompt == (QUESTION if is_asked_again else None)
        assert found.refusal == ""
        assert found.cwd == "/srv/shop"

    @pytest.mark.parametrize(
        ("name", "turn"),
        [
            ("claude-Stop", "7f0c1d5e-22aa-4b1c-8a55-90d0d3a1c001"),
            ("codex-Stop", "019a5f4e-7000-7c33-b6f4-3a2a7c1b0002"),
            ("codex-notify", "019a5f4e-7000-7c33-b6f4-3a2a7c1b0002"),
            ("docker-agent-stop", None),
            ("gemini-AfterAgent", None),
        ],
    )
    def test_turn(self, name: str, turn: str | None) -> None:
        assert event(name).turn == turn

    def test_notify_is_of_the_conversation_of_the_hooks(self) -> None:
        assert event("codex-notify").session == event("codex-Stop").session

    @pytest.mark.parametrize("name", RECORDED)
    @pytest.mark.parametrize("value", [None, 1, [], {}, "x", True], ids=repr)
    def test_field_of_another_type_is_as_good_as_none(self, name: str, value: Any) -> None:
        given = payload(name)
        for field in given:
            if field not in ("hook_event_name", "type"):
                _hosts.read({**given, field: value}, "claude" if "cursor" in name else "gemini")
                host = _hosts.detect({**given, field: value})
                if host is not None:
                    _hosts.read({**given, field: value}, host)


class TestRefusals:
    """What hosts say by themselves that forbids to keep an answer."""

    @pytest.mark.parametrize(
        ("name", "changes", "why"),
        [
            pytest.param("claude-Stop", {"stop_hook_active": True}, "go on", id="stop hook"),
            pytest.param("gemini-AfterAgent", {"stop_hook_active": True}, "go on", id="retry"),
            pytest.param("claude-Stop", {"last_assistant_message": ""}, "no text", id="empty"),
            pytest.param("codex-Stop", {"last_assistant_message": None}, "no text", id="null"),
            pytest.param("claude-Stop", {"last_assistant_message": " \n"}, "no text", id="blank"),
            pytest.param("docker-agent-stop", {"stop_response": ""}, "no text", id="docker"),
            pytest.param(
                "gemini-AfterAgent", {"prompt_response": "[no response text]"}, "no text", id="none"
            ),
            pytest.param(
                "claude-Stop", {"background_tasks": [{"id": "b1"}]}, "background", id="background"
            ),
            pytest.param("claude-Stop", {"agent_id": "a1"}, "subagent", id="subagent"),
            pytest.param(
                "docker-agent-stop", {"parent_session_id": "p"}, "subagent", id="sub-session"
            ),
            pytest.param("claude-Stop", {"permission_mode": "plan"}, "plan", id="plan"),
            pytest.param("codex-Stop", {"permission_mode": "plan"}, "plan", id="codex plan"),
            pytest.param("docker-agent-stop", {"status": "canceled"}, "aborted", id="aborted"),
            pytest.param("docker-agent-stop", {"last_user_message": " "}, "prompt", id="no prompt"),
            pytest.param("codex-notify", {"input-messages": ["a", "b"]}, "one message", id="two"),
            pytest.param("codex-notify", {"input-messages": []}, "one message", id="none at all"),
            pytest.param("codex-notify", {"input-messages": [1]}, "one message", id="no text"),
            pytest.param("codex-notify", {"last-assistant-message": None}, "no text", id="notify"),
        ],
    )
    def test_is_told(self, name: str, changes: dict[str, Any], why: str) -> None:
        assert why in event(name, **changes).refusal


class TestRequest:
    """Gemini CLI calls hooks before each request; only the first of a conversation is a question."""

    @pytest.mark.parametrize(
        "messages",
        [
            pytest.param([], id="none"),
            pytest.param(
                [{"role": "user", "content": "a"}, {"role": "model", "content": "b"}], id="answered"
            ),
            pytest.param([{"role": "user", "content": "a"}] * 2, id="after-a-tool"),
            pytest.param([{"role": "model", "content": "a"}], id="the-models"),
            pytest.param([{"role": "user", "content": " "}], id="blank"),
            pytest.param([{"role": "user", "content": [{"text": "a"}]}], id="parts"),
            pytest.param(["a"], id="texts"),
            pytest.param(None, id="null"),
        ],
    )
    def test_of_anything_but_one_message_of_the_user_has_no_prompt(self, messages: Any) -> None:
        assert event("gemini-BeforeModel", llm_request={"messages": messages}).prompt is None


class TestOutput:
    NAMES = (
        "claude-UserPromptSubmit",
        "codex-UserPromptSubmit",
    )

    @pytest.mark.parametrize("say", [_hosts.hint, _hosts.refusal])
    @pytest.mark.parametrize("name", NAMES)
    def test_strictest_reader_takes_it(self, name: str, say: Any) -> None:
        assert complaint(say(event(name), ANSWER, 7200.0), SCHEMA["UserPromptSubmit"]) is None

    @pytest.mark.parametrize(
        "bad",
        [
            {"suppressOriginalPrompt": True},
            {"decision": "block"},
            {"decision": "deny", "reason": "r"},
            {"hookSpecificOutput": {"additionalContext": "c"}},
            {"hookSpecificOutput": {"hookEventName": "Stop"}},
            {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "more": 1}},
            {"reason": 1},
        ],
        ids=repr,
    )
    def test_the_reader_is_strict(self, bad: dict[str, Any]) -> None:
        assert complaint(bad, SCHEMA["UserPromptSubmit"]) is not None

    def test_docker_agent_is_spoken_to_in_snake_case(self) -> None:
        found = event("docker-agent-user_prompt_submit")
        hint = _hosts.hint(found, ANSWER, 60.0)["hook_specific_output"]

        assert sorted(hint) == ["additional_context", "hook_event_name"]
        assert hint["hook_event_name"] == "user_prompt_submit"
        assert _hosts.refusal(found, ANSWER, 60.0)["decision"] == "block"

    def test_gemini_gets_an_answer_with_the_decision_that_makes_it_count(self) -> None:
        said = _hosts.reply(event("gemini-BeforeModel"), ANSWER, 60.0)
        (candidate,) = said["hookSpecificOutput"]["llm_response"]["candidates"]

        assert said["decision"] == "deny"
        assert candidate == {
            "content": {"role": "model", "parts": [ANSWER]},
            "finishReason": "STOP",
        }
        assert _hosts.refusal(event("gemini-BeforeAgent"), ANSWER, 1.0)["decision"] == "deny"

    @pytest.mark.parametrize(
        ("age", "words"),
        [
            (None, "at a time that is not known"),
            (0.2, "less than a second ago"),
            (1.9, "1 second ago"),
            (59, "59 seconds ago"),
            (61, "1 minute ago"),
            (7300, "2 hours ago"),
            (86_400 * 3.5, "3 days ago"),
        ],
    )
    @pytest.mark.parametrize(
        ("name", "say"),
        [
            ("claude-UserPromptSubmit", _hosts.hint),
            ("claude-UserPromptSubmit", _hosts.refusal),
            ("gemini-BeforeModel", _hosts.reply),
        ],
        ids=["hint", "refusal", "reply"],
    )
    def test_age_is_always_told(self, name: str, say: Any, age: float | None, words: str) -> None:
        assert words in json.dumps(say(event(name), ANSWER, age))

    @pytest.mark.parametrize("letter", ["x", "é", "😀"])
    @pytest.mark.parametrize("length", [4000, 9400, 9600, 30_000])
    def test_hint_stays_below_what_a_host_puts_into_a_file(self, letter: str, length: int) -> None:
        said = _hosts.hint(event("claude-UserPromptSubmit"), letter * length, 1.0)
        text = said["hookSpecificOutput"]["additionalContext"]
        units = len(text.encode("utf-16-le")) // 2

        assert units < 10_000
        assert ("[cut here]" in text) is (length * len(letter.encode("utf-16-le")) // 2 > 9_350)
