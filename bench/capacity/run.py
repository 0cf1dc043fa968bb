#!/usr/bin/env python3
"""Checks that `hotrow capacity` finds limits known by construction.

The servers are a token bucket that delays, one that refuses, and a queue with random arrivals and
work (M/M/1). Several searches of each, in turn.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, report, stats, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

ERROR_MOST, COVERED_LEAST = 0.05, 0.9
BUCKET_SECONDS = 60
SEARCH_TIMEOUT_S = 900
# Answers that leave late by half of the objective's time are caused by the machine. A search with a
# larger share of them has no known truth, and is repeated.
LATE_SHARE = 0.003
BUCKET_RPS, QUEUE_RPS = 7_000, 10_000
BURST = 70
QUICK = ["--start-rate", "1000", "--step", "1s", "--plateau", "4s"]
P99_MS, BUCKET_P99_MS, ERRORS = 10, 50, 0.01


def knee():
    """Returns the knee of M/M/1, where sojourn times are exponential with rate μ − λ.

    Source: Kleinrock, "Queueing Systems", 1975.
    """
    return QUEUE_RPS - math.log(100) / (P99_MS / 1e3)


# The delaying bucket gets even arrivals: random ones would queue before it, so that its limit would
# lie below its rate. The refusing one reaches its share of errors at the rate whose excess is that
# share; its stock absorbs delays of some ms by the machine, and is a small part of a step's
# requests.
CASES = {
    "bucket": {
        "law": ["delays", BUCKET_RPS, 1],
        "truth": BUCKET_RPS,
        "late_us": BUCKET_P99_MS * 500,
        "seconds": BUCKET_SECONDS,
        "options": [*QUICK, "--slo", f"p99<{BUCKET_P99_MS}ms", "--arrivals", "uniform"],
    },
    "refusing": {
        "law": ["refuses", BUCKET_RPS, BURST],
        "truth": BUCKET_RPS / (1 - ERRORS),
        "late_us": BUCKET_P99_MS * 500,
        "seconds": BUCKET_SECONDS,
        "options": [
            *QUICK,
            "--slo",
            f"p99<{BUCKET_P99_MS}ms,errors<{ERRORS * 100:g}%",
            "--arrivals",
            "uniform",
        ],
    },
    "queue": {
        "law": ["queue", QUEUE_RPS, None],
        "truth": knee(),
        "late_us": P99_MS * 500,
        "seconds": None,
        "options": ["--start-rate", "1000", "--slo", f"p99<{P99_MS}ms", "-c", "500"],
    },
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases",
        type=cli.some_of(CASES),
        default=",".join(CASES),
        help=f"comma-separated, of {', '.join(CASES)}",
    )
    parser.add_argument("--times", type=int, default=10, help="searches of each")
    parser.add_argument(
        "--disturbed-most", type=int, default=10, help="searches of each that may be done again"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return parser.parse_args()


def check_of(port, late_us):
    """Returns the server's own figures with the share of answers this late."""
    result = json.loads(Connection(port).get("/_check").body)
    bounds = [*result["late_below_us"], math.inf]
    late = sum(n for n, bound in zip(result["answers"], bounds, strict=True) if bound > late_us)
    return {**result, "late_share": late / max(1, sum(result["answers"]))}


def search(binary, server, name, seed, folder):
    case = CASES[name]
    port = free_port()
    law = [str(seed if word is None else word) for word in case["law"]]
    process = Process(
        f"{name}-{seed}", [server, f"127.0.0.1:{port}", *law], port, folder, core="0-1"
    )
    try:
        command = [
            binary,
            "capacity",
            "--json",
            "-q",
            "--seed",
            str(seed),
            *case["options"],
            f"http://127.0.0.1:{port}/",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SEARCH_TIMEOUT_S)
        if not done.stdout:
            raise Failed(
                f"`{' '.join(command)}` printed nothing (status "
                f"{done.returncode}):\n{done.stderr[-2000:]}"
            )
        result = json.loads(done.stdout)
        check = check_of(port, case["late_us"])
    finally:
        process.end()
    low, high = (result["interval"][end] for end in ("low", "high"))
    found = result["end"] == "found" and low["plateau"] and high["plateau"]
    one = {
        "seed": seed,
        "status": done.returncode,
        "end": result["end"],
        "capacity_rps": result["capacity_rps"],
        "low_rps": low and low["rps"],
        "high_rps": high and high["rps"],
        "error": result["capacity_rps"] and result["capacity_rps"] / case["truth"] - 1,
        "covered": bool(found and low["rps"] <= case["truth"] <= high["rps"]),
        "seconds": result["duration_s"],
        "noise": result["interval"]["noise"],
        "verdict": result["verdict"],
        "check": check,
        "steps": [
            {
                key: step[key]
                for key in ("rate", "purpose", "verdict", "length_s", "z", "p99_us", "failed_share")
            }
            for step in result["steps"]
        ],
    }
    print(
        f"{name} {seed}: {one['verdict']} {one['seconds']:.0f} s, "
        f"{100 * check['late_share']:.2f} % left late",
        file=sys.stderr,
    )
    return one


