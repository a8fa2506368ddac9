"""The JSON domain: what is in comes back equal, what is not is refused with its place."""

from __future__ import annotations

import enum
import importlib.util
import json
import math
import subprocess
import sys
from collections import OrderedDict
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respcache import UncacheableError, _json
from respcache._json import DEPTH, decode, encode, scan

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


def form(value: Any) -> Any:
    """Return what two values share only if they are equal in value, type and order."""
    if type(value) is list:
        return [form(item) for item in value]
    if type(value) is dict:
        return {"dict": [(key, form(item)) for key, item in value.items()]}
    return type(value).__name__, repr(value)


def nested(kind: str, levels: int) -> Any:
    value: Any = "leaf"
    for level in range(levels):
        is_list = kind == "lists" or (kind == "both" and level % 2)
        value = [value] if is_list else {"k": value}
    return value


class Coders:
    """One of the two ways to the C coders, under the names of the module."""

    def __init__(self, made: tuple[Any, Any, Any]) -> None:
        self.quote, encoder, self._scan = made
        self._plain_encode = encoder(False)
        self._sorted_encode = encoder(True)


C_CODERS = Coders(_json._from_c())
JSON_CODERS = Coders(_json._from_json())


@pytest.fixture(params=[pytest.param(C_CODERS, id="_json"), pytest.param(JSON_CODERS, id="json")])
def coders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the coders of ``_json``, and with those of ``json``."""
    for name, function in vars(request.param).items():
        monkeypatch.setattr(_json, name, function)


class TestBothCoders:
    """The fallback must give the same bytes and values: they meet in one file."""

    @given(value=values)
    def test_plain_bytes_are_identical(self, value: Any) -> None:
        assert C_CODERS._plain_encode(value) == JSON_CODERS._plain_encode(value)

    @given(value=values)
    def test_canonical_bytes_are_identical(self, value: Any) -> None:
        assert C_CODERS._sorted_encode(value) == JSON_CODERS._sorted_encode(value)

    @given(text=st.text())
    def test_quoted_texts_are_identical(self, text: str) -> None:
        assert C_CODERS.quote(text) == JSON_CODERS.quote(text)

    @given(value=values, before=st.text(max_size=5), after=st.sampled_from(["", ", ", "}", "]"]))
    def test_values_and_ends_are_identical(self, value: Any, before: str, after: str) -> None:
        text = before + json.dumps(value) + after
        one, one_end = C_CODERS._scan(text, len(before))
        other, other_end = JSON_CODERS._scan(text, len(before))

        assert form(one) == form(other) == form(value)
        assert one_end == other_end == len(text) - len(after)

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="nothing"),
            pytest.param("{", id="open"),
            pytest.param('{"a" 1}', id="no-colon"),
            pytest.param('{"a": 1,}', id="comma-too-many"),
            pytest.param("[1,]", id="comma-in-list"),
            pytest.param("{1: 2}", id="int-key"),
            pytest.param('"a\nb"', id="raw-newline"),
            pytest.param('"a', id="open-text"),
            pytest.param('"\\x"', id="bad-escape"),
            pytest.param("'a'", id="single-quotes"),
            pytest.param("NaN", id="nan"),
            pytest.param("[Infinity]", id="infinity"),
            pytest.param("[-Infinity]", id="minus-infinity"),
            pytest.param("nul", id="half-a-word"),
        ],
    )
    def test_both_refuse_what_is_not_json(self, coders: None, text: str) -> None:
        with pytest.raises(ValueError):
            scan(text)

    def test_a_python_without_the_c_coders_writes_the_same(self) -> None:
        """A child whose ``_json`` can't be imported takes the pure Python coders."""
        source = """
import sys
sys.modules["_json"] = None
from respcache import _json as j
value = {"z": [1, -0.0, 1e300, 0.1, True, None, "\\u00e9\\u2028\\x7f\\x00\\"\\\\ \\U0001f600"], "a": {}}
data = j.encode(value), j.encode(value, sort=True), j.quote(value["z"][-1])
assert [j.scan(each.decode())[0] for each in data[:2]] == [value, value]
sys.stdout.write(ascii(data))
"""
        child = subprocess.run(
            [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
        )
        value = {
            "z": [1, -0.0, 1e300, 0.1, True, None, '\u00e9\u2028\x7f\x00"\\ \U0001f600'],
            "a": {},
        }
        expected = (encode(value), encode(value, sort=True), _json.quote(value["z"][-1]))

        assert child.stdout == ascii(expected)

    def test_c_coders_of_another_signature_are_not_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*arguments: object) -> None:
            raise TypeError("make_encoder() takes other arguments")

        monkeypatch.setattr("_json.make_encoder", refuse)
        spec = importlib.util.find_spec("respcache._json")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        assert module.encode({"a": ["é", 1.5]}) == '{"a":["é",1.5]}'.encode()
        assert module.scan('{"a":["é",1.5]}') == ({"a": ["é", 1.5]}, 15)


