"""Tests of failures: ranks die, hang or make different calls, and each test reads the errors that every rank gets."""
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest

RUN = os.environ["TUTTI_RUN"]
WORKER = os.environ["TUTTI_WORKER"]
LAST_WORDS = os.environ["TUTTI_LAST_WORDS"]
MAX_RANKS = int(os.environ.get("TUTTI_TEST_MAX_RANKS", "8"))
# Transports over networks' own libraries, where they are built.
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
HANG_GUARD_S = 240
SOON_S = 40  # well before the ranks' deadline, and long enough for a machine that is busy
# "operation: peer lost; at fault 2; after 0.310 s; rank 0: …"
LINE = re.compile(r"^\[(\d+)\] (\w[\w ]*): ([^;]*); at fault (-?\d+); after ([\d.]+) s; ?(.*)$", re.MULTILINE)
# The leak checker may crash on libraries that are loaded late, and reports what they keep. A forked child has none of
# the threads that hold what they had.
WITHOUT_LEAK_CHECK = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def sanitizer_options(transport):
    return WITHOUT_LEAK_CHECK if set(transport.split(",")) & set(FABRICS) else {}


def run(ranks, *arguments, transport="shm,tcp", env=None, options=(), program=WORKER):
    """Runs the ranks; returns {rank: {what: (status, rank at fault, seconds, text)}} of their lines, and all output."""
    done = subprocess.run(
        [RUN, "-n", str(ranks), "--keep-going", "--transport", transport, *options, program, *arguments],
        env={**os.environ, "TUTTI_TIMEOUT_MS": "60000", **sanitizer_options(transport), **(env or {})},
        capture_output=True, text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
    said = {r: {} for r in range(ranks)}
    for rank, what, status, fault, seconds, text in LINE.findall(done.stdout):
        said[int(rank)][what] = (status, int(fault), float(seconds), text)
    return said, done.stdout + done.stderr


class Faults(unittest.TestCase):
    transports_of_stopped = ("tcp", "tcp")

    @staticmethod
    def over_transports(ranks=(2, 3, 4)):
        return [(n, transport) for n in ranks for transport in ("shm", "tcp")]

    def check_mismatch(self, said, output, ranks, *words):
        for rank in range(ranks):
            self.assertIn("mismatch", said[rank], output)
            status, _, _, text = said[rank]["mismatch"]
            self.assertEqual(status, "mismatch", output)
            for word in words:
                self.assertIn(word, text, output)
            self.assertEqual(said[rank]["afterwards"][0], "ok", output)

    def mismatch(self, kind, *words, ranks=(2, 3, 4), env=None):
        for n, transport in self.over_transports(ranks):
            said, output = run(n, "mismatch", kind, transport=transport, env=env)
            self.check_mismatch(said, output, n, *words)

    def test_different_counts(self):
        self.mismatch("count", "count 99", "count 100")

    def test_different_counts_that_choose_different_algorithms(self):
        self.mismatch("size", "count 100000", "count 100,")

    def test_different_dtypes(self):
        self.mismatch("dtype", "float64", "float32")

    def test_different_operators(self):
        self.mismatch("op", "max", "sum")

    def test_different_collectives(self):
        self.mismatch("collective", "broadcast", "allreduce")
        self.mismatch("barrier", "barrier", "allreduce")

    def test_different_roots(self):
        self.mismatch("root", "root 0")

    def test_each_waiting_for_the_other(self):
        self.mismatch("wait", "root 0", "root 1", ranks=(2,))

    def test_operations_that_were_under_way_fail_on_every_rank(self):
        for check in ("", "strict"):
            for n, transport in self.over_transports():
                said, output = run(n, "queue", transport=transport, env={"TUTTI_CHECK": check} if check else None)
                for rank in range(n):
                    for call in range(4):
                        status, _, _, text = said[rank][f"call {call}"]
                        self.assertEqual(status, "mismatch", output)
                        for word in ("allreduce #1", "count 99", "count 100"):
                            self.assertIn(word, text, output)
                    self.assertEqual(said[rank]["afterwards"][0], "ok", output)

    def test_strict_checking(self):
        for kind, words in (("count", ("count 99", "count 100")), ("root", ("root 0",)),
                            ("collective", ("broadcast", "allreduce"))):
            self.mismatch(kind, *words, env={"TUTTI_CHECK": "strict"})

    def test_a_killed_rank_is_named_on_every_survivor(self):
        for n, transport in self.over_transports((2, 3, 4, 8)):
            if n > MAX_RANKS:
                continue
            for victim in {0, n - 1}:
                said, output = run(n, "killed", str(victim), transport=transport)
                for rank in set(range(n)) - {victim}:
                    self.assertIn("operation", said[rank], output)
                    status, fault, seconds, text = said[rank]["operation"]
                    self.assertEqual((status, fault), ("peer lost", victim), output)
                    self.assertIn(f"rank {victim} is gone", text)
                    self.assertLess(seconds, SOON_S, output)
                    self.assertEqual(said[rank]["next"][:2], ("peer lost", victim), output)
                    self.assertLess(said[rank]["destroy"][2], SOON_S, output)

    def check_killed_in_part(self, transport, victim, env):
        said, output = run(6, "killed_in_part", str(victim), transport=transport, env=env)
        for rank in {1, 2, 3, 4, 5} - {victim}:
            # Ranks of the part are those of the job but for rank 0.
            status, fault, seconds, text = said[rank]["operation"]
            self.assertEqual((status, fault), ("peer lost", victim - 1), output)
            self.assertLess(seconds, SOON_S, output)
        return said

    def test_a_killed_rank_is_named_on_every_survivor_of_a_part_though_others_have_left(self):
        # Job rank 1 is the root of the part's control tree; a ring connects each rank to two neighbours only.
        for transport, victim, algorithm in (("shm", 1, "ring"), ("tcp", 1, "ring"), ("tcp", 3, "")):
            self.check_killed_in_part(transport, victim, {"TUTTI_ALGO": algorithm})

    def test_a_killed_rank_is_named_on_every_survivor_though_the_store_has_left(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            store = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        said = self.check_killed_in_part("tcp", 1, {"TUTTI_ALGO": "ring", "TUTTI_TEST_STORE_OF_RANK_0": store})
        # The part has numbers of its own, which must not be taken for the job's.
        self.assertTrue(any("rank 0 is gone: it is rank 1 of the job" in said[r]["operation"][3] for r in said if r > 1))

    def test_a_stopped_rank_is_named_by_all_wherever_it_stopped(self):
        for transport in self.transports_of_stopped:
            env = {"TUTTI_TIMEOUT_MS": "8000", "TUTTI_HEARTBEAT_MS": "0"}  # which would come first
            said, output = run(4, "stopped_in_a_row", "2", transport=transport, env=env)
            for rank in (0, 1, 3):
                self.assertEqual(said[rank]["operation"][:2], ("timeout", 2), output)

    def test_ranks_that_return_without_destroying_leave_in_order(self):
        for transport in ("shm", "tcp", *FABRICS):
            for _ in range(3):
                said, output = run(4, "unsaid", transport=transport)
                for rank in range(4):
                    self.assertIn("operation", said[rank], output)
                    self.assertEqual(said[rank]["operation"][0], "ok", output)

    def test_a_death_fails_nobody_who_needs_nothing_more(self):
        for transport in ("shm", "tcp"):
            for victim in (0, 3):
                said, output = run(4, "cut_off", str(victim), transport=transport)
                for rank in set(range(4)) - {victim}:
                    self.assertEqual(said[rank]["operation"][0], "ok", output)
                said, output = run(4, "cut_off_early", str(victim), transport=transport)
                for rank in set(range(4)) - {victim}:
                    self.assertEqual(said[rank]["operation"][0], "ok", output)
                    self.assertEqual(said[rank]["next"][:2], ("peer lost", victim), output)
                    self.assertLess(said[rank]["next"][2], SOON_S, output)

    def test_a_receive_after_a_loss_takes_a_message_that_is_here(self):
        for n in (2, 3):
            for transport in ("shm", "tcp", *FABRICS):
                with tempfile.TemporaryDirectory() as folder:
                    said, output = run(n, folder, transport=transport, program=LAST_WORDS)
                for what in ("before", "queued", "any", *(("survivor",) if n > 2 else ())):
                    self.assertEqual(said[0].get(what, ("nothing",))[0], "ok", f"{transport}, {what}\n{output}")
                for what in ("send", "announced", "never", "barrier", "after"):
                    self.assertEqual(said[0][what][:2], ("peer lost", 1), f"{transport}, {what}\n{output}")
                    self.assertLess(said[0][what][2], SOON_S, output)

    def test_a_rank_that_only_sends_hears_of_a_death_too(self):
        for transport in ("shm", "tcp", *FABRICS):
            said, output = run(2, "goes_on_sending", transport=transport)
            self.assertEqual(said[0]["operation"][:2], ("peer lost", 1), output)

    def test_leaving_waits_for_no_answer_of_a_rank_that_gave_none(self):
        # libfabric keeps memory that a living peer has not fetched: leaving waits a second for it.
        for transport in ("shm", "tcp", *(set(FABRICS) - {"ofi"})):
            took_s = []
            # 1.0 s if they wait. The machine may be busy, but hardly each time.
            while len(took_s) < 10 and min(took_s, default=1) >= 0.8:
                said, output = run(3, "frozen", transport=transport)
                for rank in (0, 2):
                    self.assertEqual(said[rank]["operation"][:2], ("timeout", 1), output)
                    took_s.append(said[rank]["left"][2])
            self.assertLess(min(took_s), 0.8, output)

    def test_a_rank_in_its_exit_handlers_is_past_being_called(self):
        for transport in ("shm", "tcp"):
            with tempfile.TemporaryDirectory() as folder:
                said, output = run(2, "late_peer", folder, transport=transport)
            self.assertEqual(said[1]["operation"][:2], ("peer lost", 0), output)
            for rank in range(2):
                self.assertIn(f"rank {rank} exited with code 7", output)

    def test_a_static_object_may_own_the_communicator(self):
        for transport in ("shm", "tcp", *FABRICS):
            said, output = run(2, "left_to_a_global", transport=transport)
            for rank in range(2):
                self.assertEqual(said[rank]["operation"][0], "ok", output)
                self.assertEqual(said[rank]["destructor"][0], "ok", output)
            self.assertNotIn("exited", output)
            self.assertNotIn("killed", output)

    def test_a_rank_ends_while_a_thread_of_it_is_inside_a_call(self):
        for transport in ("shm", "tcp", *FABRICS):
            said, output = run(3, "inside", transport=transport)
            for rank in (1, 2):
                status, fault, seconds, _ = said[rank]["operation"]
                self.assertEqual((status, fault), ("peer lost", 0), output)
                self.assertLess(seconds, SOON_S, output)
            self.assertNotIn("killed", output)

    def test_a_forked_child_that_exits_takes_nobody_along(self):
        for transport in ("shm", "tcp"):
            said, output = run(3, "child_exits", transport=transport, env=WITHOUT_LEAK_CHECK)
            for rank in range(3):
                self.assertEqual(said[rank]["operation"][0], "ok", output)

    def test_survivors_that_exit_at_once_leave_word_of_the_rank_that_was_lost(self):
        for transport in ("shm", "tcp"):
            for victim in (0, 3):
                said, output = run(4, "exits_on_error", str(victim), transport=transport)
                for rank in set(range(4)) - {victim}:
                    self.assertEqual(said[rank]["operation"][:2], ("peer lost", victim), output)

    def test_survivors_go_on_as_a_job_of_their_own(self):
        for victim in (0, 2):
            with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                for store in (f"file://{folder}", f"tcp://127.0.0.1:{free.getsockname()[1]}"):
                    if store.startswith("tcp"):
                        free.close()
                    said, output = run(3, "went_on", str(victim), env={"TUTTI_TEST_STORE": store})
                    for rank in {0, 1, 2} - {victim}:
                        self.assertEqual(said[rank]["operation"][:2], ("peer lost", victim), output)
                        self.assertEqual(said[rank]["without"][0], "ok", output)
                        self.assertEqual(said[rank]["sum without"][0], "ok", output)

    def test_a_killed_rank_is_named_though_its_forked_child_lives_on(self):
        # A network's library keeps its own connections in the child: the control tree has the news.
        fabrics = [(2, fabric) for fabric in FABRICS]
        for n, transport in self.over_transports((2, 4)) + fabrics:
            for victim in {0, n - 1}:
                said, output = run(n, "survived_by_a_child", str(victim), transport=transport)
                for rank in set(range(n)) - {victim}:
                    self.assertEqual(said[rank]["operation"][:2], ("peer lost", victim), output)
                    self.assertLess(said[rank]["operation"][2], SOON_S, output)

    def test_a_rank_that_never_comes_is_named_at_the_deadline(self):
        for n, transport in self.over_transports((2, 4)):
            knows = False
            # On a busy machine the ranks' answers may miss the deadline, but hardly each time.
            for _ in range(5):
                said, output = run(n, "late", transport=transport)
                for rank in range(n - 1):
                    status, fault, _, text = said[rank]["operation"]
                    self.assertEqual((status, fault), ("timeout", n - 1), output)
                    self.assertIn("barrier #2", text)
                self.assertEqual(said[n - 1]["operation"][0], "timeout", output)
                knows = all(f"rank {n - 1} has not called it" in said[rank]["operation"][3] for rank in range(n - 1))
                if knows:
                    break
            self.assertTrue(knows, output)

    def test_who_comes_late_is_told_why_the_job_could_not_start(self):
        # Rank 3's parent has left by then: only the store can tell.
        script = 'case $TUTTI_RANK in 1) export TUTTI_NRINGS=3;; 3) sleep 1;; esac; exec "$0" idle'
        done = subprocess.run([RUN, "-n", "4", "--keep-going", "sh", "-c", script, WORKER],
                              env={**os.environ, "TUTTI_TIMEOUT_MS": "60000"}, capture_output=True, text=True,
                              timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
        told = [line for line in (done.stdout + done.stderr).splitlines() if "nrings is '" in line]
        self.assertTrue(any(line.startswith("[3]") for line in told), done.stdout + done.stderr)

    def test_the_flight_recorder_is_dumped(self):
        with tempfile.TemporaryDirectory() as folder:
            said, output = run(2, "killed", "1", env={"TUTTI_DUMP": folder + "/flight"})
            self.assertEqual(said[0]["operation"][0], "peer lost", output)
            with open(folder + "/flight.0.jsonl", encoding="utf-8") as file:
                calls = [json.loads(line) for line in file]
            self.assertEqual([c["state"] for c in calls], ["done", "failed"])
            self.assertEqual(calls[1]["call"], "allreduce #2 (count 200000, float32, sum)")
            self.assertEqual(calls[1]["result"], "peer lost")

    def test_abort_reaches_everyone(self):
        for n, transport in self.over_transports((2, 4)):
            said, output = run(n, "aborted", "0", transport=transport)
            for rank in range(n):
                self.assertEqual(said[rank]["operation"][:2], ("aborted", 0), output)
                self.assertIn("rank 0 called tutti_comm_abort", said[rank]["operation"][3])

    def test_a_rank_that_left_is_named(self):
        for n, transport in self.over_transports((2, 3)):
            said, output = run(n, "left", "1", transport=transport)
            for rank in set(range(n)) - {1}:
                self.assertEqual(said[rank]["before"][0], "ok", output)
                self.assertEqual(said[rank]["operation"][:2], ("peer lost", 1), output)
                self.assertIn("rank 1 has left", said[rank]["operation"][3])

    def test_a_first_contact_ends_at_the_deadline_of_its_call_and_by_an_abort(self):
        for call, ended in (("send", "timeout"), ("allreduce", "timeout"), ("aborted", "aborted")):
            said, output = run(2, "stopped", call, transport="shm")
            status, fault, seconds, _ = said[0]["operation"]
            self.assertEqual((status, fault), (ended, 0 if call == "aborted" else 1), output)
            self.assertLess(seconds, SOON_S, output)

    def test_a_hung_rank_is_named_by_all_that_wait_for_it_or_for_each_other(self):
        for _, transport in self.over_transports((3,)):
            for victim in (0, 2):
                said, output = run(3, "hung", str(victim), transport=transport, env={"TUTTI_ALGO": "ring"})
                for rank in {0, 1, 2} - {victim}:
                    self.assertEqual(said[rank]["operation"][:2], ("timeout", victim), output)
                    self.assertIn(f"rank {victim} did not answer", said[rank]["operation"][3])
                    self.assertEqual(said[rank]["before"][0], "ok", output)

    def check_exhausted(self, said, output, ranks, victim, *words):
        for rank in range(ranks):
            status, fault, _, text = said[rank]["operation"]
            self.assertEqual((status, fault), ("no memory", victim), output)
            for word in words:
                self.assertIn(word, text, output)

    def test_shared_memory_that_runs_out_in_an_operation(self):
        for n in (2, 4):
            # A ring's small messages need little memory, its large ones more.
            said, output = run(n, "exhausted", "1", transport="shm", env={"TUTTI_ALGO": "ring"})
            self.check_exhausted(said, output, n, 1, "rank 1: cannot continue allreduce #2",
                                 "check whether /dev/shm or memory is full")
            for rank in range(n):
                self.assertEqual(said[rank]["before"][0], "ok", output)
                self.assertEqual(said[rank]["next"][0], "no memory", output)
            self.assertIn("No space left on device", output)

    def test_descriptors_that_run_out_are_the_fault_of_who_has_none(self):
        for victim in (0, 1):
            said, output = run(2, "out_of_files", str(victim), transport="shm",
                               env={"TUTTI_NRINGS": "16"})
            for rank in range(2):
                self.assertEqual(said[rank]["before"][0], "ok", output)
                self.assertEqual(said[rank]["operation"][:2], ("peer lost", victim), output)
                for words in (f"rank {victim} is gone: shm: it cannot take what rank {1 - victim} passes", "ulimit -n"):
                    self.assertIn(words, said[rank]["operation"][3], output)

    def test_shared_memory_that_runs_out_in_a_message(self):
        said, output = run(2, "exhausted_message", "1", transport="shm")
        self.check_exhausted(said, output, 2, 1, "cannot continue its sends and receives")
        for rank in range(2):
            self.assertEqual(said[rank]["before"][0], "ok", output)

    def test_shared_memory_that_is_full_from_the_start(self):
        for victim in (0, 1):
            said, output = run(2, "full", str(victim), transport="shm")
            for rank in range(2):
                status, _, seconds, text = said[rank]["create"]
                self.assertEqual(status, "no memory", output)
                self.assertIn("transport shm: /dev/shm or memory is exhausted", text)
                self.assertIn("docker: --shm-size", text)
                self.assertLess(seconds, SOON_S, output)

    def test_destroy_with_a_pending_request(self):
        for n, transport in self.over_transports((2,)):
            said, output = run(n, "pending", transport=transport)
            self.assertEqual(said[0]["short wait"][0], "timeout", output)
            self.assertIn("it goes on", said[0]["short wait"][3])
            self.assertEqual(said[0]["operation"][0], "aborted", output)
            self.assertLess(said[0]["destroy"][2], 30, output)
            self.assertEqual(said[1]["operation"][:2], ("peer lost", 0), output)


@unittest.skipUnless(FABRICS, "built without UCX and libfabric")
class FabricFaults(unittest.TestCase):
    """Repeats tests of Faults over UCX and libfabric, and tests failures that only they can have."""
    @staticmethod
    def over_transports(ranks=(2, 3)):
        return [(n, fabric) for n in ranks if n <= 3 for fabric in FABRICS]

    transports_of_stopped = [fabric for fabric in FABRICS if fabric == "ofi"]
    test_a_stopped_rank_is_named_by_all_wherever_it_stopped = \
        Faults.test_a_stopped_rank_is_named_by_all_wherever_it_stopped
    check_mismatch = Faults.check_mismatch
    mismatch = Faults.mismatch
    test_different_counts = Faults.test_different_counts
    test_different_roots = Faults.test_different_roots
    test_different_counts_that_choose_different_algorithms = \
        Faults.test_different_counts_that_choose_different_algorithms
    test_a_killed_rank_is_named_on_every_survivor = Faults.test_a_killed_rank_is_named_on_every_survivor
    test_abort_reaches_everyone = Faults.test_abort_reaches_everyone
    test_a_rank_that_left_is_named = Faults.test_a_rank_that_left_is_named
    test_a_hung_rank_is_named_by_all_that_wait_for_it_or_for_each_other = \
        Faults.test_a_hung_rank_is_named_by_all_that_wait_for_it_or_for_each_other

    def test_a_rank_killed_in_the_middle_of_a_large_message_is_named(self):
        for n, fabric in self.over_transports((2, 3)):
            for tls in ("all", "tcp"):
                said, output = run(n, "halfway", str(n - 1), transport=fabric, env={"UCX_TLS": tls})
                for rank in range(n - 1):
                    self.assertIn("operation", said[rank], output)
                    status, fault, seconds, _ = said[rank]["operation"]
                    self.assertEqual((status, fault), ("peer lost", n - 1), output)
                    self.assertLess(seconds, SOON_S, output)
                    self.assertLess(said[rank]["destroy"][2], SOON_S, output)

    def test_what_a_hung_rank_costs_another_is_not_blamed_on_a_third(self):
        for fabric, provider in [(f, "") for f in FABRICS] + [("ofi", "tcp;ofi_rxm")] * ("ofi" in FABRICS):
            env = {"TUTTI_ALGO": "ring", "TUTTI_HEARTBEAT_MS": "0", **({"TUTTI_OFI_PROVIDER": provider} if provider else {})}
            said, output = run(3, "hung", "2", transport=fabric, env=env)
            if provider and "before" not in said[0]:
                continue  # libfabric is without it
            for rank in (0, 1):
                self.assertEqual(said[rank]["operation"][0], "timeout", output)
                status, fault, _, text = said[rank]["without"]
                if status != "ok":
                    self.assertEqual(status, "peer lost", output)
                    self.assertIn(f"rank {fault} is gone: it cannot continue with rank {1 - fault}", text)


ALONE = {"TUTTI_TIMEOUT_MS": "3000"}  # for a rank that waits in vain


def start(env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
    return subprocess.Popen([WORKER, "nothing"], env={**clean, "TUTTI_TIMEOUT_MS": "60000", **env},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            stdin=subprocess.DEVNULL)


def finish(processes):
    return [p.communicate(timeout=HANG_GUARD_S)[0] for p in processes]


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = "file://" + self.folder.name

    def job(self, *envs):
        return finish([start(env) for env in envs])

    def start_and_wait(self, rank, size=2):
        """Returns a rank that waits for others, once its record is in the store."""
        process = start({"TUTTI_RANK": str(rank), "TUTTI_SIZE": str(size), "TUTTI_STORE": self.store})
        record = os.path.join(self.folder.name, "default", f"c0%2Frank%2F{rank}")
        while not os.path.exists(record):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        return process

    def expect(self, env, *words):
        output, = self.job(env)
        for word in words:
            self.assertIn(word, output)

    def test_settings_that_make_no_sense(self):
        self.expect({"TUTTI_RANK": "x"}, "TUTTI_RANK", "'x' is not a whole number")
        self.expect({"TUTTI_SIZE": "0"}, "TUTTI_SIZE", "'0'")
        self.expect({"TUTTI_CHECK": "maybe"}, "'maybe' is neither 'frames' nor 'strict'")
        self.expect({"TUTTI_TRANSPORT": "carrier_pigeon"}, "unknown transport 'carrier_pigeon'", "shm", "tcp")
        self.expect({"TUTTI_ALGO": "magic"}, "no algorithm 'magic'", "ring")
        self.expect({"TUTTI_TLS": "1"}, "TLS is not part of this version")
        self.expect({"TUTTI_SECRET_FILE": self.folder.name + "/none"}, "cannot be read")

    def test_half_of_what_places_a_process_in_a_job(self):
        self.expect({"TUTTI_RANK": "0"}, "TUTTI_RANK says that this is rank 0", "set TUTTI_SIZE")
        self.expect({"TUTTI_SIZE": "2", "TUTTI_STORE": self.store}, "TUTTI_SIZE says that there are 2 ranks",
                    "set TUTTI_RANK")
        self.expect({"TUTTI_STORE": self.store}, self.store, "set TUTTI_RANK and TUTTI_SIZE")

    def test_misspelt_variables_are_named_once(self):
        output, = self.job({"TUTTI_TRANSPROT": "tcp", "TUTTI_OF_ITS_OWN": "1"})
        self.assertIn("TUTTI_TRANSPROT is set but has no effect: tutti has no such variable. What to do: set TUTTI_TRANSPORT "
                      "instead", output)
        self.assertEqual(output.count("has no effect"), 1, output)

    def test_at_level_info_a_good_start_says_where_everyone_is(self):
        env = {"TUTTI_SIZE": "2", "TUTTI_STORE": self.store, "TUTTI_LOG": "info"}
        first, second = self.job({**env, "TUTTI_RANK": "0"}, {**env, "TUTTI_RANK": "1"})
        self.assertRegex(first, r"tutti \d+\.\d+\.\d+: job 'default' of 2 ranks on 1 host is complete after \d+ ms; "
                                r"data goes over shm within the host; algorithms are chosen by the built-in constants")
        self.assertNotIn("job 'default'", second)
        for rank, output in enumerate((first, second)):
            self.assertIn(f"rank {rank} of 2: looks for the other ranks in store {self.store}", output)
            self.assertIn(f"rank {rank} of 2: on host 0 of 1, which has 2 ranks", output)

    def test_at_level_info_a_rank_says_for_whom_it_waits(self):
        # The line comes after 3 s. At the deadline an error would say the same.
        env = {"TUTTI_SIZE": "3", "TUTTI_STORE": self.store, "TUTTI_LOG": "info", "TUTTI_TIMEOUT_MS": "9000"}
        first, second = self.job({**env, "TUTTI_RANK": "0"}, {**env, "TUTTI_RANK": "1", "TUTTI_JOB": "another"})
        self.assertRegex(first, r"rank 0 waits: 2 of 3 ranks did not join within \d+ ms: ranks 1, 2 \(store file:")
        self.assertRegex(second, r"rank 1 waits: rank 0 did not join within \d+ ms")

    def test_rank_outside_the_job(self):
        self.expect({"TUTTI_RANK": "4", "TUTTI_SIZE": "2", "TUTTI_STORE": self.store},
                    "rank 4 of a job of size 2", "0 to 1")

    def test_missing_store(self):
        self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2"}, "TUTTI_STORE", "tcp://", "file:///")

    def test_unknown_store_scheme(self):
        self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": "pigeon://x"}, "pigeon", "tcp", "file")

    def test_unreachable_store(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.expect({**ALONE, "TUTTI_RANK": "1", "TUTTI_SIZE": "2", "TUTTI_STORE": f"tcp://127.0.0.1:{port}"},
                    f"127.0.0.1:{port}", "ms", "refused")

    def test_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": f"tcp://127.0.0.1:{port}"},
                        f"port {port}", "in use")

    def test_file_store_that_cannot_be_written(self):
        path = self.folder.name + "/file"
        with open(path, "w", encoding="ascii"):
            pass
        self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": f"file://{path}/below"}, path)

    def test_listening_wide_without_a_secret(self):
        self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": "tcp://0.0.0.0:29555"},
                    "TUTTI_SECRET", "TUTTI_INSECURE")

    def test_duplicate_rank(self):
        first = self.start_and_wait(rank=0)
        self.expect({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": self.store},
                    "rank 0 is already taken by process")
        first.kill()
        first.communicate()

    def test_ranks_that_disagree_about_the_size(self):
        outputs = self.job({"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_STORE": self.store},
                           {"TUTTI_RANK": "1", "TUTTI_SIZE": "3", "TUTTI_STORE": self.store})
        for output in outputs:
            self.assertIn("rank 1 was started with size 3, rank 0 with size 2", output)

    def test_ranks_that_disagree_about_a_setting(self):
        env = {"TUTTI_SIZE": "2", "TUTTI_STORE": self.store}
        outputs = self.job({**env, "TUTTI_RANK": "0", "TUTTI_NRINGS": "2"},
                           {**env, "TUTTI_RANK": "1", "TUTTI_NRINGS": "3"})
        for output in outputs:
            self.assertIn("nrings is '3' on rank 1 but '2' on rank 0", output)

    def test_a_rank_that_never_starts(self):
        # Rank 1 waits longer than rank 0, which names the rank that is missing then.
        env = {"TUTTI_SIZE": "3", "TUTTI_STORE": self.store}
        other = self.start_and_wait(rank=1, size=3)
        outputs = finish([start({**env, **ALONE, "TUTTI_RANK": "0"}), other])
        self.assertIn("rank 2", outputs[0])
        self.assertIn("did not join within 3000 ms", outputs[0])

    def test_wrong_secret(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {"TUTTI_SIZE": "2", "TUTTI_STORE": f"tcp://127.0.0.1:{port}"}
        # Rank 1 calls again and again from before rank 0 serves the store.
        outputs = finish(reversed([start({**env, "TUTTI_RANK": "1", "TUTTI_SECRET": "the wrong secret"}),
                                   start({**env, "TUTTI_RANK": "0", "TUTTI_SECRET": "the right secret",
                                          "TUTTI_TIMEOUT_MS": "8000"})]))
        self.assertIn("TUTTI_SECRET", outputs[1])
        self.assertIn("create: authentication", outputs[1])
        self.assertIn("1 connection to the store was refused for a wrong secret", outputs[0])
        self.assertEqual(outputs[0].count("turned away a process at 127.0.0.1"), 1)

    def test_what_a_killed_job_left_in_a_file_store_is_replaced(self):
        env = {"TUTTI_SIZE": "2", "TUTTI_STORE": self.store}
        alone = self.start_and_wait(rank=0)
        alone.kill()
        alone.communicate()
        outputs = self.job({**env, "TUTTI_RANK": "0"}, {**env, "TUTTI_RANK": "1"})
        for output in outputs:
            self.assertIn("destroy: ok", output)

    def test_nothing_is_left_in_a_file_store(self):
        env = {"TUTTI_SIZE": "2", "TUTTI_STORE": self.store}
        self.job({**env, "TUTTI_RANK": "0"}, {**env, "TUTTI_RANK": "1"})
        self.assertEqual([f for _, _, files in os.walk(self.folder.name) for f in files], [])


if __name__ == "__main__":
    unittest.main()
