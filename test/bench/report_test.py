"""bench/report and bench/plot without a clock: arguments, rows of the programs' results, the JSON's form, tables, curves."""
import contextlib
import copy
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(os.environ["TUTTI_SOURCE"]) / "bench"
sys.path.insert(0, str(BENCH))
from results import curves, form, questions, tables  # noqa: E402


def load(name):
    """A program without the ending .py, as a module."""
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


report = load("report")
# tutti-bench as far as bench/compare knows it: it has ucx and tcp, and no ofi.
FAKE_BENCH = """#!/usr/bin/env python3
import json, sys
if "--version" in sys.argv: print("9.9.9"); sys.exit()
def of(name): return sys.argv[sys.argv.index(name) + 1]
times = {"tcp": 10.0, "ucx": 12.0}
if of("--transport") not in times: sys.exit("no transport '" + of("--transport") + "' here")
row = {"collective": sys.argv[1], "bytes": int(of("-b")), "median_us": times[of("--transport")]}
json.dump([row], open(of("--json"), "w"))
"""


def case(size=8, transport="shm", collective="allreduce", dtype="float32", ranks=2):
    return {"collective": collective, "dtype": dtype, "ranks": ranks, "transport": transport, "bytes": size}


def example(rows=None):
    rows = rows or [form.row(case(), "tutti", 0.13, [0.12, 0.2]),
                    form.row(case(), "Open MPI", 0.18, [0.17, 0.2], 0.72, [0.6, 1.1]),
                    form.row(case(1 << 20), "tutti", 35.4), form.row(case(1 << 20), "Open MPI", 1234.5, None, 0.029, [0.02, 0.03])]
    return {"question": "one-host", "machine": "a processor", "date": "2026-01-31", "versions": ["tutti 9.9.9"],
            "method": {"rounds": 5, "warm_up": "two", "setting": "in place"}, "rows": rows, "left_out": {}, "note": ""}


class Arguments(unittest.TestCase):
    def parse(self, *arguments):
        return report.parse_arguments(list(arguments))

    def test_questions_are_chosen_in_their_own_order(self):
        self.assertEqual(self.parse("--only", "tcp,one-host").only, ["one-host", "tcp"])
        self.assertEqual(self.parse("--only", "all").only, list(form.QUESTIONS))
        self.assertEqual(self.parse().only, [name for name in form.QUESTIONS if name != "far"])

    def test_wrong_ones_are_refused_with_advice(self):
        for wrong in (["--only", "nothing"], ["--only", ""], ["--minutes", "0"], ["--minutes", "long"], ["--minutes", "nan"],
                      ["--out", "/nonexistent"], ["--bench", "/nonexistent"], ["--build", "/nonexistent"],
                      ["--python", "/etc/passwd"], ["--bench", sys.executable, "--build", "build"]):
            said = io.StringIO()
            with self.subTest(wrong), contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                self.parse(*wrong)
            self.assertEqual(ended.exception.code, 2)
            self.assertRegex(said.getvalue(), "What to do|not allowed with")

    def test_help_has_examples(self):
        for program in ("report", "plot"):
            done = subprocess.run([sys.executable, str(BENCH / program), "--help"], capture_output=True, text=True, check=True)
            self.assertIn("examples:", done.stdout)
            self.assertIn(f"bench/{program} --only", done.stdout)


