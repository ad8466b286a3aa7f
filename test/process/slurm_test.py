"""Programs under a real Slurm, which the tests start: no setting says where the ranks meet."""
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
import hosts  # noqa: E402
import slurm  # noqa: E402

SOAK = os.environ["TUTTI_SOAK"]
INFO = os.environ["TUTTI_INFO"]
BEHAVIOUR = os.environ["TUTTI_BEHAVIOUR"]
SANITIZED = os.environ["TUTTI_SANITIZED"] == "1"
STEPS = "20"
RIGHT = STEPS + " steps right"
SOAKED = (SOAK, STEPS, "1")
HANG_GUARD_S = 120
FOREIGN = re.compile(r"^(TUTTI_(RANK|SIZE|STORE|JOB|SECRET)|OMPI_|PMI|SLURM_|MASTER_|RANK$|WORLD_SIZE$)")
ON_SLURM = {"openmpi": ("mpirun.openmpi", "--allow-run-as-root"), "mpich": ("mpiexec.mpich",)}
# The first rank on the first host holds the first port, without an answer for those who call.
STRANGER = """\
import json, os, re, socket, subprocess, sys
if os.environ["SLURM_LOCALID"] == "0" and os.environ["SLURM_NODEID"] == "0":
    said = subprocess.run([sys.argv[1], "launch", "--json"], check=True, capture_output=True, text=True).stdout
    held = socket.create_server(("0.0.0.0", int(re.search(r"ports (\\d+) to", json.loads(said)["launch"]["store"])[1])))
    held.set_inheritable(True)
os.execv(sys.argv[2], sys.argv[2:])
"""


