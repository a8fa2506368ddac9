"""What the package exports, what its import costs, and what its source may not do."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.resources
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import respcache

PACKAGE = Path(respcache.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What a hook process must not pay for before it is needed.
HEAVY = [
    "typing",
    "dataclasses",
    "enum",
    "re",
    "pathlib",
    "logging",
    "json",
    "orjson",
    "filelock",
    "typer",
    "asyncio",
]


class TestExports:
    def test_names_are_those_that_are_promised(self) -> None:
        assert respcache.__all__ == sorted(respcache.__all__)
        assert set(respcache.__all__) >= {
            "Cache",
            "Config",
            "ConfigError",
            "Event",
            "Hit",
            "LockTimeoutError",
            "Normalizer",
            "RespcacheError",
            "StoreError",
            "Tree",
            "UncacheableError",
        }

    def test_all_equals_the_real_exports(self) -> None:
        """Each name is there, and nothing public is missing from the list."""
        found = {name: getattr(respcache, name) for name in respcache.__all__}

        assert {name: value.__name__ for name, value in found.items()} == {
            name: name for name in respcache.__all__
        }
        public = {
            name
            for name, value in vars(respcache).items()
            if not name.startswith("_")
            and getattr(value, "__module__", "").startswith("respcache")
            and not isinstance(value, type(respcache))
        }
        assert public == set(respcache.__all__)

    def test_names_for_type_checkers_are_the_same(self) -> None:
        """What is loaded lazily must be declared under TYPE_CHECKING too."""
        tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
        declared = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level == 1
            for alias in node.names
        }

        assert declared == set(respcache.__all__)

    def test_star_import_gives_all_of_them(self) -> None:
        found: dict[str, Any] = {}
        exec("from respcache import *", found)

        assert set(found) - {"__builtins__"} == set(respcache.__all__)

    def test_dir_lists_them(self) -> None:
        assert set(respcache.__all__) <= set(dir(respcache))

    def test_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="'respcache' has no attribute 'Chache'"):
            respcache.Chache  # noqa: B018
        with pytest.raises(ImportError, match="Chache"):
            from respcache import Chache  # noqa: F401

    def test_every_public_thing_is_documented(self) -> None:
        for name in respcache.__all__:
            value = getattr(respcache, name)
            assert value.__doc__, name
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and callable(member):
                    assert member.__doc__, f"{name}.{attribute}"

    def test_version_is_that_of_the_distribution(self) -> None:
        assert respcache.__version__ == importlib.metadata.version("respcache")

    def test_py_typed_ships(self) -> None:
        assert importlib.resources.files("respcache").joinpath("py.typed").is_file()

    def test_every_module_lists_what_it_offers(self) -> None:
        for path in SOURCES:
            if path.name == "__main__.py":
                continue
            tree = ast.parse(path.read_text("utf-8"))
            names = [
                target.id
                for node in tree.body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            ]
            assert "__all__" in names, path


def child(source: str, *arguments: str, cwd: Path | None = None) -> Any:
    """Return what *source* prints as JSON, run without site, what site imports, and byte code."""
    prelude = f"import sys; sys.path[:0] = {[str(PACKAGE.parent)]!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", prelude + source, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOADED = """
before = set(sys.modules)
{source}
print("[" + ", ".join('"' + name + '"' for name in set(sys.modules) - before) + "]")
"""

HOOK = """
from respcache import Cache
with Cache(sys.argv[1]) as cache:
    if sys.argv[2] == "store":
        assert cache.store("q", {"a": [1, "b"]}, context={"model": "m"}, ttl=60)
    else:
        hit = cache.lookup("Q", context={"model": "m"})
        assert hit.response == {"a": [1, "b"]}
"""


@pytest.mark.xdist_group("processes")
class TestImport:
    @pytest.mark.parametrize(
        "source",
        [
            pytest.param("import respcache", id="import"),
            pytest.param("import respcache; respcache.Cache", id="Cache"),
            pytest.param("import respcache; respcache.Cache()", id="Cache-in-memory"),
            pytest.param("from respcache import Cache, ConfigError, Hit", id="names"),
        ],
    )
    def test_loads_nothing_heavy(self, source: str) -> None:
        """In a child without site, whose own imports would hide ours."""
        loaded = child(LOADED.format(source=source))

        assert [name for name in HEAVY if name in loaded] == []

    def test_package_alone_loads_no_module_of_its_own(self) -> None:
        loaded = child(LOADED.format(source="import respcache"))

        assert [name for name in loaded if name.startswith("respcache")] == ["respcache"]

    @pytest.mark.parametrize("use", ["store", "lookup"])
    def test_one_store_or_lookup_in_a_file_loads_nothing_heavy(
        self, tmp_path: Path, use: str
    ) -> None:
        path = tmp_path / "answers.json"
        with respcache.Cache(path) as cache:
            cache.store("other", "r")
            if use == "lookup":
                cache.store("q", {"a": [1, "b"]}, context={"model": "m"})
        loaded = child(LOADED.format(source=HOOK), str(path), use)

        assert [name for name in HEAVY if name in loaded] == []

    def test_touches_no_file(self, tmp_path: Path) -> None:
        """R30: nothing but modules is opened, and nothing is made."""
        source = """
