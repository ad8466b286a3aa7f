"""Compiles, runs or looks up what the documents have as code. blocks.py lists the marks of blocks that are not run.

Programs that use CUDA run over the stand-ins for the driver and NCCL.
"""
import ast
import collections
import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(os.environ["TUTTI_SOURCE"], "tools", "site")))
import pages as site  # noqa: E402
from blocks import (CHECKED, MARKS, OTHER_NAMES, OWN_TESTS, SOURCE, Block, blocks, blocks_of, commands_of, imported,
                    options_of, pages)

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = [pathlib.Path(path) for path in os.environ["TUTTI_LIBRARIES"].split(":")]
PROGRAMS = {pathlib.Path(path).name: path for path in os.environ["TUTTI_PROGRAMS"].split(":")}
SCRIPTS = {f"{folder}/{path.name}": path for folder in ("tools", "bench") for path in (SOURCE / folder).iterdir()
           if path.is_file() and not path.suffix}
# The stand-in for CUDA's runtime, if the build makes it. It uses the stand-in for the driver.
CUDA = pathlib.Path(os.environ.get("TUTTI_FAKE_CUDA_RUNTIME", ""))
TIMEOUT_S = 60
# Debian's names of Open MPI's compiler and launcher.
MPICC = "mpicc.openmpi"
MPIRUN = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2")
CUDA_INCLUDE = pathlib.Path("/usr/local/cuda/include")
# A program of one call that writes its flight recorder to its standard output.
RECORDED = """\
#include <tutti/tutti.h>

int main(void) {
    static float values[1024];
    tutti_comm* comm;
    return tutti_comm_create(NULL, &comm) || tutti_allreduce(comm, values, values, 1024, TUTTI_FLOAT32, TUTTI_SUM) ||
           tutti_comm_dump(comm, 1) || tutti_comm_destroy(comm);
}
"""
unittest.TestCase.maxDiff = None


def run(*command, settings=(), **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    env.update(settings)
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env,
                          timeout=2 * TIMEOUT_S, stdin=subprocess.DEVNULL, **more)


def is_source(block):
    """Whether a block of C or C++ is a whole file, which includes its headers itself. Another one is a fragment."""
    return re.search(r"(?m)^#include", block.text) is not None


def is_program(block):
    return re.search(r"(?m)^int main\(", block.text) is not None


def uses_cuda(block):
    return "#include <cuda_runtime.h>" in block.text


def not_run(found):
    """The blocks of how-to pages that no test runs. Other tests look up excerpts, and run the programs in Python."""
    number = collections.Counter(block.place for block in found)
    return [str(block) for block in found if block.page.startswith("docs/how-to/") and not block.mark
            and not (block.language in ("text", "python") or block.language in ("c", "cpp") and is_program(block)
                     or is_plain_script(block) or block.place in OWN_TESTS and number[block.place] == 1)]


def is_plain_script(block):
    """Whether the class Scripts runs the block, which needs nothing but a program and those of the tree."""
    return block.language == "sh" and block.page.startswith("docs/how-to/") and block.place not in OWN_TESTS


def indented(page, text):
    """The blocks of code of a page that are indented lines, which no test reads."""
    lines = text.splitlines()
    return [f"{page}:{line}" for line, kind, _ in site.blocks(text)
            if kind == "code" and not lines[line - 1].lstrip().startswith(("```", "~~~"))]


