#!/usr/bin/env python3
"""CPU time per cached read: hotrow, the floor, Gin + Ristretto and an nginx proxy_cache hit,
interleaved.
"""

import argparse
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, postgres, report, stats, subjects, wrk  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIMS = {"floor": 1.15, "gin": 0.43, "nginx": 0.42}
ALL = [
    "hotrow",
    "floor",
    "gin",
    "nginx",
    "nginx-files",
    "library",
    "hotrow-postgres",
    "hotrow-limits",
]
# What may be added to a hit by all that is on by default.
AIM_BEFORE = 1.02
# A hit does not depend on the engine; the aim allows for a run's noise.
AIM_POSTGRES = 1.05
DEFAULT_POSITION = "6f1d2c3b4a5e6978-1000"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--subjects",
        type=cli.some_of(ALL),
        default=",".join(ALL[:4]),
        help=f"comma-separated, of {', '.join(ALL)} (nginx-files: nginx with open_file_cache; "
        "library: hyper alone; hotrow-postgres: hotrow over PostgreSQL instead of SQLite; "
        "hotrow-limits: hotrow with a rate limit per client)",
    )
    parser.add_argument(
        "--ids",
        type=int,
        default=1_000,
        help="cached ids that are asked for; 1: the single-id form",
    )
    parser.add_argument("--body-bytes", type=int, default=319)
    parser.add_argument(
        "--before", help="another build of hotrow, which becomes the subject hotrow-before"
    )
    parser.add_argument("--name", default="serve")
    cli.add_measurement(parser, rounds=12, seconds=5, unit="subject and round")
    args = parser.parse_args()
    if args.before:
        args.subjects = [*args.subjects, "hotrow-before"]
    return args


class Field:
    """All running subjects, with the same records."""

    def __init__(self, args, folder):
        self.running = {}
        self.server = None
        self.folder = folder
        self.ids = list(range(1, args.ids + 1))
        random.Random(args.seed).shuffle(self.ids)
        self.requests = os.path.join(folder, "requests")
        wrk.write_requests(
            self.requests, [("GET", f"/products/{number}", "") for number in self.ids]
        )
        self.body_bytes = args.body_bytes
        self.before = args.before
        self.database = os.path.join(folder, "products.db")
        data.generate(self.database, max(10_000, args.ids), args.body_bytes)

    def start(self, names):
        if "hotrow" in names:
            self._keep("hotrow", subjects.start_hotrow(self.folder, self.database))
            self.answers = subjects.capture(self.running["hotrow"].port, self.ids)
        else:
            self.answers = subjects.synthetic(self.ids, self.body_bytes)
        records = os.path.join(self.folder, "records")
        subjects.write_records(records, self.answers)
        # The floor always runs, because it is nginx's backend.
        for name in ["floor", *({"library"} & set(names))]:
            self._keep(name, subjects.start_replayer(name, self.folder, records))
        if "gin" in names:
            position = self.answers[self.ids[0]].header("hotrow-position") or DEFAULT_POSITION
            binary = subjects.build_gin(self.folder)
            self._keep("gin", subjects.start_gin(self.folder, binary, self.database, position))
        for name in ("nginx", "nginx-files"):
            if name in names:
                backend = self.running["floor"].port
                self._keep(
                    name,
                    subjects.start_nginx(
                        self.folder, backend, name, open_files=name == "nginx-files"
                    ),
                )

        if "hotrow-before" in names:
            self._keep(
                "hotrow-before",
                subjects.start_hotrow(
                    self.folder, self.database, name="hotrow-before", binary=self.before
                ),
            )
        if "hotrow-limits" in names:
            self._keep(
                "hotrow-limits",
                subjects.start_hotrow(
                    self.folder, self.database, name="hotrow-limits", more=subjects.LIMITS
                ),
            )
        if "hotrow-postgres" in names:
            self.server = postgres.Server(self.folder)
            self.server.load_products(max(10_000, len(self.ids)), self.body_bytes)
            self._keep(
                "hotrow-postgres",
                subjects.start_hotrow_over(self.folder, self.server.url, name="hotrow-postgres"),
            )

    def _keep(self, name, process):
        self.running[name] = process

    def probe(self, name):
        """Checks that a subject serves every id from its cache, with the same body and fields."""
        connection = Connection(self.running[name].port)
        expected_names = self.answers[self.ids[0]].names()
        # Ristretto drops sets under contention, so filling is repeated until every id is a hit.
        for _ in range(5):
            cached = [self._is_hit(name, connection, number, expected_names) for number in self.ids]
            if all(cached):
                connection.close()
                return
        raise Failed(
            f"{name}: {cached.count(False)} of {len(cached)} ids are still no hits after five "
            f"passes"
        )

    def _is_hit(self, name, connection, number, expected_names):
        probing = name.startswith("nginx")
        answer = connection.get(f"/products/{number}", "Bench-Probe: 1\r\n" if probing else "")
        expected = self.answers[number]
        names = [
            field
            for field in answer.names()
            if field not in ("x-cache-status", "server", "connection")
        ]
        if answer.status != 200 or answer.body != expected.body or names != expected_names:
            raise Failed(
                f"{name} answers /products/{number} "
                f"with\n{answer.head.decode()}{answer.body.decode()}\n"
                f"instead of\n{expected.head.decode()}{expected.body.decode()}"
            )
        if name == "floor" and subjects.without_date(answer.head) != subjects.without_date(
            expected.head
        ):
            raise Failed(f"the floor's head {answer.head!r} differs from {expected.head!r}")
        return answer.header("x-cache-status" if probing else "hotrow-cache").lower() == "hit"

    def end(self):
        for process in self.running.values():
            process.end()
        if self.server:
            self.server.end()


