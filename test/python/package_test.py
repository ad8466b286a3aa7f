"""The package without torch: what pip installs, and collectives over numpy arrays."""
import json
import pathlib
import re
import tempfile
import unittest

from support import EXAMPLES, HERE, PYTHON, run, setUpModule  # noqa: F401


class Arrays(unittest.TestCase):
    def check(self, ranks):
        done = run(PYTHON, "-m", "tutti.run", "-n", ranks, "--no-prefix", "--timeout", 120,
                   HERE / "ranks" / "arrays.py")
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        self.assertEqual(done.stdout.count("CASE "), 20, done.stdout)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_survivors_go_on(self):
        done = run(PYTHON, "-m", "tutti.run", "-n", 4, "--keep-going", "--no-prefix", "--timeout", 120,
                   HERE / "ranks" / "recovering.py")
        # Ranks 0 and 2 are killed in the last case.
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if "without_lost_ranks" in line),
                         [f"CASE without_lost_ranks on rank {rank}" for rank in (1, 3)], done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("CASE "), 14, done.stdout + done.stderr)

    def test_a_process_joins_and_ranks_leave(self):
        done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", 120, HERE / "ranks" / "growing.py")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["GROWTH ok: member"] * 2 + ["GROWTH ok: newcomer"], done.stdout + done.stderr)

    def test_processes_meet_by_handles(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(PYTHON, "-m", "tutti.run", "-n", 4, "--keep-going", "--no-prefix", "--timeout", 120,
                       HERE / "ranks" / "meeting.py", TUTTI_TEST_FOLDER=folder)
        # Rank 0 is killed.
        self.assertEqual(done.stdout.count("MEETING ok"), 3, done.stdout + done.stderr)

    def test_one_rank_without_a_launcher(self):
        done = run(PYTHON, "-c", "import tutti; c = tutti.init(); print(c.allreduce([1.5, 2.0]).tolist(), c)")
        self.assertEqual(done.stdout.strip(), "[1.5, 2.0] <tutti.Communicator: rank 0 of 1>", done.stderr)

    def test_settings_are_of_pythons_types(self):
        script = ("import tutti\n"
                  "c = tutti.init(insecure=True, store_hosted=False, transport=['shm', 'tcp'], nrings=2, algo=None)\n"
                  "print(c.allreduce([1.0]).tolist())\n"
                  "try:\n    tutti.init(transport=('shm', 'carrier pigeon'))\n"
                  "except tutti.Error as error:\n    print(error)\n"
                  "try:\n    tutti.init(secret='a\\0b')\n"
                  "except ValueError as error:\n    print(error)\n")
        done = run(PYTHON, "-c", script)
        first, second, third = done.stdout.splitlines()
        self.assertEqual(first, "[1.0]", done.stderr)
        self.assertIn("'carrier pigeon'", second)
        self.assertEqual(third.split(". What to do: ")[0], "the setting 'secret' has a NUL character in its value")


class Ending(unittest.TestCase):
    def test_daemon_threads_inside_calls_do_not_abort_the_process(self):
        for how in ("loop", "recv", "wait", "plan"):
            with self.subTest(how):
                done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", "--timeout", 120,
                           HERE / "ranks" / "daemons.py", how)
                self.assertEqual((done.returncode, done.stdout.count("ENDING")), (0, 2), done.stdout + done.stderr)


class Names(unittest.TestCase):
    """Names in the Python files of the source."""

    def files(self):
        root = HERE.parents[1]
        for folder in ("bench", "deploy", "examples", "python", "test", "tools"):
            for path in sorted((root / folder).rglob("*")):
                if path.is_file() and (path.suffix == ".py" or
                                       not path.suffix and path.read_bytes().startswith(b"#!/usr/bin/env python3")):
                    yield path

    def test_each_is_defined_once(self):
        files = list(self.files())
        self.assertGreater(len(files), 150)
        done = run(PYTHON, "-m", "pyflakes", *files)
        wrong = [line for line in done.stdout.splitlines()
                 if ": undefined name" in line or "redefinition of" in line]
        self.assertEqual(wrong + done.stderr.splitlines(), [])


class Errors(unittest.TestCase):
    def test_they_print_the_name_that_programs_catch(self):
        script = ("import pickle, traceback, tutti\n"
                  "for name in tutti.__all__:\n"
                  "    kind = getattr(tutti, name)\n"
                  "    if not (isinstance(kind, type) and issubclass(kind, Exception)): continue\n"
                  "    error = pickle.loads(pickle.dumps(kind('text', rank=3, operation='scan')))\n"
                  "    assert (type(error), error.rank, error.operation) == (kind, 3, 'scan'), vars(error)\n"
                  "    print(*traceback.format_exception_only(error), end='')")
        done = run(PYTHON, "-c", script)
        told = done.stdout.splitlines()
        self.assertIn("tutti.PeerLostError: text", told, done.stderr)
        for line in told:
            self.assertRegex(line, r"^tutti\.\w+Error: text$|^tutti\.Error: text$")


