"""python -m tutti.run -n 4 script.py …: the launcher tutti-run for python scripts and other programs."""

from __future__ import annotations

import os
import sys

from ._paths import program

# Options of tutti-run that take a value in the next word; test/python compares them with its --help.
WITH_VALUE = {"-n", "--ranks", "--transport", "--hosts-act", "--env", "--timeout", "--grace", "--log-dir", "--store",
              "--gangs", "--restarts", "--elastic"}


def with_interpreter(arguments: list[str]) -> list[str]:
    """The command line, with this interpreter before a script that ends in .py."""
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in WITH_VALUE:
            index += 2
        elif word.startswith("-") and word != "--":
            index += 1
        else:
            break
    if index < len(arguments) and arguments[index] == "--":
        index += 1
    if index < len(arguments) and arguments[index].endswith(".py"):
        return [*arguments[:index], sys.executable, *arguments[index:]]
    return arguments


def main() -> None:
    path = program("tutti-run")
    os.execv(path, [str(path), *with_interpreter(sys.argv[1:])])


if __name__ == "__main__":
    main()
