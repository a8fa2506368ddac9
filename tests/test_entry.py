"""An entry and its line: read back equal, or refused."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache import UncacheableError
from respcache._entry import (
    Entry,
    from_form,
    from_line,
    key_of,
    line_start,
    new_entry,
    with_line,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
signatures = st.lists(st.integers(0, 2**63), min_size=5, max_size=5)
FACTS = {"id": "9f", "stored_at": 1_000_000_000.25}
FULL = {
    **FACTS,
    "ttl": 60,
    "context": {"model": "0a1b2c3d"},
    "paths": {"/A/b": [1, 2, 3, 4, 5], "/gone": None, "/Tree": "tree"},
    "links": {"/A/b": ["/real/b"]},
}


def attributes(entry: Entry) -> dict[str, Any]:
    kept = {name: getattr(entry, name) for name in Entry.__slots__ if name not in ("size", "line")}
    return {**kept, "response": repr(entry.response)}


class TestLine:
    @given(
        key=texts,
        question=texts,
        response=values,
        ttl=st.none() | st.integers(1, 10**9) | st.floats(0.001, 1e9),
        context=st.none() | st.dictionaries(texts, st.just("0a1b2c3d"), max_size=2),
        paths=st.none() | st.dictionaries(texts, signatures | st.none() | st.just("tree")),
        links=st.none() | st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
    )
    def test_comes_back_equal(self, key: str, question: str, response: Any, **facts: Any) -> None:
        entry = new_entry(key, question, response, **FACTS, **facts)
        assert entry.line is not None
        again = from_line(key_of(entry.line), entry.line)

        assert attributes(again) == attributes(entry)
        assert type(again.response) is type(response)
        assert entry.line.startswith(line_start(key))
        assert b"\n" not in entry.line

    @given(key=texts, question=texts, response=values)
    def test_is_one_member_of_a_json_object(self, key: str, question: str, response: Any) -> None:
        line = new_entry(key, question, response, **FACTS).line
        assert line is not None
        document = json.loads(b"{" + line + b"}")

        assert list(document) == [key]
        assert repr(document[key]["response"]) == repr(response)
        assert document[key]["question"] == question

    @given(
        key=texts,
        response=st.sampled_from(
            [
                '"}, ',
                '": {"response": ',
                '", "question": "x", ',
                ["\\", '"', "\n"],
                {"response": "a", "question": "b"},
                "",
            ]
        ),
    )
    def test_what_looks_like_a_line_within_a_text_is_a_text(self, key: str, response: Any) -> None:
        entry = new_entry(f'{key}": {{"response": ', '", "id": "x"}', response, **FACTS)
        assert entry.line is not None
        again = from_line(key_of(entry.line), entry.line)

        assert attributes(again) == attributes(entry)

    @pytest.mark.parametrize("response", ["text", {"a": [1, "b"]}, None, 2.5])
    @pytest.mark.parametrize("facts", [FACTS, FULL], ids=["few", "all"])
    def test_cut_anywhere_is_refused(self, response: Any, facts: dict[str, Any]) -> None:
        line = new_entry("q//1f//é\n", "É\n", response, **facts).line
        assert line is not None

        assert from_line(key_of(line), line).question == "É\n"
        for end in range(len(line)):
            with pytest.raises(ValueError):
                from_line(key_of(line[:end]), line[:end])

    @pytest.mark.parametrize(
        "tail", [b"}", b" ", b',"x": 1', b', "q": {"response": 1}', b"\n", b"\0"]
    )
    def test_text_after_the_entry_is_refused(self, tail: bytes) -> None:
        line = new_entry("k", "q", "r", **FACTS).line
        assert line is not None

        with pytest.raises(ValueError):
            from_line("k", line + tail)

    def test_invalid_utf8_is_a_value_error(self) -> None:
        """R21"""
        line = new_entry("k", "q", "e", **FACTS).line
        assert line is not None

        with pytest.raises(ValueError):
            from_line("k", line.replace(b'"e"', b'"\xe9"'))

    @pytest.mark.parametrize(
        "line", [b"", b"{}", b"null", b'"a": 1', b'a": {"response": 1', b"\xe9"]
    )
    def test_key_of_what_is_no_line_is_a_value_error(self, line: bytes) -> None:
        with pytest.raises(ValueError):
            key_of(line)

    def test_size_counts_the_utf8_bytes_of_the_response(self) -> None:
        assert new_entry("k", "q", "é", **FACTS).size == 4
        assert new_entry("k", "q", [1, "é"], **FACTS).size == 8

    def test_response_outside_the_domain_is_refused_with_its_place(self) -> None:
        with pytest.raises(UncacheableError) as caught:
            new_entry("k", "q", {"a": (1,)}, "$[3]", **FACTS)

        assert caught.value.place == "$[3].a"

    def test_dropped_line_is_written_again(self) -> None:
        entry = new_entry("k", "q", {"a": [1]}, **FULL)
        line, entry.line = entry.line, None

        assert with_line(entry).line == line
        assert with_line(entry).line == line


class TestForm:
    """A document that was edited by hand: one object an entry, in any layout."""

    @given(response=values, question=texts)
    def test_comes_back_equal(self, response: Any, question: str) -> None:
        entry = new_entry("k", question, response, **FULL)
        form = json.loads(b"{" + (entry.line or b"") + b"}")["k"]
        again = from_form("k", form)

        assert attributes(again) == attributes(entry)
        assert again.line == entry.line

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"question": None}, id="no-question"),
            pytest.param({"question": 1}, id="question-a-number"),
            pytest.param({"id": None}, id="no-id"),
            pytest.param({"id": 1}, id="id-a-number"),
            pytest.param({"stored_at": None}, id="no-stamp"),
            pytest.param({"stored_at": "now"}, id="stamp-a-text"),
            pytest.param({"ttl": 0}, id="ttl-zero"),
            pytest.param({"ttl": -1}, id="ttl-negative"),
            pytest.param({"ttl": "60"}, id="ttl-a-text"),
            pytest.param({"context": []}, id="context-a-list"),
            pytest.param({"context": "a"}, id="context-a-text"),
            pytest.param({"paths": ["/a"]}, id="paths-a-list"),
            pytest.param({"paths": {"/a": [1, 2, 3, 4]}}, id="signature-too-short"),
            pytest.param({"paths": {"/a": [1, 2, 3, 4, 5.0]}}, id="signature-a-float"),
            pytest.param({"paths": {"/a": [1, 2, 3, 4, True]}}, id="signature-a-bool"),
            pytest.param({"paths": {"/a": "forest"}}, id="neither-signature-nor-tree"),
            pytest.param({"links": ["/a"]}, id="links-a-list"),
            pytest.param({"links": {"/a": "/b"}}, id="link-a-text"),
            pytest.param({"links": {"/a": [1]}}, id="link-a-number"),
            pytest.param({"response": "\ud800"}, id="surrogate"),
            pytest.param({"response": float("inf")}, id="infinity"),
            pytest.param({"response": 2**64}, id="int-too-large"),
        ],
    )
    def test_wrong_shape_is_a_value_error(self, change: dict[str, Any]) -> None:
        """R21: one malformed entry is no entry; a dependency that can't be read is no entry."""
        good = {"response": "r", "question": "q", **FULL}

        assert from_form("k", good).response == "r"
        with pytest.raises(ValueError):
            from_form("k", {**good, **change})

    @pytest.mark.parametrize("form", [None, 1, "text", [], {}, {"question": "q", **FACTS}])
    def test_what_is_no_entry_is_a_value_error(self, form: Any) -> None:
        with pytest.raises(ValueError):
            from_form("k", form)

    def test_unknown_facts_are_passed_over(self) -> None:
        form = {"response": "r", "question": "q", "colour": "red", **FACTS}

        assert from_form("k", form).response == "r"


