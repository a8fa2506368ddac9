"""The ``respcache`` command.

Data goes to stdout, talk to stderr. Exit codes: 0, 1 for what went wrong or was
not found, 2 for what was asked wrongly.

A hook runs at each turn of an agent, so it is reached before anything that only
people need is imported.
"""

from __future__ import annotations

import sys

from ._paths import default_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["default_path", "main"]

_HINT = "respcache: the command needs its extra: pip install 'respcache[cli]'\n"


def main(args: Sequence[str] | None = None) -> None:
    """Run the command with *args*, by default those of the process, and exit."""
    given = sys.argv[1:] if args is None else list(args)
    if given[:1] == ["hook"]:
        from .hook import main as hook

        hook(None if args is None else given[1:])
        return
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write(_HINT)
        sys.exit(2)
    from ._commands import run

    sys.exit(run(given))


if __name__ == "__main__":
    main()
