"""Measured processes: start, pinning, CPU time, memory, stop and continue, end."""

import os
import resource
import signal
import socket
import subprocess
import time

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10


class Failed(Exception):
    """A run without a result; the message is for the user."""


def allow_open_files(wanted, option):
    """Raises this process's limit, which those that it starts inherit. `option`: what to lower."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < wanted:
        raise Failed(f"{wanted} open files are needed and {most} allowed: lower {option}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(pid):
    """Returns the process and all its descendants."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    found.extend(int(child) for child in file.read().split())
        except FileNotFoundError:
            continue
    return found


def cpu_ns(pid):
    """Returns the CPU time of the process tree in ns, user and kernel, with ended threads.

    The clock is that of clock_getcpuclockid(3): the complement of the process id, shifted, and 2
    for the scheduler's count (linux/posix-timers.h).
    """
    return sum(time.clock_gettime_ns((~process << 3) | 2) for process in tree(pid))


def cpu_ticks_s(pid):
    """Returns the same from utime and stime in /proc/PID/stat, in s with a resolution of one tick,
    to check `cpu_ns`.
    """
    total = 0
    for process in tree(pid):
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def busy_s():
    """Returns the CPU time that the whole machine has used, with time stolen by its hypervisor, in
    s.
    """
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, softirq, steal, *_ = map(
            int, file.readline().split()[1:]
        )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    total = 0
    for process in tree(pid):
        with open(f"/proc/{process}/status") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
    return total


class Process:
    """Server on one core. Its output goes to a log file, which is shown if it does not start."""

    def __init__(self, name, command, port, folder, core=0, environment=None):
        self.name, self.port = name, port
        self.command = ["taskset", "-c", str(core), *command]
        self.log = os.path.join(folder, f"{name}.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self.child.pid
        try:
            self._wait_until_it_listens()
        except Failed:
            self.end()
            raise

    def _wait_until_it_listens(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        with open(self.log, errors="replace") as log:
            raise Failed(
                f"{self.name} does not listen on port {self.port}: {' '.join(self.command)}\n"
                f"{log.read()[-2000:]}"
            )

    def _signal(self, number):
        for pid in tree(self.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pause(self):
        """Stops the process while another one is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def cpu_ns(self):
        return cpu_ns(self.pid)

    def rss_bytes(self):
        return rss_bytes(self.pid)

    def end(self):
        if self.child.poll() is None:
            self.resume()
            self.child.terminate()
            try:
                self.child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
