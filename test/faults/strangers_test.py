"""The store is killed: ranks that have never been connected find each other all the same."""
import os
import re
import socket
import subprocess
import time
import unittest

STRANGERS = os.environ["TUTTI_STRANGERS"]
RANKS = 8  # with fewer, each rank has been connected to all others, or knows them as its next four
HANG_GUARD_S = 120
SOON_S = 40  # well before the deadline; machines are shared
LINE = re.compile(r"^(\w+): ([^;]*); at fault (-?\d+);", re.MULTILINE)


class Strangers(unittest.TestCase):
    def start(self, rank, store, transport):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        process = subprocess.Popen(
            [STRANGERS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
            env={**clean, "TUTTI_RANK": str(rank), "TUTTI_SIZE": str(RANKS), "TUTTI_STORE": store,
                 "TUTTI_TRANSPORT": transport, "TUTTI_TIMEOUT_MS": "60000", "TUTTI_ALGO": "ring"})
        self.addCleanup(process.kill)
        return process

    def test_smaller_communicators_need_no_store(self):
        for transport in ("tcp", "shm,tcp"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                store = f"tcp://127.0.0.1:{free.getsockname()[1]}"
            start_s = time.monotonic()
            ranks = [self.start(rank, store, transport) for rank in range(RANKS)]
            outputs = [process.communicate(timeout=HANG_GUARD_S)[0] for process in ranks]
            everything = f"{transport}\n" + "\n".join(outputs)
            self.assertLess(time.monotonic() - start_s, SOON_S, everything)
            for rank, output in enumerate(outputs):
                said = {what: (status, int(fault)) for what, status, fault in LINE.findall(output)}
                self.assertEqual(said.get("together"), ("ok", -1), everything)
                if rank > 0:
                    self.assertEqual(said.get("whole"), ("peer lost", 0), everything)
                    self.assertEqual(said.get("split"), ("ok", -1), everything)
                    self.assertEqual(said.get("sum"), ("ok", -1), everything)


if __name__ == "__main__":
    unittest.main()