def judge(found):
    verdicts = []
    for name, runs in found.items():
        errors = [abs(one["error"]) for one in runs if one["error"] is not None]
        worst = max(errors) if len(errors) == len(runs) else None
        verdicts.append(report.verdict(f"{name}: largest error of the capacity", worst, ERROR_MOST))
        covered = sum(one["covered"] for one in runs) / len(runs)
        verdicts.append(
            report.verdict(
                f"{name}: share of intervals that hold the truth",
                covered,
                COVERED_LEAST,
                at_most=False,
            )
        )
        if seconds := CASES[name]["seconds"]:
            verdicts.append(
                report.verdict(
                    f"{name}: longest search", max(one["seconds"] for one in runs), seconds, "s"
                )
            )
    return verdicts


def as_markdown(found, disturbed):
    number = lambda value: "–" if value is None else f"{value:,.0f}"  # noqa: E731
    percent = lambda value: "–" if value is None else f"{100 * value:+.1f} %"  # noqa: E731
    rows = []
    for name, runs in found.items():
        truth = CASES[name]["truth"]
        rows += [
            [
                name,
                f"{truth:,.0f}",
                number(one["capacity_rps"]),
                percent(one["error"]),
                f"{number(one['low_rps'])} to {number(one['high_rps'])}",
                "yes" if one["covered"] else f"no ({one['end']})",
                f"{one['seconds']:.0f}",
            ]
            for one in runs
        ]
        rows.append(
            [
                f"{name}, median",
                f"{truth:,.0f}",
                number(stats.median([one["capacity_rps"] or 0 for one in runs])),
                "",
                "",
                "",
                f"{stats.median([one['seconds'] for one in runs]):.0f}",
            ]
        )
    again = ", ".join(f"{name} {len(runs)}" for name, runs in disturbed.items())
    late = f"{100 * LATE_SHARE:g} % of the server's answers"
    words = (
        f"Repeated, because more than {late} left late by half of the objective's time: {again}."
    )
    return f"{words}\n\n" + report.table(
        ["case", "truth/s", "capacity/s", "error", "interval", "holds the truth", "s"], rows
    )


def search_all(args, binary, server, folder, kept):
    found, disturbed = kept
    for time in range(args.times):
        for name in args.cases:
            while True:
                one = search(binary, server, name, args.seed + time, folder)
                if one["check"]["late_share"] <= LATE_SHARE:
                    break
                disturbed[name].append(one)
                if len(disturbed[name]) > args.disturbed_most:
                    raise Failed(
                        f"{len(disturbed[name])} searches of {name} were disturbed: more than "
                        f"{100 * LATE_SHARE:g} % of the "
                        "server's answers left late by half of the objective's time; is the "
                        "machine at rest?"
                    )
            found[name].append(one)


def main():
    args = arguments()
    binary = subjects.hotrow_binary()
    if binary is None:
        raise Failed(
            "there is no hotrow to measure: run `cargo build --release`, or set HOTROW to the "
            "binary"
        )
    server = subjects.build("known-limit")
    found, disturbed = {name: [] for name in args.cases}, {name: [] for name in args.cases}
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        try:
            search_all(args, binary, server, folder, (found, disturbed))
        except KeyboardInterrupt:
            # The searches until the interruption are valid.
            print("interrupted: what was found is kept", file=sys.stderr)
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        raise Failed("interrupted before the first search had ended")
    options = {
        name: {key: CASES[name][key] for key in ("law", "truth", "options")} for name in args.cases
    }
    results = {
        "settings": vars(args),
        "constructions": options,
        "cases": found,
        "disturbed": disturbed,
    }
    return report.keep("capacity", results, as_markdown(found, disturbed), judge(found), args.runs)


if __name__ == "__main__":
    cli.run(main)