class Fences(unittest.TestCase):
    def test_each_block_names_its_language_and_its_marks_as_the_tests_do(self):
        wrong = [f"{block}: write '{OTHER_NAMES[block.language]}' instead of '{block.language}'" for block in blocks()
                 if block.language in OTHER_NAMES]
        wrong += [f"{block}: '{block.mark}' is no mark of {block.language}; marks are: {', '.join(MARKS)}"
                  for block in blocks() if block.language in CHECKED and block.mark
                  and block.language not in MARKS.get(block.mark, ())]
        self.assertEqual(wrong, [])

    def test_marks_have_braces(self):
        text = "\n".join(pages().values())
        self.assertEqual(re.findall(rf"(?m)^ *```\w+ +(?:{'|'.join(MARKS)})\b.*", text), [], "write cpp {.excerpt}")

    def test_only_programs_of_another_library_have_that_mark(self):
        wrong = [str(block) for block in blocks() if block.mark == "other-library"
                 and re.search(r"\btutti(_|::|\.|/)", block.text)]
        self.assertEqual(wrong, [])

    def test_each_block_of_a_how_to_page_is_run(self):
        self.assertEqual(not_run(blocks()), [], "make a program of the fragment, or give the block a test in OWN_TESTS")

    def test_a_block_that_is_not_run_is_seen(self):
        fragment, program = "tutti_barrier(comm);\n", "int main(void) { return 0; }\n"
        found = [Block("docs/how-to/a.md", 1, "c", "", fragment), Block("docs/how-to/a.md", 2, "c", "", program),
                 Block("docs/how-to/a.md", 3, "cpp", "excerpt", fragment), Block("docs/index.md", 4, "c", "", fragment),
                 Block("docs/how-to/a.md", 5, "sh", "", "ls\n"), Block("docs/how-to/a.md", 6, "text", "", "output\n"),
                 *(Block("docs/how-to/a.md", 7, language, "", "x\n") for language in ("console", "json", "cmake", "yaml"))]
        self.assertEqual(not_run(found), ["docs/how-to/a.md:1", *["docs/how-to/a.md:7"] * 4])

    def test_a_second_script_below_a_heading_is_seen(self):
        place = next(place for place in OWN_TESTS if place[2] == "sh")
        first, second, elsewhere = (Block(place[0], line, "sh", "", "ls\n", heading)
                                    for line, heading in ((1, place[1]), (2, place[1]), (3, "Another heading")))
        self.assertEqual(not_run([first]), [])
        self.assertEqual(not_run([first, second, elsewhere]), [str(first), str(second)])
        self.assertEqual([is_plain_script(block) for block in (first, elsewhere)], [False, True])

    def test_the_code_of_a_how_to_page_is_in_fences(self):
        self.assertEqual([place for page, text in pages().items() if page.startswith("docs/how-to/")
                          for place in indented(page, text)], [], "write a fence, or a command as `code` in a sentence")

    def test_an_indented_block_is_seen(self):
        text = "A:\n\n    b c\n    d\n\n1. e\n    f\n\n       g\n\n```sh\n    h\n```\n"
        self.assertEqual(indented("a.md", text), ["a.md:3", "a.md:9"])

    def test_each_test_of_one_block_exists_and_so_does_its_block(self):
        places = [block.place for block in blocks()]
        for place, (file, test) in OWN_TESTS.items():
            self.assertEqual(places.count(place), 1, place)
            self.assertIn(f"    def {test}(self):\n", read(SOURCE / file))

    def test_a_block_is_seen_whole(self):
        text = "# A\n\n  ```cpp {.excerpt}\n  int a;\n\n    b();\n  ```\n## `B` c\n~~~\n# d\n```\n~~~\n"
        self.assertEqual(list(blocks_of("page", text)),
                         [Block("page", 3, "cpp", "excerpt", "int a;\n\n  b();\n", "A"),
                          Block("page", 9, "", "", "# d\n```\n", "`B` c")])


