"""Load generators: their command lines, and the cost of a run.

Requests are those that the target counted. CPU time is the kernel's account of the generator's
process. The rate covers the life of that process, with its start.
"""

import json
import os
import re
import shutil
import subprocess
import time

from lib import h2load, host, subjects
from lib.http import Connection
from lib.process import Failed, Process, busy_s, free_port

TOOLS = os.path.join(host.REPOSITORY, "bench", "target", "tools", "bin")
"""Folder in which bench/load/setup.sh installs tools without a package."""
INSTALL = {
    "wrk": "apt install wrk",
    "ab": "apt install apache2-utils",
    "h2load": "apt install nghttp2-client",
    "oha": "bench/load/setup.sh",
    "hey": "bench/load/setup.sh",
}
AB_REQUESTS_MAX = 4_000_000
"""Bound of ab's requests, because it allocates memory for each of them beforehand."""

NGINX_CONF = """\
worker_processes 1;
worker_rlimit_nofile 32768;
{user}pid {prefix}/pid;
error_log {prefix}/error.log;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} backlog=16384;
        listen 127.0.0.1:{http2} http2 backlog=16384;
        location / {{ return 200 "ok"; }}
        location = /counts {{ stub_status; }}
    }}
}}
"""


class Target:
    """nginx with one worker on core 0 that answers `return 200` and counts requests."""

    def __init__(self, folder):
        port, http2 = free_port(), free_port()
        conf = os.path.join(folder, "nginx.conf")
        with open(conf, "w") as file:
            file.write(
                NGINX_CONF.format(
                    user="user root;\n" if os.geteuid() == 0 else "",
                    prefix=folder,
                    port=port,
                    http2=http2,
                )
            )
        binary = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = Process(
            "nginx", [binary, "-p", folder, "-c", conf, "-g", "daemon off;"], port, folder
        )
        self.url = f"http://127.0.0.1:{port}/"
        self.http2_url = f"http://127.0.0.1:{http2}/"

    def requests(self):
        """Returns the requests so far, with this one."""
        connection = Connection(self.process.port)
        text = connection.get("/counts").body.decode()
        connection.close()
        return int(re.search(r"(\d+) \s*\nReading", text).group(1))

    def end(self):
        self.process.end()


def binary(name):
    """Returns the path of a generator, or None."""
    if name.startswith("hotrow"):
        return subjects.hotrow_binary()
    return shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")


def version(name):
    arguments = {
        "wrk": ["-v"],
        "ab": ["-V"],
        "h2load": ["--version"],
        "oha": ["--version"],
        "hotrow": ["--version"],
    }
    if name not in arguments:
        return None
    done = subprocess.run(
        [binary(name), *arguments[name]], capture_output=True, text=True, timeout=20
    )
    return (done.stdout + done.stderr).strip().splitlines()[0]


def command(name, url, seconds, connections=50, rate=None, keepalive=True, streams=None):
    """Returns the command line: one thread, `connections` connections, and with `rate` an open loop
    of so many requests per second. With `streams` it is HTTP/2 with prior knowledge.
    """
    path, c, t = binary(name), str(connections), f"{seconds}s"
    if name == "hotrow":
        return [
            path,
            "load",
            "--json",
            "--quiet",
            "-t",
            "1",
            "-c",
            c,
            "-d",
            t,
            *(["--rate", str(rate)] if rate else []),
            *([] if keepalive else ["--no-keepalive"]),
            *(["--http2", "--streams", str(streams)] if streams else []),
            url,
        ]
    if name == "h2load" and streams:
        # Its rate is that of one connection.
        paced = [f"--rps={rate // connections}"] if rate else []
        return [path, "-t1", "-c", c, "-m", str(streams), "-D", str(seconds), *paced, url]
    if streams:
        raise ValueError(f"{name} is not called for HTTP/2 here")
    if name == "oha":
        # With the correction for coordinated omission, which hotrow's open loop always has.
        return [
            path,
            "--no-tui",
            "-c",
            c,
            "-z",
            t,
            *(["-q", str(rate), "--latency-correction"] if rate else []),
            *([] if keepalive else ["--disable-keepalive"]),
            url,
        ]
    if rate:
        raise ValueError(f"{name} has no open loop")
    if name == "wrk":
        return [
            path,
            "-t1",
            f"-c{c}",
            f"-d{t}",
            "--latency",
            *([] if keepalive else ["-H", "Connection: close"]),
            url,
        ]
    if name == "ab":
        return [
            path,
            "-q",
            *(["-k"] if keepalive else []),
            "-c",
            c,
            "-t",
            str(seconds),
            "-n",
            str(AB_REQUESTS_MAX),
            url,
        ]
    if not keepalive:
        raise ValueError(f"{name} is not called without keep-alive here")
    if name == "h2load":
        return [path, "--h1", "-t1", "-c", c, "-D", str(seconds), url]
    if name == "hey":
        return [path, "-cpus", "1", "-c", c, "-z", t, url]
    raise ValueError(f"no generator {name}")


def _peak_bytes(pid):
    """Returns the largest resident size so far; None after the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def measured(target, name, seconds, core=1, **how):
    """Runs a generator and returns its costs. Raises Failed if it fails or its count is not the
    target's.
    """
    url = target.http2_url if how.get("streams") else target.url
    line = command(name, url, seconds, **how)
    asked = target.requests()
    cpu, busy, begun = target.process.cpu_ns(), busy_s(), time.monotonic()
    out_path = os.path.join(os.path.dirname(target.process.log), "generator.out")
    with open(out_path, "wb") as out:
        child = subprocess.Popen(
            ["taskset", "-c", str(core), *line],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    peak = 0
    while True:
        # Popen.wait does not return the usage of this child alone.
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        peak = _peak_bytes(child.pid) or peak
        if time.monotonic() > begun + seconds + 60:
            child.kill()
        time.sleep(0.02)
    child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s, busy, cpu = time.monotonic() - begun, busy_s() - busy, target.process.cpu_ns() - cpu
    requests = target.requests() - asked - 1
    with open(out_path, errors="replace") as out:
        text = out.read()
    if child.returncode != 0 or requests <= 0:
        raise Failed(f"{' '.join(line)} failed ({child.returncode}):\n{text[-2000:]}")
    cpu_s = used.ru_utime + used.ru_stime
    result = {
        "requests": requests,
        "throughput_rps": requests / elapsed_s,
        "cpu_us_per_request": cpu_s * 1e6 / requests,
        "cpu_share": cpu_s / elapsed_s,
        "target_cpu_share": cpu / 1e9 / elapsed_s,
        "peak_bytes": peak,
        "foreign_share": max(0, busy - cpu_s - cpu / 1e9) / elapsed_s / os.cpu_count(),
        "command": [os.path.basename(line[0]), *line[1:]],
    }
    if name == "hotrow":
        result["report"] = _report(text, requests)
        result["mean_us"] = result["report"]["service_us"]["mean"]
    if name == "h2load" and how.get("streams"):
        result["mean_us"] = h2load.parse(text)["mean_us"]
    return result


def _report(text, requests):
    """Returns hotrow's report, whose count must equal the target's up to the requests in flight at
    the end.
    """
    load_json = json.loads(text)
    load_json.pop("seconds", None)
    target = load_json["target"]
    if abs(load_json["requests"]["sent"] - requests) > target["connections"] * target["depth"]:
        raise Failed(
            f"hotrow reports {load_json['requests']['sent']} sent requests, "
            f"the target counted {requests}"
        )
    return load_json
