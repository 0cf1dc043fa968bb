"""Runs wrk against one process and weighs what it cost that process."""

import json
import os
import subprocess
import time

from lib import process as processes
from lib.process import Failed

SCRIPT = os.path.join(os.path.dirname(__file__), "wrk.lua")


def write_requests(path, requests):
    """`requests`: (method, path, body) each; the body may be empty."""
    with open(path, "w") as file:
        file.writelines("\t".join(request) + "\n" for request in requests)


def load(port, requests_file, seconds, connections=50, core=1):
    """wrk's own counts. Raises Failed on any error or status other than 2xx and 3xx."""
    command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "5s",
               "-s", SCRIPT, f"http://127.0.0.1:{port}", "--", requests_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("BENCH ")]
    if done.returncode != 0 or len(lines) != 1:
        raise Failed(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    result = json.loads(lines[0].removeprefix("BENCH "))
    if any(result["errors"].values()) or result["requests"] == 0:
        raise Failed(f"failed run against port {port}: {result['requests']} requests, errors {result['errors']}")
    return result


def measured(process, requests_file, seconds, warm_up_s=0.5, connections=50):
    """One round against `process`: wrk's counts, CPU time per request of the whole process tree, and its core's share.

    The warm-up is a run of its own whose figures are dropped.
    """
    if warm_up_s:
        load(process.port, requests_file, max(1, round(warm_up_s)), connections)
    cpu, ticks, start = process.cpu_ns(), processes.cpu_ticks_s(process.pid), time.monotonic_ns()
    result = load(process.port, requests_file, seconds, connections)
    elapsed = time.monotonic_ns() - start
    cpu, ticks = process.cpu_ns() - cpu, processes.cpu_ticks_s(process.pid) - ticks
    # Two counters of the kernel must agree; they differ by ticks of 10 ms per process.
    if abs(cpu / 1e9 - ticks) > 0.05 + 0.05 * ticks:
        raise Failed(f"CPU time of {process.name}: {cpu / 1e9:.3f} s by its clock, {ticks:.3f} s by stat")
    return {
        **result,
        "throughput_rps": result["requests"] / (result["duration_us"] / 1e6),
        "cpu_us_per_request": cpu / 1e3 / result["requests"],
        "cpu_share": cpu / elapsed,
    }
