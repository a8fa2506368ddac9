"""docker-agent's flat file: the same bytes, the same keys, and no more than it can hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from respcache import Cache, ConfigError, Normalizer, StoreError, UncacheableError, _lock

processes = pytest.mark.xdist_group("processes")
SHORT = 0.05
LONG = 60.0


@pytest.fixture
def path(tmp_path):
    """A flat file as docker-agent leaves it."""
    path = tmp_path / "cache.json"
    path.write_bytes(b'{\n  "bye": "ciao",\n  "hello": "world"\n}')
    return path


@pytest.fixture
def make(path, clock):
    def open_cache(at=path, **options) -> Cache:
        return Cache(at, **{"fsync": False, "clock": clock, **options})

    return open_cache


def entries(path) -> dict:
    return json.loads(path.read_bytes())


def as_go_writes(pairs: dict[str, str]) -> bytes:
    """Return what Go's ``json.MarshalIndent(pairs, "", "  ")`` gives for a map of strings."""
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b"}
    short["\f"] = "\\f"

    def quote(text: str) -> str:
        letters = []
        for letter in text:
            if letter in short:
                letters.append(short[letter])
            elif letter < " " or letter in "<>&\u2028\u2029":
                letters.append(f"\\u{ord(letter):04x}")
            else:
                letters.append(letter)
        return '"' + "".join(letters) + '"'

    lines = [
        f"  {quote(key)}: {quote(value)}"
        for key, value in sorted(pairs.items(), key=lambda pair: pair[0].encode())
    ]
    return ("{\n" + ",\n".join(lines) + "\n}" if lines else "{}").encode()


def rewrite(path, pairs: dict[str, str]) -> None:
    """Write *pairs* as docker-agent does, by a temp file and a rename."""
    temp = path.with_name(".cache-123456.json")
    temp.write_bytes(as_go_writes(pairs))
    os.replace(temp, path)


# Reading.


def test_flat_file_is_recognized_and_read(make):
    hit = make().lookup("Hello")

    assert hit.response == "world"
    assert hit.question == "hello"
    assert make().get("BYE") == "ciao"
    assert make().lookup("other") is None


def test_flat_file_has_no_ages(make, clock):
    """E14."""
    cache = make()
    clock.advance(10**9)
    hit = cache.lookup("hello")

    assert hit.stored_at is None
    assert hit.age is None
    assert [(each.question, each.age) for each in cache.entries()] == [
        ("bye", None),
        ("hello", None),
    ]
    assert "unknown time" in cache.explain("hello")


def test_flat_file_is_read_without_being_written(make, path):
    """R20: nor is a lock made."""
    before = path.stat()
    cache = make()
    cache.get("hello")
    len(cache)
    list(cache.entries())
    cache.stats()

    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert os.listdir(path.parent) == ["cache.json"]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"hello":"world"}', id="compact"),
        pytest.param(b'\xef\xbb\xbf{"hello": "world"}\n', id="BOM"),
        pytest.param(b'{"hello": "world", "respcache": "a question"}', id="a question of our name"),
        pytest.param(b'{"respcache": "a question", "hello": "world"}', id="such a first question"),
        pytest.param(b'{\r\n  "hello": "world"\r\n}\r\n', id="CRLF"),
        pytest.param(b'{"hel\\u006co": "w\\u006frld"}', id="escapes"),
    ],
)
def test_any_object_of_texts_is_a_flat_file(make, path, data):
    path.write_bytes(data)
    cache = make()

    assert cache.get("hello") == "world"
    if b"respcache" in data:
        assert cache.get("respcache") == "a question"
    assert cache.store("new", "n") is True
    assert entries(path) == json.loads(data.decode("utf-8-sig")) | {"new": "n"}


def test_rewrite_by_the_other_program_is_seen(make, path):
    """R22."""
    cache = make()
    assert cache.get("hello") == "world"
    rewrite(path, {"hello": "there", "new": "n"})

    assert (cache.get("hello"), cache.get("new"), cache.get("bye")) == ("there", "n", None)


# Writing.


