#!/usr/bin/env python3
"""Measures strict reads and snapshot batches over PostgreSQL, beside writers: rate, latency, CPU
time of Hotrow and of the database per request, looks at the log's end, and how many snapshots
needed a read transaction.

Forms alternate within each round: a plain read, a strict one (`Hotrow-Min-Position: now`), Go with
pgx that reads each key, plain and snapshot batches of 20 and of 100 ids. The writers' own cost, of
a part without readers, is taken from the database's CPU time. Writes change one of 10,000 records,
or three in one transaction (`--rows`). All processes share the machine's cores.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, postgres, process, report, stats, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

ROWS = 10_000
WARM = 1_000
BODY_BYTES = 260
POOL = 8
BATCHES = 200


class Writers:
    """Threads that commit at a rate, each with a session of its own, until the end."""

    def __init__(self, port, rate, rows, sessions=4):
        self.committed = 0
        self.ends = threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=(port, rate / sessions, rows, seed))
            for seed in range(sessions)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, port, rate, rows, seed):
        draw = random.Random(seed)
        with postgres.Session(port) as session:
            due = time.monotonic()
            while not self.ends.is_set():
                ids = sorted(draw.sample(range(1, ROWS + 1), rows))
                changes = ", ".join(map(str, ids))
                session.run(
                    f"UPDATE products SET revision = revision + 1 WHERE id IN ({changes})"
                )
                self.committed += 1
                due = max(due + 1 / rate, time.monotonic() - 1)
                time.sleep(max(0, due - time.monotonic()))

    def end(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()


def load(urls, args, strict=False, rate=None):
    """Runs the load generator and returns its result."""
    lab = os.path.join(os.path.dirname(subjects.hotrow_binary()), "hotrow-lab")
    command = [lab, "load", "--json", "-c", str(args.connections), "-d", f"{args.seconds}s"]
    command += ["--ids", f"1..{WARM}"] if len(urls) == 1 else []
    command += ["-H", "Hotrow-Min-Position: now"] if strict else []
    command += ["--rate", str(rate)] if rate else []
    done = subprocess.run([*command, *urls], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def metrics(port):
    """Returns the counters that strict reads and snapshots have."""
    connection = Connection(port)
    page = connection.get("/metrics").body.decode()
    connection.close()
    found = {}
    for line in page.splitlines():
        if line.startswith(("hotrow_strict_", "hotrow_snapshots_total")) and "_bucket" not in line:
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def urls_of(port, ids, more=""):
    """Returns URLs of batches of distinct warm ids."""
    draw = random.Random(ids)
    batches = (draw.sample(range(1, WARM + 1), ids) for _ in range(BATCHES))
    base = f"http://127.0.0.1:{port}/products"
    return [f"{base}?ids={','.join(map(str, batch))}{more}" for batch in batches]


def forms(hotrow, pgx):
    """Returns name, process, URLs, and whether the request is strict."""
    one = "http://127.0.0.1:{}/products/{{id}}".format
    snapshot = "&snapshot=true"
    return [
        ("plain", hotrow, [one(hotrow.port)], False),
        ("strict", hotrow, [one(hotrow.port)], True),
        ("pgx", pgx, [one(pgx.port)], False),
        ("batch of 20", hotrow, urls_of(hotrow.port, 20), False),
        ("snapshot of 20", hotrow, urls_of(hotrow.port, 20, snapshot), False),
        ("batch of 100", hotrow, urls_of(hotrow.port, 100), False),
        ("snapshot of 100", hotrow, urls_of(hotrow.port, 100, snapshot), False),
    ]


def measured(form, server, hotrow, idle_cpu, args):
    """Measures one form and returns its figures."""
    name, subject, urls, strict = form
    before = subject.cpu_ns(), server.cpu_ns(), metrics(hotrow.admin_port), time.monotonic()
    result = load(urls, args, strict, args.snapshot_rate if name == "snapshot of 20" else None)
    elapsed = time.monotonic() - before[3]
    after = metrics(hotrow.admin_port)
    answered = result["requests"]["ok"]
    if answered != result["requests"]["sent"]:
        raise Failed(f"{name}: {json.dumps(result['requests'])}")
    database_ns = max(0, server.cpu_ns() - before[1] - idle_cpu * elapsed * 1e9)
    return {
        "rate": result["throughput_rps"],
        "p50_us": result["latency_us"]["p50"],
        "p99_us": result["latency_us"]["p99"],
        "cpu_us": (subject.cpu_ns() - before[0]) / answered / 1e3,
        "database_cpu_us": database_ns / answered / 1e3,
        "looks_per_s": counted(before[2], after, "looks_total") / elapsed,
        "snapshots": {
            way: counted(before[2], after, f'way="{way}"')
            for way in ("memory", "awaited", "reread", "transaction")
        },
    }


def counted(before, after, part):
    return sum(value - before.get(name, 0) for name, value in after.items() if part in name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cli.add_measurement(parser, rounds=3, seconds=4, unit="form", seed=False)
    parser.add_argument("--writes", type=int, default=1_000, help="transactions per second")
    parser.add_argument("--rows", type=int, default=1, help="records changed by each")
    parser.add_argument("--snapshot-rate", type=int, default=2_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = postgres.Server(folder)
        server.load_products(ROWS, BODY_BYTES)
        hotrow = subjects.start_hotrow_over(folder, server.url, core="0-1")
        pgx = subjects.start_pgx(folder, server.url, POOL, "0-1")
        writers = Writers(int(server.url.rsplit(":", 1)[1].split("/")[0]), args.writes, args.rows)
        rounds = []
        try:
            load([f"http://127.0.0.1:{hotrow.port}/products/{{id}}"], args)
            for _ in range(args.rounds):
                started, begun, first = time.monotonic(), server.cpu_ns(), writers.committed
                own = hotrow.cpu_ns()
                time.sleep(args.seconds)
                spent = time.monotonic() - started
                idle = {
                    "database_cpu": (server.cpu_ns() - begun) / spent / 1e9,
                    "hotrow_cpu": (hotrow.cpu_ns() - own) / spent / 1e9,
                    "writes_per_s": (writers.committed - first) / spent,
                }
                figures = {
                    form[0]: measured(form, server, hotrow, idle["database_cpu"], args)
                    for form in forms(hotrow, pgx)
                }
                rounds.append({"idle": idle, "forms": figures})
        finally:
            writers.end()
            for one in (pgx, hotrow, server):
                one.end()
    return kept(rounds, args)


def kept(rounds, args):
    names = list(rounds[0]["forms"])

    def of(name, figure):
        return stats.median([one["forms"][name][figure] for one in rounds])

    def ratio(name, other, figure):
        return of(name, figure) / of(other, figure)

    def transactions():
        ways = [one["forms"]["snapshot of 20"]["snapshots"] for one in rounds]
        total = sum(sum(way.values()) for way in ways)
        return 100 * (1 - sum(way["transaction"] for way in ways) / total)

    columns = ("rate", "p50_us", "p99_us", "cpu_us", "database_cpu_us")
    heads = ["form", "requests/s", "p50 µs", "p99 µs", "CPU µs", "database CPU µs"]
    rows = [[name, *(f"{of(name, column):,.1f}" for column in columns)] for name in names]
    verdicts = [
        report.verdict("strict read, p50", of("strict", "p50_us") / 1e3, 1.5, "ms"),
        report.verdict("strict read, p99", of("strict", "p99_us") / 1e3, 5, "ms"),
        report.verdict("looks per second", of("strict", "looks_per_s"), 1_010),
        report.verdict("strict / plain, CPU", ratio("strict", "plain", "cpu_us"), 1.8),
        report.verdict("strict / pgx, rate", ratio("strict", "pgx", "rate"), 3, at_most=False),
        report.verdict(
            "strict / pgx, database CPU", ratio("strict", "pgx", "database_cpu_us"), 0.05
        ),
        report.verdict(
            "snapshot / batch of 100, CPU", ratio("snapshot of 100", "batch of 100", "cpu_us"), 1.25
        ),
        report.verdict(
            "snapshots of 20 without a transaction", transactions(), 95, "%", at_most=False
        ),
    ]
    idle = rounds[0]["idle"]
    markdown = "\n".join(
        [
            f"{args.connections} connections, {WARM:,} warm ids of {ROWS:,}, beside "
            f"{idle['writes_per_s']:,.0f} transactions/s of {args.rows} records. Medians of "
            f"{len(rounds)} rounds.",
            "",
            report.table(heads, rows),
        ]
    )
    return report.keep("strict", {"rounds": rounds}, markdown, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
