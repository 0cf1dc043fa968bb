"""Tests of the library."""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, generators, h2load, plot, postgres, process  # noqa: E402
from lib import report, stats, subjects, wrk  # noqa: E402
from lib.http import Answer, Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

SPIN_S = 0.3


class Arguments(unittest.TestCase):
    def test_only_what_is_known_can_be_named(self):
        some = cli.some_of(["a", "b", "c"])
        self.assertEqual(some("c,a"), ["c", "a"])
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "unknown: , x; there are a, b, c"):
            some("a,x,")


class Statistics(unittest.TestCase):
    def test_percentile_is_nearest_rank(self):
        values = list(range(1, 101))
        self.assertEqual(
            [stats.percentile(values, p) for p in (1, 50, 99, 99.9, 100)], [1, 50, 99, 100, 100]
        )
        self.assertEqual(stats.percentile([7], 99), 7)

    def test_ratio_is_taken_pair_by_pair(self):
        # Both values double in the second half: the noise is shared, so the ratio has none.
        ratio = stats.ratio([2, 2, 4, 4], [1, 1, 2, 2])
        self.assertEqual((ratio["median"], ratio["low"], ratio["high"]), (2, 2, 2))

    def test_bootstrap_interval_holds_the_median(self):
        low, high = stats.bootstrap_median([1, 2, 3, 4, 100])
        self.assertLess(low, 3)
        self.assertGreater(high, 3)


class Verdicts(unittest.TestCase):
    def test_outcomes(self):
        self.assertEqual(report.verdict("x", 1.15, 1.15)["outcome"], "reached")
        self.assertEqual(report.verdict("x", 1.16, 1.15)["outcome"], "not reached")
        self.assertEqual(report.verdict("x", 2, 3, at_most=False)["outcome"], "not reached")
        self.assertEqual(report.verdict("x", None, 3)["outcome"], "not measured")


class Plot(unittest.TestCase):
    def test_every_point_is_drawn_inside(self):
        chart = plot.lines(
            "a < b", "x", "y", {"one": [(50, 50), (1_000, 95)], "two": [(50, 50), (1_000, 0)]}
        )
        root = xml.etree.ElementTree.fromstring(chart)
        points = [
            (float(c.get("cx")), float(c.get("cy")))
            for c in root.iter("{http://www.w3.org/2000/svg}circle")
        ]
        self.assertEqual(len(points), 4)
        self.assertTrue(
            all(
                plot.LEFT <= x <= plot.WIDTH and plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM
                for x, y in points
            ),
            points,
        )
        self.assertLess(points[1][1], points[0][1])


class Data(unittest.TestCase):
    def test_bodies_have_the_size_that_was_asked_for(self):
        for number, size in [(1, 319), (1_000_000, 319), (42, 1_200)]:
            self.assertEqual(len(data.as_json(data.product(number, size))), size)
        with self.assertRaises(ValueError):
            data.product(1, 20)


class Records(unittest.TestCase):
    def test_the_floors_file_marks_the_date(self):
        answers = subjects.synthetic([7], 200)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            subjects.write_records(path, answers)
            with open(path, "rb") as file:
                line, rest = file.read().split(b"\n", 1)
        number, head, body, date_at = map(int, line.split())
        self.assertEqual((number, head, body), (7, len(answers[7].head), 200))
        self.assertEqual(rest[date_at : date_at + 29], b"Fri, 01 Jan 2021 00:00:00 GMT")
        self.assertEqual(rest, answers[7].head + answers[7].body + b"\n")

    def test_heads_differ_by_more_than_the_date(self):
        head = subjects.synthetic([7], 200)[7].head
        self.assertEqual(
            subjects.without_date(head),
            subjects.without_date(head.replace(b"01 Jan 2021", b"02 Feb 2022")),
        )
        self.assertNotEqual(
            subjects.without_date(head), subjects.without_date(head.replace(b"age: 0", b"age: 1"))
        )


