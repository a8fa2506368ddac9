"""Options: each is checked where it is given, and a mistake is named with its remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from respcache import Cache, Config, ConfigError, Normalizer
from respcache.testing import FakeClock

WRONG = [
    pytest.param("case_sensitive", 1, id="case-sensitive-a-number"),
    pytest.param("trim_spaces", "yes", id="trim-spaces-a-text"),
    pytest.param("normalizer", str.lower, id="normalizer-a-function"),
    pytest.param("namespace", "", id="namespace-empty"),
    pytest.param("namespace", 7, id="namespace-a-number"),
    pytest.param("namespace", "\ud800", id="namespace-a-surrogate"),
    pytest.param("ttl", 0, id="ttl-zero"),
    pytest.param("ttl", 0.0, id="ttl-zero-float"),
    pytest.param("ttl", -1, id="ttl-negative"),
    pytest.param("ttl", "60", id="ttl-a-text"),
    pytest.param("ttl", True, id="ttl-a-bool"),
    pytest.param("ttl", float("inf"), id="ttl-infinite"),
    pytest.param("ttl", float("nan"), id="ttl-nan"),
    pytest.param("max_entries", 0, id="max-entries-zero"),
    pytest.param("max_entries", -1, id="max-entries-negative"),
    pytest.param("max_entries", 1.0, id="max-entries-a-float"),
    pytest.param("max_entries", True, id="max-entries-a-bool"),
    pytest.param("max_entry_bytes", 0, id="max-entry-bytes-zero"),
    pytest.param("max_entry_bytes", -5, id="max-entry-bytes-negative"),
    pytest.param("max_bytes", 0, id="max-bytes-zero"),
    pytest.param("max_bytes", -1, id="max-bytes-negative"),
    pytest.param("store_if", True, id="store-if-a-bool"),
    pytest.param("serve_if", "fresh", id="serve-if-a-text"),
    pytest.param("on_event", [], id="on-event-a-list"),
    pytest.param("on_error", "ignore", id="on-error-unknown"),
    pytest.param("on_error", None, id="on-error-none"),
    pytest.param("format", "pickle", id="format-unknown"),
    pytest.param("fsync", 1, id="fsync-a-number"),
    pytest.param("mode", 0o400, id="mode-read-only"),
    pytest.param("mode", 0o700, id="mode-executable"),
    pytest.param("mode", "600", id="mode-a-text"),
    pytest.param("lock_timeout", 0, id="lock-timeout-zero"),
    pytest.param("lock_timeout", -1, id="lock-timeout-negative"),
    pytest.param("lock_timeout", None, id="lock-timeout-none"),
    pytest.param("path", "", id="path-empty"),
    pytest.param("path", b"a.json", id="path-bytes"),
    pytest.param("path", 3, id="path-a-number"),
    pytest.param("path", "a\0.json", id="path-with-nul"),
]


class TestOptions:
    @pytest.mark.parametrize(("name", "value"), WRONG)
    def test_wrong_option_is_named(self, name: str, value: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            Cache(**{name: value})

        assert str(caught.value).startswith(f"{name}={value!r}: choose ")

    @pytest.mark.parametrize(("name", "value"), WRONG)
    def test_wrong_option_is_named_in_a_config_too(self, name: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=name):
            Cache.from_config({"enabled": True, name: value})
        with pytest.raises(ConfigError, match=name):
            Config(enabled=True, **{name: value})

    def test_clock_must_be_a_function(self) -> None:
        with pytest.raises(ConfigError, match="clock"):
            Cache(clock=12.5)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "options",
        [
            {"case_sensitive": True},
            {"trim_spaces": True},
            {"case_sensitive": True, "trim_spaces": True},
        ],
    )
    def test_normalizer_goes_without_the_short_options(self, options: dict[str, bool]) -> None:
        with pytest.raises(ConfigError, match="Normalizer"):
            Cache(normalizer=Normalizer(), **options)

    def test_unknown_option_is_a_type_error_of_python(self) -> None:
        with pytest.raises(TypeError, match="maxsize"):
            Cache(maxsize=3)  # type: ignore[call-arg]

    @pytest.mark.parametrize(
        "name", ["answers", "answers.txt", "answers.json.bak", ".json", "answers.", "a.yaml"]
    )
    def test_suffix_that_tells_no_format_is_an_error(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Cache(tmp_path / name)

        assert "format=" in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["answers.json", "answers.JSON", "a.b.json"])
    def test_suffix_json_is_a_document(self, tmp_path: Path, name: str) -> None:
        with Cache(tmp_path / name) as cache:
            assert cache.store("q", "r")

        assert (tmp_path / name).read_bytes().startswith(b'{"respcache": 1')

    def test_any_suffix_goes_with_a_format(self, tmp_path: Path) -> None:
        with Cache(tmp_path / "answers.cache", format="document") as cache:
            assert cache.store("q", "r")

        assert (tmp_path / "answers.cache").read_bytes().startswith(b'{"respcache": 1')

    def test_constructing_touches_no_file(self, tmp_path: Path) -> None:
        Cache(tmp_path / "deep" / "answers.json")

        assert list(tmp_path.iterdir()) == []

    def test_relative_path_is_of_the_folder_at_construction(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E30"""
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        monkeypatch.chdir(tmp_path / "one")
        cache = Cache("answers.json")
        monkeypatch.chdir(tmp_path / "two")
        with cache:
            assert cache.store("q", "r")

        assert (tmp_path / "one" / "answers.json").exists()
        assert list((tmp_path / "two").iterdir()) == []

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o660, 0o664, 0o666])
    def test_modes_that_let_the_owner_read_and_write(self, mode: int) -> None:
        Cache(mode=mode)


