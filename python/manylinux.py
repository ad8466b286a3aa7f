"""The platform tag of a wheel, by the needs of its binaries: manylinux_2_N is any system with glibc 2.N or newer.

A binary lists the versions of the C and C++ libraries' symbols that it needs. The wheel gets the tag of the oldest
glibc whose distributions have all of them (PEP 600). If a wheel needs a library that is neither in the wheel nor on
every such system, it keeps the tag of this machine, and the reason is printed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# PEP 600 lets a wheel use these libraries of the system. It also allows graphics libraries, which tutti does not need.
EVERYWHERE = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libatomic.so.1", "libc.so.6", "libdl.so.2",
              "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libstdc++.so.6",
              "libutil.so.1", "libz.so.1"}
# For other libraries' symbols: (newest version, the glibc 2.N whose oldest distributions have it), oldest first.
COMPANIONS = {
    "GLIBCXX": (("3.4.19", 17), ("3.4.22", 24), ("3.4.24", 27), ("3.4.28", 31), ("3.4.29", 34), ("3.4.30", 35),
                ("3.4.33", 39)),
    "CXXABI": (("1.3.7", 17), ("1.3.10", 24), ("1.3.11", 27), ("1.3.12", 31), ("1.3.13", 34), ("1.3.15", 39)),
    "GCC": (("4.8.0", 17), ("7.0.0", 27), ("12.0.0", 35), ("14.0.0", 39)),
    "ZLIB": (("1.2.5.2", 17), ("1.2.9", 27), ("1.2.12", 37)),
}
# Torch's libraries. The process has loaded them before it loads a backend that the wheel has precompiled for a torch.
TORCH = {"libc10.so", "libtorch_cpu.so", "libtorch_python.so"}
PRECOMPILED = "tutti/torch/prebuilt/"
# Features of glibc's loader that are listed like symbol versions, and the first glibc 2.N that has them.
LOADER = {"ABI_DT_RELR": 36}
OLDEST = 17
ELF = b"\x7fELF"


class NotPortable(Exception):
    """The text names the binary and the library or version that it needs."""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def glibc_for(symbol_version: str) -> int:
    """The N of the glibc 2.N that a symbol's version needs: GLIBC_2.34 → 34, GLIBCXX_3.4.30 → 35."""
    library, _, version = symbol_version.partition("_")
    numbered = re.fullmatch(r"\d+(\.\d+)*", version)
    if library == "GLIBC":
        if numbered:
            return max(OLDEST, _numbers(version)[1])
        if version in LOADER:
            return LOADER[version]
    elif not numbered:
        return OLDEST  # such as CXXABI_TM_1, as old as the library
    for newest, glibc in COMPANIONS.get(library, ()):
        if _numbers(version) <= _numbers(newest):
            return glibc
    raise NotPortable(f"it needs symbols of the unknown version {symbol_version}")


def newest(library: str, glibc: int) -> str:
    """The newest version of a library's symbols that every system with glibc 2.N has: GLIBCXX, 28 → 3.4.24."""
    return [version for version, first in COMPANIONS[library] if first <= glibc][-1]


def _needs(binary: pathlib.Path) -> tuple[set[str], set[str]]:
    """(libraries, versions of symbols) that a binary needs."""
    told = subprocess.run(["readelf", "--wide", "--dynamic", "--version-info", str(binary)], capture_output=True,
                          text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    libraries = set(re.findall(r"\(NEEDED\).*\[([^\]]+)\]", told))
    _, _, wanted = told.partition("Version needs section")
    return libraries, set(re.findall(r"Name: (\w+_[\w.]+)  Flags", wanted))


def glibc_of(wheel: zipfile.ZipFile) -> int:
    """The N of the oldest glibc 2.N that the wheel's binaries run with; NotPortable names what prevents it."""
    inside = {pathlib.PurePosixPath(name).name for name in wheel.namelist()}
    newest = OLDEST
    with tempfile.TemporaryDirectory() as folder:
        binary = pathlib.Path(folder) / "binary"
        for name in wheel.namelist():
            content = wheel.read(name)
            if not content.startswith(ELF):
                continue
            binary.write_bytes(content)
            libraries, versions = _needs(binary)
            allowed = EVERYWHERE | inside | (TORCH if name.startswith(PRECOMPILED) else set())
            for foreign in sorted(libraries - allowed):
                raise NotPortable(f"{name} needs {foreign}, which is neither in the wheel nor on every system")
            for version in sorted(versions):
                # Other versions belong to symbols between two libraries of the wheel.
                if version.startswith(("GLIBC_", *(f"{library}_" for library in COMPANIONS))):
                    newest = max(newest, glibc_for(version))
    return newest


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def _rewrite(old: zipfile.ZipFile, path: pathlib.Path, before: str, after: str, added: dict[str, bytes]) -> None:
    """Writes the wheel with another platform in its WHEEL file, more files, and the matching RECORD."""
    description = next(name for name in old.namelist() if name.endswith(".dist-info/WHEEL"))
    told = re.sub(rf"^(Tag: .*-){re.escape(before)}$", rf"\g<1>{after}", old.read(description).decode(), flags=re.M)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == description:
                content = told.encode()
            elif entry.filename.endswith(".dist-info/RECORD"):
                lines = [_record_line(description, told.encode()) if line.startswith(description + ",") else line
                         for line in content.decode().splitlines()]
                lines[-1:-1] = [_record_line(name, added[name]) for name in added]
                content = ("\n".join(lines) + "\n").encode()
            new.writestr(entry, content, compress_type=zipfile.ZIP_DEFLATED)
        for name, content in added.items():
            entry = zipfile.ZipInfo(name, old.getinfo(description).date_time)
            entry.external_attr = 0o100644 << 16  # its owner may write, everyone may read
            new.writestr(entry, content, compress_type=zipfile.ZIP_DEFLATED)


def add(path: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    """Adds files, by their names in the wheel, and gives it the tag that it has with them; returns its new path."""
    rest, _, platform = path.stem.rpartition("-")
    bare = "linux_" + re.sub(r"^(linux|manylinux_2_\d+)_", "", platform)
    whole = path.with_suffix(".new")
    with zipfile.ZipFile(path) as wheel:
        _rewrite(wheel, whole, platform, bare, files)
    path.unlink()
    return retag(whole.rename(path.with_name(f"{rest}-{bare}.whl")))


def retag(path: pathlib.Path) -> pathlib.Path:
    """Gives the wheel its tag; returns its new path."""
    before = path.stem.rsplit("-", 1)[1]
    if not before.startswith("linux_"):
        return path
    with zipfile.ZipFile(path) as wheel:
        try:
            after = f"manylinux_2_{glibc_of(wheel)}_{before.removeprefix('linux_')}"
        except (NotPortable, OSError, subprocess.CalledProcessError) as why:
            print(f"the wheel is for systems like this one only: {why}. What to do: install it on this system, or build "
                  "it on an older one", file=sys.stderr)
            return path
        renamed = path.with_name(f"{path.stem.rsplit('-', 1)[0]}-{after}.whl")
        _rewrite(wheel, renamed, before, after, {})
    path.unlink()
    return renamed
