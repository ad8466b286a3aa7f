"""Torch imports this in every program: TUTTI_AS_GLOO=1 makes the name gloo mean tutti."""
import os


def load() -> None:
    # This module is outside the package, so that a program without tutti does not import the package.
    if os.environ.get("TUTTI_AS_GLOO", "0") not in ("", "0"):
        import tutti.torch  # noqa: F401  its register() reads the variable, too