class Compiled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)

    def compiled(self, block, *link):
        """Compiles a block, as a function of its own if it is a fragment. Links it to a program if flags say so."""
        cpp = block.language == "cpp"
        source = self.folder / ("block.cpp" if cpp else "block.c")
        place = f'#line {block.line + 1} "{block.page}"\n'
        text = place + block.text
        if not is_source(block):
            text = (f'#include "usual.{"hpp" if cpp else "h"}"\nvoid fragment(void);\nvoid fragment(void) {{\n'
                    f"{text}}}\n")
        source.write_text(text, encoding="utf-8")
        flags = shlex.split(os.environ["TUTTI_CXX"]) + ["-std=c++20"] if cpp \
            else shlex.split(os.environ["TUTTI_CC"]) + ["-std=c11"]
        includes = [f"-I{folder}" for folder in (SOURCE / "include", HERE, HERE / "stand_in")]
        if not is_program(block) and is_source(block):
            includes += [f"-I{folder}" for folder in (SOURCE / "lib", SOURCE)]
        program = self.folder / "block"
        done = run(*flags, "-Wall", "-Wextra", "-Werror", "-Wno-unused", *includes, source,
                   *(["-o", program, *link] if link else ["-fsyntax-only"]))
        self.assertEqual(done.returncode, 0, f"{block}\n{done.stderr}")
        return program

    def test_sources_and_fragments_compile_and_programs_run(self):
        link = [word for path in LIBRARIES for word in (path, f"-Wl,-rpath,{path.parent}")]
        cuda = [CUDA, f"-Wl,-rpath,{CUDA.parent}"]
        stand_ins = {f"TUTTI_{name}_LIBRARY": os.environ.get(f"TUTTI_FAKE_{name}", "") for name in ("CUDA", "NCCL")}
        ran = 0
        for block in blocks("c", "cpp"):
            if block.mark in ("excerpt", "other-library"):
                continue
            with self.subTest(str(block)):
                if not is_program(block) or uses_cuda(block) and not CUDA.is_file():
                    self.compiled(block)
                    continue
                program = self.compiled(block, *link, *(cuda if uses_cuda(block) else ()))
                # Two ranks survive a loss.
                ranks = 3 if "_exit(0)" in block.text else 2
                done = run(PROGRAMS["tutti-run"], "-n", ranks, "--timeout", TIMEOUT_S, program, cwd=self.folder,
                           settings=stand_ins if uses_cuda(block) else {})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                ran += 1
        self.assertGreater(ran, 0)

    def other_program(self, block, *command):
        """Compiles a program of another library with that command of a compiler."""
        source, program = (self.folder / name for name in ("other.cpp" if block.language == "cpp" else "other.c", "other"))
        source.write_text(block.text, encoding="utf-8")
        done = run(*(word if word != "SOURCE" else source for word in command), "-o", program)
        self.assertEqual(done.returncode, 0, f"{block}\n{done.stderr}")
        return program

    def other_block(self, library):
        block, = (block for block in blocks("c", "cpp") if block.mark == "other-library"
                  and sorted(set(re.findall(r"#include <(mpi|nccl|gloo)[./]", block.text)))[-1] == library)
        return block

    def test_mpis_program_runs(self):
        program = self.other_program(self.other_block("mpi"), MPICC, "-Wall", "-Werror", "SOURCE")
        done = run(*MPIRUN, program)
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, ["1 of 2 ranks"] * 2), done.stderr)

    def test_nccls_program_runs_over_the_stand_ins(self):
        if not (CUDA_INCLUDE / "nccl.h").is_file():
            self.skipTest(f"there is no {CUDA_INCLUDE}/nccl.h")
        if not CUDA.is_file():
            self.skipTest("this build has no stand-ins")
        stand_ins = [pathlib.Path(os.environ[f"TUTTI_FAKE_{name}"]) for name in ("NCCL", "CUDA")]
        link = [word for path in (CUDA, *stand_ins) for word in (path, f"-Wl,-rpath,{path.parent}")]
        program = self.other_program(self.other_block("nccl"), MPICC, "-Wall", "-Werror", f"-I{CUDA_INCLUDE}", "SOURCE", *link)
        done = run(*MPIRUN, program)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_gloos_program_runs(self):
        block = self.other_block("gloo")
        text = block.text
        # Debian's Gloo is of 2022, when connectFullMesh took the store itself, as the page says. Each run needs a folder of
        # its own.
        self.assertTrue("`connectFullMesh(*store, device)`" in read(SOURCE / block.page), "the page names Debian's call")
        for now, instead in (("connectFullMesh(store,", "connectFullMesh(*store,"),
                             ('"/tmp/rendezvous"', f'"{self.folder}/rendezvous"')):
            self.assertIn(now, text)
            text = text.replace(now, instead)
        program = self.other_program(dataclasses.replace(block, text=text), *shlex.split(os.environ["TUTTI_CXX"]),
                                     "-std=c++20", "-w", "SOURCE", "-lgloo", "-pthread")
        (self.folder / "rendezvous").mkdir()
        ranks = [subprocess.Popen([program], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.wait)
            self.addCleanup(rank.kill)
        self.assertEqual([rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks], ["1\n"] * 2)

    def test_a_fragment_that_does_not_compile_is_told_with_its_line(self):
        with self.assertRaisesRegex(AssertionError, r"docs/a\.md:8:"):
            self.compiled(Block("docs/a.md", 6, "c", "", "tutti_barrier(comm);\ntutti_allreduce(comm, in, out);\n"))

    def test_a_line_of_the_flight_recorder_has_the_fields_of_the_page(self):
        block, = (block for block in blocks("json") if block.page == "docs/how-to/debug-a-hang.md")
        link = [word for path in LIBRARIES for word in (path, f"-Wl,-rpath,{path.parent}")]
        program = self.compiled(Block("recorded", 0, "c", "", RECORDED), *link)
        done = run(program, settings={"TUTTI_RANK": "0", "TUTTI_SIZE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        told, written = (json.loads(text, object_pairs_hook=list) for text in (block.text, done.stdout.splitlines()[0]))
        self.assertEqual([(name, type(value)) for name, value in told], [(name, type(value)) for name, value in written])

    def test_an_excerpt_consists_of_lines_of_one_file_in_their_order(self):
        texts = [[line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
                 for folder in ("lib", "transports", "collectives", "trainer", "examples", "test")
                 for path in (SOURCE / folder).rglob("*") if path.suffix in {".h", ".c", ".cpp"}]
        for block in blocks("cpp"):
            if block.mark == "excerpt":
                wanted = [line.strip() for line in block.text.splitlines()]
                self.assertTrue(any(is_part(wanted, lines) for lines in texts), str(block))

    def test_an_excerpt_in_another_order_is_none(self):
        self.assertTrue(is_part(["a", "c"], ["a", "b", "c"]))
        self.assertFalse(is_part(["c", "a"], ["a", "b", "c"]))


def is_part(wanted, lines):
    left = iter(lines)
    return all(line in left for line in wanted)


class Scripts(unittest.TestCase):
    def test_the_scripts_of_how_to_pages_run(self):
        """In a folder whose "program" is the first example. The programs of the tree are in the path."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            done = run(*shlex.split(os.environ["TUTTI_CC"]), "-std=c11", f"-I{SOURCE / 'include'}",
                       SOURCE / "examples" / "allreduce.c", LIBRARIES[0], f"-Wl,-rpath,{LIBRARIES[0].parent}",
                       "-o", folder / "program")
            self.assertEqual(done.returncode, 0, done.stderr)
            paths = dict.fromkeys(str(pathlib.Path(path).parent) for path in PROGRAMS.values())
            settings = {"PATH": ":".join([*paths, os.environ["PATH"]])}
            scripts = [block for block in blocks("sh") if is_plain_script(block)]
            self.assertTrue(scripts)
            for block in scripts:
                with self.subTest(str(block)):
                    done = run("sh", "-e", "-c", block.text, cwd=folder, settings=settings)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Python(unittest.TestCase):
    """Without the package; python_blocks_test.py runs the programs."""

    @staticmethod
    @functools.cache
    def names(module, owner=None):
        """The public names of a module of the package, or of a class in it, from the file that describes its types."""
        folder = SOURCE / "python" / "src" / pathlib.Path(*module.split("."))
        path = next(p for p in (folder / "__init__.pyi", folder.with_suffix(".pyi"), folder.with_suffix(".py"))
                    if p.is_file())
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if owner:
            body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
        names = set()
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.AnnAssign):
                names.add(node.target.id)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        return names

    @staticmethod
    @functools.cache
    def modules():
        """The modules and packages inside the package."""
        return {path.stem for path in (SOURCE / "python" / "src" / "tutti").iterdir() if not path.stem.startswith("_")}

    def unknown(self, tree):
        """The attributes of tutti, its modules and a communicator that the package does not have."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute):
                continue
            owner = ast.unparse(node.value)
            if owner == "tutti" and node.attr not in self.names("tutti") | self.modules() \
                    or owner in ("tutti.torch", "tutti.checkpoint") and node.attr not in self.names(owner) \
                    or owner == "comm" and node.attr not in self.names("tutti.communicator", "Communicator"):
                yield f"{owner}.{node.attr}"

    def test_blocks_are_python_and_use_names_that_the_package_has(self):
        for block in blocks("python"):
            with self.subTest(str(block)):
                tree = ast.parse(block.text, str(block))
                # The communicator of MPI's program is another one.
                if "mpi4py" not in imported(block.text):
                    self.assertEqual(list(self.unknown(tree)), [])

    def test_a_program_imports_what_it_uses(self):
        fragments = [str(block) for block in blocks("python") if not block.mark
                     and not re.search(r"(?m)^(import|from) ", block.text)]
        self.assertEqual(fragments, [], "make a program of the fragment, or mark it 'continued'")

    def test_an_unknown_name_is_seen(self):
        tree = ast.parse("comm = tutti.init()\ncomm.all_reduce(1)\ntutti.torch.find()\ntutti.checkpoint.save(1)\nf.g()")
        self.assertEqual(sorted(self.unknown(tree)), ["comm.all_reduce", "tutti.torch.find"])


@functools.cache
def help_of(name):
    """The text in which a program describes its options. A script is its own description."""
    if name in PROGRAMS:
        return run(PROGRAMS[name], "--help").stdout
    parts = [SCRIPTS[name], *(SOURCE / "bench" / "peers").rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in parts)


class Commands(unittest.TestCase):
    def test_options_are_those_of_the_program(self):
        wrong, seen = [], set()
        for page, text in pages().items():
            for command in commands_of(page, text):
                for program, option in options_of(command, PROGRAMS.keys() | SCRIPTS.keys()):
                    seen.add(program)
                    if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", help_of(program)):
                        wrong.append(f"{page}: {program} has no {option}: {command}")
        self.assertEqual(wrong, [])
        self.assertLessEqual({"tutti-run", "tutti-bench", "tutti-sim", "tutti-info"}, seen)

    def test_each_program_of_a_command_is_one_of_the_tree(self):
        built = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.glob("*/**/meson.build"))
        wrong = [f"{page}: {name}" for page, text in pages().items() for command in commands_of(page, text)
                 for name in re.findall(r"^(?:\S*/)?(tutti-[a-z-]+)(?= |$)", command)
                 if name not in PROGRAMS and f"'{name}'" not in built]
        self.assertEqual(wrong, [])

    def test_commands_and_their_options_are_seen(self):
        text = ("Run `tutti-run\n-n 2 ./a --b` or\n\n"
                "    X=1 build/tools/tutti-run --env=A=1 \\\n      -n 2 tutti-bench --c\n\n"
                "```console\n$ tutti-info --json > a --d\nthe output --e\n```\n```text\ntutti-info --f\n```\n"
                "`bench/hosts --bench tutti-bench --g` and `tutti-run -n 2 tutti-other --h`\n")
        found = [list(options_of(command, {"tutti-run", "tutti-bench", "tutti-info", "bench/hosts"}))
                 for command in commands_of("page", text)]
        self.assertEqual(found, [[("tutti-info", "--json")],
                                 [("tutti-run", "--env"), ("tutti-run", "-n"), ("tutti-bench", "--c")],
                                 [("tutti-run", "-n")],
                                 [("bench/hosts", "--bench"), ("bench/hosts", "--g")], [("tutti-run", "-n")]])


class Names(unittest.TestCase):
    def settings(self):
        table = read(SOURCE / "lib" / "config" / "config.cpp").partition("ConfigKey keys[]")[2].partition("\n};")[0]
        found = set(re.findall(r'\{"(\w+)"', table))
        self.assertLessEqual({"transport", "log"}, found)
        return found

    def known(self):
        """The settings, and the other names that begin like them: constants, macros, variables of scripts and tests."""
        def names(pattern, *paths):
            return set(re.findall(pattern, "\n".join(map(read, paths))))

        settings = {"TUTTI_" + key.upper() for key in self.settings()}
        tests = [path for path in (SOURCE / "test").rglob("*") if path.suffix in {".cpp", ".py"}]
        return (settings | {"TUTTI_NAME"}  # which stands for any of them
                | names(r'"(TUTTI_\w+)"', SOURCE / "lib" / "config" / "misspelt.cpp")
                | names(r"\b(TUTTI_\w+)", *(SOURCE / "include").rglob("*.h*"))
                | names(r"#define (TUTTI_\w+)", *(SOURCE / "lib").rglob("*.h"))
                | names(r"\$\{?(TUTTI_\w+)", *SCRIPTS.values())
                | names(r'(?:getenv\(|environ\S*[(\[])"(TUTTI_TEST_\w+)', *tests))

    def test_settings_and_constants_are_known(self):
        known = self.known()
        wrong = [f"{page}: {name}" for page, text in pages().items()
                 for name in re.findall(r"\bTUTTI_[A-Z0-9_]*[A-Z0-9]\b", text) if name not in known]
        self.assertEqual(wrong, [])

    def test_settings_that_a_program_sets_are_known(self):
        wrong = [f"{page}: {name}" for page, text in pages().items()
                 for name in re.findall(r'(?:tutti_config_set\(\w+, |Config\(\)\.set\()"(\w+)"', text)
                 if name not in self.settings()]
        self.assertEqual(wrong, [])

    def test_functions_of_the_c_api_are_declared(self):
        declared = set(re.findall(r"\btutti_\w+", "".join(map(read, (SOURCE / "include").rglob("*.h*")))))
        wrong = [f"{page}: {name}" for page, text in pages().items() for name in re.findall(r"\b(tutti_\w+)\(", text)
                 if name not in declared]
        self.assertEqual(wrong, [])


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    unittest.main()
