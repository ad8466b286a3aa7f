"""A job of survivor's ranks: starts them, kills some, and reads what the others say."""
import collections
import os
import re
import secrets
import selectors
import signal
import tempfile
import time

from processes import Process, free_port

SURVIVOR = os.environ["TUTTI_SURVIVOR"]
SOON_S = 60  # until all have gone on; machines are shared, and the ranks' deadline is later
TIMEOUT_MS = 120_000
UNABLE = 3  # a survivor's exit status if it could not make the first communicator
SAID = re.compile(r"\[(\d+)\] (\w[\w ]*?)(?: (\d+))?(?:: (.*))?")
# The leak checker may crash on libraries that are loaded late, and reports what they keep.
SANITIZERS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class Failure(AssertionError):
    """Something other than the ends of the killed ranks; the text has what all ranks said."""


class Job:
    """ranks: how many. doomed: "RANK:MOMENT:NTH:MICROSECONDS" of ranks that end themselves if they reach it."""

    def __init__(self, ranks, seed, menu, transport="shm", doomed=(), hosts=1, store="file",
                 timeout_ms=TIMEOUT_MS):
        self.folder = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.folder.name, "stop")
        self.ranks = ranks
        self.about = f"{ranks} ranks over {transport}, menu {menu}, seed {seed}, doomed {list(doomed)}"
        self.verified = collections.Counter()  # generations, by rank
        self.members = {rank: list(range(ranks)) for rank in range(ranks)}  # as the rank said last
        self.took_us = []
        self.told = collections.defaultdict(dict)  # of a generation or an agreement: what each rank said, who is gone
        self.ended = set()  # ranks that have died, or have left in order
        self.killed = set()
        self.unable = {}  # of ranks that could not join: their errors
        self.doomed = {int(each.split(":")[0]) for each in doomed}
        self.selector = selectors.DefaultSelector()
        url = f"tcp://127.0.0.1:{free_port()}" if store == "tcp" else f"file://{self.folder.name}"
        command = [SURVIVOR, "--seed", str(seed), "--menu", menu, "--stop", self.stop_file,
                   *(word for each in doomed for word in ("--die", each))]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        env = {**clean, **SANITIZERS, "TUTTI_TIMEOUT_MS": str(timeout_ms), "TUTTI_SECRET": secrets.token_hex(16),
               "TUTTI_IFACE": "127.0.0.1"}
        self.threads = transport == "inproc"
        # A rank that is killed while it writes to UCX's shared memory leaves its receiver unable to receive.
        self.may_cut_off = transport == "ucx"
        if self.threads:
            self.processes = [Process([*command, "--threads", str(ranks), "--store", url], env)]
        else:
            self.processes = [Process(command, {**env, "TUTTI_RANK": str(rank), "TUTTI_SIZE": str(ranks),
                                                "TUTTI_STORE": url, "TUTTI_TRANSPORT": transport,
                                                **({"TUTTI_HOST_ID": f"host{rank % hosts}"} if hosts > 1 else {})})
                              for rank in range(ranks)]
        for process in self.processes:
            self.selector.register(process.popen.stdout, selectors.EVENT_READ, process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.popen.kill()
            process.popen.wait()
            process.popen.stdout.close()
        self.selector.close()
        self.folder.cleanup()

    @property
    def alive(self):
        return [rank for rank in range(self.ranks) if rank not in self.ended]

    def story(self):
        """The last lines of each rank, and its present call, for the text of a failure."""
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        ends = []
        for number, process in enumerate(self.processes):
            process.new_lines()
            lines = process.text.decode(errors="replace").splitlines()
            ends.append(f"process {number} (exit status {process.popen.poll()}):\n  " + "\n  ".join(lines[-15:]))
        return f"{self.about}; alive: {self.alive}\n" + "\n".join(ends)

    def fail(self, what):
        raise Failure(f"{what}\n{self.story()}")

    def hear(self, line):
        said = SAID.fullmatch(line)
        if not said:
            return
        rank, verb, number, rest = int(said[1]), said[2], said[3], said[4]
        if verb == "WRONG":
            self.fail(line)
        elif verb == "verified":
            self.verified[rank] += 1
        elif verb == "agreed":
            self.compare((verb, number), rank, rest, {int(each) for each in rest.partition(", lost")[2].split()})
        elif verb == "unable":
            self.unable[rank] = rest
            self.ended.add(rank)
        elif verb in ("gone", "left out", "cut off"):
            if verb == "cut off" and not self.may_cut_off:
                self.fail(line)
            self.ended.add(rank)
        elif verb == "generation":
            members, _, took = rest.removeprefix("members ").partition("; after ")
            self.members[rank] = [int(each) for each in members.split()]
            self.took_us.append(int(took.removesuffix(" us")))
            self.compare((verb, number), rank, members, set(range(self.ranks)) - set(self.members[rank]))

    def check_unable(self):
        """A killed rank is the reason, or another that could not join for that reason. A rank that was killed before it
        called tutti_comm_create is unknown to the others, which wait for it to the deadline."""
        for rank, error in self.unable.items():
            status, fault = re.match(r"([\w ]+) at fault (-?\d+): ", error).groups()
            late = status == "timeout" and "did not join" in error and int(fault) in self.killed
            if not late and (status != "peer lost" or int(fault) not in self.killed | set(self.unable)):
                self.fail(f"no rank's end explains the error of rank {rank}: {error}")

    def compare(self, about, rank, words, gone):
        """All ranks say the same. If a rank dies before it has told others of a decision, they make a new one."""
        for other, (others_words, others_gone) in self.told[about].items():
            if words != others_words and other not in gone and rank not in others_gone:
                self.fail(f"rank {other} said '{others_words}' where rank {rank} said '{words}' {about}")
        self.told[about][rank] = words, gone

    def read(self, patience_s):
        for key, _ in self.selector.select(patience_s):
            lines = key.data.new_lines()
            if lines is None:
                self.selector.unregister(key.fileobj)
            for line in lines or ():
                self.hear(line)
        if not self.threads:
            for rank, process in enumerate(self.processes):
                if process.popen.poll() is not None:
                    self.check_end(rank, process)

    def check_end(self, rank, process):
        if process.popen.returncode == -signal.SIGKILL and rank in self.killed | self.doomed:
            self.ended.add(rank)
        elif process.popen.returncode not in (0, UNABLE):
            self.fail(f"rank {rank} ended with {process.popen.returncode}")

    def wait_until(self, holds, what):
        end = time.monotonic() + SOON_S
        while not holds():
            if time.monotonic() > end:
                self.fail(f"after {SOON_S} s the ranks had not {what}")
            self.read(0.05)

    def wait_until_one_joins(self):
        """A rank has begun to make the first communicator: it has written to the store."""
        self.wait_until(lambda: os.listdir(self.folder.name), "written to the store")

    def wait_until_started(self):
        self.wait_until(lambda: len(self.verified) == self.ranks, "joined")

    def kill(self, ranks):
        """At once, one after the other."""
        self.killed.update(ranks)
        for rank in ranks:
            self.processes[rank].popen.kill()

    def wait_until_gone_on(self):
        """The killed ranks have ended; the others have regrouped without them and used their communicator since."""
        self.wait_until(lambda: self.killed <= self.ended, "ended, as far as they were killed")
        before = None

        def gone_on():
            nonlocal before
            if any(self.members[rank] != self.alive for rank in self.alive):
                before = None
                return False
            before = before or self.verified.copy()
            return all(self.verified[rank] > before[rank] for rank in self.alive)

        self.wait_until(gone_on, "gone on without those that ended")

    def wait_until_doomed_have_ended(self):
        self.wait_until(lambda: self.doomed <= self.ended, "ended, as far as they were doomed")

    def stop(self):
        """The ranks that are alive end in order."""
        with open(self.stop_file, "w", encoding="utf-8"):
            pass
        self.wait_until(lambda: all(process.popen.poll() is not None for process in self.processes), "ended")
        while self.selector.get_map():
            self.read(0.05)
        self.check_unable()
        for number, process in enumerate(self.processes):
            if self.threads and process.popen.returncode != 0:
                self.fail(f"process {number} ended with {process.popen.returncode}")
