"""What the usual coding agents' tools touch, and which shell commands only look."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache import ToolCache, ToolCall, ToolResult, Tree
from respcache.presets import CODING_AGENT, HARMLESS, is_harmless

READS, WRITES, NEUTRAL = CODING_AGENT["reads"], CODING_AGENT["writes"], CODING_AGENT["neutral"]


class TestHarmless:
    @pytest.mark.parametrize(
        "command",
        [
            "pwd",
            "whoami",
            "date",
            "ls",
            "ls -la src",
            "  ls  ",
            "cat a.py b.py",
            "head -n 5 a.py",
            "tail -20 log.txt",
            "wc -l a.py",
            "which python3",
            "uname -a",
            "git status",
            "git status --short",
            "git  status",
            "git log --oneline -5",
            "git diff HEAD^ -- src/a.py",
            "git show HEAD:src/a.py",
            "git branch",
            "git rev-parse --show-toplevel",
        ],
    )
    def test_command_that_only_looks(self, command: str) -> None:
        assert is_harmless(command)

    @pytest.mark.parametrize(
        "command",
        [
            pytest.param("git status; rm x", id="semicolon"),
            pytest.param("git status;rm x", id="semicolon-without-space"),
            pytest.param("ls && rm x", id="and"),
            pytest.param("ls || rm x", id="or"),
            pytest.param("ls & rm x", id="background"),
            pytest.param("ls &", id="background-at-the-end"),
            pytest.param("cat a | tee b", id="pipe"),
            pytest.param("cat a |& tee b", id="pipe-both"),
            pytest.param("ls > a", id="redirection"),
            pytest.param("ls>a", id="redirection-without-space"),
            pytest.param("ls >> a", id="append"),
            pytest.param("ls 2> a", id="stderr"),
            pytest.param("ls &> a", id="both"),
            pytest.param("cat a >| b", id="clobber"),
            pytest.param("cat < a", id="input"),
            pytest.param("cat <(rm x)", id="process-substitution"),
            pytest.param("cat << E", id="here-document"),
            pytest.param("ls $(rm x)", id="substitution"),
            pytest.param("ls `rm x`", id="backticks"),
            pytest.param("ls $HOME", id="variable"),
            pytest.param("ls ${X:=$(rm x)}", id="expansion"),
            pytest.param("ls {a,b}", id="braces"),
            pytest.param("{ rm x; }", id="group"),
            pytest.param("(rm x)", id="subshell"),
            pytest.param("ls 'a'", id="quote"),
            pytest.param('ls "a"', id="double-quote"),
            pytest.param("ls \\\n rm", id="backslash"),
            pytest.param("ls\nrm x", id="newline"),
            pytest.param("ls\rrm x", id="carriage-return"),
            pytest.param("ls\x0brm x", id="vertical-tab"),
            pytest.param("ls\x85rm x", id="next-line"),
            pytest.param("ls\u2028rm x", id="line-separator"),
            pytest.param("ls\u00a0-l", id="no-break-space"),
            pytest.param("ls\trm", id="tab"),
            pytest.param("ls\0rm", id="nul"),
            pytest.param("ls # rm x", id="comment"),
            pytest.param("ls !x", id="history"),
            pytest.param("ls *.py", id="star"),
            pytest.param("ls ?", id="question-mark"),
            pytest.param("ls [a]", id="class"),
            pytest.param("cat ~/a", id="tilde"),
            pytest.param("cat a%b", id="percent"),
            pytest.param("\u2113s", id="look-alike"),
            pytest.param("\uff4c\uff53", id="full-width"),
            pytest.param("X=1 ls", id="environment"),
            pytest.param("PATH=. ls", id="environment-path"),
            pytest.param("GIT_EXTERNAL_DIFF=./x git diff", id="environment-git"),
            pytest.param("env ls", id="env"),
            pytest.param("sudo ls", id="sudo"),
            pytest.param("command ls", id="command"),
            pytest.param("exec ls", id="exec"),
            pytest.param("eval ls", id="eval"),
            pytest.param("time ls", id="time"),
            pytest.param("xargs cat", id="xargs"),
            pytest.param("./ls", id="own-program"),
            pytest.param("/bin/ls", id="program-by-path"),
            pytest.param("LS", id="capitals"),
            pytest.param("lsof", id="longer-name"),
            pytest.param("cats a", id="longer-name-of-cat"),
            pytest.param("pwd -P", id="pwd-has-no-arguments"),
            pytest.param("date -s 2020-01-01", id="date-that-sets"),
            pytest.param("date 010100002020", id="date-that-sets-too"),
            pytest.param("whoami x", id="whoami-has-no-arguments"),
            pytest.param("git branch new", id="branch-that-makes"),
            pytest.param("git branch -D main", id="branch-that-deletes"),
            pytest.param("git", id="git-alone"),
            pytest.param("git stash", id="git-stash"),
            pytest.param("git checkout a", id="git-checkout"),
            pytest.param("git gc", id="git-gc"),
            pytest.param("git stat", id="git-shortened"),
            pytest.param("git -c core.fsmonitor=./x status", id="git-option-before"),
            pytest.param("git -C dir status", id="git-folder-before"),
            pytest.param("git --exec-path=. status", id="git-exec-path"),
            pytest.param("git diff --output=a.py", id="git-output"),
            pytest.param("git diff --output a.py", id="git-output-apart"),
            pytest.param("git log -p --output=a.py", id="git-log-output"),
            pytest.param("git show HEAD --output=a.py", id="git-show-output"),
            pytest.param("git log -p --ext-diff", id="git-ext-diff"),
            pytest.param("git show --textconv HEAD", id="git-textconv"),
            pytest.param("git log --show-signature", id="git-runs-the-program-of-gpg"),
            pytest.param("find . -delete", id="find"),
            pytest.param("grep -r x", id="not-listed"),
            pytest.param("sed -i s/a/b/ x", id="sed"),
            pytest.param("sort -o a a", id="sort"),
            pytest.param("tee a", id="tee"),
            pytest.param("touch a", id="touch"),
            pytest.param("rm x", id="rm"),
            pytest.param("python a.py", id="python"),
            pytest.param("make", id="make"),
            pytest.param("cd src", id="cd"),
            pytest.param("", id="empty"),
            pytest.param("   ", id="blank"),
            pytest.param(None, id="none"),
            pytest.param(5, id="number"),
            pytest.param(["ls"], id="list"),
            pytest.param(b"ls", id="bytes"),
            pytest.param({"command": "ls"}, id="object"),
        ],
    )
    def test_command_that_may_do_more(self, command: Any) -> None:
        """R15"""
        assert not is_harmless(command)

    @given(
        start=st.sampled_from([known.removesuffix(" *") for known in HARMLESS]),
        letter=st.sampled_from(list("\n\r;&|<>$`(){}[]*?!#~'\"\\%\t\v\f\0")),
        rest=st.text("ab /.-", max_size=6),
        before=st.text("ab /.-", max_size=3),
    )
    def test_no_letter_that_a_shell_acts_on_is_let_through(
        self, start: str, letter: str, rest: str, before: str
    ) -> None:
        assert not is_harmless(f"{start} {before}{letter}{rest}")

    def test_whoever_has_git_sees_that_the_option_writes(self, tmp_path: Path) -> None:
        """What is refused does act; what is not, does not."""
        if shutil.which("git") is None:
            pytest.skip("there is no git here")
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(tmp_path)}

        def git(*words: str) -> None:
            subprocess.run(
                ["git", *words], cwd=tmp_path, env=environment, capture_output=True, timeout=60
            )

        git("init", "-q")
        (tmp_path / "a").write_text("a")
        git("add", "a")
        git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "m")
        (tmp_path / "a").write_text("b")
        before = sorted(os.listdir(tmp_path))
        for command in ("git diff", "git log", "git show", "git status", "git branch"):
            assert is_harmless(command)
            git(*command.split()[1:])
        for command in ("git diff --outp=x1", "git diff --out=x2", "git log -p --outpu=x3"):
            if is_harmless(command):
                git(*command.split()[1:])
        assert sorted(os.listdir(tmp_path)) == before
        git("diff", "--output=x")

        assert (tmp_path / "x").exists()
        assert not is_harmless("git diff --output=x")


class TestExtractors:
    def test_each_name_stands_in_one_place(self) -> None:
        assert not (READS.keys() & WRITES.keys())
        assert not ((READS.keys() | WRITES.keys()) & NEUTRAL)

    def test_all_that_are_asked_for_are_there(self) -> None:
        assert {"Read", "Grep", "Glob", "LS", "WebFetch"} <= READS.keys()
        assert {"Edit", "MultiEdit", "Write", "NotebookEdit", "Bash"} <= WRITES.keys()
        assert {"read_file", "list_directory", "glob"} <= READS.keys()
        assert {"replace", "write_file", "run_shell_command", "edit_file", "shell"} <= WRITES.keys()

    @pytest.mark.parametrize(
        ("name", "argument"),
        [
            ("Read", "file_path"),
            ("read_file", "absolute_path"),
            ("read_file", "file_path"),
            ("read_file", "path"),
            ("Edit", "file_path"),
            ("MultiEdit", "file_path"),
            ("Write", "file_path"),
            ("NotebookEdit", "notebook_path"),
            ("replace", "file_path"),
            ("write_file", "file_path"),
            ("write_file", "path"),
            ("edit_file", "path"),
        ],
    )
    def test_tool_of_one_file(self, name: str, argument: str) -> None:
        extractor = READS.get(name) or WRITES[name]

        assert list(extractor({argument: "src/a.py", "text": "b"}, "/srv")) == ["src/a.py"]

    @pytest.mark.parametrize("arguments", [{}, {"file_path": ""}, {"file_path": 5}, {"file": "a"}])
    def test_file_that_is_not_named_is_unknown(self, arguments: Any) -> None:
        """For a read: any. For a write: everything."""
        for extractor in (READS["Read"], WRITES["Edit"]):
            assert extractor(arguments, "/srv") is None

    def test_write_that_names_two_files_touches_both(self) -> None:
        """Naming too many costs a few hits, missing one serves what is stale."""
        found = WRITES["Edit"]({"file_path": "a.py", "path": "b.py"}, "/srv")

        assert found is None or {"a.py", "b.py"} <= set(found)

    @pytest.mark.parametrize(
        "name",
        [
            "Grep",
            "Glob",
            "LS",
            "list_directory",
            "directory_tree",
            "glob",
            "grep_search",
            "search_file_content",
            "search_files_content",
        ],
    )
    @pytest.mark.parametrize(
        ("arguments", "folder"),
        [
            pytest.param({"path": "src"}, "src", id="path"),
            pytest.param({}, "/srv", id="none"),
            pytest.param({"path": ""}, "/srv", id="empty"),
            pytest.param({"path": "src/*"}, "src", id="pattern-as-path"),
            pytest.param({"pattern": "*.py"}, "/srv", id="pattern"),
            pytest.param({"pattern": "/etc/*"}, "/", id="absolute-pattern"),
            pytest.param({"pattern": "~/x"}, "/", id="home-pattern"),
            pytest.param({"pattern": "../*.py"}, "/", id="pattern-that-leads-up"),
            pytest.param({"path": "src", "pattern": "a/../../*"}, "/", id="pattern-up-in-between"),
        ],
    )
    def test_search_reads_all_below_its_folder(
        self, name: str, arguments: Any, folder: str
    ) -> None:
        assert READS[name](arguments, "/srv") == Tree(folder)

    @pytest.mark.parametrize("name", ["Glob", "glob"])
    @pytest.mark.parametrize("pattern", ["{..,src}/*.py", "src/{a,../../b}/*", "{/etc,src}/*"])
    def test_pattern_that_leads_elsewhere_in_braces_reads_what_is_there(
        self, name: str, pattern: str
    ) -> None:
        assert READS[name]({"pattern": pattern}, "/srv") == Tree("/")

    @pytest.mark.parametrize("argument", ["path", "dir_path", "directory", "dir"])
    def test_folder_under_any_of_its_names(self, argument: str) -> None:
        assert READS["LS"]({argument: "src"}, "/srv") == Tree("src")

    @pytest.mark.parametrize("name", ["WebFetch", "web_fetch", "fetch"])
    def test_page_is_read_from_no_file(self, name: str) -> None:
        assert READS[name] == ()

    @pytest.mark.parametrize("name", ["Bash", "run_shell_command", "shell"])
    @pytest.mark.parametrize("argument", ["command", "cmd"])
    def test_shell_touches_nothing_or_who_knows_what(self, name: str, argument: str) -> None:
        assert WRITES[name]({argument: "git status"}, "/srv") == ()
        assert WRITES[name]({argument: "git status; rm x"}, "/srv") is None

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"command": ""},
            {"command": ["ls"]},
            {"script": "ls"},
            {"command": "rm x", "cmd": "ls"},
            {"command": ["rm", "x"], "cmd": "ls"},
            {"cmd": "rm x", "command": "ls"},
        ],
    )
    def test_command_that_can_not_be_told_is_unknown(self, arguments: Any) -> None:
        assert WRITES["Bash"](arguments, "/srv") is None

    @pytest.mark.parametrize("name", ["read_many_files", "read_multiple_files"])
    class TestManyFiles:
        @pytest.mark.parametrize("argument", ["paths", "include"])
        def test_files_as_files_and_patterns_as_folders(self, name: str, argument: str) -> None:
            found = READS[name]({argument: ["a.py", "src/*.py", "*.md", "/etc/*"]}, "/srv")

            trees = {item.path for item in found if isinstance(item, Tree)}
            assert {"src", ".", "/etc"} <= trees
            assert "a.py" in found or "a.py" in trees

        @pytest.mark.parametrize(
            "arguments",
            [{}, {"paths": "a.py"}, {"paths": [1]}, {"paths": [""]}, {"paths": []}, {"file": "a"}],
        )
        def test_what_is_not_named_is_unknown(self, name: str, arguments: Any) -> None:
            assert READS[name](arguments, "/srv") is None

        def test_both_lists_count(self, name: str) -> None:
            """Gemini CLI reads the files of *paths* and those of *include*."""
            found = READS[name]({"paths": ["a.py"], "include": ["b/*.py"]}, "/srv")

            assert found is None or {"a.py", "b"} <= {getattr(f, "path", f) for f in found}

        @pytest.mark.parametrize(
            "pattern", ["src/*/../../../x.py", "{../other,src}/*.py", "../*", "*/../../x"]
        )
        def test_pattern_that_leads_out_of_its_folder_reads_what_is_there(
            self, name: str, pattern: str
        ) -> None:
            """Its start stands for less than it can match."""
            found = READS[name]({"paths": [pattern]}, "/srv/deep")

            assert found is None or any(
                isinstance(item, Tree)
                and os.path.normpath(os.path.join("/srv/deep", item.path))
                in ("/", "/srv", "/srv/other")
                for item in found
            )


class World:
    """A folder, tools that really work on it, and a cache that knows them by the preset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = ToolCache(**CODING_AGENT)

    def __call__(self, name: str, **arguments: Any) -> ToolResult:
        return self.tools.call(ToolCall(name, arguments, cwd=str(self.folder)), self.run)

    def run(self, call: ToolCall) -> Any:
        given = call.arguments
        match call.name:
            case "Read":
                return (self.folder / given["file_path"]).read_text()
            case "Grep" | "LS":
                folder = self.folder / given.get("path", ".")
                return {
                    str(path.relative_to(self.folder)): path.read_text()
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                }
            case "read_many_files":
                return [
                    path.read_text()
                    for name in given["paths"]
                    for path in (
                        sorted((self.folder / name).rglob("*.*"))
                        if (self.folder / name).is_dir()
                        else [self.folder / name]
                    )
                ]
            case "Write":
                (self.folder / given["file_path"]).write_text(given["content"])
                return "done"
            case "Bash":
                subprocess.run(
                    given["command"], shell=True, cwd=self.folder, capture_output=True, timeout=60
                )
        return "done"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "a.py").write_text("one")
    (tmp_path / "docs" / "d.md").write_text("one")
    return World(tmp_path)


