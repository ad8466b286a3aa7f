"""bench/compare without a clock: how it reads programs' output, its statistics, and the libraries that it leaves out."""
import contextlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(os.environ["TUTTI_SOURCE"]) / "bench"
sys.path.insert(0, str(BENCH))
from peers import contestants, rounds, running, torch_clients, torch_ddp, torch_dtensor, torch_single  # noqa: E402

UCX_PERFTEST = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
20000,6.661,49.471,71.591,0.15,0.11,20214,13968
"""
UCX_PERFTEST_FAILED = "[1700000000.1] [x:1:0] perftest.c:1  UCX  ERROR failed to connect\n"
FI_PINGPONG = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
16m     4       =4       128m        0.28s    476.19   35231.88       0.00
"""
# tutti-bench as far as the comparison knows it: a time for each transport, no ofi.
FAKE_BENCH = """#!/usr/bin/env python3
import json, sys
if "--version" in sys.argv: print("0.1.0"); sys.exit()
def of(name): return sys.argv[sys.argv.index(name) + 1]
times = {"tcp": 10.0, "ucx": 12.0}
if of("--transport") not in times: sys.exit("no transport '" + of("--transport") + "' here")
row = {"collective": sys.argv[1], "bytes": int(of("-b")), "median_us": times[of("--transport")]}
json.dump([row], open(of("--json"), "w"))
"""


class Fake(contestants.Contestant):
    def __init__(self, name, times, log):
        self.name, self.times, self.log = name, iter(times), log

    def median_us(self, case):
        self.log.append(self.name)
        time_us = next(self.times)
        if time_us is None:
            raise running.Failed(f"{self.name}: no end")
        return time_us


class Parsing(unittest.TestCase):
    def test_ucx_perftest(self):
        self.assertEqual(contestants.ucx_perftest_us(UCX_PERFTEST), 6.661)
        with self.assertRaises(running.Failed):
            contestants.ucx_perftest_us(UCX_PERFTEST_FAILED)

    def test_fi_pingpong(self):
        self.assertEqual(contestants.fi_pingpong_us(FI_PINGPONG), 35231.88)
        for wrong in ("", FI_PINGPONG.splitlines()[0]):
            with self.assertRaises(running.Failed):
                contestants.fi_pingpong_us(wrong.replace("usec", "sec"))

    def test_tutti_bench(self):
        row = {"median_us": 3.5, "bytes": 8}
        for text in (json.dumps([row]), json.dumps({"rows": [row]}), json.dumps(row) + "\n" + json.dumps({"machine": 1})):
            self.assertEqual(contestants.rows_of(text), [row])

    def test_what_a_launcher_complains_of(self):
        self.assertEqual(running.complaint("-----\n\n  There are not enough slots\n----\n"), "There are not enough slots")

    def test_sizes(self):
        self.assertEqual([running.bytes_of(text) for text in ("8", "64K", "16M", "1g")], [8, 65536, 16 << 20, 1 << 30])
        for wrong in ("", "K", "0", "1.5M", "-8", "8X"):
            with self.assertRaises(ValueError, msg=wrong):
                running.bytes_of(wrong)
        self.assertEqual([running.human(size) for size in (8, 1000, 65536, 16 << 20)], ["8 B", "1000 B", "64 KiB", "16 MiB"])


