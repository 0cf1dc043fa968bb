"""Description of the host, saved with a run."""

import datetime
import os
import platform
import subprocess
import sys

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))


def _first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else None


def _field(path, name):
    with open(path) as file:
        for line in file:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return None


def describe():
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": {
            "cpu": _field("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "memory": _field("/proc/meminfo", "MemTotal"),
            "load_average": os.getloadavg(),
        },
        "commit": _first_line(
            [
                "git",
                "-C",
                REPOSITORY,
                "describe",
                "--always",
                "--dirty",
                "--abbrev=12",
                "--exclude=*",
            ]
        ),
        "command": [os.path.basename(sys.executable), *sys.argv],
        "versions": {
            "python": platform.python_version(),
            "wrk": _first_line(["wrk", "-v"]),
            "nginx": _first_line(["nginx", "-v"]),
            "go": _first_line(["go", "version"]),
            "rustc": _first_line(["rustc", "--version"]),
        },
    }