def measure(field, args):
    """Runs rounds of all subjects in random order, the others stopped: ({subject: [result, …]},
    disturbed rounds).
    """
    order = random.Random(args.seed)
    for process in field.running.values():
        process.pause()

    def one_round(_):
        results = {}
        for name in order.sample(args.subjects, k=len(args.subjects)):
            process = field.running[name]
            process.resume()
            try:
                results[name] = wrk.measured(
                    process, field.requests, args.seconds, connections=args.connections
                )
            finally:
                process.pause()
        return results

    quiet, disturbed = wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)
    return {name: [results[name] for results in quiet] for name in args.subjects}, disturbed


def summarise(rounds):
    summary = {}
    for name, results in rounds.items():
        cpu = [r["cpu_us_per_request"] for r in results]
        summary[name] = {
            "cpu_us_per_request": stats.median(cpu),
            "cpu_us_interval": stats.bootstrap_median(cpu),
            "throughput_rps": stats.median([r["throughput_rps"] for r in results]),
            "cpu_share": stats.median([r["cpu_share"] for r in results]),
            "latency_us": {
                p: stats.median([r["latency_us"][p] for r in results])
                for p in ("p50", "p90", "p99", "p999")
            },
        }
    return summary


def ratios_and_verdicts(rounds):
    cpu = {name: [r["cpu_us_per_request"] for r in results] for name, results in rounds.items()}
    ratios = {f"{a}/{b}": stats.ratio(cpu[a], cpu[b]) for a in cpu for b in cpu if a != b}
    verdicts = []
    for against, aim in AIMS.items():
        ratio = ratios.get(f"hotrow/{against}")
        interval = (ratio["low"], ratio["high"]) if ratio else None
        verdicts.append(
            report.verdict(
                f"CPU per cached read, hotrow/{against}",
                ratio and ratio["median"],
                aim,
                interval=interval,
            )
        )
    if limits := ratios.get("hotrow-limits/floor"):
        verdicts.append(
            report.verdict(
                "CPU per cached read, with a rate limit per client, to the floor",
                limits["median"],
                AIMS["floor"],
                interval=(limits["low"], limits["high"]),
            )
        )
    if before := ratios.get("hotrow/hotrow-before"):
        verdicts.append(
            report.verdict(
                "CPU per cached read, to the build before",
                before["median"],
                AIM_BEFORE,
                interval=(before["low"], before["high"]),
            )
        )
    if over_postgres := ratios.get("hotrow-postgres/hotrow"):
        verdicts.append(
            report.verdict(
                "CPU per cached read, over PostgreSQL to over SQLite",
                over_postgres["median"],
                AIM_POSTGRES,
                interval=(over_postgres["low"], over_postgres["high"]),
            )
        )
    return ratios, verdicts


def as_markdown(summary, ratios):
    rows = []
    for name, s in sorted(summary.items(), key=lambda item: item[1]["cpu_us_per_request"]):
        low, high = s["cpu_us_interval"]
        to_floor = ratios.get(f"{name}/floor")
        latency = s["latency_us"]
        rows.append(
            [
                name,
                f"{s['cpu_us_per_request']:.2f} [{low:.2f}–{high:.2f}]",
                f"{to_floor['median']:.3f} [{to_floor['low']:.3f}–{to_floor['high']:.3f}]"
                if to_floor
                else "1",
                f"{s['throughput_rps']:,.0f}",
                f"{100 * s['cpu_share']:.0f} %",
                f"{latency['p50']:.0f} / {latency['p99']:.0f} / {latency['p999']:.0f}",
            ]
        )
    return report.table(
        [
            "subject",
            "CPU µs per request",
            "to the floor, pair by pair",
            "requests/s",
            "share of its core",
            "latency p50 / p99 / p99.9 µs",
        ],
        rows,
    )


def main():
    args = arguments()
    if "hotrow" in args.subjects and subjects.hotrow_binary() is None:
        raise Failed(
            "there is no hotrow to measure: run `cargo build --release`, set HOTROW to the binary, "
            "or leave it out with --subjects floor,gin,nginx"
        )
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-", dir=shared_memory) as folder:
        field = Field(args, folder)
        try:
            field.start(args.subjects)
            for name in field.running:
                field.probe(name)
            rounds, disturbed = measure(field, args)
        finally:
            field.end()
    summary = summarise(rounds)
    ratios, verdicts = ratios_and_verdicts(rounds)
    heads = {
        "answer": field.answers[field.ids[0]].head.decode(),
        "source": "hotrow" if "hotrow" in args.subjects else "made up",
    }
    settings = {**vars(args), "subjects": args.subjects}
    results = {
        "settings": settings,
        "summary": summary,
        "ratios": ratios,
        "head": heads,
        "rounds": rounds,
        "disturbed_rounds": disturbed,
    }
    return report.keep(args.name, results, as_markdown(summary, ratios), verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
