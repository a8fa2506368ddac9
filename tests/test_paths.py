"""Files that answers were read from: what counts as changed, and by which names they are known."""

from __future__ import annotations

import os
import stat

import pytest

from respcache import Cache, Tree, UncacheableError
from respcache._paths import absolute, is_unchanged, sign, signature, spellings


@pytest.fixture
def cache(tmp_path, clock):
    return Cache(tmp_path / "cache" / "answers.json", fsync=False, clock=clock)


@pytest.fixture
def memory(clock):
    return Cache(clock=clock)


@pytest.fixture(params=["file", "memory"])
def either(request, cache, memory):
    """A cache in a file, and one in memory: paths mean the same to both."""
    return cache if request.param == "file" else memory


@pytest.fixture
def work(tmp_path):
    """A working folder with a few files and links."""
    work = tmp_path / "work"
    (work / "folder" / "deep").mkdir(parents=True)
    (work / "a.py").write_text("a")
    (work / "folder" / "b.py").write_text("b")
    (work / "folder" / "deep" / "c.py").write_text("c")
    (work / "link.py").symlink_to("a.py")
    (work / "folder link").symlink_to("folder")
    return work


def settle(path) -> None:
    """Wait until the file system's clock has gone on, so that a change gets a new stamp."""
    probe = path.parent / ".probe"
    before = path.stat().st_ctime_ns
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > before:
            break
    probe.unlink()


# What counts as changed.


def _rewrite(path):
    path.write_text("another text")


def _rewrite_same_size(path):
    path.write_text("z")


def _append(path):
    with open(path, "a") as file:
        file.write("+")


def _truncate(path):
    os.truncate(path, 0)


def _touch(path):
    os.utime(path)


def _set_back(path):
    os.utime(path, (0, 0))


def _rewrite_and_set_mtime_back(path):
    before = path.stat()
    path.write_text("z")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace_by_the_same(path):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(copy, path)


def _delete(path):
    path.unlink()


def _delete_and_make_anew(path):
    text = path.read_text()
    path.unlink()
    path.write_text(text)


def _change_mode(path):
    path.chmod(0o640 if path.stat().st_mode & 0o777 != 0o640 else 0o600)


def _become_a_folder(path):
    path.unlink()
    path.mkdir()


def _write_by_a_hard_link(path):
    other = path.parent / "hard link"
    os.link(path, other)
    other.write_text("z")


_CHANGES = [
    pytest.param(change, id=change.__name__.strip("_"))
    for change in (
        _rewrite,
        _rewrite_same_size,
        _append,
        _truncate,
        _touch,
        _set_back,
        _rewrite_and_set_mtime_back,
        _replace_by_the_same,
        _delete,
        _delete_and_make_anew,
        _change_mode,
        _become_a_folder,
        _write_by_a_hard_link,
    )
]


@pytest.mark.parametrize("change", _CHANGES)
def test_answer_read_from_a_changed_file_is_a_miss(either, work, change):
    """E29, E24: whoever changed it and however, without a watcher and without being told."""
    path = work / "a.py"
    either.store("one", "1", paths=[path])
    assert either.get("one") == "1"
    settle(path)
    change(path)

    assert either.lookup("one") is None
    assert [hit.question for hit in either.entries()] in ([], ["one"])


def test_answer_read_from_an_unchanged_file_is_a_hit(either, work):
    either.store("one", "1", paths=[work / "a.py", work / "folder" / "b.py"])
    (work / "a.py").read_text()
    (work / "other.py").write_text("x")
    (work / "folder" / "deep" / "c.py").write_text("changed")

    assert either.get("one") == "1"


def test_one_changed_file_of_many_is_enough(either, work):
    paths = [work / "a.py", work / "folder" / "b.py", work / "folder" / "deep" / "c.py"]
    for changed in paths:
        either.store("one", "1", paths=paths)
        assert either.get("one") == "1"
        settle(changed)
        _append(changed)
        assert either.lookup("one") is None


def test_missing_file_that_appears_is_a_change(either, work):
    """E29: "there is no such file" was an answer as well."""
    path = work / "missing.py"
    either.store("one", "1", paths=[path])
    assert either.get("one") == "1"
    path.write_text("x")
    assert either.lookup("one") is None
    path.unlink()

    assert either.get("one") == "1"


def test_listing_of_a_folder_changes_with_its_names(either, work):
    """A plain path of a folder is its own signature: names, not what is in the files."""
    folder = work / "folder"
    either.store("ls", "b.py", paths=[folder])
    (folder / "b.py").write_text("changed")
    assert either.get("ls") == "b.py"
    settle(folder)
    (folder / "new.py").write_text("x")

    assert either.lookup("ls") is None


