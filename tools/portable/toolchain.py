"""A compiler whose programs run with glibc 2.FLOOR and newer: this machine's g++ over a sysroot of old libraries.

The sysroot's shared libraries are stubs that end at the floor, so a newer symbol is an error of the linker. C++ takes
symbols that are newer than the floor's libstdc++ from libstdc++.a: a process has one shared libstdc++, and exceptions
cross from one library to another.
"""
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from . import debian, stubs

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
import manylinux  # noqa: E402

# Newest first, of the names that Debian's compiler has.
COMPILERS = ("g++-12", "g++")
MACHINES = ("x86_64",)
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
             "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "ld-linux-x86-64.so.2")
JOINED = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")
# The headers of libstdc++ were configured for this machine's glibc. Without these, timed waits use older functions.
HEADER = """#ifdef __cplusplus
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
#endif
"""
# libstdc++.a reads this variable of glibc 2.32. With 0 it always counts references atomically.
SHIM = '__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;\n'
# CMake would find this machine's own packages: configurations with paths below /usr.
NO_CMAKE = "#!/bin/sh\necho 'the sysroot has no CMake packages' >&2\nexit 1\n"


class Toolchain:
    """The folder of a sysroot with its compilers; `environment` makes a build use them."""

    def __init__(self, folder: pathlib.Path, machine: str, floor: int, mirror: str):
        if machine not in MACHINES:
            raise debian.Unavailable(f"there is no list of Debian's packages for {machine}, only for "
                                     f"{', '.join(MACHINES)}")
        self.folder, self.machine, self.floor, self.mirror = folder.resolve(), machine, floor, mirror
        self.sysroot = self.folder / "sysroot"
        self.libraries = (self.sysroot / "lib" / debian.triplet(machine),
                          self.sysroot / "usr" / "lib" / debian.triplet(machine))
        self.pkgconfig = self.folder / "pkgconfig"
        self.bin = self.folder / "bin"
        self.compiler = _compiler()

    def floors(self) -> dict[str, str]:
        return {"GLIBC": f"2.{self.floor}",
                **{library: manylinux.newest(library, self.floor) for library in manylinux.COMPANIONS}}

    def identity(self) -> str:
        """A hash of everything that the folder's content depends on."""
        digest = hashlib.sha256()
        for source in (*sorted(HERE.glob("*.py")), pathlib.Path(manylinux.__file__)):
            digest.update(source.read_bytes())
        digest.update(repr((self.machine, self.floors(), self.mirror, self.compiler, str(self.folder))).encode())
        return digest.hexdigest()

    def is_made(self) -> bool:
        stamp = self.folder / "stamp"
        return stamp.is_file() and stamp.read_text(encoding="utf-8") == self.identity()

    def make(self, log) -> None:
        """Fetches and builds everything; debian.Unavailable says what is missing."""
        (self.folder / "stamp").unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        packages = debian.fetch(self.folder / "apt", self.machine, self.mirror, log)
        debian.unpack(packages, self.sysroot, log)
        self._cut_libraries()
        self._join_c_library()
        self._mix_cxx_library()
        self._copy_pkgconfig()
        self._write_programs()
        (self.folder / "stamp").write_text(self.identity(), encoding="utf-8")

    def _cut_libraries(self) -> None:
        """Replaces each shared library by its stub; linker scripts such as libc.so then name the stubs."""
        for name in LIBRARIES:
            path = next((folder / name for folder in self.libraries if (folder / name).exists()), None)
            if path is None:
                raise debian.Unavailable(f"Debian's packages have no {name}")
            real = path.resolve()
            stubs.write(real, real, self.floors(), self.compiler)

    def system(self) -> list[pathlib.Path]:
        """The stubs: a wheel takes the rest of its symbols from these libraries of the system."""
        return [folder / name for name in LIBRARIES for folder in self.libraries if (folder / name).exists()]

    def _join_c_library(self) -> None:
        """Lets -lc find the functions of libraries that glibc 2.34 made part of the C library, as in newer systems."""
        script = self.libraries[1] / "libc.so"
        names = " ".join(f"/lib/{debian.triplet(self.machine)}/{name}" for name in JOINED)
        text, count = re.subn(r"AS_NEEDED \(", rf"\g<0> {names}", script.read_text(encoding="utf-8"))
        if count != 1:
            raise debian.Unavailable(f"{script} of Debian's libc6-dev has another form than expected")
        script.write_text(text, encoding="utf-8")

    def _mix_cxx_library(self) -> None:
        folder = self.libraries[1]
        archive = _printed(self.compiler, "-print-file-name=libstdc++.a")
        if not os.path.isabs(archive):
            raise debian.Unavailable(f"{self.compiler} has no libstdc++.a (Debian: libstdc++-12-dev)")
        (folder / "libstdc++-new.a").symlink_to(archive)
        source = self.folder / "shim.c"
        source.write_text(SHIM, encoding="utf-8")
        subprocess.run([self.compiler, "-x", "c", "-O2", "-fPIC", "-c", str(source), "-o", str(folder / "shim.o")],
                       check=True)
        # The linker looks for the names of a script in its own folders, in the order of -L: the sysroot's come first.
        (folder / "libstdc++.so").write_text("INPUT ( -l:libstdc++.so.6 -l:libstdc++-new.a -l:shim.o )\n",
                                             encoding="utf-8")
        (folder / "libgcc_s.so").symlink_to(os.path.relpath(self.libraries[0] / "libgcc_s.so.1", folder))

    def _copy_pkgconfig(self) -> None:
        """Copies the .pc files with paths below the sysroot. fmt and spdlog become headers: Debian has no static ones."""
        shutil.rmtree(self.pkgconfig, ignore_errors=True)
        self.pkgconfig.mkdir()
        found = [*(self.libraries[1] / "pkgconfig").glob("*.pc"), *(self.sysroot / "usr/share/pkgconfig").glob("*.pc")]
        for path in found:
            text = re.sub(r"(=|\s|-[IL])/usr(?=/|\s|$)", lambda found: f"{found[1]}{self.sysroot}/usr",
                          path.read_text(encoding="utf-8"))
            if path.stem in ("fmt", "spdlog"):
                text = re.sub(r"^Libs:.*\n", "", text, flags=re.M)
                text = re.sub(r" -DSPDLOG_(SHARED|COMPILED)_LIB", "", text)
                text = text.replace("Cflags:", "Cflags: -DFMT_HEADER_ONLY")
            (self.pkgconfig / path.name).write_text(text, encoding="utf-8")

    def _write_programs(self) -> None:
        header = self.folder / "floor.h"
        _write_if_new(header, HEADER)
        self.bin.mkdir(exist_ok=True)
        search = [f"-L{folder}" for folder in self.libraries]
        # -B: the compiler would find this machine's crt1.o first.
        words = [f"--sysroot={self.sysroot}", f"-B{self.libraries[1]}", *search, "-Wl,--exclude-libs,libstdc++-new.a"]
        for name, compiler, more in (("c++", self.compiler, ["-include", str(header)]),
                                     ("cc", self.compiler.replace("g++", "gcc"), [])):
            _write_if_new(self.bin / name, f'#!/bin/sh\nexec {shlex.join([compiler, *words, *more])} "$@"\n')
            (self.bin / name).chmod(0o755)
        _write_if_new(self.bin / "cmake", NO_CMAKE)
        (self.bin / "cmake").chmod(0o755)

    def add_python(self, include: str) -> None:
        """Debian's Python.h includes a header of /usr/include/TRIPLET, which the sysroot gets as a link."""
        own = pathlib.Path("/usr/include") / debian.triplet(self.machine) / pathlib.Path(include).name
        link = self.sysroot / own.relative_to("/")
        if include.startswith("/usr/include/") and own.is_dir() and not link.exists():
            link.symlink_to(own)

    def environment(self) -> dict[str, str]:
        """The variables of a build with this toolchain."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CC_LD", "CXX_LD", "PKG_CONFIG_PATH",
                                "CPATH", "LIBRARY_PATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")}
        cache = ["ccache"] if shutil.which("ccache") else []
        return {**kept, "CC": shlex.join([*cache, str(self.bin / "cc")]),
                "CXX": shlex.join([*cache, str(self.bin / "c++")]),
                "PKG_CONFIG_LIBDIR": str(self.pkgconfig), "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}


def _compiler() -> str:
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is None:
        raise debian.Unavailable("this machine has no g++ (Debian: g++)")
    return found


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write_if_new(path: pathlib.Path, text: str) -> None:
    """The compiler cache knows a compiler and a header by their time, too."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
