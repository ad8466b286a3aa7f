"""The curves of a question's plot, chosen from its results: pure, so that tests need no library for drawing."""
import dataclasses

from . import form, tables

PLOTTED = "allreduce"


@dataclasses.dataclass(frozen=True)
class Curve:
    label: str
    library: str
    variant: int  # 0 for the first kind of a library's curves on one panel, then 1, …
    points: tuple  # (bytes, microseconds), sizes rising


def panels(report):
    """[(transport, [Curve])]: allreduces, a panel for each transport, a curve for each library, type and ranks."""
    rows = [row for row in report["rows"] if row["collective"] == PLOTTED]
    transports = tables.in_order(row["transport"] for row in rows)
    return [(transport, curves([row for row in rows if row["transport"] == transport])) for transport in transports]


def curves(rows):
    varying = [name for name in ("dtype", "ranks") if len({row[name] for row in rows}) > 1]
    variants = tables.in_order(tuple(row[name] for name in varying) for row in rows)
    by_curve = {}
    for row in rows:
        by_curve.setdefault((row["library"], tuple(row[name] for name in varying)), []).append(row)
    found = []
    for (library, variant), members in by_curve.items():
        told = [f"{value} ranks" if name == "ranks" else value for name, value in zip(varying, variant)]
        points = sorted((row["bytes"], row["median_us"]) for row in members)
        found.append(Curve(", ".join([library, *told]), library, variants.index(variant), tuple(points)))
    found.sort(key=lambda curve: (curve.library != form.OURS, curve.variant))
    return found


def described(report):
    """A plot's description for readers who cannot see the plot."""
    ends = []
    for transport, found in panels(report):
        ends.append(f"{transport}: {', '.join(curve.label for curve in found)}")
    return f"Time of an {PLOTTED} over the size of the message. Curves, by transport: {'; '.join(ends)}."
