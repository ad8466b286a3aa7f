"""Real processes through tutti-run: results, requests, streams, plans."""
import os
import re
import subprocess
import unittest

RUN = os.environ["TUTTI_RUN"]
MATRIX = os.environ["TUTTI_MATRIX"]
BEHAVIOUR = os.environ["TUTTI_BEHAVIOUR"]
FAMILY = os.environ["TUTTI_FAMILY"]
OPERATORS = os.environ["TUTTI_OPERATORS"]
COMMUNICATORS = os.environ["TUTTI_COMMUNICATORS"]
MESSAGES = os.environ["TUTTI_MESSAGES"]
BENCH = os.environ["TUTTI_BENCH"]
MAX_RANKS = int(os.environ.get("TUTTI_TEST_MAX_RANKS", "8"))
TIER = os.environ.get("TUTTI_TEST_TIER", "default")
HANG_GUARD_S = 1500


def run(ranks, *program, transport="shm,tcp", env=None, options=()):
    command = [RUN, "-n", str(ranks), "--transport", transport, *options, *program]
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True,
                          text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)


class Processes(unittest.TestCase):
    def expect_success(self, done):
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def matrix(self, ranks, transport, tier="small", env=None):
        with self.subTest(ranks=ranks, transport=transport, tier=tier, env=env):
            out = self.expect_success(run(ranks, MATRIX, tier, transport=transport, env=env))
            self.assertIn("cases right", out)


@unittest.skipIf(TIER == "long", "the default tier has them")
class Matrix(Processes):
    def test_every_dtype_and_operator_over_shared_memory(self):
        for ranks in (1, 2, 3, 4, 7, 8):
            if ranks <= MAX_RANKS:
                self.matrix(ranks, "shm")

    def test_every_dtype_and_operator_over_tcp(self):
        for ranks in (2, 3, 4, 7, 8):
            if ranks <= MAX_RANKS:
                self.matrix(ranks, "tcp")

    def test_schedules_instead_of_the_intrinsic(self):
        for algorithm in ("ring", "recursive_doubling", "binomial", "chain"):
            self.matrix(3, "shm", env={"TUTTI_ALGO": algorithm})

    def test_acted_hosts_with_both_transports(self):
        out = self.expect_success(run(4, MATRIX, "small", options=("--hosts-act", "2")))
        self.assertIn("cases right", out)

    @unittest.skipIf(MAX_RANKS < 8, "too slow under a sanitizer")
    def test_messages_over_64_mib(self):
        self.matrix(2, "shm", "large")
        self.matrix(2, "tcp", "large")


@unittest.skipIf(TIER == "long", "the default tier has them")
class Family(Processes):
    def family(self, case, ranks=(1, 2, 3, 4, 7, 8), **how):
        for n in ranks:
            for transport in ("shm", "tcp"):
                if n <= MAX_RANKS:
                    with self.subTest(case=case, ranks=n, transport=transport):
                        out = self.expect_success(run(n, FAMILY, case, transport=transport, **how))
                        self.assertIn("cases right", out)

    def test_blocks_of_one_length(self):
        self.family("even")

    def test_blocks_of_different_lengths(self):
        self.family("uneven")

    def test_requests_and_plans(self):
        self.family("forms", (1, 3))

    def test_acted_hosts(self):
        for case in ("even", "uneven", "forms"):
            self.expect_success(run(4, FAMILY, case, options=("--hosts-act", "2")))

    def test_strict_checking_changes_no_result(self):
        for case in ("even", "uneven", "wrong"):
            self.family(case, (3,), env={"TUTTI_CHECK": "strict"})

    def test_wrong_calls(self):
        self.family("wrong", (1, 2, 3))

    def test_every_algorithm(self):
        for algorithm in ("bruck", "direct", "circulant", "ring", "pairwise", "binomial", "chain",
                          "recursive_doubling"):
            for case in ("even", "uneven"):
                self.family(case, (3,), env={"TUTTI_ALGO": algorithm})


@unittest.skipIf(TIER == "long", "the default tier has them")
class Messages(Processes):
    def messages(self, case, ranks=(2, 3, 4), **how):
        for n in ranks:
            for transport in ("shm", "tcp"):
                with self.subTest(case=case, ranks=n, transport=transport):
                    out = self.expect_success(run(n, MESSAGES, case, transport=transport, **how))
                    self.assertEqual(out.count("right"), n, out)

    def test_every_size_there_and_back(self):
        self.messages("sizes")

    def test_tags_and_their_order(self):
        self.messages("tags")

    def test_any_source(self):
        self.messages("any")

    def test_a_rank_and_itself(self):
        self.messages("self", (1, 2))

    def test_sendrecv_and_groups(self):
        self.messages("exchange", (1, 2, 3, 4))

    def test_acted_hosts(self):
        for case in ("sizes", "any", "exchange"):
            out = self.expect_success(run(4, MESSAGES, case, options=("--hosts-act", "2")))
            self.assertEqual(out.count("right"), 4, out)

    def test_many_requests(self):
        self.messages("many", (2, 4))

    def test_messages_that_do_not_fit(self):
        self.messages("wrong", (2,))

    def test_unexpected_messages_are_limited(self):
        self.messages("unexpected", (2,), env={"TUTTI_UNEXPECTED_BYTES": "100000"})

    def test_beside_collectives_and_in_a_part(self):
        self.messages("beside", (2, 4))

    def test_a_receive_that_nobody_serves(self):
        self.messages("deadline", (2,), env={"TUTTI_TIMEOUT_MS": "1000"})

    def test_a_peer_that_leaves(self):
        self.messages("left", (2, 3))