class TestCodingAgent:
    def test_is_taken_whole(self, world: World) -> None:
        assert not world("Read", file_path="src/a.py").cached
        assert world("Read", file_path="src/a.py").cached

    def test_write_is_seen_by_reads_and_searches(self, world: World) -> None:
        """R14: by another spelling of the path."""
        world("Read", file_path="src/a.py")
        world("Grep", pattern="o", path="src")
        world("LS", path="docs")
        world("Write", file_path=str(world.folder / "src/../src/a.py"), content="three")

        assert world("Read", file_path="src/a.py").content == "three"
        assert world("Grep", pattern="o", path="src").content == {"src/a.py": "three"}
        assert world("LS", path="docs").cached

    @pytest.mark.parametrize("command", ["git status", "ls src", "cat src/a.py", "pwd"])
    def test_harmless_command_leaves_all_as_it_is(self, world: World, command: str) -> None:
        world("Read", file_path="src/a.py")
        world("LS")
        world("Bash", command=command)

        assert world("Read", file_path="src/a.py").cached and world("LS").cached

    def test_any_other_command_forgets_what_was_read_from_files(self, world: World) -> None:
        """R15"""
        world("LS")
        world("Bash", command="git status; echo three > src/a.py")

        assert world("LS").content["src/a.py"] == "three\n"

    @pytest.mark.parametrize("name", ["Task", "WebSearch", "create_directory", "mcp__x__y"])
    def test_tool_that_is_not_named_may_have_done_anything(self, world: World, name: str) -> None:
        """R13"""
        world("LS")
        world(name)

        assert not world("LS").cached

    @pytest.mark.parametrize("name", sorted(NEUTRAL))
    def test_neutral_tool_leaves_all_as_it_is(self, world: World, name: str) -> None:
        world("LS")
        world(name)

        assert world("LS").cached

    @pytest.mark.parametrize("folder", ["docs", "docs/"])
    def test_folder_among_many_files_stands_for_all_below_it(
        self, world: World, folder: str
    ) -> None:
        """Gemini CLI takes folders in *paths*, and reads what is in them."""
        assert world("read_many_files", paths=["src/a.py", folder]).content == ["one", "one"]
        world("Write", file_path="docs/d.md", content="three")

        assert world("read_many_files", paths=["src/a.py", folder]).content == ["one", "three"]


class TestPatch:
    """What Codex' tool for edits hands over."""

    def test_names_the_files_that_it_adds_changes_moves_and_deletes(self) -> None:
        patch = (
            "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/b.py\n@@\n-x\n+y\n"
            "*** Add File: new file.py\n+*** Delete File: no.py\n*** Delete File: old.py\n*** End Patch\n"
        )

        found = WRITES["apply_patch"]({"command": patch}, "/srv")

        assert found == ["src/a.py", "src/b.py", "new file.py", "old.py"]

    @pytest.mark.parametrize(
        "arguments",
        [{}, {"command": ""}, {"command": "*** Update File: \n"}, {"command": ["apply_patch"]}],
        ids=["nothing", "empty", "no-name", "no-text"],
    )
    def test_without_names_touches_what_nobody_knows(self, arguments: dict[str, Any]) -> None:
        assert WRITES["apply_patch"](arguments, "/srv") is None