def test_link_that_is_pointed_elsewhere_is_a_change(either, work):
    """E29: also to a file with the very same bytes."""
    (work / "same.py").write_text("a")
    either.store("one", "1", paths=[work / "link.py"])
    (work / "link.py").unlink()
    (work / "link.py").symlink_to("same.py")

    assert either.lookup("one") is None


def test_target_of_a_link_counts_and_not_the_link(either, work):
    """E29."""
    either.store("one", "1", paths=[work / "link.py"])
    assert either.get("one") == "1"
    settle(work / "a.py")
    _append(work / "a.py")

    assert either.lookup("one") is None


def test_link_above_the_file_that_is_pointed_elsewhere_is_a_change(either, work):
    """E29."""
    (work / "other").mkdir()
    (work / "other" / "b.py").write_text("b")
    either.store("one", "1", paths=[work / "folder link" / "b.py"])
    (work / "folder link").unlink()
    (work / "folder link").symlink_to("other")

    assert either.lookup("one") is None


def test_dangling_link_is_a_missing_file(either, work):
    """E29."""
    (work / "dangling").symlink_to("nowhere.py")
    either.store("one", "1", paths=[work / "dangling"])
    assert either.get("one") == "1"
    (work / "nowhere.py").write_text("x")

    assert either.lookup("one") is None


def test_tree_is_not_walked_at_the_hit(either, work):
    """What was read from below is forgotten by being told, not by being looked at."""
    either.store("grep", "b", paths=[Tree(work / "folder")])
    (work / "folder" / "b.py").write_text("changed")
    (work / "folder" / "new.py").write_text("x")

    assert either.get("grep") == "b"
    assert either.invalidate(work / "folder" / "new.py") == 1
    assert either.lookup("grep") is None


def test_answer_of_a_changed_file_is_not_forgotten_but_not_served(cache, work, tmp_path):
    """A file that is put back is the same file only if its signature is."""
    path, away = work / "a.py", work / "away.py"
    cache.store("one", "1", paths=[path])
    copy = work / "copy.py"
    copy.write_text("a")
    path.rename(away)
    copy.rename(path)

    assert cache.lookup("one") is None


# When the signature is taken.


def test_plain_path_takes_its_signature_now(either, work):
    _append(work / "a.py")
    either.store("one", "1", paths=[work / "a.py"])

    assert either.get("one") == "1"


def test_status_from_before_the_reading_shows_a_change_during_it(either, work):
    """The file changed between the caller's look and the store."""
    path = work / "a.py"
    status = path.stat()
    settle(path)
    _append(path)
    either.store("one", "1", paths={path: status})

    assert either.lookup("one") is None


def test_status_from_before_is_a_hit_where_nothing_changed(either, work):
    path = work / "a.py"
    either.store("one", "1", paths={path: path.stat(), work / "link.py": path.stat()})

    assert either.get("one") == "1"


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path], ids=["str", "fspath", "Path"])
def test_mapping_may_be_of_any_paths(either, work, kind):
    status = (work / "a.py").stat()
    either.store("one", "1", paths={kind(work / "a.py"): status, Tree(work): status})
    assert either.get("one") == "1"

    assert either.invalidate(work / "anything") == 1


def test_computation_has_its_signatures_taken_before_it_begins(either, work):
    """What it read may have changed while it ran."""
    path = work / "a.py"

    def compute():
        settle(path)
        _append(path)
        return "from the old text"

    assert either.get_or_call("one", compute, paths=[path]) == "from the old text"
    assert either.lookup("one") is None
    assert either.get_or_call("one", lambda: "new", paths=[path]) == "new"
    assert either.get("one") == "new"


def test_paths_may_be_a_generator(either, work):
    """They are gone through more than once."""
    names = ("a.py", "folder/b.py")
    answer = either.get_or_call("one", lambda: "1", paths=(work / name for name in names))
    either.store("two", "2", paths=(work / name for name in names))

    assert answer == "1"
    assert (either.get("one"), either.get("two")) == ("1", "2")
    assert either.invalidate(work / name for name in names) == 2


def test_same_answer_of_another_version_of_its_file_is_stored_anew(cache, work):
    """E15: not a no-op, since the kept signature is stale."""
    path = work / "a.py"
    cache.store("one", "1", paths=[path])
    assert cache.store("one", "1", paths=[path]) is False
    settle(path)
    _append(path)

    assert cache.store("one", "1", paths=[path]) is True
    assert cache.get("one") == "1"
    assert cache.store("one", "1") is True