opened = []
def hook(event, arguments):
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc")):
        opened.append(str(arguments[0]))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.chmod"):
        opened.append(event)
sys.addaudithook(hook)
import respcache
for name in respcache.__all__:
    getattr(respcache, name)
import respcache.testing
respcache.Cache("answers.json")
import json
print(json.dumps(opened))
"""
        assert child(source, cwd=tmp_path) == []
        assert list(tmp_path.iterdir()) == []

    def test_works_from_a_folder_that_can_not_be_written(self, tmp_path: Path) -> None:
        """R30: no byte code, no default folder, nothing that a read-only system refuses."""
        source = """
import os
def hook(event, arguments):
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise OSError(30, "Read-only file system")
    if event in ("os.mkdir", "os.rename", "os.remove"):
        raise OSError(30, "Read-only file system")
sys.addaudithook(hook)
import respcache
cache = respcache.Cache()
cache.store("q", "r")
print('"' + cache.get("q") + '"')
"""
        assert child(source, cwd=tmp_path) == "r"


class TestSource:
    """R39: stored text is never run, and nothing that could run it is loaded."""

    FORBIDDEN_MODULES = frozenset(
        {
            "pickle",
            "_pickle",
            "cPickle",
            "cloudpickle",
            "dill",
            "marshal",
            "shelve",
            "copyreg",
            "yaml",
            "jsonpickle",
            "code",
            "codeop",
        }
    )
    FORBIDDEN_CALLS = frozenset({"eval", "exec", "compile", "execfile"})

    def offences(self, source: str) -> list[str]:
        found = []
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found += [a.name for a in node.names if self.is_forbidden(a.name)]
            elif isinstance(node, ast.ImportFrom):
                found += [node.module] if node.module and self.is_forbidden(node.module) else []
            elif isinstance(node, ast.Call):
                name = node.func
                if isinstance(name, ast.Name) and name.id in self.FORBIDDEN_CALLS:
                    found.append(name.id)
                elif isinstance(name, ast.Attribute) and name.attr in ("eval", "exec", "system"):
                    found.append(name.attr)
            elif isinstance(node, ast.Attribute) and node.attr in (
                "__reduce_ex__",
                "__subclasses__",
            ):
                found.append(node.attr)
        return found

    def is_forbidden(self, module: str) -> bool:
        return module.split(".")[0] in self.FORBIDDEN_MODULES

    @pytest.mark.parametrize(
        "source",
        [
            "import pickle",
            "from pickle import loads",
            "import marshal as m",
            "import yaml.constructor",
            "eval(text)",
            "exec(text)",
            "compile(text, '', 'exec')",
            "builtins.eval(text)",
            "os.system(text)",
        ],
    )
    def test_the_scan_finds(self, source: str) -> None:
        assert len(self.offences(source)) == 1

    @pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
    def test_module_runs_no_stored_text(self, path: Path) -> None:
        """R39"""
        assert self.offences(path.read_text("utf-8")) == []

    def test_nothing_that_unpickles_is_loaded_by_use(self, tmp_path: Path) -> None:
        """R39"""
        source = LOADED.format(source=HOOK)
        loaded = child(source, str(tmp_path / "answers.json"), "store")

        assert self.FORBIDDEN_MODULES.isdisjoint(loaded)

    @pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
    def test_imports_point_down_only(self, path: Path) -> None:
        """The pure layers know nothing of files, and the stores nothing of fronts."""
        layer = path.stem if path.parent == PACKAGE else path.parent.name
        below = {
            "_rules": set(),
            "_index": {"_rules", "_entry", "_pathindex"},
            "_pathindex": {"_rules"},
            "_entry": {"_rules", "_json", "errors"},
            "_keys": {"_json", "errors"},
            "_json": {"errors"},
            "_flight": set(),
            "errors": set(),
        }
        if layer == "_stores":
            forbidden = {"_cache", "_front", "_call", "_flight", "_config", "_explain", "_transfer"}
            assert forbidden.isdisjoint(imported(path)), path
        elif layer in ("_survey", "_verify"):
            assert {"_commands", "_terminal", "cli"}.isdisjoint(imported(path))
        elif layer in below:
            assert imported(path) <= below[layer]

    @pytest.mark.parametrize("name", ["_rules", "_index", "_keys", "_entry", "_flight"])
    def test_pure_layers_import_no_way_to_files_or_clocks(self, name: str) -> None:
        modules = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text("utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }

        assert modules.isdisjoint({"os", "time", "io", "pathlib", "fcntl", "threading"})


def imported(path: Path) -> set[str]:
    """Return the modules of the package that *path* imports at run time."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    return {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.level
        and node.module is not None
        and id(node) not in hidden
    }
