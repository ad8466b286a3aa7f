"""The build backend: meson-python's, whose wheels get the tag of the systems that they run on."""
import pathlib

import manylinux
import mesonpy
from mesonpy import *  # noqa: F401,F403


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    return manylinux.retag(pathlib.Path(wheel_directory) / name).name
