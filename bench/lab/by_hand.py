#!/usr/bin/env python3
"""One comparison of `hotrow-lab` repeated by hand: three limited backends behind nginx over one,
with ab, in turn with the lab on the same machine. Needs root, for the CPU limits.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, host, report, stats  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

BACKENDS = {"one": 1, "three": 3}
PATH = "/what-date-is-it"
DISTANCE_MAX = 0.15
"""Aim: the lab's ratio is at most this far from that by hand, as a share of it."""
PERIOD_US = 10_000
REQUESTS_MAX = 1_000_000
"""Bound of ab's requests, because it allocates memory for each of them beforehand."""

NGINX_CONF = """\
worker_processes auto;
{user}pid {prefix}/pid;
error_log {prefix}/error.log;
daemon off;
events {{ worker_connections 8000; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    proxy_buffers 32 4m;
    upstream backends {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://backends; }}
    }}
}}
"""

EXPERIMENT = """\
title = "Three limited backends over one"
question = "Does the lab measure what ab measures?"
[run]
rounds = 1
duration = "{seconds}s"
warmup = "500ms"
[services.app]
command = ["{{hotrow_lab}}", "reference", "--listen", "127.0.0.1:{{port}}"]
ready = "/healthz"
count = "/served"
cores = {cores}
[[deployments]]
name = "one"
service = "app"
proxy = {{ kind = "nginx", profile = "published" }}
[[deployments]]
name = "three"
service = "app"
instances = 3
proxy = {{ kind = "nginx", profile = "published" }}
[[loads]]
name = "date"
path = "{path}"
connections = [{connections}]
keepalive = false
[[compare]]
row = "three/date/{connections}"
with = "one/date/{connections}"
claim = "Three backends instead of one make the date"
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=5, help="per measurement")
    parser.add_argument("--connections", type=int, default=6)
    parser.add_argument("--cores", type=float, default=0.25, help="CPU limit of each backend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return parser.parse_args()


def lab_program():
    default = os.path.join(host.REPOSITORY, "target", "release", "hotrow-lab")
    program = os.environ.get("HOTROW_LAB", default)
    if not os.access(program, os.X_OK):
        raise Failed(f"{program} is missing; cargo build --release -p hotrow-lab, or $HOTROW_LAB")
    return os.path.realpath(program)


def install_missing():
    if all(shutil.which(name) for name in ("ab", "nginx")):
        return
    setup = os.path.join(os.path.dirname(os.path.realpath(__file__)), "setup.sh")
    if subprocess.run([setup]).returncode != 0:
        raise Failed("ab or nginx is missing and could not be installed")


class Limit:
    """Control group with a CPU quota, as one would create it in a shell."""

    V1, V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"

    def __init__(self, name, cores):
        quota = int(cores * PERIOD_US)
        if os.path.exists(f"{self.V1}/cpu.shares"):
            files = {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}
            parent = self.V1
        else:
            files, parent = {"cpu.max": f"{quota} {PERIOD_US}"}, self.V2
        self.folder = os.path.join(parent, f"by-hand-{os.getpid()}-{name}")
        try:
            os.mkdir(self.folder)
            for file, value in files.items():
                # Without O_CREAT: outside a cgroup file system this would be an ordinary file.
                with open(os.path.join(self.folder, file), "r+") as limit:
                    limit.write(str(value))
        except OSError as error:
            self.remove()
            raise Failed(f"no CPU limit is possible here ({error}); run it as root") from error

    def command(self, argv):
        """Returns a command that joins the group and then runs `argv`."""
        join = f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"'
        return ["sh", "-c", join, "sh", *argv]

    def remove(self):
        try:
            os.rmdir(self.folder)
        except OSError as error:
            print(f"by_hand: {self.folder} remains: {error}", file=sys.stderr)


class Deployment:
    """Limited backends behind nginx."""

    def __init__(self, program, count, cores, folder):
        self.parts, self.limits = [], []
        all_cores = f"0-{os.cpu_count() - 1}"
        try:
            ports = []
            for number in range(count):
                limit = Limit(str(number), cores)
                self.limits.append(limit)
                port = free_port()
                argv = [program, "reference", "--listen", f"127.0.0.1:{port}"]
                command = limit.command(argv)
                name = f"backend-{number}"
                self.parts.append(Process(name, command, port, folder, core=all_cores))
                ports.append(port)
            self.port = free_port()
            conf = os.path.join(folder, "nginx.conf")
            with open(conf, "w") as file:
                file.write(
                    NGINX_CONF.format(
                        user="user root;\n" if os.geteuid() == 0 else "",
                        prefix=folder,
                        port=self.port,
                        servers=" ".join(f"server 127.0.0.1:{port};" for port in ports),
                    )
                )
            nginx = ["nginx", "-c", conf, "-e", os.path.join(folder, "error.log")]
            self.parts.append(Process("nginx", nginx, self.port, folder, core=all_cores))
        except BaseException:
            self.end()
            raise

    def end(self):
        for part in reversed(self.parts):
            part.end()
        for limit in self.limits:
            limit.remove()


def ab(port, args):
    """Returns the requests per second of ab, with a new connection per request."""
    done = subprocess.run(
        ["ab", "-q", "-l", "-t", str(args.seconds), "-n", str(REQUESTS_MAX)]
        + ["-c", str(args.connections), f"http://127.0.0.1:{port}{PATH}"],
        capture_output=True,
        text=True,
        timeout=args.seconds * 4 + 60,
    )

    def figure(name):
        found = re.search(rf"^{name}:\s+([\d.]+)", done.stdout, re.MULTILINE)
        return float(found.group(1)) if found else None

    rate, failed = figure("Requests per second"), figure("Failed requests")
    if done.returncode or rate is None or failed or figure("Non-2xx responses"):
        raise Failed(f"ab failed:\n{done.stdout}{done.stderr}"[-2000:])
    return rate


def by_hand(program, args, order):
    rates = {}
    for name in order:
        with tempfile.TemporaryDirectory() as folder:
            deployment = Deployment(program, BACKENDS[name], args.cores, folder)
            try:
                rates[name] = ab(deployment.port, args)
            finally:
                deployment.end()
    return rates


def by_lab(program, args, number):
    with tempfile.TemporaryDirectory() as folder:
        file, out = os.path.join(folder, "by-hand.toml"), os.path.join(folder, "out")
        with open(file, "w") as experiment:
            experiment.write(
                EXPERIMENT.format(
                    seconds=args.seconds,
                    cores=args.cores,
                    path=PATH,
                    connections=args.connections,
                )
            )
        done = subprocess.run(
            [program, "run", file, "--out", out, "--quiet", "--seed", str(args.seed + number)],
            capture_output=True,
            text=True,
            timeout=args.seconds * 8 + 120,
        )
        if done.returncode != 0:
            raise Failed(f"the lab failed:\n{done.stdout}{done.stderr}"[-2000:])
        with open(os.path.join(out, "results.json")) as results:
            results = json.load(results)
    rates = {}
    for measurement in results["measurements"]:
        rates[measurement["row"].split("/")[0]] = measurement["load"]["rps"]
    # The machine was busy, and other notes at the beginning of the report.
    notes = [line for line in done.stdout.splitlines() if line.startswith("Note: ")]
    return {**rates, "notes": notes, "warnings": results["warnings"]}


def one_round(program, args, number, generator):
    """Runs both deployments by hand and in the lab, in random order."""
    found = {}
    for side in generator.sample(["hand", "lab"], k=2):
        if side == "hand":
            found[side] = by_hand(program, args, generator.sample(sorted(BACKENDS), k=2))
        else:
            found[side] = by_lab(program, args, number)
    hand, lab = (found[side]["three"] / found[side]["one"] for side in ("hand", "lab"))
    print(f"round {number + 1}: by hand {hand:.2f}, lab {lab:.2f}", file=sys.stderr)
    return found


def main():
    args = arguments()
    install_missing()
    program = lab_program()
    generator = random.Random(args.seed)
    rounds = [one_round(program, args, number, generator) for number in range(args.rounds)]

    def each(side, name):
        return [found[side][name] for found in rounds]

    ratios = {
        side: stats.ratio(each(side, "three"), each(side, "one")) for side in ("hand", "lab")
    }
    distance = abs(ratios["lab"]["median"] / ratios["hand"]["median"] - 1)
    verdicts = [
        report.verdict("distance of the lab's ratio from that by hand", distance, DISTANCE_MAX)
    ]
    rows = [
        [
            {"hand": "by hand, ab", "lab": "hotrow-lab"}[side],
            *(f"{stats.median(each(side, name)):,.1f}" for name in BACKENDS),
            f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})",
        ]
        for side, ratio in ratios.items()
    ]
    heads = ["", "one backend, requests/s", "three backends, requests/s", "ratio"]
    results = {"settings": vars(args), "rounds": rounds, "ratios": ratios}
    return report.keep("by-hand", results, report.table(heads, rows), verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
