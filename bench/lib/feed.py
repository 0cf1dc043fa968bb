"""Time from COMMIT to visible over HTTP with a database server, and the feed's cost in that server.

lib/freshness.py defines a sample. The feed's cost is the CPU time of its sessions in the server
during the writes, per change; and on an idle database, per second. All processes share the
machine's cores.
"""

import tempfile
import time

from lib import freshness, report

IDLE_S = 10


class Cost:
    """CPU time of the feed's parts in the server during the context. `read` returns ns by part."""

    def __init__(self, read):
        self.read = read

    def __enter__(self):
        self.begun_ns, self.begun = time.monotonic_ns(), self.read()

    def __exit__(self, *_):
        self.us = {name: (ns - self.begun[name]) / 1e3 for name, ns in self.read().items()}
        self.elapsed_s = (time.monotonic_ns() - self.begun_ns) / 1e9


def measure(name, description, start, serve, parts, connect):
    """Runs the whole measurement and saves it under `name`.

    `start(folder)` returns a database server; `serve(folder, server)` a hotrow over it;
    `parts(server)` a function that reads the CPU time of the feed's parts; `connect(server)` a
    function of (revision, key) that makes one commit.
    """
    parser = freshness.parser(description)
    parser.add_argument("--rates", default="100,1000", help="writes per second, one run each")
    args = parser.parse_args()
    rates = [int(rate) for rate in args.rates.split(",")]
    runs, tables, verdicts = [], [], []
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        server = start(folder)
        try:
            server.load_products(2 * args.keys, args.body_bytes)
            hotrow = serve(folder, server)
            try:
                idle = Cost(parts(server))
                with idle:
                    time.sleep(IDLE_S)
                for rate in rates:
                    cost = Cost(parts(server))
                    results, table, verdict = freshness.measure(
                        hotrow.port, lambda: connect(server), rate, args, cost
                    )
                    changes = results["written"]["writes"]
                    results["feed_us_per_change"] = {
                        part: us / changes for part, us in cost.us.items()
                    }
                    runs.append(results)
                    figures = ", ".join(
                        f"{part} {us:.1f} µs" for part, us in results["feed_us_per_change"].items()
                    )
                    tables.append(
                        f"## {rate:,} writes/s\n\n{table}\n\nThe feed's CPU time in the server per "
                        f"change: {figures}."
                    )
                    verdicts.append(verdict)
            finally:
                hotrow.end()
        finally:
            server.end()
    idle_us = {part: us / idle.elapsed_s for part, us in idle.us.items()}
    tables.append(
        "On an idle database the feed takes per second: "
        + ", ".join(f"{part} {us:.0f} µs" for part, us in idle_us.items())
        + "."
    )
    settings = {**vars(args), "server": server.settings}
    return report.keep(
        name,
        {"settings": settings, "runs": runs, "idle_feed_us_per_second": idle_us},
        "\n\n".join(tables),
        verdicts,
        args.runs,
    )