class Statistics(unittest.TestCase):
    def setUp(self):
        self.case = rounds.case_of("allreduce", "ucx", 8)

    def test_the_ratio_is_the_median_of_the_rounds_not_of_the_times(self):
        # A slow second round falls on both: the ratios do not see it.
        log = []
        tutti, peer = Fake("tutti", [10, 100, 10], log), Fake("peer", [20, 200, 5], log)
        [row], _ = rounds.compare(self.case, tutti, [peer], 3)
        self.assertEqual(row.ratios, [0.5, 0.5, 2.0])
        self.assertEqual(row.ratio, 0.5)
        self.assertEqual(log, ["tutti", "peer", "peer", "tutti", "tutti", "peer"])
        self.assertEqual(row.cells()[-3:], ["0.50", "0.50–2.00", ""])

    def test_a_peer_that_gives_up_leaves_the_others_their_rounds(self):
        tutti, tired, peer = Fake("tutti", [10] * 3, []), Fake("tired", [5, None], []), Fake("peer", [20] * 3, [])
        [row], failures = rounds.compare(self.case, tutti, [tired, peer], 3)
        self.assertEqual((row.peer, row.ratios), ("peer", [0.5] * 3))
        self.assertEqual({name: str(why) for name, why in failures.items()}, {"tired": "tired: no end"})
        with self.assertRaises(running.Failed):
            rounds.compare(self.case, Fake("tutti", [None], []), [peer], 1)

    def test_blocks_suit_programs_that_time_batches(self):
        for transport in rounds.PACE:
            for size in (4, 1024, 65532, 65536, 1 << 20, 1 << 30):
                iterations = rounds.iterations_of(transport, size)
                self.assertGreaterEqual(iterations, rounds.MIN_ITERATIONS)
                self.assertLessEqual(iterations, rounds.MAX_ITERATIONS)
                if size < rounds.SHARED_CLOCK_BYTES:
                    self.assertEqual(iterations % rounds.BATCH, 0)

    def test_goals(self):
        def goal(transport, size, peer, collective="allreduce"):
            return rounds.goal_of(rounds.case_of(collective, transport, size), peer)
        self.assertEqual(goal("ucx", 8, "ucx_perftest"), 1.5)
        self.assertEqual(goal("ofi", 8, "fi_pingpong"), 1.5)
        self.assertIsNone(goal("ucx", 1024, "ucx_perftest"))
        self.assertEqual(goal("ucx", 16 << 20, "Open MPI's exchange"), 1.25)
        self.assertIsNone(goal("shm", 16 << 20, "Open MPI's exchange"))
        self.assertEqual(goal("ofi", 1024, "tutti over tcp"), 1.25)
        self.assertEqual(goal("shm", 128 << 20, "Open MPI"), 0.3)
        self.assertIsNone(goal("shm", 8, "Open MPI", "broadcast"))

    def test_a_missed_goal_is_said(self):
        row = rounds.Row(self.case, "ucx_perftest", [16.0], [10.0])
        self.assertTrue(row.missed)
        self.assertEqual(row.judgement(), "≤ 1.5 (missed)")
        self.assertEqual(row.as_json()["goal"], 1.5)
        self.assertFalse(rounds.Row(self.case, "MPICH", [16.0], [10.0]).missed)

    def test_a_row_is_slower_only_beyond_what_the_other_build_is_to_itself(self):
        def row(ours, theirs, again):
            return rounds.BuildRow(self.case, "older", ours, theirs, again)
        self.assertTrue(row([10.5] * 3, [10.0] * 3, [10.0, 10.1, 9.9]).slower)
        self.assertFalse(row([10.5] * 3, [10.0] * 3, [10.0, 10.6, 9.9]).slower)
        self.assertFalse(row([10.2] * 3, [10.0] * 3, [10.0] * 3).slower)

    def test_a_row_that_seems_slower_is_measured_again(self):
        log = []
        ours = Fake("tutti", [11.0] * 2 + [10.0] * 2, log)
        theirs = contestants.Tutti("bench", pathlib.Path("."), contestants.Wires(), name="older")
        theirs.median_us = lambda case: 10.0
        rows, _ = rounds.compare(self.case, ours, [theirs], 2)
        self.assertTrue(rows[0].slower)
        ours.times = iter([11.0] * 2 + [10.0] * 2)
        rows, _ = rounds.compare_twice(self.case, ours, [theirs], 2)
        self.assertEqual(rows[0].tutti_us, [10.0, 10.0])
        self.assertFalse(rows[0].slower)


class FakeRuns:
    """test/clients' module runs, with given times of a step over each backend."""
    def __init__(self, times, failing="", version="1.0"):
        self.times, self.failing, self.log = {name: iter(ms) for name, ms in times.items()}, failing, []
        self.CLIENTS = {"ddp": types.SimpleNamespace(title="DDP", package="torch", command=["train"], version=lambda: version,
                                                     over={name: {"over": name} for name in ("tutti", "gloo")}, beside="gloo")}

    def run(self, command, over):
        self.log.append(over)
        step_ms = next(self.times[over])
        return types.SimpleNamespace(status=3 if over == self.failing else 0, log="first\nlast\n", step_ms=lambda: step_ms)


