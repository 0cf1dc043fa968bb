#!/usr/bin/env python3
"""Five instances behind a balancer: database reads by the choice of the instance.

Three parts, each with `hotrow serve` over one SQLite file and the recipes of examples/routing,
extended to five instances and, for comparison, changed in one line:

1. An instance joins, another one leaves. Every record fits in memory and has been read. A further
   instance is started; then one of the others is killed. Each time every record is asked for again:
   what the database reads then is what moved.
2. Popular records (Zipf's law). Each instance has room for a part of them: hit ratio, database
   reads per request, p99.
3. Batches of popular records, sent to the instance with the fewest requests or to that of the first
   id, beside single requests by key: hit ratio.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, host, report, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

RECIPES = os.path.join(host.REPOSITORY, "examples", "routing")
PATH = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin"}
NOTICED_TIMEOUT_S = 30
# Time in which the balancer's checks notice a loss.
CHECKS_S = 3
# Reads after a loss, as multiple of 1/N of the keys.
REREAD_AIM = 1.2

# The lines of the recipes that other choices replace.
RING = "  hash-type consistent sdbm avalanche\n"
BOUND = "  hash-balance-factor 150\n"
BATCHES = "  balance leastconn\n"
FIRST_ID = "  balance hash url_param(ids),regsub(\\\\D.*,)\n  hash-type consistent sdbm avalanche\n"
CHOICES = {
    "round robin": (
        "haproxy", [("  balance uri\n", "  balance roundrobin\n"), (RING, ""), (BOUND, "")]
    ),
    "modulo": ("haproxy", [(RING, "  hash-type map-based sdbm avalanche\n"), (BOUND, "")]),
    "consistent, one point per weight": ("haproxy", [(" weight 100", " weight 1"), (BOUND, "")]),
    "consistent": ("haproxy", [(BOUND, "")]),
    "consistent, bounded load": ("haproxy", []),
    "consistent (nginx)": ("nginx", []),
    "batches by first id": ("haproxy", [(BATCHES, FIRST_ID)]),
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=5)
    parser.add_argument("--records", type=int, default=20_000, help="of part 1")
    parser.add_argument("--popular", type=int, default=100_000, help="records of parts 2 and 3")
    parser.add_argument("--capacity", default="12MiB", help="of an instance in parts 2 and 3")
    parser.add_argument("--body-bytes", type=int, default=319, help="of parts 2 and 3")
    parser.add_argument("--skew", type=float, default=0.915)
    parser.add_argument("--seconds", type=int, default=10, help="of part 2, after as many")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--batches", type=int, default=3_000, help="of 100 ids, of part 3")
    parser.add_argument("--seed", type=int, default=1)
    cli.add_runs(parser)
    return parser.parse_args()


def with_instances(recipe, backends):
    """Returns the recipe with these instances instead of its three."""
    lines = []
    for line in recipe.splitlines(keepends=True):
        place = re.search(r"10\.0\.0\.(\d):8080", line)
        if place is None:
            lines.append(line)
        elif place[1] == "1":
            # One line stands for all; the others are left out.
            for letter, backend in zip("abcdefghij", backends):
                own = line.replace("10.0.0.1:8080", f"127.0.0.1:{backend.port}")
                own = own.replace("port 8081", f"port {backend.admin_port}")
                own = own.replace("server a ", f"server {letter} ").replace("/a\n", f"/{letter}\n")
                lines.append(own)
    return "".join(lines)


def start_proxy(folder, name, choice, backends):
    kind, changes = CHOICES[choice]
    file = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[kind]
    with open(os.path.join(RECIPES, file)) as source:
        text = source.read()
    for old, new in changes:
        if old not in text:
            raise Failed(f"the recipe for {kind} has no {old!r}")
        text = text.replace(old, new)
    port = free_port()
    text = with_instances(text, backends)
    text = text.replace("bind :8000", f"bind 127.0.0.1:{port}")
    text = text.replace("listen 8000", f"listen 127.0.0.1:{port}")
    path = os.path.join(folder, name + ".conf")
    if kind == "nginx":
        places = "".join(
            f"{place}_temp_path {folder}/{place};\n"
            for place in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        text = (
            f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;\n"
            f"events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n"
            f"keepalive_requests 1000000000;\n{places}{text}}}\n"
        )
        command = ["nginx", "-p", folder, "-c", path]
    else:
        command = ["haproxy", "-db", "-f", path]
    with open(path, "w") as target:
        target.write(text)
    return Process(name, command, port, folder, "0-1", PATH)


def start_instance(folder, database, number, capacity):
    return subjects.start_hotrow(
        folder, database, capacity, f"instance-{number}", core="0-1"
    )


def counts(backend):
    """Returns hits, lookups and database reads (keys) of an instance."""
    connection = Connection(backend.admin_port)
    status = json.loads(connection.get("/status").body)
    connection.close()
    of = status["collections"]["products"]
    asked = ("hits", "negative", "misses", "coalesced", "stale", "bypass")
    return of["hits"], sum(of[outcome] for outcome in asked), of["fills"]


def total(backends):
    return [sum(column) for column in zip(*map(counts, backends))]


def since(before, backends):
    return [now - then for now, then in zip(total(backends), before)]


def ask_all(port, records):
    connection = Connection(port)
    for number in range(1, records + 1):
        answer = connection.get(f"/products/{number}")
        if answer.status != 200:
            raise Failed(f"/products/{number} answers {answer.head!r}")
    connection.close()


class Spare:
    """The place of an instance that is not started yet."""

    def __init__(self):
        self.port, self.admin_port = free_port(), free_port()

    def start(self, folder, database):
        config = subjects.HOTROW_TOML.format(
            port=self.port,
            admin=self.admin_port,
            url=f"sqlite:{database}",
            capacity="256MiB",
            workers=1,
            source='watch = "triggers"',
            more="",
            listen="",
        )
        return subjects.start_configured(folder, config, self.port, self.admin_port, "spare")


def await_use(proxy, backend):
    """Waits until the balancer sends requests to the instance."""
    deadline = time.monotonic() + NOTICED_TIMEOUT_S
    while counts(backend)[1] == 0:
        ask_all(proxy.port, 200)
        if time.monotonic() > deadline:
            raise Failed(f"{proxy.name} does not use {backend.name}")


def join_and_leave(folder, database, choice, args):
    """Returns the shares of the instances, and what the database reads after each event, as share
    of all keys.
    """
    backends = [start_instance(folder, database, i, "256MiB") for i in range(args.instances)]
    spare, proxy = Spare(), None
    try:
        proxy = start_proxy(folder, "proxy", choice, [*backends, spare])
        time.sleep(CHECKS_S)
        ask_all(proxy.port, args.records)
        before = total(backends)
        backends.append(spare.start(folder, database))
        await_use(proxy, backends[-1])
        ask_all(proxy.port, args.records)
        joined = since(before, backends)[2] / args.records
        before = total(backends)
        each = [counts(backend)[1] for backend in backends]
        ask_all(proxy.port, args.records)
        if since(before, backends)[2] != 0:
            raise Failed("not every record is in memory")
        each = [counts(b)[1] - then for b, then in zip(backends, each)]
        lost = backends.pop(1)
        lost.child.kill()
        lost.child.wait()
        # What is sent before the balancer notices is sent again, perhaps elsewhere.
        time.sleep(CHECKS_S)
        before = total(backends)
        ask_all(proxy.port, args.records)
        left = since(before, backends)[2] / args.records
        shares = [own / args.records for own in each]
        return {"shares": shares, "lost_share": shares[1], "left": left, "joined": joined}
    finally:
        for process in [*backends, *([proxy] if proxy else [])]:
            process.end()


def popular_ids(args, count, seed):
    """Returns ids by Zipf's law, the popular ones spread over all numbers."""
    chance = random.Random(seed)
    weights, sum_of = [], 0.0
    for rank in range(1, args.popular + 1):
        sum_of += rank ** -args.skew
        weights.append(sum_of)
    numbers = list(range(1, args.popular + 1))
    random.Random(args.seed).shuffle(numbers)
    return chance.choices(numbers, cum_weights=weights, k=count)


