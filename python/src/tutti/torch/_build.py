"""Loads the backend for the installed torch: one that the wheel has precompiled, or one that is compiled here, once."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

import torch

from .._errors import with_advice
from .._paths import INCLUDE, LIBRARY
from . import _recipe
from ._recipe import NAME, OPTIONS

SOURCES = pathlib.Path(__file__).resolve().parent / "csrc"
PREBUILT = SOURCES.parent / "prebuilt"
COMPILERS = ("c++", "g++", "clang++")
TAIL_LINES = 30
SCRATCH = "scratch-"
NO_ROOM = ("No space left on device", "Disk quota exceeded")
# The 64-bit ELF header: e_shoff, e_shentsize and e_shnum. Linkers put the section header table last in the file.
ELF_HEADER = struct.Struct("=40sQ10xHH")


class BuildError(ImportError):
    """The backend could not be compiled or loaded; the text says why and what to do."""


def _compiler() -> list[str]:
    if given := os.environ.get("CXX"):
        words = shlex.split(given)
        if not words or shutil.which(words[0]) is None:
            raise BuildError(with_advice(f"tutti.torch has to be compiled once for torch {torch.__version__}, but the "
                                         f"compiler that CXX names ({given!r}) was not found",
                                         "install it, set CXX to another C++20 compiler, or unset CXX"))
        return words
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise BuildError(with_advice(f"tutti.torch has to be compiled once for torch {torch.__version__}, but there is no "
                                 f"C++ compiler here (looked for {', '.join(COMPILERS)})",
                                 "install one, for example with 'apt-get install g++', or set CXX to one"))


def _flags() -> list[str]:
    root = pathlib.Path(torch.__file__).resolve().parent
    include = root / "include"
    python = sysconfig.get_paths()["include"]
    for header, owner, advice in ((include / "torch/csrc/distributed/c10d/Backend.hpp", "torch", "reinstall torch"),
                                  (pathlib.Path(python) / "Python.h", "python",
                                   "install them (Debian: apt-get install python3-dev)"),
                                  (INCLUDE / "tutti/tutti.h", "tutti", "reinstall tutti")):
        if not header.is_file():
            raise BuildError(with_advice(f"tutti.torch has to be compiled once, but the headers of {owner} are "
                                         f"missing: there is no {header}",
                                         f"{advice}"))
    flags = _recipe.flags(cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI, torch=include, python=python, sources=SOURCES,
                          tutti=INCLUDE)
    # pybind11 of older versions of torch shares its types only between modules that agree on these.
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        if value := getattr(torch._C, f"_PYBIND11_{name}", None):
            flags.append(f'-DPYBIND11_{name}="{value}"')
    link = [f"-L{root / 'lib'}", *_recipe.LIBRARIES, f"-L{LIBRARY}", "-ltutti",
            f"-Wl,-rpath,{LIBRARY}", f"-Wl,-rpath,{root / 'lib'}"]
    return flags + ["{source}", "-o", "{target}"] + link


def _identity() -> str:
    """Returns a hash of everything that a compiled backend depends on; it is part of the file's path."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*")) + sorted((INCLUDE / "tutti").glob("*.h")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    facts = [*OPTIONS, torch.__version__, str(torch.version.git_version), str(torch._C._GLIBCXX_USE_CXX11_ABI),
             sysconfig.get_config_var("SOABI") or sys.version, str(LIBRARY), str(pathlib.Path(torch.__file__))]
    digest.update("\0".join(facts).encode())
    return digest.hexdigest()[:16]


def _folders() -> list[pathlib.Path]:
    """The folders to look in, with links resolved: the checks and the loader see the same folder."""
    if given := os.environ.get("TUTTI_CACHE_DIR"):
        return [pathlib.Path(given).resolve()]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [(pathlib.Path(home) / "tutti").resolve(),
            (pathlib.Path(tempfile.gettempdir()) / f"tutti-{os.getuid()}").resolve()]


def _is_trusted(path: pathlib.Path) -> bool:
    """Whether only this user, root and the owner of this package can write there, because its files run as code."""
    status = path.stat()
    return status.st_uid in {os.getuid(), 0, SOURCES.stat().st_uid} and not status.st_mode & 0o022


