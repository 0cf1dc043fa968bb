#!/usr/bin/env python3
"""Memory: bytes per entry beyond key and body, and the resident size of 30,000 entries of 1.2
kB.
"""

import argparse
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIM_OVERHEAD_BYTES = 100
AIM_RESIDENT_MB = 50
BATCH = 1_000
KEY_BYTES = 8
SETTLE_S = 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=30_000, help="entries of --large-bytes")
    parser.add_argument("--large-bytes", type=int, default=1_200)
    parser.add_argument("--small", type=int, default=1_000_000, help="entries of some 25 bytes")
    cli.add_runs(parser)
    return parser.parse_args()


def collection_status(process):
    connection = Connection(process.admin_port)
    answer = connection.get("/status")
    connection.close()
    if answer.status != 200:
        raise Failed(f"/status answers {answer.head!r}")
    collections = json.loads(answer.body)["collections"]
    if isinstance(collections, list):
        collections = {one["name"]: one for one in collections}
    return collections["products"]


def fill(process, count):
    """Reads all ids in batches; returns the bytes of all bodies."""
    connection = Connection(process.port)
    body_bytes = 0
    for start in range(1, count + 1, BATCH):
        ids = list(range(start, min(start + BATCH, count + 1)))
        answer = connection.post("/products", json.dumps({"ids": ids}).encode())
        items = json.loads(answer.body).get("items", {}) if answer.status == 200 else {}
        if len(items) != len(ids):
            raise Failed(
                f"the batch from {start} answers {answer.head!r} with {len(items)} of {len(ids)} "
                f"items"
            )
        body_bytes += sum(
            len(json.dumps(item, separators=(",", ":")).encode()) for item in items.values()
        )
    connection.close()
    return body_bytes


def case(name, folder, count, generate):
    database = os.path.join(folder, f"{name}.db")
    generate(database)
    process = subjects.start_hotrow(folder, database, capacity="2GiB", name=f"hotrow-{name}")
    try:
        # One read first, so that one-time allocations do not count as the cost of an entry.
        Connection(process.port).get("/products/1")
        time.sleep(SETTLE_S)
        empty = process.rss_bytes()
        body_bytes = fill(process, count)
        time.sleep(SETTLE_S)
        full, status = process.rss_bytes(), collection_status(process)
    finally:
        process.end()
    if status["entries"] != count:
        raise Failed(
            f"{name}: the cache holds {status['entries']} of {count} entries; nothing follows from "
            f"its size"
        )
    payload = body_bytes / count + KEY_BYTES
    return {
        "entries": count,
        "body_bytes_mean": body_bytes / count,
        "rss_empty_bytes": empty,
        "rss_full_bytes": full,
        "status_bytes": status["bytes"],
        "overhead_bytes_by_rss": (full - empty) / count - payload,
        "overhead_bytes_by_status": status["bytes"] / count - payload,
    }


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        cases = {
            "large": case(
                "large",
                folder,
                args.large,
                lambda path: data.generate(path, args.large, args.large_bytes),
            ),
            "small": case(
                "small", folder, args.small, lambda path: data.generate_small(path, args.small)
            ),
        }
    rows = [
        [
            name,
            f"{c['entries']:,}",
            f"{c['body_bytes_mean']:,.0f}",
            f"{c['rss_empty_bytes'] / 1e6:.1f}",
            f"{c['rss_full_bytes'] / 1e6:.1f}",
            f"{c['overhead_bytes_by_rss']:.0f}",
            f"{c['overhead_bytes_by_status']:.0f}",
        ]
        for name, c in cases.items()
    ]
    table = report.table(
        [
            "case",
            "entries",
            "body bytes",
            "RSS empty, MB",
            "RSS full, MB",
            "bytes per entry beyond key and body, by RSS",
            "the same by /status",
        ],
        rows,
    )
    verdicts = [
        report.verdict(
            "bytes per entry beyond key and body, by RSS, small bodies",
            cases["small"]["overhead_bytes_by_rss"],
            AIM_OVERHEAD_BYTES,
            "bytes",
        ),
        report.verdict(
            "bytes per entry beyond key and body, by /status, small bodies",
            cases["small"]["overhead_bytes_by_status"],
            AIM_OVERHEAD_BYTES,
            "bytes",
        ),
        report.verdict(
            f"resident size with {args.large:,} entries of {args.large_bytes:,} bytes",
            cases["large"]["rss_full_bytes"] / 1e6,
            AIM_RESIDENT_MB,
            "MB",
        ),
    ]
    return report.keep(
        "memory", {"settings": vars(args), "cases": cases}, table, verdicts, args.runs
    )


if __name__ == "__main__":
    cli.run(main)