class Questions(unittest.TestCase):
    def setUp(self):
        self.questions = questions.questions(questions.Options(bench="b", switch="s", python="p"))

    def test_each_question_has_cells(self):
        self.assertEqual(list(self.questions), list(form.QUESTIONS))
        for question in self.questions.values():
            names = [cell.name for cell in question.cells]
            self.assertEqual(len(names), len(set(names)), question.name)
            self.assertTrue(names)

    def test_rounds_fit_the_time(self):
        question = self.questions["one-host"]
        self.assertEqual(question.rounds(0), questions.LEAST_ROUNDS)
        self.assertEqual(question.rounds(1e6), questions.MOST_ROUNDS)
        self.assertLessEqual(sum(cell.seconds(question.rounds(400)) for cell in question.cells), 400)

    def test_rows_of_compare(self):
        found = [{**case(), "peer": peer, "tutti_us": [1.0, 2.0, 3.0], "peer_us": times, "ratio": 0.5, "min": 0.4, "max": 0.6}
                 for peer, times in (("Open MPI", [2.0, 4.0, 6.0]), ("MPICH", [2.0, 2.0, 2.0]))]
        rows = questions.compare_rows({"rows": found})
        self.assertEqual([(row["library"], row["median_us"], row["ratio"]) for row in rows],
                         [("tutti", 2.0, None), ("Open MPI", 4.0, 0.5), ("MPICH", 2.0, 0.5)])
        self.assertEqual(form.errors(example(rows)), [])

    def test_rows_of_torch(self):
        given = {"transport": "tcp", "rows": [{"dtype": "bfloat16", "bytes": 8, "tutti": [1.0, 3.0], "gloo": [2.0, 4.0]}],
                 "lists": [{"coalesced": 100, "bytes": 256, "way": "list", "tutti": [1.0], "gloo": [10.0]}],
                 "dtensors": [{"dtensor": "gather", "bytes": 16_384, "tutti": [1.0], "gloo": [4.0], "alone": [0.5]}],
                 "steps": [{"ddp_width": 64, "bucket_kib": bucket, "bytes": 160_000, "tutti_ms": [1.0], "gloo_ms": [4.0],
                            "alone_ms": [0.5]} for bucket in (None, 64)]}
        rows = questions.torch_rows(2)(given)
        self.assertEqual([(row["collective"], row["library"], row["median_us"], row["ratio"]) for row in rows],
                         [("allreduce", "tutti", 2.0, None), ("allreduce", "gloo", 3.0, 0.625),
                          ("all_reduce_coalesced, 100 tensors", "tutti", 1.0, None),
                          ("all_reduce_coalesced, 100 tensors", "gloo", 10.0, 0.1),
                          ("DTensor, Shard(0) to Replicate", "tutti", 1.0, None),
                          ("DTensor, Shard(0) to Replicate", "gloo", 4.0, 0.25),
                          ("DTensor, Shard(0) to Replicate", "no communication", 0.5, 2.0),
                          *((name, library, time_us, ratio) for name in ("DDP step", "DDP step, buckets of 64 KiB")
                            for library, time_us, ratio in (("tutti", 1000.0, None), ("gloo", 4000.0, 0.25),
                                                            ("no communication", 500.0, 2.0)))])
        self.assertEqual(form.errors(example(rows)), [])

    def test_rows_of_hosts(self):
        given = {"arguments": {"hosts": 4, "ranks_per_host": 2, "collective": "allreduce"},
                 "ms": {"1048576": {"tutti": [10.0, 20.0], "Open MPI": [20.0, 40.0], "gloo": []}}}
        rows = questions.hosts_rows(given)
        self.assertEqual([(row["library"], row["ranks"], row["median_us"], row["ratio"]) for row in rows],
                         [("tutti", 8, 15000.0, None), ("Open MPI", 8, 30000.0, 0.5)])
        given["ms"]["1048576"]["tutti"] = []
        self.assertEqual([row["ratio"] for row in questions.hosts_rows(given)], [None])


class Form(unittest.TestCase):
    def test_an_example_is_right_and_comes_back_from_its_file(self):
        self.assertEqual(form.errors(example()), [])
        with tempfile.TemporaryDirectory() as folder:
            path = form.write(example(), folder)
            self.assertEqual(form.read(path), example())
            self.assertEqual(form.read_all(folder), {"one-host": example()})
            self.assertEqual([name.name for name in pathlib.Path(folder).iterdir()], ["one-host.json"])

    def test_wrong_reports_are_told(self):
        def wrong(change):
            changed = copy.deepcopy(example())
            change(changed)
            self.assertEqual(len(form.errors(changed)), 1, form.errors(changed))
        for change in (lambda all_: all_.pop("machine"), lambda all_: all_.update(extra=1), lambda all_: all_.update(question="x"),
                       lambda all_: all_.update(date="today"), lambda all_: all_["method"].update(rounds="5"),
                       lambda all_: all_["rows"].append(all_["rows"][0]), lambda all_: all_["rows"][0].pop("bytes"),
                       lambda all_: all_["rows"][0].update(median_us=0), lambda all_: all_["rows"][0].update(ratio=float("nan")),
                       lambda all_: all_["rows"][1].update(spread=[2, 1]), lambda all_: all_["rows"][1].update(ratio_spread=[1]),
                       lambda all_: all_["rows"][0].update(ranks=True), lambda all_: all_["rows"].insert(0, 1)):
            wrong(change)

    def test_a_file_that_cannot_be_read_is_told_by_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tcp.json"
            for text in ("", "[]", "{}"):
                path.write_text(text, encoding="utf-8")
                with self.assertRaisesRegex(ValueError, "tcp.json"):
                    form.read(path)

    def test_the_digest_is_that_of_the_rows(self):
        other = copy.deepcopy(example())
        other["date"] = "2026-02-01"
        self.assertEqual(form.digest(other), form.digest(example()))
        other["rows"][0]["median_us"] = 0.14
        self.assertNotEqual(form.digest(other), form.digest(example()))


