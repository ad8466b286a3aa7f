"""The ranks of a host learn of a killed process from the kernel, before its memory is freed and its sockets end."""
import os
import unittest

from witnesses import kill_one

PEER_LOST = 5
MAX_RANKS = int(os.environ.get("TUTTI_TEST_MAX_RANKS", "4"))
BY_THE_KERNEL = "has ended without a goodbye, as the kernel reports"


class Detection(unittest.TestCase):
    def kill(self, ranks, resident_mb, victim, **settings):
        failed, pid = kill_one(ranks, resident_mb, victim, settings)
        for each in failed:
            self.assertEqual((each.status, each.culprit), (PEER_LOST, victim), each.text)
        return failed, pid

    def test_a_process_with_much_memory(self):
        """The sockets of such a process end tens of milliseconds later, so each error names the first news."""
        for victim in (0, 1):
            failed, pid = self.kill(min(4, MAX_RANKS), 1000, victim)
            for each in failed:
                self.assertIn(f"process {pid} {BY_THE_KERNEL}", each.text)

    def test_a_process_with_little_memory(self):
        for victim in (0, 1):
            self.kill(min(4, MAX_RANKS), 1, victim)

    def test_without_threads_of_the_library_the_sockets_tell(self):
        failed, _ = self.kill(2, 1, 1, TUTTI_PROGRESS="manual")
        for each in failed:
            self.assertNotIn(BY_THE_KERNEL, each.text)


if __name__ == "__main__":
    unittest.main()
