"""Prints how long after a kill the calls of the other ranks of a host fail. usage: measure_detection.py [TIMES]

TUTTI_TEST_WITNESS is the program (build/test/recovery/witness). For the documentation, on a machine with nothing else to do.
"""
import sys

from witnesses import kill_one

TIMES = int(sys.argv[1]) if len(sys.argv) > 1 else 50


def percentile(sorted_values, part):
    return sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))]


def main():
    print("from the kill to the error on every survivor, ms")
    print("| ranks | resident | median | 99 % | longest | errors |\n|--|--|--:|--:|--:|--:|")
    for ranks in (2, 4):
        for resident_mb, words in ((1, "1 MB"), (1000, "1 GB")):
            took = sorted(each.after_ms for i in range(TIMES)
                          for each in kill_one(ranks, resident_mb, victim=i % ranks)[0])
            print(f"| {ranks} | {words} | {percentile(took, 0.5):.2f} | {percentile(took, 0.99):.2f} | {took[-1]:.2f} | "
                  f"{len(took)} |", flush=True)


if __name__ == "__main__":
    main()
