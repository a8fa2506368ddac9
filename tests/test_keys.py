"""Which questions are one question, and keys whose parts can't run into each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache import Cache, ConfigError, Normalizer, UncacheableError
from respcache._keys import digest, field_digests, flat_key, key_head, scope_of, split_key

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_keys.json").read_text("utf-8"))

EVERY = [
    Normalizer(fold=fold, trim=trim, form=form, collapse=collapse)
    for fold, trim, form, collapse in product(
        (False, True), (False, True), (None, "NFC", "NFKC"), (False, True)
    )
]
# Letters that fold, compose, decompose or count as space in more than one way.
NASTY = "aA\u0130\u0131\u0345\u03a3\u03c2\u00df\u1e9e\u0390\u1fd3\ufb01\u00b4\u0301\u0307 \t\n\x1c\x85\xa0\u2003\u3000\u1100\u1161"
questions = st.text() | st.text(alphabet=NASTY)


@cache
def can_be_space() -> list[str]:
    """Return the letters that are white space, or have some in a compatible form."""
    letters = list(map(chr, range(1, 0x110000)))
    forms = unicodedata.normalize("NFKC", "\0".join(letters)).split("\0")
    return [
        letter
        for letter, form in zip(letters, forms, strict=True)
        if any(map(str.isspace, letter + form))
    ]


def key(question: str, context: Any = None, namespace: str | None = None) -> str:
    normalizer = Normalizer()
    return key_head(scope_of("q", namespace), normalizer, context) + normalizer(question)


def run(source: str, *arguments: str, **environment: str) -> str:
    child = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


class TestGoldenKeys:
    """R06: no release changes a key unnoticed; a change needs a new version in the key."""

    @pytest.mark.parametrize(
        "golden", [pytest.param(each, id=each["id"]) for each in GOLDEN["keys"]]
    )
    def test_key_is_as_pinned(self, golden: dict[str, Any]) -> None:
        cache = Cache(normalizer=Normalizer(**golden["normalizer"]), namespace=golden["namespace"])

        assert cache._checked_key(golden["question"], golden["context"]) == golden["key"]

    @pytest.mark.parametrize(
        "golden", [pytest.param(each, id=each["id"]) for each in GOLDEN["flat"]]
    )
    def test_key_of_a_flat_file_is_as_pinned(self, golden: dict[str, Any]) -> None:
        found = flat_key(golden["question"], fold=golden["fold"], trim=golden["trim"])

        assert found == golden["key"]

    @pytest.mark.parametrize(
        "golden", [pytest.param(each, id=each["id"]) for each in GOLDEN["field_digests"]]
    )
    def test_digest_of_a_field_is_as_pinned(self, golden: dict[str, Any]) -> None:
        assert field_digests(golden["context"]) == golden["digests"]


class TestNormalizer:
    @pytest.mark.parametrize(
        ("fold", "form"),
        [(True, None), (False, "NFC"), (True, "NFC"), (False, "NFKC"), (True, "NFKC")],
    )
    def test_twice_equals_once_for_every_code_point(self, fold: bool, form: Any) -> None:
        """R11. A NUL beside each keeps it from meeting its neighbours."""
        normalizer = Normalizer(fold=fold, form=form)
        letters = list(map(chr, range(1, 0x110000)))
        once = normalizer("\0".join(letters)).split("\0")
        changed = [new for old, new in zip(letters, once, strict=True) if new != old]

        assert len(changed) > 500
        assert normalizer("\0".join(changed)).split("\0") == changed

    @pytest.mark.parametrize("normalizer", EVERY, ids=lambda each: each.tag)
    def test_twice_equals_once_for_each_code_point_that_can_be_space(
        self, normalizer: Normalizer
    ) -> None:
        assert len(can_be_space()) > 40
        for char in can_be_space():
            for text in (char, "a" + char + "b", char * 2, char + "\u0301"):
                once = normalizer(text)
                assert normalizer(once) == once, ascii(text)

    @given(question=questions)
    def test_twice_equals_once(self, question: str) -> None:
        for normalizer in EVERY:
            once = normalizer(question)
            assert normalizer(once) == once, normalizer

    @given(question=questions)
    def test_quick_function_does_the_same(self, question: str) -> None:
        for normalizer in EVERY:
            assert normalizer.function()(question) == normalizer(question)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param("STRASSE", "straße", id="sharp-s"),
            pytest.param("STRAẞE", "strasse", id="capital-sharp-s"),
            pytest.param("ΟΔΥΣΣΕΥΣ", "οδυσσευς", id="final-sigma"),
            pytest.param("οδυσσευσ", "οδυσσευς", id="two-small-sigmas"),
            pytest.param("ﬁle", "FILE", id="fi-ligature"),
            pytest.param("İstanbul", "i\u0307stanbul", id="dotted-capital-i"),
            pytest.param("ŉ", "\u02bcN", id="one-letter-to-two"),
            pytest.param("What?", "wHAT?", id="ascii"),
        ],
    )
    def test_folded_pairs_are_one_question(self, one: str, other: str) -> None:
        """R11: full case folding, not letter by letter."""
        fold = Normalizer()

        assert fold(one) == fold(other)
        assert Normalizer(fold=False)(one) != Normalizer(fold=False)(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param("İstanbul", "istanbul", id="dotted-capital-i"),
            pytest.param("\u0131s\u0131", "isi", id="dotless-i"),
            pytest.param("résumé", "resume", id="accents"),
            pytest.param("x²", "x2", id="superscript"),
            pytest.param("caf\u00e9", "cafe\u0301", id="composed-and-decomposed"),
            pytest.param("\uff21", "A", id="full-width"),
            pytest.param("a b", "a  b", id="inner-space"),
            pytest.param("a", " a", id="space-before"),
            pytest.param("a", "a\n", id="newline-after"),
            pytest.param("What", "What?", id="question-mark"),
        ],
    )
    def test_nothing_else_is_folded_by_default(self, one: str, other: str) -> None:
        """R12: neither canonical nor compatible forms, and no white space."""
        assert Normalizer()(one) != Normalizer()(other)

    @pytest.mark.parametrize(
        ("options", "one", "other"),
        [
            pytest.param({"form": "NFC"}, "caf\u00e9", "cafe\u0301", id="nfc"),
            pytest.param({"form": "NFC"}, "CAF\u00c9", "cafe\u0301", id="nfc-and-fold"),
            pytest.param({"form": "NFC"}, "\u212b", "\u00e5", id="angstrom"),
            pytest.param({"form": "NFKC"}, "x²", "x2", id="nfkc"),
            pytest.param({"form": "NFKC"}, "\uff21\uff22\uff23", "abc", id="nfkc-full-width"),
            pytest.param({"form": "NFC"}, "\u1fc3", "\u1fcc", id="iota-subscript"),
            pytest.param({"trim": True}, " a\t", "A", id="trim"),
            pytest.param({"trim": True}, "\u3000a\xa0", "a", id="trim-wide-spaces"),
            pytest.param({"collapse": True}, "a \n\t b", "a b", id="collapse"),
            pytest.param({"collapse": True, "trim": True}, " a  b ", "a b", id="collapse-and-trim"),
        ],
    )
    def test_asked_for_rules_make_one_question(
        self, options: dict[str, Any], one: str, other: str
    ) -> None:
        """R12"""
        normalizer = Normalizer(**options)

        assert normalizer(one) == normalizer(other)
        assert Normalizer(fold=False)(one) != Normalizer(fold=False)(other)

    def test_canonical_form_keeps_compatible_letters_apart(self) -> None:
        """R12"""
        assert Normalizer(form="NFC")("x²") != Normalizer(form="NFC")("x2")

    @pytest.mark.parametrize(
        ("text", "collapsed"),
        [
            pytest.param("", "", id="nothing"),
            pytest.param(" \n ", " ", id="space-only"),
            pytest.param("  a  ", " a ", id="ends-keep-one"),
            pytest.param("a  ", "a ", id="after"),
            pytest.param("\t\ta", " a", id="before"),
            pytest.param("a\u2003\xa0b", "a b", id="wide-spaces"),
        ],
    )
    def test_collapsing_does_not_trim(self, text: str, collapsed: str) -> None:
        assert Normalizer(collapse=True)(text) == collapsed

    def test_each_set_of_options_has_a_tag_of_its_own(self) -> None:
        assert len({each.tag for each in EVERY}) == len(EVERY) == 24
        assert all(each.tag.startswith("1") and "/" not in each.tag for each in EVERY)

    def test_equal_options_make_equal_normalizers(self) -> None:
        assert Normalizer(trim=True) == Normalizer(trim=True)
        assert hash(Normalizer(trim=True)) == hash(Normalizer(trim=True))
        assert Normalizer(trim=True) != Normalizer()
        assert Normalizer() != "1f"

    def test_repr_can_be_typed_in(self) -> None:
        for normalizer in EVERY:
            assert eval(repr(normalizer)) == normalizer

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            pytest.param({"form": "NFD"}, "form='NFD'", id="form"),
            pytest.param({"form": "nfc"}, "form='nfc'", id="form-lower-case"),
            pytest.param({"fold": 1}, "fold=1", id="fold"),
            pytest.param({"trim": None}, "trim=None", id="trim"),
            pytest.param({"collapse": "yes"}, "collapse='yes'", id="collapse"),
        ],
    )
    def test_wrong_option_is_named(self, options: dict[str, Any], named: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Normalizer(**options)

        assert named in str(caught.value)


class TestContext:
    # Each is another context. "Left out" and None differ, as do the ways to write one.
    APART: tuple[Any, ...] = (
        None,
        {},
        {"x": None},
        {"x": True},
        {"x": 1},
        {"x": 1.0},
        {"x": "1"},
        {"x": "1.0"},
        {"x": "True"},
        {"x": "true"},
        {"x": False},
        {"x": 0},
        {"x": 0.0},
        {"x": -0.0},
        {"x": ""},
        {"x": "null"},
        {"x": []},
        {"x": {}},
        {"x": [1]},
        {"x": [[1]]},
        {"x": [True]},
        {"x": ["1"]},
        {"x": [1.0]},
        {"x": [1, None]},
        {"x": {"y": 1}},
        {"x.y": 1},
        {"x": 1, "y": None},
        {"X": 1},
        {"x ": 1},
        {"x": "a"},
        {"x": "A"},
        {"x": "a\u0301"},
        {"x": "\u00e1"},
    )

    def test_typed_table_of_values_is_told_apart(self) -> None:
        """R01 R07: True, 1, 1.0, "1", None and left out; 0.0 and -0.0; nothing folded."""
        keys = [key("q", context) for context in self.APART]

        assert len(set(keys)) == len(self.APART)

    @given(
        context=st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
            st.integers(0, 9) | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
            min_size=2,
        ),
        data=st.data(),
    )
    def test_order_of_fields_never_matters(
        self, context: dict[str, Any], data: st.DataObject
    ) -> None:
        """R06"""

        def shuffled(value: Any) -> Any:
            if type(value) is not dict:
                return value
            items = data.draw(st.permutations(list(value.items())))
            return {name: shuffled(item) for name, item in items}

        other = shuffled(context)

        assert key("q", other) == key("q", context)
        assert field_digests(other) == field_digests(context)

    def test_order_of_lists_matters(self) -> None:
        assert key("q", {"messages": [1, 2]}) != key("q", {"messages": [2, 1]})

    @pytest.mark.parametrize(
        ("context", "place"),
        [
            pytest.param({"stop": {"a", "b"}}, "$.context.stop", id="set"),
            pytest.param({"shape": (1, 2)}, "$.context.shape", id="tuple"),
            pytest.param({"m": [{"c": b""}]}, "$.context.m[0].c", id="bytes"),
            pytest.param({1: "a"}, "$.context[1]", id="int-key"),
            pytest.param({"t": float("nan")}, "$.context.t", id="nan"),
            pytest.param([("model", "m")], "$.context", id="pairs"),
            pytest.param("gpt", "$.context", id="text"),
        ],
    )
    def test_context_outside_the_domain_is_named(self, context: Any, place: str) -> None:
        """R05 R06: a set has no order of its own, so none is made up."""
        with pytest.raises(UncacheableError) as caught:
            Cache()._checked_key("q", context)

        assert caught.value.place == place

    def test_each_field_has_a_digest_of_its_own(self) -> None:
        one = field_digests({"model": "m", "effort": "low"})
        other = field_digests({"model": "m", "effort": "high"})

        assert one is not None and other is not None
        assert one["model"] == other["model"]
        assert one["effort"] != other["effort"]

    def test_no_context_has_no_digests(self) -> None:
        assert field_digests(None) is None
        assert field_digests({}) == {}

    def test_digest_of_a_context_has_160_bits(self) -> None:
        assert len(split_key(key("q", {"model": "m"}))[2]) * 4 == 160
        assert len(digest(b"", 8)) * 4 == 64


class TestParts:
    """R08: parts of a key keep their boundaries."""

    @pytest.mark.parametrize(
        ("one", "other"),
        list(
            combinations(
                [
                    ("a b", "c"),
                    ("a", "b c"),
                    ("a/b", "c"),
                    ("a", "b/c"),
                    ("a%2Fb", "c"),
                    ("a%b", "c"),
                    ("a%25b", "c"),
                    ("=a", "c"),
                    ("a", "=c"),
                    ("/", "c"),
                    ("%2F", "c"),
                    (None, "c"),
                    (None, "/=a/1f//c"),
                    (None, "q/=a/1f//c"),
                    (None, "=a/c"),
                    ("1f", "c"),
                    ("A", "c"),
                ],
                2,
            )
        ),
    )
    def test_namespace_and_question_do_not_run_together(
        self, one: tuple[str | None, str], other: tuple[str | None, str]
    ) -> None:
        """R03: no question reaches into another namespace, whatever is typed into it."""
        assert key(one[1], namespace=one[0]) != key(other[1], namespace=other[0])

    @given(
        one=st.tuples(st.none() | st.text("a/%=F2", min_size=1), st.text("a/%=")),
        other=st.tuples(st.none() | st.text("a/%=F2", min_size=1), st.text("a/%=")),
        contexts=st.tuples(*[st.sampled_from([None, {}, {"a": 1}, {"a": "1"}])] * 2),
    )
    def test_keys_are_equal_only_if_all_parts_are(
        self, one: Any, other: Any, contexts: Any
    ) -> None:
        same_key = key(one[1], contexts[0], one[0]) == key(other[1], contexts[1], other[0])

        assert same_key == (one == other and contexts[0] == contexts[1])

    @given(
        namespace=st.none() | st.text("aA/%=", min_size=1),
        other=st.none() | st.text("aA/%=", min_size=1),
        question=st.text(),
    )
    def test_scope_is_the_prefix_of_its_own_keys_only(
        self, namespace: str | None, other: str | None, question: str
    ) -> None:
        found = key(question, namespace=namespace)

        assert found.startswith(scope_of("q", namespace))
        assert found.startswith(scope_of("q", other)) == (namespace == other)

    @given(namespace=st.none() | st.text("a/%=", min_size=1), question=st.text())
    def test_a_key_can_be_taken_apart(self, namespace: str | None, question: str) -> None:
        scope, tag, context, text = split_key(key(question, {"a": 1}, namespace))

        assert f"q/{scope}/" == scope_of("q", namespace)
        assert tag == Normalizer().tag
        assert len(context) == 40
        assert text == question.casefold()

    def test_normalizers_do_not_share_keys(self) -> None:
        heads = {key_head(scope_of("q", None), each, None) for each in EVERY}

        assert len(heads) == len(EVERY)


class TestFlatKey:
    @pytest.mark.parametrize(
        ("question", "expected"),
        [
            pytest.param("What IS it?", "what is it?", id="ascii"),
            pytest.param("\u0130X", "ix", id="dotted-capital-i"),
            pytest.param("ΟΔΟΣ", "οδο\u03c3", id="final-sigma"),
            pytest.param("STRASSE ẞ", "strasse ß", id="capital-sharp-s"),
            pytest.param("ﬁ", "ﬁ", id="ligature-stays"),
            pytest.param(" A ", " a ", id="space-stays"),
        ],
    )
    def test_letters_are_lowered_one_by_one(self, question: str, expected: str) -> None:
        assert flat_key(question, fold=True, trim=False) == expected

    def test_case_stays_if_asked(self) -> None:
        assert flat_key(" A\u0130 ", fold=False, trim=False) == " A\u0130 "

    @pytest.mark.parametrize("char", list("\t\n\v\f\r \x85\xa0\u1680\u2003\u2028\u202f\u3000"))
    def test_white_space_is_trimmed(self, char: str) -> None:
        assert flat_key(f"{char}a{char}", fold=False, trim=True) == "a"

    @pytest.mark.parametrize("char", list("\x1c\x1d\x1e\x1f\u200b\ufeff"))
    def test_what_unicode_does_not_call_white_space_stays(self, char: str) -> None:
        """str.strip would take the first four."""
        assert flat_key(f"{char}a{char}", fold=False, trim=True) == f"{char}a{char}"


KEY = """
from respcache import Cache
context = {"model": "m", "tools": ["a", "b"], "options": {"z": 1, "y": 2.5}}
print(Cache(namespace="n")._checked_key("İ what is it?", context))
"""

STORE = """
import sys
from respcache import Cache
with Cache(sys.argv[1], namespace="n") as cache:
    assert cache.store("What?", "kept", context={"model": "m", "tools": ["a", "b"]})
"""

LOOK = """
import sys
from respcache import Cache
print(Cache(sys.argv[1], namespace="n").get("WHAT?", context={"tools": ["a", "b"], "model": "m"}))
"""


@pytest.mark.xdist_group("processes")
class TestOtherProcesses:
    def test_key_is_the_same_under_every_hash_seed(self) -> None:
        """R05"""
        keys = {run(KEY, PYTHONHASHSEED=seed) for seed in ("1", "2", "random")}

        assert len(keys) == 1
        assert keys.pop().startswith("q/=n/1f/")

    def test_what_one_process_stored_another_hits(self, tmp_path: Path) -> None:
        """R05: also after a restart, with hashes that are seeded afresh."""
        path = str(tmp_path / "answers.json")
        run(STORE, path, PYTHONHASHSEED="1")

        assert run(LOOK, path, PYTHONHASHSEED="2") == "kept\n"

    def test_key_does_not_depend_on_the_locale(self) -> None:
        """R11: a Turkish locale has other rules for i."""
        utf8 = {"PYTHONUTF8": "1"}

        assert run(KEY, LC_ALL="tr_TR.UTF-8", **utf8) == run(KEY, LC_ALL="C", **utf8)
