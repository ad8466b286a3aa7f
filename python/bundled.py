"""Prints the system's shared libraries that a wheel must include: path, tab, the name by which it is loaded.

usage: bundled.py COMPILER…   (a library that is static or built as a subproject needs none)
"""
import pathlib
import re
import subprocess
import sys

LIBRARIES = ("fmt", "spdlog", "hwy")


def main():
    for name in LIBRARIES:
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
