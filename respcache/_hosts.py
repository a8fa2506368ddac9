"""The dialects of agents' hosts: what their events mean, and what each takes as output.

Claude Code and Codex: events in PascalCase, fields in snake_case, output in
camelCase; Codex refuses an output with one field that it does not know, so no more
is ever said than both know. docker-agent: all in snake_case. Gemini CLI: events
of its own. Codex' ``notify``: one argument, with kebab-case fields.

What a host can't do is not tried: Claude Code, Codex and docker-agent have no way to
answer a prompt from a hook, but to refuse it with a text, or to give the model one more
text beside it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["CLAUDE", "CODEX", "DOCKER", "GEMINI", "HOSTS", "Event", "detect", "hint", "read"]

CLAUDE, CODEX, DOCKER, GEMINI = HOSTS = ("claude", "codex", "docker-agent", "gemini")

_CLAUDES = {
    "UserPromptSubmit": "prompt",
    "Stop": "answer",
    "PostToolUse": "tool",
    "PostToolUseFailure": "tool",  # what failed may have written before
    "FileChanged": "file",
}
_EVENTS = {
    CLAUDE: _CLAUDES,
    CODEX: _CLAUDES,
    DOCKER: {"user_prompt_submit": "prompt", "stop": "answer", "post_tool_use": "tool"},
    GEMINI: {
        "BeforeAgent": "prompt",
        "BeforeModel": "request",
        "AfterAgent": "answer",
        "AfterTool": "tool",
    },
}
_NOTIFY = "agent-turn-complete"
_LIMIT = 9_500  # UTF-16 units; Claude Code puts a context of over 10,000 into a file
_NOTHING_SAID = "[no response text]"  # Gemini CLI's word for an answer that is none


class Event:
    """What a host tells.

    Attributes:
        host: Which one; of :data:`HOSTS`.
        name: The host's name for the event.
        kind: ``"prompt"`` before a turn, ``"request"`` before the model is called,
            ``"answer"`` after a turn, ``"tool"`` after a tool has run, ``"file"``
            after a file was changed.
        session: The host's name for the conversation; "": none.
        turn: The host's name for the turn; None: none.
        cwd: Where the agent works; "": unknown.
        transcript: The host's file of the conversation; "": none.
        prompt: What the user has asked; None: the event does not say.
        answer: What the agent has said.
        refusal: Why the answer is none to keep; "": it may be one.
        is_inner: Whether it is of an agent within the agent.
        tool: The tool's name.
        arguments: The tool's arguments.
        path: The file that was changed.
    """

    __slots__ = (
        "answer",
        "arguments",
        "cwd",
        "host",
        "is_inner",
        "kind",
        "name",
        "path",
        "prompt",
        "refusal",
        "session",
        "tool",
        "transcript",
        "turn",
    )

    def __init__(self, host: str, kind: str, payload: Mapping[str, Any]) -> None:
        self.host = host
        self.kind = kind
        self.name = _text(payload, "hook_event_name")
        self.session = _text(payload, "session_id")
        self.turn = _text(payload, "turn_id") or _text(payload, "prompt_id") or None
        self.cwd = _text(payload, "cwd")
        self.transcript = _text(payload, "transcript_path")
        self.prompt: str | None = None
        self.answer = ""
        self.refusal = ""
        self.is_inner = bool(payload.get("agent_id") or payload.get("parent_session_id"))
        self.tool = _text(payload, "tool_name")
        arguments = payload.get("tool_input")
        self.arguments: dict[str, Any] = arguments if type(arguments) is dict else {}
        self.path = _text(payload, "file_path")


def detect(payload: Mapping[str, Any]) -> str | None:
    """Return which host *payload* is from, or None if that is none we know."""
    if payload.get("type") == _NOTIFY:
        return CODEX
    name = _text(payload, "hook_event_name")
    if not name or "generation_id" in payload:  # Cursor has events of the same names
        return None
    if name == name.lower():
        return DOCKER
    if name.startswith(("Before", "After")):
        return GEMINI
    if not name[0].isupper():
        return None
    return CODEX if "turn_id" in payload else CLAUDE


def read(payload: Mapping[str, Any], host: str) -> Event | None:
    """Return what *payload*, of *host*, tells; None: nothing that matters here."""
    if payload.get("type") == _NOTIFY:
        return _notified(payload)
    kind = _EVENTS[host].get(_text(payload, "hook_event_name"))
    if kind is None:
        return None
    event = Event(host, kind, payload)
    if kind == "prompt":
        event.prompt = _text(payload, "prompt")
    elif kind == "request":
        event.prompt = _only_message(payload.get("llm_request"))
    elif kind == "answer":
        asked, said = {
            DOCKER: ("last_user_message", "stop_response"),
            GEMINI: ("prompt", "prompt_response"),
        }.get(host, ("", "last_assistant_message"))
        event.prompt = _text(payload, asked) if asked else None
        event.answer = _text(payload, said)
        event.refusal = _refusal(payload, event)
    return event


def _notified(payload: Mapping[str, Any]) -> Event:
    event = Event(CODEX, "answer", payload)
    event.name = _NOTIFY
    event.session = _text(payload, "thread-id")
    event.turn = _text(payload, "turn-id") or None
    event.answer = _text(payload, "last-assistant-message")
    messages = payload.get("input-messages")
    event.prompt = ""
    if type(messages) is list and len(messages) == 1 and type(messages[0]) is str:
        event.prompt = messages[0]
        event.refusal = _refusal(payload, event)
    else:
        event.refusal = "the turn has not exactly one message of the user"
    return event


def _refusal(payload: Mapping[str, Any], event: Event) -> str:
    """Return why the answer in *payload* is none to keep, or ""."""
    if event.is_inner:
        return "it is a subagent's"
    if payload.get("stop_hook_active"):
        return "another hook made the agent go on"
    if payload.get("permission_mode") == "plan":
        return "it is a plan"
    if payload.get("background_tasks"):
        return "tasks are still running in the background"
    if payload.get("aborted") or payload.get("status") in ("aborted", "error", "canceled"):
        return "the turn was aborted"
    if not event.answer.strip() or event.answer.strip() == _NOTHING_SAID:
        return "there is no text in it"
    if event.prompt is not None and not event.prompt.strip():
        return "there is no prompt to it"
    return ""


def _only_message(request: Any) -> str | None:
    """Return the text of a *request* to a model that holds one message of a user, and no more.

    In all others tools have run, or a conversation has gone before.
    """
    messages = request.get("messages") if type(request) is dict else None
    if type(messages) is not list or len(messages) != 1 or type(messages[0]) is not dict:
        return None
    if messages[0].get("role") != "user":
        return None
    content = messages[0].get("content")
    return content if type(content) is str and content.strip() else None


def _text(payload: Mapping[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if type(value) is str else ""


# What is said to hosts.


def hint(event: Event, answer: str, age: float | None) -> dict[str, Any]:
    """Return what gives the model the stored *answer* beside the prompt of *event*."""
    head = (
        f"respcache holds an answer to this same question, stored {_ago(age)}. "
        "It was given in an earlier conversation and may be out of date:\n\n"
    )
    text = head + _cut(answer, _LIMIT - len(head))
    if event.host == DOCKER:
        return {"hook_specific_output": {"hook_event_name": event.name, "additional_context": text}}
    return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}


def refusal(event: Event, answer: str, age: float | None) -> dict[str, Any]:
    """Return what refuses the prompt of *event* with the stored *answer* as the reason."""
    reason = f"[respcache: stored {_ago(age)}]\n{answer}"
    return {"decision": "deny" if event.host == GEMINI else "block", "reason": reason}


def reply(event: Event, answer: str, age: float | None) -> dict[str, Any]:
    """Return what has *answer* stand for that of the model; Gemini CLI alone can.

    Without the decision it would take no notice of the answer.
    """
    content = {"role": "model", "parts": [answer]}
    return {
        "decision": "deny",
        "reason": f"answered by respcache, stored {_ago(age)}",
        "hookSpecificOutput": {
            "hookEventName": event.name,
            "llm_response": {"candidates": [{"content": content, "finishReason": "STOP"}]},
        },
    }


def _ago(age: float | None) -> str:
    """Return *age*, in seconds, in words."""
    if age is None:
        return "at a time that is not known"
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count = int(age // seconds)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "less than a second ago"


def _cut(text: str, limit: int) -> str:
    """Return *text*, in at most *limit* units of UTF-16, which is how hosts count."""
    if len(text) * 2 <= limit:
        return text
    units = text.encode("utf-16-le", "replace")
    if len(units) <= limit * 2:
        return text
    end = "\n[cut here]"
    return units[: (limit - len(end)) * 2].decode("utf-16-le", "ignore") + end
