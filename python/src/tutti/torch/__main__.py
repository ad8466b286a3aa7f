"""python -m tutti.torch: compiles the backend for the installed torch, if it needs one and has none. Prints its path."""

from . import build

print(build().__file__)
