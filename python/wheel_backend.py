"""The build backend: meson-python's, whose wheels get the tag of the systems that they run on."""
import pathlib
import sys
import sysconfig

import manylinux
import mesonpy
from mesonpy import *  # noqa: F401,F403

# nanobind needs functions that the stable ABI has from Python 3.12 on; a Python without the GIL has no stable ABI.
STABLE = sys.version_info >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")


def _settings(given):
    """The settings for meson-python, which takes this option for the whole truth about the tag."""
    settings = dict(given or {})
    arguments = settings.get("setup-args", [])
    arguments = [arguments] if isinstance(arguments, str) else list(arguments)
    return {**settings, "setup-args": [f"-Dpython.allow_limited_api={str(STABLE).lower()}", *arguments]}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)
    return manylinux.retag(pathlib.Path(wheel_directory) / name).name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return mesonpy.build_editable(wheel_directory, _settings(config_settings), metadata_directory)
