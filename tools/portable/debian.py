"""The headers and libraries for portable wheels and for other processors: packages of Debian, unpacked into a folder.

This file alone decides where they come from. The C library is that of OLD, because its headers name no function that
came after glibc 2.31. The other libraries are those of NEW, the Debian on which tutti is developed. apt-get fetches
both with a configuration of its own: it checks the signatures, needs no root, and changes nothing on this machine.
"""
import os
import pathlib
import shutil
import subprocess
import typing

MIRROR = "http://deb.debian.org/debian"
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OLD, NEW = "bullseye", "bookworm"
PACKAGES = {
    OLD: ("libc6", "libc6-dev", "libgcc-s1", "libstdc++6", "linux-libc-dev", "zlib1g", "zlib1g-dev"),
    NEW: ("libcli11-dev", "libexpected-dev", "libfabric-dev", "libfmt-dev", "libhwy-dev", "libhwy1", "libspdlog-dev",
          "libssl-dev", "libucx-dev", "nlohmann-json3-dev"),
}
# Libraries for tools/cross. The C and C++ libraries come with the compiler for the other processor.
CROSS_PACKAGES = {
    NEW: ("catch2", "libcli11-dev", "libexpected-dev", "libfabric-dev", "libfmt-dev", "libfmt9", "libhwy-dev", "libhwy1",
          "libpng-dev", "libpng16-16", "libspdlog-dev", "libspdlog1.10", "libssl-dev", "libssl3", "libucx-dev",
          "nlohmann-json3-dev", "zlib1g", "zlib1g-dev"),
}
TIMEOUT_S = 300


class Architecture(typing.NamedTuple):
    """The facts of a processor that the tools need."""
    debian: str   # its name in Debian
    triplet: str  # its name in paths, and in the names of compilers
    loader: str   # the dynamic loader
    elf: int      # its number in ELF files


# By the names that Linux has for the processors.
ARCHITECTURES = {"x86_64": Architecture("amd64", "x86_64-linux-gnu", "ld-linux-x86-64.so.2", 62),
                 "aarch64": Architecture("arm64", "aarch64-linux-gnu", "ld-linux-aarch64.so.1", 183)}


class Unavailable(Exception):
    """The packages cannot be had; the text says why."""


def triplet(machine: str) -> str:
    return ARCHITECTURES[machine].triplet


def _settings(folder: pathlib.Path, machine: str) -> list[str]:
    """The options that keep apt-get inside the folder. Its network settings stay those of the machine."""
    values = {
        "Dir::State": folder / "state", "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
        "Dir::Log": folder / "log", "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": folder / "sources",
        "Dir::Etc::preferencesparts": "/dev/null", "Dir::Etc::preferences": "/dev/null",
        "APT::Architecture": ARCHITECTURES[machine].debian, "APT::Sandbox::User": "root", "Acquire::Languages": "none",
        "Acquire::AllowInsecureRepositories": "false", "APT::Get::AllowUnauthenticated": "false",
        "Acquire::Retries": "2",
    }
    words = [word for name, value in values.items() for word in ("-o", f"{name}={value}")]
    return words + ["-o", f"APT::Architectures::={ARCHITECTURES[machine].debian}"]


def _apt(folder: pathlib.Path, machine: str, log, *words: str) -> None:
    command = ["apt-get", *_settings(folder, machine), *words]
    try:
        done = subprocess.run(command, cwd=folder / "packages", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"apt-get {words[0]} took more than {TIMEOUT_S} s") from error
    log.write(done.stdout)
    log.flush()
    # apt-get update exits with 0 if it could fetch nothing; it says so in lines that begin with E: or W:.
    lines = [line for line in done.stdout.splitlines() if line.startswith(("E:", "W:"))]
    failed = [line for line in lines if line.startswith("E:") or "Failed to fetch" in line or "signature" in line]
    if done.returncode != 0 or failed:
        raise Unavailable(f"apt-get {words[0]} failed: " + "; ".join(failed or lines[-1:] or ["no reason given"]))


def fetch(folder: pathlib.Path, machine: str, mirror: str, log, packages=None) -> list[pathlib.Path]:
    """Downloads the packages of each suite (default: PACKAGES); returns the files in the order of the suites."""
    packages = packages or PACKAGES
    for program in ("apt-get", "dpkg-deb", "gpgv"):
        if shutil.which(program) is None:
            raise Unavailable(f"this machine has no {program}, which fetches, unpacks or checks Debian's packages")
    if not KEYRING.is_file():
        raise Unavailable(f"there is no {KEYRING}, with which signatures are checked (Debian: debian-archive-keyring)")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "log", "sources", "packages"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources" / "debian.sources").write_text(
        f"Types: deb\nURIs: {mirror}\nSuites: {' '.join(packages)}\nComponents: main\nSigned-By: {KEYRING}\n",
        encoding="utf-8")
    _apt(folder, machine, log, "update")
    found = []
    for suite, names in packages.items():
        _apt(folder, machine, log, "download", *(f"{name}/{suite}" for name in names))
        found += sorted(set((folder / "packages").glob("*.deb")) - set(found))
    return found


def unpack(packages: list[pathlib.Path], sysroot: pathlib.Path, log) -> None:
    """Makes a sysroot of the packages. Links become relative, so that none leads to this machine's own files."""
    shutil.rmtree(sysroot, ignore_errors=True)
    sysroot.mkdir(parents=True)
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", str(package), str(sysroot)], check=True, stdout=log,
                       stderr=subprocess.STDOUT)
    for path in list(sysroot.rglob("*")):
        if path.is_symlink() and os.path.isabs(goal := os.readlink(path)):
            path.unlink()
            path.symlink_to(os.path.relpath(f"{sysroot}{goal}", path.parent))
