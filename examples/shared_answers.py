"""Four processes want the same slow answer at once; it is computed once."""

from __future__ import annotations

import os
import time
from multiprocessing import get_context

from respcache import Cache


def slow_answer() -> str:
    with open("computed.txt", "a", encoding="utf-8") as log:
        log.write(f"{os.getpid()}\n")
    time.sleep(0.2)  # a model would take longer
    return "42"


def agent(_: int) -> str:
    return Cache("answers.json").get_or_call("What is the answer?", slow_answer)


def main() -> None:
    with get_context("spawn").Pool(4) as pool:
        answers = pool.map(agent, range(4))
    with open("computed.txt", encoding="utf-8") as log:
        print(f"{len(answers)} answers, computed {len(log.readlines())} time(s)")


if __name__ == "__main__":
    main()