class TestResponse:
    def test_each_caller_gets_a_list_of_its_own(self) -> None:
        """R36"""
        entry = new_entry("k", "q", {"a": [1]}, **FACTS)
        entry.response["a"].append(2)

        assert entry.response == {"a": [1]}

    def test_later_changes_of_the_given_value_do_not_show(self) -> None:
        """R36"""
        response = {"a": [1]}
        entry = new_entry("k", "q", response, **FACTS)
        response["a"].append(2)

        assert entry.response == {"a": [1]}

    @pytest.mark.parametrize("response", [None, "", 0, False, 0.0, -0.0, [], {}])
    def test_empty_responses_keep_their_type(self, response: Any) -> None:
        """R38"""
        line = new_entry("k", "q", response, **FACTS).line
        again = from_line("k", line or b"").response

        assert (type(again), repr(again)) == (type(response), repr(response))


class TestTouched:
    def test_names_are_folded_and_links_count(self) -> None:
        entry = new_entry("k", "q", "r", **FULL)

        assert set(entry.touched()) == {
            ("/a/b", False),
            ("/real/b", False),
            ("/gone", False),
            ("/tree", True),
        }

    def test_nothing_was_read(self) -> None:
        assert new_entry("k", "q", "r", **FACTS).touched() == ()

    def test_drive_letters_take_slashes(self) -> None:
        """E29: a removal names paths with ``/`` on every platform."""
        entry = new_entry("k", "q", "r", **FACTS, paths={"C:\\Repo\\a.py": None})

        assert entry.touched() == (("c:/repo/a.py", False),)


