"""The backend of torch.distributed, with real torch, beside gloo.

FORKED and check_ranks fork a program from a process that has imported torch: see seed.py. These processes import torch
themselves:
- Collectives.test_two_ranks, Names.test_the_variable_makes_it_gloo and Elastic, under torch's own launcher: torchrun().
- Works.test_tutti_run_starts_it and test_the_first_program, under tutti-run.
- Those of Names.answers(), which test that import.
- Programs with other values of variables that torch reads at the import: seed.READ_LATER.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import support
from support import FORKED, PYTHON, Cases, environment, run, setUpModule, torchrun  # noqa: F401

# From the end of a process until the others know its rank: well before the deadline, and long enough for a machine
# that has more to do than cores.
LATE_S = 20


class Collectives(Cases):
    def test_two_ranks(self):
        # Torch's launcher keeps the ranks' store in its own process, and sets TORCHELASTIC_RUN_ID.
        self.check_cases("collectives.py", torchrun(2, "collectives.py"))

    def test_four_ranks(self):
        self.check_ranks(4, "collectives.py")

    def test_over_tcp(self):
        self.check_ranks(2, "collectives.py", TUTTI_TRANSPORT="tcp")


class Works(Cases):
    def test_two_ranks(self):
        self.check_ranks(2, "works.py")

    def test_four_ranks(self):
        self.check_ranks(4, "works.py")

    def run_pair(self, script):
        """Returns the output of ranks 1 and 0, which end by themselves; closes rank 0's input once rank 1 is gone."""
        with support.started(2, script, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT) as ranks:
            told = support.outputs(reversed(ranks))
        self.assertEqual([process.returncode for process in ranks], [0, 0], "\n".join(told))
        return [text.strip() for text in told]

    def test_the_interpreter_ends_with_futures_pending(self):
        self.assertEqual(["LEAVING 1 ok", "LEAVING 0 ok"], self.run_pair("leaving.py"))

    def test_the_interpreter_ends_while_works_do(self):
        for _ in range(3):  # without care, two of three abort
            self.assertEqual("ENDING", self.run_pair("ending.py")[1])

    def test_tutti_run_starts_it(self):
        script = ("import torch, torch.distributed as dist, tutti.torch; dist.init_process_group('tutti'); "
                  "x = torch.ones(3) + dist.get_rank(); dist.all_reduce(x); "
                  "print(x.tolist()); dist.destroy_process_group()")
        done = run(PYTHON, "-m", "tutti.run", "-n", 3, "--no-prefix", PYTHON, "-c", script)
        self.assertEqual(done.stdout.splitlines(), ["[6.0, 6.0, 6.0]"] * 3, done.stderr)

    def test_the_first_program(self):
        done = run(PYTHON, "-m", "tutti.run", "-n", 2, "--no-prefix", support.EXAMPLES / "train_torch.py")
        told = sorted(done.stdout.splitlines())
        self.assertEqual(len(told), 2, done.stdout + done.stderr)
        for rank, line in enumerate(told):
            self.assertRegex(line, rf"^rank {rank} of 2: the mean loss is 0\.0000\d\d$")

    def test_with_torchs_own_checks(self):
        self.check_ranks(3, "detail.py", TORCH_DISTRIBUTED_DEBUG="DETAIL")


class Hooks(Cases):
    def check_hooks(self, ranks):
        listener = support.compiled("hooks/listener.cpp", "listener")
        with tempfile.TemporaryDirectory() as folder:
            self.check_ranks(ranks, "hooks.py", TUTTI_TEST_LISTENER=listener, TORCH_FR_DUMP_ON_TIMEOUT="1",
                             TORCH_FR_DUMP_TEMP_FILE=os.path.join(folder, "trace_"))

    def test_two_ranks(self):
        self.check_hooks(2)

    def test_four_ranks(self):
        self.check_hooks(4)


