#!/usr/bin/env python3
"""Forms of a cached read: pipelined, alone on its connection, known to the client, missing, large,
on two workers, beside writes; each beside its reference, interleaved.
"""

import argparse
import os
import random
import sys

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, forms, report, stats, subjects, wrk  # noqa: E402
from lib.forms import CPU, RATE, Form  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

DEPTH = 16
LARGE_BYTES = 100_000
LARGE_IDS = 100
IDS = 1_000
WRITES_PER_S = 1_000
# (figure, form, form that it is divided by, what is divided, aim, whether the aim is a maximum)
AIMS = [
    ("hit, 16 at once, CPU µs per request", "pipelined", None, CPU, 1.43, True),
    ("hit, 16 at once, rate / floor's", "pipelined", "pipelined-floor", RATE, 0.45, False),
    ("one connection: p50 / floor's", "alone", "alone-floor", "p50", 1.05, True),
    ("304 from memory / hit, CPU", "known", "hit", CPU, 1.0, True),
    ("404 from memory / hit, CPU", "missing", "hit", CPU, 1.0, True),
    ("hit of 100 kB / writev loop, CPU", "large", "large-floor", CPU, 1.1, True),
    ("two workers on two cores / one, CPU", "two-workers", "one-worker", CPU, 1.05, True),
    ("beside 1,000 writes/s / without, CPU of the workers", "writes", "no-writes", CPU, 1.1, True),
]
GROUPS = {
    "pipelined": ["pipelined", "pipelined-floor"],
    "alone": ["alone", "alone-floor"],
    "small": ["hit", "known", "missing"],
    "large": ["large", "large-floor", "large-nginx-file"],
    "workers": ["one-worker", "two-workers"],
    "writes": ["no-writes", "writes"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--groups",
        type=cli.some_of(list(GROUPS)),
        default=",".join(GROUPS),
        help=f"comma-separated, of {', '.join(GROUPS)}",
    )
    cli.add_measurement(parser, rounds=9, seconds=3, unit="form and round")
    return parser.parse_args()


class Field:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.processes, self.forms = {}, {}
        self.ids = random.Random(args.seed).sample(range(1, IDS + 1), IDS)

    def start(self):
        for group in self.args.groups:
            getattr(self, f"_start_{group}")()

    def _keep(self, name, start):
        if name not in self.processes:
            self.processes[name] = start()
        return self.processes[name]

    def _database(self, name, rows, body_bytes):
        path = os.path.join(self.folder, f"{name}.db")
        if not os.path.exists(path):
            data.generate(path, rows, body_bytes)
        return path

    def _requests(self, name, lines):
        path = os.path.join(self.folder, f"{name}.requests")
        wrk.write_requests(path, lines)
        return path

    def _gets(self):
        return self._requests("gets", [("GET", f"/products/{number}", "") for number in self.ids])

    def _hotrow(self):
        """Starts hotrow with all ids of the small records in memory."""

        def start():
            database = self._database("small", 10_000, 319)
            process = subjects.start_hotrow(self.folder, database)
            self.answers = subjects.capture(process.port, self.ids)
            return process

        return self._keep("hotrow", start)

    def _floor(self):
        self._hotrow()
        records = os.path.join(self.folder, "small.records")
        subjects.write_records(records, self.answers)
        return self._keep("floor", lambda: subjects.start_replayer("floor", self.folder, records))

    def _start_pipelined(self):
        gets = self._gets()
        self.forms["pipelined"] = Form(self._hotrow(), gets, depth=DEPTH)
        self.forms["pipelined-floor"] = Form(self._floor(), gets, depth=DEPTH)

    def _start_alone(self):
        gets = self._gets()
        self.forms["alone"] = Form(self._hotrow(), gets, connections=1)
        self.forms["alone-floor"] = Form(self._floor(), gets, connections=1)

    def _start_small(self):
        hotrow = self._hotrow()
        self.forms["hit"] = Form(hotrow, self._gets())
        tags = {number: self.answers[number].header("etag") for number in self.ids}
        known = [
            ("GET", f"/products/{number}", "", f"If-None-Match: {tags[number]}")
            for number in self.ids
        ]
        missing = [("GET", f"/products/{1_000_000 + number}", "") for number in self.ids]
        self.forms["known"] = Form(hotrow, self._requests("known", known))
        self.forms["missing"] = Form(hotrow, self._requests("missing", missing), status=False)
        self._check(hotrow, known[0], 304)
        for request in missing:
            self._check(hotrow, request, 404)

    def _check(self, process, request, status):
        connection = Connection(process.port)
        field = request[3] + "\r\n" if len(request) > 3 else ""
        answer = connection.get(request[1], field)
        connection.close()
        if answer.status != status:
            raise Failed(f"{request[1]} answers {answer.head!r} instead of {status}")

    def _start_large(self):
        ids = list(range(1, LARGE_IDS + 1))
        gets = self._requests("large", [("GET", f"/products/{number}", "") for number in ids])

        def start():
            database = self._database("large", LARGE_IDS, LARGE_BYTES)
            return subjects.start_hotrow(self.folder, database, name="hotrow-large")

        hotrow = self._keep("hotrow-large", start)
        answers = subjects.capture(hotrow.port, ids)
        records = os.path.join(self.folder, "large.records")
        subjects.write_records(records, answers)
        floor = self._keep(
            "floor-large", lambda: subjects.start_replayer("floor", self.folder, records)
        )
        files = os.path.join(self.folder, "large-files", "products")
        os.makedirs(files)
        for number, answer in answers.items():
            with open(os.path.join(files, str(number)), "wb") as file:
                file.write(answer.body)
        nginx = self._keep("nginx-file", lambda: start_nginx_of_files(self.folder))
        self.forms["large"] = Form(hotrow, gets)
        self.forms["large-floor"] = Form(floor, gets)
        self.forms["large-nginx-file"] = Form(nginx, gets)

    def _start_workers(self):
        gets = self._gets()
        database = self._database("small", 10_000, 319)
        for name, workers in (("one-worker", 1), ("two-workers", 2)):
            process = self._keep(
                name,
                lambda name=name, workers=workers: subjects.start_hotrow_over(
                    self.folder,
                    f"sqlite:{database}",
                    name=name,
                    core="0-1",
                    workers=workers,
                    source='watch = "triggers"',
                ),
            )
            subjects.capture(process.port, self.ids)
            self.forms[name] = Form(process, gets, core="0-1", threads=2)

    def _start_writes(self):
        gets = self._gets()
        for name, writes in (("no-writes", 0), ("writes", WRITES_PER_S)):
            process = self._keep(name, lambda name=name, writes=writes: self._demo(name, writes))
            subjects.capture(process.port, self.ids)
            self.forms[name] = Form(process, gets, cpu_ns=lambda p=process: workers_cpu_ns(p.pid))

    def _demo(self, name, writes):
        """Starts a demonstration of one worker."""
        port, admin = free_port(), free_port()
        # One worker, because it may use one core.
        command = [subjects.hotrow_binary(), "serve", "--demo"]
        command += ["--data", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        command += ["--demo-writes", str(writes)] if writes else []
        return Process(name, command, port, self.folder)


NGINX_OF_FILES = """\
{user}worker_processes 1;
error_log {prefix}/error.log;
pid {prefix}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    open_file_cache max=1000;
    default_type application/json;
    keepalive_requests 1000000000;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def start_nginx_of_files(folder):
    return subjects.start_nginx_configured(
        folder, "nginx-file", NGINX_OF_FILES, root=os.path.join(folder, "large-files")
    )


def workers_cpu_ns(pid):
    """Returns the CPU time of hotrow's worker threads, without that of its writer, in ns."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as file:
            if not file.read().startswith("hotrow-http"):
                continue
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def values(results, what):
    return [r["latency_us"]["p50"] if what == "p50" else r[what] for r in results]


def verdicts_of(rounds):
    verdicts = []
    for figure, form, reference, what, aim, at_most in AIMS:
        if form not in rounds:
            continue
        if reference is None:
            of_form = values(rounds[form], what)
            median, interval = stats.median(of_form), stats.bootstrap_median(of_form)
        else:
            ratio = stats.ratio(values(rounds[form], what), values(rounds[reference], what))
            median, interval = ratio["median"], (ratio["low"], ratio["high"])
        verdicts.append(
            report.verdict(figure, median, aim, at_most=at_most, interval=interval)
        )
    return verdicts


def main():
    def p50(results):
        return f"{stats.median(values(results, 'p50')):.0f}"

    return forms.run("forms", arguments(), Field, verdicts_of, "p50 µs", p50)


if __name__ == "__main__":
    cli.run(main)
