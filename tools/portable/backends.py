"""The precompiled backends of torch.distributed: fetches torch's headers and libraries, compiles, writes the manifest."""
import importlib.util
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing
import zipfile

sys.dont_write_bytecode = True
TREE = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = TREE / "python" / "src" / "tutti" / "torch"
SOURCES = PACKAGE / "csrc"
FOLDER = "tutti/torch/prebuilt"
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
# Modules share pybind11's types only if this name is the same in both.
PYBIND = re.compile(rb"__pybind11_internals_v[\w.]+")


def _load_recipe():
    spec = importlib.util.spec_from_file_location("_recipe", PACKAGE / "_recipe.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = _load_recipe()


class Failed(Exception):
    """No backend for this torch; the text says why."""


class Python(typing.NamedTuple):
    """An interpreter for which modules are compiled."""
    path: str
    version: tuple[int, int]
    include: str
    soabi: str

    @property
    def tag(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


def fetch_torch(version: str, machine: str, folder: pathlib.Path, pip: list[str], log) -> pathlib.Path:
    """Returns a folder with torch's `include` and `lib`. They are the same for every Python, which any wheel shows."""
    kept = folder / f"{version}-{machine}"
    if (kept / "complete").is_file():
        return kept
    shutil.rmtree(kept, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        done = subprocess.run([*pip, "download", "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
                               "--implementation", "cp", "--abi", "cp311", "--platform", f"manylinux_2_28_{machine}",
                               "--no-cache-dir", "--dest", scratch, f"torch=={version}"], stdout=log,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        wheels = list(pathlib.Path(scratch).glob("torch-*.whl"))
        if done.returncode != 0 or not wheels:
            raise Failed(f"pip could not download torch {version} for {machine}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wanted = [name for name in wheel.namelist() if name.startswith("torch/include/")
                      or name in {f"torch/lib/{library}" for library in LIBRARIES}]
            wheel.extractall(kept, wanted)
    (kept / "complete").touch()
    return kept


def _facts(version: str, python: Python, torch: pathlib.Path):
    library = (torch / "torch/lib/libc10.so").read_bytes()
    # The names of functions with strings say which of libstdc++'s two strings torch was compiled with.
    cxx11_abi = b"torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_string" in library
    return recipe.Torch(version, cxx11_abi, python.soabi, recipe.headers_digest(torch / "torch/include"))


def _pybind(library: pathlib.Path) -> set[bytes]:
    return set(PYBIND.findall(library.read_bytes()))


def compile_one(version: str, python: Python, torch: pathlib.Path, package: pathlib.Path, scratch: pathlib.Path,
                environment: dict[str, str], log) -> tuple[str, bytes, dict]:
    """Compiles the backend; returns its name in the wheel, its content and its entry of the manifest.

    `package` is the folder tutti of the unpacked wheel, with libtutti.so and tutti.h.
    """
    facts = _facts(version, python, torch)
    scratch.mkdir(parents=True, exist_ok=True)
    file = f"{python.soabi}/torch-{recipe.minor(version)}.so"
    source, compiled, linked = scratch / "unit.cpp", scratch / "unit.o", scratch / "backend.so"
    source.write_text(recipe.unit(SOURCES), encoding="utf-8")
    compiler = shlex.split(environment["CXX"])
    options = recipe.flags(cxx11_abi=facts.cxx11_abi, torch=torch / "torch/include", python=python.include,
                           sources=SOURCES, tutti=package / "include")
    link = [f"-L{torch / 'torch/lib'}", *recipe.LIBRARIES, f"-L{package / 'lib'}", "-ltutti",
            "-pthread", "-Wl,-rpath,$ORIGIN/../../../lib", "-s"]
    compile_options = [word for word in options if word != "-shared" and not word.startswith("-Wl,")]
    for command in ([*compiler, *compile_options, "-c", str(source), "-o", str(compiled)],
                    [*compiler, *options, str(compiled), "-o", str(linked), *link]):
        log.write(" ".join(command) + "\n")
        log.flush()
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                              env=environment)
        if done.returncode != 0:
            raise Failed(f"the backend for torch {version} and Python {python.tag} could not be compiled")
    ours, theirs = _pybind(linked), _pybind(torch / "torch/lib/libtorch_python.so")
    if not ours or not ours <= theirs:
        raise Failed(f"the backend for torch {version} would not share pybind11's types with it: {ours} and {theirs}")
    return f"{FOLDER}/{file}", linked.read_bytes(), recipe.entry(file, facts)


def manifest(entries: list[dict]) -> bytes:
    return (json.dumps({"backends": entries}, indent=1) + "\n").encode()