class OnSlurm(unittest.TestCase):
    """One Slurm for all cases of a class."""

    cluster: slurm.Slurm

    @classmethod
    def setUpClass(cls):
        why = slurm.why_not()
        if why:
            raise unittest.SkipTest(why)
        cls.cluster = cls.enter(slurm.Slurm(cls.hosts()))

    @classmethod
    def enter(cls, context):
        cls.addClassCleanup(context.__exit__, None, None, None)
        return context.__enter__()

    @classmethod
    def hosts(cls):
        return None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runtime = self.folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.env = {name: value for name, value in self.cluster.env.items()
                    if name == "SLURM_CONF" or not FOREIGN.match(name)}
        self.env |= {"XDG_RUNTIME_DIR": str(self.runtime), "TUTTI_TIMEOUT_MS": "60000"}

    def run_command(self, *command, **env):
        """(exit code, what it and its ranks said)"""
        process = subprocess.Popen(self.cluster.on_node(0, *command), env={**self.env, **env}, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            text = process.communicate(timeout=HANG_GUARD_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = "hangs: " + process.communicate()[0]
        return process.returncode, text

    def right(self, *command, times=1, **env):
        code, text = self.run_command(*command, **env)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count(RIGHT), times, text)
        self.assertEqual(list(self.runtime.glob("tutti-*")), [])

    def script(self, text):
        file = self.folder / "script"
        file.write_text("#!/bin/sh\n" + text)
        file.chmod(0o755)
        return str(file)


class OneHost(OnSlurm):
    def test_ranks_find_each_other(self):
        self.right("srun", "-n4", *SOAKED)

    def test_steps_of_one_allocation_at_once_do_not_meet(self):
        soak = " ".join(SOAKED)
        self.right("salloc", "-n3", self.script(f"srun --overlap -n3 {soak} & srun --overlap -n2 {soak} & "
                                                f"srun --overlap -n2 {soak} & wait"), times=3)

    def test_programs_one_after_the_other_in_a_step(self):
        self.right("srun", "-n2", "sh", "-c", '"$@"; "$@"', "sh", *SOAKED, times=2)


class SeveralHosts(OnSlurm):
    @classmethod
    def hosts(cls):
        why = hosts.why_not()
        if why:
            raise unittest.SkipTest(why)
        return cls.enter(hosts.Hosts(3))

    def setUp(self):
        super().setUp()
        self.secret = {"TUTTI_SECRET": secrets.token_hex(16)}

    def why_no_pmix(self):
        if SANITIZED:
            return "PMIx's library has threads that a sanitizer does not see"
        return "" if "pmix" in self.run_command("srun", "--mpi=list")[1] else "this Slurm has no PMIx"

    def test_even_and_uneven_hosts(self):
        for shape in (("-N2", "-n2"), ("-N2", "-n3"), ("-N3", "-n7"), ("-N3", "-n6", "-m", "cyclic")):
            with self.subTest(shape=shape):
                self.right("srun", *shape, *SOAKED, **self.secret)

    def test_without_a_secret(self):
        for way in ("none", "pmi2"):
            with self.subTest(mpi=way):
                code, text = self.run_command("srun", "--mpi=" + way, "-N2", "-n3", *SOAKED)
                self.assertNotEqual(code, 0, text)
                self.assertEqual(text.count("TUTTI_SECRET_FILE"), 3, text)

    def test_pmi2(self):
        for nodes in ("-N1", "-N2"):
            self.right("srun", "--mpi=pmi2", nodes, "-n3", *SOAKED, **self.secret)

    def test_pmix_needs_no_secret_and_no_names(self):
        why = self.why_no_pmix()
        if why:
            self.skipTest(why)
        self.right("srun", "--mpi=pmix", "-N2", "-n3", *SOAKED)
        self.right("srun", "--mpi=pmix", "-N2", "-n3", *self.nameless(), *SOAKED)

    def nameless(self):
        return "unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /etc/hosts && exec "$@"', "sh"

    def test_names_without_addresses(self):
        code, text = self.run_command("srun", "-N2", "-n2", *self.nameless(), *SOAKED, TUTTI_TIMEOUT_MS="2000",
                                      **self.secret)
        self.assertNotEqual(code, 0, text)
        self.assertEqual(text.count("the first host of this Slurm step, node0, has no address"), 2, text)

    def test_rank_0_is_not_on_the_first_host(self):
        (self.folder / "order").write_text("node2\nnode1\nnode0\n")
        self.right("srun", "-n3", "-m", "arbitrary", *SOAKED, SLURM_HOSTFILE=str(self.folder / "order"), **self.secret)
        self.right("srun", "-n1", "-N1", "-w", "node2", *SOAKED, ":", "-n2", "-N2", "-w", "node[0-1]", *SOAKED,
                   **self.secret)

    def test_the_first_rank_leaves_and_the_others_go_on(self):
        program = (BEHAVIOUR, "survivors")
        self.right("srun", "-N3", "-n9", *program, times=0, **self.secret)
        if not self.why_no_pmix():
            self.right("srun", "--mpi=pmix", "-N3", "-n9", *program, times=0)

    def test_batch_script(self):
        soak, out = " ".join(SOAKED), self.folder / "out"
        script = self.script(f"{INFO} launch\nsrun {soak}\nsrun -N2 -n2 {soak}\n"
                             f"srun --overlap {soak} & srun --overlap -N3 -n4 {soak} & wait\n")
        code, text = self.run_command("sbatch", "--wait", "-N3", "-n5", "-o", str(out), script, **self.secret)
        said = out.read_text()
        self.assertEqual(code, 0, text + said)
        self.assertEqual(said.count(RIGHT), 4, said)
        self.assertIn("start the ranks with srun", said)

    def test_the_guides_batch_script(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to" / "run-on-a-cluster.md"
        text, = re.findall(r"(?s)```sh\n(#!.*?)```", page.read_text(encoding="utf-8"))
        batch, program, out = (self.folder / name for name in ("batch", "program", "out"))
        batch.write_text(text)
        program.write_text(f"#!/bin/sh\nexec {' '.join(SOAKED)}\n")
        program.chmod(0o755)
        code, text = self.run_command("sbatch", "--wait", "--nodes=2", "--ntasks-per-node=2", "-D", str(self.folder),
                                      "-o", str(out), str(batch))
        said = out.read_text()
        self.assertEqual(code, 0, text + said)
        self.assertEqual(said.count(RIGHT), 1, said)

    def test_a_requeued_job(self):
        out = self.folder / "out"
        script = self.script("[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; exec sleep 60; }\n"
                             "srun " + " ".join(SOAKED) + "; echo restart $SLURM_RESTART_COUNT\n")
        code, text = self.run_command("sbatch", "--requeue", "--parsable", "-N2", "-n3", "-o", str(out),
                                      "--open-mode=append", script, **self.secret)
        self.assertEqual(code, 0, text)
        job, deadline = text.strip(), time.monotonic() + HANG_GUARD_S
        self.wait_for_reason(job, "BeginTime", deadline)
        time.sleep(2)  # Slurm itself would wait for two minutes, so that the first attempt's files are gone
        self.run_command("scontrol", "update", "jobid=" + job, "starttime=now")
        self.wait_for_reason(job, "", deadline)
        self.assertIn(RIGHT + "\nrestart 1", out.read_text(), self.cluster.said())

    def wait_for_reason(self, job, reason, deadline):
        """Why Slurm does not run the job; "": it is over."""
        while self.run_command("squeue", "--noheader", "--format=%r", "--job=" + job)[1].strip() != reason:
            self.assertLess(time.monotonic(), deadline, self.cluster.said())
            time.sleep(0.1)

    def test_a_rank_that_fails_before_it_joins(self):
        # Ranks 0 and 1 have the same deadline. If rank 0 ends first, its store answers rank 1 no more.
        missing = "1 of 3 ranks did not join|does not answer which of ranks 2 to 2 joined"
        for rank, says in ((0, "no rank serves a store on node0"), (2, missing)):
            with self.subTest(rank=rank):
                script = self.script(f"[ $SLURM_PROCID = {rank} ] && exit 7\nexec {' '.join(SOAKED)}\n")
                code, text = self.run_command("srun", "-N3", "-n3", script, TUTTI_TIMEOUT_MS="8000", **self.secret)
                self.assertEqual(code, 7, text)
                self.assertEqual(len(re.findall(says, text)), 2, text)

    def test_a_stranger_has_the_first_port(self):
        self.right("srun", "-N2", "-n2", sys.executable, "-c", STRANGER, INFO, *SOAKED, **self.secret)

    def test_launchers_of_mpi_inside_an_allocation(self):
        for name, (program, *options) in ON_SLURM.items():
            if not shutil.which(program) or (SANITIZED and name == "openmpi"):
                continue
            with self.subTest(launcher=name):
                self.right("salloc", "-N3", "-n5", program, *options, *SOAKED, TMPDIR="/tmp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
