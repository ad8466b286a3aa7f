"""A rank is killed and a survivor revokes the communicator: no rank goes on waiting, and other communicators do not notice."""
import os
import unittest

import faults_test

REVOKED = os.environ["TUTTI_REVOKED"]


class Revoked(unittest.TestCase):
    def check(self, ranks, victim, transport):
        said, output = faults_test.run(ranks, str(victim), transport=transport, program=REVOKED)
        revoker = 1 if victim == 0 else 0
        for rank in set(range(ranks)) - {victim}:
            self.assertIn("destroy", said[rank], output)
            # A slow rank's first failure may be the revoke.
            self.assertIn(said[rank]["operation"][:2], (("peer lost", victim), ("revoked", revoker)), output)
            status, fault, seconds, text = said[rank]["afterwards"]
            self.assertEqual((status, fault), ("revoked", revoker), output)
            self.assertIn(f"rank {revoker} revoked the communicator (after: rank {victim} is gone: ", text)
            self.assertLess(seconds, faults_test.SOON_S, output)
            self.assertEqual(said[rank]["copy"][:2], ("peer lost", victim), output)
            self.assertLess(said[rank]["destroy"][2], faults_test.SOON_S, output)

    def test_a_revoke_after_a_loss_reaches_every_survivor(self):
        for transport in ("shm", "tcp", *faults_test.FABRICS):
            for ranks in (2, 4):
                for victim in (0, ranks - 1):
                    with self.subTest(transport=transport, ranks=ranks, victim=victim):
                        self.check(ranks, victim, transport)


if __name__ == "__main__":
    unittest.main()
