"""Limits the cost of including a header: its lines after the preprocessor."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
BUILD = pathlib.Path(os.environ["TUTTI_BUILD"])

# Lines that are not empty, with GCC 12's standard library; one header more is easily 40,000 (<immintrin.h>, <regex>).
MOST_LINES = {"lib": 85_000, "transports": 85_000, "collectives": 85_000, "trainer": 85_000,
              "bench": 105_000, "tools": 105_000}


def headers():
    return sorted(path for folder in MOST_LINES for path in (SOURCE / folder).rglob("*.h"))


def outermost(paths):
    """Without the headers that another header includes: that one is at least as large."""
    included = set()
    for path in paths:
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            included |= {path.parent / name, SOURCE / name, SOURCE / "lib" / name} - {path}
    return [path for path in paths if path not in included]


def flags():
    """Returns the include paths and the feature macros of the build's own compilations."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        for word in shlex.split(entry["command"]):
            if path := re.match(r"(-I|-isystem|-idirafter)(.+)", word):
                found[path[1] + str(pathlib.Path(entry["directory"], path[2]).resolve())] = True
            elif word.startswith(("-DTUTTI_HAVE", "-D_GNU_SOURCE")):
                found[word] = True
    return list(found)


def lines_of(header, options):
    run = subprocess.run(shlex.split(os.environ["TUTTI_CXX"]) + ["-std=c++20", "-E", "-P", *options, "-x", "c++", "-"],
                         input=f'#include "{header}"\n', capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise AssertionError(f"{header}: {run.stderr[-2000:]}")
    return run.stdout.count("\n")


class Headers(unittest.TestCase):
    def test_no_header_is_large_after_the_preprocessor(self):
        options = flags()
        looked_at = outermost(headers())
        self.assertTrue(looked_at)
        sizes = {path.relative_to(SOURCE).as_posix(): lines_of(path, options) for path in looked_at}
        large = {name: lines for name, lines in sizes.items() if lines > MOST_LINES[name.split("/")[0]]}
        self.assertEqual(large, {}, "declare instead of including, or include the smaller header")

    def test_a_large_header_is_seen(self):
        self.assertGreater(lines_of("regex", []), lines_of("cstdint", []) + 40_000)


if __name__ == "__main__":
    unittest.main()
