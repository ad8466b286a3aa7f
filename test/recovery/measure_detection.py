"""Prints the time from a kill to the error on each other rank. usage: measure_detection.py [TIMES]

TUTTI_TEST_WITNESS is the program (build/test/recovery/witness). For the documentation, on a machine with nothing else to
do. Hosts are acted out, so the end of a connection between two of them comes from the same kernel.
"""
import sys

from witnesses import kill_one

TIMES = int(sys.argv[1]) if len(sys.argv) > 1 else 50


def percentile(sorted_values, part):
    return sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))]


def main():
    print("from the kill to the error on every survivor, ms")
    print("| ranks | hosts | memory | median | 99 % | longest | errors |\n|--|--|--|--:|--:|--:|--:|")
    for ranks, hosts in ((2, 1), (4, 1), (2, 2)):
        for resident_mb, words in ((1, "1 MB"), (1000, "1 GB")):
            took = sorted(each.after_ms for i in range(TIMES)
                          for each in kill_one(ranks, resident_mb, victim=i % ranks, hosts=hosts)[0])
            print(f"| {ranks} | {hosts} | {words} | {percentile(took, 0.5):.2f} | {percentile(took, 0.99):.2f} | "
                  f"{took[-1]:.2f} | {len(took)} |", flush=True)


if __name__ == "__main__":
    main()
