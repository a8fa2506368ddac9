"""Hooks as hosts run them: whole conversations, many at once, and streams of all kinds."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import respcache
from respcache import Cache
from respcache._install import command_of, install

pytestmark = pytest.mark.xdist_group("processes")

DATA = Path(__file__).parents[1] / "data" / "hooks"
PACKAGE = str(Path(respcache.__file__).parents[1])
QUESTION, ANSWER = "Where are prices rounded?", "In money.py, by round_half_even()."
DEADLINE = 30


def event(name: str, work: Path, session: str, **changes: Any) -> str:
    text = (DATA / f"{name}.json").read_text("utf-8").replace("/srv/shop", str(work))
    given = {**json.loads(text), **changes}
    given["thread-id" if "type" in given else "session_id"] = session
    return json.dumps(given)


def hooks_of(host: str, options: list[str], tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the hooks of *host* as its settings have them, read back from what is shown."""
    if host != "docker-agent":
        snippet = install(host, settings=tmp_path / "settings.json", options=options).snippet
        return json.loads(snippet)["hooks"]  # type: ignore[no-any-return]
    found: dict[str, list[dict[str, Any]]] = {}
    for line in install(host, options=options).snippet.splitlines()[1:]:
        name, _, value = line.strip(" -").partition(": ")
        if line.endswith(":") and not line.startswith("   "):
            groups = found[name.strip(":")] = []
        elif name == "matcher":
            groups.append({"matcher": json.loads(value), "hooks": []})
        elif name == "type" and not (groups and "matcher" in groups[-1]):
            groups.append({"hooks": []})
        elif name == "command":
            groups[-1]["hooks"].append({"command": json.loads(value)})
    return found


class Host:
    """Does with hooks what a host does: all that match, each by a shell."""

    def __init__(self, hooks: dict[str, list[dict[str, Any]]], work: Path) -> None:
        self.hooks = hooks
        self.work = work
        self.ran = 0

    def tell(self, name: str, session: str, **changes: Any) -> Any:
        text = event(name, self.work, session, **changes)
        given = json.loads(text)
        said = None
        for group in self.hooks.get(given["hook_event_name"], []):
            matcher = group.get("matcher")
            if matcher and not re.fullmatch(matcher, given["tool_name"]):
                continue
            for hook in group["hooks"]:
                done = subprocess.run(
                    hook["command"],
                    shell=True,
                    input=text.encode(),
                    capture_output=True,
                    timeout=DEADLINE,
                    cwd=self.work,
                )
                self.ran += 1
                assert (done.returncode, done.stderr) == (0, b"")
                said = json.loads(done.stdout) if done.stdout else said
        return said


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def options(path: Path) -> list[str]:
    return ["--path", str(path.with_suffix(".jsonl"))]


def kept(options: list[str], work: Path) -> dict[str, Any]:
    with Cache(options[1], namespace=str(work)) as cache:
        return {hit.question: hit.response for hit in cache.entries()}


NAMES = {
    "claude": {
        "prompt": "claude-UserPromptSubmit",
        "read": "claude-PostToolUse-Read",
        "edit": "claude-PostToolUse-Edit",
        "shell": "claude-PostToolUse-Bash",
        "end": "claude-Stop",
    },
    "codex": {
        "prompt": "codex-UserPromptSubmit",
        "edit": "codex-PostToolUse-apply_patch",
        "shell": "codex-PostToolUse-Bash",
        "end": "codex-Stop",
    },
    "docker-agent": {
        "prompt": "docker-agent-user_prompt_submit",
        "edit": "docker-agent-post_tool_use-edit_file",
        "shell": "docker-agent-post_tool_use-shell",
        "end": "docker-agent-stop",
    },
    "gemini": {
        "prompt": "gemini-BeforeAgent",
        "edit": "gemini-AfterTool-replace",
        "shell": "gemini-AfterTool-run_shell_command",
        "end": "gemini-AfterAgent",
    },
}


@pytest.mark.parametrize("change", ["edit", "shell"])
@pytest.mark.parametrize("host", NAMES)
def test_conversations_of_a_host(
    host: str, change: str, options: list[str], work: Path, tmp_path: Path
) -> None:
    """Asked, served, changed under way, forgotten, asked again, served again."""
    names = NAMES[host]
    agent = Host(hooks_of(host, options, tmp_path), work)

    assert agent.tell(names["prompt"], "one") is None
    if "read" in names:
        before = agent.ran
        agent.tell(names["read"], "one")
        assert agent.ran == before  # no process for what changes nothing
    agent.tell(names["end"], "one")

    assert ANSWER in json.dumps(agent.tell(names["prompt"], "two"))
    assert agent.tell(names["prompt"], "two", turn_id="t2", prompt_id="t2") is None

    assert ANSWER in json.dumps(agent.tell(names["prompt"], "three"))
    agent.tell(names[change], "three")
    agent.tell(names["end"], "three")

    assert kept(options, work) == {}
    assert agent.tell(names["prompt"], "four") is None
    agent.tell(names["end"], "four")

    assert kept(options, work) == {QUESTION: ANSWER}
    assert ANSWER in json.dumps(agent.tell(names["prompt"], "five"))


def test_gemini_is_answered_before_the_model_is_called(
    options: list[str], work: Path, tmp_path: Path
) -> None:
    agent = Host(hooks_of("gemini", [*options, "--on-hit=answer"], tmp_path), work)
    for session in ("one", "two"):
        agent.tell("gemini-BeforeAgent", session)
        said = agent.tell("gemini-BeforeModel", session)
        agent.tell("gemini-AfterAgent", session)

    (candidate,) = said["hookSpecificOutput"]["llm_response"]["candidates"]

    assert candidate["content"]["parts"] == [ANSWER]


