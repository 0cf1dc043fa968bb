"""How every measurement begins and ends."""

import argparse
import sys

from lib.process import Failed


def some_of(known):
    """The type of an argument that names some of `known`, with commas between them."""

    def parse(text):
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return parse


def run(main):
    """Runs `main` and exits with its status; a measurement that says nothing exits with 1."""
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1)
