"""Paths of the package's libraries, headers and programs."""

from __future__ import annotations

import pathlib

from ._errors import with_advice

PACKAGE = pathlib.Path(__file__).resolve().parent
LIBRARY = PACKAGE / "lib"
INCLUDE = PACKAGE / "include"
PROGRAMS = PACKAGE / "bin"


def program(name: str) -> pathlib.Path:
    """The path of a program of tutti's; FileNotFoundError lists the existing ones."""
    path = PROGRAMS / name
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in PROGRAMS.glob("*"))) or "nothing"
        raise FileNotFoundError(with_advice(f"the program {name} is not in {PROGRAMS}, which holds {there}",
                                            "reinstall tutti"))
    return path