_PAIRS = {
    "hello": "world",
    "b": "<a href='x'>&amp;</a>",
    "a": "\u00e9l\u00e8ve \U0001f600 \u4f60\u597d",
    "controls": "\x00\x01\x08\x0b\x0c\x1b\x1f\x7f\x85\xa0",
    "separators": "\u2028\u2029\ufeff",
    "quotes": '"\\/\n\r\t',
    "<key> & more": "x",
    "\u00e9": "after z",
    "\U0001f600": "last",
    "\uffff": "before it",
    "z": "{\n}",
    "line\nbreak": "x",
}


def test_bytes_are_those_of_gos_encoder(make, path):
    """Indented by two spaces, sorted, without a last newline, ``<>&`` and U+2028 escaped."""
    path.write_bytes(b'{"x": "y"}')
    cache = make(case_sensitive=True)
    cache.forget("x")
    cache.store_many(_PAIRS)

    assert path.read_bytes() == as_go_writes(_PAIRS)
    assert entries(path) == _PAIRS


def test_file_of_one_entry_is_as_docker_agent_writes_it(tmp_path, clock):
    path = tmp_path / "cache.json"
    cache = Cache(path, format="flat", trim_spaces=True, fsync=False, clock=clock)
    cache.store("  Hello  ", "world")

    assert path.read_bytes() == b'{\n  "hello": "world"\n}'


def test_emptied_file_is_an_empty_object(make, path):
    cache = make()
    assert cache.clear() == 2

    assert path.read_bytes() == b"{}"
    assert cache.store("new", "n") is True
    assert path.read_bytes() == b'{\n  "new": "n"\n}'


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cache: cache.store("new", "n"), id="store"),
        pytest.param(lambda cache: cache.store_many({"new": "n", "two": "2"}), id="store_many"),
        pytest.param(lambda cache: cache.forget("hello"), id="forget"),
        pytest.param(lambda cache: cache.invalidate("a.py"), id="invalidate"),
        pytest.param(lambda cache: cache.prune(), id="prune"),
        pytest.param(lambda cache: cache.get_or_call("new", lambda: "n"), id="get_or_call"),
        pytest.param(lambda cache: cache.clear() or cache.store("new", "n"), id="clear"),
    ],
)
def test_flat_file_stays_flat(make, path, change):
    cache = make()
    change(cache)

    assert all(type(value) is str for value in entries(path).values())
    assert path.read_bytes() == as_go_writes(entries(path))
    assert make().lookup("bye") is None or make().get("bye") == "ciao"


def test_stores_and_removals_count_as_elsewhere(make):
    cache = make()
    assert cache.store("new", "n") is True
    assert cache.store("new", "n") is False
    assert cache.store("NEW", "other") is True
    assert cache.forget("new") is True
    assert cache.forget("new") is False
    assert cache.store_many({"one": "1", "two": "2"}) == 2
    assert cache.store_many({"one": "1", "two": "2"}) == 0
    assert cache.store_many({"one": "1", "two": "changed"}) == 1
    assert cache.invalidate("a.py") == 0
    assert cache.clear() == 4
    assert len(cache) == 0


def test_same_answer_again_writes_nothing(make, path):
    """E15."""
    before = path.stat()
    assert make().store("HELLO", "world") is False
    assert make().store_many({"hello": "world", "bye": "ciao"}) == 0
    assert make().forget("nothing") is False
    assert make().invalidate("a.py") == 0

    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_entries_of_the_other_program_are_merged(make, path):
    """R19: ours is added to what is on disk."""
    cache = make()
    cache.get("hello")
    rewrite(path, {"hello": "changed", "theirs": "t"})
    cache.store("ours", "o")

    assert entries(path) == {"hello": "changed", "theirs": "t", "ours": "o"}
    assert (cache.get("theirs"), cache.get("hello")) == ("t", "changed")


def test_limits_hold(make, path):
    cache = make(max_entries=3)
    for number in range(6):
        cache.store(f"q{number}", "a")

    assert len(entries(path)) == 3
    assert "q5" in entries(path)


# Keys, as strings.TrimSpace and strings.ToLower make them.

