"""A compiler whose programs run with glibc 2.FLOOR and newer: Debian's g++ for a processor over a sysroot of old
libraries.

The sysroot's shared libraries are stubs that end at the floor, so a newer symbol is an error of the linker. C++ takes
symbols that are newer than the floor's libstdc++ from libstdc++.a: a process has one shared libstdc++, and exceptions
cross from one library to another.
"""
import hashlib
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys

from . import debian, stubs

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
import manylinux  # noqa: E402

# Newest first, of the names that Debian's compiler has. That for another processor has the triplet before its name.
COMPILERS = ("g++-12", "g++")
# The libraries that become stubs. Each processor's loader is one more.
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
             "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1")
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
# The types of which Python's headers know the size. The headers of this machine's Python fit another processor if all
# sizes are the same.
TYPES = {"SHORT": "short", "INT": "int", "LONG": "long", "LONG_LONG": "long long", "FLOAT": "float", "DOUBLE": "double",
         "LONG_DOUBLE": "long double", "VOID_P": "void *", "SIZE_T": "size_t", "UINTPTR_T": "uintptr_t",
         "WCHAR_T": "wchar_t", "_BOOL": "_Bool", "OFF_T": "off_t", "FPOS_T": "fpos_t", "TIME_T": "time_t",
         "PID_T": "pid_t", "PTHREAD_T": "pthread_t", "PTHREAD_KEY_T": "pthread_key_t"}
SIZES = """#include <Python.h>
#include <pthread.h>
#ifdef WORDS_BIGENDIAN
_Static_assert(__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__, "byte order");
#else
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte order");
#endif
""" + "".join(f'_Static_assert(sizeof({name}) == SIZEOF_{size}, "{name}");\n' for size, name in TYPES.items())
# With this module, Python gives the names of modules for the other processor; all else is as on this machine. Meson and
# the tag of the wheel follow it.
SYSCONFIG = """import importlib
import sys
_own = importlib.import_module(f"_sysconfigdata_{{sys.abiflags}}_{{sys.platform}}_{own}")
build_time_vars = {{name: value.replace("{own}", "{other}") if name in ("EXT_SUFFIX", "MULTIARCH", "SOABI") else value
                   for name, value in _own.build_time_vars.items()}}
"""