def test_prune_takes_out_what_was_read_from_changed_files(either, work):
    either.store("old", "1", paths=[work / "a.py"])
    either.store("good", "2", paths=[work / "folder" / "b.py"])
    either.store("tree", "3", paths=[Tree(work)])
    settle(work / "a.py")
    _append(work / "a.py")

    assert either.prune() == 1
    assert [hit.question for hit in either.entries()] == ["good", "tree"]


# By which names a file is known.

_NAMES = [
    ("a.py", "a.py"),
    ("a.py", "./a.py"),
    ("a.py", "folder/../a.py"),
    ("a.py", ".//a.py"),
    ("a.py", "A.PY"),
    ("a.py", "link.py"),
    ("a.py", "folder/deep/../../link.py"),
    ("a.py", "."),
    ("a.py", "./"),
    ("a.py", ".."),
    ("./a.py", "a.py"),
    ("folder/../a.py", "a.py"),
    ("folder/./deep/..//b.py", "folder/b.py"),
    ("A.PY", "a.py"),
    ("link.py", "a.py"),
    ("link.py", "link.py"),
    ("link.py", "LINK.PY"),
    ("folder/b.py", "folder"),
    ("folder/b.py", "folder/"),
    ("folder/b.py", "FOLDER"),
    ("folder/b.py", "folder link"),
    ("folder/b.py", "folder link/b.py"),
    ("folder/b.py", "folder link/../folder/b.py"),
    ("folder link/b.py", "folder/b.py"),
    ("folder link/b.py", "folder"),
    ("folder link/b.py", "folder link"),
    ("folder link/b.py", "Folder Link/B.py"),
    ("folder/deep/c.py", "folder"),
    ("folder/deep/c.py", "folder link"),
    ("folder", "folder"),
    ("folder/", "folder"),
    ("folder", "folder/"),
    ("missing/x.py", "missing/x.py"),
    ("missing/x.py", "missing"),
    ("missing/../a.py", "a.py"),
]


@pytest.mark.parametrize(("read", "named"), _NAMES, ids=[f"{a} by {b}" for a, b in _NAMES])
def test_file_is_forgotten_by_any_of_its_names(either, work, monkeypatch, read, named):
    """E29: over-erasing is safe, missing a spelling never is."""
    monkeypatch.chdir(work)
    either.store("one", "1", paths=[read])
    either.store("other", "o", paths=[work.parent / "elsewhere.py"])
    either.store("no paths", "n")

    assert either.invalidate(named) in (1, 2)
    assert either.lookup("one") is None
    assert either.get("no paths") == "n"
    if named != "..":
        assert either.get("other") == "o"


_OTHERS = [
    ("a.py", "b.py"),
    ("a.py", "a.p"),
    ("a.py", "a.pyc"),
    ("folder/b.py", "fold"),
    ("folder/b.py", "folder/b"),
    ("folder/b.py", "folder/b.py.bak"),
    ("folder/b.py", "folder/deep"),
    ("folder/b.py", "b.py"),
    ("folder", "folder/b.py"),
    ("folder", "folder link 2"),
]


@pytest.mark.parametrize(("read", "named"), _OTHERS, ids=[f"{a} by {b}" for a, b in _OTHERS])
def test_file_is_not_forgotten_by_names_of_others(either, work, monkeypatch, read, named):
    """A plain path of a folder stands for its listing, not for what is below."""
    monkeypatch.chdir(work)
    either.store("one", "1", paths=[read])

    assert either.invalidate(named) == 0
    assert either.get("one") == "1"


_TREES = [
    ("folder", "folder/b.py", True),
    ("folder", "folder/deep/c.py", True),
    ("folder", "folder/new/file.py", True),
    ("folder", "folder", True),
    ("folder", ".", True),
    ("folder", "FOLDER/B.PY", True),
    ("folder", "folder link/b.py", True),
    ("folder/", "folder/b.py", True),
    ("folder/deep/..", "folder/b.py", True),
    ("folder link", "folder/b.py", True),
    ("folder link", "folder link/new.py", True),
    (".", "a.py", True),
    ("/", "a.py", True),
    ("folder", "a.py", False),
    ("folder", "folder2/b.py", False),
    ("folder", "folder.py", False),
    ("folder/deep", "folder/b.py", False),
]


@pytest.mark.parametrize(
    ("read", "named", "is_met"), _TREES, ids=[f"{a} by {b}" for a, b, _ in _TREES]
)
def test_tree_is_forgotten_by_what_lies_at_above_or_below_it(
    either, work, monkeypatch, read, named, is_met
):
    """E29."""
    monkeypatch.chdir(work)
    either.store("grep", "g", paths=[Tree(read)])

    assert either.invalidate(named) == is_met
    assert (either.lookup("grep") is None) == is_met


