"""`meson install` into an empty folder, then what a stranger would do with it: look, compile, link, run."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
BUILD = pathlib.Path(os.environ["TUTTI_BUILD"])
CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
LOADER_PATH = SOURCE / "packaging" / "loader-path"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "test" / "docs"))
from blocks import blocks  # noqa: E402
EXAMPLE = SOURCE / "examples" / "allreduce.c"
RUN_TIMEOUT_S = 60
CORE = ("tutti.h", "plans.h", "recovery.h", "inspect.h")  # the headers of libtutti; all others are of libtutti_trainer
unittest.TestCase.maxDiff = None


def run(*command, **more):
    # A communicator of the surrounding job, if there is one, is none of these programs' business.
    env = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_") and k != "LD_LIBRARY_PATH"}
    env.update(more.pop("env", {}))
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False,
                          timeout=RUN_TIMEOUT_S * 2, env=env, stdin=subprocess.DEVNULL, **more)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        done = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder / "root")
        if done.returncode != 0:
            raise AssertionError("meson install failed:\n" + done.stdout[-2000:] + done.stderr[-2000:])
        cls.version = re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text(encoding="utf-8")).group(1)
        headers = list((folder / "root").rglob("tutti.h"))
        if len(headers) != 1:
            raise AssertionError(f"tutti.h is installed {len(headers)} times, not once")
        cls.prefix = headers[0].parents[2]
        cls.libraries = cls.find("libtutti.a").parent
        cls.work = folder / "work"
        cls.work.mkdir()
        # Moved to where it lies, as a package manager's build root would be.
        pc = cls.find("tutti.pc")
        pc.write_text(re.sub(r"(?m)^prefix=.*$", f"prefix={cls.prefix}", pc.read_text(encoding="utf-8")),
                      encoding="utf-8")
        cls.pkgconfig_env = {"PKG_CONFIG_PATH": str(pc.parent)}
        # In /usr, which the dynamic loader searches, programs have no path of their own.
        system = cls.prefix == folder / "root" / "usr"
        cls.run_env = {"LD_LIBRARY_PATH": str(cls.libraries)} if system else {}

    @classmethod
    def find(cls, name):
        found = list(cls.prefix.rglob(name))
        if len(found) != 1:
            raise AssertionError(f"{name} is installed {len(found)} times, not once")
        return found[0]

    def ok(self, *command, **more):
        done = run(*command, **more)
        self.assertEqual(done.returncode, 0,
                         f"{shlex.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def pkg_config(self, *arguments):
        return shlex.split(self.ok("pkg-config", *arguments, "tutti", env=self.pkgconfig_env))

    def declared(self, header="tutti.h"):
        text = (self.prefix / "include" / "tutti" / header).read_text(encoding="utf-8")
        return set(re.findall(r"(?m)^TUTTI_API[^;(]*?\b(tutti_\w+)\(", text))

    def declared_of_core(self):
        return set().union(*map(self.declared, CORE))

    def exported(self, library="libtutti.so.0"):
        lines = self.ok("nm", "-D", "--defined-only", self.libraries / library).splitlines()
        return {line.split()[-1].split("@")[0] for line in lines if line.strip()}

    def test_the_headers_are_there(self):
        installed = {p.name for p in (self.prefix / "include" / "tutti").iterdir()}
        self.assertEqual(installed, {p.name for p in (SOURCE / "include" / "tutti").glob("*.h*")})

    def test_only_the_public_headers_are_there(self):
        self.assertEqual([p.name for p in (self.prefix / "include").iterdir()], ["tutti"])

    def test_the_shared_library_has_its_soname_and_links(self):
        dynamic = self.ok("readelf", "-d", "-W", self.libraries / "libtutti.so.0")
        self.assertRegex(dynamic, r"SONAME.*\[libtutti\.so\.0\]")
        real = (self.libraries / "libtutti.so.0").resolve()
        self.assertRegex(real.name, r"^libtutti\.so\.0\.\d+\.\d+$")
        for link in ("libtutti.so", "libtutti.so.0"):
            self.assertTrue((self.libraries / link).is_symlink(), link)
            self.assertEqual((self.libraries / link).resolve(), real)

    def test_nothing_installed_names_the_build_folder(self):
        for path in [*self.libraries.glob("*.so.0"), *(self.prefix / "bin").iterdir()]:
            for rpath in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", self.ok("readelf", "-d", "-W", path)):
                self.assertRegex(rpath, r"^\$ORIGIN(/[^:]*)?$", path.name)
        texts = [self.find("tutti.pc"), *self.libraries.rglob("*.cmake")]
        self.assertEqual([path.name for path in texts if str(BUILD) in path.read_text(encoding="utf-8")], [])

    def test_only_the_c_api_is_exported(self):
        self.assertEqual({name for name in self.exported() if not name.startswith("tutti_")}, set())

    def test_all_of_the_c_api_is_exported(self):
        self.assertGreater(len(self.declared()), 30)
        self.assertEqual(self.declared_of_core() - self.exported(), set(), "declared, not exported")

    def test_nothing_is_exported_that_the_header_does_not_declare(self):
        self.assertEqual(self.exported() - self.declared_of_core(), set())

    def test_pkg_config_knows_it(self):
        self.assertEqual(self.ok("pkg-config", "--modversion", "tutti", env=self.pkgconfig_env).strip(), self.version)
        self.assertIn(f"-I{self.prefix / 'include'}", self.pkg_config("--cflags"))
        self.assertIn("-ltutti", self.pkg_config("--libs"))

    def test_the_shared_library_asks_its_users_for_no_other_package_and_no_flags_of_one(self):
        known = self.work / "pkgconfig"  # where pkg-config looks at all: what tutti is made of is not there
        known.mkdir()
        for name in ("tutti.pc", "tutti-trainer.pc"):
            shutil.copy(self.find(name), known)
        for name, libraries in (("tutti", {"-ltutti"}), ("tutti-trainer", {"-ltutti", "-ltutti_trainer"})):
            flags = shlex.split(self.ok("pkg-config", "--cflags", "--libs", name,
                                        env={"PKG_CONFIG_LIBDIR": str(known), "PKG_CONFIG_PATH": ""}))
            self.assertEqual({f for f in flags if not f.startswith(("-I", "-L"))}, libraries, name)

    def compile_example(self, name, flags):
        program = self.work / name
        self.ok(*shlex.split(os.environ["TUTTI_CC"]), "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program,
                EXAMPLE, *self.pkg_config("--cflags"), *flags)
        return program

    def run_example(self, program):
        self.ok(program, env={"TUTTI_RANK": "0", "TUTTI_SIZE": "1"})
        self.ok(self.prefix / "bin" / "tutti-run", "-n", "2", program)

    def test_a_c_program_links_with_the_shared_library_and_runs(self):
        folder, = self.pkg_config("--variable=libdir")
        program = self.compile_example("example_shared", [*self.pkg_config("--libs"), f"-Wl,-rpath,{folder}"])
        self.assertIn("libtutti.so.0", self.ok("readelf", "-d", "-W", program))
        self.run_example(program)

    def test_a_c_program_links_with_the_static_library_and_runs(self):
        # The linker takes the archive for -ltutti only if the folder has no shared library of that name.
        alone = self.work / "static"
        alone.mkdir()
        shutil.copy(self.libraries / "libtutti.a", alone)
        flags = [f for f in self.pkg_config("--static", "--libs") if f != f"-L{self.libraries}"]
        program = self.compile_example("example_static", [f"-L{alone}", *flags])
        self.assertNotIn("libtutti", self.ok("readelf", "-d", "-W", program))
        self.run_example(program)

    def test_the_trainer_library_exports_what_its_header_declares(self):
        declared = set()
        for path in (self.prefix / "include" / "tutti").glob("*.h"):
            if path.name not in CORE:
                declared |= self.declared(path.name)
        self.assertGreater(len(declared), 30)
        self.assertEqual(self.exported("libtutti_trainer.so.0"), declared)

    def test_a_c_program_links_with_the_trainer_library_and_runs(self):
        pc = self.find("tutti-trainer.pc")
        pc.write_text(re.sub(r"(?m)^prefix=.*$", f"prefix={self.prefix}", pc.read_text(encoding="utf-8")),
                      encoding="utf-8")
        flags = shlex.split(self.ok("pkg-config", "--cflags", "--libs", "tutti-trainer", env=self.pkgconfig_env))
        program = self.work / "trainer"
        self.ok(*shlex.split(os.environ["TUTTI_CC"]), "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program,
                CONSUMER / "trainer.c", *flags)
        self.ok(program, env={"LD_LIBRARY_PATH": str(self.libraries)})

    def test_the_programs_run_from_where_they_are_installed(self):
        programs = {p.name for p in (self.prefix / "bin").iterdir()}
        self.assertLessEqual({"tutti-run", "tutti-bench"}, programs)
        for program in programs:
            self.assertIn("--version", self.ok(self.prefix / "bin" / program, "--help", env=self.run_env))
            self.assertEqual(self.ok(self.prefix / "bin" / program, "--version", env=self.run_env).strip(),
                             self.version)
        self.assertIn("shm", self.ok(self.prefix / "bin" / "tutti-info", "transports"))
        self.ok(self.prefix / "bin" / "tutti-run", "-n", "2", self.prefix / "bin" / "tutti-bench", "barrier", "-n", "3",
                env=self.run_env)

    def moved(self, name, *left_out):
        """A second installation of the same files in another prefix."""
        prefix = self.work / name
        shutil.copytree(self.prefix, prefix, symlinks=True, copy_function=os.link,
                        ignore=shutil.ignore_patterns(*left_out))
        return prefix

    def configure(self, name, prefix, version=None, components="trainer", project=CONSUMER):
        if not shutil.which("cmake"):
            self.skipTest("cmake is missing: tools/setup --tests installs it")
        compiler = shlex.split(os.environ["TUTTI_CC"])[-1]
        folder = self.work / f"cmake-{name}"
        version = version or self.version.rpartition(".")[0]
        return folder, run("cmake", "-S", project, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}",
                           f"-DEXAMPLE={EXAMPLE}", f"-DVERSION={version}", f"-DCOMPONENTS={components}",
                           f"-DCMAKE_C_COMPILER={compiler}", "--no-warn-unused-cli")

    def cmake(self, name, prefix):
        """Builds the consumer and runs its programs. Returns the names of the libraries that each program loads."""
        folder, done = self.configure(name, prefix)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"found tutti {self.version}", done.stdout)
        self.ok("cmake", "--build", folder)
        self.run_example(folder / "allreduce")
        needed = {}
        for program in ("allreduce", "trainer", "trainer_static"):
            if (folder / program).exists():
                self.ok(folder / program)
                dynamic = self.ok("readelf", "-d", "-W", folder / program)
                needed[program] = set(re.findall(r"NEEDED.*\[(libtutti\S*)\]", dynamic))
        return needed

    def test_a_cmake_project_links_with_the_shared_libraries_and_runs(self):
        needed = self.cmake("both", self.prefix)
        self.assertIn("libtutti_trainer.so.0", needed.pop("trainer"))
        self.assertEqual(needed, {"allreduce": {"libtutti.so.0"}, "trainer_static": set()})

    def test_a_cmake_project_finds_shared_libraries_alone_in_a_prefix_that_was_moved(self):
        self.assertEqual(set(self.cmake("shared", self.moved("shared", "*.a"))), {"allreduce", "trainer"})

    def test_a_cmake_project_finds_static_libraries_alone_in_a_prefix_that_was_moved(self):
        self.assertEqual(self.cmake("static", self.moved("only_static", "*.so*")),
                         {"allreduce": set(), "trainer": set(), "trainer_static": set()})

    def test_the_cmake_package_takes_requests_for_its_minor_version(self):
        major, minor, patch = map(int, self.version.split("."))
        for version, fits in ((f"{major}.{minor}", True), (self.version, True), (f"{major}.{minor + 1}", False),
                              (f"{major}.{minor}.{patch + 1}", False), (f"{major + 1}", False),
                              (f"{major}.{minor}...{major + 1}", True), (f"{major}.{minor + 1}...{major + 1}", False)):
            _, done = self.configure("version", self.prefix, version=version)
            self.assertEqual(done.returncode == 0, fits, version + done.stderr)

    def test_the_projects_of_the_documents_build_and_run(self):
        found = blocks("cmake")
        self.assertTrue(found)
        for number, block in enumerate(found):
            project = self.work / f"document-{number}"
            project.mkdir()
            shutil.copy(EXAMPLE, project)
            (project / "CMakeLists.txt").write_text(block.text, encoding="utf-8")
            folder, done = self.configure(project.name, self.prefix, project=project)
            self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}{done.stderr}")
            self.ok("cmake", "--build", folder)
            self.run_example(folder / "allreduce")

    def test_the_cmake_package_names_its_components(self):
        _, done = self.configure("component", self.prefix, components="mpi")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("components are: tutti, trainer", " ".join(done.stderr.split()))


class LoaderPath(unittest.TestCase):
    """The script that Meson runs after an installation, with an ldconfig and a user of this test."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.libraries = self.folder / "lib"
        self.libraries.mkdir()

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)

    def said(self, listed, user, **env):
        self.program("id", f"echo {user}\n")
        self.program("ldconfig", f'[ $# -gt 0 ] || {{ touch "{self.folder}/cached"; exit; }}\n'
                                 f'printf "/usr/lib: (from <builtin>:0)\\n{listed}: (from x:1)\\n\\tlibc.so.6\\n"\n')
        done = run(LOADER_PATH, self.libraries, env={"PATH": f"{self.folder}/bin:{os.environ['PATH']}"} | env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout, (self.folder / "cached").exists()

    def test_root_has_the_libraries_of_a_listed_folder_added_to_the_cache(self):
        link = self.folder / "link"
        link.symlink_to(self.libraries)
        text, cached = self.said(listed=link, user=0)
        self.assertTrue(cached)
        self.assertRegex(text, r"^tutti: ldconfig has added \S+/lib to .* cache\n$")

    def test_another_user_is_told_to_run_ldconfig(self):
        text, cached = self.said(listed=self.libraries, user=1000)
        self.assertFalse(cached)
        self.assertRegex(text, r"^tutti: [^\n]*: sudo ldconfig\n$")

    def test_one_line_says_what_to_set_for_a_folder_that_the_loader_does_not_search(self):
        text, cached = self.said(listed="/nowhere", user=0)
        self.assertFalse(cached)
        self.assertRegex(text, rf"^tutti: [^\n]*LD_LIBRARY_PATH={self.libraries} [^\n]*-Wl,-rpath,{self.libraries}\n$")

    def test_meson_shows_the_line(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "meson.build").write_text(f"project('installed')\nmeson.add_install_script('{LOADER_PATH}', "
                                             f"'{self.libraries}')\n", encoding="utf-8")
        done = run("meson", "setup", f"--prefix={self.folder}", project / "build", project)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = run("meson", "install", "-C", project / "build", "--no-rebuild")
        self.assertIn(f"LD_LIBRARY_PATH={self.libraries}", done.stdout, done.stderr)

    def test_the_script_is_silent_if_the_path_is_set_or_meson_is_quiet(self):
        self.assertEqual(self.said("/nowhere", 1000, LD_LIBRARY_PATH=f"/usr/lib:{self.libraries}"), ("", False))
        self.assertEqual(self.said("/nowhere", 1000, MESON_INSTALL_QUIET="1"), ("", False))


if __name__ == "__main__":
    unittest.main()
