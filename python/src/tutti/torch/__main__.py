"""python -m tutti.torch: compiles the backend for the installed torch, if that is not done yet."""

from . import _build, build

build()
print(_build.target())
