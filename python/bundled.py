"""Prints the shared libraries of the system that a wheel has to bring: path, tab, the name it is loaded by.

usage: bundled.py COMPILER…   (where a library is static or built as a subproject, there is nothing to bring)
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
