"""Time from COMMIT to visible over HTTP, at a steady rate of writes by another process.

Half of the writes go to tracked keys. From each commit on, a reader polls the key until it sees the
new value, so the key is cached again before its next write: no sample is fresh only because its
entry was missing. The other half goes to keys that are not read. `visible` is the time from
COMMIT's return to the arrival of the first answer with the new value, and includes one round trip;
`still old` is the time from COMMIT's return to the sending of the last request that got the old
value. The truth lies between the two.
"""

import argparse
import multiprocessing
import os
import queue
import re
import struct
import time

from lib import report, stats
from lib.http import Connection
from lib.process import Failed

AIM_P99_MS = 5
GIVE_UP_S = 5
RECORD = struct.Struct(
    "<qqq"
)  # key, revision, time of the commit; small enough for an atomic write to a pipe
REVISION = re.compile(rb'"revision":(\d+)')
RATE_REACHED = 0.98


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def parser(description):
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--seconds", type=int, default=20)
    made.add_argument(
        "--readers", type=int, default=3, help="reader processes, each with a connection"
    )
    made.add_argument("--keys", type=int, default=600, help="tracked keys, and as many untracked")
    made.add_argument("--body-bytes", type=int, default=319)
    made.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return made


def _write(connect, rate, args, pipes, results):
    """Writer: evenly paced commits; each tracked one is reported to its reader once COMMIT returns.

    `connect` returns a function of (revision, key) that makes one commit.
    """
    try:
        commit = connect()
        count = rate * args.seconds
        start = now_ns() + 100_000_000
        late_ns, commit_ns, first = [], [], args.first_revision
        for number in range(count):
            at = number // 2 % args.keys
            tracked = number % 2 == 0
            key = 1 + at + (0 if tracked else args.keys)
            revision = first + 1 + number // (2 * args.keys)
            intended = start + number * 1_000_000_000 // rate
            if (wait := intended - now_ns()) > 0:
                time.sleep(wait / 1e9)
            begun = now_ns()
            late_ns.append(max(0, begun - intended))
            commit(revision, key)
            committed = now_ns()
            commit_ns.append(committed - begun)
            if tracked:
                os.write(pipes[at % args.readers], RECORD.pack(key, revision, committed))
        elapsed_s = (now_ns() - start) / 1e9
        for pipe in pipes:
            os.close(pipe)
        results.put(
            {
                "writes": count,
                "rate": count / elapsed_s,
                "late_ms_p99": stats.percentile(late_ns, 99) / 1e6,
                "commit_ms_p50": stats.percentile(commit_ns, 50) / 1e6,
            }
        )
    except (Failed, OSError) as failure:
        results.put(failure)


def _poll(connection, key):
    """Returns (sent, received, revision)."""
    sent = now_ns()
    answer = connection.get(f"/products/{key}")
    received = now_ns()
    found = REVISION.search(answer.body)
    if answer.status != 200 or not found:
        raise Failed(f"/products/{key} answers {answer.head!r} {answer.body[:200]!r}")
    return sent, received, int(found.group(1))


def _follow(connection, key, revision, committed):
    """Returns (visible, still old, begin of the first poll), each in ns after the commit."""
    first, still_old = None, 0
    while True:
        sent, received, seen = _poll(connection, key)
        first = sent - committed if first is None else first
        if seen >= revision:
            return received - committed, still_old, first
        still_old = sent - committed
        if still_old > GIVE_UP_S * 1e9:
            raise Failed(
                f"/products/{key} still has revision {seen} {GIVE_UP_S} s after {revision} was "
                f"committed"
            )


def _read(port, pipe, ends, keys, results):
    """Reader: fills its keys, then polls after each reported write."""
    for end in ends:  # a pipe ends only when all writing ends are closed
        os.close(end)
    try:
        connection = Connection(port)
        floor_ns = []
        for _ in range(3):
            for key in keys:
                sent, received, _ = _poll(connection, key)
                floor_ns.append(received - sent)
        results.put("ready")
        samples = []
        with os.fdopen(pipe, "rb", buffering=0) as source:
            while record := source.read(RECORD.size):
                samples.append(_follow(connection, *RECORD.unpack(record)))
        # The first pass fills the cache; the others are hits.
        results.put({"samples": samples, "round_trip_ns": floor_ns[len(keys) :]})
    except (Failed, OSError) as failure:
        results.put(failure)