class Tables(unittest.TestCase):
    def test_a_table_has_a_column_for_each_library(self):
        self.assertEqual(tables.tables(example()),
                         "`shm`: allreduce, float32, 2 ranks, times in µs.\n\n"
                         "| size | tutti | Open MPI |\n|--:|--:|--:|\n"
                         "| 8 B | 0.13 (0.12–0.20) | 0.18 · **0.72** (0.60–1.10) |\n"
                         "| 1 MiB | 35.4 | 1,234 · **0.029** (0.020–0.030) |\n")

    def test_columns_for_whatever_differs_and_a_table_for_each_transport(self):
        rows = [form.row(case(8, ranks=2), "tutti", 20_000), form.row(case(8, ranks=4), "tutti", 30_000, [20_000, 40_000]),
                form.row(case(8, "tcp", dtype="float32"), "gloo", 1), form.row(case(8, "tcp", dtype="bfloat16"), "tutti", 2)]
        text = tables.tables({**example(rows), "left_out": {"MPICH": "not installed."}})
        self.assertEqual(text, "`shm`: allreduce, float32, times in ms.\n\n| ranks | size | tutti |\n|--|--:|--:|\n"
                               "| 2 | 8 B | 20.0 |\n| 4 | 8 B | 30.0 (20.0–40.0) |\n\n"
                               "`tcp`: allreduce, 2 ranks, times in µs.\n\n| type | size | tutti | gloo |\n|--|--:|--:|--:|\n"
                               "| float32 | 8 B |  | 1.00 |\n| bfloat16 | 8 B | 2.00 |  |\n\nLeft out: MPICH (not installed).\n")

    def test_sizes_and_numbers(self):
        self.assertEqual([tables.human(size) for size in (8, 1000, 65536, 1 << 20, 1_212_456)],
                         ["8 B", "1000 B", "64 KiB", "1 MiB", "1.21 MB"])
        self.assertEqual([tables.number(value) for value in (0.126, 9.5, 10, 99.9, 100, 56278.4)],
                         ["0.13", "9.50", "10.0", "99.9", "100", "56,278"])

    def test_text_between_markers_is_replaced_again_and_again(self):
        page = "a\n<!-- table: one-host -->\nold\n<!-- end -->\nb\n<!-- table: runs -->\n<!-- end -->\n"
        new = tables.rewritten(page, {"one-host": example()})
        self.assertRegex(new, r"(?s)^a\n<!-- table: one-host -->\n\n`shm`.*\|\n\n<!-- end -->\nb\n<!-- table: runs -->\n\n"
                              r"\* Machine A: a processor\..*One host \| 2026-01-31 \| A \|.*<!-- end -->\n$")
        self.assertEqual(tables.rewritten(new, {"one-host": example()}), new)
        self.assertEqual(tables.marked(new), ["one-host", "runs"])

    def test_markers_without_results_or_end_are_told(self):
        for page, words in (("<!-- table: tcp -->\n<!-- end -->\n", "tcp.json is missing"),
                            ("<!-- table: one-host -->\n", "1 markers")):
            with self.assertRaisesRegex(ValueError, words):
                tables.rewritten(page, {"one-host": example()})