class TestFromConfig:
    def test_disabled_is_none(self) -> None:
        assert Cache.from_config({"enabled": False, "path": "a.json"}) is None
        assert Cache.from_config({}) is None
        assert Cache.from_config(Config()) is None

    def test_enabled_is_a_cache_with_its_options(self, tmp_path: Path) -> None:
        cache = Cache.from_config(
            {"enabled": True, "path": "sub/answers.json", "trim_spaces": True, "namespace": "n"},
            base_dir=tmp_path,
        )
        assert cache is not None
        with cache:
            assert cache.store(" What? ", "r")

            assert cache.path == str(tmp_path / "sub" / "answers.json")
            assert cache.namespace == "n"
            assert cache.get("what?") == "r"

    def test_without_a_path_it_is_memory(self) -> None:
        cache = Cache.from_config({"enabled": True})

        assert cache is not None
        assert cache.path is None

    def test_a_config_object_does_the_same(self, tmp_path: Path, clock: FakeClock) -> None:
        config = Config(enabled=True, path="a.json", case_sensitive=True, ttl=60, clock=clock)
        cache = Cache.from_config(config, base_dir=tmp_path)
        assert cache is not None
        with cache:
            cache.store("Q", "r")

            assert cache.get("q") is None
            assert cache.get("Q") == "r"

            clock.advance(60)

            assert cache.get("Q") is None

    def test_config_without_enabled_says_that_the_cache_is_off(self, warnings_of: Any) -> None:
        assert Cache.from_config({"path": "a.json", "ttl": 60}) is None
        assert len(warnings_of()) == 1
        assert "path, ttl" in warnings_of()[0]
        assert "enabled" in warnings_of()[0]

    @pytest.mark.parametrize(
        "config", [{}, {"enabled": False}, {"enabled": False, "ttl": 60}, Config(ttl=60)]
    )
    def test_config_that_is_off_on_purpose_says_nothing(
        self, config: Any, warnings_of: Any
    ) -> None:
        assert Cache.from_config(config) is None
        assert warnings_of() == []

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("max_entrys", "max_entries"),
            ("case_sensitve", "case_sensitive"),
            ("trimspaces", "trim_spaces"),
            ("Enabled", "enabled"),
            ("max_byte", "max_bytes"),
        ],
    )
    def test_unknown_key_names_the_nearest(self, name: str, nearest: str) -> None:
        """Also where the cache is off: a typo in ``enabled`` must not go unseen."""
        with pytest.raises(ConfigError) as caught:
            Cache.from_config({name: 3})

        assert str(caught.value).startswith(f"{name}: ")
        assert repr(nearest) in str(caught.value)

    @pytest.mark.parametrize("name", ["zzz", "", "_ttl", "clear"])
    def test_unknown_key_is_an_error_whatever_it_is(self, name: str) -> None:
        with pytest.raises(ConfigError, match="unknown option"):
            Cache.from_config({"enabled": True, name: 3})

    def test_wrong_value_is_an_error_while_it_is_off_too(self) -> None:
        with pytest.raises(ConfigError, match="max_entries=0"):
            Cache.from_config({"enabled": False, "max_entries": 0})

    @pytest.mark.parametrize("value", ["true", 1, None, "yes"])
    def test_enabled_is_true_or_false(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="enabled"):
            Cache.from_config({"enabled": value})

    @pytest.mark.parametrize("config", [None, "a.json", ["enabled"], [("enabled", True)]])
    def test_what_is_no_mapping_is_an_error(self, config: Any) -> None:
        with pytest.raises(ConfigError, match="mapping"):
            Cache.from_config(config)

    def test_key_that_is_no_text_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="3"):
            Cache.from_config({3: True})  # type: ignore[dict-item]