_KEYS = [
    ("HELLO", "hello"),
    ("\u0130stanbul", "istanbul"),
    ("\u0130", "i"),
    ("\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c3"),
    ("\u03a3", "\u03c3"),
    ("\u03c2", "\u03c2"),
    ("Stra\u00dfe", "stra\u00dfe"),
    ("STRASSE", "strasse"),
    ("\u1e9e", "\u00df"),
    ("\ufb01", "\ufb01"),
    ("\u00c9", "\u00e9"),
    ("E\u0301", "e\u0301"),
    ("\u01c5", "\u01c6"),
    ("\u2126", "\u03c9"),
    ("K", "k"),
    ("\u24b6", "\u24d0"),
    ("\U00010400", "\U00010428"),
    ("\u13a0", "\uab70"),
    ("  two   spaces ", "  two   spaces "),
]


@pytest.mark.parametrize(("question", "key"), _KEYS, ids=[ascii(case[0]) for case in _KEYS])
def test_question_is_lowered_letter_by_letter(make, path, question, key):
    """Not folded: Go knows no final sigma, and U+0130 is one letter."""
    cache = make()
    cache.store(question, "a")

    assert entries(path) == {"bye": "ciao", "hello": "world", key: "a"}
    assert cache.get(key) == cache.get(question) == "a"


_SPACES = [
    *("\t", "\n", "\v", "\f", "\r", " ", "\x85", "\xa0", "\u1680", "\u2000", "\u200a"),
    *("\u2028", "\u2029", "\u202f", "\u205f", "\u3000"),
]
_NO_SPACES = ["\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\ufeff", "\u180e", "\0"]


@pytest.mark.parametrize("space", _SPACES, ids=ascii)
def test_white_space_of_go_is_trimmed(make, path, space):
    make(trim_spaces=True).store(f"{space}a{space}b{space}", "a")

    assert f"a{space}b" in entries(path)


@pytest.mark.parametrize("space", _NO_SPACES, ids=ascii)
def test_what_only_python_takes_for_white_space_is_not_trimmed(make, path, space):
    make(trim_spaces=True).store(f"{space}a{space}", "a")

    assert f"{space}a{space}" in entries(path)


def test_nothing_is_trimmed_or_lowered_unless_asked(make, path):
    make(case_sensitive=True).store(" Hello ", "a")

    assert entries(path)[" Hello "] == "a"
    assert make(case_sensitive=True).lookup("hello ") is None


def test_exact_lookup_needs_keys_that_are_questions(make):
    """What was asked is not kept, only its key."""
    assert make().lookup("hello", exact=True) is None
    assert make(case_sensitive=True).lookup("hello", exact=True).response == "world"


# What it can't hold.


