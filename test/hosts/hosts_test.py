"""Ranks on hosts with a network between them: addresses, ways that are missing, cables that are pulled."""
import os
import sys
import tempfile
import time
import unittest

import hosts

SOAK = os.environ["TUTTI_SOAK"]
SWITCH = os.environ.get("TUTTI_DELAY_SWITCH") if os.path.exists("/dev/net/tun") else None
BENCH = os.environ.get("TUTTI_BENCH")
FABRICS = os.environ.get("TUTTI_FABRICS", "").split()
STEPS = "60"
FOR_EVER = "10000000"


class Networks(unittest.TestCase):
    def right(self, layout, transport, rate=None, made=None, **how):
        with self.subTest(layout=layout, transport=transport, **how):
            with hosts.Hosts(len(set(layout)), **(made or {})) as network:
                if rate:
                    network.limit(rate)
                env = {"TUTTI_TRANSPORT": transport, **how.pop("env", {})}
                ranks = hosts.ends(network.start(layout, SOAK, STEPS, "1", env=env, **how))
                for code, text in ranks:
                    self.assertEqual(code, 0, text)
                self.assertIn(STEPS + " steps right", ranks[0][1])

    def test_every_network(self):
        for transport in ("shm,tcp", *("shm," + fabric for fabric in FABRICS)):
            self.right("aabb", transport)

    def test_more_hosts_and_uneven_ones(self):
        self.right("abbc", "shm,tcp")

    def test_ipv6(self):
        self.right("aab", "shm,tcp", made={"version": 6})

    def test_only_link_local_addresses(self):
        with tempfile.TemporaryDirectory() as store:
            self.right("aab", "shm,tcp", made={"version": "link"}, env={"TUTTI_STORE": "file://" + store})

    def test_a_slow_network(self):
        self.right("ab", "tcp", rate="100mbit")

    @unittest.skipIf(not SWITCH, "there is no switch that delays frames: sanitizers leave bench/network out")
    def test_hosts_that_lie_far_apart(self):
        with hosts.FarHosts(3, SWITCH, round_trip_ms=20) as network:
            for code, text in hosts.ends(network.start("abc", SOAK, "20", "1", env={"TUTTI_TRANSPORT": "shm,tcp"})):
                self.assertEqual(code, 0, text)
            # No rank was told how far it is: the choice says what they have found out.
            bench = hosts.ends(network.start("abc", BENCH, "allreduce", "-b", "12M", "-e", "12M", "-n", "1", "-w", "1",
                                             "--inplace-only", "--explain"))
            for code, text in bench:
                self.assertEqual(code, 0, text)
            self.assertRegex(bench[0][1], r"a message is \d+ ms on its way")
            self.assertIn("messages of at most 8388608 bytes", bench[0][1])

    def test_containers_of_one_machine(self):
        # Everything says that they are one host, but shared memory does not lead there.
        for transport in ("shm,tcp", *("shm," + fabric for fabric in FABRICS)):
            for layout in ("ab", "aabb"):
                self.right(layout, transport, containers=True)

    def test_a_network_that_leads_nowhere_comes_first(self):
        for transport in ("tcp", *FABRICS):
            self.right("ab", transport, made={"dead_end": True})

    def test_who_listens_where_nobody_comes_is_named(self):
        with hosts.Hosts(2) as network:
            ranks = hosts.ends(network.start("ab", SOAK, STEPS, "1",
                                             env={"TUTTI_IFACE": "lo", "TUTTI_TIMEOUT_MS": "8000"}))
        for code, text in ranks:
            self.assertNotEqual(code, 0, text)
        self.assertIn("listens on its loopback only", ranks[1][1])
        self.assertIn("set TUTTI_IFACE", ranks[1][1])


class Cables(unittest.TestCase):
    """The host with rank 2 and 3 is cut off: no connection ends, nothing comes."""
    transports = ("shm,tcp", *("shm," + fabric for fabric in FABRICS))

    def cut(self, network, transport, timeout_ms):
        env = {"TUTTI_TRANSPORT": transport, "TUTTI_TIMEOUT_MS": str(timeout_ms), "TUTTI_LOG": "info"}
        ranks = network.start("aabb", SOAK, FOR_EVER, "1", env=env)
        deadline = time.monotonic() + 60
        while "is complete after" not in hosts.said(ranks[0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)  # they communicate
        self.assertEqual([process.poll() for process in ranks], [None] * 4, transport)
        network.cable(1, "down")
        return ranks

    def test_a_cut_is_an_error_by_the_deadline_on_every_rank(self):
        for transport in self.transports:
            with self.subTest(transport=transport), hosts.Hosts(2) as network:
                for code, text in hosts.ends(self.cut(network, transport, 8000)):
                    self.assertEqual(code, 1, text)
                    self.assertRegex(text, "timed out after 8000 ms|is gone")

    def test_a_short_cut_is_none(self):
        for transport in self.transports:
            with self.subTest(transport=transport), hosts.Hosts(2) as network:
                ranks = self.cut(network, transport, 60000)
                time.sleep(0.5)
                network.cable(1, "up")
                time.sleep(3)
                self.assertEqual([process.poll() for process in ranks], [None] * 4, transport)


if __name__ == "__main__":
    reason = hosts.why_not()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    unittest.main()
