"""Start and end of every measurement."""

import argparse
import sys

from lib.process import Failed
from lib.wrk import FOREIGN_LIMIT


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


def add_measurement(parser, rounds, seconds=None, unit=None, seed=True):
    """Adds the options that every measurement by rounds has. `seconds`: None where a round has a
    number of requests; `unit`: what `--seconds` is per; `seed`: whether something is drawn at
    random.
    """
    parser.add_argument("--rounds", type=int, default=rounds)
    if seconds is not None:
        parser.add_argument("--seconds", type=int, default=seconds, help=f"per {unit}")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument(
        "--foreign-limit",
        type=float,
        default=FOREIGN_LIMIT,
        help="share of the machine that other work may take before a round is repeated",
    )
    if seed:
        parser.add_argument("--seed", type=int, default=1)
    add_runs(parser)


def add_runs(parser):
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")


def run(main):
    """Runs `main` and exits with its status; a measurement without a result exits with 1."""
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1)
