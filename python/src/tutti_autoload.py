"""Imported by torch itself, in every program: TUTTI_AS_GLOO=1 makes tutti answer to the name gloo."""
import os


def load() -> None:
    # Beside the package, not in it: a program that does not use tutti shall not pay for importing it.
    if os.environ.get("TUTTI_AS_GLOO", "0") not in ("", "0"):
        import tutti.torch  # noqa: F401  its register() reads the variable, too
