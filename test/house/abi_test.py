"""The binary interface of the C headers beside the one of 0.1.0: programs that were linked with that version go on to work.

Each header is compiled by itself into a library of empty functions, whose types and signatures abidiff compares with the
kept dump; and the real library must export all of them.

usage: abi_test.py [--write]     writes the dumps anew
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
HEADERS = sorted("tutti/" + header.name for header in (INCLUDE / "tutti").glob("*.h"))
# The headers of each library.
LIBRARIES = {
    "tutti": ["tutti/tutti.h", "tutti/plans.h", "tutti/recovery.h", "tutti/inspect.h"],
}
LIBRARIES["tutti_trainer"] = [header for header in HEADERS if header not in LIBRARIES["tutti"]]


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def must(command):
    status, said = run(command)
    if status != 0:
        raise RuntimeError("%s: %s" % (" ".join(map(str, command)), said))
    return said


def compiler():
    return os.environ.get("TUTTI_CC", "cc").split()


def prototypes(folder, headers):
    """{function: declaration} of what the headers declare themselves."""
    source, listed = folder / "headers.c", folder / "prototypes"
    source.write_text("".join('#include "%s"\n' % header for header in headers), encoding="utf-8")
    must([*compiler(), "-I", INCLUDE, "-aux-info", listed, "-fsyntax-only", source])
    found = {}
    for line in listed.read_text(encoding="utf-8").splitlines():
        match = re.match(r"/\* (\S+?):\d+:\w+ \*/ (extern .*?\b(tutti_\w+) \(.*\));", line)
        if match and any(match[1].endswith(header) for header in headers):
            found[match[3]] = match[2].removeprefix("extern ")
    return found


def dump(folder, name):
    """(functions, the interface of that library's headers)"""
    headers = LIBRARIES[name]
    found = prototypes(folder, headers)
    source, library, out = folder / (name + ".c"), folder / ("lib%s.so" % name), folder / (name + ".abi")
    source.write_text("".join('#include "%s"\n' % header for header in headers) +
                      "".join("%s { __builtin_trap(); }\n" % each for each in found.values()), encoding="utf-8")
    must([*compiler(), "-std=c2x", "-g", "-shared", "-fPIC", "-w", "-I", INCLUDE, "-o", library, source])
    must(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", out, library])
    # The folder in which this was compiled is not part of the interface.
    text = re.sub(r" path='[^']*'", "", out.read_text(encoding="utf-8"))
    out.write_text(text, encoding="utf-8")
    return sorted(found), out


def kept(name):
    return HERE / ("%s-0.1.0.abi" % name)


def difference(old, new):
    """(abidiff's exit status, its report); what is new is no difference."""
    return run(["abidiff", "--no-added-syms", old, new])


class Abi(unittest.TestCase):
    def setUp(self):
        if not shutil.which("abidiff"):
            self.skipTest("there is no abidiff (Debian: abigail-tools)")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_nothing_that_0_1_0_had_is_gone_or_different(self):
        for name in LIBRARIES:
            functions, now = dump(self.folder, name)
            status, report = difference(kept(name), now)
            self.assertEqual(status, 0, report + "\nPrograms that are linked already would break: keep the old function or "
                                                 "field as it was, and add the new one beside it.")
            exported = must(["nm", "--dynamic", "--defined-only", "--format=just-symbols",
                             os.environ["TUTTI_LIBRARIES"].split(":")[list(LIBRARIES).index(name)]]).split()
            self.assertEqual(functions, sorted(symbol for symbol in exported if symbol.startswith("tutti_")))

    def test_a_change_is_seen(self):
        changes = [("function", "'tutti_allreduce'", "'tutti_gone'"), ("field", "layout-offset-in-bits='64'", "layout-offset-in-bits='72'"),
                   ("constant", "'TUTTI_ERR_PEER_LOST' value='", "'TUTTI_ERR_PEER_LOST' value='1")]
        text = kept("tutti").read_text(encoding="utf-8")
        for what, old, new in changes:
            with self.subTest(changed=what):
                self.assertIn(old, text)
                changed = self.folder / "changed.abi"
                changed.write_text(text.replace(old, new), encoding="utf-8")
                self.assertNotEqual(difference(changed, kept("tutti"))[0], 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with tempfile.TemporaryDirectory() as place:
            for each in LIBRARIES:
                shutil.copyfile(dump(pathlib.Path(place), each)[1], kept(each))
    else:
        unittest.main(verbosity=2)
