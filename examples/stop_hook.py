"""A stop hook that keeps what an agent answered, and a front that asks the cache first.

Two processes share one file: the agent's hook stores, the next run looks up.
"""

from __future__ import annotations

import subprocess
import sys

from respcache import Cache

HOOK = """
import json, sys
from respcache import Cache

event = json.load(sys.stdin)
cache = Cache("answers.json", trim_spaces=True)
cache.store(
    event["last_user_message"],
    event["stop_response"],
    context={"agent": event["agent_name"], "model": event["model_id"]},
)
"""


def main() -> None:
    event = (
        '{"agent_name": "helper", "model_id": "m-1",'
        ' "last_user_message": "How do I reset my password?",'
        ' "stop_response": "Use the link on the sign-in page."}'
    )
    subprocess.run([sys.executable, "-c", HOOK], input=event, text=True, check=True)

    cache = Cache("answers.json", trim_spaces=True)
    context = {"agent": "helper", "model": "m-1"}
    hit = cache.lookup("how do I reset my password? ", context=context)
    print(f"from the cache: {hit.response}" if hit else "a miss: ask the model")
    other = cache.lookup("how do I reset my password?", context={**context, "model": "m-2"})
    print("another model: " + ("a hit" if other else "a miss"))


if __name__ == "__main__":
    main()
