"""Errors for which it takes processes: of the programs, and of ranks that die, are missing or lack something."""
import os
import re
import resource
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAMS = {name: os.environ["TUTTI_" + name.upper()] for name in ("run", "bench", "info", "sim", "tune")}
MEMBER = os.environ["TUTTI_MEMBER"]
SANITIZED = os.environ["TUTTI_SANITIZED"] == "1"
HANG_GUARD_S = 120
LEAST_TEXTS = 30
MARKER = ". What to do: "
MOST_BYTES = 600
HEADLESS = {"what", "who", "whom", "whoever", "whose", "whatever", "those", "nobody", "somebody", "someone", "of", "how",
            "where"}
NOT_IMPERATIVE = {"a", "an", "the", "it", "its", "this", "that", "these", "there", "they", "you", "we", "in", "on", "at",
                  "as", "then", "if", "when", "is", "are", "was", "no", "not", "or", "and"}
# The values of tutti_status.
INVALID, TIMEOUT, PEER_LOST, AUTH, SYSTEM, NO_MEMORY = 2, 4, 5, 8, 9, 10

# Options that a program refuses, each with the option's name as the error has it.
WRONG_USAGE = [
    ("run", [], "--ranks"),
    ("run", ["-n", "0", "true"], "--ranks"),
    ("run", ["-n", "many", "true"], "--ranks"),
    ("run", ["-n", "2"], "PROGRAM"),
    ("run", ["-n", "2", "--frobnicate", "true"], "--frobnicate"),
    ("run", ["-n", "2", "--env", "FOO", "true"], "--env"),
    ("run", ["-n", "2", "--hosts-act", "5", "true"], "--hosts-act"),
    ("run", ["-n", "2", "--timeout", "-1", "true"], "--timeout"),
    ("run", ["-n", "2", "--grace", "long", "true"], "--grace"),
    ("run", ["-n", "2", "--gangs", "0", "true"], "--gangs"),
    ("bench", [], "COLLECTIVE"),
    ("bench", ["teleport"], "teleport"),
    ("bench", ["allreduce", "--dtype", "complex"], "--dtype"),
    ("bench", ["allreduce", "--op", "xor"], "--op"),
    ("bench", ["allreduce", "-b", "many"], "--begin"),
    ("bench", ["allreduce", "-b", "1M", "-e", "1K"], "--end"),
    ("bench", ["allreduce", "--transport", "pigeon"], "--transport"),
    ("bench", ["broadcast", "--ranks", "2", "--root", "4"], "--root"),
    ("bench", ["allreduce", "--nrings", "99"], "--nrings"),
    ("bench", ["allreduce", "--memory", "tape"], "--memory"),
    ("bench", ["allreduce", "--peer", "nccl"], "--peer"),
    ("bench", ["broadcast", "--out-of-place-only"], "--out-of-place-only"),
    ("info", ["carrier_pigeon"], "carrier_pigeon"),
    ("info", ["--root", "/nowhere"], "--root"),
    ("info", ["--frobnicate"], "--frobnicate"),
    ("sim", [], "COLLECTIVE"),
    ("sim", ["teleport", "-n", "4"], "teleport"),
    ("sim", ["allreduce", "-n", "0"], "--ranks"),
    ("sim", ["allreduce", "-n", "4", "--algorithm", "magic"], "--algorithm"),
    ("sim", ["allreduce", "-n", "4", "--latency", "soon"], "--latency"),
    ("sim", ["allreduce", "-n", "4", "--bandwidth", "wide"], "--bandwidth"),
    ("sim", ["allreduce", "-n", "4", "--hosts", "9"], "hosts"),
    ("sim", ["allreduce", "-n", "4", "--dtype", "complex"], "--dtype"),
    ("sim", ["broadcast", "-n", "4", "--root", "9"], "--root"),
    ("tune", ["--seconds", "0"], "--seconds"),
    ("tune", ["--collectives", "teleport"], "--collectives"),
    ("tune", ["--dtype", "complex"], "--dtype"),
    ("tune", ["-b", "0"], "--begin"),
]