class TestStillSays:
    BASE: ClassVar[dict[str, Any]] = {"response": "r", "question": "q", **FULL}

    def entry(self, **changes: Any) -> Entry:
        facts = {**self.BASE, **changes}
        return new_entry("k", facts.pop("question"), facts.pop("response"), **facts)

    @pytest.mark.parametrize("response", ["r", 1, 1.0, True, None, -0.0, [1, {"a": 2}], {"a": []}])
    def test_same_pair_is_the_same(self, response: Any) -> None:
        old, new = self.entry(response=response), self.entry(response=response, id="aa")

        assert old.still_says(new, FACTS["stored_at"])

    def test_stamp_and_id_do_not_count(self) -> None:
        old, new = self.entry(), self.entry(id="aa", stored_at=1_000_000_010.0)

        assert old.still_says(new, 1_000_000_010.0)

    def test_no_longer_when_it_has_expired(self) -> None:
        old, new = self.entry(), self.entry()

        assert old.still_says(new, FACTS["stored_at"] + 59)
        assert not old.still_says(new, FACTS["stored_at"] + 60)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"question": "Q"}, id="question-in-other-letters"),
            pytest.param({"response": "s"}, id="response"),
            pytest.param({"response": ["r"]}, id="response-a-list"),
            pytest.param({"ttl": 61}, id="ttl"),
            pytest.param({"ttl": None}, id="no-ttl"),
            pytest.param({"paths": {"/A/b": [1, 2, 3, 4, 6]}}, id="signature"),
            pytest.param({"paths": None, "links": None}, id="no-paths"),
            pytest.param({"context": {"model": "ffffffff"}}, id="context"),
            pytest.param({"context": None}, id="no-context"),
        ],
    )
    def test_not_if_anything_differs(self, change: dict[str, Any]) -> None:
        """E15: an unequal ttl is another entry."""
        old, new = self.entry(), self.entry(**change)

        assert not old.still_says(new, FACTS["stored_at"])

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(1, True, id="one-and-true"),
            pytest.param(1, 1.0, id="one-and-one-point-zero"),
            pytest.param(0, False, id="zero-and-false"),
            pytest.param(0.0, -0.0, id="signs-of-zero"),
            pytest.param("1", 1, id="text-and-number"),
            pytest.param("null", None, id="text-and-none"),
            pytest.param([1], [True], id="in-a-list"),
            pytest.param([0.0], [-0.0], id="signs-of-zero-in-a-list"),
            pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, id="order-of-keys"),
            pytest.param([], {}, id="empty-list-and-dict"),
            pytest.param("[]", [], id="text-of-a-list"),
        ],
    )
    def test_type_and_order_count(self, one: Any, other: Any) -> None:
        """R07: the type that comes back is the type that went in last."""
        assert not self.entry(response=one).still_says(self.entry(response=other), 1_000_000_001)
