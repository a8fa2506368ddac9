"""Which pipeline step may be cached, and how: four questions, four leaves.

The decision tree, asked from the top, is all there is to it::

    Does it have side effects?                      yes: NONE
    Does it read state that others change?          no: EXACT
    Is a stale answer ever unsafe?                  yes: NONE
    Do prompts vary by spelling only?               yes: NORMALIZED, no: TTL

Pure: no I/O, no clock. A test that holds :func:`admit` against the written
design is what stops a cache from being put on the step that must not have one.
"""

from __future__ import annotations

from enum import Enum

from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

__all__ = ["TTLS", "Leaf", "Staleness", "Step", "admit", "checked_ttls"]


class Staleness(Enum):
    """How bad a stale answer of a step is, which bounds how old one may be."""

    COSMETIC = "cosmetic"  # nobody is misled: 6 hours
    MISLEADING = "misleading"  # somebody may be, for a while: 15 minutes
    UNSAFE = "unsafe"  # never served from a cache


class Leaf(Enum):
    """Where the decision tree puts a step."""

    EXACT = "exact"  # kept for good: it changes only with what is in its key
    TTL = "ttl"  # kept as long as its staleness class allows
    NONE = "none"  # never kept
    NORMALIZED = "normalized"  # as TTL, under its prompt without spelling


TTLS: dict[Staleness, float] = {Staleness.COSMETIC: 6 * 3600.0, Staleness.MISLEADING: 15 * 60.0}


class Step:
    """One kind of call in a pipeline, with what decides whether it may be cached.

    Args:
        name: Names it in keys, statistics and tables.
        reads_mutable_state: Whether it reads what others can change: files, a
            database, the web, the clock.
        stale_is_unsafe: Whether an answer that was right once can do harm now:
            money, access, published text.
        normalizable: Whether its prompts vary from run to run by white space,
            case and Unicode form only, and none of these carries meaning.
        side_effects: Whether it changes something outside: it sends, writes,
            grants.
        staleness: How bad a stale answer is. None: unsafe if
            *stale_is_unsafe*, else misleading.
        replay: ``"exact"``: a step with side effects may be answered with its
            own earlier result for the same prompt, inputs and context, until
            an external write is declared. None: it runs each time.

    Raises:
        ConfigError: Two of these contradict each other, or one is not what it may be.
    """

    __slots__ = (
        "name",
        "normalizable",
        "reads_mutable_state",
        "replay",
        "side_effects",
        "stale_is_unsafe",
        "staleness",
    )

    name: str
    reads_mutable_state: bool
    stale_is_unsafe: bool
    normalizable: bool
    side_effects: bool
    staleness: Staleness
    replay: str | None

    def __init__(
        self,
        name: str,
        *,
        reads_mutable_state: bool,
        stale_is_unsafe: bool,
        normalizable: bool = False,
        side_effects: bool = False,
        staleness: Staleness | None = None,
        replay: Literal["exact"] | None = None,
    ) -> None:
        if type(name) is not str or not name.strip():
            raise ConfigError(f"name={name!r}: a step's name is a text that is not blank")
        for option, value in (
            ("reads_mutable_state", reads_mutable_state),
            ("stale_is_unsafe", stale_is_unsafe),
            ("normalizable", normalizable),
            ("side_effects", side_effects),
        ):
            if type(value) is not bool:
                raise ConfigError(f"{name}: {option}={value!r}: choose True or False")
        if staleness is None:
            staleness = Staleness.UNSAFE if stale_is_unsafe else Staleness.MISLEADING
        elif not isinstance(staleness, Staleness):
            choices = ", ".join(str(each) for each in Staleness)
            raise ConfigError(f"{name}: staleness={staleness!r}: choose one of {choices}, or None")
        elif stale_is_unsafe is not (staleness is Staleness.UNSAFE):
            raise ConfigError(
                f"{name}: stale_is_unsafe={stale_is_unsafe} contradicts {staleness}; "
                "a stale answer is unsafe, or it has another class"
            )
        if replay not in (None, "exact"):
            raise ConfigError(f"{name}: replay={replay!r}: choose 'exact' or None")
        if replay is not None and not side_effects:
            raise ConfigError(
                f"{name}: replay={replay!r} is for steps with side effects; "
                "others are kept as their leaf says"
            )
        facts = {
            "name": name,
            "reads_mutable_state": reads_mutable_state,
            "stale_is_unsafe": stale_is_unsafe,
            "normalizable": normalizable,
            "side_effects": side_effects,
            "staleness": staleness,
            "replay": replay,
        }
        for fact in facts.items():
            object.__setattr__(self, *fact)

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"a step does not change; make another one with another {name}")

    __delattr__ = __setattr__

    def __repr__(self) -> str:
        rest = ", ".join(
            f"{name}={getattr(self, name)!s}" for name in self.__slots__ if name != "name"
        )
        return f"Step({self.name!r}, {rest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))


def admit(step: Step) -> Leaf:
    """Return the leaf of *step*: whether, and how, its results may be kept.

    As the tree above. A step that only acts, and reads nothing, is asked about
    its side effects first: by the tree's other questions it would be kept for good.
    """
    if step.side_effects:
        return Leaf.NONE
    if not step.reads_mutable_state:
        return Leaf.EXACT
    if step.stale_is_unsafe:
        return Leaf.NONE
    return Leaf.NORMALIZED if step.normalizable else Leaf.TTL


def checked_ttls(ttls: Mapping[Any, Any] | None) -> dict[Staleness, float]:
    """Return seconds for each class, those of *ttls* before the usual ones.

    Args:
        ttls: Seconds by :class:`Staleness`, or by the name of one.

    Raises:
        ConfigError: It names another class, the unsafe one, or what is no duration.
    """
    found = dict(TTLS)
    if ttls is not None and not hasattr(ttls, "items"):
        raise ConfigError(f"ttls={ttls!r}: pass a mapping of staleness class to seconds")
    for name, ttl in (ttls or {}).items():
        try:
            kind = Staleness(name)
        except ValueError:
            raise ConfigError(
                f"ttls: {name!r} is no staleness class; choose 'cosmetic' or 'misleading'"
            ) from None
        if kind is Staleness.UNSAFE:
            raise ConfigError("ttls: 'unsafe' has none; such a step is not cached")
        if type(ttl) not in (int, float) or not 0 < ttl < float("inf"):
            raise ConfigError(f"ttls: {kind.value}={ttl!r}: choose a number of seconds above 0")
        found[kind] = ttl
    return found
