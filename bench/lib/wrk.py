"""Runs of wrk against one process, with the process's costs."""

import json
import os
import resource
import subprocess
import sys
import time

from lib import process as processes
from lib.process import Failed, busy_s

FOREIGN_LIMIT = 0.05
SCRIPT = os.path.join(os.path.dirname(__file__), "wrk.lua")


def write_requests(path, requests):
    """Writes requests, each (method, path, body) or (method, path, body, header field); the body
    may be empty.
    """
    with open(path, "w") as file:
        file.writelines("\t".join(request) + "\n" for request in requests)


def load(port, requests_file, seconds, connections=50, core=1, depth=1, threads=1, status=True):
    """Returns wrk's own counts; `depth` requests are sent at once. Raises Failed on any error, and,
    unless `status` is False, on any status other than 2xx and 3xx.
    """
    command = [
        "taskset",
        "-c",
        str(core),
        "wrk",
        f"-t{threads}",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "5s",
        "-s",
        SCRIPT,
        f"http://127.0.0.1:{port}",
        "--",
        requests_file,
        str(depth),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("BENCH ")]
    if done.returncode != 0 or len(lines) != 1:
        raise Failed(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    result = json.loads(lines[0].removeprefix("BENCH "))
    if not status:
        result["errors"]["status"] = 0
    if any(result["errors"].values()) or result["requests"] == 0:
        raise Failed(
            f"failed run against port {port}: {result['requests']} requests, errors "
            f"{result['errors']}"
        )
    return result


def _children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(
    process,
    requests_file,
    seconds,
    warm_up_s=1,
    connections=50,
    core=1,
    beside=None,
    warm_up_file=None,
    cpu_ns=None,
    load=load,
    **form,
):
    """Measures one round against `process`: wrk's counts, CPU time per request of the process tree,
    share of its core.

    `foreign_share` is the CPU time of neither the server nor wrk, over all cores: other work that
    disturbed the round. The warm-up is a separate run whose figures are dropped; 0 omits it.
    `beside` is a process that works for this one, such as its database: its CPU time per request is
    measured too, and does not count as other work. `warm_up_file` has other requests for the
    warm-up, for cases in which the measured ones must be new. `cpu_ns` counts CPU time in place of
    the whole process tree's. `load` is another generator's in place of wrk's. `form`: see `load`.
    """
    if warm_up_s:
        load(process.port, warm_up_file or requests_file, warm_up_s, connections, core, **form)
    counted = cpu_ns or process.cpu_ns
    counted_before = counted()
    beside_cpu = beside.cpu_ns() if beside else 0
    cpu, ticks, start = process.cpu_ns(), processes.cpu_ticks_s(process.pid), time.monotonic_ns()
    busy, children = busy_s(), _children_s()
    result = load(process.port, requests_file, seconds, connections, core, **form)
    elapsed = time.monotonic_ns() - start
    busy, children = busy_s() - busy, _children_s() - children
    counted = counted() - counted_before
    cpu, ticks = process.cpu_ns() - cpu, processes.cpu_ticks_s(process.pid) - ticks
    beside_cpu = (beside.cpu_ns() if beside else 0) - beside_cpu
    # Two counters of the kernel must agree; they differ by ticks of 10 ms per process.
    if abs(cpu / 1e9 - ticks) > 0.05 + 0.05 * ticks:
        raise Failed(
            f"CPU time of {process.name}: {cpu / 1e9:.3f} s by its clock, {ticks:.3f} s by stat"
        )
    return {
        **result,
        "throughput_rps": result["requests"] / (result["duration_us"] / 1e6),
        "cpu_us_per_request": (counted if cpu_ns else cpu) / 1e3 / result["requests"],
        "cpu_share": cpu / elapsed,
        "beside_cpu_us_per_request": beside_cpu / 1e3 / result["requests"],
        "foreign_share": max(0, busy - children - (cpu + beside_cpu) / 1e9)
        / (elapsed / 1e9)
        / os.cpu_count(),
    }


def quiet_rounds(count, foreign_limit, one_round):
    """Repeats `one_round` ({name: result}) until `count` rounds were undisturbed, at most three
    times as often.

    Returns the undisturbed rounds and the others. A comparison on a busy machine measures the other
    work: if wrk has no core of its own, the server waits, and wake-ups cost the same for all
    subjects.
    """
    quiet, disturbed = [], []
    while len(quiet) < count and len(quiet) + len(disturbed) < 3 * count:
        results = one_round(len(quiet) + len(disturbed))
        worst = max(result["foreign_share"] for result in results.values())
        (quiet if worst <= foreign_limit else disturbed).append(results)
        figures = ", ".join(
            f"{name} {result['cpu_us_per_request']:.2f}" for name, result in results.items()
        )
        note = "" if worst <= foreign_limit else f" (disturbed: {100 * worst:.0f} % other work)"
        print(f"round {len(quiet)}/{count}: µs per request: {figures}{note}", file=sys.stderr)
    if len(quiet) < min(3, count):
        raise Failed(
            f"only {len(quiet)} of {len(quiet) + len(disturbed)} rounds had less than "
            f"{100 * foreign_limit:.0f} % other "
            "work on the machine: try again when it is quiet, or raise --foreign-limit"
        )
    return quiet, disturbed