class TestAnchor:
    def from_path(self, path: Any, base_dir: Any) -> Cache:
        cache = Cache.from_config({"enabled": True, "path": path}, base_dir=base_dir)
        assert cache is not None
        return cache

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            pytest.param("a.json", "a.json", id="plain"),
            pytest.param("sub/a.json", "sub/a.json", id="below"),
            pytest.param("sub/../a.json", "a.json", id="dots-that-stay-within"),
            pytest.param("./a.json", "a.json", id="dot"),
            pytest.param("..a.json", "..a.json", id="name-with-dots"),
        ],
    )
    def test_relative_path_is_anchored(self, tmp_path: Path, path: str, expected: str) -> None:
        assert self.from_path(path, tmp_path).path == str(tmp_path / expected)

    def test_without_a_base_it_is_the_working_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        assert self.from_path("a.json", None).path == str(tmp_path / "a.json")

    def test_absolute_path_is_taken_as_it_is(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere" / "a.json"

        assert self.from_path(str(elsewhere), tmp_path / "base").path == str(elsewhere)
        assert self.from_path(elsewhere, tmp_path / "base").path == str(elsewhere)

    @pytest.mark.parametrize(
        "path", ["../a.json", "sub/../../a.json", "../base2/a.json", "..", ".", "sub/.."]
    )
    def test_path_that_leads_out_is_refused(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "base").mkdir()
        (tmp_path / "base2").mkdir()

        with pytest.raises(ConfigError, match="leads out"):
            self.from_path(path, tmp_path / "base")

    @pytest.mark.parametrize("is_enabled", [True, False])
    def test_path_that_leads_out_is_refused_whether_or_not_it_is_on(
        self, tmp_path: Path, is_enabled: bool
    ) -> None:
        with pytest.raises(ConfigError, match="leads out"):
            Cache.from_config(
                {"enabled": is_enabled, "path": "../a.json"}, base_dir=tmp_path / "base"
            )

    def test_link_that_leads_out_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "base").mkdir()
        (tmp_path / "outside").mkdir()
        os.symlink(tmp_path / "outside", tmp_path / "base" / "sub")
        os.symlink(tmp_path / "outside" / "a.json", tmp_path / "base" / "a.json")

        for path in ("sub/a.json", "a.json"):
            with pytest.raises(ConfigError, match="leads out"):
                self.from_path(path, tmp_path / "base")

    def test_path_that_leads_out_and_back_by_a_link_is_refused(self, tmp_path: Path) -> None:
        """Who may point the link elsewhere later is outside."""
        (tmp_path / "base").mkdir()
        os.symlink(tmp_path / "base", tmp_path / "link")

        with pytest.raises(ConfigError, match="leads out"):
            self.from_path("../link/a.json", tmp_path / "base")

    def test_link_that_stays_within_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        os.symlink(tmp_path / "real", tmp_path / "link")

        with self.from_path("link/a.json", tmp_path) as cache:
            assert cache.store("q", "r")

        assert (tmp_path / "real" / "a.json").exists()

    def test_base_may_be_a_link_itself(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        os.symlink(tmp_path / "real", tmp_path / "base")
        with self.from_path("a.json", tmp_path / "base") as cache:
            assert cache.store("q", "r")

        assert (tmp_path / "real" / "a.json").exists()


class TestConfig:
    def test_defaults_are_those_of_the_cache(self) -> None:
        import inspect

        config = Config()
        parameters = inspect.signature(Cache).parameters

        for name, parameter in parameters.items():
            if name != "clock":
                assert getattr(config, name) == parameter.default, name
        assert set(config.options()) == set(parameters) - {"clock"}
        assert config.enabled is False

    def test_repr_shows_what_was_chosen(self) -> None:
        assert repr(Config()) == "Config()"
        assert (
            repr(Config(enabled=True, path="a.json", ttl=60))
            == "Config(enabled=True, path='a.json', ttl=60)"
        )
