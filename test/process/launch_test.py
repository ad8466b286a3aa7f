"""Programs under the launchers of MPI, and under an imitation of Slurm's: no setting says where the ranks meet."""
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

SOAK = os.environ["TUTTI_SOAK"]
INFO = os.environ["TUTTI_INFO"]
SANITIZED = os.environ["TUTTI_SANITIZED"] == "1"
STEPS = "20"
HANG_GUARD_S = 120
LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"),
    "mpich": ("mpiexec.mpich", "-n"),
}
# These settings make each rank on this host look like a rank on a host of its own.
APART = {
    "openmpi": "OMPI_COMM_WORLD_LOCAL_SIZE=1 TUTTI_HOST_ID=host$OMPI_COMM_WORLD_RANK",
    "mpich": "MPI_LOCALNRANKS=1 TUTTI_HOST_ID=host$PMI_RANK",
}
FOREIGN = re.compile(r"^(TUTTI_(RANK|SIZE|STORE|JOB|SECRET)|OMPI_|PMI|SLURM_|MASTER_|RANK$|WORLD_SIZE$)")


class Launched(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.runtime = pathlib.Path(folder.name)  # only for this user, as systemd makes them
        self.env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self.env |= {"XDG_RUNTIME_DIR": folder.name, "TUTTI_TIMEOUT_MS": "60000"}

    def start(self, command, env=None):
        return subprocess.Popen(command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ends(self, processes):
        found = []
        for process in processes:
            try:
                text = process.communicate(timeout=HANG_GUARD_S)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                text = "hangs: " + process.communicate()[0]
            found.append((process.returncode, text))
        return found

    def check_right(self, ends):
        for code, text in ends:
            self.assertEqual(code, 0, text)
        self.assertIn(STEPS + " steps right", "".join(text for _, text in ends))
        self.assertEqual(list(self.runtime.glob("tutti-*")), [])


class Mpi(Launched):
    def launch(self, name, ranks, *command):
        program, *options = LAUNCHERS[name]
        if not shutil.which(program):
            self.skipTest("there is no " + program)
        # Open MPI's launchers that begin or end at once disturb each other in a common folder.
        folder = tempfile.TemporaryDirectory(dir="/tmp", prefix="t")
        self.addCleanup(folder.cleanup)
        return self.start((program, *options, str(ranks), *command), {"TMPDIR": folder.name})

    def test_on_one_host(self):
        for name in LAUNCHERS:
            with self.subTest(launcher=name):
                self.check_right(self.ends([self.launch(name, 4, SOAK, STEPS, "1")]))

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.launch(name, ranks, SOAK, STEPS, "1") for name in LAUNCHERS for ranks in (2, 3)]
        for end in self.ends(jobs):
            self.check_right([end])

    def test_over_the_launchers_key_space_on_several_hosts(self):
        for name, settings in APART.items():
            if name == "openmpi" and SANITIZED:
                continue  # PMIx's library has threads that a sanitizer does not see
            with self.subTest(launcher=name):
                self.check_right(self.ends([self.launch(name, 3, "sh", "-c", settings + ' exec "$@"', "sh", SOAK,
                                                        STEPS, "1")]))

    def test_tutti_info_says_what_would_be_done(self):
        for name, says in (("openmpi", "Open MPI"), ("mpich", "MPICH")):
            with self.subTest(launcher=name):
                [(code, text)] = self.ends([self.launch(name, 2, INFO, "launch")])
                self.assertEqual(code, 0, text)
                self.assertIn(says, text)
                self.assertIn("they meet in %s/tutti-" % self.runtime, text)
                self.assertIn("1 of 2", text)


class Srun(Launched):
    """Slurm's variables; only tutti reads them."""

    def step(self, rank, ranks, nodes, **more):
        return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), "SLURM_JOB_ID": self.job, "SLURM_STEP_ID": "0",
                "SLURM_STEP_NUM_NODES": str(nodes), "SLURM_STEP_NODELIST": "127.0.0.[1-%d]" % nodes,
                "TUTTI_HOST_ID": "host%d" % (rank % nodes), **more}

    def setUp(self):
        super().setUp()
        self.job = str(secrets.randbelow(10**8))

    def srun(self, ranks, nodes, **more):
        return self.ends([self.start((SOAK, STEPS, "1"), self.step(rank, ranks, nodes, **more))
                          for rank in range(ranks)])

    def first_port(self):
        done = subprocess.run((INFO, "launch", "--json"), env={**self.env, **self.step(0, 2, 2)}, check=True,
                              capture_output=True, text=True, timeout=HANG_GUARD_S)
        return int(re.search(r"ports (\d+) to", json.loads(done.stdout)["launch"]["store"])[1])

    def listens(self, port):
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", port)) == 0

    def test_on_one_host(self):
        self.check_right(self.srun(3, 1))

    def test_on_several_hosts_with_a_secret(self):
        self.check_right(self.srun(4, 2, TUTTI_SECRET=secrets.token_hex(16)))

    def test_a_stranger_has_the_first_port(self):
        with socket.create_server(("0.0.0.0", self.first_port())):
            self.check_right(self.srun(2, 2, TUTTI_SECRET=secrets.token_hex(16)))

    def same_ports_step(self):
        """A later step of the job, whose ports are by chance those of step 0."""
        def ports(step):  # rendezvous/rendezvous.cpp, first_port
            value = 0xcbf29ce484222325
            for byte in b"SLURM_JOB_ID=%s\nSLURM_STEP_ID=%d\n" % (self.job.encode(), step):
                value = (value ^ byte) * 0x100000001b3 % 2**64
            return value % 750
        return next(str(step) for step in range(1, 10**6) if ports(step) == ports(0))

    def test_steps_that_share_ports_and_secret_do_not_meet(self):
        more = {"TUTTI_SECRET": secrets.token_hex(16)}
        port = self.first_port()
        first = self.start((SOAK, STEPS, "1"), self.step(0, 2, 2, **more))
        deadline = time.monotonic() + HANG_GUARD_S
        while not self.listens(port) and time.monotonic() < deadline:
            time.sleep(0.02)
        other = [self.start((SOAK, STEPS, "1"), self.step(rank, 2, 2, SLURM_STEP_ID=self.same_ports_step(), **more))
                 for rank in range(2)]
        for end in self.ends(other):
            self.assertEqual(end[0], 0, end[1])
        self.check_right(self.ends([first, self.start((SOAK, STEPS, "1"), self.step(1, 2, 2, **more))]))

    def test_several_hosts_without_a_secret(self):
        for code, text in self.srun(2, 2):
            self.assertNotEqual(code, 0)
            self.assertIn("TUTTI_SECRET_FILE", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
