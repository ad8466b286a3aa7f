"""python -m tutti.bench allreduce --ranks 2: the program tutti-bench."""

from __future__ import annotations

import os
import sys

from ._paths import program


def main() -> None:
    path = program("tutti-bench")
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    main()
