"""torchft's own tests of its process group for gloo, run with tutti's in its place."""
import sys
import unittest

import torchft.process_group_test as suite

from tutti.torch.ft import ProcessGroupTutti

# A test with one of these words in its name is about another group.
OTHERS = ("nccl", "baby")


def chosen():
    for group in (suite.ProcessGroupTest, suite.NormalGlooMultiPgTest):
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(group):
            if not any(other in test.id() for other in OTHERS):
                yield test


if __name__ == "__main__":
    suite.ProcessGroupGloo = ProcessGroupTutti
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen()))
    print(f"TORCHFT {result.testsRun} run, {len(result.skipped)} skipped")
    sys.exit(not result.wasSuccessful())