def test_codex_notifies_by_an_argument(options: list[str], work: Path, tmp_path: Path) -> None:
    line = install("codex", settings=tmp_path / "hooks.json", options=options).notify
    assert line is not None
    program = json.loads(line.removeprefix("notify = "))
    done = subprocess.run(
        [*program, event("codex-notify", work, "one")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert kept(options, work) == {QUESTION: ANSWER}


def at_once(command: str, texts: list[str]) -> list[bytes]:
    """Return what each of the processes said that *command* begins at once for *texts*."""
    children = [
        subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in texts
    ]
    try:
        for child, text in zip(children, texts, strict=True):
            assert child.stdin is not None
            child.stdin.write(text.encode())
        return [child.communicate(timeout=DEADLINE)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
        assert [child.returncode for child in children] == [0] * len(children)


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_twenty_hooks_at_once_on_one_file_lose_nothing(path: Path, work: Path, suffix: str) -> None:
    """With a budget that is no part of the question: each fsync of a document takes its time."""
    options = ["--path", str(path.with_suffix(f".{suffix}")), "--budget=60"]
    command = command_of(options)

    def texts(name: str) -> list[str]:
        return [
            event(name, work, f"s{n}", prompt=f"{n}?", last_assistant_message=f"{n}!")
            for n in range(20)
        ]

    assert at_once(command, texts("claude-UserPromptSubmit")) == [b""] * 20
    assert at_once(command, texts("claude-Stop")) == [b""] * 20
    assert kept(options, work) == {f"{n}?": f"{n}!" for n in range(20)}

    served = at_once(
        command,
        [event("claude-UserPromptSubmit", work, f"t{n}", prompt=f"{n}?") for n in range(20)],
    )

    assert all(f"{n}!".encode() in said for n, said in enumerate(served))


def test_twenty_writes_at_once_in_one_conversation_count(options: list[str], work: Path) -> None:
    command = command_of([*options, "--budget=60"])
    at_once(command, [event("docker-agent-stop", work, "s0")])
    at_once(command, [event("claude-UserPromptSubmit", work, "s1", prompt="Fix it")])
    at_once(command, [event("claude-PostToolUse-Edit", work, "s1")] * 20)
    at_once(command, [event("claude-Stop", work, "s1")])

    assert kept(options, work) == {}


@pytest.fixture
def run(options: list[str], work: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the hook with a redirection of the shell, where there is an answer to serve."""
    with Cache(options[1], namespace=str(work)) as cache:
        cache.store(QUESTION, ANSWER)

    def run(redirection: str = "", *more: str, **given: Any) -> Any:
        return subprocess.run(
            f"{command_of([*options, *more])} {redirection}",
            shell=True,
            timeout=DEADLINE,
            **{
                "input": event("claude-UserPromptSubmit", work, "s1").encode(),
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **given,
            },
        )

    return run


@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        pytest.param("", True, id="none"),
        pytest.param("<&-", False, id="no-stdin"),
        pytest.param("</dev/null", False, id="empty-stdin"),
        pytest.param(">&-", False, id="no-stdout"),
        pytest.param("2>&-", True, id="no-stderr"),
        pytest.param(">/dev/full", False, id="full-stdout"),
        pytest.param("<&- >&- 2>&-", False, id="no-streams"),
        pytest.param("| true", False, id="nobody-reads"),
    ],
)
def test_streams_of_all_kinds_end_well(
    run: Any, redirection: str, says: bool, options: list[str], work: Path
) -> None:
    done = run(redirection)

    assert done.returncode == 0
    assert done.stderr == b""
    assert (ANSWER in done.stdout.decode()) is says
    assert kept(options, work) == {QUESTION: ANSWER}  # nothing was printed into it


@pytest.mark.parametrize("in_a_thread", [False, True], ids=["main-thread", "other-thread"])
def test_input_that_never_ends_is_left_within_the_budget(
    in_a_thread: bool, options: list[str]
) -> None:
    source = "from respcache.hook import main; main()"
    if in_a_thread:
        source = (
            "import threading; from respcache.hook import main; "
            "thread = threading.Thread(target=main); thread.start(); thread.join()"
        )
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-c", f"import sys; sys.path.insert(0, {PACKAGE!r}); {source}"),
                *(*options, "--budget=0.6"),
            ],
            stdin=reader,
            capture_output=True,
            timeout=DEADLINE,
        )
    finally:
        os.close(reader)
        os.close(writer)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_lock_of_a_stopped_process_does_not_stop_the_agent(
    run: Any, options: list[str], work: Path
) -> None:
    with open(f"{options[1]}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        edit = run("", "--budget=0.6", input=event("claude-PostToolUse-Edit", work, "s1").encode())
        shell = run("", "--budget=0.6", input=event("claude-PostToolUse-Bash", work, "s1").encode())

    assert [(done.returncode, done.stdout, done.stderr) for done in (edit, shell)] == [
        (0, b"", b"")
    ] * 2


def test_word_before_the_options_is_that_of_the_script(run: Any, options: list[str]) -> None:
    """The respcache script hands over what it was given."""
    source = "from respcache.hook import main; main()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", f"import sys; sys.path.insert(0, {PACKAGE!r}); {source}"),
            *("hook", *options, "--shared", "--debug"),
        ],
        input=b"{",
        capture_output=True,
        timeout=DEADLINE,
    )

    assert done.returncode == 0
    assert b"not JSON" in done.stderr or b"no JSON" in done.stderr or b"Expecting" in done.stderr
