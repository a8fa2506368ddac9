"""Two coding agents work on one repository and share one file of tool results.

Each takes 40 steps: it reads, searches, edits, and runs commands. Whatever the
cache serves is compared with a fresh run of the tool.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

from respcache import ToolCache, ToolCall
from respcache.presets import CODING_AGENT

CHECK = f'"{sys.executable}" -c "import shop" > checked.txt'  # unknown effects: it may write


def script(number: int) -> list[tuple[str, dict[str, str]]]:
    """Return 40 calls, as a model would make them."""
    calls = []
    for turn in range(5):
        file = ["shop.py", "cart.py"][(number + turn) % 2]
        calls += [
            ("Grep", {"pattern": "def ", "path": "."}),
            ("Read", {"file_path": "shop.py"}),
            ("Read", {"file_path": "cart.py"}),
            ("Bash", {"command": "ls -l"}),  # on the list of harmless commands
            ("Read", {"file_path": file}),
            ("Edit", {"file_path": file, "new_string": f"# agent {number}, turn {turn}\n"}),
            ("Read", {"file_path": "README.md"}),
            ("Bash", {"command": CHECK}) if turn == 2 else ("Read", {"file_path": file}),
        ]
    return calls


def run(call: ToolCall) -> str | list[str]:
    """Do what a tool does, without a cache."""
    folder, given = Path(call.cwd or "."), call.arguments
    if call.name == "Bash":
        command = given["command"]
        return subprocess.run(command, shell=True, cwd=folder, capture_output=True).stdout.decode()
    if call.name == "Grep":
        files = sorted(folder.glob("*.py"))
        return [line for f in files for line in f.read_text().splitlines() if "def " in line]
    file = folder / given["file_path"]
    if call.name == "Edit":
        with file.open("a") as opened:
            opened.write(given["new_string"])
        return "done"
    return file.read_text()


def agent(number: int, folder: str, still, told) -> None:
    reads = hits = stale = 0

    def change(call: ToolCall) -> str | list[str]:
        with still:
            return run(call)

    with ToolCache(Path(folder, "tools.jsonl"), **CODING_AGENT) as tools:
        for name, arguments in script(number):
            call = ToolCall(name, arguments, cwd=str(Path(folder, "repo")))
            if name in CODING_AGENT["writes"]:
                tools.call(call, change)
                continue
            with still:  # no file changes until the answer is compared
                result = tools.call(call, run)
                reads += 1
                hits += result.cached
                stale += result.cached and result.content != run(call)
    told.put((reads, hits, stale))


def main() -> None:
    context = get_context("spawn")
    still, told = context.Lock(), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder, "repo")
        repo.mkdir()
        (repo / "README.md").write_text("A shop.\n")
        (repo / "shop.py").write_text("import cart\n\ndef buy():\n    return cart.total()\n")
        (repo / "cart.py").write_text("def total():\n    return 0\n")
        agents = [
            context.Process(target=agent, args=(number, folder, still, told)) for number in (0, 1)
        ]
        for each in agents:
            each.start()
        counts = [told.get(timeout=50) for _ in agents]
        for each in agents:
            each.join()
    reads, hits, stale = map(sum, zip(*counts, strict=True))
    print(f"{2 * 40} steps of two agents: {stale} stale answers, hit rate {hits / reads:.2f}")


if __name__ == "__main__":
    main()
