#!/usr/bin/env python3
"""Runs the test cases of a unittest file, several at once, each in a process of its own.

usage: test/cases_at_once.py JOBS FILE [CASE…]

Most cases wait: for processes, for deadlines. A line each says how long it took; the output of one that fails is
shown. The summary is unittest's own form, and the exit status is non-zero if a case failed.
"""
import concurrent.futures
import importlib.util
import pathlib
import re
import subprocess
import sys
import time
import unittest


def cases_of(file):
    """The names that the file's own main would take: Class.method, or Class where its cases share a set-up."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)

    def flat(suite):
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                yield from flat(test)
            else:
                kind = type(test)
                shared = kind.setUpClass.__func__ is not unittest.TestCase.setUpClass.__func__
                yield kind.__qualname__ if shared else f"{kind.__qualname__}.{test.id().rpartition('.')[2]}"

    return list(dict.fromkeys(flat(unittest.defaultTestLoader.loadTestsFromModule(module))))


def run(file, case):
    start = time.monotonic()
    done = subprocess.run([sys.executable, str(file), case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace")
    return case, done, time.monotonic() - start


def number(pattern, text):
    found = re.findall(pattern, text, re.MULTILINE)
    return int(found[-1]) if found else 0


def main():
    jobs, file = int(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    cases = sys.argv[3:] or cases_of(file)
    start = time.monotonic()
    ran = failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for ended in concurrent.futures.as_completed([pool.submit(run, file, case) for case in cases]):
            case, done, seconds = ended.result()
            skip = number(r"^OK \(.*?skipped=(\d+)", done.stdout)
            bad = done.returncode != 0
            ran += max(number(r"^Ran (\d+) tests? in ", done.stdout), skip, bad)
            skipped += skip
            failed += bad
            word = "FAILED" if bad else "skipped" if skip else "ok"
            print(f"{seconds:7.1f} s  {word:7}  {case}", flush=True)
            if bad:
                print(done.stdout, flush=True)
    print(f"Ran {ran} tests in {time.monotonic() - start:.3f}s\n")
    told = [f"{name}={n}" for name, n in (("failures", failed), ("skipped", skipped)) if n]
    print(("FAILED" if failed else "OK") + (f" ({', '.join(told)})" if told else ""))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
