#!/usr/bin/env python3
"""Measures the take-over by a second relay of a change hub: how stale an instance becomes when the
relay that works is killed, and whether that is a loss.

Three cases: a temporary slot, a permanent one (`hub.slot`), and a permanent one with a short lease.
In each round the leader is killed with SIGKILL while a client writes; the instance's staleness is
read until the other relay has taken over, and then a new relay replaces the dead one. The figure is
the greatest staleness of the round, which includes the instance's ordinary staleness of up to a
quarter of `max_staleness` (1 s).
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from feed import hub  # noqa: E402
from lib import cli, postgres, report, subjects  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

AIM_S, GOAL_S = 3, 1
TAKEOVER_S = 30
CASES = [
    ("temporary slot", ""),
    ("permanent slot", '[hub]\nslot = "relays"\n'),
    ("permanent slot, lease of 400 ms", '[hub]\nslot = "relays"\nlease = "400ms"\n'),
]


def relay(folder, server, port, section, number):
    admin = free_port()
    path = os.path.join(folder, f"relay-{number}.toml")
    with open(path, "w") as file:
        file.write(
            f'[listen]\nadmin = "127.0.0.1:{admin}"\n[source]\nurl = "{server.url}"\n'
            f'feed = "nats://127.0.0.1:{port}"\n{section}[collections.products]\n'
        )
    command = [subjects.hotrow_binary(), "relay", "--config", path]
    return Process(f"relay-{number}", command, admin, folder, "0-1")


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.read().decode()


def metric(port, name):
    lines = [line for line in get(port, "/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def until(what, holds):
    deadline = time.monotonic() + TAKEOVER_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not within {TAKEOVER_S} s: {what}")
        time.sleep(0.005)


def role(process):
    return json.loads(get(process.port, "/status"))["role"]


def publishes(process):
    state = json.loads(get(process.port, "/status"))
    return state["role"] == "leader" and state["publishing"]


def round_of(relays, instance, session, number):
    """Kills the leader. Returns the greatest staleness seen in s, and the losses."""
    until("a leader", lambda: any(publishes(process) for process in relays))
    until("freshness", lambda: metric(instance, "hotrow_feed_staleness_seconds") < 0.5)
    leader = next(process for process in relays if role(process) == "leader")
    relays.remove(leader)
    before = metric(instance, "hotrow_feed_gaps_total")
    os.kill(leader.pid, signal.SIGKILL)
    session.run(f"UPDATE products SET stock = {number} WHERE id = 1")
    worst, killed_at = 0.0, time.monotonic()
    while True:
        age = metric(instance, "hotrow_feed_staleness_seconds")
        worst = max(worst, age)
        # The staleness grows from the kill on, until a look of the new relay is answered.
        if time.monotonic() - killed_at > age + 0.05 and any(publishes(p) for p in relays):
            break
        if time.monotonic() - killed_at > TAKEOVER_S:
            raise Failed(f"no take-over within {TAKEOVER_S} s")
        time.sleep(0.002)
    return worst, metric(instance, "hotrow_feed_gaps_total") - before


def case(section, rounds):
    with hub.database(1000, 200) as (started, folder, server):
        port = started(hub.nats(folder)).port
        numbers = iter(range(1000))
        relays = [started(relay(folder, server, port, section, next(numbers))) for _ in range(2)]
        feed = f'feed = "nats://127.0.0.1:{port}"'
        process = started(
            subjects.start_hotrow_over(folder, server.url, "16MiB", core="0-1", source=feed)
        )
        session = postgres.Session(server.port)
        seen = []
        for number in range(rounds):
            seen.append(round_of(relays, process.admin_port, session, number))
            relays.append(started(relay(folder, server, port, section, next(numbers))))
            until("a second relay", lambda: role(relays[-1]) == "standby")
    return [age for age, _ in seen], sum(losses for _, losses in seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    cli.add_runs(parser)
    args = parser.parse_args()
    if subjects.hotrow_binary() is None:
        raise Failed("there is no hotrow to measure: set HOTROW to the binary")
    found = {name: case(section, args.rounds) for name, section in CASES}
    rows = [
        [name, f"{statistics.median(ages):.2f}", f"{max(ages):.2f}", f"{losses:.0f}"]
        for name, (ages, losses) in found.items()
    ]
    heads = ["relays", "staleness, median of rounds (s)", "greatest (s)", "losses"]
    worst = {name: max(ages) for name, (ages, _) in found.items()}
    verdicts = [
        report.verdict(f"greatest staleness, {CASES[0][0]}", worst[CASES[0][0]], AIM_S, "s"),
        report.verdict(f"greatest staleness, {CASES[1][0]}", worst[CASES[1][0]], AIM_S, "s"),
        report.verdict(f"greatest staleness, {CASES[2][0]}", worst[CASES[2][0]], GOAL_S, "s"),
        report.verdict("losses with a permanent slot", sum(found[c][1] for c, _ in CASES[1:]), 0),
    ]
    results = {"settings": vars(args), "staleness_s": found}
    text = f"{args.rounds} rounds each.\n\n{report.table(heads, rows)}"
    return report.keep("takeover", results, text, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
