"""tutti-tune and what follows from its file; bench/selection on a few cells."""
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

RUN = os.environ["TUTTI_RUN"]
TUNE = os.environ["TUTTI_TUNE"]
BENCH = os.environ["TUTTI_BENCH"]
SELECTION = os.environ["TUTTI_SELECTION"]
SANITIZED = bool(os.environ.get("TUTTI_SANITIZED"))  # a sanitizer's shadow memory has no room under a limit
HANG_GUARD_S = 180
GIB = 1 << 30


def execute(command, env=None, **more):
    return subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})}, capture_output=True,
                          text=True, timeout=HANG_GUARD_S, stdin=subprocess.DEVNULL, **more)


def tune(*arguments, ranks=2, transport="shm", end="4K", env=None, **more):
    return execute([RUN, "-n", ranks, "--transport", transport, "--no-prefix", TUNE, "--seconds", "0.5",
                    "--end", end, "--collectives", "allreduce,broadcast", *arguments], env, **more)


def tune_a_little(path, wrapper=()):
    return execute([*wrapper, RUN, "-n", "2", "--transport", "shm", "--no-prefix", TUNE, "--seconds", "0.2", "-b", "64",
                    "-e", "64", "--collectives", "allreduce", "--output", path])


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "here.tuning"

    def succeed(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_its_file_decides_from_then_on(self):
        self.succeed(tune("--output", self.path))
        text = self.path.read_text(encoding="utf-8")
        self.assertRegex(text, r"(?m)^machine \d+ x \S")
        self.assertRegex(text, r"(?m)^constants shm start_us=\d")
        self.assertRegex(text, r"(?m)^choose broadcast shm ranks=2 bytes=0\.\.\S+ \w+$")
        done = execute([RUN, "-n", "2", "--transport", "shm", "--no-prefix", BENCH, "allreduce", "-b", "64", "-e", "64",
                        "-n", "2", "--explain"], {"TUTTI_TUNING": str(self.path)})
        self.assertRegex(self.succeed(done), r"because: line \d+ of the tuning file \S*here\.tuning")

    def test_a_second_run_keeps_what_it_did_not_measure(self):
        self.path.write_text("# by hand\nmachine some other\nchoose barrier tcp ranks=9 bytes=0..* dissemination\n",
                             encoding="utf-8")
        self.succeed(tune("--output", self.path))
        self.succeed(tune("--output", self.path, transport="tcp"))
        text = self.path.read_text(encoding="utf-8")
        self.assertIn("machine some other\nchoose barrier tcp ranks=9", text)
        for wire in ("shm", "tcp"):
            self.assertEqual(len(re.findall(rf"(?m)^constants {wire} ", text)), 1, text)
            self.assertRegex(text, rf"(?m)^choose allreduce {wire} ranks=2")

    def machine_line(self):
        self.succeed(tune_a_little(self.path))
        return re.search(r"(?m)^machine .*$", self.path.read_text(encoding="utf-8"))[0]

    def deciding_line(self, ranks):
        """That of the file which decides an allreduce of 64 bytes."""
        done = execute([RUN, "-n", ranks, "--transport", "shm", "--no-prefix", BENCH, "allreduce", "-b", "64", "-e",
                        "64", "-n", "2", "--explain"], {"TUTTI_TUNING": str(self.path)})
        number = re.search(r"because: line (\d+) of the tuning file", self.succeed(done))[1]
        return self.path.read_text(encoding="utf-8").splitlines()[int(number) - 1]

    def test_what_was_measured_comes_before_what_was_there(self):
        machine = self.machine_line()
        rule = "choose allreduce shm ranks={} bytes=0..* ring"
        for old in (rule.format("2..4"), f"{machine}\n{rule.format('2..4')}", f"machine *\n{rule.format('2..4')}",
                    f"  {machine}  # ours\n{rule.format('2..4')}\n{rule.format('2')}\n"):
            with self.subTest(old):
                self.path.write_text(old, encoding="utf-8")
                self.succeed(tune_a_little(self.path))
                self.assertRegex(self.deciding_line(2), r" ranks=2 bytes=0\.\.\* sums=1 ")
                self.assertEqual(self.deciding_line(3), rule.format("2..4"))

    def test_comments_stay_with_their_lines(self):
        machine = self.machine_line()
        rule = "choose barrier tcp ranks=9 bytes=0..* dissemination"
        old = f"# top\n\n{rule}  # all\n# other\nmachine other\n{rule}\n# ours\n{machine} # this\n# gone\n" \
              f"constants shm hop_us=1\n# kept\n{rule}\n# more\nmachine more\n# end\n"
        kept = ["# top", "", "# ours", f"{machine} # this", "# gone", "# kept", rule, "machine *", f"{rule}  # all",
                "# other", "machine other", rule, "# more", "machine more", "# end"]
        self.path.write_text(old, encoding="utf-8")
        for _ in range(2):
            self.succeed(tune_a_little(self.path))
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.assertEqual([line for line in lines if not re.match(r"(constants|choose \w+) shm ", line)], kept)

    def test_sums_of_another_width_are_tuned_apart(self):
        for dtype in ("float32", "bfloat16", "float16", "float8_e4m3"):
            self.assertIn(dtype, self.succeed(tune("--output", self.path, "--dtype", dtype)))
        text = self.path.read_text(encoding="utf-8")
        for width in (1, 2, 4):
            whole = re.findall(rf"(?m)^choose allreduce shm ranks=2 bytes=0\.\.\S+ sums={width} \w+$", text)
            self.assertEqual(len(whole), 1, text)
        self.assertEqual(len(re.findall(r"(?m)^choose broadcast shm ranks=2 bytes=0\.\.\S+ \w+$", text)), 1, text)
        self.assertEqual(tune("--dtype", "float128").returncode, 2)

    def test_a_malformed_file_is_named_with_its_line_and_left_alone(self):
        malformed = "machine *\nchoose allreduce shm ranks=4..2 bytes=0..* ring\n"
        self.path.write_text(malformed, encoding="utf-8")
        done = tune("--output", self.path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("here.tuning", done.stderr)
        self.assertRegex(done.stderr, r"here\.tuning:2: the range 'ranks=4\.\.2' is empty")
        self.assertEqual(self.path.read_text(encoding="utf-8"), malformed)
        used = tune(env={"TUTTI_TUNING": str(self.path)})
        self.assertEqual(used.returncode, 1)
        self.assertRegex(used.stderr, r"here\.tuning:2: the range 'ranks=4\.\.2' is empty")

    def test_a_collective_that_is_named_twice_is_measured_once(self):
        self.succeed(tune("--output", self.path, "--collectives", "barrier,broadcast"))
        text = self.path.read_text(encoding="utf-8")
        self.assertEqual(len(re.findall(r"(?m)^choose barrier shm ranks=2 bytes=0\.\.\* \w+$", text)), 1, text)
        self.assertEqual(len(re.findall(r"(?m)^choose broadcast .*bytes=0\.\.", text)), 1, text)

    def test_what_cannot_be_written_is_said_before_anything_is_measured(self):
        for option in ("--rows", "--output"):
            done = tune(option, "/nonexistent/file")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("cannot write the file '/nonexistent/file'", done.stderr)

    def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(self):
        self.path.symlink_to(self.path.name)
        done = tune("--output", self.path)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"reading '{self.path}': Too many levels of symbolic links", done.stderr)

    def test_what_is_no_file_is_not_replaced_by_one(self):
        folder, pipe = self.path.with_name("folder"), self.path.with_name("pipe")
        folder.mkdir()
        os.mkfifo(pipe)
        for target in (folder, pipe, "/dev/stdout"):
            done = tune("--output", target)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"the tuning file '{target}' is not a regular file", done.stderr)
        self.assertTrue(folder.is_dir() and pipe.is_fifo())

    def test_other_files_and_its_own_rights_stay(self):
        other = self.path.with_name(self.path.name + ".new")
        other.write_text("the user's", encoding="utf-8")
        for rights in (0o644, 0o640):  # a new file's, and those that it was given
            self.succeed(tune_a_little(self.path, ["sh", "-c", 'umask 022; exec "$@"', "-"]))
            self.assertEqual(self.path.stat().st_mode & 0o777, rights)
            self.path.chmod(0o640)
        self.assertEqual(other.read_text(encoding="utf-8"), "the user's")
        self.assertEqual({path.name for path in self.path.parent.iterdir()}, {self.path.name, other.name})

    def test_a_link_stays_one(self):
        link = self.path.with_name("link.tuning")
        link.symlink_to(self.path.name)
        for _ in range(2):  # it leads nowhere yet, and then to the file
            self.succeed(tune("--output", link))
            self.assertTrue(link.is_symlink())
            self.assertIn("constants shm", self.path.read_text(encoding="utf-8"))

    def test_rows_have_every_candidate_and_one_choice_a_cell(self):
        rows = pathlib.Path(self.folder.name) / "rows"
        out = self.succeed(tune("--rows", rows, ranks=3))
        cells = {}
        for line in rows.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            cells.setdefault((row["collective"], row["bytes"]), []).append(row)
        self.assertEqual(len(cells), 2 * 4)  # 8, 64 and 512 B, 4 KiB
        for times in cells.values():
            self.assertGreater(len(times), 3)
            self.assertEqual(sum(row["chosen"] for row in times), 1)
            self.assertTrue(all(row["us"] > 0 and row["ratio"] > 0 for row in times))
            self.assertEqual(next(row["ratio"] for row in times if row["chosen"]), 1)
        self.assertRegex(out, r"# within 10 % of the fastest: \d+ of \d+ choices")

    def test_a_table_that_cannot_be_written_is_a_failure(self):
        done = execute([RUN, "-n", "2", "--transport", "shm", "--no-prefix", "sh", "-c", 'exec "$@" >/dev/full', "-",
                        TUNE, "--seconds", "0.2", "--end", "8", "--collectives", "allreduce", "--output", self.path])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("tutti-tune: cannot write the table: No space left on device", done.stderr)
        self.assertIn("constants shm", self.path.read_text(encoding="utf-8"))  # the file at --output has the measurements

    def test_sizes_are_what_is_moved_and_each_is_measured_once(self):
        rows = pathlib.Path(self.folder.name) / "rows"
        self.succeed(execute([RUN, "-n", "3", "--transport", "shm", "--no-prefix", TUNE, "--seconds", "0.3", "--rows",
                              rows, "-b", "4", "-e", "100", "-f", "2", "--collectives", "barrier,allreduce,alltoall"]))
        sizes = {}
        for line in rows.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            sizes.setdefault((row["collective"], row["algorithm"]), []).append(row["bytes"])
        # Elements of 4 bytes, a block for each of 3 ranks: 4, 8 and 16 bytes come to one element each.
        expected = {"barrier": [0], "allreduce": [4, 8, 16, 32, 64, 100], "alltoall": [12, 24, 60, 96]}
        self.assertEqual({collective for collective, _ in sizes}, set(expected))
        for (collective, _), measured in sizes.items():
            self.assertEqual(measured, expected[collective], collective)

    def test_sizes_near_the_largest_number_come_to_an_end(self):
        def limit():  # or a list without end would take all memory
            resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB))
        done = tune(end="10E", preexec_fn=None if SANITIZED else limit)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("vector", done.stderr)  # no buffer is so large; bad_alloc would be the list's

    def test_wrong_usage(self):
        done = execute([TUNE, "--end", "4"])
        self.assertEqual(done.returncode, 2)
        alone = execute([TUNE], {"TUTTI_RANK": "0", "TUTTI_SIZE": "1"})
        self.assertEqual(alone.returncode, 1)
        self.assertIn("tutti-tune measures two ranks or more, and this job has one", alone.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:  # it fails even if that cannot be said
            unheard = subprocess.run([TUNE], env={**os.environ, "TUTTI_RANK": "0", "TUTTI_SIZE": "1"}, stderr=full,
                                     stdin=subprocess.DEVNULL, timeout=HANG_GUARD_S, check=False)
        self.assertEqual(unheard.returncode, 1)
        nowhere = tune("--output", "/nowhere/at/all")
        self.assertEqual(nowhere.returncode, 1)
        self.assertIn("cannot write the file '/nowhere/at/all'", nowhere.stderr)

    def test_constants_fitted_at_start_up_are_the_same_on_all_ranks(self):
        done = execute([RUN, "-n", "3", "--transport", "tcp", "--no-prefix", BENCH, "allgather", "-b", "64", "-e", "64K",
                        "-f", "32", "-n", "3", "--check", "--explain"],
                       {"TUTTI_FIT_MS": "40", "TUTTI_CHECK": "strict"})
        out = self.succeed(done)
        self.assertIn("wrong elements: 0 OK", out)
        self.assertIn("the cost model expects it to be the fastest", out)

    def test_the_benchmark_of_the_choices(self):
        done = execute([SELECTION, "--tools", pathlib.Path(TUNE).parent, "--only", "shm, n = 2", "--seconds", "0.5",
                        "--end", "512", "--collectives", "allreduce"])
        out = self.succeed(done)
        self.assertRegex(out, r"\| shm, n = 2 \| 3 \| \d+ % \| \d+ % \|")
        self.assertRegex(out, r"Altogether, of 3 cells: untuned \d+ %, tuned \d+ %\.")
        self.assertNotEqual(execute([SELECTION, "--only", "carrier pigeon", "--tools", "/"]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
