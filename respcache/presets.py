"""Ready answers to what the usual coding agents' tools read and write.

::

    from respcache import ToolCache
    from respcache.presets import CODING_AGENT

    tools = ToolCache("tools.jsonl", **CODING_AGENT)

The names are those of Claude Code, Codex, Gemini CLI and docker-agent. A shell command has
unknown effects, unless it is one of a few that only look. What is named nowhere has
unknown effects, too.
"""

from __future__ import annotations

import os

from ._paths import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["CODING_AGENT", "HARMLESS", "is_harmless"]

_FILE = ("file_path", "absolute_path", "path", "notebook_path", "filename", "filepath")
_FOLDER = ("path", "dir_path", "directory", "dir")

#: The commands that only look. One of one word stands for itself alone, with a
#: star also with plain arguments after it.
HARMLESS = (
    "pwd",
    "whoami",
    "date",
    "uname *",
    "ls *",
    "cat *",
    "head *",
    "tail *",
    "wc *",
    "which *",
    "git status *",
    "git log *",
    "git diff *",
    "git show *",
    "git branch",
    "git rev-parse *",
)
_PATCHES = tuple(f"*** {what}: " for what in ("Add File", "Update File", "Delete File", "Move to"))
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=@+^ ")
# These options of git write a file, or run a program of the repository's choice.
_ACTING = ("--output", "--ext-diff", "--textconv", "--open-files", "--show-signature")


def is_harmless(command: Any) -> bool:
    """Tell whether the whole of a shell *command* is one that only looks.

    No compound, no redirection, no substitution, no quoting: one command of
    ``HARMLESS`` with plain arguments.
    """
    if type(command) is not str or not _PLAIN.issuperset(command):
        return False
    words = command.split()
    if any(word.startswith(_ACTING) for word in words):
        return False
    for known in HARMLESS:
        start = known.removesuffix(" *").split()
        if words[: len(start)] == start and (words == start or known.endswith("*")):
            return True
    return False


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        found = arguments.get(name)
        if type(found) is str and found:
            return found
    return None


def one_file(arguments: Mapping[str, Any], cwd: str) -> list[str] | None:
    """Return the file that a call names, by all names that there are; None: by none."""
    named = [arguments[name] for name in _FILE if name in arguments]
    paths = [path for path in named if type(path) is str and path]
    return paths if paths and len(paths) == len(named) else None


def some_files(arguments: Mapping[str, Any], cwd: str) -> list[Tree | str] | None:
    """Return the files that a call lists; folders and patterns as all below."""
    lists = [arguments[name] for name in ("paths", "include") if arguments.get(name)]
    paths = [path for each in lists if type(each) is list for path in each]
    if not paths or not all(type(each) is list for each in lists):
        return None
    if not all(type(path) is str and path for path in paths):
        return None
    return [
        _tree(path)
        if _has_pattern(path)
        else Tree(path)
        if os.path.isdir(os.path.join(cwd, path))
        else path
        for path in paths
    ]


def below(arguments: Mapping[str, Any], cwd: str) -> Tree:
    """Return all that is below the folder that a call searches or lists."""
    path = _first(arguments, _FOLDER) or cwd
    pattern = arguments.get("pattern")
    if type(pattern) is str and (pattern.startswith(("/", "~")) or _leads_elsewhere(pattern)):
        return Tree("/")
    return _tree(path) if _has_pattern(path) else Tree(path)


def _has_pattern(path: str) -> bool:
    return any(letter in path for letter in "*?[{")


def _leads_elsewhere(pattern: str) -> bool:
    """Tell whether *pattern* may match what is not below the folder that it starts in."""
    return ".." in pattern or any(each in pattern for each in ("{/", ",/", "{~", ",~"))


def _tree(pattern: str) -> Tree:
    """Return the folder that all that *pattern* can match is in."""
    names = pattern.split("/")
    while names and _has_pattern("/".join(names)):
        names.pop()
    start = "/".join(names) or ("/" if pattern.startswith("/") else ".")
    return Tree("/" if _leads_elsewhere(pattern[len("/".join(names)) :]) else start)


def shell(arguments: Mapping[str, Any], cwd: str) -> tuple[()] | None:
    """Return that a harmless command touches nothing; None: what it touches is unknown."""
    commands = [arguments[name] for name in ("command", "cmd") if name in arguments]
    return () if commands and all(map(is_harmless, commands)) else None


def patched(arguments: Mapping[str, Any], cwd: str) -> list[str] | None:
    """Return the files that a patch of Codex names, by their old names and their new ones."""
    patch = _first(arguments, ("command", "input", "patch"))
    paths = [
        line[len(start) :].strip()
        for line in (patch or "").splitlines()
        for start in _PATCHES
        if line.startswith(start)
    ]
    return paths if paths and all(paths) else None


CODING_AGENT: dict[str, Any] = {
    "reads": {
        # Claude Code
        "Read": one_file,
        "Grep": below,
        "Glob": below,
        "LS": below,
        "WebFetch": (),
        # Gemini CLI, docker-agent
        "read_file": one_file,
        "read_many_files": some_files,
        "read_multiple_files": some_files,
        "list_directory": below,
        "directory_tree": below,
        "glob": below,
        "grep_search": below,
        "search_file_content": below,
        "search_files_content": below,
        "web_fetch": (),
        "fetch": (),
    },
    "writes": {
        "Edit": one_file,
        "MultiEdit": one_file,
        "Write": one_file,
        "NotebookEdit": one_file,
        "Bash": shell,
        "replace": one_file,
        "edit_file": one_file,
        "write_file": one_file,
        "run_shell_command": shell,
        "shell": shell,
        "apply_patch": patched,
    },
    "neutral": {"TodoWrite", "TodoRead", "ExitPlanMode", "AskUserQuestion", "think", "write_todos"},
}
