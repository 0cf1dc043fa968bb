"""Start and end of every measurement."""

import argparse
import sys

from lib.process import Failed


def some_of(known):
    """Returns the type of an argument with comma-separated names out of `known`."""

    def parse(text):
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return names

    return parse


def run(main):
    """Runs `main` and exits with its status; a measurement without a result exits with 1."""
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1)
