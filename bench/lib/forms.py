"""Forms of one request, measured in random order, each with its own process while the others are
stopped.
"""

import os
import random
import tempfile
import time

from . import report, stats, subjects, wrk
from .process import Failed

CPU = "cpu_us_per_request"
RATE = "throughput_rps"


class Form:
    """A process, the requests that it is sent, and how."""

    def __init__(self, process, requests, **how):
        self.process, self.requests, self.how = process, requests, how


def _measure(field, args):
    order = random.Random(args.seed)

    def one_round(_):
        results = {}
        for name in order.sample(list(field.forms), k=len(field.forms)):
            form = field.forms[name]
            form.process.resume()
            # A process that was stopped must notice that its feed is current again.
            time.sleep(0.3)
            try:
                how = {"connections": args.connections, **form.how}
                results[name] = wrk.measured(form.process, form.requests, args.seconds, **how)
            finally:
                form.process.pause()
        return results

    quiet, disturbed = wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)
    return {name: [results[name] for results in quiet] for name in field.forms}, disturbed


def _as_markdown(rounds, column, of_results):
    rows = []
    for name, results in rounds.items():
        cpu = [result[CPU] for result in results]
        low, high = stats.bootstrap_median(cpu)
        rows.append(
            [
                name,
                f"{stats.median(cpu):.2f} [{low:.2f}–{high:.2f}]",
                f"{stats.median([result[RATE] for result in results]):,.0f}",
                f"{100 * stats.median([result['cpu_share'] for result in results]):.0f} %",
                of_results(results),
            ]
        )
    return report.table(
        ["form", "CPU µs per request", "requests/s", "CPU in cores", column], rows
    )


def run(name, args, field_class, verdicts_of, column, of_results):
    """Measures the forms of a field and keeps the results as `name`. The last column of the table
    is `of_results` of a form's results. A field has `processes`, `forms` and `start`.
    """
    if subjects.hotrow_binary() is None:
        raise Failed("there is no hotrow to measure: run `cargo build --release`, or set HOTROW")
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-", dir=shared_memory) as folder:
        # nginx reads its cache and files as another user.
        os.chmod(folder, 0o755)
        field = field_class(args, folder)
        try:
            field.start()
            for process in field.processes.values():
                process.pause()
            rounds, disturbed = _measure(field, args)
        finally:
            for process in field.processes.values():
                process.end()
    results = {"settings": vars(args), "rounds": rounds, "disturbed_rounds": disturbed}
    table = _as_markdown(rounds, column, of_results)
    return report.keep(name, results, table, verdicts_of(rounds), args.runs)
