"""The suite in torch's own wheel over tutti: a part of it, or with --whole all that gloo passes."""
import os
import sys
import unittest

import support
from support import HERE, PYTHON, environment


class Suite(unittest.TestCase):
    """The one test that is skipped, with the reason, if there is no torch to run the suite of."""

    def test_there_is_an_environment(self):
        support.setUpModule()


if __name__ == "__main__":
    try:
        support.setUpModule()
    except unittest.SkipTest:
        unittest.main(argv=sys.argv[:1])
    # Its summary is this program's.
    os.execve(PYTHON, [PYTHON, str(HERE / "ranks" / "suite.py"), *sys.argv[1:]], environment())
