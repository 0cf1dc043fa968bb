"""Runs of h2load, an independent client of TLS and HTTP/2, as `wrk.measured` takes them."""

import re
import subprocess

from lib.process import Failed

_DURATION_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


def write_urls(path, port, paths, secure=True):
    scheme = "https" if secure else "http"
    with open(path, "w") as file:
        file.writelines(f"{scheme}://127.0.0.1:{port}{one}\n" for one in paths)


def load(port, urls_file, seconds, connections=50, core=1, streams=None, secure=True):
    """Returns h2load's counts. With `streams` it speaks HTTP/2, so many requests per connection at
    a time; without, HTTP/1.1. Raises Failed unless every request was answered with 2xx, over
    TLS 1.3 if `secure`.
    """
    protocol = ["--h1"] if streams is None else [f"-m{streams}"]
    command = ["taskset", "-c", str(core), "h2load", "-t1", f"-c{connections}", *protocol]
    command += [f"-D{seconds}", "-i", urls_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return parse(done.stdout, secure, "h2" if streams and secure else None)


def parse(text, secure=False, protocol=None):
    """Returns figures of h2load's report: requests, duration, mean time of a request, cipher."""
    took = re.search(r"finished in ([\d.]+)(us|ms|s), ([\d.]+) req/s", text)
    counts = re.search(
        r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text
    )
    mean = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)\b", text)
    if not (took and counts and mean):
        raise Failed(f"h2load has no report:\n{text[-1000:]}")
    done, succeeded, *failures = map(int, counts.groups())
    if done == 0 or succeeded != done or any(failures):
        raise Failed(f"h2load: {counts.group(0)}")
    tls = re.search(r"TLS Protocol: (\S+)", text)
    if secure and (tls is None or tls.group(1) != "TLSv1.3"):
        raise Failed(f"h2load spoke {tls and tls.group(1)}, not TLS 1.3")
    spoken = re.search(r"Application protocol: (\S+)", text)
    if protocol and (spoken is None or spoken.group(1) != protocol):
        raise Failed(f"h2load spoke {spoken and spoken.group(1)}, not {protocol}")
    cipher = re.search(r"Cipher: (\S+)", text)
    return {
        "requests": done,
        "duration_us": done / float(took.group(3)) * 1e6,
        "mean_us": float(mean.group(1)) * _DURATION_US[mean.group(2)],
        "cipher": cipher and cipher.group(1),
    }