class Torch(unittest.TestCase):
    def test_a_client_runs_over_both_backends_in_turns(self):
        runs = FakeRuns({"tutti": [1, 2, 9], "gloo": [2, 8, 6]})
        row = torch_clients.row_of(torch_clients.compare(runs, "ddp", 3))
        self.assertEqual(runs.log, ["tutti", "gloo", "gloo", "tutti", "tutti", "gloo"])
        self.assertEqual(row["ratios"], [0.5, 0.25, 1.5])
        self.assertEqual(torch_clients.line(row), "| DDP 1.0 | 2.00 | 6.00 | 0.50 | 0.25–1.50 | ≤ 1 |")
        slower = torch_clients.row_of({"title": "x", "tutti_ms": [1.1], "gloo_ms": [1.0]})
        self.assertTrue(torch_clients.line(slower).endswith("≤ 1 (missed) |"))

    def test_a_client_that_cannot_run_is_left_out_with_its_reason(self):
        with self.assertRaisesRegex(RuntimeError, "torch is not installed. What to do: "):
            torch_clients.compare(FakeRuns({}, version=None), "ddp", 1)
        with self.assertRaisesRegex(RuntimeError, "over tutti: exit status 3: last. What to do: "):
            torch_clients.compare(FakeRuns({"tutti": [1], "gloo": [1]}, failing="tutti"), "ddp", 1)

    def test_a_client_that_fails_over_tutti_misses_its_goal(self):
        for failing, missed in (("tutti", True), ("gloo", False)):
            runs = FakeRuns({"tutti": [1], "gloo": [1]}, failing)
            with unittest.mock.patch.object(torch_clients, "start", return_value=runs), \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(torch_clients.measure(["ddp"], None, 1)[2], missed)
            self.assertIn(f"skipped: ddp: over {failing}: exit status 3", said.getvalue())

    def test_the_names_are_those_of_the_tests(self):
        sys.path.insert(0, str(BENCH.parent / "test" / "clients"))
        import runs
        self.assertEqual(torch_clients.NAMES, tuple(runs.CLIENTS))

    def test_goals(self):
        def single(nbytes, ranks=2):
            return torch_single.row_of({"dtype": "float32", "bytes": nbytes, "ranks": ranks, "tutti": [5.0], "gloo": [90.0]})
        self.assertTrue(single(8)["missed"])
        self.assertFalse(single(65536)["missed"])
        self.assertIsNone(single(8, ranks=3)["goal"])

    def test_a_dtensor_has_a_goal_unless_torch_alone_takes_longer(self):
        def row(alone):
            return torch_dtensor.row_of({"dtensor": "step", "alone": [alone], "tutti": [6.0], "gloo": [10.0]})
        self.assertTrue(row(4.0)["missed"])
        self.assertEqual(torch_dtensor.line(row(4.0)), f"| {torch_dtensor.NAMES['step']} | 4 | 40 % | 6 | 10 | 0.600 | "
                                                       "0.600–0.600 | ≤ 0.5 (missed) |")
        self.assertIsNone(row(5.0)["goal"])

    def test_a_ddp_step_has_a_goal_if_enough_of_it_is_communication(self):
        def row(alone_ms):
            return torch_ddp.row_of({"ddp_width": 64, "bucket_kib": 64, "bytes": 160_000, "tutti_ms": [2.0], "gloo_ms": [2.5],
                                     "alone_ms": [alone_ms]})
        self.assertEqual((row(1.0)["goal"], row(1.0)["missed"]), (1.3, True))
        self.assertEqual((row(2.0)["goal"], row(2.0)["missed"]), (None, False))
        self.assertEqual(torch_ddp.line(row(2.0)), "| 0.16 MB | 64 KiB | 2.00 | 2.00 | 2.50 | 20 % | 1.25 | 1.25–1.25 |  |")