class Toolchain:
    """The folder of a sysroot with its compilers; `environment` makes a build use them."""

    def __init__(self, folder: pathlib.Path, machine: str, floor: int, mirror: str):
        for name in (machine, platform.machine()):
            if name not in debian.ARCHITECTURES:
                raise debian.Unavailable(f"there is no list of Debian's packages for {name}, only for "
                                         f"{', '.join(debian.ARCHITECTURES)}")
        self.folder, self.machine, self.floor, self.mirror = folder.resolve(), machine, floor, mirror
        self.foreign = machine != platform.machine()
        self.sysroot = self.folder / "sysroot"
        self.libraries = (self.sysroot / "lib" / debian.triplet(machine),
                          self.sysroot / "usr" / "lib" / debian.triplet(machine))
        self.pkgconfig = self.folder / "pkgconfig"
        self.bin = self.folder / "bin"
        self.cross_file = self.folder / "cross.ini"
        self.prefix = f"{debian.triplet(machine)}-" if self.foreign else ""
        self.names = (*LIBRARIES, debian.ARCHITECTURES[machine].loader)
        self.compiler = _compiler(self.prefix)

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
        _write_if_new(self.cross_file, f"""[properties]
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = '{self.machine}'
cpu = '{self.machine}'
endian = 'little'
""")
        (self.folder / "stamp").write_text(self.identity(), encoding="utf-8")

    def _cut_libraries(self) -> None:
        """Replaces each shared library by its stub; linker scripts such as libc.so then name the stubs."""
        for name in self.names:
            path = next((folder / name for folder in self.libraries if (folder / name).exists()), None)
            if path is None:
                raise debian.Unavailable(f"Debian's packages have no {name}")
            real = path.resolve()
            stubs.write(real, real, self.floors(), self.compiler)

    def system(self) -> list[pathlib.Path]:
        """The stubs: a wheel takes the rest of its symbols from these libraries of the system."""
        return [folder / name for name in self.names for folder in self.libraries if (folder / name).exists()]

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
        # On aarch64, functions for atomic operations are in the static library alone.
        (folder / "libgcc_s.so").write_text("GROUP ( -l:libgcc_s.so.1 -lgcc )\n", encoding="utf-8")

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
        # -B: the compiler would find its own crt1.o first.
        words = [f"--sysroot={self.sysroot}", f"-B{self.libraries[1]}", *search, "-Wl,--exclude-libs,libstdc++-new.a"]
        for name, language, compiler, more in (("c++", "c++", self.compiler, ["-include", str(header)]),
                                               ("cc", "c", self.compiler.replace("g++", "gcc"), [])):
            command = [compiler, *words, *self._headers(language), *more]
            _write_if_new(self.bin / name, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (self.bin / name).chmod(0o755)
        _write_if_new(self.bin / "cmake", NO_CMAKE)
        (self.bin / "cmake").chmod(0o755)

    def _headers(self, language: str) -> list[str]:
        """The compiler's own headers, then the sysroot's. A compiler for another processor has a C library of its own,
        whose headers would come first."""
        told = subprocess.run([self.compiler, "-E", "-v", "-x", language, "/dev/null"], capture_output=True, text=True,
                              check=True, env={**os.environ, "LC_ALL": "C"}).stderr
        _, _, rest = told.partition("search starts here:\n")
        found = [str(pathlib.Path(line.strip()).resolve()) for line in rest.splitlines() if line.startswith(" /")]
        own = [folder for folder in found if re.search(r"/c\+\+/|/gcc(-cross)?/", folder)]
        usr = self.sysroot / "usr/include"
        folders = [*own, str(usr / debian.triplet(self.machine)), str(usr)]
        return ["-nostdinc", *(word for folder in folders for word in ("-idirafter", folder))]

    def add_python(self, include: str) -> None:
        """Makes the headers of a Python of this machine usable; CalledProcessError if they are for other sizes of types.

        Debian's Python.h includes a header of /usr/include/TRIPLET, which the sysroot gets as a link.
        """
        name = pathlib.Path(include).name
        own = pathlib.Path("/usr/include", debian.triplet(platform.machine()), name)
        link = self.sysroot / "usr/include" / debian.triplet(self.machine) / name
        if include.startswith("/usr/include/") and own.is_dir() and not link.exists():
            link.symlink_to(own)
        source = self.folder / "sizes.c"
        _write_if_new(source, SIZES)
        subprocess.run([str(self.bin / "cc"), "-fsyntax-only", f"-I{include}", str(source)], check=True,
                       capture_output=True, text=True)

    def soabi(self, own: str) -> str:
        """The part of modules' names that the Python for the processor has, by that of this machine's."""
        return own.replace(debian.triplet(platform.machine()), debian.triplet(self.machine))

    def settings(self) -> list[str]:
        """The arguments of pip for meson-python. A library that the sysroot lacks is not downloaded from elsewhere."""
        cross = [f"-Csetup-args=--cross-file={self.cross_file}"] if self.foreign else []
        return ["-Csetup-args=--wrap-mode=nofallback", *cross]

    def python_environment(self) -> dict[str, str]:
        """Variables that make this machine's Python speak of itself as the one for the processor."""
        if not self.foreign:
            return {}
        folder, name = self.folder / "python", "_sysconfigdata_cross"
        folder.mkdir(exist_ok=True)
        _write_if_new(folder / f"{name}.py", SYSCONFIG.format(own=debian.triplet(platform.machine()),
                                                              other=debian.triplet(self.machine)))
        return {"PYTHONPATH": str(folder), "_PYTHON_SYSCONFIGDATA_NAME": name,
                "_PYTHON_HOST_PLATFORM": f"linux-{self.machine}"}

    def environment(self) -> dict[str, str]:
        """The variables of a build with this toolchain."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CC_LD", "CXX_LD", "PKG_CONFIG_PATH",
                                "CPATH", "LIBRARY_PATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")}
        cache = ["ccache"] if shutil.which("ccache") else []
        return {**kept, "CC": shlex.join([*cache, str(self.bin / "cc")]),
                "CXX": shlex.join([*cache, str(self.bin / "c++")]),
                "AR": f"{self.prefix}ar", "STRIP": f"{self.prefix}strip",
                # For another processor Meson looks for no pkg-config of this machine unless it is named.
                "PKG_CONFIG": os.environ.get("PKG_CONFIG", "pkg-config"),
                "PKG_CONFIG_LIBDIR": str(self.pkgconfig), "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}


def _compiler(prefix: str) -> str:
    found = next((prefix + name for name in COMPILERS if shutil.which(prefix + name)), None)
    if found is None:
        package = f"g++-{prefix[:-1].replace('_', '-')}" if prefix else "g++"
        raise debian.Unavailable(f"this machine has no {prefix}g++ (Debian: {package})")
    return found


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write_if_new(path: pathlib.Path, text: str) -> None:
    """The compiler cache knows a compiler and a header by their time, too."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
