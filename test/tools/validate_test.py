"""tools/validate-hardware and tools/soft-roce: what can be seen of them on any machine."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(os.environ["TUTTI_SOURCE"]) / "tools"
BUILD = os.environ["TUTTI_BUILD"]
HANG_GUARD_S = 240
CANNOT = 77


def execute(tool, *arguments, env=None):
    return subprocess.run([str(TOOLS / tool), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})


class Validate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.output = pathlib.Path(folder.name) / "report.md"

    def quick(self, *arguments, **more):
        return execute("validate-hardware", "--quick", "--build", BUILD, "--output", self.output, *arguments, **more)

    def test_the_quick_form_makes_a_report(self):
        done = self.quick("--transports", "shm,tcp,pigeon", env={"UCX_TLS": "tcp", "UCX_SECRET_TOKEN": "never"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = self.output.read_text(encoding="utf-8")
        for line in ("| shm: matrix small, 2 ranks | passed |", "| tcp: allreduce, every element checked | passed |",
                     "| pigeon | skipped: tutti knows no such transport |", "## Found", "## Bandwidth over shm",
                     "UCX_TLS=tcp"):
            self.assertIn(line, text)
        self.assertRegex(text, r"\| RDMA adapters \| \S")
        self.assertNotIn("never", text)
        self.assertNotIn("## What failed", text)

    def test_failures_are_in_the_report_with_their_words(self):
        done = self.quick("--transports", "shm", env={"TUTTI_ALGO": "telepathy"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        text = self.output.read_text(encoding="utf-8")
        self.assertRegex(text, r"\| shm: allreduce, every element checked \| FAILED")
        self.assertIn("telepathy", text.split("## What failed")[1])

    def acted_build(self, script):
        """Makes a build folder with nothing but a tutti-info that runs this shell script."""
        build = self.output.with_name("build")
        (build / "tools").mkdir(parents=True)
        (build / "build.ninja").touch()
        program = build / "tools" / "tutti-info"
        program.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        program.chmod(0o755)
        return build

    def test_what_libraries_log_is_not_taken_for_what_was_found(self):
        build = self.acted_build("""echo 'libfabric: <info> a log' >&2
            echo '{"rdma": {"items": [], "none": "acted out"}, "transports": {"items": []}}'""")
        done = self.quick("--build", build, "--transports", "pigeon")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = self.output.read_text(encoding="utf-8")
        self.assertIn("no RDMA hardware found: acted out", text)
        self.assertNotIn("a log", text)

    def test_what_is_no_json_is_a_failed_step(self):
        done = self.quick("--build", self.acted_build("echo 'a log, and {}'"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        text = self.output.read_text(encoding="utf-8")
        self.assertIn("| tutti-info | FAILED |", text)
        self.assertIn("a log, and {}", text.split("## What failed")[1])

    def test_a_mistake_of_its_own_does_not_lose_the_report(self):
        done = self.quick("--build", self.acted_build("""echo '{"carrier": "pigeon"}'"""))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        text = self.output.read_text(encoding="utf-8")
        self.assertIn('"pigeon"', text.split("## Found")[1])
        self.assertIn("KeyError: 'rdma'", text.split("## What failed")[1])

    def test_an_interrupt_does_not_lose_the_report(self):
        build = self.acted_build("""test "$1" = --json || exec sleep 1000; echo '{"carrier": "pigeon"}'""")
        command = [TOOLS / "validate-hardware", "--build", build, "--output", self.output]
        # If the tests run in the background, the signal may be ignored.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "tutti-info: passed\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_GUARD_S)
        self.assertEqual(process.returncode, 1, out + err)
        text = self.output.read_text(encoding="utf-8")
        self.assertIn("| tutti-info | passed |", text)
        self.assertIn("| the rest | FAILED (interrupted) |", text)

    def test_a_machine_without_software_adapters_says_so_and_goes_on(self):
        check = execute("soft-roce", "--check")
        self.assertIn(check.returncode, (0, CANNOT), check.stderr)
        if check.returncode == 0:
            self.skipTest("this machine can have one")
        done = self.quick("--transports", "shm", "--soft-roce")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(self.output.read_text(encoding="utf-8"), r"\| soft-RoCE \| skipped: \w")

    def test_a_report_that_cannot_be_written_is_said_first(self):
        done = self.quick("--output", "/nonexistent/report.md")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("--output: '/nonexistent/report.md' cannot be written", done.stderr)

    def test_help_and_wrong_usage(self):
        self.assertIn("examples:", execute("validate-hardware", "--help").stdout)
        self.assertEqual(execute("validate-hardware", "--frobnicate").returncode, 2)


class SoftRoce(unittest.TestCase):
    def test_the_command_runs_beside_an_adapter_or_not_at_all(self):
        done = execute("soft-roce", "rdma", "link", "show")
        if done.returncode == CANNOT:
            self.assertRegex(done.stderr, r"^tools/soft-roce: \w")
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rxe_tutti", done.stdout)
        # Nothing stays.
        self.assertNotIn("rxe_tutti", subprocess.run(["rdma", "link", "show"], capture_output=True, text=True,
                                                     check=False).stdout)

    def test_help_and_wrong_usage(self):
        self.assertIn("usage:", execute("soft-roce", "--help").stdout)
        for wrong in ([], ["--frobnicate"]):
            self.assertEqual(execute("soft-roce", *wrong).returncode, 2)


if __name__ == "__main__":
    unittest.main()