@pytest.mark.parametrize(
    ("response", "options"),
    [
        pytest.param("a", {"context": {"model": "m"}}, id="context"),
        pytest.param("a", {"context": {}}, id="empty context"),
        pytest.param("a", {"paths": ["a.py"]}, id="paths"),
        pytest.param({"a": 1}, {}, id="dict"),
        pytest.param(["a"], {}, id="list"),
        pytest.param(5, {}, id="number"),
        pytest.param(None, {}, id="None"),
        pytest.param(True, {}, id="truth"),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not yet known"])
def test_what_a_flat_file_has_no_place_for_is_an_error(make, path, response, options, is_known):
    """E14: two contexts must not share an entry. Also before the file was looked at."""
    before = path.read_bytes()
    cache = make()
    if is_known:
        cache.lookup("hello")
    with pytest.raises(UncacheableError, match="flat"):
        cache.store("new", response, **options)

    assert path.read_bytes() == before
    assert cache.get("hello") == "world"


def test_batch_with_one_such_entry_is_not_kept_at_all(make, path):
    """E14, E10."""
    before = path.read_bytes()
    with pytest.raises(UncacheableError):
        make().store_many({"one": "1", "two": 2, "three": "3"})

    assert path.read_bytes() == before


def test_lookup_with_a_context_is_a_miss(make):
    """E14."""
    cache = make()

    assert cache.lookup("hello", context={"model": "m"}) is None
    assert cache.lookup("hello", context={}) is None
    assert cache.get("hello") == "world"
    assert cache.forget("hello", context={"model": "m"}) is False
    assert cache.get("hello") == "world"


@pytest.mark.parametrize(
    ("compute", "options"),
    [
        (lambda: "a", {"context": {"model": "m"}}),
        (lambda: {"a": 1}, {}),
        (lambda: "a", {"paths": ["a.py"]}),
    ],
    ids=["context", "dict", "paths"],
)
def test_result_that_a_flat_file_has_no_place_for_is_returned(make, path, compute, options):
    """E14: and counted."""
    before = path.read_bytes()
    cache = make()

    assert cache.get_or_call("new", compute, **options) == compute()
    assert cache.get_or_call("new", compute, **options) == compute()
    assert path.read_bytes() == before
    assert cache.stats()["refused"] == 2


def test_namespace_is_an_error(make, path):
    """E14: a partition that the file does not keep is none."""
    before = path.read_bytes()
    cache = make(namespace="acme")

    assert cache.lookup("hello") is None
    with pytest.raises(ConfigError, match="namespace"):
        cache.store("new", "a")
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="namespace"):
        make(namespace="acme", format="flat")


@pytest.mark.parametrize("normalizer", [Normalizer(form="NFKC"), Normalizer(collapse=True)])
def test_normalizer_that_the_other_program_does_not_know_is_an_error(make, normalizer):
    with pytest.raises(ConfigError, match="fold and trim"):
        make(normalizer=normalizer).store("new", "a")
    with pytest.raises(ConfigError, match="fold and trim"):
        make(normalizer=normalizer, format="flat")


@pytest.mark.parametrize("normalizer", [Normalizer(), Normalizer(fold=False, trim=True)])
def test_normalizer_that_it_knows_is_none(make, path, normalizer):
    assert make(normalizer=normalizer).store(" New", "a") is True
    assert set(entries(path)) > {" new"} or "New" in entries(path)


def test_ttl_never_hits(make, path):
    """E14: an unknown age is never young enough."""
    assert make(ttl=10**9).lookup("hello") is None
    assert make().get("hello") == "world"
    assert make(ttl=10**9).prune() == 0
    assert "hello" in entries(path)


@pytest.mark.parametrize(("own", "given"), [(None, {"ttl": 60}), (60, {}), (60, {"ttl": None})])
def test_store_with_a_ttl_is_refused(make, path, own, given):
    """E14: without its age it would never expire for anybody else."""
    before = path.read_bytes()
    cache = make(ttl=own)
    is_kept = given == {"ttl": None}

    assert cache.store("new", "a", **given) is is_kept
    assert cache.stats()["refused"] == (not is_kept)
    assert (path.read_bytes() == before) is not is_kept
    assert cache.get_or_call("slow", lambda: "s", ttl=60) == "s"
    assert "slow" not in entries(path)


def test_batch_with_a_ttl_is_refused_as_a_whole(make, path):
    """E14."""
    before = path.read_bytes()

    assert make(ttl=60).store_many({"one": "1", "two": "2"}) == 0
    assert path.read_bytes() == before


# Which format a path has.


@pytest.mark.parametrize("name", ["cache.json", "cache.txt", "cache"])
def test_format_that_is_asked_for_is_made(tmp_path, clock, name):
    path = tmp_path / name
    cache = Cache(path, format="flat", fsync=False, clock=clock)
    assert cache.lookup("hello") is None
    assert cache.store("Hello", "world") is True

    assert path.read_bytes() == b'{\n  "hello": "world"\n}'


def test_document_where_a_flat_file_was_asked_for_is_trouble(tmp_path, clock, warnings_of):
    """It is neither read nor written, and no other format is chosen in silence."""
    path = tmp_path / "cache.json"
    Cache(path, fsync=False, clock=clock).store("one", "1")
    before = path.read_bytes()
    cache = Cache(path, format="flat", fsync=False, clock=clock)

    assert cache.lookup("one") is None
    assert cache.store("two", "2") is False
    assert cache.get("two") == "2"
    assert path.read_bytes() == before
    [warning] = warnings_of()
    assert 'leave out format="flat"' in warning
    with pytest.raises(StoreError):
        Cache(path, format="flat", on_error="raise").store("two", "2")


def test_live_cache_follows_the_file_from_one_format_to_the_other(make, path, tmp_path, clock):
    other = tmp_path / "other.json"
    document = Cache(other, fsync=False, clock=clock)
    document.store("doc", {"a": 1}, context={"m": 1})
    document.store("plain", "p")
    as_document, as_flat = other.read_bytes(), path.read_bytes()
    cache = make()

    for _ in range(2):
        assert cache.get("hello") == "world"
        assert cache.lookup("plain") is None
        with pytest.raises(UncacheableError):
            cache.store("rich", {"a": 1})
        assert cache.store("flat again", "f") is True
        assert entries(path) == {"bye": "ciao", "hello": "world", "flat again": "f"}
        path.write_bytes(as_document)
        assert cache.get("doc", context={"m": 1}) == {"a": 1}
        assert (cache.get("plain"), cache.get("hello")) == ("p", None)
        assert cache.store("rich", {"a": 1}) is True
        assert cache.store("old", "o", ttl=60) is True
        assert path.read_bytes().startswith(b'{"respcache": 1')
        assert cache.lookup("plain").age is not None
        path.write_bytes(as_flat)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda cache: cache.store("new", "n"), id="store"),
        pytest.param(lambda cache: cache.store_many({"new": "n"}), id="store_many"),
        pytest.param(lambda cache: cache.get_or_call("new", lambda: "n"), id="get_or_call"),
        pytest.param(lambda cache: cache.forget("hello"), id="forget"),
        pytest.param(lambda cache: cache.invalidate("a.py"), id="invalidate"),
        pytest.param(lambda cache: cache.clear(), id="clear"),
        pytest.param(lambda cache: list(cache.entries()), id="entries"),
        pytest.param(lambda cache: len(cache), id="len"),
        pytest.param(lambda cache: cache.prune(), id="prune"),
        pytest.param(lambda cache: cache.flush(), id="flush"),
        pytest.param(lambda cache: cache.explain("hello"), id="explain"),
        pytest.param(lambda cache: cache.stats(), id="stats"),
    ],
)
def test_first_use_of_any_kind_recognizes_the_format(make, path, use):
    use(make())

    assert all(type(value) is str for value in entries(path).values())


