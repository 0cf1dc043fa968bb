#!/usr/bin/env python3
"""Effect of a flood of new connections on connected clients, for hotrow and nginx.

Each subject has one worker on core 0 and answers from memory: hotrow a cached record, nginx `return
200`. A flood of connections with one request each is offered at rising rates; beside it a few
established connections send requests at a fixed rate in an open loop, and their p99 is the figure.
The subjects alternate in each round, in random order. Both generators share core 1, the flood at
the lowest priority; the machine should otherwise be idle.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, subjects  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

HITS_P99_MS_AIM = 10.0
HITS_RATE, HITS_CONNECTIONS = 1_000, 8
FLOOD_CONNECTIONS, FLOOD_TIMEOUT = 256, "2s"
# The flood starts before the measurement of the hits and ends after it.
LEAD_S = 1.0
BODY_BYTES = 300

NGINX_CONF = """\
{user}worker_processes 1;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "{body}"; }}
    }}
}}
"""


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rates",
        default="0,1000,2000,4000,8000,14000",
        help="new connections per second that are offered; 0 is no flood",
    )
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    cli.add_runs(parser)
    args = parser.parse_args()
    args.rates = [int(rate) for rate in args.rates.split(",")]
    return args


def start_nginx(folder):
    prefix, port = os.path.join(folder, "nginx"), free_port()
    os.makedirs(prefix)
    conf = os.path.join(prefix, "nginx.conf")
    with open(conf, "w") as file:
        file.write(
            NGINX_CONF.format(
                user="user root;\n" if os.geteuid() == 0 else "",
                prefix=prefix,
                port=port,
                body="x" * BODY_BYTES,
            )
        )
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [binary, "-p", prefix, "-c", conf, "-g", "daemon off;"]
    return Process("nginx", command, port, folder)


def load(port, niceness, *how):
    command = [
        "taskset",
        "-c",
        "1",
        "nice",
        "-n",
        str(niceness),
        subjects.hotrow_binary(),
        "load",
        "--json",
        "--quiet",
        "-t",
        "1",
        *how,
        f"http://127.0.0.1:{port}/products/1",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def load_report(child):
    out, err = child.communicate()
    if not out:
        raise Failed(f"{' '.join(child.args)} failed ({child.returncode}):\n{err[-2000:]}")
    return json.loads(out)


def milliseconds(value):
    """Converts a latency of the generator: a number, or a text such as ">1000000" for a lower
    bound.
    """
    return float(str(value).lstrip(">")) / 1e3


def measure(process, rate, seconds):
    """Measures one rate: p99 of the established clients, and connections answered per second."""
    flood = None
    if rate:
        flood = load(
            process.port,
            19,
            "--no-keepalive",
            "-c",
            str(FLOOD_CONNECTIONS),
            "--rate",
            str(rate),
            "--timeout",
            FLOOD_TIMEOUT,
            "-d",
            f"{seconds + 2 * LEAD_S:.0f}s",
        )
        time.sleep(LEAD_S)
    hits = load_report(
        load(
            process.port,
            0,
            "-c",
            str(HITS_CONNECTIONS),
            "--rate",
            str(HITS_RATE),
            "-d",
            f"{seconds}s",
        )
    )
    flooded = load_report(flood) if flood else None
    return {
        "rate": rate,
        "subject": process.name,
        "hits_p50_ms": milliseconds(hits["answered_us"]["p50"]),
        "hits_p99_ms": milliseconds(hits["answered_us"]["p99"]),
        "hits_ok": hits["requests"]["ok"],
        "hits_due": hits["requests"]["scheduled"],
        "connections_per_s": flooded["requests"]["ok"] / flooded["duration_s"] if flooded else 0.0,
    }


def main():
    args = arguments()
    if subjects.hotrow_binary() is None:
        raise Failed("there is no hotrow to measure: run `cargo build --release`, or set HOTROW")
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "products.db")
        data.generate(database, 10, BODY_BYTES)
        processes = [subjects.start_hotrow(folder, database), start_nginx(folder)]
        try:
            subjects.capture(processes[0].port, [1])
            for _ in range(args.rounds):
                for rate in args.rates:
                    for process in random.sample(processes, len(processes)):
                        rounds.append(measure(process, rate, args.seconds))
        finally:
            for process in processes:
                process.end()
    return keep(args, rounds)


def keep(args, rounds):
    def median(subject, rate, figure):
        return statistics.median(
            r[figure] for r in rounds if (r["subject"], r["rate"]) == (subject, rate)
        )

    rows = []
    for rate in args.rates:
        cells = [f"{rate:,}"]
        for subject in ("hotrow", "nginx"):
            cells += [
                f"{median(subject, rate, 'hits_p50_ms'):.2f}",
                f"{median(subject, rate, 'hits_p99_ms'):.2f}",
                f"{median(subject, rate, 'connections_per_s'):,.0f}",
            ]
        rows.append(cells)
    heads = [
        "offered/s",
        *(
            f"{subject} {figure}"
            for subject in ("hotrow", "nginx")
            for figure in ("hits p50, ms", "hits p99, ms", "new connections/s")
        ),
    ]
    worst = max(median("hotrow", rate, "hits_p99_ms") for rate in args.rates)
    verdicts = [
        report.verdict(
            "p99 of hits on established connections at any rate", worst, HITS_P99_MS_AIM, "ms"
        )
    ]
    return report.keep("accept", {"rounds": rounds}, report.table(heads, rows), verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