class Http(unittest.TestCase):
    def exchange(self, pieces):
        listener = socket.create_server(("127.0.0.1", 0))

        def serve():
            client, _ = listener.accept()
            client.recv(1 << 16)
            for piece in pieces:
                client.sendall(piece)
                time.sleep(0.01)  # the pieces tend to arrive apart
            client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection(listener.getsockname()[1])
        try:
            return connection.get("/")
        finally:
            connection.close()
            thread.join()
            listener.close()

    def test_answers_in_pieces(self):
        answer = self.exchange([b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nab", b"cde"])
        self.assertEqual(
            (answer.status, answer.body, answer.header("content-length")), (200, b"abcde", "5")
        )

    def test_chunks(self):
        answer = self.exchange(
            [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
                b"c\r\n2\r\nde\r\n",
                b"0\r\n\r\n",
            ]
        )
        self.assertEqual(answer.body, b"abcde")

    def test_an_answer_that_breaks_off_is_an_error(self):
        with self.assertRaises(ConnectionError):
            self.exchange([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])

    def test_names_are_compared_without_case(self):
        self.assertEqual(
            Answer(200, b"HTTP/1.1 200 OK\r\nETag: 1\r\nage: 0\r\n\r\n", b"").names(),
            ["age", "etag"],
        )


class Postgres(unittest.TestCase):
    def test_rows_are_cut_at_their_lengths(self):
        body = b"\x00\x03" + b"\x00\x00\x00\x02ab" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"
        self.assertEqual(postgres.Session._row(body), ["ab", None, ""])

    def test_a_private_server_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            server = postgres.Server(folder)
            try:
                server.load_products(1_500, 319)
                with postgres.Session(server.port) as session:
                    self.assertEqual(
                        session.run("SELECT 1; SELECT count(*), NULL FROM products"),
                        [["1"], ["1500", None]],
                    )
                    self.assertEqual(
                        session.run("SELECT * FROM products WHERE id = 7"),
                        [[str(value) for value in data.product(7, 319)]],
                    )
                    with self.assertRaises(process.Failed):
                        session.run("SELECT nonsense")
                    self.assertEqual(session.run("SELECT 2"), [["2"]])
                    self.assertEqual(len(server.backends("application_name = 'bench'")), 1)
            finally:
                server.end()


class Processes(unittest.TestCase):
    def test_cpu_time_counts_children_and_ended_threads(self):
        spin = (
            f"import time\nend = time.process_time() + {SPIN_S}\n"
            "while time.process_time() < end: pass\n"
        )
        thread = (
            "import threading, time\ndef spin():\n end = time.thread_time() + "
            + str(SPIN_S)
            + "\n while time.thread_time() < end: pass\n"
            + "t = threading.Thread(target=spin); t.start(); t.join()\n"
        )
        wait = "print('done', flush=True); import sys; sys.stdin.read()"
        parent = (
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE)\n"
            "sys.stdin.read()\nchild.stdin.close(); child.wait()\n"
        )
        for command in (
            [sys.executable, "-c", thread + wait],
            [sys.executable, "-c", parent, spin + wait],
        ):
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(child.stdout.readline(), b"done\n")
            self.assertGreaterEqual(process.cpu_ns(child.pid), SPIN_S * 1e9)
            self.assertAlmostEqual(
                process.cpu_ns(child.pid) / 1e9, process.cpu_ticks_s(child.pid), delta=0.05
            )
            child.stdin.close()
            child.wait()
            child.stdout.close()


class Rounds(unittest.TestCase):
    @staticmethod
    def rounds(foreign_shares):
        return lambda number: {
            "a": {"foreign_share": foreign_shares[number], "cpu_us_per_request": 1.0}
        }

    def test_disturbed_rounds_are_repeated(self):
        quiet, disturbed = wrk.quiet_rounds(3, 0.05, self.rounds([0, 0.5, 0.01, 0.2, 0]))
        self.assertEqual((len(quiet), len(disturbed)), (3, 2))

    def test_a_busy_machine_gives_no_figure(self):
        with self.assertRaises(process.Failed):
            wrk.quiet_rounds(3, 0.05, self.rounds([0.5] * 9))

    def test_requests_are_one_line_each(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "requests")
            wrk.write_requests(path, [("GET", "/a", ""), ("POST", "/b", json.dumps({"ids": [1]}))])
            with open(path) as file:
                self.assertEqual(file.read(), 'GET\t/a\t\nPOST\t/b\t{"ids": [1]}\n')


class H2load(unittest.TestCase):
    REPORT = """TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Application protocol: h2
finished in 2.00s, 1000.00 req/s, 1.00MB/s
requests: 2000 total, 2010 started, 2000 done, {succeeded} succeeded, 0 failed, 0 errored, 0 timeout
                     min         max         mean         sd        +/- sd
time for request:       51us      1.20ms      1.50ms        37us    77.39%
"""

    def test_a_report_is_read(self):
        found = h2load.parse(self.REPORT.format(succeeded=2000), secure=True, protocol="h2")
        self.assertEqual((found["requests"], found["mean_us"]), (2000, 1500))
        self.assertEqual((found["duration_us"], found["cipher"]), (2e6, "TLS_AES_128_GCM_SHA256"))

    def test_a_failed_or_other_run_is_no_result(self):
        fine = self.REPORT.format(succeeded=2000)
        for text, how in (
            ("", {}),
            (self.REPORT.format(succeeded=1999), {}),
            (fine.replace("TLSv1.3", "TLSv1.2"), {"secure": True}),
            (fine.replace(": h2", ": http/1.1"), {"protocol": "h2"}),
        ):
            with self.assertRaises(Failed):
                h2load.parse(text, **how)


class Generators(unittest.TestCase):
    def test_each_is_called_for_the_same_load(self):
        known = {
            name: shutil.which("true") for name in ("hotrow", "wrk", "ab", "h2load", "oha", "hey")
        }
        with unittest.mock.patch.object(generators, "binary", known.get):
            for name in known:
                words = " ".join(generators.command(name, "http://a/", 5, connections=50))
                self.assertRegex(words, r"-c ?50\b", name)
                self.assertRegex(words, r"-[dtzD] ?5s?\b", name)
            for name in ("hotrow", "wrk", "ab"):
                closing = generators.command(name, "http://a/", 5, keepalive=False)
                self.assertNotEqual(closing, generators.command(name, "http://a/", 5), name)
            with self.assertRaises(ValueError):
                generators.command("wrk", "http://a/", 5, rate=100)

    @unittest.skipUnless(
        shutil.which("ab") and shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"),
        "needs ab and nginx",
    )
    def test_a_run_is_weighed_by_what_the_target_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            target = generators.Target(folder)
            try:
                before = target.requests()
                result = generators.measured(target, "ab", 1, connections=5)
                self.assertEqual(
                    target.requests() - before,
                    result["requests"] + 3,
                    "and those that asked for the count",
                )
            finally:
                target.end()
            self.assertGreater(result["requests"], 100)
            self.assertGreater(result["peak_bytes"], 1 << 20)
            self.assertAlmostEqual(
                result["cpu_us_per_request"] * result["throughput_rps"] / 1e6,
                result["cpu_share"],
                places=6,
            )


if __name__ == "__main__":
    unittest.main()
