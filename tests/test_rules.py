"""What is fresh, and what a removal touches: values in, values out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache._rules import Removal, fold, is_fresh, is_past, meets, stricter
from respcache.testing import FakeClock

paths = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=0, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


class TestStricter:
    @pytest.mark.parametrize(
        ("one", "other", "expected"),
        [
            pytest.param(None, None, None, id="no-limit"),
            pytest.param(None, 5, 5, id="only-the-second"),
            pytest.param(5, None, 5, id="only-the-first"),
            pytest.param(3, 5, 3, id="first-is-smaller"),
            pytest.param(5, 3, 3, id="second-is-smaller"),
            pytest.param(5, 5, 5, id="equal"),
            pytest.param(0.5, 1, 0.5, id="floats"),
        ],
    )
    def test_smaller_limit_wins(self, one: Any, other: Any, expected: Any) -> None:
        assert stricter(one, other) == expected


class TestIsFresh:
    @pytest.mark.parametrize(
        ("stored_at", "ttl", "now", "expected"),
        [
            pytest.param(100.0, 60, 100.0, True, id="age-zero"),
            pytest.param(100.0, 60, 159.999, True, id="just-before"),
            pytest.param(100.0, 60, 160.0, False, id="exactly-at-the-ttl"),
            pytest.param(100.0, 60, 160.001, False, id="just-after"),
            pytest.param(100.0, 0.5, 100.5, False, id="fraction-at-the-ttl"),
            pytest.param(100.0, None, 1e12, True, id="for-ever"),
            pytest.param(100.0, 60, 99.999, False, id="from-the-future"),
            pytest.param(100.0, None, 50.0, True, id="from-the-future-without-ttl"),
            pytest.param(float("nan"), 60, 100.0, False, id="unknown-age"),
            pytest.param(float("nan"), None, 100.0, True, id="unknown-age-without-ttl"),
        ],
    )
    def test_expired_when_age_reaches_the_ttl(
        self, stored_at: float, ttl: float | None, now: float, expected: bool
    ) -> None:
        """R34: an age below zero proves nothing, so with a ttl it is not fresh."""
        assert is_fresh(stored_at, ttl, now) is expected

    @given(
        stored_at=st.integers(0, 10**9),
        ttl=st.integers(1, 10**6),
        age=st.integers(-(10**6), 2 * 10**6),
    )
    def test_fresh_from_its_stamp_up_to_the_ttl(self, stored_at: int, ttl: int, age: int) -> None:
        assert is_fresh(stored_at, ttl, stored_at + age) == (age in range(ttl))


class TestIsPast:
    @pytest.mark.parametrize(
        ("stored_at", "ttl", "now", "expected"),
        [
            pytest.param(100.0, 60, 159.9, False, id="just-before"),
            pytest.param(100.0, 60, 160.0, True, id="exactly-at-the-ttl"),
            pytest.param(100.0, None, 1e12, False, id="for-ever"),
            pytest.param(100.0, 60, 50.0, False, id="from-the-future"),
            pytest.param(float("nan"), None, 100.0, False, id="unknown-age"),
        ],
    )
    def test_life_ends_when_age_reaches_the_ttl(
        self, stored_at: float, ttl: float | None, now: float, expected: bool
    ) -> None:
        """E15: what is not fresh by a clock that goes wrong is not past for the others."""
        assert is_past(stored_at, ttl, now) is expected


class TestMeets:
    @pytest.mark.parametrize(
        ("kept", "is_tree", "changed", "expected"),
        [
            pytest.param("/a/b", False, "/a/b", True, id="equal"),
            pytest.param("/a/b", False, "/a", True, id="below-a-changed-folder"),
            pytest.param("/a/b", False, "/", True, id="below-the-root"),
            pytest.param("/a/b", False, "/a/b/c", False, id="file-below-a-plain-path"),
            pytest.param("/a/b", True, "/a/b/c", True, id="file-below-a-tree"),
            pytest.param("/a/b", True, "/a/b/c/d", True, id="deep-below-a-tree"),
            pytest.param("/a/b", True, "/a/b", True, id="tree-itself"),
            pytest.param("/a/b", True, "/a", True, id="above-a-tree"),
            pytest.param("/", True, "/a", True, id="tree-at-the-root"),
            pytest.param("/a/b", False, "/a/bc", False, id="longer-name"),
            pytest.param("/a/bc", False, "/a/b", False, id="shorter-name"),
            pytest.param("/a/b", True, "/a/bc", False, id="sibling-of-a-tree"),
            pytest.param("/a/b", True, "/a/c", False, id="beside-a-tree"),
        ],
    )
    def test_path_is_met_by(self, kept: str, is_tree: bool, changed: str, expected: bool) -> None:
        assert meets(kept, is_tree, changed) is expected

    @given(kept=paths, changed=paths, is_tree=st.booleans())
    def test_agrees_with_the_parts_of_the_paths(
        self, kept: str, changed: str, is_tree: bool
    ) -> None:
        """Whole names are compared, never their beginnings."""
        one, other = (list(filter(None, path.split("/"))) for path in (kept, changed))
        expected = one[: len(other)] == other or (is_tree and other[: len(one)] == one)

        assert meets(kept, is_tree, changed) == expected

    def test_case_and_ligatures_are_folded(self) -> None:
        assert fold("/Repo/Straße/ﬁle") == fold("/repo/STRASSE/FILE")


REMOVALS = [
    pytest.param(Removal("1", keys=["q//1f//a"]), id="keys"),
    pytest.param(Removal("2", paths=["/a", "/b/c"]), id="paths"),
    pytest.param(Removal("3", scope="q//"), id="scope"),
    pytest.param(Removal("4", scope=""), id="whole-scope"),
    pytest.param(Removal("5", everything=True), id="everything"),
    pytest.param(Removal("6"), id="nothing"),
]


class TestRemoval:
    def test_keys_touch_themselves_only(self) -> None:
        removal = Removal("1", keys=["k", "l"])

        assert removal.touches("k", ())
        assert removal.touches("l", [("/a", False)])
        assert not removal.touches("kk", [("/a", False)])

    def test_scope_touches_its_prefix_only(self) -> None:
        removal = Removal("1", scope="q/=a/")

        assert removal.touches("q/=a/1f//x", ())
        assert not removal.touches("q//1f//x", ())
        assert not removal.touches("q/=ab/1f//x", ())
        assert not removal.touches("t/=a/1f//x", ())

    def test_paths_touch_in_every_scope(self) -> None:
        removal = Removal("1", paths=["/a/b"])

        assert removal.touches("q//1f//x", [("/z", False), ("/a/b", False)])
        assert removal.touches("t/=n/1f//x", [("/a", True)])
        assert not removal.touches("q//1f//x", [("/a", False)])
        assert not removal.touches("q//1f//x", ())

    def test_everything_touches_all(self) -> None:
        assert Removal("1", everything=True).touches("any", ())

    def test_the_first_one_of_a_file_touches_nothing(self) -> None:
        assert not Removal("1").touches("any", [("/a", True)])

    @pytest.mark.parametrize("removal", REMOVALS)
    def test_comes_back_from_its_json_form(self, removal: Removal) -> None:
        again = Removal.from_json(json.loads(json.dumps(removal.to_json())))

        assert [getattr(again, name) for name in Removal.__slots__] == [
            getattr(removal, name) for name in Removal.__slots__
        ]

    @pytest.mark.parametrize(
        "form",
        [
            pytest.param({"id": "1", "turns": [3]}, id="unknown-operation"),
            pytest.param({"id": "1"}, id="no-operation"),
            pytest.param({"id": "1", "paths": "/a"}, id="paths-not-a-list"),
            pytest.param({"id": "1", "paths": [1]}, id="paths-not-text"),
            pytest.param({"id": "1", "keys": [None]}, id="keys-not-text"),
            pytest.param({"id": "1", "scope": 1}, id="scope-not-text"),
            pytest.param({"id": 1, "keys": ["a"]}, id="id-not-text"),
            pytest.param({"keys": ["a"]}, id="no-id"),
            pytest.param({}, id="empty"),
        ],
    )
    def test_what_this_version_can_not_read_touches_everything(self, form: dict[str, Any]) -> None:
        """E13: a newer release may remove in ways that are unknown here."""
        assert Removal.from_json(form).touches("any", ())


class TestFakeClock:
    def test_stands_still_until_it_is_advanced(self) -> None:
        clock = FakeClock(100)

        assert (clock(), clock(), clock.monotonic()) == (100.0, 100.0, 0.0)

        clock.advance(2.5)

        assert (clock(), clock.monotonic()) == (102.5, 2.5)

    def test_wall_can_be_set_back_while_no_time_passes(self) -> None:
        clock = FakeClock(100)
        clock.advance(1)
        clock.set_wall(50)

        assert (clock(), clock.monotonic()) == (50.0, 1.0)

    def test_time_does_not_run_backwards(self) -> None:
        clock = FakeClock()

        with pytest.raises(ValueError, match="set_wall"):
            clock.advance(-1)
        assert clock.monotonic() == 0.0
