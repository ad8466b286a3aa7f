"""The choice among precompiled backends, without torch: a package of the same files and a stand-in for torch."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python" / "src" / "tutti"


def load_recipe():
    spec = importlib.util.spec_from_file_location("_recipe", PACKAGE / "torch" / "_recipe.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = load_recipe()
HERE = recipe.Torch("2.15.0+cu132", True, sysconfig.get_config_var("SOABI"), "digest")


def write_headers(include):
    for number, name in enumerate(recipe.HEADERS):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(f"header {number}\n")


class Fitting(unittest.TestCase):
    manifest = {"backends": [recipe.entry("a/torch-2.14.so", HERE._replace(version="2.14.1")),
                             recipe.entry("a/torch-2.15.so", HERE)]}

    def test_the_same_torch_and_its_patch_releases_and_variants_have_a_backend(self):
        for version in ("2.15.0+cu132", "2.15.0", "2.15.3+cpu"):
            self.assertEqual(recipe.fitting(self.manifest, HERE._replace(version=version)), "a/torch-2.15.so", version)
        self.assertEqual(recipe.fitting(self.manifest, HERE._replace(version="2.14.0")), "a/torch-2.14.so")

    def test_each_fact_that_differs_refuses_it(self):
        for other in ({"version": "2.16.0"}, {"version": "2.1.5"}, {"version": "2.150.0"}, {"cxx11_abi": False},
                      {"soabi": "cpython-312-x86_64-linux-gnu"}, {"headers": "of a distributor"}):
            self.assertIsNone(recipe.fitting(self.manifest, HERE._replace(**other)), other)

    def test_each_header_changes_the_digest(self):
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder)
            write_headers(include)
            digests = {recipe.headers_digest(include)}
            for name in recipe.HEADERS:
                before = (include / name).read_text()
                (include / name).write_text(before + "// changed\n")
                digests.add(recipe.headers_digest(include))
                (include / name).write_text(before)
            self.assertEqual(len(digests), 1 + len(recipe.HEADERS))
            (include / recipe.HEADERS[0]).unlink()
            with self.assertRaises(OSError):
                recipe.headers_digest(include)


class Chosen(unittest.TestCase):
    """_build.py itself, in a package without the library."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.package = self.folder / "tutti" / "torch"
        (self.package / "csrc").mkdir(parents=True)
        (self.folder / "tutti/include/tutti").mkdir(parents=True)
        (self.folder / "tutti/include/tutti/tutti.h").touch()
        for init in (self.folder / "tutti/__init__.py", self.package / "__init__.py"):
            init.touch()
        for name in ("_errors.py", "_paths.py"):
            shutil.copy(PACKAGE / name, self.folder / "tutti")
        for name in ("_build.py", "_recipe.py"):
            shutil.copy(PACKAGE / "torch" / name, self.package)
        torch = self.folder / "torch"
        write_headers(torch / "include")
        (torch / "__init__.py").write_text("import types\n__version__ = '2.15.0+cu132'\n"
                                           "version = types.SimpleNamespace(git_version='abc')\n"
                                           "_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)\n")
        self.file = f"{HERE.soabi}/torch-2.15.so"
        self.prebuilt = self.package / "prebuilt"
        (self.prebuilt / HERE.soabi).mkdir(parents=True)
        self.facts = HERE._replace(headers=recipe.headers_digest(torch / "include"))
        self.write([recipe.entry(self.file, self.facts)])

    def write(self, entries):
        (self.prebuilt / "manifest.json").write_text(json.dumps({"backends": entries}))

    def run_python(self, script, **env):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1",
               "TUTTI_CACHE_DIR": str(self.folder / "cache"), "CXX": "no-such-compiler", **env}
        return subprocess.run([sys.executable, "-c", f"import tutti.torch._build as b\n{script}"], env=env,
                              capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)

    def chosen(self, **env):
        done = self.run_python("print(b.prebuilt())", **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_the_wheels_own_is_taken(self):
        self.assertEqual(self.chosen(), str(self.prebuilt / self.file))
        self.assertEqual(self.chosen(TUTTI_TORCH_BUILD="0"), str(self.prebuilt / self.file))

    def test_a_variable_forces_the_compiler(self):
        self.assertEqual(self.chosen(TUTTI_TORCH_BUILD="1"), "None")
        done = self.run_python("b.load()", TUTTI_TORCH_BUILD="1")
        self.assertIn("no-such-compiler", done.stderr)
        self.assertNotIn("cannot be loaded", done.stderr)

    def test_a_torch_with_another_header_is_compiled_for(self):
        header = self.folder / "torch/include" / recipe.HEADERS[-1]
        header.write_text("a distributor's\n")
        self.assertEqual(self.chosen(), "None")
        header.unlink()
        self.assertEqual(self.chosen(), "None")

    def test_another_torch_is_compiled_for(self):
        self.write([recipe.entry(self.file, self.facts._replace(version="2.14.1"))])
        self.assertEqual(self.chosen(), "None")

    def test_a_manifest_that_is_missing_or_damaged_is_no_error(self):
        for text in ("", "{", "[]", '{"backends": [{}]}', '{"backends": null}'):
            (self.prebuilt / "manifest.json").write_text(text)
            self.assertEqual(self.chosen(), "None", text)
        (self.prebuilt / "manifest.json").unlink()
        self.assertEqual(self.chosen(), "None")

    def test_one_that_does_not_load_is_named_and_compiled_instead(self):
        (self.prebuilt / self.file).write_text("no library" * 100)
        done = self.run_python("b.load()")
        self.assertRegex(done.stderr, r"tutti: the wheel's backend for torch 2\.15\.0\+cu132 cannot be loaded.*invalid ELF")
        self.assertIn("no-such-compiler", done.stderr)


if __name__ == "__main__":
    unittest.main()