# Commands that cannot be done, each with a word of the message.
FAILURES = [
    ("run", ["-n", "2", "--log-dir", "/dev/null/logs", "true"], "/dev/null/logs"),
    ("run", ["-n", "2", "/nonexistent/program"], "/nonexistent/program"),
    ("run", ["-n", "2", "/etc/passwd"], "/etc/passwd"),
    ("bench", ["allreduce", "-e", "8", "--json", "/nonexistent/report"], "/nonexistent/report"),
    ("sim", ["allreduce", "-n", "4", "--json", "/nonexistent/report"], "/nonexistent/report"),
    ("sim", ["allreduce", "-n", "4", "--plot", "/tmp"], "/tmp"),
    ("tune", [], "rank"),
]

texts = set()


def opening(text):
    return re.split(r"[^A-Za-z]", text, maxsplit=1)[0].lower()


def headless(message):
    return [clause for clause in message.split(": ") if opening(clause) in HEADLESS]


def violations(text, names, reporter=None, culprit=None):
    """The violations of the rule that the text of every error keeps: as test/errors/text_rule.cpp."""
    texts.add(re.sub(r"[0-9]+", "N", re.sub(r"^rank \d+: ", "", text)))
    message, _, advice = text.partition(MARKER)
    rest = re.sub(r"^rank \d+: ", "", message)
    checks = {
        "has its advice once": text.count("What to do:") == 1 and text.count(MARKER) == 1,
        "has a message without a full stop": rest != "" and not rest.endswith("."),
        f"names {names}": names in rest,
        "has no placeholder": not re.search(r"\{[0-9]*\}", rest),
        "has no headless clause": not headless(rest) and opening(advice) not in HEADLESS,
        "gives advice that is an imperative": advice[:1].islower() and opening(advice) not in NOT_IMPERATIVE,
        "gives advice without a full stop": not advice.endswith((".", " ")),
        "says 'rank N: ' once": not re.search(r"rank (\d+): .*rank \1: ", text),
        "is short": len(text.encode()) < MOST_BYTES,
    }
    if reporter is not None:
        checks[f"opens with rank {reporter}"] = text.startswith(f"rank {reporter}: ")
    if culprit is not None:
        named = re.findall(r"\branks? ([0-9]+(?:(?:, | and | to )[0-9]+)*)", text)
        checks[f"names rank {culprit}"] = any(str(culprit) in re.findall("[0-9]+", ranks) for ranks in named)
    return [check for check, holds in checks.items() if not holds]


def execute(command, env=None, **more):
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL, check=False, **more)


class Errors(unittest.TestCase):
    def check_text(self, text, names, reporter=None, culprit=None):
        self.assertEqual(violations(text, names, reporter, culprit), [], text)


class Programs(Errors):
    def test_wrong_usage_names_the_option_and_the_way_to_help(self):
        for program, arguments, names in WRONG_USAGE:
            with self.subTest(program=program, arguments=arguments):
                done = execute([PROGRAMS[program], *arguments])
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.check_complaint(program, done.stderr, names)

    def test_a_command_that_fails_says_what_to_do(self):
        for program, arguments, names in FAILURES:
            with self.subTest(program=program, arguments=arguments):
                done = execute([PROGRAMS[program], *arguments])
                self.assertNotIn(done.returncode, (0, 2), done.stdout + done.stderr)
                self.check_complaint(program, done.stderr, names)

    def check_complaint(self, program, output, names):
        told = [line for line in output.splitlines() if line.startswith(f"tutti-{program}: ")]
        self.assertEqual(len(told), 1, output)
        self.check_text(told[0].partition(": ")[2], names)

    def test_a_tuning_file_that_is_a_folder(self):
        done = execute([PROGRAMS["run"], "-n", "2", "--quiet", "--no-prefix", PROGRAMS["tune"], "--output", "/tmp"])
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check_complaint("tune", done.stderr, "/tmp")

    def test_a_report_without_space(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAMS["info"]], stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=HANG_GUARD_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.check_complaint("info", done.stderr, "No space left on device")

    def test_a_program_hands_on_the_error_of_the_library(self):
        for name, value, names in (("TUTTI_NRINGS", "many", "TUTTI_NRINGS"), ("TUTTI_STORE", "ftp://host", "ftp://host"),
                                   ("TUTTI_TUNING", "/nonexistent/tuning", "/nonexistent/tuning")):
            with self.subTest(name=name):
                ranks = {"TUTTI_RANK": "0", "TUTTI_SIZE": "2" if name == "TUTTI_STORE" else "1"}
                done = execute([PROGRAMS["bench"], "barrier"], env={**ranks, name: value})
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.check_complaint("bench", done.stderr, names)


