"""The form of the results of one question: the JSON files in docs/reference/benchmarks.

A row is the time of one library in one case. The libraries of a case have the same collective, bytes, dtype, ranks and
transport. Ratios are tutti's time divided by the library's, so that a ratio below 1 means that tutti takes less time.
"""
import hashlib
import json
import math
import os
import pathlib
import re

QUESTIONS = {
    "one-host": "One host",
    "tcp": "TCP",
    "torch": "Beside gloo in PyTorch",
    "libraries": "UCX and libfabric",
    "ranks": "Numbers of ranks",
    "far": "Hosts far apart",
}
OURS = "tutti"
FIELDS = {"question": str, "machine": str, "date": str, "versions": list, "method": dict, "rows": list, "left_out": dict,
          "note": str}
METHOD = {"rounds": int, "warm_up": str, "setting": str}
CASE = ("collective", "dtype", "ranks", "transport", "bytes")
ROW = {"collective": str, "bytes": int, "dtype": str, "ranks": int, "transport": str, "library": str,
       "median_us": (int, float), "spread": (list, type(None)), "ratio": (int, float, type(None)),
       "ratio_spread": (list, type(None))}


def row(case, library, median_us, spread=None, ratio=None, ratio_spread=None):
    """case: the values of CASE by name. spread: the least and the most of the rounds' times in microseconds."""
    return {**{name: case[name] for name in CASE}, "library": library, "median_us": rounded(median_us),
            "spread": pair(spread), "ratio": rounded(ratio), "ratio_spread": pair(ratio_spread)}


def rounded(value):
    """Five significant digits: more are noise."""
    return None if value is None else float(f"{value:.5g}")


def pair(values):
    return None if values is None else [rounded(min(values)), rounded(max(values))]


def case_of(row_):
    return tuple(row_[name] for name in CASE)


def errors(report):
    """The errors in the form of a report, in words."""
    found = list(wrong_fields("report", report, FIELDS))
    if found:
        return found
    if report["question"] not in QUESTIONS:
        found.append(f"unknown question '{report['question']}'; questions are: {', '.join(QUESTIONS)}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", report["date"]):
        found.append(f"date '{report['date']}' is not of the form 2026-01-31")
    found += wrong_fields("method", report["method"], METHOD)
    seen = set()
    for number, row_ in enumerate(report["rows"]):
        wrong = list(row_errors(f"row {number}", row_))
        found += wrong
        if not wrong and (key := (case_of(row_), row_["library"])) in seen:
            found.append(f"row {number}: a second row of {row_['library']} for the same case")
        elif not wrong:
            seen.add(key)
    return found


def wrong_fields(name, found, wanted):
    if not isinstance(found, dict):
        yield f"{name} is not an object"
        return
    if found.keys() != wanted.keys():
        yield f"{name} has the fields {', '.join(found)}, not {', '.join(wanted)}"
        return
    for field, kind in wanted.items():
        if not isinstance(found[field], kind) or isinstance(found[field], bool):
            yield f"{name}: {field} has the wrong type"


def row_errors(name, found):
    wrong = list(wrong_fields(name, found, ROW))
    if wrong:
        yield from wrong
        return
    if found["bytes"] < 1 or found["ranks"] < 1:
        yield f"{name}: bytes or ranks below 1"
    numbers = [found["median_us"], found["ratio"] if found["ratio"] is not None else 1, *(found["spread"] or []),
               *(found["ratio_spread"] or [])]
    if not all(isinstance(value, (int, float)) and math.isfinite(value) and value > 0 for value in numbers):
        yield f"{name}: a time or a ratio is not above 0"
    for field in ("spread", "ratio_spread"):
        if found[field] is not None and (len(found[field]) != 2 or found[field][0] > found[field][1]):
            yield f"{name}: {field} is not the least and the most"


def read(path):
    """A report from its file; ValueError names the error in it."""
    try:
        report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: cannot read the results: {error}") from error
    wrong = errors(report)
    if wrong:
        raise ValueError(f"{path}: wrong form: {wrong[0]}")
    return report


def read_all(folder):
    """{question: report} in the order of QUESTIONS, of the files that exist."""
    paths = {name: pathlib.Path(folder) / f"{name}.json" for name in QUESTIONS}
    return {name: read(path) for name, path in paths.items() if path.exists()}


def text_of(report):
    """JSON with one row a line, so that a new run is a short difference."""
    head = json.dumps({**report, "rows": []}, indent=1, ensure_ascii=False)
    rows = ",\n".join("  " + json.dumps(each, ensure_ascii=False) for each in report["rows"])
    return (head.replace('"rows": []', f'"rows": [\n{rows}\n ]') if rows else head) + "\n"


def write(report, folder):
    """Writes folder/QUESTION.json in one step and returns its path."""
    wrong = errors(report)
    if wrong:
        raise ValueError(f"results of {report.get('question')}: wrong form: {wrong[0]}")
    path = pathlib.Path(folder) / f"{report['question']}.json"
    part = path.with_suffix(".part")
    part.write_text(text_of(report), encoding="utf-8")
    os.replace(part, path)
    return path


def digest(report):
    """Identifies the rows of a report: each plot carries the digest of the rows that it shows."""
    return hashlib.sha256(json.dumps(report["rows"], sort_keys=True).encode()).hexdigest()[:16]
