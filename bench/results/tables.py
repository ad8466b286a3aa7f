"""The tables of docs/reference/benchmarks.md, made from the results and put between the page's markers."""
import re

from . import form

KI, MI = 1024, 1024 * 1024
# Tables in which no time is shorter are in milliseconds.
MILLISECONDS_FROM_US = 10_000
# From this size on, a size that is no multiple of 1024, such as a network's parameters, is in MB.
MEGABYTES_FROM = 100_000
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
TITLES = {"collective": "collective", "dtype": "type", "ranks": "ranks"}


def human(size):
    for unit, name in ((MI, "MiB"), (KI, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size / 1e6:.2f} MB" if size >= MEGABYTES_FROM else f"{size} B"


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def ratio(value):
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def span(values, show):
    return f" ({show(values[0])}–{show(values[1])})" if values else ""


def cell(row, scale):
    """A library's time, then the ratio with its spread; without a ratio, the spread of the times."""
    def time(us):
        return number(us / scale)
    if row["ratio"] is None:
        return time(row["median_us"]) + span(row["spread"], time)
    return f"{time(row['median_us'])} · **{ratio(row['ratio'])}**{span(row['ratio_spread'], ratio)}"


def in_order(values):
    return list(dict.fromkeys(values))


def line(cells):
    return f"| {' | '.join(cells)} |"


def table(rows):
    """The table of one transport: a line for each case, a column for each library."""
    varying = [name for name in TITLES if len({row[name] for row in rows}) > 1]
    libraries = in_order(row["library"] for row in rows)
    libraries.sort(key=lambda name: name != form.OURS)
    by_case = {}
    for row in rows:
        by_case.setdefault(form.case_of(row), {})[row["library"]] = row
    scale, unit = (1000, "ms") if min(row["median_us"] for row in rows) >= MILLISECONDS_FROM_US else (1, "µs")
    lines = [caption(rows, varying, unit), "",
             line([*(TITLES[name] for name in varying), "size", *libraries]),
             f"|{'--|' * len(varying)}--:|{'--:|' * len(libraries)}"]
    for found in by_case.values():
        first = next(iter(found.values()))
        lines.append(line([*(str(first[name]) for name in varying), human(first["bytes"]),
                           *(cell(found[name], scale) if name in found else "" for name in libraries)]))
    return "\n".join(lines)


def caption(rows, varying, unit):
    same = {name: str(rows[0][name]) for name in TITLES if name not in varying}
    if "ranks" in same:
        same["ranks"] += " ranks"
    return f"`{rows[0]['transport']}`: {', '.join([*same.values(), f'times in {unit}'])}."


def tables(report):
    transports = in_order(row["transport"] for row in report["rows"])
    parts = [table([row for row in report["rows"] if row["transport"] == transport]) for transport in transports]
    if report["left_out"]:
        parts.append("Left out: " + "; ".join(f"{name} ({why.rstrip('.')})" for name, why in report["left_out"].items()) + ".")
    return "\n\n".join(parts) + "\n" if parts else "No results.\n"


def runs(reports):
    """The machines, then the method of each question."""
    letters = {text: chr(ord("A") + i) for i, text in enumerate(in_order(each["machine"] for each in reports.values()))}
    lines = [f"* Machine {letter}: {text}." for text, letter in letters.items()]
    lines += ["", line(["question", "date", "machine", "versions", "rounds", "warm-up", "method"]), f"|{'--|' * 4}--:|--|--|"]
    for name, report in reports.items():
        method = report["method"]
        lines.append(line([form.QUESTIONS[name], report["date"], letters[report["machine"]], ", ".join(report["versions"]),
                           str(method["rounds"]), method["warm_up"],
                           "; ".join(part for part in (method["setting"], report["note"]) if part)]))
    return "\n".join(lines) + "\n"


def rewritten(page, reports):
    """The page with the table of every marker; ValueError where a marker has no results."""
    def replacement(found):
        name = found["name"]
        if name == "runs":
            return f"{found[1]}\n{runs(reports)}\n{found[4]}"
        if name not in reports:
            raise ValueError(f"the page has a marker for '{name}', but there are no results: {name}.json is missing")
        return f"{found[1]}\n{tables(reports[name])}\n{found[4]}"
    opened = page.count("<!-- table: ")
    text, closed = MARKED.subn(replacement, page)
    if opened != closed:
        raise ValueError(f"the page has {opened} markers '<!-- table: NAME -->', of which {closed} have an '<!-- end -->'")
    return text


def marked(page):
    return [found["name"] for found in MARKED.finditer(page)]