def _is_held(folder: pathlib.Path) -> bool:
    """Whether other users cannot replace the folder; in a sticky folder such as /tmp each user owns their own."""
    modes = [parent.stat().st_mode for parent in folder.parents]
    return all(mode & stat.S_ISVTX or not mode & stat.S_IWOTH for mode in modes)


def _make(folder: pathlib.Path) -> None:
    """Makes a folder that all users can read and its owner write to, for any umask; an existing one is unchanged."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            folder.chmod(0o755)


def _is_executable(folder: pathlib.Path) -> bool:
    """Whether the system loads libraries from there."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def _cache() -> pathlib.Path:
    """The folder to build in."""
    problems = []
    for folder in _folders():
        try:
            _make(folder)
            if not (_is_trusted(folder) and _is_held(folder)):
                problems.append(f"{folder} belongs to or can be written by another user")
            elif not os.access(folder, os.W_OK | os.X_OK):
                problems.append(f"{folder} cannot be written to")
            elif not _is_executable(folder):
                problems.append(f"{folder} is on a file system that is mounted noexec")
            else:
                return folder
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
    raise BuildError(with_advice("tutti.torch found no folder for its compiled backend: " + "; ".join(problems),
                                 "set TUTTI_CACHE_DIR to a folder that only you can write to"))


def _is_built(path: pathlib.Path) -> bool:
    """Whether the backend exists and every folder of its path is trusted."""
    with contextlib.suppress(OSError):
        folder = path.parent.parent
        trusted = all(_is_trusted(part) for part in (path, path.parent, folder)) and _is_held(folder)
        return trusted and _is_executable(folder) and not _lacks(path)
    return False


def _lacks(path: pathlib.Path) -> int:
    """Returns how many bytes a truncated library lacks of its ELF header's size: loading it would kill the process."""
    with open(path, "rb") as file:
        header = file.read(ELF_HEADER.size)
        size = file.seek(0, os.SEEK_END)
    if len(header) < ELF_HEADER.size or not header.startswith(b"\x7fELF"):
        return 0  # not such a file: the loader will refuse it
    _, start, entry_bytes, entries = ELF_HEADER.unpack(header)
    return max(0, start + entry_bytes * entries - size)


@functools.lru_cache(maxsize=None)
def target() -> pathlib.Path:
    """Returns the path of the backend that is compiled here, built or not. It may be on a read-only file system."""
    place = pathlib.Path(f"torch-{torch.__version__.replace('+', '-')}-{_identity()}") / f"{NAME}.so"
    for folder in _folders():
        if _is_built(folder / place):
            return folder / place
    return _cache() / place


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _progress(text: str):
    """Shows progress: on a terminal a line that counts the seconds; else one line."""
    if not sys.stderr.isatty():
        _say(text)
        yield
        return
    began, over = time.monotonic(), threading.Event()

    def count() -> None:
        while not over.wait(1.0):
            _say(f"\r{text} {time.monotonic() - began:.0f} s", end="")

    _say(text, end="")
    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        over.set()
        counter.join()
        _say(f"\r{text} {time.monotonic() - began:.0f} s")


