"""The errors: whose children they are, what they say, and that they travel."""

from __future__ import annotations

import copy
import pickle

import pytest

import respcache
from respcache import (
    ConfigError,
    LockTimeoutError,
    RespcacheError,
    StoreError,
    UncacheableError,
    errors,
)

EVERY = [
    pytest.param(ConfigError("ttl=-1: choose a number of seconds above 0"), id="config"),
    pytest.param(UncacheableError("$.messages[2].content", "a tuple"), id="uncacheable"),
    pytest.param(LockTimeoutError("/a/answers.json.lock", 10.0), id="lock-timeout"),
    pytest.param(StoreError("/a/answers.json", "the disk is full", 28), id="store"),
    pytest.param(StoreError("/a/answers.json", "is a symlink"), id="store-without-errno"),
]


class TestTree:
    @pytest.mark.parametrize(
        ("kind", "builtin"),
        [
            pytest.param(ConfigError, ValueError, id="config"),
            pytest.param(UncacheableError, TypeError, id="uncacheable"),
            pytest.param(LockTimeoutError, TimeoutError, id="lock-timeout"),
            pytest.param(StoreError, OSError, id="store"),
        ],
    )
    def test_each_error_is_also_the_builtin_that_a_caller_expects(
        self, kind: type, builtin: type
    ) -> None:
        assert issubclass(kind, builtin)
        assert issubclass(kind, RespcacheError)

    def test_a_lock_timeout_is_no_store_error(self) -> None:
        """Who waits again after the one must not do so after the other."""
        assert not issubclass(LockTimeoutError, StoreError)
        assert not issubclass(StoreError, TimeoutError)

    def test_the_tree_in_the_docstring_is_the_tree(self) -> None:
        kinds = [
            value
            for value in vars(errors).values()
            if isinstance(value, type) and issubclass(value, RespcacheError)
        ]

        assert sorted(kind.__name__ for kind in kinds) == sorted(errors.__all__)
        assert errors.__doc__ is not None
        for kind in kinds:
            assert kind.__name__ in errors.__doc__
            assert getattr(respcache, kind.__name__) is kind


class TestTravel:
    @pytest.mark.parametrize("error", EVERY)
    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_comes_back_from_a_pickle(self, error: RespcacheError, protocol: int) -> None:
        """They cross process pools."""
        again = pickle.loads(pickle.dumps(error, protocol))

        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)

    @pytest.mark.parametrize("error", EVERY)
    def test_can_be_copied(self, error: RespcacheError) -> None:
        again = copy.copy(error)

        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

    def test_all_arguments_are_in_args(self) -> None:
        assert UncacheableError("$.a", "why").args == ("$.a", "why")
        assert LockTimeoutError("/a.lock", 1.5).args == ("/a.lock", 1.5)
        assert StoreError("/a", "why", 28).args == ("/a", "why", 28)
        assert StoreError("/a", "why").args == ("/a", "why", None)


class TestFacts:
    def test_uncacheable_error_names_the_place(self) -> None:
        error = UncacheableError("$.messages[2].content", "a tuple would come back as a list")

        assert (error.place, error.why) == (
            "$.messages[2].content",
            "a tuple would come back as a list",
        )
        assert str(error) == "$.messages[2].content: a tuple would come back as a list"

    def test_lock_timeout_says_who_and_how_long(self) -> None:
        error = LockTimeoutError("/a/answers.json.lock", 10.0)

        assert (error.path, error.waited) == ("/a/answers.json.lock", 10.0)
        assert str(error).startswith("/a/answers.json.lock: ")
        assert "10 s" in str(error)
        assert "lock_timeout" in str(error)

    def test_store_error_says_what_was_refused(self) -> None:
        error = StoreError("/a/answers.json", "the disk is full", 28)

        assert (error.path, error.why, error.errno) == ("/a/answers.json", "the disk is full", 28)
        assert str(error) == "/a/answers.json: the disk is full"

    @pytest.mark.parametrize(
        ("error", "errno"),
        [
            pytest.param(StoreError("/a", "the disk is full", 28), 28, id="store"),
            pytest.param(StoreError("/a", "is a symlink"), None, id="store-without-errno"),
            pytest.param(LockTimeoutError("/a.lock", 10.0), None, id="lock-timeout"),
        ],
    )
    def test_facts_of_an_os_error_are_what_they_are_called(
        self, error: OSError, errno: int | None
    ) -> None:
        """OSError takes its arguments for errno, text and file name, whatever they are."""
        assert error.errno == errno
        assert error.filename in (None, "/a", "/a.lock")
        assert error.strerror is None or isinstance(error.strerror, str)