class Peers(unittest.TestCase):
    def test_contestants_refuse_what_they_cannot_compare(self):
        wires = contestants.Wires()
        over_tcp = contestants.Tutti("bench", pathlib.Path("."), wires, "tcp")
        self.assertIsNone(over_tcp.refuses(rounds.case_of("allreduce", "ucx", 8)))
        for transport in ("shm", "tcp"):
            self.assertIsNotNone(over_tcp.refuses(rounds.case_of("allreduce", transport, 8)))

    def test_all_of_a_transport_go_through_the_same_wires(self):
        wires = contestants.Wires("rc,self", "mlx5_0:1", "verbs")
        self.assertEqual(wires.environment("ucx"), {"UCX_TLS": "rc,self", "UCX_NET_DEVICES": "mlx5_0:1"})
        self.assertEqual(wires.environment("ofi")["FI_PROVIDER"], "verbs")
        self.assertEqual(wires.environment("shm"), {})
        self.assertNotIn("TUTTI_IFACE", wires.tuttis("ucx"))
        self.assertEqual(contestants.Wires().tuttis("ofi")["TUTTI_IFACE"], "lo")
        self.assertEqual(contestants.Wires().tuttis("tcp"), {})


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bench = self.folder / "tutti-bench"
        self.bench.write_text(FAKE_BENCH, encoding="utf-8")
        self.bench.chmod(self.bench.stat().st_mode | stat.S_IXUSR)

    def compare(self, *arguments, path=None):
        return self.start("--bench", str(self.bench), *arguments, path=path)

    def start(self, *arguments, path=None):
        env = {**os.environ, **({"PATH": path} if path else {})}
        return subprocess.run([sys.executable, str(BENCH / "compare"), *arguments],
                              capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL, env=env)

    def test_a_table_and_json_with_who_was_left_out(self):
        # Only python3 is to be found: no peer is.
        python = self.folder / "bin"
        python.mkdir()
        (python / "python3").symlink_to(sys.executable)
        out = self.folder / "here.json"
        done = self.compare("--transports", "ucx,ofi", "--sizes", "8,16M", "--rounds", "3", "--json", str(out),
                            path=str(python))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\| ucx \| allreduce \| 2 \| 8 B \| 12\.0 \| tutti over tcp \| 10\.0 \| 1\.20 \| "
                                      r"1\.20–1\.20 \| ≤ 1\.25 \|")
        for who in ("openmpi", "mpich", "ucx_perftest", "fi_pingpong"):
            self.assertRegex(done.stdout, rf"skipped: {who}: .*missing. What to do: run tools/setup --bench")
        self.assertIn("no transport 'ofi' here", done.stdout)
        self.assertIn("2 of 2 goals reached", done.stdout)
        report = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual([row["bytes"] for row in report["rows"]], [8, 16 << 20])
        self.assertEqual(report["rows"][0]["tutti_us"], [12.0] * 3)
        self.assertEqual(report["rows"][0]["missed"], False)
        self.assertIn("mpich", report["skipped"])
        self.assertNotIn(f'"{os.uname().nodename}"', out.read_text(encoding="utf-8"))

    def older(self, ucx_us):
        """A build folder."""
        bench = self.folder / "older" / "bench" / "tutti-bench"
        bench.parent.mkdir(parents=True, exist_ok=True)
        bench.write_text(FAKE_BENCH.replace("12.0", str(ucx_us)), encoding="utf-8")
        bench.chmod(bench.stat().st_mode | stat.S_IXUSR)
        return str(bench.parent.parent)

    def test_another_build(self):
        for ucx_us, slower, status in ((12.0, 0, 0), (11.0, 1, 1)):
            done = self.compare("--build", self.older(ucx_us), "--transports", "ucx", "--collectives", "barrier,scan",
                                "--ranks", "3", "--sizes", "8,64K", "--rounds", "2", "--strict")
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            rows = [line for line in done.stdout.splitlines() if line.startswith("| ucx")]
            self.assertEqual([row.split(" | ")[1:4] for row in rows],
                             [["barrier", "3", "0 B"], ["scan", "3", "8 B"], ["scan", "3", "64 KiB"]])
            self.assertTrue(all("older ÷ itself 1.00–1.00" in row for row in rows), rows)
            self.assertEqual([row.count("(slower)") for row in rows], [slower] * 3)
            self.assertIn(f"{3 * slower} rows slower than another build", done.stdout)

    def test_wrong_usage(self):
        for wrong in (["--peers", "nobody"], ["--ranks", "1"], ["--ranks", "two"], ["--sizes", "big"],
                      ["--rounds", "0"], ["--transports", ""], ["--json", "/nonexistent/here.json"]):
            self.assertEqual(self.compare(*wrong).returncode, 2, wrong)
        for wrong, told in ((["--torch", "--json", "/nonexistent/here.json"], "cannot be written"),
                            (["--torch", "--sizes", "big"], "is not a size"),
                            (["--clients", "nobody"], "unknown client 'nobody'"),
                            (["--clients", "--rounds", "0"], "--rounds is 0")):
            done = self.start(*wrong)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertRegex(done.stderr, f"{told}.*What to do: ")
        self.assertIn("examples:", self.compare("--help").stdout)
        self.assertIn("deepspeed", self.start("--clients", "--help").stdout)

    def test_clients_without_a_python_that_has_tutti(self):
        done = self.start("--clients", "ddp", "--python", "/bin/false")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "backend cannot be loaded by /bin/false: no output. What to do: run tools/setup-python")

    def test_nobody_to_compare_with(self):
        done = self.compare("--transports", "ofi", "--peers", "tcp")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing was compared", done.stderr)


if __name__ == "__main__":
    unittest.main()