@contextlib.contextmanager
def _locked(folder: pathlib.Path):
    """A lock for one process at a time. The system releases a dead process's lock; other users cannot open the file."""
    with open(folder / "lock", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _progress("tutti: waiting for another process that builds the backend"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _why(done: subprocess.CompletedProcess, folder: pathlib.Path) -> str | None:
    """The reason why the compiler failed, if it is not in the source."""
    text = done.stdout + done.stderr
    for sign in NO_ROOM:
        if sign in text:
            return with_advice(f"{sign}: {folder}, or {tempfile.gettempdir()}, where compilers keep their own files, "
                               "is full",
                               "free space there, or name other folders with TUTTI_CACHE_DIR and TMPDIR")
    if done.returncode < 0 or re.search(r"Killed signal|terminated with signal 9|\bKilled\b", text):
        return with_advice("the compiler was killed, most likely for lack of memory",
                           "give it about 2 GiB, or compile on another machine with the same torch")
    return None


def _clean(folder: pathlib.Path) -> None:
    """Removes files of killed builds. The caller holds the lock, so that no build is running."""
    for left in (*folder.glob(SCRATCH + "*"), *folder.glob("tmp*")):
        shutil.rmtree(left, ignore_errors=True)


def _compile(path: pathlib.Path) -> None:
    compiler, flags = _compiler(), _flags()
    _clean(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=SCRATCH) as scratch:
        unit, built = pathlib.Path(scratch) / "unit.cpp", pathlib.Path(scratch) / path.name
        unit.write_text(_recipe.unit(SOURCES))
        command = compiler + [word.format(source=unit, target=built) if word in ("{source}", "{target}") else word
                              for word in flags]
        with _progress(f"tutti: building the backend for torch {torch.__version__} (once, about a minute) …"):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = path.parent / "build.log"
            with contextlib.suppress(OSError):  # the disk may be full
                log.write_text(shlex.join(command) + "\n" + done.stdout + done.stderr)
            if why := _why(done, path.parent):
                raise BuildError(f"tutti.torch could not be compiled for torch {torch.__version__}: {why}")
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise BuildError(with_advice(
                f"tutti.torch could not be compiled for torch {torch.__version__} with {compiler[0]}:\n"
                + "\n".join(errors[:TAIL_LINES]) + f"\nThe whole log is in {log}",
                "use a compiler that knows C++20 (GCC 11, Clang 14 or newer; CXX names it)"))
        if missing := _lacks(built):
            raise BuildError(with_advice(f"tutti.torch was compiled for torch {torch.__version__}, but the last "
                                         f"{missing} bytes of the library are missing",
                                         f"free space in {path.parent}, or name another folder with TUTTI_CACHE_DIR"))
        built.chmod(0o755)  # the linker applies the umask
        with open(built, "rb") as file:
            os.fsync(file)  # after a crash of the machine, the file is complete or missing
        os.replace(built, path)


def _import(path: pathlib.Path):
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def prebuilt() -> pathlib.Path | None:
    """Returns the wheel's precompiled backend for this torch and this Python; None if it has none."""
    if os.environ.get("TUTTI_TORCH_BUILD", "0") not in ("", "0"):
        return None
    try:
        manifest = json.loads((PREBUILT / "manifest.json").read_text(encoding="utf-8"))
        here = _recipe.Torch(torch.__version__, bool(torch._C._GLIBCXX_USE_CXX11_ABI),
                             sysconfig.get_config_var("SOABI") or "",
                             _recipe.headers_digest(pathlib.Path(torch.__file__).resolve().parent / "include"))
        file = _recipe.fitting(manifest, here)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a wheel without precompiled backends, or a torch without headers
    return PREBUILT / file if file else None


def _build(path: pathlib.Path) -> None:
    _make(path.parent)
    if not _is_trusted(path.parent):
        raise BuildError(with_advice(f"{path.parent}, the folder of the compiled backend, belongs to or can be "
                                     "written by another user",
                                     "remove it, or name another folder with TUTTI_CACHE_DIR"))
    with _locked(path.parent):
        if not _is_built(path):
            _compile(path)


def load():
    """The backend as a module. A precompiled one that does not load is replaced by one that is compiled here."""
    if path := prebuilt():
        try:
            return _import(path)
        except ImportError as error:
            _say(f"tutti: the wheel's backend for torch {torch.__version__} cannot be loaded, and another one is "
                 f"compiled instead: {error}")
    path = target()
    try:
        if not _is_built(path):
            _build(path)
    except OSError as error:
        raise BuildError(with_advice(f"tutti.torch cannot be built in {path.parent}: {error}",
                                     "name another folder with TUTTI_CACHE_DIR")) from error
    try:
        return _import(path)
    except ImportError as error:
        raise BuildError(with_advice(f"tutti.torch was compiled for torch {torch.__version__} and cannot be loaded: "
                                     f"{error}",
                                     f"remove {path.parent} and start again, if torch or the compiler "
                                     "changed since")) from error
