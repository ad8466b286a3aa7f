"""Stubs of shared libraries, for linking only: they have the symbols that are old enough, and no code.

A program that is linked against stubs runs with every version of the library from that age on. If it needs a newer
symbol, the linker says so.
"""
import pathlib
import re
import subprocess
import typing

# Number, value, size, type, binding, visibility, on some processors a note, section, name and version.
ROW = re.compile(r"\s*\d+: ([0-9a-f]+) +(\w+) (\w+) +(\w+) +\w+ +(?:\[[^\]]*\] +)?(\w+) ([^\s@]+)(@{0,2})(\S*)")
KINDS = {"FUNC": "function", "IFUNC": "function", "OBJECT": "object", "TLS": "tls_object"}
SECTIONS = {"function": ".text", "object": ".data", "tls_object": '.section .tbss,"awT",@nobits'}


class Symbol(typing.NamedTuple):
    name: str
    version: str  # "" if it has none
    kind: str
    bytes: int
    address: int
    defined: bool
    weak: bool


def symbols(library: pathlib.Path) -> list[Symbol]:
    """The dynamic symbols of a library or program."""
    told = subprocess.run(["readelf", "--wide", "--dyn-syms", str(library)], capture_output=True, text=True,
                          check=True).stdout
    rows = (ROW.match(line) for line in told.splitlines())
    return [Symbol(row[6], row[8], KINDS.get(row[3], row[3]), int(row[2], 0), int(row[1], 16), row[5] != "UND",
                   row[4] == "WEAK")
            for row in rows if row and row[5] != "ABS"]  # the names of versions are absolute symbols


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def is_old_enough(version: str, floors: dict[str, str]) -> bool:
    """Whether a symbol's version is not newer than its family's floor: GLIBC_2.14 with {"GLIBC": "2.28"}."""
    family, _, number = version.rpartition("_")
    if family not in floors:
        return not version
    return re.fullmatch(r"\d+(\.\d+)*", number) is not None and _numbers(number) <= _numbers(floors[family])


def kept(library: pathlib.Path, floors: dict[str, str]) -> list[Symbol]:
    """For each name the newest symbol that is old enough."""
    best: dict[str, Symbol] = {}
    for symbol in symbols(library):
        if not symbol.defined or symbol.kind not in SECTIONS or not is_old_enough(symbol.version, floors):
            continue
        before = best.get(symbol.name)
        if before is None or _age(symbol) > _age(before):
            best[symbol.name] = symbol
    return sorted(best.values())


def _age(symbol: Symbol) -> tuple[int, ...]:
    return _numbers(symbol.version.rpartition("_")[2]) if symbol.version else ()


def _assembly(wanted: list[Symbol]) -> str:
    # A program may have a copy of a library's object. If it uses the object by a weak name, the linker gives the other
    # name with the same address to the copy, too: environ and __environ are one. The alignment is that of the stub.
    places: dict[tuple[str, int], list[str]] = {}
    lines = ['.section .note.GNU-stack,"",@progbits']
    for number, symbol in enumerate(wanted):
        label = f"stub_{number}" if symbol.version else symbol.name
        place = (symbol.kind, number if symbol.kind == "function" else symbol.address)
        places.setdefault(place, []).append(label)
        lines += [f".{'weak' if symbol.weak else 'globl'} {label}", f".type {label},@{symbol.kind}", f".size {label},{max(symbol.bytes, 1)}"]
        if symbol.version:
            lines.append(f".symver {label},{symbol.name}@@{symbol.version}")
    bytes_of = {symbol.address: 0 for symbol in wanted}
    for symbol in wanted:
        bytes_of[symbol.address] = max(bytes_of[symbol.address], symbol.bytes, 1)
    for (kind, address), labels in places.items():
        lines += [SECTIONS[kind], *([] if kind == "function" else [".balign 64"]), *(f"{label}:" for label in labels),
                  f".skip {1 if kind == 'function' else bytes_of[address]}"]
    return "\n".join(lines) + "\n"


def write(library: pathlib.Path, stub: pathlib.Path, floors: dict[str, str], compiler: str) -> int:
    """Writes the stub of a library, with the same SONAME; returns its number of symbols. It may replace the library."""
    told = subprocess.run(["readelf", "--wide", "--dynamic", str(library)], capture_output=True, text=True,
                          check=True).stdout
    soname = re.search(r"\(SONAME\).*\[([^\]]+)\]", told)[1]
    wanted = kept(library, floors)
    assembly, script = stub.with_name(stub.name + ".s"), stub.with_name(stub.name + ".map")
    assembly.write_text(_assembly(wanted), encoding="utf-8")
    versions = sorted({symbol.version for symbol in wanted if symbol.version})
    # The labels are not names of the library: the first version keeps them local.
    nodes = [f"{version} {{ {'local: stub_*;' if not number else ''} }};" for number, version in enumerate(versions)]
    script.write_text("\n".join(nodes) + "\n", encoding="utf-8")
    words = [f"-Wl,-soname,{soname}", *([f"-Wl,--version-script,{script}"] if versions else [])]
    made = stub.with_name(stub.name + ".new")
    subprocess.run([compiler, "-shared", "-nostdlib", *words, str(assembly), "-o", str(made)], check=True)
    made.replace(stub)
    assembly.unlink()
    script.unlink()
    return len(wanted)
