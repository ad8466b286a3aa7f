"""A build backend that builds the project of the folder above."""
import os
import pathlib

os.chdir(pathlib.Path(__file__).resolve().parent.parent)

from wheel_backend import *  # noqa: E402,F401,F403
