"""Checks of a finished wheel: its tag, its processor, and that each symbol without a version has a library."""
import pathlib
import re
import zipfile

from . import backends, debian, stubs
from .toolchain import manylinux


class Wrong(Exception):
    """The wheel would not work everywhere that its tag says; the text names the binary and the reason."""


def binaries(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()
            and path.read_bytes()[:4] == manylinux.ELF]


def unresolved(binary: pathlib.Path, libraries: list[pathlib.Path]) -> set[str]:
    """The symbols without a version that no library has without one. A module takes Python's from the interpreter.

    A module may leave symbols open, so its linker does not complain about a symbol that the stubs lack. It leaves the
    symbol without a version.
    """
    wanted = {symbol.name for symbol in stubs.symbols(binary)
              if not symbol.defined and not symbol.weak and not symbol.version and not re.match(r"_?Py", symbol.name)}
    for library in libraries:
        if not wanted:
            break
        wanted -= {symbol.name for symbol in stubs.symbols(library) if symbol.defined and not symbol.version}
    return wanted


def processor(binary: pathlib.Path) -> int:
    """The number of the processor in an ELF file."""
    with open(binary, "rb") as file:
        return int.from_bytes(file.read(20)[18:], "little")


def check(wheel: pathlib.Path, folder: pathlib.Path, machine: str, floor: int, system: list[pathlib.Path],
          torches: dict[str, pathlib.Path]) -> None:
    """Compares the wheel, unpacked in the folder, with the floor. `torches`: folders of libraries by torch's minor."""
    if not re.search(rf"_{machine}\.whl$", wheel.name):
        raise Wrong(f"{wheel.name} is not for {machine}")
    with zipfile.ZipFile(wheel) as archive:
        try:
            glibc = manylinux.glibc_of(archive)
        except manylinux.NotPortable as error:
            raise Wrong(f"{wheel.name}: {error}") from error
    if glibc > floor:
        raise Wrong(f"{wheel.name} needs glibc 2.{glibc}, which is newer than 2.{floor}")
    found = binaries(folder)
    for binary in found:
        if processor(binary) != debian.ARCHITECTURES[machine].elf:
            raise Wrong(f"{binary.relative_to(folder)} is not for {machine}")
        libraries = [other for other in found if other != binary] + system
        if backends.FOLDER in binary.as_posix():
            torch = torches[binary.stem.removeprefix("torch-")]
            libraries = libraries + [torch / "torch/lib" / name for name in backends.LIBRARIES]
        if missing := unresolved(binary, libraries):
            raise Wrong(f"{binary.relative_to(folder)} needs symbols that glibc 2.{floor} and its libstdc++ lack: "
                        f"{', '.join(sorted(missing)[:5])}")
