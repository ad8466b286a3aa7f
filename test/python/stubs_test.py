"""The parts of tools/wheels: stubs that end at a version, other processors, and packages that cannot be had."""
import contextlib
import io
import json
import os
import pathlib
import platform
import runpy
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

sys.dont_write_bytecode = True
TREE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TREE / "tools"))
from portable import checks, debian, stubs, toolchain  # noqa: E402

LIBRARY = """
int counter_1 = 7;
__thread int per_thread = 3;
int changed_old(void) { return 1; }
int changed_new(void) { return 2; }
int added(void) { return 3; }
int plain(void) { return 4; }
int large[12] = {5};
int shared_2 = 1;
extern int shared_1 __attribute__((weak, alias("shared_2")));
int read_shared(void) { return shared_2; }
__asm__(".symver changed_old,changed@LIB_1.9");
__asm__(".symver changed_new,changed@@LIB_1.10");
"""
VERSIONS = "LIB_1.9 { global: changed; counter_1; per_thread; large; shared_1; shared_2; };\nLIB_1.10 { global: changed; added; } LIB_1.9;\n"
USER = "extern int changed(void), counter_1; extern __thread int per_thread; int plain(void); extern int large[12];\n" \
       "int main(void) { return changed() * 1000 + counter_1 * 100 + per_thread * 10 + plain() + large[0] == 1739 ? 0 : 1; }\n"


