"""The audit: each kind of damage is found at its place, repaired with a copy, and then gone."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from respcache import Cache, LockTimeoutError, StoreError, ToolCache, ToolCall, Tree, _verify
from respcache._rules import Removal
from respcache._stores import new_id
from respcache._verify import audit, repair

QUESTIONS = {"bat": "a flying mammal", "cat": {"legs": 4}, "dog": "Wau é", "eel": "long"}
FLAT = b'{\n  "bat": "a flying mammal",\n  "cat": "miau"\n}'
FORMATS = [pytest.param("a.json", id="document"), pytest.param("a.jsonl", id="log")]

needs_posix = pytest.mark.skipif(os.name == "nt", reason="needs flock, links and modes")


def make(file: Path) -> Path:
    """Write a healthy file: two stores, a removal, a batch, a tool result."""
    with Cache(file, fsync=False) as cache:
        cache.store("bat", QUESTIONS["bat"], ttl=1e9)
        cache.store("cat", QUESTIONS["cat"], context={"model": "m"})
        cache.forget("elephant")
        cache.store_many([("dog", QUESTIONS["dog"]), ("eel", QUESTIONS["eel"])])
    with ToolCache(file, reads={"Read": ["a.txt"]}, fsync=False) as tools:
        tools.call(ToolCall("Read", {}), lambda call: "content")
    return file


def change(file: Path, old: bytes, new: bytes) -> bytes:
    data = file.read_bytes()
    assert data.count(old) == 1
    file.write_bytes(data.replace(old, new))
    return data


def place_of(file: Path, what: bytes) -> tuple[int, int]:
    """Return the number of the line that has *what*, and the byte where it begins."""
    data = file.read_bytes()
    start = data.rfind(b"\n", 0, data.index(what)) + 1
    return data.count(b"\n", 0, start) + 1, start


def bad(file: Path) -> list[tuple[str, int | None, int | None]]:
    return [(each.kind, each.line, each.byte) for each in audit(file).findings if each.is_bad]


def copies(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.corrupt-*"))


def fix(file: Path) -> list[str]:
    made = repair(audit(file))
    report = audit(file)

    assert [str(each) for each in report.findings if each.is_bad] == []
    assert report.is_good
    return made


# Healthy files.


@pytest.mark.parametrize("name", FORMATS)
def test_healthy_file_is_good_and_counted(tmp_path: Path, name: str) -> None:
    file = make(tmp_path / name)
    report = audit(file)

    assert report.is_good
    assert report.findings == []
    assert report.exists
    assert report.format == ("document" if name == "a.json" else "log")
    assert report.entries == 5
    assert report.size == file.stat().st_size
    assert report.lines == len(file.read_bytes().splitlines())
    assert report.dead == report.repaired == report.damaged == 0


def test_dead_lines_of_a_log_are_those_of_entries_that_count_no_more(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    with Cache(file) as cache:
        cache.store("dog", "Wuff")  # replaces
        cache.forget("eel")
    report = audit(file)

    assert report.is_good
    assert report.entries == 4
    assert report.dead == 2


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="none"),
        pytest.param(b"", id="no-bytes"),
        pytest.param(b" \n", id="white-space"),
        pytest.param(b"{}", id="empty-object"),
    ],
)
def test_no_file_or_an_empty_one_is_a_good_empty_cache(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "a.json"
    if data is not None:
        file.write_bytes(data)
    report = audit(file)

    assert report.is_good
    assert report.exists is (data is not None)
    assert report.entries == 0


def test_flat_file_is_good_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(FLAT)
    report = audit(file)
    made = repair(report)

    assert (report.is_good, report.format, report.entries) == (True, "flat", 2)
    assert made == []
    assert file.read_bytes() == FLAT


@pytest.mark.parametrize("name", FORMATS)
def test_audit_makes_and_changes_nothing(tmp_path: Path, name: str) -> None:
    audit(tmp_path / name)

    assert list(tmp_path.iterdir()) == []

    file = make(tmp_path / name)
    file.write_bytes(file.read_bytes()[:-40])
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    audit(file)

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_edited_document_that_can_be_read_lacks_its_seal_and_gets_it_back(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    before = change(file, b"a flying mammal", b"a mammal")

    assert [kind for kind, _, _ in bad(file)] == ["mark"]

    (copy,) = fix(file)

    assert Path(copy).read_bytes() == before.replace(b"a flying mammal", b"a mammal")
    assert Cache(file).get("bat") == "a mammal"


# Damage to documents.


def test_flipped_bit_in_a_text_of_a_document_is_found_by_the_checksum(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    change(file, b"flying", b"flyinf")
    report = audit(file)

    assert [each.kind for each in report.findings] == ["mark"]
    assert "checksum" in report.findings[0].why
    assert len(fix(file)) == 1


def test_flipped_bit_that_breaks_an_entry_is_found_in_its_line(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    change(file, b'"a flying mammal"', b'"a flying mammal#')
    damaged = file.read_bytes()

    assert bad(file)[0] == ("damaged", *place_of(file, b"flying"))
    assert audit(file).damaged == 1

    (copy,) = fix(file)

    assert Path(copy).read_bytes() == damaged
    assert Cache(file).get("bat") is None
    assert Cache(file).get("dog") == QUESTIONS["dog"]


def test_entry_that_is_json_but_no_entry_is_found_where_it_stands(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    data = file.read_bytes()
    start = data.index(b'"q//1f//dog')
    file.write_bytes(data[:start] + data[start:].replace(b'"stored_at"', b'"stored_ax"', 1))

    assert bad(file)[0] == ("damaged", *place_of(file, b"1f//dog"))
    assert len(fix(file)) == 1


def test_cut_document_lacks_its_end_mark_and_its_last_line_is_damaged(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"t//') + 30])
    report = audit(file)

    assert [each.kind for each in report.findings] == ["damaged", "mark"]
    assert report.findings[0].line == place_of(file, b'"t//')[0]
    assert "no end mark" in report.findings[1].why
    assert report.entries == 4
    assert len(fix(file)) == 1


def test_missing_end_mark_alone_is_told_and_written_again(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    data = file.read_bytes()
    at = data.rindex(b'"end": ')
    file.write_bytes(data[: at - len(b",\n")] + b"}\n")

    assert [kind for kind, _, _ in bad(file)] == ["mark"]

    assert len(fix(file)) == 1
    assert b'"end": ' in file.read_bytes()
    assert len(Cache(file)) == 4  # and one of a tool


def test_foreign_line_in_a_document_is_found(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    change(file, b'"q//1f//dog', b'hello from vi\n"q//1f//dog')

    assert bad(file)[0] == ("damaged", *place_of(file, b"hello from vi"))
    assert len(fix(file)) == 1
    assert Cache(file).get("dog") == QUESTIONS["dog"]


def test_damaged_header_of_a_document_is_found(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    change(file, b'"limits": {', b'"limits": [')

    assert ("damaged", 1, 0) in bad(file)
    assert len(fix(file)) == 1


def test_bytes_that_are_not_utf8_are_found_in_their_line(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    change(file, "Wau é".encode(), b"Wau \xe9")

    assert bad(file)[0] == ("damaged", *place_of(file, b"Wau"))
    assert len(fix(file)) == 1


def test_document_that_was_formatted_anew_names_only_the_entry_that_is_none(tmp_path: Path) -> None:
    import json

    file = make(tmp_path / "a.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    document["entries"]["q//1f//dog"]["id"] = 5
    file.write_text(json.dumps(document, indent=2), encoding="utf-8")
    at = file.read_bytes().index(b'"q//1f//dog')

    assert bad(file)[0] == ("damaged", place_of(file, b"q//1f//dog")[0], at)
    assert audit(file).damaged == 1
    assert len(fix(file)) == 1


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        pytest.param(b'{"a": "b", "c": ', ["damaged"], id="cut"),
        pytest.param(b'{"a": "b"} and more', ["damaged"], id="foreign-text"),
        pytest.param(b'{"a": "b", "": "c"', ["damaged"], id="no-brace"),
        pytest.param(b'{"a": "b", "c": "\xe9"}', ["damaged"], id="not-UTF-8"),
    ],
)
def test_damaged_flat_file_is_found_and_what_can_be_read_stays(
    tmp_path: Path, data: bytes, kinds: list[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(data)
    report = audit(file)

    assert report.format == "flat"
    assert [each.kind for each in report.findings] == kinds
    assert report.entries >= 1

    (copy,) = fix(file)

    assert Path(copy).read_bytes() == data
    assert Cache(file, format="flat").get("a") == "b"


def test_response_of_a_flat_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(FLAT.replace(b'"miau"', b"5"))
    with Cache(file, format="flat"):
        report = audit(file)

    assert [(each.kind, each.line) for each in report.findings if each.is_bad][:1] == [
        ("damaged", 3)
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"hello", id="no-JSON"),
        pytest.param(b"[1, 2]", id="list"),
        pytest.param(b"\0" * 512, id="NULs"),
        pytest.param(b'{"a":' * 100_000, id="deeply-nested"),
        pytest.param(b'{"q": 1}\n{"q": 2}\n', id="other-JSON-Lines"),
        pytest.param(b'{"respcache": 1}', id="no-entries"),
        pytest.param(b'{"respcache": 1, "entries": {"q//1f//bat": 5}}', id="no-entry"),
        pytest.param(b'{"respcache": 1, "entries": {"\\ud800": {}}}', id="lone-surrogate"),
        pytest.param(b'{"respcache": 1, "x": ' + b"9" * 5000 + b"}", id="long-number"),
    ],
)
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_cache_file_is_damaged_and_set_aside(
    tmp_path: Path, name: str, data: bytes
) -> None:
    file = tmp_path / name
    file.write_bytes(data)

    assert audit(file).damaged >= 1

    (copy,) = fix(file)

    assert Path(copy).read_bytes() == data


# Damage to logs.


@pytest.mark.parametrize(
    "what", [pytest.param(b"flying", id="text"), pytest.param(b"1000000000", id="fact")]
)
def test_flipped_bit_in_a_line_of_a_log_is_found_and_the_rest_stays(
    tmp_path: Path, what: bytes
) -> None:
    file = make(tmp_path / "a.jsonl")
    change(file, what, what[:-2] + bytes([what[-2] ^ 1]) + what[-1:])
    damaged = file.read_bytes()
    report = audit(file)

    assert bad(file) == [("damaged", *place_of(file, b"1f//bat"))]
    assert "checksum" in report.findings[0].why

    (copy,) = fix(file)

    assert Path(copy).read_bytes() == damaged
    assert Cache(file).get("bat") is None
    assert Cache(file).get("dog") == QUESTIONS["dog"]


def test_each_damaged_line_of_a_log_is_named(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    change(file, b"flying", b"flyinf")
    change(file, b"Wau", b"Wao")

    assert [(kind, line) for kind, line, _ in bad(file)] == [
        ("damaged", place_of(file, b"1f//bat")[0]),
        ("damaged", place_of(file, b"1f//dog")[0]),
    ]
    assert audit(file).damaged == 2
    assert len(fix(file)) == 1


def test_foreign_line_in_a_log_is_found(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    with file.open("ab") as out:
        out.write(b"hello from a shell\n")
    report = audit(file)

    assert bad(file) == [("damaged", *place_of(file, b"hello from"))]
    assert "no line of a log" in report.findings[0].why
    assert report.entries == 0
    assert len(fix(file)) == 1


def test_damaged_header_of_a_log_is_found(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    change(file, b'"limits": {', b'"limits": [')

    assert bad(file) == [("damaged", 1, 0)]
    assert len(fix(file)) == 1
    assert Cache(file).get("dog") == QUESTIONS["dog"]


@pytest.mark.parametrize(
    "cut",
    [pytest.param(-1, id="newline"), pytest.param(-40, id="half-a-line")],
)
def test_torn_tail_is_ended_by_a_mark_and_counted_from_then_on(tmp_path: Path, cut: int) -> None:
    file = make(tmp_path / "a.jsonl")
    torn = file.read_bytes()[:cut]
    file.write_bytes(torn)

    assert bad(file) == [("torn", *place_of(file, b"{" + b'"t//'))]

    assert fix(file) == []  # nothing is taken away, so there is nothing to keep a copy of
    assert file.read_bytes().startswith(torn)
    assert audit(file).repaired == 1
    assert Cache(file).get("dog") == QUESTIONS["dog"]


def test_batch_whose_last_line_was_never_written_is_a_torn_tail(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    Cache(file).store_many([("fox", "red"), ("gnu", "big")])
    _, start = place_of(file, b"1f//fox")
    _, last = place_of(file, b"1f//gnu")
    file.write_bytes(file.read_bytes()[:last])
    report = audit(file)

    assert bad(file) == [("torn", *place_of(file, b"1f//fox"))]
    assert report.entries == 5
    assert str(last - start) in report.findings[0].why
    assert report.lines == len(file.read_bytes().splitlines())
    assert fix(file) == []
    assert Cache(file).get("bat") == QUESTIONS["bat"]


def test_torn_tail_is_found_where_the_lock_is_not_there_any_more(tmp_path: Path) -> None:
    file = make(tmp_path / "a.jsonl")
    file.write_bytes(file.read_bytes()[:-40])
    os.unlink(f"{file}.lock")

    assert [kind for kind, _, _ in bad(file)] == ["torn"]


@needs_posix
def test_line_that_is_being_written_is_no_torn_tail(tmp_path: Path) -> None:
    """A writer has written half a line, and holds the lock until the rest is there."""
    import fcntl

    file = make(tmp_path / "a.jsonl")
    data = file.read_bytes()
    file.write_bytes(data[:-40])
    honest = _verify._Lines._lines
    passes = []

    def writer_goes_on(self: _verify._Lines, out, *, is_final: bool) -> None:
        if is_final:
            with open(f"{file}.lock", "r+") as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        passes.append(is_final)
        honest(self, out, is_final=is_final)
        if not is_final:
            with file.open("ab") as rest:
                rest.write(data[-40:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_verify._Lines, "_lines", writer_goes_on)
        report = audit(file)

    assert passes == [False, True]
    assert report.is_good
    assert report.entries == 5
    assert report.lines == len(data.splitlines())


def test_whole_line_that_says_nothing_known_is_a_note(tmp_path: Path) -> None:
    from respcache._stores.log_lines import seal

    file = make(tmp_path / "a.jsonl")
    with file.open("ab") as out:
        out.write(seal(b'"q//1f//x": {"response": 1, "question": 5}', 0, 0))
    report = audit(file)

    assert report.is_good
    assert [each.kind for each in report.findings] == ["unknown"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_single_flipped_byte_is_found_and_repaired(tmp_path: Path, name: str) -> None:
    """At 40 places that are spread over the file."""
    file = make(tmp_path / name)
    data = file.read_bytes()
    unseen = []
    for at in range(3, len(data), len(data) // 40):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        report = audit(file)
        if report.is_good:
            unseen.append(at)
        elif not any(each.kind == "version" for each in report.findings):
            fix(file)
        for each in copies(file):
            each.unlink()

    assert unseen == []


@pytest.mark.parametrize("name", FORMATS)
def test_file_cut_at_any_place_is_found_and_repaired(tmp_path: Path, name: str) -> None:
    file = make(tmp_path / name)
    data = file.read_bytes()
    commits = _commit_ends(data) if name == "a.jsonl" else ()
    for at in range(1, len(data), len(data) // 40):
        file.write_bytes(data[:at])
        if at not in commits:
            assert not audit(file).is_good, at
        fix(file)
        for each in copies(file):
            each.unlink()


def _commit_ends(data: bytes) -> list[int]:
    """Return where a log may end: a writer that had got so far had committed all of it."""
    return [at + 1 for at, byte in enumerate(data) if byte == 10]


# Versions, and what can't be read.


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("a.json", '{"respcache": 99, "entries": {}}', id="document"),
        pytest.param("a.jsonl", '{"respcache": 99, "log": true}\n', id="log"),
    ],
)
def test_newer_version_is_told_and_left_alone(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    report = audit(file)

    assert [(each.kind, each.is_bad) for each in report.findings] == [("version", True)]
    assert "upgrade" in report.findings[0].why
    with pytest.raises(StoreError, match="newer respcache"):
        repair(report)
    assert file.read_text() == text


def test_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()

    assert bad(tmp_path / "a.json") == [("unreadable", None, None)]


# The lock.


@needs_posix
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("suffix", [".lock", ".flight"])
def test_symlink_in_the_place_of_a_lock_is_removed_and_its_target_is_not(
    tmp_path: Path, name: str, suffix: str
) -> None:
    file = make(tmp_path / name)
    target = tmp_path / "precious"
    target.write_text("mine")
    lock = Path(f"{file}{suffix}")
    lock.unlink(missing_ok=True)
    lock.symlink_to(target)
    report = audit(file)

    assert [each.kind for each in report.findings if each.is_bad] == ["lock"]
    assert str(target) in report.findings[0].why

    fix(file)

    assert not lock.is_symlink()
    assert target.read_text() == "mine"
    assert Cache(file).get("dog") == QUESTIONS["dog"]


@needs_posix
def test_folder_in_the_place_of_the_lock_is_told_and_stays(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    os.unlink(f"{file}.lock")
    os.mkdir(f"{file}.lock")

    assert bad(file) == [("lock", None, None)]
    with pytest.raises(StoreError):
        repair(audit(file))


@needs_posix
def test_symlinked_lock_of_a_file_that_is_not_there_makes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    os.symlink(tmp_path / "elsewhere", f"{file}.lock")

    assert bad(file) == [("lock", None, None)]

    fix(file)

    assert list(tmp_path.iterdir()) == []


@needs_posix
def test_process_that_holds_the_lock_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_verify, "_PATIENCE", 0.01)
    file = make(tmp_path / "a.json")
    source = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", source, f"{file}.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        report = audit(file)
        with pytest.raises(LockTimeoutError), pytest.MonkeyPatch.context() as patch:
            patch.setattr(_verify, "Cache", lambda *a, **o: Cache(*a, **o, lock_timeout=0.01))
            repair(report)
        holder.stdin.close()

    assert [each.kind for each in report.findings] == ["busy"]
    if os.path.exists("/proc/locks"):
        assert f"process {holder.pid} (" in report.findings[0].why
    assert audit(file).is_good


@needs_posix
def test_torn_tail_is_not_judged_while_somebody_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(_verify, "_PATIENCE", 0.01)
    file = make(tmp_path / "a.jsonl")
    file.write_bytes(file.read_bytes()[:-40])
    with open(f"{file}.lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = audit(file)

    assert [each.kind for each in report.findings] == ["busy"]


# Beside the file.


def test_leftovers_are_notes_and_temp_files_are_swept(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    temp = tmp_path / f"a.json.{'0' * 16}.tmp"
    copy = tmp_path / "a.json.corrupt-20261129-213358-000000001"
    for each in (temp, copy, tmp_path / "a.json.tmp"):
        each.write_text("")
    report = audit(file)

    assert report.is_good
    assert [each.kind for each in report.findings] == ["leftover", "copy"]
    assert copy.name in report.findings[1].why

    assert fix(file) == []
    assert not temp.exists()
    assert copy.exists()
    assert (tmp_path / "a.json.tmp").exists()


@needs_posix
def test_permissions_are_told_and_those_for_anybody_noted(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    file = make(tmp_path / "a.json")

    assert audit(file).modes == {"file": "0600", "folder": "0700", "lock": "0600"}

    file.chmod(0o666)
    os.chmod(f"{file}.lock", 0o602)
    tmp_path.chmod(0o777)
    report = audit(file)
    tmp_path.chmod(0o700)

    assert report.is_good
    assert [each.kind for each in report.findings] == ["permission"] * 3


@needs_posix
def test_write_protected_file_is_noted(tmp_path: Path) -> None:
    file = make(tmp_path / "a.json")
    file.chmod(0o400)
    report = audit(file)

    assert report.is_good
    assert "write-protected" in report.findings[0].why


@needs_posix
def test_file_behind_a_link_is_audited_with_what_lies_beside_it(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    file = make(real / "a.json")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    file.write_bytes(file.read_bytes()[:-60])

    assert not audit(link).is_good
    (copy,) = fix(link)
    assert Path(copy).parent == real
    assert link.is_symlink()


# More than one file of each kind.


@pytest.mark.parametrize("name", FORMATS)
def test_write_of_a_tool_that_is_under_way_is_no_damage_and_stays(
    tmp_path: Path, name: str
) -> None:
    file = make(tmp_path / name)
    with Cache(file) as cache:
        cache.store("tree", "x", paths=[Tree(tmp_path)])
    tools = ToolCache(file, writes={"Edit": [str(tmp_path)]})
    seen = []

    def write(call: ToolCall) -> str:
        seen.append(audit(file))
        if name == "a.json":
            change(file, b"flying", b"flyinf")
        else:
            file.write_bytes(file.read_bytes() + b'{"half')
        fix(file)
        seen.append(Cache(file).get("tree"))
        return "done"

    tools.call(ToolCall("Edit", {}), write)
    tools.close()

    assert seen[0].is_good
    assert seen[1] is None
    assert audit(file).is_good


@pytest.mark.parametrize("name", FORMATS)
def test_repair_takes_no_entry_away_and_guards_what_began_before(tmp_path: Path, name: str) -> None:
    file = make(tmp_path / name)
    with Cache(file) as cache:
        cache._do(lambda store: store.remove(Removal(new_id())))

        assert len(cache) == 4


@pytest.mark.parametrize("name", FORMATS)
def test_audit_of_a_file_that_others_write_meanwhile_finds_nothing(
    tmp_path: Path, name: str
) -> None:
    file = make(tmp_path / name)
    is_over = threading.Event()

    def write() -> None:
        with Cache(file, max_entries=50, fsync=False) as cache:
            for number in itertools.count():
                cache.store_many([(f"{number} {part}", "x" * 100) for part in range(3)])
                cache.forget(f"{number} 1")
                if is_over.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [audit(file) for _ in range(20)]
    finally:
        is_over.set()
        writer.join()

    kinds = {each.kind for report in reports for each in report.findings}
    assert kinds <= {"leftover", "busy"}  # a temp file on its way
    assert all(report.exists and report.entries for report in reports)


def test_audit_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verify, "_STEP", 50)
    file = make(tmp_path / "a.jsonl")
    told: list[tuple[int, int | None]] = []
    audit(file, lambda done, total: told.append((done, total)))

    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1][0] <= file.stat().st_size == told[-1][1]
