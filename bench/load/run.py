#!/usr/bin/env python3
"""Cost of `hotrow load` and of wrk, ab, h2load, oha and hey, interleaved, against one nginx that
answers `return 200`.
"""

import argparse
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, generators, report, stats, wrk  # noqa: E402
from lib.process import Failed  # noqa: E402

CLOSED = ["hotrow", "wrk", "ab", "h2load", "oha", "hey"]
NO_KEEPALIVE = ["hotrow", "wrk", "ab"]
CASES = ["closed", "open", "no-keepalive", "memory", "lag", "http2"]
STREAMS = [1, 16]
CONNECTIONS_OF_HTTP2 = 10
RATE_OF_LAG = 1_000
MANY, FEW = 10_000, 10
CPU_TO_WRK, RATE_TO_WRK = 1.0, 1.0
OPEN_TO_CLOSED, OPEN_TO_OHA = 1.6, 0.7
LAG_P99_US = 200
CPU, RATE = "cpu_us_per_request", "throughput_rps"
HTTP2_CPU = 2.0
HTTP2_AGREEMENT = (0.85, 1.18)
# Far below what either can send: both should measure the same server.
RATE_OF_HTTP2 = 5_000
BYTES_PER_CONNECTION = 8_192


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases",
        type=cli.some_of(CASES),
        default=",".join(CASES),
        help=f"comma-separated, of {', '.join(CASES)}",
    )
    parser.add_argument(
        "--rate",
        type=int,
        help="of the open loop; by default half of what hotrow reaches in the closed one",
    )
    cli.add_measurement(parser, rounds=12, seconds=5, unit="generator and round")
    return parser.parse_args()


class Rounds:
    """Rounds of runs in random order, one case after the other."""

    def __init__(self, target, args):
        self.target, self.args = target, args
        self.order = random.Random(args.seed)
        self.left_out = sorted(name for name in CLOSED if generators.binary(name) is None)
        for name in self.left_out:
            print(
                f"{name} is missing and left out; to have it: {generators.INSTALL[name]}",
                file=sys.stderr,
            )

    def run(self, case, runs, rounds=None):
        """Returns {label: [result, …]} and the disturbed rounds. `runs`: {label: (generator,
        how)}.
        """
        runs = {label: run for label, run in runs.items() if run[0] not in self.left_out}

        def one_round(_):
            results = {}
            for label in self.order.sample(sorted(runs), k=len(runs)):
                name, how = runs[label]
                results[label] = generators.measured(self.target, name, self.args.seconds, **how)
            return {label: results[label] for label in runs}

        print(f"{case}:", file=sys.stderr)
        quiet, disturbed = wrk.quiet_rounds(
            rounds or self.args.rounds, self.args.foreign_limit, one_round
        )
        return {
            "rounds": {label: [results[label] for results in quiet] for label in runs},
            "disturbed": disturbed,
        }