class TestRoundTrip:
    @given(value=values)
    def test_a_value_comes_back_equal_in_value_and_type(self, value: Any) -> None:
        text = encode(value).decode()

        assert form(scan(text)[0]) == form(value)
        assert form(decode(text)) == form(value)

    @given(value=values)
    def test_every_reader_agrees(self, value: Any) -> None:
        """E13: no reader refuses or changes what was written."""
        data = encode(value)

        assert form(orjson.loads(data)) == form(json.loads(data)) == form(value)

    @given(value=values)
    def test_canonical_form_ignores_the_order_of_keys(self, value: Any) -> None:
        def turned(value: Any) -> Any:
            if type(value) is dict:
                return {key: turned(item) for key, item in reversed(value.items())}
            return [turned(item) for item in value] if type(value) is list else value

        assert encode(turned(value), sort=True) == encode(value, sort=True)

    def test_keys_are_sorted_by_code_point(self, coders: None) -> None:
        """Not by UTF-16 units, as JavaScript sorts, nor by a locale."""
        value = {"\U00010000": 1, "\uffff": 2, "é": 3, "a": 4, "Z": 5, "": 6}

        assert encode(value, sort=True) == (
            '{"":6,"Z":5,"a":4,"é":3,"\uffff":2,"\U00010000":1}'.encode()
        )

    def test_the_order_of_keys_is_kept_in_values(self, coders: None) -> None:
        assert list(decode(encode({"b": 1, "a": 2}).decode())) == ["b", "a"]

    def test_text_is_compact_utf8(self, coders: None) -> None:
        assert encode({"é": ["\n", '"', 1.0]}) == '{"é":["\\n","\\"",1.0]}'.encode()

    def test_orjson_takes_over_in_a_long_lived_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_json, "_left", 0)
        monkeypatch.setattr(_json, "_loads", None)
        value = {"a": [1.5, -0.0, 2**64 - 1, -(2**63), "é", None, True]}
        first = decode(encode(value).decode())

        assert _json._loads is orjson.loads
        assert form(first) == form(decode(encode(value).decode())) == form(value)

    def test_values_are_decoded_without_orjson_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_json, "_left", 0)
        monkeypatch.setattr(_json, "_loads", None)
        monkeypatch.setitem(sys.modules, "orjson", None)

        assert decode('{"a":[1]}') == {"a": [1]}
        assert decode('{"a":[2]}') == {"a": [2]}


class Colour(enum.StrEnum):
    RED = "red"