@unittest.skipIf(TIER == "long", "the default tier has them")
class Operators(Processes):
    def operators(self, case, **how):
        for n in (1, 2, 3, 4, 7):
            for transport in ("shm", "tcp"):
                if n <= MAX_RANKS:
                    with self.subTest(case=case, ranks=n, transport=transport):
                        out = self.expect_success(run(n, OPERATORS, case, transport=transport, **how))
                        self.assertIn("cases right", out)

    def test_functions_that_do_not_commute(self):
        self.operators("function")

    def test_premultiplied_sums(self):
        self.operators("premul")

    def test_several_inputs(self):
        self.operators("multi")

    def test_in_every_order_preserving_algorithm(self):
        for algorithm in ("direct", "recursive_doubling", "rabenseifner", "knomial", "chain"):
            self.operators("function", env={"TUTTI_ALGO": algorithm})


@unittest.skipIf(TIER == "long", "the default tier has them")
class Communicators(Processes):
    def each_transport(self, case, ranks, **how):
        for n in ranks:
            for transport in ("shm", "tcp"):
                if n <= MAX_RANKS:
                    with self.subTest(case=case, ranks=n, transport=transport):
                        self.expect_success(run(n, COMMUNICATORS, case, transport=transport, **how))

    def test_split(self):
        self.each_transport("split", (1, 2, 3, 4, 8))

    def test_copies(self):
        self.each_transport("dup", (1, 2, 4))

    def test_split_by_host(self):
        self.expect_success(run(4, COMMUNICATORS, "hosts", options=("--hosts-act", "2")))

    def test_a_mismatch_stays_in_its_communicator(self):
        self.each_transport("mismatch", (4,))

    def test_a_lost_rank_is_told_to_those_that_have_it(self):
        for n in (4, 8):
            if n <= MAX_RANKS:
                done = run(n, COMMUNICATORS, "killed", options=("--keep-going",))
                self.assertEqual(done.stdout.count("survivor"), n - 1, done.stdout + done.stderr)

    def test_large_operations_of_two_at_once(self):
        self.each_transport("beside", (2, 3, 4), env={"TUTTI_ALGO": "ring"})

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own memory")
    def test_500_communicators_cost_little_and_no_file(self):
        for ranks, transport in ((2, "shm"), (2, "tcp"), (4, "shm")):
            out = self.expect_success(run(ranks, COMMUNICATORS, "many", transport=transport))
            used, files = re.findall(r"each communicator: (\d+) bytes; files: (-?\d+) more", out)[0]
            self.assertLessEqual(int(used), 64 * 1024, out)
            # Some for the memory of all: its segments, each four times as long as the last.
            self.assertLessEqual(int(files), 5 * ranks, out)

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own memory")
    def test_large_cells_are_shared_by_all_communicators(self):
        for ranks in (2, 4):
            out = self.expect_success(run(ranks, COMMUNICATORS, "large", transport="shm"))
            few, all_ = re.findall(r"after \d+: (\d+) KiB", out)
            # As many large cells, and 180 times small ones.
            self.assertLess(int(all_) - int(few), 4096, out)

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own memory")
    def test_communicators_that_come_and_go_leave_nothing(self):
        for ranks, transport in ((2, "shm"), (2, "tcp"), (3, "shm")):
            out = self.expect_success(run(ranks, COMMUNICATORS, "cycles", transport=transport))
            grown = re.findall(r"files (-?\d+), shared KiB (-?\d+), heap KiB (-?\d+)", out)[0]
            self.assertLessEqual(int(grown[0]), 0, out)
            self.assertLessEqual(int(grown[1]), 1024, out)
            if transport == "shm":
                self.assertLessEqual(int(grown[2]), 512, out)


@unittest.skipIf(TIER == "long", "the default tier has them")
class Behaviour(Processes):
    def behave(self, case, ranks=(2, 3), **how):
        for n in ranks:
            for transport in ("shm", "tcp"):
                with self.subTest(case=case, ranks=n, transport=transport):
                    self.expect_success(run(n, BEHAVIOUR, case, transport=transport, **how))

    def test_requests(self):
        self.behave("requests", (1, 2, 4))

    def test_callback_and_descriptor(self):
        self.behave("callbacks")

    def test_streams(self):
        self.behave("streams")

    def test_plans(self):
        self.behave("plans", (1, 2, 3))

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own operator new")
    def test_running_a_plan_allocates_nothing(self):
        self.behave("allocation")

    def test_manual_progress(self):
        self.behave("manual", env={"TUTTI_PROGRESS": "manual"})

    def test_forked_child_gets_an_error(self):
        self.behave("fork", (2,))

    def test_recorder(self):
        self.behave("recorder", (2,))

    def test_several_communicators_one_after_the_other(self):
        self.behave("again")

    def test_strict_checking_changes_no_result(self):
        self.behave("requests", (2, 4), env={"TUTTI_CHECK": "strict"})

    def test_bench_checks_every_collective(self):
        for collective in ("allreduce", "broadcast", "barrier"):
            done = subprocess.run([BENCH, collective, "--ranks", "3", "-b", "8", "-e", "32K", "-f", "8",
                                   "-n", "3", "-w", "1", "--check"], capture_output=True, text=True,
                                  timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
            self.expect_success(done)


@unittest.skipUnless(TIER == "long", "tools/check --long runs it")
class Long(Processes):
    def test_more_than_4_gib(self):
        self.matrix(2, "shm", "huge")

    def test_large_messages_on_more_ranks(self):
        for ranks in (3, 4):
            self.matrix(ranks, "shm", "large")


if __name__ == "__main__":
    unittest.main()