def measure(rounds, args):
    few = max(3, args.rounds // 4)
    with_connections = {"connections": args.connections}
    measured = {}
    if "closed" in args.cases:
        measured["closed"] = rounds.run(
            "closed", {name: (name, with_connections) for name in CLOSED}
        )
    if "open" in args.cases:
        rate = args.rate or half_of_the_maximum(rounds, measured, with_connections)
        at_rate = {**with_connections, "rate": rate}
        measured["open"] = {
            "rate": rate,
            **rounds.run(
                f"open, {rate} requests/s",
                {
                    "hotrow closed": ("hotrow", with_connections),
                    "hotrow": ("hotrow", at_rate),
                    "oha": ("oha", at_rate),
                },
            ),
        }
    if "no-keepalive" in args.cases:
        closing = {**with_connections, "keepalive": False}
        measured["no-keepalive"] = rounds.run(
            "no keep-alive", {name: (name, closing) for name in NO_KEEPALIVE}
        )
    if "memory" in args.cases:
        measured["memory"] = rounds.run(
            "memory", {f"{n} connections": ("hotrow", {"connections": n}) for n in (FEW, MANY)}, few
        )
    if "lag" in args.cases:
        measured["lag"] = rounds.run(
            "lag", {"hotrow": ("hotrow", {**with_connections, "rate": RATE_OF_LAG})}, few
        )
    if "http2" in args.cases:
        few_connections = {"connections": CONNECTIONS_OF_HTTP2}
        runs = {}
        for name in ("hotrow", "h2load"):
            for streams in STREAMS:
                how = {**few_connections, "streams": streams}
                runs[f"{name}, {streams} streams"] = (name, how)
            paced = {**few_connections, "streams": 1, "rate": RATE_OF_HTTP2}
            runs[f"{name}, at a rate"] = (name, paced)
        measured["http2"] = rounds.run("HTTP/2", runs)
    return measured


def half_of_the_maximum(rounds, measured, how):
    if "closed" not in measured:
        measured["maximum"] = rounds.run("maximum", {"hotrow": ("hotrow", how)}, 3)
    closed = measured.get("closed") or measured["maximum"]
    return int(stats.median(each(closed, "hotrow", "throughput_rps")) / 2)


def each(case, label, field):
    return [result[field] for result in case["rounds"].get(label, [])]


def lag_p99(case):
    return stats.median(
        [result["report"]["schedule_lag_us"]["p99"] for result in case["rounds"]["hotrow"]]
    )


class Judge:
    """Verdicts on ratios, pair by pair, and on figures."""

    def __init__(self):
        self.ratios, self.verdicts = {}, []

    def ratio(self, name, case, ours, theirs, field, aim, at_most=True):
        pairs = case and (each(case, ours, field), each(case, theirs, field))
        ratio = stats.ratio(*pairs) if pairs and all(pairs) else None
        if ratio:
            self.ratios[name] = ratio
        self.verdicts.append(
            report.verdict(
                name,
                ratio and ratio["median"],
                aim,
                at_most=at_most,
                interval=(ratio["low"], ratio["high"]) if ratio else None,
            )
        )

    def figure(self, name, figure, aim, unit):
        self.verdicts.append(report.verdict(name, figure, aim, unit))


def judge(measured):
    judge = Judge()
    cpu, rate = CPU, RATE
    if closed := measured.get("closed"):
        judge.ratio(
            "closed loop, CPU per request, hotrow/wrk", closed, "hotrow", "wrk", cpu, CPU_TO_WRK
        )
        judge.ratio(
            "closed loop, requests per second, hotrow/wrk",
            closed,
            "hotrow",
            "wrk",
            rate,
            RATE_TO_WRK,
            at_most=False,
        )
    if opened := measured.get("open"):
        judge.ratio(
            "open loop, CPU per request, to its own closed loop",
            opened,
            "hotrow",
            "hotrow closed",
            cpu,
            OPEN_TO_CLOSED,
        )
        judge.ratio(
            "open loop, CPU per request, hotrow/oha", opened, "hotrow", "oha", cpu, OPEN_TO_OHA
        )
        judge.figure(
            "open loop at half of the maximum, schedule lag p99", lag_p99(opened), LAG_P99_US, "µs"
        )
    if closing := measured.get("no-keepalive"):
        judge.ratio(
            "no keep-alive, requests per second, hotrow/wrk",
            closing,
            "hotrow",
            "wrk",
            rate,
            RATE_TO_WRK,
            at_most=False,
        )
    if memory := measured.get("memory"):
        peaks = [stats.median(each(memory, f"{n} connections", "peak_bytes")) for n in (FEW, MANY)]
        judge.figure(
            "memory per connection beyond the base",
            (peaks[1] - peaks[0]) / (MANY - FEW),
            BYTES_PER_CONNECTION,
            "bytes",
        )
    if lag := measured.get("lag"):
        judge.figure(
            f"schedule lag p99 at {RATE_OF_LAG} requests per second", lag_p99(lag), LAG_P99_US, "µs"
        )
    if http2 := measured.get("http2"):
        judge_http2(judge, http2)
    return judge


def judge_http2(judge, http2):
    """Agreement with h2load, in a closed loop and at a rate: within the bounds, in either
    direction. At a rate h2load measures from the sending of a request, as `service_us` does."""
    low, high = HTTP2_AGREEMENT
    for label in [*(f"{streams} streams" for streams in STREAMS), "at a rate"]:
        pair = (f"hotrow, {label}", f"h2load, {label}")
        for what, field in (("rate", RATE), ("mean time of a request", "mean_us")):
            name = f"HTTP/2, {label}: {what}, hotrow/h2load"
            judge.ratio(name, http2, *pair, field, high)
            judge.ratio(name, http2, *pair, field, low, at_most=False)
        name = f"HTTP/2, {label}: CPU per request, hotrow/h2load"
        judge.ratio(name, http2, *pair, CPU, HTTP2_CPU)


def as_markdown(measured):
    rows = []
    for case, found in measured.items():
        for label in found["rounds"]:
            cpu = each(found, label, "cpu_us_per_request")
            low, high = stats.bootstrap_median(cpu)
            of = lambda field: stats.median(each(found, label, field))  # noqa: E731
            rows.append(
                [
                    case,
                    label,
                    f"{stats.median(cpu):.2f} [{low:.2f}–{high:.2f}]",
                    f"{of('throughput_rps'):,.0f}",
                    f"{100 * of('cpu_share'):.0f} %",
                    f"{100 * of('target_cpu_share'):.0f} %",
                    f"{of('peak_bytes') / 1e6:.1f}",
                ]
            )
    return report.table(
        [
            "case",
            "generator",
            "CPU µs per request",
            "requests/s",
            "share of its core",
            "nginx's share",
            "peak, MB",
        ],
        rows,
    )


def main():
    args = arguments()
    if generators.binary("hotrow") is None:
        raise Failed(
            "there is no hotrow to measure: run `cargo build --release`, or set HOTROW to the "
            "binary"
        )
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        target = generators.Target(folder)
        try:
            rounds = Rounds(target, args)
            measured = measure(rounds, args)
        finally:
            target.end()
    judged = judge(measured)
    versions = {name: generators.version(name) for name in CLOSED if name not in rounds.left_out}
    # wrk2, the other well-known open-loop generator, has no package.
    results = {
        "settings": vars(args),
        "generators": versions,
        "left_out": ["wrk2", *rounds.left_out],
        "ratios": judged.ratios,
        "measured": measured,
    }
    return report.keep("load", results, as_markdown(measured), judged.verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
