#!/usr/bin/env python3
"""Checks the verdicts of `hotrow load` on foreign servers with planted bottlenecks.

Servers in Python, Java, Go and JavaScript, nginx and PostgreSQL, none of which shares code with
Hotrow. Each plant has one cause of its rate by construction, and the classes that name it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.realpath(os.path.dirname(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from lib import cli, postgres, report, subjects  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

RIGHT_LEAST = 0.95
# A wrong verdict above this confidence, or confirmed, accuses confidently.
CONFIDENT = 0.9
LOAD_TIMEOUT_S = 120
CLOSED = ["-c", "16"]

NGINX = """
{user}worker_processes {workers};
error_log stderr crit;
pid {prefix}/pid;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {prefix}; proxy_temp_path {prefix}; fastcgi_temp_path {prefix};
    uwsgi_temp_path {prefix}; scgi_temp_path {prefix};
    keepalive_requests 1000000;
    limit_req_zone $server_port zone=all:1m rate=500r/s;
    server {{
        listen 127.0.0.1:{port};
        location / {{ {location} }}
    }}
}}
"""
OK = "return 200 ok;"


class Plants:
    """Starts the servers of one plant; all end with it."""

    def __init__(self, folder, goroutines):
        self.folder, self.goroutines, self.started = folder, goroutines, []
        # Of the plant's database, if it has one.
        self.database_url = None

    def start(self, command, port, environment=None, name="server"):
        name = f"{name}-{len(self.started)}"
        process = Process(name, command, port, self.folder, core="0-1", environment=environment)
        self.started.append(process)
        return port

    def python(self, form, how, argument):
        port = free_port()
        script = os.path.join(HERE, "threads.py")
        return self.start([sys.executable, script, str(port), form, how, str(argument)], port)

    def java(self, threads, how, ms, *options):
        port = free_port()
        script = os.path.join(HERE, "Pool.java")
        # Otherwise each answer of two segments waits 40 ms for a delayed acknowledgement.
        options = ["-Dsun.net.httpserver.nodelay=true", *options]
        return self.start(["java", *options, script, str(port), str(threads), how, str(ms)], port)

    def node(self, how, ms):
        port = free_port()
        return self.start(["node", os.path.join(HERE, "loop.js"), str(port), how, str(ms)], port)

    def go(self, how, n, processors=None, files=None):
        port = free_port()
        command = [self.goroutines, str(port), how, str(n)]
        if files:
            command = ["prlimit", f"--nofile={files}", *command]
        environment = {"GOMAXPROCS": str(processors)} if processors else None
        return self.start(command, port, environment)

    def nginx(self, location=OK, connections=1024, workers=1):
        port = free_port()
        prefix = tempfile.mkdtemp(dir=self.folder, prefix="nginx-")
        conf = os.path.join(prefix, "nginx.conf")
        with open(conf, "w") as file:
            user = "user root;\n" if os.geteuid() == 0 else ""
            file.write(NGINX.format(**locals()))
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        return self.start([program, "-p", prefix, "-c", conf, "-g", "daemon off;"], port)

    def postgresql(self):
        # Its user needs access to each folder above its own.
        os.chmod(self.folder, 0o711)
        server = postgres.Server(tempfile.mkdtemp(dir=self.folder), {"max_connections": "200"})
        self.started.append(server)
        with postgres.Session(server.port) as session:
            session.run("CREATE TABLE one (n integer); INSERT INTO one VALUES (0)")
        self.database_url = server.url
        return server.port

    def sql(self, statement):
        return self.python("pool", "sql", f"{self.postgresql()}:{statement}")

    def disk(self):
        # Not in memory: the temporary folder may be.
        place = tempfile.mkdtemp(dir=HERE, prefix=".fsync-")
        self.started.append(Folder(place))
        return self.python("pool", "fsync", place)

    def end(self):
        while self.started:
            self.started.pop().end()


class Folder:
    def __init__(self, path):
        self.path = path

    def end(self):
        shutil.rmtree(self.path, ignore_errors=True)


ROW_LOCK = "BEGIN; UPDATE one SET n = n + 1; SELECT pg_sleep(0.01); COMMIT"
# Followed by the URL of the plant's database.
ASKED = "--db-url"
SORT = "SELECT sum(sqrt(n)) FROM generate_series(1, 20000) n"
# All true: what is waited for is a database, and it takes the CPUs.
COMPUTES = ["AllCpus", "Competitor", "External"]

# Both true: each connection waits in a session of its own, so more of them bring more.
SLEEPS = ["External", "TooFewConnections"]

# Name: the classes that name the cause, the server, and arguments of the load.
PLANTS = {
    "java, 4 threads that sleep": (["TooFewWorkers"], lambda p: p.java(4, "sleep", 20), CLOSED),
    "java, 2 threads that sleep": (["TooFewWorkers"], lambda p: p.java(2, "sleep", 5), CLOSED),
    "java, one thread that computes": (["OneThread"], lambda p: p.java(1, "cpu", 2), CLOSED),
    "java, all CPUs": (["AllCpus"], lambda p: p.java(8, "cpu", 2), CLOSED),
    "java, garbage collection": (
        ["AllCpus", "OneThread", "Lock"],
        lambda p: p.java(2, "allocate", 4, "-Xmx96m", "-XX:+UseParallelGC"),
        CLOSED,
    ),
    "python, one worker that sleeps": (
        ["TooFewWorkers"],
        lambda p: p.python("single", "sleep", 5),
        [*CLOSED, "--no-keepalive"],
    ),
    "python, interpreter lock": (
        ["Lock", "OneThread"],
        lambda p: p.python("pool", "cpu", 1),
        CLOSED,
    ),
    "python, fsync": (["Disk"], lambda p: p.disk(), CLOSED),
    "node, blocked event loop": (["OneThread"], lambda p: p.node("block", 2), CLOSED),
    "node, kept rate": (["NoneFound"], lambda p: p.node("timer", 5), ["-c", "50", "--rate", "200"]),
    "go, one processor": (["OneThread"], lambda p: p.go("cpu", 500, processors=1), CLOSED),
    "go, mutex": (["Lock", "OneThread"], lambda p: p.go("mutex", 500), CLOSED),
    "go, all CPUs": (["AllCpus"], lambda p: p.go("cpu", 1000), CLOSED),
    "go, bucket with 429": (["Failures"], lambda p: p.go("bucket", 500), CLOSED),
    "go, bucket, open loop": (
        ["Failures"],
        lambda p: p.go("bucket", 500),
        ["-c", "50", "--rate", "1500"],
    ),
    "go, few files": (["OpenFiles"], lambda p: p.go("sleep", 5000, files=24), ["-c", "64"]),
    "go, one connection": (["TooFewConnections"], lambda p: p.go("cpu", 2000), ["-c", "1"]),
    "nginx, kept rate": (["NoneFound"], lambda p: p.nginx(), ["--rate", "1000"]),
    "nginx, limit_req": (["Failures"], lambda p: p.nginx("limit_req zone=all; empty_gif;"), CLOSED),
    "nginx, limit_req with 429": (
        ["Failures"],
        lambda p: p.nginx("limit_req zone=all burst=20; limit_req_status 429; empty_gif;"),
        ["-c", "50", "--rate", "1500"],
    ),
    "nginx, worker_connections 32": (
        ["Failures"],
        lambda p: p.nginx(f"proxy_pass http://127.0.0.1:{p.go('sleep', 5000)};", connections=32),
        ["-c", "40"],
    ),
    "nginx, backend gone": (
        ["Failures"],
        lambda p: p.nginx(
            f"if ($arg_n) {{ return 200 ok; }} proxy_pass http://127.0.0.1:{free_port()};"
        ),
        ["-c", "16", "?n=1"],
    ),
    "postgresql, pg_sleep": (SLEEPS, lambda p: p.sql("SELECT pg_sleep(0.01)"), CLOSED),
    "postgresql, row lock": (["External"], lambda p: p.sql(ROW_LOCK), CLOSED),
    "postgresql, row lock, asked": (
        ["External"],
        lambda p: p.sql(ROW_LOCK),
        [*CLOSED, ASKED],
    ),
    "postgresql, computes": (COMPUTES, lambda p: p.sql(SORT), CLOSED),
}
# Words that the evidence of a plant must contain.
MUST_NAME = {
    "postgresql, computes": ["postgres"],
    "java, garbage collection": ["garbage collection"],
    "postgresql, row lock, asked": ["wait for Lock (", "UPDATE one SET n = n + ?"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="plants with this in their name")
    parser.add_argument("--times", type=int, default=1, help="rounds over all plants")
    parser.add_argument("--duration", default="3s", help="of a load")
    parser.add_argument("--confirm", action="store_true", help="also test the verdicts")
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return parser.parse_args()


def load(binary, name, plants, args):
    classes, plant, options = PLANTS[name]
    try:
        url = f"http://127.0.0.1:{plant(plants)}/"
        paths = [option for option in options if option.startswith("?")]
        options = [option for option in options if option not in paths]
        if ASKED in options:
            options = [*options, plants.database_url]
        # Where every request fails there is no result: one in ten is answered.
        urls = [f"9*{url}"] + [f"1*{url}{path}" for path in paths] if paths else [url]
        command = [binary, "load", "--json", "-q", "-d", args.duration, *options]
        command += [*(["--confirm"] if args.confirm else []), *urls]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    finally:
        plants.end()
    if not done.stdout:
        raise Failed(f"{name}: no result (status {done.returncode}):\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    diagnosis = result["diagnosis"]
    verdict = diagnosis["verdict"]
    finding = verdict or diagnosis["findings"][0]
    conclusion = verdict and verdict["conclusion"]
    evidence = json.dumps(finding["evidence"] if not verdict else diagnosis["findings"])
    named = all(words in evidence for words in MUST_NAME.get(name, []))
    right = finding["class"] in classes and named
    confident = finding["confidence"] > CONFIDENT or conclusion == "confirmed"
    one = {
        "plant": name,
        "expected": classes,
        "class": finding["class"],
        "confidence": finding["confidence"],
        "conclusion": conclusion,
        "right": right,
        "confidently_wrong": confident and not right,
        "evidence": diagnosis["findings"][0]["evidence"],
        "others": [
            [other["class"], round(other["confidence"], 2)] for other in diagnosis["findings"][1:]
        ],
        "rps": result["throughput_rps"],
    }
    mark = "right" if right else "CONFIDENTLY WRONG" if one["confidently_wrong"] else "wrong"
    print(
        f"{name}: {one['class']} {one['confidence']:.2f} {conclusion or ''} {mark}",
        file=sys.stderr,
    )
    return one


def judged(one):
    if one["right"]:
        return "yes"
    return "**confidently wrong**" if one["confidently_wrong"] else "no"


def as_markdown(runs):
    rows = []
    for one in runs:
        tested = f", {one['conclusion']}" if one["conclusion"] else ""
        verdict = f"{one['class']} ({one['confidence']:.2f}{tested})"
        rows.append([one["plant"], " or ".join(one["expected"]), verdict, judged(one)])
    return report.table(["plant", "cause", "verdict", "right"], rows)


def main():
    args = arguments()
    binary = subjects.hotrow_binary()
    if binary is None:
        raise Failed("there is no hotrow: run `cargo build --release`, or set HOTROW to the binary")
    names = [name for name in PLANTS if args.only in name]
    runs, missing = [], []
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        goroutines = os.path.join(folder, "goroutines")
        source = os.path.join(HERE, "goroutines", "main.go")
        subprocess.run(["go", "build", "-o", goroutines, source], check=True)
        for _ in range(args.times):
            for name in names:
                try:
                    runs.append(load(binary, name, Plants(folder, goroutines), args))
                except FileNotFoundError as gone:
                    missing.append(f"{name}: {gone}")
    if not runs:
        raise Failed(f"no plant could be started: {missing}")
    right = sum(one["right"] for one in runs) / len(runs)
    wrong = sum(one["confidently_wrong"] for one in runs)
    verdicts = [
        report.verdict("share of right verdicts", right, RIGHT_LEAST, at_most=False),
        report.verdict("confidently wrong verdicts", wrong, 0),
    ]
    results = {"settings": vars(args), "loads": runs, "not_started": missing}
    return report.keep("verdict", results, as_markdown(runs), verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
