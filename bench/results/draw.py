"""Draws plots of results as SVG files with matplotlib: bench/plot runs this in an environment of its own.

usage: draw.py FOLDER_OF_RESULTS FOLDER_OF_IMAGES QUESTION...
"""
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from matplotlib import pyplot, ticker  # noqa: E402
from results import curves, form, tables  # noqa: E402

# Okabe and Ito's palette without its yellow: it can be told apart with any kind of colour vision. Each library has a
# marker as well.
STYLES = {
    "tutti": ("#0072B2", "o"), "Open MPI": ("#D55E00", "s"), "MPICH": ("#009E73", "D"), "gloo": ("#E69F00", "D"),
    "ucx_perftest": ("#009E73", "v"), "fi_pingpong": ("#009E73", "^"), "Open MPI's exchange": ("#CC79A7", "P"),
    "tutti over tcp": ("#56B4E9", "X"), "tutti 0.1.0": ("#56B4E9", "X"),
}
OTHER = ("#5A5A5A", "*")
DASHES = ("-", "--", ":", "-.")
PANEL_INCHES, HEIGHT_INCHES = 4.4, 4.6
# Text is not drawn as paths, and two runs give the same file. The background is white, on dark pages as well.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "tutti", "font.family": "sans-serif", "font.size": 11,
            "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def time_label(us, _position=None):
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("µs", 1)):
        if us >= scale:
            return f"{us / scale:g} {unit}"
    return f"{us:g} µs"


def size_ticks(found):
    """The sizes of the curves, thinned so that neighbours are at least a factor of eight apart."""
    ticks = []
    for size in sorted({size for curve in found for size, _ in curve.points}):
        if not ticks or size >= 8 * ticks[-1]:
            ticks.append(size)
    return ticks


def draw_panel(axes, transport, found):
    for curve in found:
        colour, marker = STYLES.get(curve.library, OTHER)
        axes.plot([size for size, _ in curve.points], [us for _, us in curve.points], color=colour, marker=marker,
                  markersize=6, linewidth=2.2 if curve.library == form.OURS else 1.6, label=curve.label,
                  markerfacecolor="white" if curve.variant % 2 else colour,
                  linestyle=DASHES[curve.variant % len(DASHES)], zorder=3 if curve.library == form.OURS else 2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(size_ticks(found))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda size, _: tables.human(int(size))))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    pyplot.setp(axes.get_xticklabels(), rotation=35, ha="right", rotation_mode="anchor")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(time_label))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(True, which="major", color="#D8D8D8", linewidth=0.7)
    axes.set_xlabel("message size (bytes, KiB, MiB)")
    axes.set_title(transport)


def draw(report, path):
    panels = curves.panels(report)
    with pyplot.rc_context(SETTINGS):
        figure, all_axes = pyplot.subplots(1, len(panels), sharey=True, squeeze=False, layout="constrained",
                                           figsize=(PANEL_INCHES * len(panels) + 1, HEIGHT_INCHES))
        for axes, (transport, found) in zip(all_axes[0], panels):
            draw_panel(axes, transport, found)
        all_axes[0][0].set_ylabel("time of an allreduce (µs, ms, s)")
        handles = {label: handle for axes in all_axes[0] for handle, label in zip(*axes.get_legend_handles_labels())}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3 if len(panels) > 1 else 2)
        figure.savefig(path, facecolor="white", metadata={
            "Title": f"{form.QUESTIONS[report['question']]}: time of an allreduce over the size of the message",
            "Description": curves.described(report), "Identifier": form.digest(report), "Date": None, "Creator": None})
        pyplot.close(figure)


def main():
    results, images, *names = sys.argv[1:]
    for name in names:
        report = form.read(pathlib.Path(results) / f"{name}.json")
        if curves.panels(report):
            draw(report, pathlib.Path(images) / f"benchmark-{name}.svg")


if __name__ == "__main__":
    main()