def test_whole_tree_that_changed_takes_what_was_read_below_it(either, work):
    either.store("one", "1", paths=[work / "folder" / "b.py"])
    either.store("two", "2", paths=[work / "a.py"])

    assert either.invalidate(Tree(work / "folder")) == 1
    assert (either.lookup("one"), either.get("two")) == (None, "2")


def test_many_paths_are_forgotten_at_once(either, work):
    for number, name in enumerate(("a.py", "folder/b.py", "folder/deep/c.py")):
        either.store(f"q{number}", "a", paths=[work / name])

    assert either.invalidate([work / "a.py", str(work / "folder" / "deep"), Tree(work / "x")]) == 2
    assert [hit.question for hit in either.entries()] == ["q1"]
    assert either.invalidate([]) == 0
    assert either.invalidate(()) == 0
    assert either.get("q1") == "a"


def test_removal_reaches_all_namespaces_and_other_processes(tmp_path, clock, work):
    """They share one disk."""
    path = tmp_path / "answers.json"
    acme = Cache(path, namespace="acme", fsync=False, clock=clock)
    other = Cache(path, fsync=False, clock=clock)
    acme.store("one", "1", paths=[work / "a.py"])
    assert acme.get("one") == "1"

    assert other.invalidate(work / "link.py") == 1
    assert acme.lookup("one") is None


def test_link_that_was_pointed_elsewhere_is_known_by_its_old_target(either, work):
    """E29: what was read then lies there still."""
    either.store("one", "1", paths=[work / "link.py"])
    (work / "link.py").unlink()
    (work / "link.py").symlink_to("folder/b.py")

    assert either.invalidate(work / "a.py") == 1


def test_link_that_is_pointed_elsewhere_during_the_computation_has_both_targets(either, work):
    """E29: nobody knows which of the two was read."""
    for target in ("a.py", "folder/b.py"):
        (work / "link.py").unlink()
        (work / "link.py").symlink_to("a.py")

        def compute():
            (work / "link.py").unlink()
            (work / "link.py").symlink_to("folder/b.py")
            return "1"

        either.get_or_call("one", compute, paths=[work / "link.py", Tree(work / "link.py")])
        assert either.invalidate(work / target) == 1


def test_result_is_not_kept_when_its_file_was_invalidated_by_another_name_meanwhile(either, work):
    """E29, E06."""

    def compute():
        either.invalidate(work / "A.PY")
        return "stale"

    assert either.get_or_call("one", compute, paths=[work / "link.py"]) == "stale"
    assert either.lookup("one") is None


def test_removal_names_are_those_of_the_time_it_is_made(either, work):
    """E29: the link leads to the file when it is named, wherever it led before."""
    either.store("one", "1", paths=[work / "folder" / "b.py"])
    (work / "link.py").unlink()
    (work / "link.py").symlink_to("folder/b.py")

    assert either.invalidate(work / "link.py") == 1


# Which paths there may be.


@pytest.mark.parametrize(
    "path", [b"a.py", 5, None, 1.5, ["a.py"], {"a": 1}, "\ud800", "", "a\0b.py"], ids=ascii
)
@pytest.mark.parametrize("wrap", [lambda path: [path], lambda path: ["a.py", path]])
def test_what_is_no_path_is_refused_by_its_place(either, path, wrap):
    paths = wrap(path)
    with pytest.raises(UncacheableError, match=rf"paths\[{len(paths) - 1}\]"):
        either.store("one", "1", paths=paths)
    with pytest.raises(UncacheableError, match=rf"paths\[{len(paths) - 1}\]"):
        either.invalidate(paths)
    assert either.lookup("one") is None


@pytest.mark.parametrize(
    "name", ["x" * 300, "x/" * 3000, "\u00fcml\u00e4ut \u4f60.py", "a\nb", "~x"]
)
def test_odd_names_are_paths_as_well(either, work, name):
    either.store("one", "1", paths=[work / name])

    assert either.get("one") == "1"
    assert either.invalidate(work / name) == 1


@pytest.mark.parametrize("paths", ["a.py", b"a.py"], ids=["text", "bytes"])
def test_one_path_alone_stands_for_itself(memory, work, monkeypatch, paths):
    """Not for its letters."""
    monkeypatch.chdir(work)
    if type(paths) is bytes:
        with pytest.raises(UncacheableError):
            memory.store("one", "1", paths=paths)
        return
    memory.store("one", "1", paths=paths)
    memory.store("two", "2", paths=work / "a.py")
    memory.store("three", "3", paths=Tree(work))

    assert memory.invalidate("p") == 1  # below the tree
    assert (memory.get("one"), memory.get("two")) == ("1", "2")
    assert memory.invalidate(work / "a.py") == 2