class Stubs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "stub").mkdir()
        self.library, self.stub = self.folder / "libx.so.1", self.folder / "stub" / "libx.so"
        (self.folder / "library.c").write_text(LIBRARY)
        (self.folder / "versions").write_text(VERSIONS)
        self.compile("-shared", "-fPIC", "-Wl,-soname,libx.so.1,--version-script,versions", "library.c", "-o",
                     self.library)

    def compile(self, *words):
        done = subprocess.run(["gcc", *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def link(self, source, *words):
        (self.folder / "user.c").write_text(source)
        return subprocess.run(["gcc", *words, "user.c", "-Lstub", "-lx", "-o", "user"], cwd=self.folder,
                              capture_output=True, text=True, check=False)

    def test_a_symbol_that_is_too_new_is_an_error_of_the_linker(self):
        stubs.write(self.library, self.stub, {"LIB": "1.9"}, "gcc")
        done = self.link("int added(void); int main(void) { return added(); }\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("undefined reference to `added'", done.stderr)
        stubs.write(self.library, self.stub, {"LIB": "1.10"}, "gcc")
        self.assertEqual(self.link("int added(void); int main(void) { return added(); }\n").returncode, 0)

    def test_a_program_that_was_linked_with_a_stub_uses_the_library(self):
        for floor, words in (("1.9", []), ("1.9", ["-no-pie", "-fno-pie"])):
            stubs.write(self.library, self.stub, {"LIB": floor}, "gcc")
            done = self.link(USER, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            run = subprocess.run([self.folder / "user"], env={"LD_LIBRARY_PATH": str(self.folder)}, check=False)
            self.assertEqual(run.returncode, 0, "the older function, the variables' own values")
            needed = {symbol.version for symbol in stubs.symbols(self.folder / "user") if symbol.name == "changed"}
            self.assertEqual(needed, {"LIB_1.9"})

    def test_all_names_of_an_object_go_with_its_copy_in_a_program(self):
        stubs.write(self.library, self.stub, {"LIB": "1.9"}, "gcc")
        done = self.link("extern int shared_1; int read_shared(void);\n"
                         "int main(void) { shared_1 = 42; return read_shared() == 42 ? 0 : 1; }\n", "-no-pie", "-fno-pie")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = subprocess.run([self.folder / "user"], env={"LD_LIBRARY_PATH": str(self.folder)}, check=False)
        self.assertEqual(run.returncode, 0, "the library reads its own variable, not the program's copy")

    def test_versions_are_compared_by_their_numbers(self):
        floors = {"GLIBC": "2.28", "GLIBCXX": "3.4.24"}
        for version, old in (("GLIBC_2.2.5", True), ("GLIBC_2.28", True), ("GLIBC_2.29", False), ("GLIBC_2.3", True),
                             ("GLIBC_PRIVATE", False), ("GLIBCXX_3.4.24", True), ("GLIBCXX_3.4.9", True),
                             ("GLIBCXX_3.4.25", False), ("OTHER_1.0", False), ("", True)):
            self.assertEqual(stubs.is_old_enough(version, floors), old, version)

    def test_a_module_with_a_symbol_that_nothing_has_is_seen(self):
        (self.folder / "module.c").write_text("int missing(void), plain(void), PyObject_New(void), strlen(void);\n"
                                              "int f(void) { return missing() + plain() + PyObject_New() + strlen(); }\n")
        self.compile("-shared", "-fPIC", "-w", "module.c", "-o", "module.so")
        self.assertEqual(checks.unresolved(self.folder / "module.so", [self.library]), {"missing"})


class Processor(unittest.TestCase):
    own = platform.machine()
    other = next(name for name in debian.ARCHITECTURES if name != platform.machine())

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_binary_for_another_processor_is_named(self):
        package = self.folder / "package"
        package.mkdir()
        subprocess.run(["gcc", "-shared", "-nostdlib", "-x", "c", os.devnull, "-o", package / "lib.so"], check=True)
        for machine, error in ((self.own, None), (self.other, f"lib.so is not for {self.other}")):
            wheel = self.folder / f"tutti-1-cp311-cp311-manylinux_2_28_{machine}.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.write(package / "lib.so", "lib.so")
            if error is None:
                checks.check(wheel, package, machine, 28, [], {})
            else:
                with self.assertRaisesRegex(checks.Wrong, error):
                    checks.check(wheel, package, machine, 28, [], {})
        with self.assertRaisesRegex(checks.Wrong, f"is not for {self.own}"):
            checks.check(wheel, package, self.own, 28, [], {})

    def test_python_speaks_of_itself_as_that_of_the_processor(self):
        script = ("import json, sysconfig; print(json.dumps([*map(sysconfig.get_config_var, ('SOABI', 'EXT_SUFFIX', "
                  "'VERSION')), sysconfig.get_platform()]))")

        def told(**env):
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                                  env={**os.environ, **env})
            return json.loads(done.stdout)
        try:
            chain = toolchain.Toolchain(self.folder / "chain", self.other, 28, debian.MIRROR)
        except debian.Unavailable as error:
            self.skipTest(str(error))
        chain.folder.mkdir()
        own, other = told(), told(**chain.python_environment())
        self.assertNotEqual(own, other)
        self.assertEqual(other, [chain.soabi(own[0]), chain.soabi(own[1]), own[2], f"linux-{self.other}"])
        self.assertRegex(other[1], rf"-{self.other}-linux-gnu\.so$")


class Debian(unittest.TestCase):
    def test_a_mirror_that_does_not_answer_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(debian.Unavailable) as raised:
                debian.fetch(pathlib.Path(folder) / "apt", "x86_64", "http://127.0.0.1:9/debian", io.StringIO())
        self.assertRegex(str(raised.exception), r"apt-get update failed: .*127\.0\.0\.1|this machine has no|there is no")

    def test_wheels_for_this_system_alone_have_an_exit_status_of_their_own(self):
        script = runpy.run_path(str(TREE / "tools" / "wheels"))
        (TREE / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TREE / "build") as folder:
            raw = pathlib.Path(folder) / "tutti-1-cp311-cp311-linux_x86_64.whl"
            raw.touch()
            # The stand-in for the build returns at once.
            script["main"].__globals__.update(FOLDER=pathlib.Path(folder) / "wheels", build_wheel=lambda *_: raw)
            options = ["wheels", "--torch", "none", "--mirror", "http://127.0.0.1:9/debian"]
            with unittest.mock.patch.object(sys, "argv", options), \
                    contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
                status = script["main"]()
        self.assertEqual(status, script["NATIVE_ONLY"])
        self.assertIn("cannot build for glibc 2.28: ", out.getvalue())
        self.assertRegex(errors.getvalue(), r"this machine's glibc or a newer one, .*exit status 4. What to do: ")

    def test_a_processor_without_a_list_of_packages_is_named(self):
        with self.assertRaisesRegex(debian.Unavailable, "for riscv64, only for x86_64"):
            toolchain.Toolchain(pathlib.Path("nowhere"), "riscv64", 28, debian.MIRROR)


if __name__ == "__main__":
    unittest.main()