def load(port, args, seconds):
    command = [
        subjects.hotrow_binary(), "load", f"http://127.0.0.1:{port}/products/{{id}}",
        "--ids", f"1..{args.popular}", "--distribution", f"zipf:{args.skew}",
        "-c", str(args.connections), "-t", "1", "-d", f"{seconds}s", "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\n{done.stderr[-1000:]}")
    return json.loads(done.stdout)


def popular(folder, database, choice, args):
    backends = [
        start_instance(folder, database, i, args.capacity) for i in range(args.instances)
    ]
    proxy = None
    try:
        proxy = start_proxy(folder, "proxy", choice, backends)
        load(proxy.port, args, args.seconds)
        before = total(backends)
        each = [counts(backend)[1] for backend in backends]
        result = load(proxy.port, args, args.seconds)
        hits, lookups, reads = since(before, backends)
        each = [counts(b)[1] - then for b, then in zip(backends, each)]
        return {
            "hit_ratio": hits / lookups,
            "reads_per_1000": 1000 * reads / lookups,
            "p99_us": result["latency_us"]["p99"],
            "rate": result["throughput_rps"],
            "largest_share": max(each) / sum(each),
        }
    finally:
        for process in [*backends, *([proxy] if proxy else [])]:
            process.end()


def batches(folder, database, choice, args):
    backends = [
        start_instance(folder, database, i, args.capacity) for i in range(args.instances)
    ]
    proxy = None
    try:
        proxy = start_proxy(folder, "proxy", choice, backends)
        load(proxy.port, args, args.seconds)
        ids = popular_ids(args, 200 * args.batches, args.seed + 1)
        before = None
        # Batches and as many single requests take turns. The first half fills the memories.
        batch, single = Connection(proxy.port), Connection(proxy.port)
        for i in range(2 * args.batches):
            if i == args.batches:
                before = total(backends)
            own = sorted(set(ids[100 * i : 100 * i + 100]))
            random.Random(i).shuffle(own)
            path = "/products?ids=" + ",".join(map(str, own))
            for connection, asked in ((batch, path), (single, f"/products/{ids[100 * i]}")):
                if connection.get(asked).status != 200:
                    raise Failed(f"{asked} fails")
        hits, lookups, reads = since(before, backends)
        return {"hit_ratio": hits / lookups, "reads_per_1000": 1000 * reads / lookups}
    finally:
        for process in [*backends, *([proxy] if proxy else [])]:
            process.end()


