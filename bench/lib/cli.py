"""How every measurement ends."""

import sys

from lib.process import Failed


def run(main):
    """Runs `main` and exits with its status; a measurement that says nothing exits with 1."""
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1)
