#!/usr/bin/env python3
"""Runs the test cases of a unittest file, several at once, each in a process of its own.

usage: test/cases_at_once.py JOBS FILE [CASE…]

Most cases wait: for processes, for deadlines. A line each says how long it took. The output of those that fail comes
after these lines, since a log is often cut at its beginning. The summary is unittest's own form, and the exit status is
non-zero if a case failed.
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
    """The names that the file's own main would take: Class.method."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def flat(suite):
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                yield from flat(test)
            else:
                yield test.id().removeprefix(file.stem + ".")

    return list(flat(unittest.defaultTestLoader.loadTestsFromModule(module)))


def run(file, case):
    start = time.monotonic()
    done = subprocess.run([sys.executable, str(file), case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace")
    return case, done, time.monotonic() - start


def main():
    jobs, file = int(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    cases = sys.argv[3:] or cases_of(file)
    start = time.monotonic()
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    failed = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for ended in concurrent.futures.as_completed([pool.submit(run, file, case) for case in cases]):
            case, done, seconds = ended.result()
            skip = re.search(r"^OK \(skipped=", done.stdout, re.MULTILINE)
            word = "FAILED" if done.returncode != 0 else "skipped" if skip else "ok"
            counts[word] += 1
            print(f"{seconds:7.1f} s  {word:7}  {case}", flush=True)
            if word == "FAILED":
                failed.append(f"{case}:\n{done.stdout}")
    print("\n".join(failed), flush=True)
    print(f"Ran {len(cases)} tests in {time.monotonic() - start:.3f}s\n")
    told = [f"{name}={n}" for name, n in (("failures", counts["FAILED"]), ("skipped", counts["skipped"])) if n]
    print(("FAILED" if counts["FAILED"] else "OK") + (f" ({', '.join(told)})" if told else ""))
    return counts["FAILED"] != 0


if __name__ == "__main__":
    sys.exit(main())