class Count(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Plain:
    pass


REFUSED = [
    pytest.param((1, 2), "$", "list(...)", id="tuple"),
    pytest.param({"a": (1,)}, "$.a", "list(...)", id="tuple-inside"),
    pytest.param({1, 2}, "$", "sorted(...)", id="set"),
    pytest.param(frozenset({1}), "$", "frozenset", id="frozenset"),
    pytest.param(b"a", "$", "decode", id="bytes"),
    pytest.param(bytearray(b"a"), "$", "bytearray", id="bytearray"),
    pytest.param({1: "a"}, "$[1]", "str keys only", id="int-key"),
    pytest.param({None: "a"}, "$[None]", "str keys only", id="none-key"),
    pytest.param({True: "a"}, "$[True]", "str keys only", id="bool-key"),
    pytest.param({Text("a"): 1}, "$['a']", "str keys only", id="str-subclass-key"),
    pytest.param({Colour.RED: 1}, None, "str keys only", id="enum-key"),
    pytest.param(math.nan, "$", "nan", id="nan"),
    pytest.param([0.0, math.inf], "$[1]", "inf", id="infinity"),
    pytest.param([-math.inf], "$[0]", "-inf", id="minus-infinity"),
    pytest.param(2**64, "$", "2**64", id="int-above"),
    pytest.param(-(2**63) - 1, "$", "-2**63", id="int-below"),
    pytest.param(Colour.RED, "$", "Colour", id="str-enum"),
    pytest.param(Count.ONE, "$", "Count", id="int-enum"),
    pytest.param(Text("a"), "$", "Text", id="str-subclass"),
    pytest.param(OrderedDict(a=1), "$", "OrderedDict", id="dict-subclass"),
    pytest.param(1 + 2j, "$", "complex", id="complex"),
    pytest.param(Plain(), "$", "Plain", id="object"),
    pytest.param("a\ud800", "$", "surrogate", id="lone-surrogate"),
    pytest.param(["\udfff"], "$[0]", "surrogate", id="lone-low-surrogate"),
    pytest.param({"\ud800": 1}, "$['\\ud800']", "surrogate", id="surrogate-in-a-key"),
    pytest.param(
        {"messages": [{}, {}, {"content": ("a",)}]},
        "$.messages[2].content",
        "tuple",
        id="deep-place",
    ),
    pytest.param({"two words": [b""]}, "$['two words'][0]", "bytes", id="key-in-brackets"),
]


class TestRefused:
    @pytest.mark.parametrize(("value", "place", "why"), REFUSED)
    def test_value_outside_the_domain_is_named(
        self, coders: None, value: Any, place: str | None, why: str
    ) -> None:
        """R32 E13: json would change it in silence, or write what others can't read."""
        with pytest.raises(UncacheableError) as caught:
            encode(value)

        assert place is None or caught.value.place == place
        assert why in caught.value.why
        assert str(caught.value) == f"{caught.value.place}: {caught.value.why}"

    @pytest.mark.parametrize("sort", [False, True])
    @pytest.mark.parametrize(("value", "place", "why"), REFUSED)
    def test_canonical_form_refuses_the_same(
        self, value: Any, place: str | None, why: str, sort: bool
    ) -> None:
        with pytest.raises(UncacheableError):
            encode({"outer": value}, sort=sort)

    def test_the_place_begins_with_the_name_that_is_given(self) -> None:
        with pytest.raises(UncacheableError) as caught:
            encode({"a": [1, ()]}, "$.context")

        assert caught.value.place == "$.context.a[1]"

    def test_an_object_is_never_kept_by_its_text_form(self) -> None:
        """R06: the text of a plain object shows a memory address."""
        with pytest.raises(UncacheableError) as caught:
            encode({"tool": Plain()})

        assert " at 0x" not in str(caught.value)
        assert "Plain" in str(caught.value)

    @pytest.mark.parametrize("kind", ["lists", "dicts", "both"])
    def test_250_levels_are_in(self, coders: None, kind: str) -> None:
        value = nested(kind, DEPTH)
        data = encode(value)

        assert DEPTH == 250
        assert scan(data.decode())[0] == json.loads(data) == orjson.loads(data) == value

    @pytest.mark.parametrize("kind", ["lists", "dicts", "both"])
    def test_251_levels_are_out(self, coders: None, kind: str) -> None:
        with pytest.raises(UncacheableError, match="250 levels"):
            encode(nested(kind, DEPTH + 1))

    @pytest.mark.parametrize("sort", [False, True])
    def test_250_levels_are_canonical(self, sort: bool) -> None:
        assert encode(nested("dicts", DEPTH), sort=sort).count(b"{") == DEPTH

    def test_a_value_that_holds_itself_is_refused(self, coders: None) -> None:
        value: list[Any] = []
        value.append(value)

        with pytest.raises(UncacheableError):
            encode(value)

    @pytest.mark.parametrize(
        "number",
        [
            pytest.param(-(2**63), id="lowest"),
            pytest.param(2**63, id="above-signed"),
            pytest.param(2**64 - 1, id="highest"),
            pytest.param(0, id="zero"),
        ],
    )
    def test_ints_up_to_both_limits_are_in(self, coders: None, number: int) -> None:
        data = encode([number])

        assert form(scan(data.decode())[0]) == form(orjson.loads(data)) == form([number])

    @pytest.mark.parametrize(
        "number",
        [0.0, -0.0, 1.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16, 123456789.123456789],
    )
    def test_floats_stay_floats(self, coders: None, number: float) -> None:
        data = encode([number])

        assert form(scan(data.decode())[0]) == form(orjson.loads(data)) == form([number])


class TestScan:
    def test_value_within_a_text_ends_where_it_ends(self, coders: None) -> None:
        assert scan('x: {"a": [1]}, y', 3) == ({"a": [1]}, 13)

    def test_nesting_without_end_is_a_value_error(self, coders: None) -> None:
        """E13: what is nested too deeply is unreadable, not a crash."""
        with pytest.raises(ValueError):
            scan("[" * 200_000)


def test_int_that_can_not_even_be_shown_is_named() -> None:
    """Python refuses to write more than 4,300 digits, also in our own message."""
    with pytest.raises(UncacheableError, match="outside") as caught:
        encode({"n": [10**5000]})

    assert caught.value.place == "$.n[0]"
