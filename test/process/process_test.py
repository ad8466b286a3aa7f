"""Real processes through tutti-run: results, requests, streams, plans."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

RUN = os.environ["TUTTI_RUN"]
MATRIX = os.environ["TUTTI_MATRIX"]
BEHAVIOUR = os.environ["TUTTI_BEHAVIOUR"]
FAMILY = os.environ["TUTTI_FAMILY"]
OPERATORS = os.environ["TUTTI_OPERATORS"]
REDUCTIONS = os.environ["TUTTI_REDUCTIONS"]
COMMUNICATORS = os.environ["TUTTI_COMMUNICATORS"]
CARRIERS = os.environ["TUTTI_CARRIERS"]
MESSAGES = os.environ["TUTTI_MESSAGES"]
SOAK = os.environ["TUTTI_SOAK"]
NOTHING_ADDED = os.environ["TUTTI_NOTHING_ADDED"]
BENCH = os.environ["TUTTI_BENCH"]
MAX_RANKS = int(os.environ.get("TUTTI_TEST_MAX_RANKS", "8"))
TIER = os.environ.get("TUTTI_TEST_TIER", "default")
# Transports over networks' own libraries, where they are built.
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
HANG_GUARD_S = 1500 if TIER == "long" else 300


def sanitizer_options(transport):
    """The leak checker may crash on libraries that are loaded late, and reports what they keep."""
    if not set(transport.split(",")) & set(FABRICS):
        return {}
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def run(ranks, *program, transport="shm,tcp", env=None, options=()):
    command = [RUN, "-n", str(ranks), "--transport", transport, *options, *program]
    return subprocess.run(command, env={**os.environ, **sanitizer_options(transport), **(env or {})},
                          capture_output=True,
                          text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)


def on_hosts(layout, *program):
    """The program, told that rank r is on the host that the r-th letter names."""
    letter = "$(echo %s | cut -c$((TUTTI_RANK + 1)))" % layout
    return ("sh", "-c", "TUTTI_HOST_ID=host%s exec \"$@\"" % letter, "sh", *program)


class Processes(unittest.TestCase):
    def expect_success(self, done):
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def matrix(self, ranks, transport, tier="some", env=None):
        with self.subTest(ranks=ranks, transport=transport, tier=tier, env=env):
            out = self.expect_success(run(ranks, MATRIX, tier, transport=transport, env=env))
            self.assertIn("cases right", out)


@unittest.skipIf(TIER == "long", "the default tier has them")
class Matrix(Processes):
    def test_every_dtype_and_operator_over_shared_memory(self):
        for ranks in (1, 2, 3, 4, 7, 8):
            if ranks <= MAX_RANKS:
                self.matrix(ranks, "shm", "small" if ranks in (3, 8) else "some")

    def test_every_dtype_and_operator_over_tcp(self):
        for ranks in (2, 3, 4, 7, 8):
            if ranks <= MAX_RANKS:
                self.matrix(ranks, "tcp", "small" if ranks in (3, 8) else "some")

    def test_schedules_instead_of_the_intrinsic(self):
        for algorithm in ("ring", "recursive_doubling", "binomial", "chain"):
            self.matrix(3, "shm", env={"TUTTI_ALGO": algorithm})

    def test_acted_hosts_with_both_transports(self):
        out = self.expect_success(run(4, MATRIX, "some", options=("--hosts-act", "2")))
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
class Hosts(Processes):
    """Algorithms that know which ranks share a host: two each, uneven, and in turns."""
    layouts = ("aabb", "aabbccdd", "aaab", "abbccc", "abab")

    def each_layout(self, *program, env, words="cases right"):
        for layout in self.layouts:
            if len(layout) <= MAX_RANKS:
                with self.subTest(layout=layout, program=program, env=env):
                    out = self.expect_success(run(len(layout), *on_hosts(layout, *program), env=env))
                    self.assertIn(words, out)

    def test_every_dtype_and_operator(self):
        for algorithm in ("hierarchical", "hierarchical_doubling", "multi_ring"):
            self.each_layout(MATRIX, "some", env={"TUTTI_ALGO": algorithm})

    def test_the_family(self):
        for algorithm in ("hierarchical", "multi_ring"):
            self.each_layout(FAMILY, "even", env={"TUTTI_ALGO": algorithm})

    def test_blocks_of_different_lengths(self):
        for layout in ("aabb", "aaab", "abab"):
            for case in ("uneven", "forms"):
                out = self.expect_success(run(4, *on_hosts(layout, FAMILY, case),
                                              env={"TUTTI_ALGO": "hierarchical"}))
                self.assertIn("cases right", out)

    def test_blocks_that_end_before_others_wait_for_nobody(self):
        # A rank that still had an empty piece to send waited for who was through, twice in three runs.
        for _ in range(3 if MAX_RANKS >= 8 else 0):
            out = self.expect_success(run(8, *on_hosts("aabbccdd", FAMILY, "uneven")))
            self.assertIn("cases right", out)

    def test_strict_checking_and_other_operators(self):
        self.each_layout(FAMILY, "even", env={"TUTTI_ALGO": "hierarchical", "TUTTI_CHECK": "strict"})
        for case in ("premul", "multi"):
            self.each_layout(OPERATORS, case, env={"TUTTI_ALGO": "hierarchical"}, words="")

    def test_parts_of_a_communicator(self):
        for case in ("split", "dup"):
            for layout in self.layouts:
                if len(layout) <= MAX_RANKS:
                    with self.subTest(case=case, layout=layout):
                        self.expect_success(run(len(layout), *on_hosts(layout, COMMUNICATORS, case),
                                                env={"TUTTI_ALGO": "hierarchical"}))

    def explain(self, layout, *options):
        sizes = () if "-b" in options else ("-b", "4M", "-e", "4M")
        done = run(len(layout), *on_hosts(layout, BENCH, "allreduce", *sizes, *options))
        return done.returncode, done.stdout + done.stderr

    def test_two_levels_are_chosen_where_there_are_two(self):
        for layout, algorithm in (("aabb", "hierarchical"), ("aaab", "hierarchical"),
                                  ("abcd", "ring"), ("aaaa", "ring")):
            code, text = self.explain(layout, "--explain")
            self.assertEqual(code, 0, text)
            self.assertIn("4 ranks%s: %s\n" % (" of one host" * (layout == "aaaa"), algorithm), text)

    def test_a_call_that_orders_two_levels_gets_them_or_hears_why_not(self):
        code, text = self.explain("aaab", "--algorithm", "hierarchical", "-n", "2", "-w", "1", "--check")
        self.assertEqual(code, 0, text)
        code, text = self.explain("aaaa", "--algorithm", "hierarchical", "-n", "2", "-w", "1")
        self.assertNotEqual(code, 0, text)
        self.assertIn("all ranks are on one host", text)

    def test_a_sweep_has_right_numbers_for_every_algorithm(self):
        files = pathlib.Path(__file__).resolve().parents[2].glob("collectives/*_allreduce.cpp")
        names = {file.stem.removesuffix("_allreduce") for file in files}
        self.assertIn("hierarchical", names)
        code, text = self.explain("aabb", "-b", "4K", "-e", "4K", "--algorithm", "all", "-n", "1", "-w", "0", "--check")
        self.assertEqual(code, 0, text)
        tables = text.split("algorithm ")[1:]
        measured = {table.split(",")[0] for table in tables if "float32" in table}
        self.assertLessEqual(names, measured, text)
        self.assertIn("wrong elements: 0 OK", text)


@unittest.skipIf(TIER == "long", "the default tier has them")
class Carriers(Processes):
    """Three ranks, of which two are threads of one process."""
    def algorithms(self, transports):
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, **sanitizer_options(transports), "TUTTI_TRANSPORT": transports,
                   "TUTTI_SECRET": "of this test alone", "TUTTI_TIMEOUT_MS": "60000"}
            both = [subprocess.Popen([CARRIERS, first, last, "3", "file://" + folder], env=env, text=True,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    for first, last in (("0", "2"), ("2", "3"))]
            texts = [process.communicate(timeout=HANG_GUARD_S)[0] for process in both]
            for process, text in zip(both, texts):
                self.assertEqual(process.returncode, 0, text)
            return re.findall(r"takes (\w+)", "".join(texts))

    def test_the_flat_exchange_is_all_ranks_or_nobodys(self):
        for transports in ("inproc,shm", "inproc,tcp", *("inproc," + fabric for fabric in FABRICS)):
            with self.subTest(transports=transports):
                chosen = self.algorithms(transports)
                self.assertEqual(len(chosen), 3)
                self.assertEqual(len(set(chosen)), 1, chosen)
                # Shared memory joins all that are on a host; a network carries only what is left to it.
                self.assertEqual("flat" in chosen, transports == "inproc,shm", chosen)


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

    def test_any_source_while_the_program_does_not_wait(self):
        self.messages("unserved", (2, 3, 4))
        self.messages("manual", (2, 3), env={"TUTTI_PROGRESS": "manual"})

    def test_a_rank_and_itself(self):
        self.messages("self", (1, 2))
        self.messages("self_later", (1, 2), env={"TUTTI_UNEXPECTED_BYTES": "50000"})

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
        self.messages("unexpected_empty", (2,), env={"TUTTI_UNEXPECTED_BYTES": "100000"})
        self.messages("flooded", (3,), env={"TUTTI_UNEXPECTED_BYTES": "100000"})

    def test_beside_collectives_and_in_a_part(self):
        self.messages("beside", (2, 4))

    def test_a_receive_that_nobody_serves(self):
        self.messages("deadline", (2,))

    def test_a_peer_that_leaves(self):
        self.messages("left", (2, 3))
        self.messages("left_announced", (3,))


@unittest.skipIf(TIER == "long", "the default tier has them")
class Operators(Processes):
    def operators(self, case, program=OPERATORS, **how):
        for n in (1, 2, 3, 4, 7):
            for transport in ("shm", "tcp"):
                if n <= MAX_RANKS:
                    with self.subTest(case=case, ranks=n, transport=transport):
                        self.expect_success(run(n, program, case, transport=transport, **how))

    def test_functions_that_do_not_commute(self):
        self.operators("function")

    def test_premultiplied_sums(self):
        self.operators("premul")

    def test_several_inputs(self):
        self.operators("multi")

    def test_memory_of_operators_that_are_gone(self):
        for transport in ("shm", "tcp"):
            self.expect_success(run(2, OPERATORS, "fresh", transport=transport))

    def test_in_every_order_preserving_algorithm(self):
        for algorithm in ("direct", "recursive_doubling", "rabenseifner", "knomial", "chain"):
            self.operators("function", env={"TUTTI_ALGO": algorithm})

    def test_every_algorithm_keeps_the_order_or_refuses(self):
        self.operators("ordered", REDUCTIONS)

    def test_scaled_sums_are_rounded_once_in_every_algorithm(self):
        self.operators("scaled", REDUCTIONS)

    def test_scaled_sums_in_parts_of_the_job(self):
        self.operators("parts", REDUCTIONS)


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
        for ranks, transport in ((2, "shm"), (2, "tcp"), (3, "shm"), (3, "tcp")):
            out = self.expect_success(run(ranks, COMMUNICATORS, "cycles", transport=transport))
            grown = re.findall(r"files (-?\d+), shared KiB (-?\d+), heap KiB (-?\d+)", out)[0]
            self.assertLessEqual(int(grown[0]), 0, out)
            self.assertLessEqual(int(grown[1]), 1024, out)
            # Each costs a few bytes: its number, in the ranges that are gone.
            self.assertLessEqual(int(grown[2]), 512 if transport == "shm" else 1024, out)


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

    def test_a_choice_is_explained_for_its_type_and_operator(self):
        # 16-bit sums send twice as much of a ring's partial results; a maximum has none.
        text = self.expect_success(run(4, BENCH, "allreduce", "-b", "4M", "-e", "4M", "--dtype", "bfloat16", "--op", "sum,max",
                                       "-n", "1", "-w", "0", "--inplace-only", "--explain", transport="tcp"))
        of_sum, of_max = (part.split("wrong elements")[0] for part in text.split("allreduce of ")[1:])
        self.assertNotEqual(re.findall(r" ring: ([0-9.]+) us", of_sum), re.findall(r" ring: ([0-9.]+) us", of_max))

    def test_a_bench_that_is_interrupted_leaves_the_last_report_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            path.write_text("the last one, and longer" * 1000, encoding="utf-8")
            before = path.read_text(encoding="utf-8")
            command = [BENCH, "allreduce", "--ranks", "2", "-b", "8", "-e", "8", "--json", str(path), "-n"]
            with subprocess.Popen([*command, "2000000000"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                  text=True) as endless:
                self.assertIn("tutti", endless.stdout.readline())
                endless.terminate()
                endless.stdout.read()
            self.assertEqual(path.read_text(encoding="utf-8"), before)
            self.expect_success(subprocess.run([*command, "2"], capture_output=True, text=True, timeout=HANG_GUARD_S,
                                               stdin=subprocess.DEVNULL))
            self.assertEqual(json.loads(path.read_text(encoding="utf-8"))["rows"][0]["wrong"], 0)
            written = path.read_text(encoding="utf-8")
            # Nothing is measured: an algorithm that cannot do this.
            done = subprocess.run([*command, "2", "--algorithm", "segmented_chain"], capture_output=True, text=True,
                                  timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertNotIn("OK", done.stdout)
            self.assertEqual(path.read_text(encoding="utf-8"), written)

    @unittest.skipUnless(NOTHING_ADDED, "built with a sanitizer, which has to be loaded first")
    def test_a_bench_reports_wrong_results_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            for _ in range(8):  # the launcher ended rank 0 while it wrote in every second run
                done = subprocess.run([BENCH, "reduce_scatter", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "5",
                                       "--json", str(path)], capture_output=True, text=True, timeout=HANG_GUARD_S,
                                      stdin=subprocess.DEVNULL, env={**os.environ, "LD_PRELOAD": NOTHING_ADDED})
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("FAILED", done.stdout)
                self.assertTrue(all(row["wrong"] > 0 for row in json.loads(path.read_text(encoding="utf-8"))["rows"]))
                path.unlink()

    def test_a_bench_that_is_asked_for_what_there_is_not_says_so_once(self):
        for words, why in ((["--root", "2"], "--root: rank 2 is out of range. What to do: give a rank from 0 to 1"),
                           (["--algorithm", "magic"], "nothing was measured: ")):
            done = run(2, BENCH, "broadcast", "-e", "64", "-n", "3", *words)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertEqual(done.stderr.count("tutti-bench: "), 1, done.stderr)
            self.assertIn(why, done.stderr)
        done = subprocess.run([BENCH, "broadcast", "--transport", "shm,pigeon"], capture_output=True, text=True,
                              timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("unknown transport 'pigeon'. What to do: use a transport that this build has: ", done.stderr)

    def test_a_bench_whose_table_is_lost_fails(self):
        # By itself: behind tutti-run it is the launcher that writes.
        done = run(1, "sh", "-c", "exec \"$@\" >/dev/full", "sh", BENCH, "allreduce", "-e", "64", "-n", "3")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write the table", done.stderr)


@unittest.skipIf(TIER == "long", "the default tier has them")
@unittest.skipUnless(FABRICS, "built without UCX and libfabric")
class Fabrics(Processes):
    """The main cases once more, over each library."""
    def each(self, *program, ranks=(2, 3), env=None):
        for fabric in FABRICS:
            for n in ranks:
                with self.subTest(fabric=fabric, ranks=n, program=program):
                    self.expect_success(run(n, *program, transport=fabric, env=env))

    def test_every_dtype_and_operator(self):
        self.each(MATRIX, "small")

    def test_the_family(self):
        for case in ("even", "uneven", "forms"):
            self.each(FAMILY, case)

    def test_requests_streams_and_plans(self):
        for case in ("requests", "callbacks", "streams", "plans", "again"):
            self.each(BEHAVIOUR, case)
        self.each(BEHAVIOUR, "fork", ranks=(2,))

    def test_streams_over_ports_of_their_own(self):
        for case in ("requests", "streams", "plans"):
            self.each(BEHAVIOUR, case, env={"TUTTI_FABRIC_PORTS": "2", "TUTTI_NRINGS": "4"})

    def test_manual_progress(self):
        self.each(BEHAVIOUR, "manual", env={"TUTTI_PROGRESS": "manual"})

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own operator new")
    def test_running_a_plan_allocates_nothing(self):
        self.each(BEHAVIOUR, "allocation", ranks=(2,))

    def test_communicators_and_messages(self):
        for case in ("split", "brief", "beside"):
            self.each(COMMUNICATORS, case)
        self.each(MESSAGES, "sizes")

    def test_programs_that_a_rank_executes_have_none_of_its_sockets(self):
        self.each(COMMUNICATORS, "executed", ranks=(3,))
        self.each(COMMUNICATORS, "executed", ranks=(3,), env={"UCX_TLS": "tcp,self"})

    @unittest.skipIf(MAX_RANKS < 8, "a sanitizer has its own memory")
    def test_communicators_that_come_and_go_leave_nothing(self):
        for fabric in FABRICS:
            out = self.expect_success(run(2, COMMUNICATORS, "cycles", transport=fabric))
            files, _, heap_kib = re.findall(r"files (-?\d+), shared KiB (-?\d+), heap KiB (-?\d+)", out)[0]
            self.assertLessEqual(int(files), 0, out)
            self.assertLessEqual(int(heap_kib), 1024, out)

    def test_hosts_with_shared_memory_inside(self):
        for fabric in FABRICS:
            out = self.expect_success(run(4, MATRIX, "some", transport="shm," + fabric, options=("--hosts-act", "2")))
            self.assertIn("cases right", out)

    @unittest.skipUnless("ucx" in FABRICS, "built without UCX")
    def test_ranks_whose_networks_differ_choose_alike(self):
        def predicted(own, others):
            tls = 'UCX_TLS=$([ $TUTTI_RANK = 0 ] && echo %s || echo %s) exec "$@"' % (own, others)
            done = run(2, "sh", "-c", tls, "sh", BENCH, "allreduce", "-b", "64K", "-e", "64K", "-n", "2", "-w", "1",
                       "--explain", "--check", transport="ucx")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return re.findall(r"    (\w+): ([0-9.]+) us", done.stdout)

        sockets, both = predicted("tcp,self", "tcp,self"), predicted("tcp,posix,self", "tcp,posix,self")
        self.assertNotEqual(sockets, both)
        self.assertEqual(predicted("tcp,posix,self", "tcp,self"), sockets)
        self.assertEqual(predicted("tcp,self", "tcp,posix,self"), sockets)

    @unittest.skipUnless("ucx" in FABRICS, "built without UCX")
    def test_ucx_over_what_users_choose(self):
        for tls, threshold in (("tcp", "auto"), ("all", "0"), ("all", "inf")):
            self.each(MATRIX, "some", ranks=(2,), env={"UCX_TLS": tls, "UCX_RNDV_THRESH": threshold})


class Soak(Processes):
    """Random sequences of everything. To see a failure again: tutti-run -n N soak STEPS SEED."""
    steps = "5000" if TIER == "long" else "300" if MAX_RANKS >= 8 else "60"

    def soak(self, ranks, transport, seed, **how):
        with self.subTest(ranks=ranks, transport=transport, **how):
            out = self.expect_success(run(ranks, SOAK, self.steps, str(seed), transport=transport, **how))
            self.assertIn(self.steps + " steps right", out)

    def test_on_one_host(self):
        for transport in ("shm", "tcp", *FABRICS):
            for ranks in (2, 3, 5):
                self.soak(ranks, transport, ranks)

    def test_on_several_hosts(self):
        for transport in ("shm,tcp", *("shm," + fabric for fabric in FABRICS)):
            self.soak(4, transport, 1, options=("--hosts-act", "2"))

    def test_with_other_settings(self):
        for setting in ("TUTTI_CHECK=strict", "TUTTI_PROGRESS=manual", "TUTTI_NRINGS=4"):
            self.soak(3, "shm", 2, env=dict([setting.split("=")]))


@unittest.skipUnless(TIER == "long", "tools/check --long runs it")
class Long(Processes):
    def test_more_than_4_gib(self):
        self.matrix(2, "shm", "huge")

    def test_large_messages_on_more_ranks(self):
        for ranks in (3, 4):
            self.matrix(ranks, "shm", "large")


if __name__ == "__main__":
    unittest.main()