def test_what_is_pending_goes_along_when_the_format_changes(make, path, tmp_path, clock):
    """What could not be committed is neither dropped nor served under the wrong key."""
    fcntl = pytest.importorskip("fcntl")
    document = tmp_path / "other.json"
    Cache(document, fsync=False, clock=clock).store("plain", "p")
    cache = make(lock_timeout=SHORT)
    cache.get("hello")
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert cache.store("New", "n") is False
        assert cache.get("new") == "n"
        os.replace(document, path)
        assert cache.get("plain") == "p"
    finally:
        os.close(fd)

    assert cache.get("new") == "n"
    assert cache.flush() is True
    assert make().get("new") == "n"


# Moving entries.


def test_flat_file_is_exported_to_a_document(make, tmp_path, clock):
    target = tmp_path / "document.json"
    assert make().export(target) == 2
    assert make().export(target) in (0, 2)
    cache = Cache(target, clock=clock)

    assert target.read_bytes().startswith(b'{"respcache": 1')
    assert (cache.get("hello"), cache.get("bye")) == ("world", "ciao")
    assert cache.lookup("hello").age == 0


def test_document_is_exported_to_a_flat_file(make, path, tmp_path, clock):
    source = Cache(tmp_path / "document.json", fsync=False, clock=clock)
    source.store_many({"Hello": "changed", "New": "n"})

    assert source.export(path) == 2
    assert entries(path) == {"bye": "ciao", "hello": "changed", "new": "n"}


def test_flat_file_is_merged_into_a_document(path, tmp_path, clock):
    """What is there already wins."""
    cache = Cache(tmp_path / "document.json", fsync=False, clock=clock)
    cache.store("Hello", "ours")

    assert cache.merge(path) == 1
    assert (cache.get("hello"), cache.get("bye")) == ("ours", "ciao")


def test_document_is_merged_into_a_flat_file(make, path, tmp_path, clock):
    source = tmp_path / "document.json"
    Cache(source, fsync=False, clock=clock).store_many({"Hello": "changed", "New": "n"})
    cache = make()

    assert cache.merge(source) == 1
    assert entries(path) == {"bye": "ciao", "hello": "world", "new": "n"}


