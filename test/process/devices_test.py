"""Processes with a stand-in GPU each: device memory through the C API."""
import json
import os
import secrets
import signal
import subprocess
import tempfile
import unittest

RUN = os.environ["TUTTI_RUN"]
DEVICES = os.environ["TUTTI_DEVICES_PROGRAM"]
BENCH = os.environ["TUTTI_BENCH"]
STANDINS = {"TUTTI_CUDA_LIBRARY": os.environ["TUTTI_FAKE_CUDA"],
            "TUTTI_NCCL_LIBRARY": os.environ["TUTTI_FAKE_NCCL"]}
HANG_GUARD_S = 300


def run(ranks, case, env=None, options=()):
    command = [RUN, "-n", str(ranks), *options, DEVICES, case]
    # None takes a variable away.
    merged = {**os.environ, **STANDINS, **(env or {})}
    return subprocess.run(command, env={k: v for k, v in merged.items() if v is not None},
                          capture_output=True, text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)


def start_replaced(ranks, victim, hosts, env):
    """A job of the case "replaced": the processes of its ranks, and the one that takes the victim's place."""
    with tempfile.TemporaryDirectory() as store:
        common = {**os.environ, **STANDINS, "TUTTI_STORE": f"file://{store}", "TUTTI_SECRET": secrets.token_hex(16),
                  "TUTTI_IFACE": "127.0.0.1", "TUTTI_TIMEOUT_MS": "60000", "VICTIM": str(victim), **env}
        places = [{"TUTTI_RANK": str(rank), "TUTTI_SIZE": str(ranks)} for rank in range(ranks)]
        started = []
        for device, place in [*enumerate(places), (victim, {"TUTTI_JOIN": "1"})]:
            host = {"TUTTI_HOST_ID": f"host{device % hosts}"} if hosts > 1 else {}
            started.append(subprocess.Popen([DEVICES, "replaced"], env={**common, **host, **place, "DEVICE": str(device)},
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            text=True))
        try:
            return [(process.communicate(timeout=HANG_GUARD_S)[0], process.returncode) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()


class Devices(unittest.TestCase):
    def right(self, *arguments, **how):
        done = run(*arguments, **how)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        self.assertNotIn("violation", done.stderr)

    def test_collectives(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                self.right(ranks, "collectives")

    def test_collectives_across_acted_hosts(self):
        self.right(4, "collectives", options=("--hosts-act", "2"))

    def test_the_hierarchical_way_across_acted_hosts(self):
        tiny = {"TUTTI_DEVICE_TILE_BYTES": "4096"}
        for case, options in (("collectives", ()), ("parts", ()), ("wrong", ()), ("death", ("--keep-going",))):
            with self.subTest(case=case):
                self.right(4, case, env={"TUTTI_DEVICE": "hierarchical", **tiny}, options=("--hosts-act", "2", *options))
        with self.subTest("uneven"):
            self.right(3, "collectives", env={"TUTTI_DEVICE": "hierarchical", **tiny}, options=("--hosts-act", "2"))

    def test_the_way_that_fits_is_chosen(self):
        self.right(4, "collectives", env={"TUTTI_DEVICE": "auto"}, options=("--hosts-act", "2"))
        self.right(4, "shared", env={"TUTTI_DEVICE": "auto"}, options=("--hosts-act", "2"))
        self.right(4, "one_gpu_a_host", env={"TUTTI_DEVICE": "auto"}, options=("--hosts-act", "2"))

    def test_staged_in_tiles(self):
        for case, options in (("collectives", ()), ("death", ("--keep-going",))):
            with self.subTest(case=case):
                self.right(3, case, env={"TUTTI_DEVICE": "staged", "TUTTI_DEVICE_TILE_BYTES": "4096"}, options=options)

    def test_parts_of_a_communicator_have_groups_of_their_own(self):
        self.right(4, "parts")

    def test_parts_that_share_their_parents_group(self):
        self.right(4, "parts", env={"TUTTI_DEVICE_SPLIT": "share"})

    def test_several_nccl_communicators(self):
        self.right(2, "collectives", env={"TUTTI_DEVICE_RINGS": "2"})

    def test_messages_and_windows(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.right(ranks, "messages")

    def test_wrong_calls(self):
        self.right(2, "wrong")

    def test_a_rank_that_dies_is_named(self):
        self.right(3, "death", options=("--keep-going",))

    def replaced(self, ranks, victim, hosts=1, **env):
        with self.subTest(victim=victim, env=env):
            for number, (output, code) in enumerate(start_replaced(ranks, victim, hosts, env)):
                self.assertEqual(code, -signal.SIGKILL if number == victim else 0, (number, output[-3000:]))
                self.assertNotIn("violation", output)

    def test_all_paths_after_a_loss_and_with_a_newcomer(self):
        for victim in range(3):
            self.replaced(3, victim)
        self.replaced(3, 1, TUTTI_DEVICE_SPLIT="share")
        self.replaced(3, 1, TUTTI_DEVICE_RINGS="2")

    def test_all_paths_through_the_host_after_a_loss_and_with_a_newcomer(self):
        for victim in range(3):
            self.replaced(3, victim, TUTTI_DEVICE="staged", TUTTI_DEVICE_TILE_BYTES="4096")

    def test_all_paths_across_acted_hosts_after_a_loss_and_with_a_newcomer(self):
        for victim in (0, 3):
            self.replaced(4, victim, 2, TUTTI_DEVICE="hierarchical", TUTTI_DEVICE_TILE_BYTES="4096")

    def test_nccl_that_is_too_old_and_then_the_host_goes_on(self):
        self.right(2, "absent", env={"FAKE_NCCL_VERSION": "21602",
                                     "EXPECTED": "rank 0 cannot use NCCL: NCCL 2.16.2"})

    def test_the_benchmark_checks_every_element_on_devices(self):
        for collective in ("allreduce", "alltoall", "scan"):
            with self.subTest(collective=collective):
                done = subprocess.run(
                    [BENCH, collective, "--ranks", "2", "--memory", "device", "-b", "8", "-e", "64K", "-f", "64",
                     "-n", "3", "-w", "1", "--out-of-place-only", "--json", "-"], env={**os.environ, **STANDINS},
                    capture_output=True, text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
                self.assertIn('"wrong"', done.stdout)

    def test_the_benchmark_beside_direct_calls_of_nccl(self):
        for collective in ("allreduce", "broadcast", "scan"):
            with self.subTest(collective=collective):
                done = subprocess.run(
                    [BENCH, collective, "--ranks", "2", "--memory", "device", "--peer", "nccl", "-b", "8", "-e", "64K",
                     "-f", "1024", "-n", "4", "-w", "1", "--inplace-only", "--json", "-"],
                    env={**os.environ, **STANDINS}, capture_output=True, text=True, timeout=HANG_GUARD_S,
                    stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
                self.assertNotIn("violation", done.stderr)
                rows = json.loads(done.stdout)["rows"]
                for row in rows:
                    self.assertEqual(row["wrong"], 0)
                    # NCCL has no scan to compare with.
                    self.assertEqual("nccl_ratio" in row, collective != "scan")
                    if collective != "scan":
                        self.assertGreater(row["nccl_median_us"], 0)
                        self.assertGreater(row["nccl_ratio"], 0)

    def test_the_benchmark_has_no_peer_on_host_memory(self):
        done = subprocess.run([BENCH, "allreduce", "--peer", "nccl"], capture_output=True, text=True,
                              timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--memory device", done.stdout + done.stderr)

    def test_no_driver(self):
        self.right(2, "without_driver", env={"TUTTI_CUDA_LIBRARY": None})

    def test_a_driver_that_is_not_where_it_was_said(self):
        done = run(1, "collectives", env={"TUTTI_CUDA_LIBRARY": "/nowhere/libcuda.so"})
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
