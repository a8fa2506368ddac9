"""Put the hook into the settings of agents' hosts, without losing what else is there.

What is written, or only shown, is the leanest command there is: this interpreter,
isolated and without ``site``, since what packages have put into that is loaded at
each event. Settings are merged as JSON, in their order; a file that is not plain JSON
stays as it is, since its comments would be lost.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._atomic import Replacement, make_folder
from ._hosts import CLAUDE, CODEX, DOCKER, GEMINI, HOSTS
from ._paths import signature
from .errors import ConfigError, StoreError
from .hook import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Installation", "command_of", "default_settings", "install", "words_of"]

_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from respcache.hook import main; main()",
    "from respcache.hook import main; main()",
)
_SECONDS = 10  # that a host waits for a hook: far more than the hook ever takes

# The events of each host, with the tools whose runs matter; None: no tool is concerned.
_CLAUDE_TOOLS = "Edit|MultiEdit|Write|NotebookEdit|Bash"
_EVENTS: dict[str, dict[str, str | None]] = {
    CLAUDE: {
        "UserPromptSubmit": None,
        "PostToolUse": _CLAUDE_TOOLS,
        "PostToolUseFailure": "Bash",
        "Stop": None,
    },
    CODEX: {"UserPromptSubmit": None, "PostToolUse": "Bash|apply_patch|Edit|Write", "Stop": None},
    DOCKER: {
        "user_prompt_submit": None,
        "post_tool_use": "write_file|edit_file|create_directory|remove_directory|shell",
        "stop": None,
    },
    GEMINI: {
        "BeforeAgent": None,
        "AfterTool": "write_file|replace|run_shell_command",
        "AfterAgent": None,
    },
}
_NOTES = {
    CODEX: (
        "Codex runs hooks only where its feature is on ([features] hooks = true, in older "
        "versions codex_hooks), and new ones only after you have trusted them in /hooks.",
    ),
    DOCKER: ("The snippet is for agents.<name> in the agent's YAML file, which is not written.",),
    GEMINI: ("Gemini CLI counts timeouts in milliseconds.",),
}


class Installation:
    """What is to be put into the settings of a host, and what became of it.

    Attributes:
        host: The host.
        settings: The settings file; None: there is none that could be written.
        snippet: What is put there, as text to paste: JSON, or YAML for docker-agent.
        notify: For Codex, the line for ``config.toml`` that does without hooks, and
            keeps answers but serves none; else None.
        is_change: Whether the file is not yet as it should be.
        is_written: Whether it was written.
        backup: The copy of the file as it was before; None: nothing was written, or
            there was no file.
        notes: What else there is to know, for a person.
    """

    def __init__(self, host: str, settings: str | None, snippet: str) -> None:
        self.host = host
        self.settings = settings
        self.snippet = snippet
        self.notify: str | None = None
        self.is_change = True
        self.is_written = False
        self.backup: str | None = None
        self.notes: list[str] = list(_NOTES.get(host, ()))


def install(
    host: str,
    *,
    settings: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    write: bool = False,
) -> Installation:
    """Show how the hook gets into the settings of *host*, or put it there.

    An older hook of respcache is replaced, all else stays, in its order; a second
    time changes nothing. The file is replaced at once, or stays as it is.

    Args:
        host: ``"claude"``, ``"codex"``, ``"docker-agent"`` or ``"gemini"``.
        settings: The settings file. None: the user's own of that host.
        options: Of the hook; see :class:`~respcache.hook.Options`. Without
            ``--path``, the file is named that commands use.
        write: Whether to write, and not only to show.

    Raises:
        ConfigError: *host* or an option is unknown, or the file is not one that
            can be merged with; nothing was changed.
        StoreError: The file can't be read or written.
    """
    if host not in HOSTS:
        raise ConfigError(f"host={host!r}: choose one of {', '.join(HOSTS)}")
    asked = _complete(host, options)
    wanted = _hooks(host, asked)
    if host == DOCKER:
        if write or settings is not None:
            raise ConfigError(
                "docker-agent: its YAML is not written; paste the snippet that is printed without"
            )
        return Installation(host, None, _as_yaml(wanted))
    path = default_settings(host) if settings is None else os.path.abspath(os.fspath(settings))
    made = Installation(host, path, _text({"hooks": wanted}, "  ") + "\n")
    if host == CODEX:
        made.notify = f"notify = {_text(words_of(asked), None)}\n"
    _merge(made, wanted, write)
    return made


def default_settings(host: str) -> str:
    """Return the user's own settings file of *host*."""
    folder, name = {
        CLAUDE: (os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude", "settings.json"),
        CODEX: (os.environ.get("CODEX_HOME") or "~/.codex", "hooks.json"),
        GEMINI: ("~/.gemini", "settings.json"),
    }[host]
    return os.path.abspath(os.path.join(os.path.expanduser(folder), name))


def command_of(options: Sequence[str]) -> str:
    """Return the command that runs the hook with *options*, for the shell of this system."""
    words = words_of(options)
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    from shlex import join

    return join(words)


def words_of(options: Sequence[str]) -> list[str]:
    """Return the words of the command that runs the hook with *options*."""
    if os.name == "nt":  # where what is needed besides lies in other folders, maybe
        return [sys.executable, "-I", "-c", _START[1], *options]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-I", "-S", "-c", _START[0], package, *options]


def _complete(host: str, options: Sequence[str]) -> list[str]:
    """Return *options*, checked, with an absolute path and the host."""
    asked = Options(options)
    if asked.payload:
        raise ConfigError(f"{asked.payload!r}: no option of the hook")
    if asked.on_hit == "answer" and host != GEMINI:
        raise ConfigError(
            "--on-hit=answer: Gemini CLI alone can take an answer; choose context or block"
        )
    if asked.host not in ("", host):
        raise ConfigError(f"--host={asked.host}: contradicts {host}")
    path = asked.path
    if not path:
        from ._paths import default_path

        path = default_path()
    made = ["--path", os.path.abspath(os.path.expanduser(path)), "--host", host]
    if asked.tools:
        made += ["--tools", os.path.abspath(os.path.expanduser(asked.tools))]
    if asked.on_hit != "context":
        made += ["--on-hit", asked.on_hit]
    if "--budget" in {option.partition("=")[0] for option in options}:
        made += ["--budget", f"{asked.budget:g}"]
    flags = ("any_turn", "shared", "keep_on_edit", "debug")
    return made + [f"--{name.replace('_', '-')}" for name in flags if getattr(asked, name)]


def _hooks(host: str, options: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the hooks of *host*, as its settings have them."""
    events = dict(_EVENTS[host])
    if Options(options).on_hit == "answer":
        events["BeforeModel"] = None
    seconds = _SECONDS + int(Options(options).budget)
    hook = {
        "type": "command",
        "command": command_of(options),
        "timeout": seconds * 1000 if host == GEMINI else seconds,
    }
    return {
        event: [{**({} if matcher is None else {"matcher": matcher}), "hooks": [dict(hook)]}]
        for event, matcher in events.items()
    }


def _as_yaml(wanted: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return *wanted* as docker-agent has it: a hook without a tool stands alone."""
    lines = ["hooks:"]
    for event, groups in wanted.items():
        lines.append(f"  {event}:")
        for group in groups:
            indent = "    "
            if "matcher" in group:
                lines += [f"    - matcher: {_text(group['matcher'], None)}", "      hooks:"]
                indent = "        "
            for hook in group["hooks"]:
                lines += [
                    f"{indent}- type: {hook['type']}",
                    f"{indent}  command: {_text(hook['command'], None)}",
                    f"{indent}  timeout: {hook['timeout']}",
                ]
    return "\n".join(lines) + "\n"


# Merging.


def _merge(made: Installation, wanted: Mapping[str, list[dict[str, Any]]], write: bool) -> None:
    """Put *wanted* into the settings file of *made*, if *write* is on; note what there is."""
    path = made.settings or ""
    real = os.path.realpath(path)
    before, text = _read(real)
    settings = _parsed(path, text) if text.strip() else {}
    old = _text(settings, "")
    _put(path, settings, wanted)
    made.is_change = _text(settings, "") != old
    if settings.get("disableAllHooks") is True:
        made.notes.append(f"{path}: has disableAllHooks, so no hook will run.")
    if not (write and made.is_change):
        return
    try:
        _write(made, path, real, before, _formed(settings, text))
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(path, f"can't be written: {error.strerror}", error.errno) from error


def _formed(settings: dict[str, Any], text: str) -> str:
    """Return *settings* in the form that *text* has."""
    made = _text(settings, _indent_of(text)) + "\n"
    if "\r\n" in text:
        made = made.replace("\n", "\r\n")
    return "\ufeff" + made if text.startswith("\ufeff") else made


def _write(made: Installation, path: str, real: str, before: Any, text: str) -> None:
    if before is not None and not os.stat(real).st_mode & 0o222:
        raise StoreError(path, "is write-protected and stays as it is; chmod u+w lets it change")
    make_folder(os.path.dirname(real), 0o600)
    with Replacement(real, 0o600) as file:
        file.write([text.encode()])
        backup = None if before is None else _backup(real)
        if not file.publish(fsync=True, is_current=lambda: _status(real) == before):
            if backup is not None:
                os.unlink(backup)
            raise StoreError(path, "was changed meanwhile and stays as it is; try again")
    made.backup, made.is_written = backup, True


def _put(path: str, settings: dict[str, Any], wanted: Mapping[str, list[dict[str, Any]]]) -> None:
    """Make *settings* hold *wanted*, and no other hooks of ours."""
    hooks = settings.setdefault("hooks", {})
    _check(path, "hooks", hooks, dict)
    for event, groups in hooks.items():
        if event in wanted or _has_ours(groups):
            _check(path, f"hooks.{event}", groups, list)
    for event in list(hooks):
        hook = wanted[event][0]["hooks"][0] if event in wanted else None
        if _has_ours(hooks[event]):
            hooks[event] = _renewed(hooks[event], hook)
            if not hooks[event]:
                del hooks[event]
    for event, groups in wanted.items():
        if not _has_ours(hooks.setdefault(event, [])):
            hooks[event] += groups


def _renewed(groups: list[Any], wanted: dict[str, Any] | None) -> list[Any]:
    """Return *groups* with *wanted* for each hook of ours, once under each matcher; None: without.

    Matchers stay: somebody may have added the tools that write to them.
    """
    kept = []
    seen: list[Any] = []
    for group in groups:
        if not _has_ours([group]):
            kept.append(group)
            continue
        left = []
        for hook in group["hooks"]:
            if not _is_ours(hook):
                left.append(hook)
            elif wanted is not None and group.get("matcher") not in seen:
                seen.append(group.get("matcher"))
                left.append({**hook, **wanted})
        if left:
            kept.append({**group, "hooks": left})
    return kept


def _has_ours(groups: Any) -> bool:
    return type(groups) is list and any(
        type(group) is dict
        and type(group.get("hooks")) is list
        and any(map(_is_ours, group["hooks"]))
        for group in groups
    )


def _is_ours(hook: Any) -> bool:
    """Tell whether *hook* runs respcache and nothing else: by its module, or by its command."""
    command = hook.get("command") if type(hook) is dict else None
    if type(command) is not str:
        return False
    from itertools import pairwise
    from shlex import shlex

    words = shlex(command.replace("\\", "/"), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        first, *rest = words
    except ValueError:  # nothing at all, or a quote that is not closed
        return False
    if any(not word.strip("();<>|&") for word in rest if word):
        return False  # it does more, which is not ours to take away
    name = first.rpartition("/")[2].removesuffix(".exe")
    if name == "respcache":
        return rest[:1] == ["hook"]
    return name.startswith("python") and any(
        "respcache.hook import main" in code for option, code in pairwise(rest) if option == "-c"
    )


def _check(path: str, place: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        word = "an object" if kind is dict else "a list"
        raise ConfigError(f"{path}: {place} is not {word}, and stays as it is; mend it first")


# Reading and writing.


def _read(path: str) -> tuple[Any, str]:
    """Return the signature of the file *path* and its text; None and "" if there is none."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return signature(os.fstat(file.fileno())), file.read()
    except FileNotFoundError:
        return None, ""
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8, and stays as it is") from None
    except OSError as error:
        raise StoreError(path, f"can't be read: {error.strerror}", error.errno) from error


def _status(path: str) -> Any:
    try:
        return signature(os.stat(path))
    except FileNotFoundError:
        return None


def _parsed(path: str, text: str) -> dict[str, Any]:
    """Return the one JSON object that *text* is.

    Raises:
        ConfigError: It is none, or holds what would not come back as it is.
    """
    from json import loads

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a name stands there twice")
        return made

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def finite(word: str) -> float:
        number = float(word)
        return number if number - number == 0 else refuse(word)

    try:
        settings = loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=unique,
            parse_constant=refuse,
            parse_float=finite,
        )
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: is not plain JSON ({error}), and stays as it is; "
            "paste the snippet that is printed without writing"
        ) from None
    if type(settings) is not dict:
        raise ConfigError(f"{path}: is not one JSON object, and stays as it is")
    return settings


def _text(value: Any, indent: str | None) -> str:
    from json import dumps

    text = dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can say by an escape only
        text = dumps(value, indent=indent)
    return text


def _indent_of(text: str) -> str:
    """Return what the first line within *text* is indented by."""
    for line in text.splitlines()[1:]:
        if line.strip():
            return line[: len(line) - len(line.lstrip())] or "  "
    return "  "


def _backup(path: str) -> str:
    """Copy the file *path* to ``<name>.bak-<time>``, and return that."""
    from shutil import copy2
    from time import gmtime, strftime

    stem = f"{path}.bak-{strftime('%Y%m%d-%H%M%S', gmtime())}"
    number = 1
    name = stem
    while os.path.lexists(name):
        number += 1
        name = f"{stem}-{number}"
    copy2(path, name)
    return name
