"""A nightly job writes a digest of a documentation folder: 40 steps, one cache.

In the second night nothing has changed. Before the third, somebody deletes a
paragraph: the digest must not cite it, though most of the night is served.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from respcache import Done, Leaf, Staleness, Step, StepCache, admit
from respcache.replay import Item, replay

SNIPPET = Step(
    "snippet", reads_mutable_state=True, stale_is_unsafe=False, staleness=Staleness.COSMETIC
)
LINT = Step("lint", reads_mutable_state=False, stale_is_unsafe=False)
TOPIC = Step("topic", reads_mutable_state=True, stale_is_unsafe=False, normalizable=True)
DIGEST = Step("digest", reads_mutable_state=True, stale_is_unsafe=True)
STEPS = {step.name: step for step in (SNIPPET, LINT, TOPIC, DIGEST)}
DESIGN = {
    "snippet": Leaf.TTL,
    "lint": Leaf.EXACT,
    "topic": Leaf.NORMALIZED,
    "digest": Leaf.NONE,
}
PAGES = 13  # three steps each, and one digest of them all


def write_pages(folder: Path) -> list[str]:
    """Return the pages of a small documentation, which are written below *folder*."""
    paths = []
    for number in range(PAGES):
        page = folder / f"page-{number:02}.md"
        page.write_text(
            f"# Feature {number}\n\nFeature {number} is on by default.\n\n"
            f"It was tested with {number + 2} users.\n"
        )
        paths.append(str(page))
    return paths


def work(name: str, prompt: str, inputs: list[str]) -> str | list[str]:
    """Stand in for the model: give what a step makes of its prompt and of its files."""
    texts = [Path(path).read_text() for path in inputs]
    if name == "lint":
        return [
            f"line {n} is long" for n, line in enumerate(texts[0].split("\n")) if len(line) > 80
        ]
    if name == "topic":
        return prompt.casefold().split()[-1]
    return " ".join(text.split("\n\n", 1)[1].replace("\n", " ").strip() for text in texts)


def run(item: Item, steps: StepCache) -> Done:
    """Run one recorded step again."""
    return step(steps, item.step, item.prompt, item.inputs)


def step(steps: StepCache, name: str, prompt: str, inputs: list[str]) -> Done:
    # What is on the exact leaf has its file in the key, as all others have.
    return steps.run(STEPS[name], prompt, lambda text: work(name, text, inputs), inputs=inputs)


def night(steps: StepCache, pages: list[str], number: int) -> str:
    """Run the job, and return the digest."""
    for index, page in enumerate(pages):
        step(steps, "snippet", f"Summarize page {index}.", [page])
        step(steps, "lint", f"Lint page {index}.", [page])
        step(steps, "topic", f"Topic of page{' ' * number} Feature-{index}", [])
    return str(step(steps, "digest", "Write the digest.", pages).output)


def main() -> int:
    assert {name: admit(each) for name, each in STEPS.items()} == DESIGN
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        docs.mkdir()
        pages = write_pages(docs)
        recording = Path(folder, "runs.jsonl")
        with StepCache(Path(folder, "steps.jsonl"), model="small-2") as steps:
            print(steps.decision_table(STEPS.values()))
            with steps.record(recording):
                night(steps, pages, 1)
                night(steps, pages, 2)
            before = steps.stats()

            deleted = f"It was tested with {PAGES // 2 + 2} users."
            page = Path(pages[PAGES // 2])
            page.write_text(page.read_text().replace(deleted, ""))
            digest = night(steps, pages, 3)
            after = steps.stats()

            runs = 3 * PAGES + 1
            print(f"{runs} steps a night; served: {before['hits']} in the second, ", end="")
            print(f"{after['hits'] - before['hits']} in the third, after the edit")
            print(f"the deleted paragraph is cited: {deleted in digest}")
            for each in STEPS.values():
                print(f"{each.name}: {steps.contract(each)}")
        report = replay(recording, run, hit_budget=0.5)
        print(f"\n{report}")
        is_good = (
            report.passed
            and deleted not in digest
            and before["hits"] == 3 * PAGES
            and after["hits"] - before["hits"] == 3 * PAGES - 2
        )
        return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
