#!/usr/bin/env python3
"""CPU time per GET over the Redis protocol, beside redis-server with the same keys and values, one
command at a time and 16 at once."""

import argparse
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, report, resp, stats, wrk  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

# By the number of commands that are sent at once: the largest ratio of CPU times.
AIMS = {1: 1.1, 16: 1.3}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000, help="keys to choose from")
    parser.add_argument("--body-bytes", type=int, default=319)
    parser.add_argument("--commands", type=int, default=200_000, help="per subject and round")
    cli.add_measurement(parser, rounds=8, seed=False)
    return parser.parse_args()


def fill(hotrow_port, redis_port, args):
    """Gives redis-server the values of hotrow, and checks that both have the same."""
    hotrow, redis = resp.Connection(hotrow_port), resp.Connection(redis_port)
    for number in range(args.ids):
        key = resp.key_of(number)
        value = hotrow.ask("GET", key)
        if not value or len(value) < args.body_bytes // 2:
            raise Failed(f"hotrow has no {key}: {value!r}")
        redis.ask("SET", key, value)
        if redis.ask("GET", key) != value or hotrow.ask("GET", key) != value:
            raise Failed(f"the values of {key} differ")
    hotrow.close()
    redis.close()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "products.db")
        resp.generate(database, args)
        hotrow, port = resp.start_hotrow(folder, database)
        ports = {"hotrow": port, "redis-server": free_port()}
        settings = ["--save", "", "--appendonly", "no", "--port", str(ports["redis-server"])]
        redis = Process(
            "redis-server",
            ["redis-server", *settings, "--dir", folder],
            ports["redis-server"],
            folder,
        )
        subjects_by_name = {"hotrow": hotrow, "redis-server": redis}

        def one_round(number, depth):
            results = {}
            for name in random.Random(number).sample(sorted(ports), k=2):
                process = subjects_by_name[name]
                others = [other for other in subjects_by_name.values() if other is not process]
                for other in others:
                    other.pause()
                if process is hotrow:
                    resp.await_calm(hotrow)
                # Pipelined commands are too cheap for a round of as many.
                commands = args.commands * (1 if depth == 1 else 5)
                form = {"depth": depth, "commands": commands, "ids": args.ids}
                results[name] = wrk.measured(
                    process,
                    None,
                    0,
                    connections=args.connections,
                    load=lambda _, *rest, own=ports[name], **more: resp.load(own, *rest, **more),
                    **form,
                )
                for other in others:
                    other.resume()
            return results

        rounds, disturbed = {}, {}
        try:
            fill(ports["hotrow"], ports["redis-server"], args)
            for depth in AIMS:
                rounds[depth], disturbed[depth] = wrk.quiet_rounds(
                    args.rounds, args.foreign_limit, lambda number, own=depth: one_round(number, own)
                )
        finally:
            hotrow.end()
            redis.end()
    rows, verdicts = [], []
    for depth, aim in AIMS.items():
        of = {
            name: [results[name]["cpu_us_per_request"] for results in rounds[depth]]
            for name in ports
        }
        ratio = stats.ratio(of["hotrow"], of["redis-server"])
        for name in ports:
            rate = stats.median([results[name]["throughput_rps"] for results in rounds[depth]])
            share = stats.median([results[name]["cpu_share"] for results in rounds[depth]])
            rows.append(
                [
                    depth,
                    name,
                    f"{stats.median(of[name]):.2f}",
                    f"{rate:,.0f}",
                    f"{100 * share:.0f} %",
                ]
            )
        verdicts.append(
            report.verdict(
                f"CPU time per GET, {depth} at once, as ratio to redis-server",
                ratio["median"],
                aim,
                interval=(ratio["low"], ratio["high"]),
            )
        )
    heads = ["at once", "server", "CPU µs per GET", "GET/s", "share of its core"]
    return report.keep(
        "redis",
        {"settings": vars(args), "rounds": rounds, "disturbed_rounds": disturbed},
        report.table(heads, rows),
        verdicts,
        args.runs,
    )


if __name__ == "__main__":
    cli.run(main)