class Curves(unittest.TestCase):
    def test_a_panel_for_each_transport_and_a_curve_for_each_library_and_number_of_ranks(self):
        rows = [form.row(case(size, ranks=ranks), library, size) for library in ("MPICH", "tutti") for ranks in (2, 4)
                for size in (64, 8)]
        rows += [form.row(case(8, "tcp"), "tutti", 1), form.row(case(8, "tcp", "broadcast"), "tutti", 1)]
        [(first, found), (second, other)] = curves.panels(example(rows))
        self.assertEqual((first, second), ("shm", "tcp"))
        self.assertEqual([(curve.label, curve.variant) for curve in found],
                         [("tutti, 2 ranks", 0), ("tutti, 4 ranks", 1), ("MPICH, 2 ranks", 0), ("MPICH, 4 ranks", 1)])
        self.assertEqual(found[0].points, ((8, 8), (64, 64)))
        self.assertEqual([curve.label for curve in other], ["tutti"])
        self.assertIn("shm: tutti, 2 ranks, tutti, 4 ranks", curves.described(example(rows)))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    @staticmethod
    def is_alive(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2] != "Z"
        except OSError:
            return False

    def test_a_command_ends_with_its_time_and_with_everything_that_it_started(self):
        mark = self.folder / "child"
        parent = self.program("parent", f"#!/bin/sh\nsleep 60 &\necho $! >{mark}\nwait\n")
        # On a busy machine the command may have started nothing yet after the first of these times.
        for limit_s in (0.5, 5, 30):
            began = time.monotonic()
            self.assertEqual(report.run([parent], {}, limit_s), (None, ""))
            self.assertLess(time.monotonic() - began, limit_s + 20)
            if mark.exists() and mark.read_text(encoding="utf-8").strip():
                break
        deadline = time.monotonic() + 30
        while self.is_alive(mark.read_text(encoding="utf-8").strip()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_output_and_status_come_back(self):
        program = self.program("program", "#!/bin/sh\necho $WORD; echo bad >&2; exit 3\n")
        self.assertEqual(report.run([program], {"WORD": "good"}, 10), (3, "good\nbad\n"))

    def test_reasons_come_from_the_json_or_from_the_output(self):
        self.assertEqual(report.left_out_of("left out: gloo: no torch: none\n", {"skipped": {"mpich": "missing\nmore"}}),
                         {"gloo": "no torch: none", "mpich": "missing"})
        self.assertEqual(report.versions_of({"versions": {"torch": "2", "tutti": "1"}}), ["torch 2", "tutti 1"])

    def test_a_cell_without_a_result_has_a_reason_and_rows_are_in_the_tables_order(self):
        cell = questions.Cell("a cell", "compare", ("--peers", "nobody"), questions.compare_rows, 1)
        rows, versions, left_out = report.measure(cell, 3, 30, self.folder)
        self.assertEqual((rows, versions), ([], []))
        self.assertIn("unknown name 'nobody'", left_out["a cell"])
        rows = [form.row(case(size, ranks=ranks), "tutti", 1) for size, ranks in ((64, 4), (8, 4), (64, 2))]
        self.assertEqual([(row["ranks"], row["bytes"]) for row in report.in_table_order(rows)], [(2, 64), (4, 8), (4, 64)])

    def test_a_question_is_written_with_the_peers_that_are_left_out(self):
        # Only python3 is to be found, so that the one peer is tutti over tcp.
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "python3").symlink_to(sys.executable)
        bench = self.program("tutti-bench", FAKE_BENCH)
        (self.folder / "ranks.json").write_text("older", encoding="utf-8")
        options = questions.Options(bench=bench)
        cells = [questions.compare_cell(options, transport, "allreduce", 2, 8, ["ucx_perftest", "tcp"])
                 for transport in ("ucx", "ofi")]
        few = {"libraries": questions.Question("libraries", 6, tuple(cells)),
               "ranks": questions.Question("ranks", 6, (cells[1],))}
        said, files = io.StringIO(), io.StringIO()
        with mock.patch.object(report, "questions", lambda _options: few), mock.patch.object(report.signal, "signal"), \
                mock.patch.dict(os.environ, PATH=str(self.folder / "bin")), \
                mock.patch.object(sys, "argv", ["report", "--minutes", "1", "--out", str(self.folder)]), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(files), self.assertRaises(SystemExit) as ended:
            report.main()
        self.assertIn("no results for: ranks", str(ended.exception))
        self.assertEqual(files.getvalue().split(), [str(self.folder / "libraries.json")])
        self.assertRegex(said.getvalue(), r"libraries: 1 of 2: ucx allreduce, 2 ranks, 8 B, \d rounds; \d+ s left")
        self.assertEqual((self.folder / "ranks.json").read_text(encoding="utf-8"), "older")
        written = form.read(self.folder / "libraries.json")
        self.assertEqual([(row["library"], row["median_us"], row["ratio"]) for row in written["rows"][:2]],
                         [("tutti", 12.0, None), ("tutti over tcp", 10.0, 1.2)])
        self.assertEqual({row["transport"] for row in written["rows"]}, {"ucx"})
        self.assertEqual(written["left_out"]["ucx_perftest"], "ucx_perftest missing")
        self.assertIn("tutti 9.9.9", written["versions"])
        self.assertNotIn(f'"{os.uname().nodename}"', json.dumps(written))


class Plot(unittest.TestCase):
    def test_tables_are_written_and_checked_without_matplotlib(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("<!-- table: one-host -->\n<!-- end -->\n", encoding="utf-8")
            form.write(example(), folder)

            def plot(*arguments):
                return subprocess.run([sys.executable, str(BENCH / "plot"), "--results", folder, "--page", str(page), "--images",
                                       folder, *arguments], capture_output=True, text=True, check=False, timeout=30)
            self.assertIn("run bench/plot", plot("--check").stderr)
            self.assertEqual(plot("--tables-only").returncode, 0)
            self.assertIn("| 8 B | 0.13", page.read_text(encoding="utf-8"))
            self.assertEqual(plot("--check").returncode, 0)
            for wrong in (["--only", "x"], ["--images", "/nonexistent"], ["--check", "--tables-only"]):
                self.assertEqual(plot(*wrong).returncode, 2, wrong)

    def test_the_versions_are_pinned(self):
        lines = (BENCH / "results" / "requirements.txt").read_text(encoding="utf-8").splitlines()
        wanted = [line for line in lines if not line.startswith("#")]
        self.assertEqual([line for line in wanted if not re.fullmatch(r"[\w.-]+==[\w.]+", line)], [])
        self.assertTrue(any(line.startswith("matplotlib==") for line in wanted))


if __name__ == "__main__":
    unittest.main()
