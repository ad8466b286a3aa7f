"""tutti-sim from the outside: what it prints, writes and refuses."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

SIM = os.environ["TUTTI_SIM"]
SVG = "{http://www.w3.org/2000/svg}"
COLLECTIVES = ("allreduce", "broadcast", "barrier", "reduce", "allgather", "reduce_scatter", "gather", "scatter",
               "alltoall", "scan", "exscan")


def run(*arguments):
    return subprocess.run([SIM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL)


class Simulator(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def ok(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def refused(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_help_shows_options_units_and_examples(self):
        text = self.ok("--help")
        for part in ("--oversubscription", "--plot", "UNITS", "EXIT CODES", "EXAMPLES"):
            self.assertIn(part, text)

    def test_every_collective_has_a_table_and_a_choice(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                text = self.ok(collective, "--ranks", 6, "--hosts", 3, "-b", "4K", "-e", "64K")
                self.assertIn("busiest link", text)
                self.assertRegex(text, r"\d\.\d+\* ")

    def test_the_same_command_prints_the_same(self):
        command = ("alltoall", "--ranks", 12, "--hosts", 6, "--oversubscription", 4)
        self.assertEqual(self.ok(*command), self.ok(*command))

    def test_an_unknown_algorithm_lists_those_there_are(self):
        text = self.refused("reduce", "--ranks", 4, "--algorithm", "nonsense")
        self.assertIn("unknown algorithm 'nonsense' for reduce. What to do: give one of binomial, knomial, chain, "
                      "double_binary_tree", text)

    def test_wrong_usage_is_refused_with_what_would_be_right(self):
        for arguments, part in (((), "COLLECTIVE"), (("allreduce",), "--ranks"),
                                (("allreduce", "--ranks", 0), "--ranks"), (("allreduce", "--ranks", 2000), "1024"),
                                (("nothing", "--ranks", 2), "allreduce"),
                                (("allreduce", "--ranks", 2, "-b", "many"), "64K"),
                                (("allreduce", "--ranks", 2, "-b", "1M", "-e", "1K"), "smaller"),
                                (("allreduce", "--ranks", 2, "--latency", "fast"), "10us"),
                                (("allreduce", "--ranks", 2, "--bandwidth", "10"), "1Gbit"),
                                (("allreduce", "--ranks", 2, "--dtype", "real"), "float32"),
                                (("allreduce", "--ranks", 2, "--hosts", 3), "hosts"),
                                (("allreduce", "--ranks", 4, "--switches", 8), "switches"),
                                (("allreduce", "--ranks", 4, "--oversubscription", 0.5), "oversubscription"),
                                (("broadcast", "--ranks", 4, "--root", 4), "--root")):
            with self.subTest(arguments):
                self.assertIn(part, self.refused(*arguments))

    def test_a_file_that_cannot_be_written_is_named(self):
        (self.folder / "taken.json").mkdir()
        for option in ("--json", "--draw", "--plot"):
            for name in ("none/x.json", "taken.json"):
                done = run("barrier", "--ranks", 2, option, self.folder / name)
                self.assertEqual((done.returncode, done.stdout), (1, ""))  # before anything is simulated
                self.assertIn(name, done.stderr)

    def test_a_file_takes_one_thing(self):
        (self.folder / "link").symlink_to(self.folder)
        here = os.path.relpath(self.folder)
        for one, other in ((f"{here}/x", f"./{here}/x"), (self.folder / "x", f"{here}/link/x")):
            self.assertIn("give --json, --draw and --plot different files",
                          self.refused("barrier", "--ranks", 2, "--json", one, "--plot", other))
        self.ok("barrier", "--ranks", 2, "--json", self.folder / "x", "--plot", self.folder / "y", "--draw", "/dev/null")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"link", "x", "y"})

    def test_json_has_every_rank_and_link(self):
        done = run("allreduce", "--ranks", 4, "-b", "64K", "-e", "64K", "--algorithm", "ring", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)["algorithms"][0]["results"]
        self.assertEqual([r["bytes"] for r in results], [65536])
        self.assertEqual([r["bytes_sent"] for r in results[0]["ranks"]], [98304] * 4)
        self.assertEqual({link["name"] for link in results[0]["links"]},
                         {f"host {h} {way}" for h in range(4) for way in ("in", "out")})

    def test_the_diagram_has_a_line_for_each_message(self):
        file = self.folder / "ring.svg"
        self.ok("allreduce", "--ranks", 4, "-b", "64K", "-e", "64K", "--algorithm", "ring", "--draw", file)
        root = xml.parse(file).getroot()
        self.assertEqual(root.tag, SVG + "svg")
        self.assertEqual(len(root.findall(f"{SVG}line/{SVG}title")), 4 * 6)
        self.assertIn("time (us)", [text.text for text in root.iter(SVG + "text")])

    def test_too_much_for_a_diagram_is_said(self):
        done = run("allreduce", "--ranks", 512, "-b", "1K", "-e", "1K", "--algorithm", "ring", "--draw",
                   self.folder / "ring.svg")
        self.assertEqual(done.returncode, 1)
        self.assertIn("too many for a picture", done.stderr)

    def test_the_plot_has_a_line_for_each_algorithm_and_units(self):
        file = self.folder / "times.svg"
        self.ok("broadcast", "--ranks", 8, "--plot", file)
        root = xml.parse(file).getroot()
        texts = [text.text for text in root.iter(SVG + "text")]
        for name in ("binomial", "knomial", "chain", "double_binary_tree", "size (bytes)", "time (us)"):
            self.assertIn(name, texts)
        lines = root.findall(SVG + "polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [8] * 4)

    def test_standard_output_takes_one_thing_and_all_of_it(self):
        for pair in (("--draw", "--plot"), ("--json", "--plot"), ("--draw", "--json")):
            self.assertIn("give --json, --draw and --plot different files",
                          self.refused("allreduce", "--ranks", 4, pair[0], "-", pair[1], "-"))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([SIM, "allreduce", "--ranks", "4"], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
            unheard = subprocess.run([SIM, "allreduce", "--ranks", "4"], stdout=full, stderr=full, check=False)
        self.assertEqual((done.returncode, unheard.returncode), (1, 1))
        self.assertIn("No space left on device", done.stderr)

    def test_a_barrier_can_be_plotted_and_drawn(self):
        files = self.folder / "plot.svg", self.folder / "draw.svg"
        self.ok("barrier", "--ranks", 5, "--plot", files[0], "--draw", files[1])
        for file in files:
            xml.parse(file)


if __name__ == "__main__":
    unittest.main()