class Names(Cases):
    """The names and device types with which the backend registers itself with torch."""

    def answers(self, script, **env):
        done = run(PYTHON, "-c", "import torch, torch.distributed as dist\n" + script, **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr.strip()

    def may_replace_gloo(self):
        script = "import torch.distributed as d; print(hasattr(d.Backend, '_ensure_backend_registered'))"
        if run(*FORKED, "-c", script).stdout.strip() != "True":
            self.skipTest("this torch has its gloo built in")

    def test_it_is_for_cuda_where_there_is_some(self):
        for available, devices in ((True, ["cpu", "cuda"]), (False, ["cpu"])):
            script = (f"torch.cuda.is_available = lambda: {available}\n"
                      "import tutti.torch\nprint(dist.Backend.backend_capability['tutti'])")
            self.assertEqual(self.answers(script), (str(devices), ""))

    def test_the_variable_makes_it_gloo(self):
        self.may_replace_gloo()
        with tempfile.TemporaryDirectory() as folder:
            done = torchrun(2, "as_gloo.py", TUTTI_AS_GLOO="1", TUTTI_TEST_FOLDER=folder)
        self.check_cases("as_gloo.py", done)
        # The launcher, two ranks, and the process with which each writes a checkpoint.
        self.assertEqual(done.stderr.count("tutti answers to the name gloo"), 5, done.stderr)

    def test_a_call_makes_it_gloo_and_the_default(self):
        show = ("import os\nprint(dist.Backend._plugins['GLOO'].creator_fn.__module__, "
                "dist.Backend.default_device_backend_map['cpu'], os.environ['TUTTI_AS_GLOO'])")
        self.assertEqual(self.answers("import tutti.torch\ntutti.torch.install(as_default=True)\n"
                                      "print(dist.Backend.default_device_backend_map['cpu'])"), ("tutti", ""))
        self.may_replace_gloo()
        told, log = self.answers("import tutti.torch\nfor _ in range(2):\n"
                                 "    tutti.torch.install(as_gloo=True, as_default=True)\n" + show)
        self.assertEqual(told, "tutti.torch gloo 1")
        self.assertEqual(log, "tutti answers to the name gloo from now on; torch's own is gloo_builtin")

    def test_a_program_without_the_variable_does_not_import_it(self):
        self.assertEqual(self.answers("import sys; print([name for name in sys.modules if name.startswith('tutti')])"),
                         ("['tutti_autoload']", ""))


class Memory(Cases):
    def test_two_ranks(self):
        self.check_ranks(2, "memory.py")


class Estimates(Cases):
    def test_two_ranks(self):
        self.check_ranks(2, "estimates.py")

    def test_four_ranks(self):
        self.check_ranks(4, "estimates.py")


class Trainers(Cases):
    def test_two_ranks(self):
        self.check_ranks(2, "trainers.py")


class Training(Cases):
    def test_two_ranks(self):
        self.check_ranks(2, "training.py")

    def test_four_ranks(self):
        self.check_ranks(4, "training.py")


class FlightRecorder(Cases):
    """Torch's own analyser reads tutti's flight recorders."""

    def analysed(self, folder):
        """The analyser's output, and the collectives that it found: each one's name, and whether all ranks agree."""
        found = folder + ".found"
        done = run(*FORKED, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-o", found)
        if "No module named" in done.stderr:
            self.skipTest("this torch comes without the analyser; 2.10 and newer have it")
        self.assertEqual(done.returncode, 0, done.stderr)
        script = ("import json, pickle, sys\n_, found = pickle.load(open(sys.argv[1], 'rb'))\n"
                  "print(json.dumps([[c.collective_name.split(':')[1], c.pass_check] for c in found.collectives]))")
        return done.stdout + done.stderr, json.loads(run(*FORKED, "-c", script, found).stdout)

    def check_agreement(self, folder, kinds):
        told, found = self.analysed(folder)
        self.assertEqual(found, [[kind, True] for kind in kinds], told)
        self.assertEqual([line for line in told.splitlines() if "tabulate" not in line], [])

    def test_three_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check_ranks(3, "flight.py", TUTTI_TEST_FOLDER=folder)
            self.check_agreement(folder + "/agreement", [
                "all_reduce", "all_reduce", "broadcast", "reduce", "barrier", "_all_gather_base", "_all_gather_base",
                "_reduce_scatter_base", "gather", "scatter", "all_to_all", "all_gather_v", "reduce_scatter_v",
                "all_to_all", "all_reduce", "all_reduce", "barrier"])
            self.check_agreement(folder + "/part", ["all_reduce", "gather", "barrier"])
            told, found = self.analysed(folder + "/skipped")
            self.assertIn("Not all ranks joining collective, sequence number: 5\n", told)
            self.assertIn("missing ranks: {2}\n", told)
            self.assertEqual(found[:4], [["all_reduce", True]] * 3 + [["barrier", True]], told)
            self.assertIn("missing ranks: {2}\n", self.analysed(folder + "/aborted")[0])
            told, _ = self.analysed(folder + "/another_length")
            self.assertIn("Collective sequence number: 2 has errors\n", told)
            # The analyser takes the rank whose file it read first for the one that is right.
            self.assertRegex(told, r"Expected input sizes: '\[\[[56]]]' does not match found input sizes: '\[\[[56]]]'")

    def test_every_version_gets_the_names_that_it_knows(self):
        script = ("from tutti.torch import _flight\n"
                  "place = _flight.Place('0', 'default_pg', 0, [0, 1])\n"
                  "calls = [{'collective': name, 'number': i, 'count': 3, 'dtype': 'float32', 'root': 1, 'state': 'done',\n"
                  "          'start_ns': 1, 'end_ns': 2}\n"
                  "         for i, name in enumerate(('scan', 'allgatherv', 'barrier', 'exscan', 'gather'), 1)]\n"
                  "for version in ((2, 11), (2, 14), (2, 15)):\n"
                  "    print(*(f\"{e['record_id']} {e['profiling_name']} {e['input_sizes']} {e['output_sizes']}\"\n"
                  "            for e in _flight.entries(calls, place, version)), sep=', ')")
        self.assertEqual(run(*FORKED, "-c", script).stdout.splitlines(), [
            "3 nccl:all_reduce_barrier [] [], 5 nccl:gather [[3]] []",
            "2 gloo:all_gather_v [[]] [[3]], 3 gloo:barrier [] [], 5 gloo:gather [[3]] []",
            "2 c10d:all_gather_v [[]] [[3]], 3 c10d:barrier [] [], 5 c10d:gather [[3]] []"])


class Devices(Cases):
    """CUDA tensors without a GPU: torch's device interfaces over the stand-ins for driver and NCCL."""

    @classmethod
    def setUpClass(cls):
        for name in ("TUTTI_FAKE_CUDA", "TUTTI_FAKE_NCCL"):
            if not os.path.exists(os.environ.get(name, "")):
                raise unittest.SkipTest(f"{name} does not name the stand-in that the build makes")
        cls.acted = support.compiled("acted/acted_cuda.cpp", "acted_cuda")

    def settings(self, **more):
        return {"TUTTI_TEST_ACTED": str(self.acted), "TUTTI_TEST_DRIVER": os.environ["TUTTI_FAKE_CUDA"],
                "TUTTI_CUDA_LIBRARY": os.environ["TUTTI_FAKE_CUDA"],
                "TUTTI_NCCL_LIBRARY": os.environ["TUTTI_FAKE_NCCL"], **more}

    def test_two_ranks_through_nccl(self):
        self.check_ranks(2, "devices.py", **self.settings())

    def test_three_ranks_through_the_host_on_one_device(self):
        self.check_ranks(3, "devices.py", **self.settings(TUTTI_DEVICE="staged", TUTTI_TEST_ONE_DEVICE="1"))

    def test_bound_to_a_device_through_nccl(self):
        self.check_ranks(3, "bound.py", **self.settings())

    def test_bound_to_a_device_through_the_host(self):
        self.check_ranks(3, "bound.py", **self.settings(TUTTI_DEVICE="staged", TUTTI_TEST_ONE_DEVICE="1"))

    def test_without_a_driver_or_without_cuda_it_says_so(self):
        settings = self.settings()
        del settings["TUTTI_CUDA_LIBRARY"], settings["TUTTI_NCCL_LIBRARY"]
        done = run(*FORKED, support.HERE / "ranks" / "no_device.py", **settings)
        self.assertIn("NO DEVICE ok", done.stdout, done.stdout + done.stderr)


class Faults(unittest.TestCase):
    def survivors(self, way, code):
        """Returns the output of ranks 0 and 2 of three, and the time at which the process of rank 1 ended."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"TUTTI_TEST_FOLDER": folder, "TUTTI_TEST_WAY": way}
            with support.started(3, "faults.py", env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT) as ranks:
                gone = support.ended(ranks[1])
                told = support.outputs(ranks)
        self.assertEqual([process.returncode for process in ranks], [0, code, 0], "\n".join(told))
        return {rank: told[rank] for rank in (0, 2)}, gone

    def check_who_is_gone(self, way, code):
        told, gone = self.survivors(way, code)
        for rank, text in told.items():
            knew = re.search(rf"FAULT rank {rank} knew at ([\d.]+), ([\d.]+) s after the other gave up", text)
            self.assertTrue(knew, text)
            after = float(knew.group(1)) - gone
            print(f"{way}: rank {rank} knew {after * 1000:+.0f} ms from the end of rank 1's process, "
                  f"{float(knew.group(2)) * 1000:.0f} ms after it gave up", file=sys.stderr)
            self.assertLess(after, LATE_S, text)

    def test_survivors_learn_who_raised_and_exited(self):
        # As a rule they know before the process is gone: it leaves its groups when the interpreter ends.
        self.check_who_is_gone("raise", 1)

    def test_survivors_learn_who_exited_at_once(self):
        self.check_who_is_gone("exit", 7)

    def test_survivors_learn_who_was_killed(self):
        self.check_who_is_gone("kill", -signal.SIGKILL)

    def test_a_dead_store_is_named_and_a_group_survives_it(self):
        done = run(*FORKED, support.HERE / "ranks" / "store.py", TORCH_CPP_LOG_LEVEL="WARNING")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("STORE ok"), 2, done.stdout + done.stderr)


class Shrinking(unittest.TestCase):
    def test_survivors_go_on_in_a_smaller_group(self):
        with support.started(4, "shrinking.py", {}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT) as ranks:
            told = support.outputs(ranks)
        if "SHRINK this torch cannot" in told[0]:
            self.skipTest("this torch has no shrink_group")
        self.assertEqual([process.returncode for process in ranks], [0, 0, -signal.SIGKILL, -signal.SIGKILL],
                         "\n".join(told))
        self.assertEqual(["SHRINK ok" in text for text in told], [True, True, False, False], "\n".join(told))


class Reconfiguring(unittest.TestCase):
    def ranks_of(self, backend, ends):
        """The ranks that the calls give, over a backend."""
        with tempfile.TemporaryDirectory() as folder:
            with support.started(4, "reconfiguring.py", {"TUTTI_TEST_FOLDER": folder, "BACKEND": backend},
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ranks:
                told = support.outputs(ranks)
        if "RECONFIGURE this torch cannot" in told[0]:
            self.skipTest("this torch has no reconfigure")
        self.assertEqual([process.returncode for process in ranks], ends, "\n".join(told))
        return re.findall("RANK of . in call .: .*", "\n".join(told))

    def test_ranks_are_those_of_gloo(self):
        ours = self.ranks_of("tutti", [0, 0, 0, -signal.SIGKILL])
        self.assertEqual(len(ours), 16)
        self.assertEqual(ours, self.ranks_of("gloo", [0, 0, 0, 0]))


class Again(unittest.TestCase):
    def test_processes_make_new_groups_after_an_abort(self):
        with tempfile.TemporaryDirectory() as folder:
            done = support.run_ranks(2, "again.py", TUTTI_TEST_FOLDER=folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(*re.findall(r"AGAIN (.*)", done.stdout)[:1], file=sys.stderr)
        self.assertEqual(done.stdout.count("AGAIN"), 2, done.stdout + done.stderr)


class Elastic(unittest.TestCase):
    def test_torchs_launcher_starts_all_ranks_again_after_a_kill(self):
        with tempfile.TemporaryDirectory() as folder:
            done = torchrun(2, "elastic.py", ["--max-restarts", "1"], TUTTI_TEST_FOLDER=folder)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-5000:])
        ended = re.findall(r"ELASTIC rank (\d) attempt 1 from step (\d+)", done.stdout)
        self.assertEqual(sorted(rank for rank, _ in ended), ["0", "1"], done.stdout)
        # The launcher may have ended rank 0 before it had written the last step's checkpoint.
        self.assertIn({step for _, step in ended}, ({"11"}, {"12"}), done.stdout)


class Merging(unittest.TestCase):
    def test_two_groups_become_one(self):
        with tempfile.TemporaryDirectory() as folder:
            done = support.run_ranks(4, "merging.py", TUTTI_TEST_FOLDER=folder)
        if "MERGE this torch cannot" in done.stdout:
            self.skipTest("this torch has no merge_remote_group")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("MERGED"), 4, done.stdout + done.stderr)


class Building(unittest.TestCase):
    """The first use compiles the backend, once, also when several programs begin together."""

    def build(self, **env):
        return run(*FORKED, "-m", "tutti.torch", **env)

    def test_the_stub_names_what_there_is(self):
        script = ("import ast, pathlib, tutti.torch as t\n"
                  "tree = ast.parse(pathlib.Path(t.__file__).with_suffix('.pyi').read_text())\n"
                  "stubbed = {node.name for node in tree.body if hasattr(node, 'name')}\n"
                  "imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]\n"
                  "stubbed |= {alias.asname for node in imports for alias in node.names}\n"
                  "print(sorted(set(t.__all__) - stubbed), [name for name in t.__all__ if not hasattr(t, name)])\n"
                  "for node in tree.body:\n"
                  "    for item in node.body if isinstance(node, ast.ClassDef) else []:\n"
                  "        if hasattr(item, 'name'): getattr(getattr(t, node.name), item.name)")
        done = run(*FORKED, "-c", script)
        self.assertEqual((done.stdout.strip(), done.stderr), ("[] []", ""))

    def test_its_errors_print_the_name_that_programs_catch(self):
        for status, name in ((5, "PeerLostError"), (11, "RevokedError")):
            done = run(*FORKED, "-c", f"import tutti.torch as t; raise t._errors.make({status}, 1, 'scan', 'why', 'text')")
            self.assertEqual(done.stderr.splitlines()[-1], f"tutti.torch.{name}: text")

    def test_without_a_group_it_says_so(self):
        with tempfile.NamedTemporaryFile() as kept:
            kept.write(b"kept")
            kept.flush()
            script = ("import sys, torch.distributed as dist, tutti.torch as t\n"
                      "def told(group):\n"
                      "    for call in (t.backend_of, t.abort, t.communicator, lambda g: t.dump(sys.argv[1], g)):\n"
                      "        try:\n            call(group)\n        except ValueError as error:\n"
                      "            print(error)\n"
                      "told(None)\n"
                      "told(dist.GroupMember.NON_GROUP_MEMBER)\n")
            done = run(*FORKED, "-c", script, kept.name)
            self.assertEqual([line.split(". What to do: ")[0] for line in done.stdout.splitlines()], 4 * [
                "there is no group: init_process_group has not been called"] + 4 * ["this rank is not in the group"],
                done.stderr)
            self.assertEqual(pathlib.Path(kept.name).read_bytes(), b"kept")

    def test_torch_finds_it_by_its_name(self):
        script = ("import torch.distributed as d, torch; d.init_process_group('tutti', rank=0, world_size=1, "
                  "store=d.HashStore()); x = torch.ones(2); d.all_reduce(x); print(x.tolist(), d.get_backend())")
        done = run(*FORKED, "-c", script)
        if "torch.distributed.backends" in done.stderr or tuple(
                int(part) for part in re.match(r"(\d+)\.(\d+)", self.torch_version()).groups()) < (2, 14):
            self.skipTest("this torch does not look for backends by itself")
        self.assertEqual(done.stdout.strip(), "[1.0, 1.0] tutti", done.stderr)

    def torch_version(self):
        return run(*FORKED, "-c", "import torch; print(torch.__version__)").stdout.strip()

    def fake_compiler(self, folder, also=":"):
        """Says in a file that it was called, and leaves an empty one: what is tested is who calls it."""
        log, compiler = pathlib.Path(folder) / "compiled", pathlib.Path(folder) / "compiler"
        compiler.write_text(f'#!/bin/sh\necho called >>"{log}"\n{also}\nfor word; do last=$out; out=$word;\n'
                            'if [ "$last" = -o ]; then target=$out; fi; done\ntouch "$target"\n')
        compiler.chmod(0o755)
        return log, compiler

    def test_two_processes_at_once_build_it_once(self):
        with tempfile.TemporaryDirectory() as cache:
            log, compiler = self.fake_compiler(cache, "sleep 1")
            several = [subprocess.Popen([*FORKED, "-c", "import tutti.torch._build as b; p = b.target(); "
                                         "p.parent.mkdir(parents=True, exist_ok=True)\n"
                                         "with b._locked(p.parent):\n    p.exists() or b._compile(p)"],
                                        env=environment(TUTTI_CACHE_DIR=cache, CXX=str(compiler)),
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            for process in several:
                _, errors = process.communicate(timeout=support.TIMEOUT_S)
                self.assertEqual(process.returncode, 0, errors)
            self.assertEqual(log.read_text().count("called"), 1)

    def test_without_a_compiler_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as cache:
            done = self.build(TUTTI_CACHE_DIR=cache, PATH=cache)
            self.assertIn("no C++ compiler", done.stderr)
            done = self.build(TUTTI_CACHE_DIR=cache, CXX="no-such-compiler")
            self.assertIn("no-such-compiler", done.stderr)
            done = self.build(TUTTI_CACHE_DIR=cache, CXX="false")
            self.assertIn("could not be compiled", done.stderr)

    def test_what_does_not_load_is_explained(self):
        with tempfile.TemporaryDirectory() as cache:
            target = run(*FORKED, "-c", "import tutti.torch._build as b; print(b.target())",
                         TUTTI_CACHE_DIR=cache).stdout.strip()
            pathlib.Path(target).parent.mkdir()
            pathlib.Path(target).write_bytes(b"no library")
            done = self.build(TUTTI_CACHE_DIR=cache)
            self.assertIn("cannot be loaded", done.stderr)
            self.assertIn("remove", done.stderr)

    def test_a_compiler_that_brings_its_own_library_does_not_give_it_to_others(self):
        """libtutti.so would take some symbols from the backend's copy and others from libstdc++.so, and crash."""
        with tempfile.TemporaryDirectory() as folder:
            source, built = pathlib.Path(folder) / "text.cpp", pathlib.Path(folder) / "text.so"
            source.write_text("#include <sstream>\nint main() { std::ostringstream text; text << 1; return text.fail(); }\n")
            flags = run(*FORKED, "-c", "import tutti.torch._build as b; print(*b._flags(), sep='\\n')").stdout.split("\n")
            words = [{"{source}": str(source), "{target}": str(built)}.get(word, word) for word in flags if word]
            subprocess.run(["c++", "-static-libstdc++", *words], check=True)
            symbols = subprocess.run(["nm", "-DC", "--defined-only", built], capture_output=True, text=True, check=True)
            self.assertNotIn(" std::ostream", symbols.stdout)
            self.assertNotIn(" std::locale", symbols.stdout)

    def failing(self, folder, words):
        """Returns what the build prints if the compiler fails with these words."""
        _, compiler = self.fake_compiler(folder, f"echo '{words}' >&2\nexit 1")
        return self.build(TUTTI_CACHE_DIR=folder, CXX=str(compiler)).stderr

    def test_what_is_no_fault_of_the_compilers_is_not_called_one(self):
        for words, wanted in (("ld: final link failed: No space left on device", "is full. What to do: free space"),
                              ("fatal error: Killed signal terminated program cc1plus", "for lack of memory")):
            with tempfile.TemporaryDirectory() as cache:
                told = self.failing(cache, words)
                self.assertIn(wanted, told)
                self.assertNotIn("C++20", told)

    def test_a_folder_whose_libraries_cannot_be_loaded_is_not_used(self):
        script = ("import os, types, tutti.torch._build as b\n"
                  "os.statvfs = lambda path: types.SimpleNamespace(f_flag=os.ST_NOEXEC)\nb.target()")
        with tempfile.TemporaryDirectory() as cache:
            told = run(*FORKED, "-c", script, TUTTI_CACHE_DIR=cache).stderr
            self.assertIn(f"{cache} is on a file system that is mounted noexec", told)
            self.assertIn("What to do: set TUTTI_CACHE_DIR", told)

    def test_a_disk_without_room_is_named(self):
        script = ("import errno, os, pathlib, tutti.torch._build as b\n"
                  "def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
                  "pathlib.Path.write_text = full\nb.load()")
        with tempfile.TemporaryDirectory() as cache:
            told = run(*FORKED, "-c", script, TUTTI_CACHE_DIR=cache).stderr
            self.assertIn("BuildError: tutti.torch cannot be built in " + cache, told)
            self.assertIn("No space left on device", told)

    def test_half_a_library_is_built_again(self):
        with tempfile.TemporaryDirectory() as cache:
            log, compiler = self.fake_compiler(cache)
            settings = {"TUTTI_CACHE_DIR": cache, "CXX": str(compiler)}
            self.build(**settings)
            built = next(pathlib.Path(cache).glob("*/_tutti_torch.so"))
            whole = pathlib.Path(os.path.realpath(sys.executable)).read_bytes()  # also of this format
            built.write_bytes(whole[:len(whole) // 2])
            self.build(**settings)
            self.assertEqual(log.read_text().count("called"), 2)

    def test_what_a_killed_build_left_is_removed(self):
        with tempfile.TemporaryDirectory() as cache:
            log, compiler = self.fake_compiler(cache, 'if [ ! -e "$0.second" ]; then touch "$0.second"; '
                                               'kill -9 $PPID; fi')
            settings = {"TUTTI_CACHE_DIR": cache, "CXX": str(compiler)}
            self.assertEqual(self.build(**settings).returncode, -signal.SIGKILL)
            self.assertEqual(len(list(pathlib.Path(cache).glob("*/scratch-*"))), 1)
            self.build(**settings)
            self.assertEqual(log.read_text().count("called"), 2)
            self.assertEqual({path.name for path in pathlib.Path(cache).glob("torch-*/*")}, {"lock", "_tutti_torch.so"})

    def test_a_folder_that_others_can_write_to_is_not_trusted(self):
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o777)
            done = self.build(TUTTI_CACHE_DIR=cache)
            self.assertIn("can be written by another user", done.stderr)

    def test_everyone_can_read_what_was_built_and_only_its_owner_write_it(self):
        for umask in ("077", "002", "000"):
            with tempfile.TemporaryDirectory() as folder:
                _, compiler = self.fake_compiler(folder)
                cache = pathlib.Path(folder) / "cache"
                done = run("sh", "-c", f"umask {umask}; exec {shlex.join(FORKED)} -m tutti.torch",
                           TUTTI_CACHE_DIR=str(cache), CXX=str(compiler))
                self.assertIn("cannot be loaded", done.stderr)
                built = next(cache.glob("*/_tutti_torch.so"))
                modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (cache, built.parent, built)}
                self.assertEqual(set(modes.values()), {"0o755"}, (umask, modes))
                self.assertEqual((built.parent / "lock").stat().st_mode & 0o077, 0, "others could hold up a build")

    def test_a_backend_that_others_could_have_written_is_built_again(self):
        with tempfile.TemporaryDirectory() as cache:
            log, compiler = self.fake_compiler(cache)
            settings = {"TUTTI_CACHE_DIR": cache, "CXX": str(compiler)}
            self.build(**settings)
            self.build(**settings)
            self.assertEqual(log.read_text().count("called"), 1)
            built = next(pathlib.Path(cache).glob("*/_tutti_torch.so"))
            built.chmod(0o777)
            self.build(**settings)
            self.assertEqual(log.read_text().count("called"), 2)
            self.assertEqual(built.stat().st_mode & 0o777, 0o755)
            built.parent.chmod(0o777)
            self.assertIn("can be written by another user", self.build(**settings).stderr)
            self.assertEqual(log.read_text().count("called"), 2)

    def test_a_folder_that_anyone_can_replace_is_not_trusted(self):
        with tempfile.TemporaryDirectory() as outer:
            os.chmod(outer, 0o777)
            inner = pathlib.Path(outer) / "cache"
            inner.mkdir(mode=0o755)
            self.assertIn("another user", self.build(TUTTI_CACHE_DIR=str(inner), CXX="no-such-compiler").stderr)
            os.chmod(outer, 0o1777)  # as /tmp
            self.assertIn("no-such-compiler", self.build(TUTTI_CACHE_DIR=str(inner), CXX="no-such-compiler").stderr)

    def test_what_is_there_need_not_be_writable(self):
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o755)
            script = "import tutti.torch._build as b\nb.load()\nprint(b.target())"
            built = pathlib.Path(run(*FORKED, "-c", script).stdout.strip())
            shutil.copytree(built.parent, pathlib.Path(cache) / built.parent.name)
            os.chmod(pathlib.Path(cache) / built.parent.name, 0o555)
            os.chmod(cache, 0o555)
            # Root may write everywhere: it is told that it cannot.
            script = "import os\nos.access = lambda *_: False\nimport tutti.torch._build as b\nb.load()\nprint(b.target())"
            done = run(*FORKED, "-c", script, TUTTI_CACHE_DIR=cache, CXX="no-such-compiler")
            os.chmod(cache, 0o755)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(cache, done.stdout)

    def test_without_torch_it_says_so(self):
        script = "import sys; sys.modules['torch'] = None\ntry:\n    import tutti.torch\nexcept ImportError as e:\n" \
                 "    print(e)"
        self.assertIn("needs PyTorch", run(PYTHON, "-c", script).stdout)


if __name__ == "__main__":
    unittest.main()