def test_home_is_meant_by_a_tilde(either, work, monkeypatch):
    monkeypatch.setenv("HOME", str(work))
    either.store("one", "1", paths=["~/a.py"])

    assert either.invalidate(work / "a.py") == 1


def test_relative_paths_are_those_of_the_time_they_are_given(either, work, monkeypatch):
    """E30: the process changes its working folder."""
    monkeypatch.chdir(work)
    either.store("one", "1", paths=["a.py"])
    monkeypatch.chdir(work / "folder")
    assert either.get("one") == "1"

    assert either.invalidate("a.py") == 0
    assert either.invalidate("../a.py") == 1


def test_relative_cache_path_is_that_of_the_construction(tmp_path, clock, monkeypatch):
    """E30."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cache = Cache("answers.json", fsync=False, clock=clock)
    monkeypatch.chdir(tmp_path / "there")
    cache.store("one", "1")

    assert os.listdir(tmp_path / "there") == []
    assert Cache(tmp_path / "here" / "answers.json", clock=clock).get("one") == "1"


def test_working_folder_that_is_gone_matters_to_relative_paths_only(either, work, monkeypatch):
    """E30: agents run in work trees that are removed under them."""
    gone = work / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert either.store("one", "1", paths=[str(work / "a.py"), Tree(work / "folder")]) is True
    assert either.get("one") == "1"
    assert either.get_or_call("two", lambda: "2", paths=[str(work / "a.py")]) == "2"
    assert either.invalidate(str(work / "folder" / "b.py")) == 1
    assert either.get("two") == "2"


# The pure functions.


def test_signature_is_what_tells_versions_apart(work):
    status = (work / "a.py").stat()

    assert signature(status) == (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
def test_each_part_of_a_signature_counts(work, field):
    """R22: different, not newer; both ways."""
    path = str(work / "a.py")
    kept = list(signature(os.stat(path)))
    fields = ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"]
    for change in (1, -1):
        changed = list(kept)
        changed[fields.index(field)] += change
        assert is_unchanged({path: changed}) is False
    assert is_unchanged({path: kept}) is True


def test_tree_and_missing_files_have_no_signature(work):
    signed = sign([Tree(work), work / "missing", work / "a.py"])["paths"]

    assert signed[str(work)] == "tree"
    assert signed[str(work / "missing")] is None
    assert signed[str(work / "a.py")] == list(signature((work / "a.py").stat()))
    assert sign([]) == {}


def test_other_names_are_kept_only_where_there_are_some(work):
    assert sign([work / "folder" / "b.py"]).get("links") is None
    links = sign([work / "link.py"])["links"]

    assert links == {str(work / "link.py"): [str(work / "a.py").casefold()]}


def test_spellings_are_the_given_the_plain_and_the_real_name_folded(work):
    given = f"{work}/folder link/../Link.py"
    names = spellings(given)

    assert names[0] == given.casefold()
    assert f"{work}/link.py".casefold() in names
    assert all(name == name.casefold() for name in names)
    assert spellings(str(work / "a.py")) == [str(work / "a.py").casefold()]


def test_absolute_keeps_links_and_dots(work, monkeypatch):
    """The path itself is what is looked at on each hit."""
    monkeypatch.chdir(work)

    assert [path for path, _ in absolute(["folder/../link.py"])] == [f"{work}/folder/../link.py"]


def test_tree_is_a_value(work):
    assert Tree("a") == Tree("a") != Tree("b")
    assert Tree(work) == Tree(str(work))
    assert {Tree("a"), Tree("a")} == {Tree("a")}
    assert Tree("a") != "a"
    assert repr(Tree("a")) == "Tree('a')"


def test_files_that_are_depended_on_are_only_looked_at(cache, work, monkeypatch):
    """Never opened, and with one look at each hit."""
    fifo = work / "fifo"
    os.mkfifo(fifo)
    cache.store("one", "1", paths=[work / "a.py", fifo])
    cache.get("one")
    opened, looked = [], []
    real_open, real_stat = os.open, os.stat

    def open_(path, *args, **options):
        opened.append(path)
        return real_open(path, *args, **options)

    def stat_(path, *args, **options):
        looked.append(path)
        return real_stat(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_)
        patch.setattr(os, "stat", stat_)
        assert cache.get("one") == "1"

    assert opened == []
    assert looked.count(str(work / "a.py")) == looked.count(str(fifo)) == 1
    assert stat.S_ISFIFO(fifo.stat().st_mode)