def percent(share):
    return f"{100 * share:.1f} %"


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        os.chmod(folder, 0o755)
        small, large = os.path.join(folder, "small.db"), os.path.join(folder, "large.db")
        data.generate_small(small, args.records)
        data.generate(large, args.popular, args.body_bytes)
        by_key = [name for name in CHOICES if name != "batches by first id"]
        moved = {name: join_and_leave(folder, small, name, args) for name in by_key[1:]}
        hot = {name: popular(folder, large, name, args) for name in by_key}
        batch = {
            name: batches(folder, large, name, args)
            for name in ("consistent, bounded load", "batches by first id")
        }
    share = 1 / (args.instances + 1)
    markdown = "\n".join(
        [
            f"{args.instances} instances; a further one joins (1/N = {percent(share)} of the "
            "keys), then one is killed:",
            "",
            report.table(
                ["choice", "smallest, largest share", "read after one joined",
                 "share of the one that left", "read after it left"],
                [
                    [name, f"{percent(min(of['shares']))}, {percent(max(of['shares']))}",
                     percent(of["joined"]), percent(of["lost_share"]), percent(of["left"])]
                    for name, of in moved.items()
                ],
            ),
            "",
            f"{args.popular:,} records, Zipf {args.skew}, {args.capacity} per instance:",
            "",
            report.table(
                ["choice", "hit ratio", "database reads per 1,000", "p99 in ms", "requests/s",
                 "largest share of requests"],
                [
                    [name, percent(of["hit_ratio"]), f"{of['reads_per_1000']:.1f}",
                     f"{of['p99_us'] / 1000:.2f}", f"{of['rate']:,.0f}",
                     percent(of["largest_share"])]
                    for name, of in hot.items()
                ],
            ),
            "",
            "Batches of 100 such ids, with one single request by key after each:",
            "",
            report.table(
                ["batches go to", "hit ratio of all ids", "database reads per 1,000"],
                [
                    [label, percent(of["hit_ratio"]), f"{of['reads_per_1000']:.1f}"]
                    for label, of in zip(
                        ("the fewest open requests", "the instance of the first id"),
                        batch.values(),
                    )
                ],
            ),
        ]
    )
    verdicts = [
        report.verdict(
            f"reads after an instance left, {name}, of 1/N",
            moved[name]["left"] / share,
            REREAD_AIM,
        )
        for name in ("consistent, bounded load", "consistent (nginx)")
    ]
    results = {"settings": vars(args), "moved": moved, "popular": hot, "batches": batch}
    return report.keep("routing", results, markdown, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
