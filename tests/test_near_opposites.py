"""Commands that share all but the one word that carries the meaning: never one entry.

What compares by likeness takes some of these for the same. Each pair goes through
every normalizer, leaf, scope and file; one wrong hit is one too many.
"""

from __future__ import annotations

import itertools

import pytest

from respcache import (
    Cache,
    Leaf,
    Normalizer,
    Scope,
    Staleness,
    Step,
    StepCache,
    ToolCache,
    ToolCall,
    admit,
)

PAIRS = [
    ("Activate the account of user 4471", "Deactivate the account of user 4471"),
    ("Approve invoice 88 for payment", "Reject invoice 88 for payment"),
    ("Grant Ada write access to the ledger", "Revoke Ada write access to the ledger"),
    ("Charge 40 EUR to card 19", "Refund 40 EUR to card 19"),
    ("Publish the draft on pricing", "Unpublish the draft on pricing"),
    ("Lock the door of lab 3", "Unlock the door of lab 3"),
    ("Enable two-factor login for the team", "Disable two-factor login for the team"),
    ("Increase the limit of project Oak by 10", "Decrease the limit of project Oak by 10"),
    ("Add Bo to the list of recipients", "Remove Bo from the list of recipients"),
    ("Send the files to the archive", "Send the files from the archive"),
    ("Ship order 512 before Friday", "Ship order 512 after Friday"),
    ("List rows where total > 100", "List rows where total < 100"),
    ("Delete the logs that are older than May", "Delete the logs that are newer than May"),
    ("Allow traffic on port 22", "Deny traffic on port 22"),
    ("Is it safe to mix these two?", "Is it unsafe to mix these two?"),
    ("Merge main into release", "Merge release into main"),
    ("Set the flag to true for region EU", "Set the flag to false for region EU"),
    ("Do restart the primary node", "Do not restart the primary node"),
]
NORMALIZERS = [
    Normalizer(fold=fold, trim=trim, form=form, collapse=collapse)
    for fold, trim, collapse, form in itertools.product(
        [False, True], [False, True], [False, True], [None, "NFC", "NFKC"]
    )
]
STEPS = [
    Step("exact", reads_mutable_state=False, stale_is_unsafe=False),
    Step("ttl", reads_mutable_state=True, stale_is_unsafe=False, staleness=Staleness.COSMETIC),
    Step("normalized", reads_mutable_state=True, stale_is_unsafe=False, normalizable=True),
    Step("none", reads_mutable_state=True, stale_is_unsafe=True),
    Step("acts", reads_mutable_state=False, stale_is_unsafe=True, side_effects=True),
    Step(
        "replayed",
        reads_mutable_state=True,
        stale_is_unsafe=True,
        side_effects=True,
        replay="exact",
    ),
]
SCOPES = [
    None,
    *(
        Scope(agent=agent, user=user, session=session)
        for agent, user, session in itertools.product([None, "a"], [None, "u"], [None, "s"])
    ),
]
BOTH = [*PAIRS, *((other, one) for one, other in PAIRS)]


def spellings(text):
    """Return what a sloppy writer may make of *text*."""
    return [text, text.upper(), f"  {text}\n", text.replace(" ", "   "), text.rstrip("?")]


@pytest.fixture(params=["memory", "document", "log"])
def path(request, tmp_path):
    suffix = {"memory": None, "document": "json", "log": "jsonl"}[request.param]
    return suffix and tmp_path / f"cache.{suffix}"


def test_there_are_eighteen_pairs_that_differ_in_little():
    assert len(PAIRS) == 18 and len({text for pair in PAIRS for text in pair}) == 36
    for one, other in PAIRS:
        assert abs(len(one.split()) - len(other.split())) <= 1


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=lambda each: each.tag)
def test_no_normalizer_takes_a_question_for_its_opposite(normalizer):
    cache = Cache(normalizer=normalizer)
    wrong = []
    for one, other in BOTH:
        cache.clear()
        cache.store(one, "yes")
        wrong += [asked for asked in spellings(other) if cache.lookup(asked)]

    assert wrong == []


def test_no_file_takes_a_question_for_its_opposite(path):
    with Cache(path, trim_spaces=True) as cache:
        cache.store_many([(text, text) for pair in PAIRS for text in pair])

        assert all(cache.get(text.upper()) == text for pair in PAIRS for text in pair)


@pytest.mark.parametrize("exact_quotes", [False, True], ids=["plain", "quotes"])
@pytest.mark.parametrize("step", STEPS, ids=lambda each: each.name)
def test_no_leaf_takes_a_prompt_for_its_opposite(path, step, exact_quotes):
    wrong = []
    with StepCache(path, model="m", exact_quotes=exact_quotes) as steps:
        for one, other in PAIRS:
            steps.run(step, one, lambda prompt: prompt)
            for asked in spellings(other):
                done = steps.run(step, asked, lambda prompt: prompt)
                if done.output.casefold().split() != asked.casefold().split():
                    wrong.append((one, asked))
            hit = steps.run(step, one, lambda _: "it ran").output
            assert hit == ("it ran" if admit(step) is Leaf.NONE and not step.replay else one)

    assert wrong == []


@pytest.mark.parametrize("exact_quotes", [False, True], ids=["plain", "quotes"])
def test_audit_finds_no_pair(exact_quotes):
    steps = StepCache(model="m", exact_quotes=exact_quotes)

    assert steps.audit(text for pair in PAIRS for text in pair) == []


@pytest.mark.parametrize(
    "scope",
    SCOPES,
    ids=lambda each: (
        "-".join(filter(None, (each.agent, each.user, each.session))) if each else "none"
    ),
)
def test_no_scope_takes_a_call_for_its_opposite(scope):
    tools = ToolCache(reads={"Ask": []})

    def ask(command):
        call = ToolCall("Ask", {"command": command}, scope=scope)
        return tools.call(call, lambda call: call.arguments["command"]).content

    for one, other in PAIRS:
        for asked in (one, *spellings(other), one):
            assert ask(asked) == asked
