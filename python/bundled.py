"""Prints the system's shared libraries that a wheel must include: path, tab, the name by which it is loaded.

usage: bundled.py COMPILER…   (a library that is static, headers only or built as a subproject needs none)
"""
import os
import pathlib
import re
import subprocess
import sys

# The name of the library, and that of its package for pkg-config.
LIBRARIES = {"fmt": "fmt", "spdlog": "spdlog", "hwy": "libhwy"}


def is_linked(name):
    """Whether the package's flags name the library. Without pkg-config, any library that is there counts as linked."""
    try:
        told = subprocess.run([os.environ.get("PKG_CONFIG", "pkg-config"), "--libs", LIBRARIES[name]], check=False,
                              capture_output=True, text=True)
    except OSError:
        return True
    return told.returncode != 0 or f"-l{name}" in told.stdout.split()


def main():
    for name in filter(is_linked, LIBRARIES):
        found = subprocess.run([*sys.argv[1:], f"-print-file-name=lib{name}.so"], capture_output=True, text=True,
                               check=True).stdout.strip()
        path = pathlib.Path(found)
        if not path.is_absolute():
            continue
        dynamic = subprocess.run(["readelf", "-d", "-W", str(path)], capture_output=True, text=True, check=True).stdout
        soname = re.search(r"SONAME.*\[([^\]]+)\]", dynamic)
        if soname:
            print(f"{path.resolve()}\t{soname.group(1)}")


main()
