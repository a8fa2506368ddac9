"""Which leaf a step lands on, and what it may not say of itself."""

from __future__ import annotations

import itertools

import pytest

from respcache import ConfigError, Leaf, Staleness, Step, StepCache, admit


def step(name: str = "s", **facts) -> Step:
    facts.setdefault("reads_mutable_state", True)
    facts.setdefault("stale_is_unsafe", False)
    return Step(name, **facts)


# A pipeline's written design: what its steps are, and where each belongs.
DESIGN = {
    "Tool-call schema validation": (
        {"reads_mutable_state": False, "stale_is_unsafe": False},
        Leaf.EXACT,
        "input digest",
    ),
    "Doc snippet retrieval": (
        {
            "reads_mutable_state": True,
            "stale_is_unsafe": False,
            "staleness": Staleness.COSMETIC,
        },
        Leaf.TTL,
        "TTL 360 minutes + input digest",
    ),
    "Final user answer": (
        {"reads_mutable_state": True, "stale_is_unsafe": True},
        Leaf.NONE,
        "none (recompute)",
    ),
    "Intent classification": (
        {"reads_mutable_state": True, "stale_is_unsafe": False, "normalizable": True},
        Leaf.NORMALIZED,
        "TTL 15 minutes + input digest + normalizer 1ftck",
    ),
}


@pytest.mark.parametrize("name", list(DESIGN))
def test_step_of_the_written_design_lands_on_its_leaf(name):
    facts, leaf, _ = DESIGN[name]

    assert admit(Step(name, **facts)) is leaf


def test_decision_table_says_what_the_design_says():
    steps = StepCache(model="m")

    table = steps.decision_table(Step(name, **facts) for name, (facts, _, _) in DESIGN.items())

    assert table == (
        "| Step | Mutable state | Stale unsafe | Side effects | Leaf | Invalidation |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| Tool-call schema validation | no | n/a | no | exact | input digest |\n"
        "| Doc snippet retrieval | yes | no | no | ttl | TTL 360 minutes + input digest |\n"
        "| Final user answer | yes | yes | no | none | none (recompute) |\n"
        "| Intent classification | yes | no | no | normalized "
        "| TTL 15 minutes + input digest + normalizer 1ftck |\n"
    )
    assert [row.split("| ")[-1][:-2] for row in table.splitlines()[2:]] == [
        invalidation for _, _, invalidation in DESIGN.values()
    ]


def test_bar_in_a_name_does_not_break_the_table():
    table = StepCache(model="m").decision_table([step("a|b\nc")])

    assert table.splitlines()[2].startswith("| a\\|b c | yes | no | no | ttl |")


def test_pure_side_effect_is_not_kept():
    """By the other questions alone it would be kept for good: it reads nothing."""
    assert admit(step(reads_mutable_state=False, side_effects=True)) is Leaf.NONE


@pytest.mark.parametrize(
    ("reads", "unsafe", "normalizable", "acts"), list(itertools.product([False, True], repeat=4))
)
def test_every_combination_of_facts_has_the_leaf_of_the_tree(reads, unsafe, normalizable, acts):
    leaf = admit(
        Step(
            "s",
            reads_mutable_state=reads,
            stale_is_unsafe=unsafe,
            normalizable=normalizable,
            side_effects=acts,
        )
    )

    if acts or (reads and unsafe):
        assert leaf is Leaf.NONE
    elif not reads:
        assert leaf is Leaf.EXACT
    else:
        assert leaf is (Leaf.NORMALIZED if normalizable else Leaf.TTL)


@pytest.mark.parametrize(
    ("unsafe", "expected"), [(True, Staleness.UNSAFE), (False, Staleness.MISLEADING)]
)
def test_class_that_is_not_given_follows_from_the_danger(unsafe, expected):
    assert step(stale_is_unsafe=unsafe).staleness is expected


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        pytest.param(
            {"stale_is_unsafe": True, "staleness": Staleness.COSMETIC},
            "contradicts Staleness.COSMETIC",
            id="unsafe but cosmetic",
        ),
        pytest.param(
            {"stale_is_unsafe": True, "staleness": Staleness.MISLEADING},
            "contradicts Staleness.MISLEADING",
            id="unsafe but misleading",
        ),
        pytest.param(
            {"stale_is_unsafe": False, "staleness": Staleness.UNSAFE},
            "contradicts Staleness.UNSAFE",
            id="safe but unsafe",
        ),
        pytest.param({"staleness": "cosmetic"}, "staleness='cosmetic'", id="class by name"),
        pytest.param({"replay": "exact"}, "for steps with side effects", id="replay of a read"),
        pytest.param({"replay": "fuzzy", "side_effects": True}, "'fuzzy'", id="another replay"),
        pytest.param({"normalizable": 1}, "normalizable=1", id="flag of another type"),
        pytest.param({"side_effects": None}, "side_effects=None", id="flag left open"),
    ],
)
def test_contradiction_is_refused_and_named(facts, named):
    with pytest.raises(ConfigError, match=named) as error:
        step("publish", **facts)

    assert str(error.value).startswith("publish: ")


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_step_without_a_name_is_refused(name):
    with pytest.raises(ConfigError, match="name="):
        step(name)


