"""The compiler's options for the backend, and the test whether a precompiled one fits. It needs no torch: tools/wheels
uses this file alone."""

from __future__ import annotations

import hashlib
import pathlib
import re
import typing

NAME = "_tutti_torch"
# A compiler may link its C++ library statically into the backend. If the backend exported those symbols, they would
# replace some, but not all, of the symbols that libtutti.so takes from libstdc++.so.
OPTIONS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-Wl,--exclude-libs,ALL")
LIBRARIES = ("-lc10", "-ltorch_cpu", "-ltorch_python")
# The backend derives from classes of these headers of torch, or reads their members. If a release or a distributor
# changes one of the headers, a backend that was compiled with the others is not used.
HEADERS = ("ATen/core/ivalue.h", "c10/core/TensorImpl.h", "c10/util/intrusive_ptr.h",
           "torch/csrc/distributed/c10d/Backend.hpp", "torch/csrc/distributed/c10d/ProcessGroup.hpp",
           "torch/csrc/distributed/c10d/Store.hpp", "torch/csrc/distributed/c10d/Types.hpp",
           "torch/csrc/distributed/c10d/Work.hpp", "torch/csrc/utils/pybind.h")


class Torch(typing.NamedTuple):
    """The facts of a torch and its Python that a compiled backend depends on."""
    version: str  # as torch.__version__: 2.15.0+cu132
    cxx11_abi: bool
    soabi: str  # as in the names of modules: cpython-311-x86_64-linux-gnu
    headers: str  # headers_digest


def minor(version: str) -> str:
    """2.15.0+cu132 → 2.15."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def headers_digest(include: pathlib.Path) -> str:
    """A hash of HEADERS in torch's folder `include`; OSError if one is missing."""
    digest = hashlib.sha256()
    for name in HEADERS:
        content = (include / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def fitting(manifest: dict, torch: Torch) -> str | None:
    """Returns the file of the manifest's backend that fits, or None."""
    wanted = (torch.soabi, minor(torch.version), torch.cxx11_abi, torch.headers)
    for entry in manifest["backends"]:
        if (entry["soabi"], entry["torch"], entry["cxx11_abi"], entry["headers"]) == wanted:
            return entry["file"]
    return None


def entry(file: str, torch: Torch) -> dict:
    """The manifest's entry for a backend that was compiled for this torch."""
    return {"file": file, "soabi": torch.soabi, "torch": minor(torch.version), "cxx11_abi": torch.cxx11_abi,
            "headers": torch.headers}


def unit(sources: pathlib.Path) -> str:
    """One unit of all sources, because most of the time goes into torch's headers."""
    return "".join(f'#include "{source.name}"\n' for source in sorted(sources.glob("*.cpp")))


def flags(*, cxx11_abi: bool, torch: pathlib.Path, python: str, sources: pathlib.Path, tutti: pathlib.Path) -> list[str]:
    """The options of the compiler. `torch`, `python` and `tutti` are folders of headers."""
    system = [word for folder in (torch, torch / "torch/csrc/api/include", python)
              for word in ("-isystem", str(folder))]
    return [*OPTIONS, f"-DTORCH_EXTENSION_NAME={NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}", *system, f"-I{sources}", f"-I{tutti}"]