class Ranks(Errors):
    """Each rank is started by hand, and its place in the job is in the environment."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = "file://" + folder.name

    def start(self, case, rank=0, size=2, limits=(), **env):
        def apply():
            for what, soft in limits:
                resource.setrlimit(what, (soft, resource.getrlimit(what)[1]))
        place = {"TUTTI_RANK": str(rank), "TUTTI_SIZE": str(size), "TUTTI_STORE": self.store,
                 "TUTTI_TIMEOUT_MS": "60000", "TUTTI_TRANSPORT": "tcp"}
        started = subprocess.Popen([MEMBER, case], env={**os.environ, **place, **env}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=apply if limits else None)
        self.addCleanup(self.end, started)
        return started

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def check_told(self, process, status, names, culprit=None, reporter=None):
        output = process.communicate(timeout=HANG_GUARD_S)
        self.assertRegex(output[0], r"^\d+ -?\d+ ", output)
        got, rank, text = output[0].rstrip("\n").split(" ", maxsplit=2)
        self.assertEqual(int(got), status, output)
        self.assertEqual(int(rank), -1 if culprit is None else culprit, output)
        self.check_text(text, names, reporter, culprit)
        return text

    def test_a_killed_rank(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                job = {"TUTTI_TRANSPORT": transport, "TUTTI_JOB": transport}
                survivor = self.start("sum", 0, **job)
                self.start("die", 1, **job)
                self.check_told(survivor, PEER_LOST, "rank 1", culprit=1, reporter=0)

    def test_a_missing_rank(self):
        self.check_told(self.start("join", 0, TUTTI_TIMEOUT_MS="1000"), TIMEOUT, "rank 1", culprit=1)

    def test_missing_ranks(self):
        text = self.check_told(self.start("join", 0, 4, TUTTI_TIMEOUT_MS="1000"), TIMEOUT, "ranks 1, 2, 3", culprit=1)
        self.assertIn("ranks 1, 2, 3", text)

    def test_a_rank_that_is_taken(self):
        first = self.start("join", 1)
        # The second finds the first one's claim, once there is one; before, it would be the first.
        folder = self.store.removeprefix("file://")
        while not any("owner" in name for _, _, names in os.walk(folder) for name in names):
            self.assertIsNone(first.poll())
            time.sleep(0.01)
        self.check_told(self.start("join", 1), INVALID, "rank 1", culprit=1)

    def test_a_wrong_secret(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            store = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.start("join", 0, TUTTI_STORE=store, TUTTI_SECRET="correct horse battery")
        wrong = self.start("join", 1, TUTTI_STORE=store, TUTTI_SECRET="wrong horse battery")
        self.check_told(wrong, AUTH, "secret")

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            store = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            self.check_told(self.start("join", 0, TUTTI_STORE=store), SYSTEM, store)

    def test_a_store_of_an_unknown_scheme(self):
        self.check_told(self.start("join", 0, TUTTI_STORE="gopher://host/1"), INVALID, "gopher://host/1")

    def test_a_launcher_that_says_no_size(self):
        for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"):
            with self.subTest(name=name):
                env = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
                done = subprocess.run([MEMBER, "join"], env={**env, name: "1"}, capture_output=True, text=True,
                                      timeout=HANG_GUARD_S, check=False)
                status, _, text = done.stdout.rstrip("\n").split(" ", maxsplit=2)
                self.assertEqual(int(status), INVALID)
                self.check_text(text, name)

    @unittest.skipIf(SANITIZED, "a sanitizer needs descriptors of its own")
    def test_few_open_files(self):
        few = self.start("join", 0, limits=[(resource.RLIMIT_NOFILE, 6)])
        text = self.check_told(few, SYSTEM, "open files")
        self.assertIn("ulimit -n", text)

    @unittest.skipIf(SANITIZED, "a sanitizer needs files of its own")
    def test_short_files(self):
        few = self.start("join", 0, TUTTI_TRANSPORT="shm", limits=[(resource.RLIMIT_FSIZE, 512)])
        text = self.check_told(few, NO_MEMORY, "shared memory")
        self.assertIn("ulimit -f", text)


class Total(unittest.TestCase):
    """The cases above run first: unittest takes classes in the order of their names."""

    def test_there_are_many_different_texts(self):
        if len(texts) == 0:
            self.skipTest("the other cases did not run")
        self.assertGreaterEqual(len(texts), LEAST_TEXTS)


if __name__ == "__main__":
    unittest.main()