def test_step_does_not_change():
    """An admission that was reviewed must be the one that runs."""
    made = step()

    with pytest.raises(AttributeError, match="make another one"):
        made.stale_is_unsafe = True
    with pytest.raises(AttributeError):
        del made.name

    assert made == step() and hash(made) == hash(step()) and made != step(normalizable=True)
    assert "reads_mutable_state=True" in repr(made)


@pytest.mark.parametrize(
    ("facts", "options", "sentence"),
    [
        pytest.param(
            {"staleness": Staleness.COSMETIC},
            {},
            "this step may serve a result up to 360 minutes old",
            id="cosmetic",
        ),
        pytest.param({}, {}, "this step may serve a result up to 15 minutes old", id="misleading"),
        pytest.param(
            {},
            {"ttls": {"misleading": 60}},
            "this step may serve a result up to 1 minute old",
            id="overridden",
        ),
        pytest.param(
            {},
            {"ttls": {Staleness.MISLEADING: 90.0}},
            "this step may serve a result up to 1.5 minutes old",
            id="overridden by member",
        ),
        pytest.param(
            {"staleness": Staleness.COSMETIC},
            {"ttl": 30},
            "this step may serve a result up to 30 seconds old",
            id="bound of the cache",
        ),
        pytest.param(
            {"normalizable": True},
            {},
            "this step may serve a result up to 15 minutes old, also of a prompt that differs "
            "in white space, case or Unicode form",
            id="normalized",
        ),
        pytest.param(
            {"reads_mutable_state": False},
            {},
            "this step may serve a result of any age, while its prompt, model, inputs and "
            "context are equal",
            id="exact",
        ),
        pytest.param(
            {"stale_is_unsafe": True}, {}, "this step never serves a stored result", id="none"
        ),
        pytest.param(
            {"side_effects": True, "replay": "exact"},
            {},
            "this step may serve its own result of any age, for the same prompt, inputs and "
            "context, until an external write is declared",
            id="replayed write",
        ),
    ],
)
def test_contract_is_the_sentence_for_the_docs(facts, options, sentence):
    assert StepCache(model="m", **options).contract(step(**facts)) == sentence


@pytest.mark.parametrize(
    ("options", "named"),
    [
        pytest.param({"model": ""}, "model=''", id="no model"),
        pytest.param({"model": None}, "model=None", id="model of None"),
        pytest.param({"ttls": {"unsafe": 5}}, "'unsafe' has none", id="ttl of unsafe"),
        pytest.param({"ttls": {"cosmtic": 5}}, "'cosmtic'", id="class misspelt"),
        pytest.param({"ttls": {"cosmetic": 0}}, "cosmetic=0", id="ttl of zero"),
        pytest.param({"ttls": {"cosmetic": None}}, "cosmetic=None", id="ttl without end"),
        pytest.param({"ttls": {"cosmetic": True}}, "cosmetic=True", id="ttl of True"),
        pytest.param({"ttls": 5}, "pass a mapping", id="ttls a number"),
        pytest.param({"hit_budgets": {"s": 1.5}}, "s=1.5", id="budget above one"),
        pytest.param({"hit_budgets": 0.4}, "pass a mapping", id="budget a number"),
        pytest.param({"exact_quotes": 1}, "exact_quotes=1", id="flag"),
        pytest.param({"format": "flat", "path": "a.json"}, "outputs of steps", id="flat file"),
        pytest.param({"max_entries": 0}, "max_entries=0", id="limit"),
    ],
)
def test_option_that_can_not_be_is_refused_by_name(options, named):
    with pytest.raises(ConfigError, match=named):
        StepCache(**{"model": "m", **options})
