"""`meson install` into an empty folder, then what a stranger would do with it: look, compile, link, run."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
BUILD = pathlib.Path(os.environ["TUTTI_BUILD"])
EXAMPLE = SOURCE / "examples" / "allreduce.c"
RUN_TIMEOUT_S = 60
unittest.TestCase.maxDiff = None


def run(*command, **more):
    # A communicator of the surrounding job, if there is one, is none of these programs' business.
    env = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
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
        cls.run_env = {"LD_LIBRARY_PATH": str(cls.libraries)}

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
        for path in [self.libraries / "libtutti.so.0", *(self.prefix / "bin").iterdir()]:
            self.assertNotRegex(self.ok("readelf", "-d", "-W", path), r"R(UN)?PATH", path.name)
        text = self.find("tutti.pc").read_text(encoding="utf-8")
        self.assertNotIn(str(BUILD), text)

    def test_only_the_c_api_is_exported(self):
        self.assertEqual({name for name in self.exported() if not name.startswith("tutti_")}, set())

    def test_all_of_the_c_api_is_exported(self):
        self.assertGreater(len(self.declared()), 30)
        self.assertEqual(self.declared() - self.exported(), set(), "declared in tutti.h, not exported")

    def test_nothing_is_exported_that_the_header_does_not_declare(self):
        self.assertEqual(self.exported() - self.declared(), set())

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
        self.ok(program, env=self.run_env | {"TUTTI_RANK": "0", "TUTTI_SIZE": "1"})
        self.ok(self.prefix / "bin" / "tutti-run", "-n", "2", program, env=self.run_env)

    def test_a_c_program_links_with_the_shared_library_and_runs(self):
        program = self.compile_example("example_shared", self.pkg_config("--libs"))
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
            if path.name != "tutti.h":
                declared |= self.declared(path.name)
        self.assertGreater(len(declared), 30)
        self.assertEqual(self.exported("libtutti_trainer.so.0"), declared)

    def test_a_c_program_links_with_the_trainer_library_and_runs(self):
        pc = self.find("tutti-trainer.pc")
        pc.write_text(re.sub(r"(?m)^prefix=.*$", f"prefix={self.prefix}", pc.read_text(encoding="utf-8")),
                      encoding="utf-8")
        flags = shlex.split(self.ok("pkg-config", "--cflags", "--libs", "tutti-trainer", env=self.pkgconfig_env))
        source, program = self.work / "trainer.c", self.work / "trainer"
        source.write_text("#include <tutti/trainer.h>\n#include <string.h>\n"
                          "int main(void) {\n"
                          "    tutti_trainer* trainer = NULL;\n"
                          "    tutti_parallelize_spec spec = TUTTI_PARALLELIZE_INIT;\n"
                          "    if (tutti_parallelize(&spec, &trainer) != TUTTI_ERR_INVALID) return 1;\n"
                          "    return strstr(tutti_trainer_last_error(), \"devices\") == NULL;\n"
                          "}\n", encoding="utf-8")
        self.ok(*shlex.split(os.environ["TUTTI_CC"]), "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", program,
                source, *flags)
        self.ok(program, env=self.run_env)

    def test_the_programs_run_from_where_they_are_installed(self):
        programs = {p.name for p in (self.prefix / "bin").iterdir()}
        self.assertLessEqual({"tutti-run", "tutti-bench"}, programs)
        for program in programs:
            self.assertIn("--version", self.ok(self.prefix / "bin" / program, "--help", env=self.run_env))
            self.assertEqual(self.ok(self.prefix / "bin" / program, "--version", env=self.run_env).strip(),
                             self.version)


if __name__ == "__main__":
    unittest.main()
