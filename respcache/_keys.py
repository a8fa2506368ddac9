"""What makes two questions equal: normalization and keys.

A key is a line of text whose parts can't run into each other::

    q / namespace / normalizer / context / normalized question
    q//1f//what is our refund policy?
    q/=acme/1ft/0f3a...c1/hello

The namespace is percent-quoted behind ``=`` (nothing: the shared one), so it is
never folded and holds no ``/``; the normalizer's tag carries its version and
options; the context stands as a 160-bit digest of its canonical JSON; the
question comes last, in full. Golden keys are pinned by a test: a release that
changes one must give the normalizer or the front a new version.
"""

from __future__ import annotations

from ._json import encode
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

__all__ = [
    "Normalizer",
    "digest",
    "field_digests",
    "flat_key",
    "front_and_namespace",
    "key_head",
    "scope_of",
    "split_key",
]

_VERSION = "1"

# What Go's strings.TrimSpace trims: Unicode's White_Space, so without the
# U+001C..U+001F that str.strip takes too.
_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

_blake2b: Any = None


class Normalizer:
    """Decide which spellings of a question are one question.

    Applies *form*, fold, *form* again, collapse and trim, in this order, so
    that normalizing twice equals normalizing once for every code point.

    Args:
        fold: Ignore case, by Unicode case folding (``ß`` equals ``ss``).
        trim: Ignore white space at both ends.
        form: Compare under Unicode ``"NFC"`` or ``"NFKC"``. None: as typed.
        collapse: Take each run of white space as one space.

    Raises:
        ConfigError: *form* is not one of these.
    """

    __slots__ = ("collapse", "fold", "form", "tag", "trim")

    def __init__(
        self,
        *,
        fold: bool = True,
        trim: bool = False,
        form: Literal["NFC", "NFKC"] | None = None,
        collapse: bool = False,
    ) -> None:
        if form not in (None, "NFC", "NFKC"):
            raise ConfigError(f"form={form!r}: choose None, 'NFC' or 'NFKC'")
        for name, value in (("fold", fold), ("trim", trim), ("collapse", collapse)):
            if type(value) is not bool:
                raise ConfigError(f"{name}={value!r}: choose True or False")
        self.fold = fold
        self.trim = trim
        self.form = form
        self.collapse = collapse
        self.tag = (
            _VERSION
            + "f" * fold
            + "t" * trim
            + "c" * collapse
            + {None: "", "NFC": "n", "NFKC": "k"}[form]
        )

    def __call__(self, question: str) -> str:
        """Return *question* as it is compared."""
        if self.form is not None:
            return self._with_form(question)
        text = question.casefold() if self.fold else question
        return self._spaces(text)

    def function(self) -> Callable[[str], str]:
        """Return the quickest function that does the same."""
        plain = self.fold and not (self.trim or self.collapse or self.form)
        return str.casefold if plain else self

    def _spaces(self, text: str) -> str:
        if self.collapse:
            # Joining by words would trim as well; the ends keep one space each.
            core = " ".join(text.split())
            if self.trim or not text:
                return core
            if not core:
                return " "
            return " " * text[0].isspace() + core + " " * text[-1].isspace()
        return text.strip() if self.trim else text

    def _with_form(self, question: str) -> str:
        from unicodedata import normalize

        form = self.form
        assert form is not None
        text = normalize(form, question)
        # Folding can leave a text that is no longer in its form, and the form
        # of a folded text can fold again (U+0345, for one): repeat until it
        # stays. Unicode's own caseless match folds and normalizes twice.
        while self.fold:
            again = normalize(form, text.casefold())
            if again == text:
                break
            text = again
        return self._spaces(text)

    def __repr__(self) -> str:
        return (
            f"Normalizer(fold={self.fold}, trim={self.trim}, form={self.form!r}, "
            f"collapse={self.collapse})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalizer) and other.tag == self.tag

    def __hash__(self) -> int:
        return hash(self.tag)


def scope_of(front: str, namespace: str | None) -> str:
    """Return the prefix that all keys of *namespace* share, and no others have."""
    if namespace is None:
        return f"{front}//"
    quoted = namespace.replace("%", "%25").replace("/", "%2F")
    return f"{front}/={quoted}/"


def front_and_namespace(key: str) -> tuple[str, str | None]:
    """Return what ``scope_of`` was given for *key*: the front's letter, and the namespace."""
    front, _, rest = key.partition("/")
    quoted = rest.partition("/")[0]
    if not quoted:
        return front, None
    return front, quoted.removeprefix("=").replace("%2F", "/").replace("%25", "%")


def key_head(scope: str, normalizer: Normalizer, context: Any) -> str:
    """Return a key up to its question.

    Raises:
        UncacheableError: *context* is not a dict of JSON values.
    """
    if context is None:
        return f"{scope}{normalizer.tag}//"
    return f"{scope}{normalizer.tag}/{digest(encode(context, '$.context', sort=True))}/"


def split_key(key: str) -> tuple[str, str, str, str]:
    """Return namespace part, normalizer tag, context digest and text of *key*."""
    _, namespace, tag, context, text = key.split("/", 4)
    return namespace, tag, context, text


def flat_key(question: str, *, fold: bool, trim: bool) -> str:
    """Return the key of *question* in docker-agent's file, as Go makes it.

    Go lowers letter by letter: U+0130 becomes ``i``, a final sigma U+03C3.
    """
    text = question.strip(_GO_SPACE) if trim else question
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower() if fold else text


def field_digests(context: dict[str, Any] | None) -> dict[str, str] | None:
    """Return a short digest for each field of *context*, by which misses are explained."""
    if context is None:
        return None
    return {
        name: digest(encode(value, "$.context", sort=True), 4) for name, value in context.items()
    }


def digest(data: bytes, size: int = 20) -> str:
    """Return a digest of *data* of *size* bytes, in hex."""
    global _blake2b
    if _blake2b is None:
        try:
            from _blake2 import blake2b  # hashlib would load OpenSSL
        except ImportError:
            from hashlib import blake2b
        _blake2b = blake2b
    found: str = _blake2b(data, digest_size=size).hexdigest()
    return found
