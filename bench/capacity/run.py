#!/usr/bin/env python3
"""Checks that `hotrow capacity` finds limits known by construction.

The servers are token buckets that delay or refuse, and queues with random arrivals: one worker with
random work (M/M/1), and four with constant work (M/D/4). Some share the machine with a process that
uses a CPU. Several searches of each, in turn.
"""

import argparse
import contextlib
import functools
import itertools
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


def knee(queue_rps, p99_ms):
    """Returns the knee of M/M/1, where sojourn times are exponential with rate μ − λ.

    Source: Kleinrock, "Queueing Systems", 1975.
    """
    return queue_rps - math.log(100) / (p99_ms / 1e3)


def waits_at_most(wait_s, arrival_rps, workers, work_s):
    """Returns the probability that M/D/c lets an arrival wait no longer than this.

    Source: Franx, "A simple solution for the M/D/c waiting time distribution", Operations Research
    Letters 29 (2001). The number of requests in the system at multiples of the work's time is a
    Markov chain: those in work leave, and a Poisson number of others has arrived.
    """
    load, states, arrivals = arrival_rps * work_s, 150, 30
    poisson = [math.exp(n * math.log(load) - load - math.lgamma(n + 1)) for n in range(arrivals)]
    share = [1 / states] * states
    while True:
        left = [sum(share[: workers + 1]), *share[workers + 1 :]]
        earlier = lambda n: range(max(0, n - arrivals + 1), min(n + 1, len(left)))  # noqa: E731
        after = [sum(left[m] * poisson[n - m] for m in earlier(n)) for n in range(states)]
        moved = sum(abs(one - other) for one, other in zip(share, after, strict=True))
        share = [one / sum(after) for one in after]
        if moved < 1e-6:
            break
    queued = itertools.accumulate([sum(share[: workers + 1]), *share[workers + 1 :]])
    queued = list(queued)
    turns = int(wait_s / work_s) + 1
    ahead = arrival_rps * (turns * work_s - wait_s)
    terms = (
        queued[turns * workers - 1 - n] * ahead**n / math.factorial(n)
        for n in range(turns * workers)
    )
    return math.exp(-ahead) * sum(terms)


@functools.cache
def knee_of_workers(rate_rps, workers, p99_ms):
    """Returns the arrival rate of M/D/c at which 99 % leave within this time."""
    work_s = workers / rate_rps
    low, high = rate_rps / 2, rate_rps * 0.99
    while high - low > rate_rps / 1000:
        middle = (low + high) / 2
        kept = waits_at_most(p99_ms / 1e3 - work_s, middle, workers, work_s) >= 0.99
        low, high = (middle, high) if kept else (low, middle)
    return low


def slow_queue(rate_rps, p99_ms, start_rps):
    """Returns the case of M/M/1 with random work."""
    return {
        "law": ["queue", rate_rps, None],
        "truth": lambda: knee(rate_rps, p99_ms),
        "late_us": p99_ms * 500,
        "seconds": None,
        "options": ["--start-rate", str(start_rps), "--slo", f"p99<{p99_ms}ms", "-c", "500"],
    }


# Without an objective for errors: `capacity` assumes one of 1 %.
ASSUMED_ERRORS = {
    "law": ["refuses", 1_500, 15],
    "truth": lambda: 1_500 / (1 - ERRORS),
    "late_us": BUCKET_P99_MS * 500,
    "seconds": None,
    "options": ["--start-rate", "200", "--slo", f"p99<{BUCKET_P99_MS}ms", "--arrivals", "uniform"],
}


# The delaying bucket gets even arrivals: random ones would queue before it, so that its limit would
# lie below its rate. The refusing one reaches its share of errors at the rate whose excess is that
# share; its stock absorbs delays of some ms by the machine, and is a small part of a step's
# requests.
CASES = {
    "bucket": {
        "law": ["delays", BUCKET_RPS, 1],
        "truth": lambda: BUCKET_RPS,
        "late_us": BUCKET_P99_MS * 500,
        "seconds": BUCKET_SECONDS,
        "options": [*QUICK, "--slo", f"p99<{BUCKET_P99_MS}ms", "--arrivals", "uniform"],
    },
    "refusing": {
        "law": ["refuses", BUCKET_RPS, BURST],
        "truth": lambda: BUCKET_RPS / (1 - ERRORS),
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
        "truth": lambda: knee(QUEUE_RPS, P99_MS),
        "late_us": P99_MS * 500,
        "seconds": None,
        "options": ["--start-rate", "1000", "--slo", f"p99<{P99_MS}ms", "-c", "500"],
    },
    "mm1-500": slow_queue(500, 100, 50),
    "mm1-2000": slow_queue(2_000, 25, 200),
    "md4": {
        "law": ["workers", 2_000, 4],
        "truth": lambda: knee_of_workers(2_000, 4, 10),
        "late_us": 5_000,
        "seconds": None,
        "options": ["--start-rate", "200", "--slo", "p99<10ms", "-c", "500"],
    },
    "assumed-errors": ASSUMED_ERRORS,
    "mm1-2000-burner": {**slow_queue(2_000, 25, 200), "burner": True},
    "assumed-errors-burner": {**ASSUMED_ERRORS, "burner": True},
}
# Searches that end so do not claim to know the capacity.
ADMITS = ["generator", "time", "harm", "nothing_kept"]


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


class Burner:
    """Keeps one CPU busy."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def search(binary, server, name, seed, folder):
    case = CASES[name]
    truth = case["truth"]()
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
        with Burner() if case.get("burner") else contextlib.nullcontext():
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
        "error": result["capacity_rps"] and result["capacity_rps"] / truth - 1,
        "truth_rps": truth,
        "covered": bool(found and low["rps"] <= truth <= high["rps"]),
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


def judge_beside_burner(name, runs):
    """A search on a busy machine is right, or admits that it does not know."""
    wrong = [
        abs(one["error"] or 0)
        for one in runs
        if one["end"] not in ADMITS and abs(one["error"] or 1) > ERROR_MOST
    ]
    return report.verdict(f"{name}: confidently wrong searches", len(wrong), 0)


def judge(found):
    verdicts = []
    for name, runs in found.items():
        if CASES[name].get("burner"):
            verdicts.append(judge_beside_burner(name, runs))
            continue
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
        truth = runs[0]["truth_rps"]
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
                if CASES[name].get("burner") or one["check"]["late_share"] <= LATE_SHARE:
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
        name: {key: CASES[name][key] for key in ("law", "options")} for name in args.cases
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