def _take(results, timeout_s):
    try:
        result = results.get(timeout=timeout_s)
    except queue.Empty:
        raise Failed(f"a reader or the writer did not report within {timeout_s} s") from None
    if isinstance(result, Exception):
        raise Failed(str(result))
    return result


def _spread(values_ns):
    ms = [value / 1e6 for value in values_ns]
    return {
        "p50": stats.percentile(ms, 50),
        "p90": stats.percentile(ms, 90),
        "p99": stats.percentile(ms, 99),
        "p999": stats.percentile(ms, 99.9),
        "max": max(ms),
    }


def _exchange(port, connect, rate, args, while_writing):
    context = multiprocessing.get_context("fork")
    pipes = [os.pipe() for _ in range(args.readers)]
    read_results, write_results = context.Queue(), context.Queue()
    ends = [end for _, end in pipes]
    readers = []
    for number, (pipe, _) in enumerate(pipes):
        keys = [1 + at for at in range(args.keys) if at % args.readers == number]
        readers.append(
            context.Process(target=_read, args=(port, pipe, ends, keys, read_results), daemon=True)
        )
    for reader in readers:
        reader.start()
    for pipe, _ in pipes:
        os.close(pipe)
    for _ in readers:
        _take(read_results, 60)
    writer = context.Process(
        target=_write, args=(connect, rate, args, ends, write_results), daemon=True
    )
    with while_writing:
        writer.start()
        for end in ends:
            os.close(end)
        written = _take(write_results, args.seconds * 2 + 60)
    found = [_take(read_results, 60) for _ in readers]
    for process in [writer, *readers]:
        process.join(10)
    return written, found


def measure(port, connect, rate, args, while_writing):
    """Makes `rate` commits per second for `args.seconds`; `while_writing` is a context during
    them.

    Returns the results, their Markdown, and the verdict.
    """
    args.first_revision = getattr(args, "first_revision", 0)
    written, found = _exchange(port, connect, rate, args, while_writing)
    # Revisions continue, because a reader waits for one at least as large.
    args.first_revision += 2 + written["writes"] // (2 * args.keys)
    samples = [sample for one in found for sample in one["samples"]]
    if len(samples) != (written["writes"] + 1) // 2:
        raise Failed(
            f"{len(samples)} samples of {written['writes']} writes, half of which are tracked"
        )
    if written["rate"] < RATE_REACHED * rate:
        raise Failed(
            f"the writer reached {written['rate']:.0f} of {rate} writes per second: no figure at "
            f"that rate"
        )
    figures = {
        "visible": _spread([s[0] for s in samples]),
        "still old": _spread([s[1] for s in samples]),
        "first poll began": _spread([s[2] for s in samples]),
        "round trip of a hit (floor of visible)": _spread(
            [ns for one in found for ns in one["round_trip_ns"]]
        ),
    }
    rows = [
        [name, *(f"{f[p]:.3f}" for p in ("p50", "p90", "p99", "p999", "max"))]
        for name, f in figures.items()
    ]
    table = report.table(["ms after COMMIT returned", "p50", "p90", "p99", "p99.9", "max"], rows)
    table += (
        f"\n\n{written['writes']:,} writes at {written['rate']:,.0f}/s (a commit began late by p99 "
        f"{written['late_ms_p99']:.2f} ms and took {written['commit_ms_p50']:.2f} ms), "
        f"{len(samples):,} tracked."
    )
    verdict = report.verdict(
        f"commit to visible over HTTP at {rate:,} writes/s, p99",
        figures["visible"]["p99"],
        AIM_P99_MS,
        "ms",
    )
    return {"rate": rate, "written": written, "figures_ms": figures}, table, verdict