class Checkpoints(unittest.TestCase):
    def ranks(self, number, *arguments):
        done = run(PYTHON, "-m", "tutti.run", "-n", number, "--no-prefix", "--timeout", 120,
                   HERE / "ranks" / "checkpoints.py", *arguments)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        self.assertIn("CHECKPOINT ok", done.stdout)

    def test_others_restore_what_three_ranks_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "state.safetensors"
            self.ranks(3, "save", path)
            self.ranks(2, "load", path)
            self.read_by_others(path)
            # A file that is damaged changes nothing.
            path.write_bytes(path.read_bytes()[:-1])
            script = ("import numpy as np, sys, tutti\nx = np.full((3, 4), 7.0)\ntry:\n"
                      "    tutti.checkpoint.load(sys.argv[1], {'weight': x}, allow_extra=True)\n"
                      "except tutti.InvalidError as error:\n    print((x == 7).all(), error)")
            done = run(PYTHON, "-c", script, path)
            self.assertTrue(done.stdout.startswith("True load: "), done.stdout + done.stderr)

    def read_by_others(self, path):
        script = ("import sys, safetensors.numpy as s\nx = s.load_file(sys.argv[1])\n"
                  "print(sorted(x), x['rows'].tolist(), x['half'].dtype, x['steps'], x['mask'].tolist())")
        done = run(PYTHON, "-c", script, path)
        rows = [[3.0 * r + c for c in range(3)] for r in range(7)]
        self.assertEqual(done.stdout.strip(), "['half', 'mask', 'rows', 'steps', 'weight'] "
                         f"{rows} float16 41 [1, 0, 1]", done.stderr)


class Examples(unittest.TestCase):
    def test_the_first_program(self):
        done = run(PYTHON, "-m", "tutti.run", "-n", 3, "--no-prefix", "--timeout", 120, EXAMPLES / "allreduce.py")
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} of 3: [3.0, 3.0, 6.0], largest 2.0" for rank in range(3)], done.stderr)


class Installed(unittest.TestCase):
    def test_info_says_what_there_is(self):
        info = json.loads(run(PYTHON, "-c", "import json, tutti; print(json.dumps(tutti.info()))").stdout)
        self.assertIn("shm", info["transports"])
        self.assertIn("ring", info["algorithms"]["allreduce"])
        self.assertEqual(info["programs"], ["tutti-bench", "tutti-run"])
        self.assertTrue((pathlib.Path(info["include"]) / "tutti" / "tutti.h").is_file())

    def test_the_programs_run(self):
        done = run(PYTHON, "-m", "tutti.bench", "allreduce", "--ranks", 2, "-b", 8, "-e", 64, "-n", 3, "-w", 1,
                   "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("allreduce", done.stdout)
        done = run(pathlib.Path(PYTHON).parent / "tutti-run", "-n", 2, "sh", "-c", "echo $TUTTI_RANK")
        self.assertEqual(sorted(done.stdout.split()), ["0", "1", "[0]", "[1]"], done.stderr)

    def test_the_launcher_knows_which_options_take_a_value(self):
        program = pathlib.Path(PYTHON).parent / "tutti-run"
        told = re.findall(r"^  (-\S+) +[A-Z]+[=: \n]", run(program, "--help").stdout, re.MULTILINE)
        takes_value = {option for names in told for option in names.split(",")}
        self.assertIn("--timeout", takes_value)
        done = run(PYTHON, "-c", "from tutti.run import WITH_VALUE; print(*WITH_VALUE)")
        self.assertEqual(set(done.stdout.split()), takes_value)

    def test_nothing_is_found_by_luck(self):
        """The libraries that a bare system lacks come with the package."""
        script = "import tutti._paths as p; print(p.LIBRARY)"
        library = pathlib.Path(run(PYTHON, "-c", script).stdout.strip())
        for binary in (library / "libtutti.so", library.parent / "bin" / "tutti-run"):
            done = run("ldd", binary)
            self.assertIn("libc.so", done.stdout, done.stderr)
            for line in done.stdout.splitlines():
                name, _, place = line.strip().partition(" => ")
                if name.startswith(("libfmt", "libspdlog", "libhwy", "libcrypto", "libssl")):
                    self.assertTrue(str(pathlib.Path(place.split()[0]).resolve()).startswith(str(library)), line)

    def test_the_stubs_name_what_there_is(self):
        script = ("import ast, pathlib, tutti._tutti as native, tutti.communicator\n"
                  "for module, name in ((native, '_tutti.pyi'), (tutti, '__init__.pyi'), (tutti.communicator, "
                  "'communicator.pyi')):\n"
                  "    tree = ast.parse((pathlib.Path(tutti.__file__).parent / name).read_text())\n"
                  "    for node in tree.body:\n"
                  "        if hasattr(node, 'name'): getattr(module, node.name)\n"
                  "        for item in getattr(node, 'body', []) if isinstance(node, ast.ClassDef) else []:\n"
                  "            if hasattr(item, 'name') and item.name != '__init__':\n"
                  "                getattr(getattr(module, node.name), item.name)\n"
                  "print('ok')")
        done = run(PYTHON, "-c", script)
        self.assertEqual(done.stdout.strip(), "ok", done.stderr)

    def test_every_call_has_a_docstring_and_the_parameters_of_its_stub(self):
        script = ("import ast, inspect, pathlib, tutti.communicator\n"
                  "tree = ast.parse(pathlib.Path(tutti.communicator.__file__).with_suffix('.pyi').read_text())\n"
                  "stubs = {node.name: {item.name: item for item in node.body if hasattr(item, 'name')}\n"
                  "         for node in tree.body if isinstance(node, ast.ClassDef)}\n"
                  "for kind in (tutti.Communicator, tutti.Plan, tutti.Request):\n"
                  "    for name, call in vars(kind).items():\n"
                  "        if name.startswith('_') or not inspect.isfunction(call): continue\n"
                  "        if not call.__doc__: print('no docstring:', name)\n"
                  "        stub = stubs[kind.__name__].get(name)\n"
                  "        if stub is None: print('no stub:', name); continue\n"
                  "        wanted = stub.args.args + [a for a in (stub.args.vararg, stub.args.kwarg) if a]\n"
                  "        wanted = [argument.arg for argument in wanted]\n"
                  "        if wanted != list(inspect.signature(call).parameters): print('another stub:', name)\n")
        done = run(PYTHON, "-c", script)
        self.assertEqual((done.stdout, done.stderr), ("", ""))


if __name__ == "__main__":
    unittest.main()