def test_flat_file_is_merged_into_a_flat_file(make, path, tmp_path):
    other = tmp_path / "other.json"
    other.write_bytes(as_go_writes({"hello": "theirs", "more": "m"}))
    assert make().merge(other) == 1

    assert entries(path) == {"bye": "ciao", "hello": "world", "more": "m"}


@pytest.mark.parametrize(
    ("response", "options"),
    [
        pytest.param({"a": 1}, {}, id="dict"),
        pytest.param("a", {"context": {"m": 1}}, id="context"),
        pytest.param("a", {"paths": ["a.py"]}, id="paths"),
    ],
)
def test_export_of_what_a_flat_file_has_no_place_for_is_an_error(
    path, tmp_path, clock, response, options
):
    """E14."""
    before = path.read_bytes()
    source = Cache(tmp_path / "document.json", fsync=False, clock=clock)
    source.store("plain", "p")
    source.store("rich", response, **options)

    with pytest.raises(UncacheableError):
        source.export(path)
    assert path.read_bytes() == before


def test_export_of_a_namespace_to_a_flat_file_is_an_error(path, tmp_path, clock):
    """E14: there everybody would be served what was kept apart."""
    before = path.read_bytes()
    source = Cache(tmp_path / "document.json", namespace="acme", fsync=False, clock=clock)
    source.store("secret", "s")

    with pytest.raises((UncacheableError, ConfigError)):
        source.export(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not yet known"])
def test_merge_into_a_flat_file_leaves_namespaces_where_they_are(
    make, path, tmp_path, clock, is_known
):
    """E14: only the shared one is this cache's own."""
    source = tmp_path / "document.json"
    Cache(source, fsync=False, clock=clock).store("shared", "s")
    Cache(source, namespace="acme", fsync=False, clock=clock).store("secret", "s")

    cache = make()
    if is_known:
        cache.lookup("hello")

    assert cache.merge(source) == 1
    assert set(entries(path)) == {"bye", "hello", "shared"}


def test_entries_with_a_ttl_do_not_move_into_a_flat_file(make, path, tmp_path, clock):
    """E14."""
    source = tmp_path / "document.json"
    cache = Cache(source, fsync=False, clock=clock)
    cache.store("short", "s", ttl=60)
    cache.store("lasting", "l")

    assert cache.export(path) == 1
    assert set(entries(path)) == {"bye", "hello", "lasting"}
    assert make().merge(source) == 0


# The lock of both programs.


def test_lock_is_the_other_programs_lock(make, path, monkeypatch):
    """Go takes ``flock`` on the sibling; it is made 0600, stays, and holds nothing."""
    fcntl = pytest.importorskip("fcntl")
    make().store("new", "n")
    lock = path.with_name("cache.json.lock")
    inode = lock.stat().st_ino
    fd = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        before = path.read_bytes()
        cache = make(lock_timeout=SHORT)
        assert cache.store("waits", "w") is False
        assert cache.forget("hello") is True
        assert (cache.get("waits"), cache.lookup("hello")) == ("w", None)
        assert path.read_bytes() == before
    finally:
        os.close(fd)
    assert cache.flush() is True

    assert entries(path) == {"bye": "ciao", "new": "n", "waits": "w"}
    assert lock.stat().st_ino == inode
    assert lock.stat().st_size == 0
    assert lock.stat().st_mode & 0o777 == 0o600


def test_pending_entry_does_not_overwrite_the_other_programs_newer_one(make, path):
    """E03: an entry is known by its text there."""
    fcntl = pytest.importorskip("fcntl")
    cache = make(lock_timeout=SHORT)
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        cache.store("hello", "ours")
        cache.store("new", "n")
        rewrite(path, {"hello": "theirs"})
    finally:
        os.close(fd)

    assert cache.get("hello") == "theirs"
    assert cache.flush() is True
    assert entries(path) == {"hello": "theirs", "new": "n"}


def test_removal_that_waited_is_carried_out_once(make, path, monkeypatch):
    """E04, R19: a thread that comes late with it does not take a newer answer away."""
    fcntl = pytest.importorskip("fcntl")
    cache = make(lock_timeout=SHORT)
    fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        cache.forget("hello")
    finally:
        os.close(fd)
    reached, go_on = threading.Event(), threading.Event()
    real = _lock.FileLock.run

    def run(self, work, *given):
        if threading.current_thread() is late and not reached.is_set():
            reached.set()
            assert go_on.wait(LONG)
        return real(self, work, *given)

    late = threading.Thread(target=cache.store, args=("late", "l"))
    with monkeypatch.context() as patch:
        patch.setattr(_lock.FileLock, "run", run)
        late.start()
        try:
            assert reached.wait(LONG)
            assert cache.flush() is True
            assert cache.store("hello", "newer") is True
        finally:
            go_on.set()
            late.join(LONG)

    assert cache.get("hello") == "newer"
    assert entries(path)["late"] == "l"


_STORES = """
import sys
from respcache import Cache
path, name = sys.argv[1:]
cache = Cache(path, fsync=False, lock_timeout=60.0)
assert all(cache.store(f"{name} {number}", "a") for number in range(30))
assert all(cache.get(f"{name} {number}") == "a" for number in range(30))
"""


@processes
def test_processes_lose_nothing_of_each_other(path):
    """R19."""
    children = [
        subprocess.Popen([sys.executable, "-c", _STORES, str(path), name]) for name in "wxyz"
    ]
    try:
        codes = [child.wait(LONG) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()

    assert codes == [0] * 4
    assert len(entries(path)) == 2 + 4 * 30


# Damage.


def asides(path) -> list[str]:
    return [name for name in os.listdir(path.parent) if ".corrupt-" in name]


_DAMAGE = [
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": "wor', {"bye": "ciao"}, id="cut off"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": "world"\n}}', None, id="a brace too many"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": "world"\n', None, id="no last brace"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": 5\n}', {"bye": "ciao"}, id="a number"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": null\n}', {"bye": "ciao"}, id="null"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": "\xe9"\n}', {"bye": "ciao"}, id="no UTF-8"),
    pytest.param(b'{\n  "bye": "ciao",\n  "hello": "\\ud800"\n}', {"bye": "ciao"}, id="surrogate"),
    pytest.param(b'{\n  "bye": "ciao",\n  hello: "world"\n}', {"bye": "ciao"}, id="no quotes"),
]


@pytest.mark.parametrize("when", ["live", "asked for", "fresh"])
@pytest.mark.parametrize(("data", "left"), _DAMAGE)
def test_damaged_flat_file_keeps_what_can_be_read_and_stays_flat(
    make, path, warnings_of, data, left, when
):
    """R21: else the other program could not read it any more."""
    left = {"bye": "ciao", "hello": "world"} if left is None else left
    cache = make(format="flat" if when == "asked for" else None)
    if when == "live":
        assert cache.get("hello") == "world"
    path.write_bytes(data)

    assert (cache.get("bye"), cache.get("hello")) == ("ciao", left.get("hello"))
    assert path.read_bytes() == data
    assert cache.store("new", "n") is True
    assert path.read_bytes() == as_go_writes(left | {"new": "n"})
    [aside] = asides(path)
    assert path.with_name(aside).read_bytes() == data
    assert len(warnings_of()) == 1


@pytest.mark.parametrize("data", [b"{", b"\xe9", b"[]", b"null", b"5", b'{"a": 5}'])
def test_damaged_file_where_a_flat_one_was_asked_for_is_an_empty_one(make, path, data):
    """R21."""
    path.write_bytes(data)
    cache = make(format="flat")

    assert cache.lookup("hello") is None
    assert cache.store("new", "n") is True
    assert path.read_bytes() == b'{\n  "new": "n"\n}'
    assert len(asides(path)) == 1


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b" { } "])
def test_empty_flat_file_is_an_empty_cache(make, path, data, warnings_of):
    path.write_bytes(data)
    cache = make(format="flat")

    assert cache.lookup("hello") is None
    assert cache.store("new", "n") is True
    assert path.read_bytes() == b'{\n  "new": "n"\n}'
    assert asides(path) == []
    assert warnings_of() == []
