"""Ranks that cannot join, die while they join, or join among strangers."""
import contextlib
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

WORKER = os.environ["TUTTI_WORKER"]
HANG_GUARD_S = 120
TIMEOUT_MS = 60_000
SOON_S = 30  # well before the deadline; machines are shared
SECRET = "a secret of these tests alone"
# The leak checker stops a process at its end, and hangs if the process is continued then.
STOPPABLE = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def start(env, files=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
    limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
    return subprocess.Popen([WORKER, "nothing"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**clean, "TUTTI_TIMEOUT_MS": str(TIMEOUT_MS), "TUTTI_SECRET": SECRET,
                                 "TUTTI_IFACE": "127.0.0.1", **env},
                            stdin=subprocess.DEVNULL, preexec_fn=limit)


def finish(processes):
    return [p.communicate(timeout=HANG_GUARD_S)[0] for p in processes]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Early(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def stores(self):
        return [f"file://{self.folder.name}", f"tcp://127.0.0.1:{free_port()}"]

    def start_root(self, env):
        """Returns rank 0 once it waits for the others."""
        root = start({**env, "TUTTI_RANK": "0"})
        record = os.path.join(self.folder.name, env.get("TUTTI_JOB", "default"), "c0%2Frank%2F0")
        deadline = time.monotonic() + SOON_S
        while env["TUTTI_STORE"].startswith("file") and not os.path.exists(record) and time.monotonic() < deadline:
            time.sleep(0.01)
        return root

    def finish_both(self, root, other, job="default"):
        """The outputs of a rank that fails and of rank 0. A directory forgets the word of a rank soon after it has
        failed. So once the word is there, that rank is stopped until rank 0 has ended, which may be slow to read it."""
        word = os.path.join(self.folder.name, job, "c0%2Ffailed")
        deadline = time.monotonic() + HANG_GUARD_S
        while root.poll() is None and other.poll() is None and time.monotonic() < deadline:
            if os.path.exists(word):
                other.send_signal(signal.SIGSTOP)
                break
            time.sleep(0.002)
        try:
            told = finish([root])
        finally:
            other.send_signal(signal.SIGCONT)
        return finish([other]) + told

    def test_a_rank_without_descriptors_tells_the_others(self):
        for store in self.stores():
            for files in (11, 13):
                env = {"TUTTI_SIZE": "2", "TUTTI_STORE": store, "TUTTI_JOB": str(files)}
                if store.startswith("tcp"):
                    env["TUTTI_STORE"] = f"tcp://127.0.0.1:{free_port()}"
                begin = time.monotonic()
                root = self.start_root(env)
                short = start({**env, **STOPPABLE, "TUTTI_RANK": "1"}, files)
                for output in self.finish_both(root, short, str(files)):
                    self.assertRegex(output, "Too many open files|file descriptors left", (store, files))
                self.assertLess(time.monotonic() - begin, SOON_S)

    def test_a_refused_variable_is_told(self):
        for store in self.stores():
            env = {"TUTTI_SIZE": "2", "TUTTI_STORE": store}
            begin = time.monotonic()
            other = {**env, **STOPPABLE, "TUTTI_RANK": "1", "TUTTI_NRINGS": "99"}
            outputs = self.finish_both(self.start_root(env), start(other))
            for output in outputs:
                self.assertIn("TUTTI_NRINGS: setting 'nrings'", output)
            self.assertLess(time.monotonic() - begin, SOON_S)

    def test_a_rank_that_is_killed_while_it_joins_is_named(self):
        # Rank 3 never comes, so the others are still joining.
        for store, victim in zip(self.stores(), (2, 0)):
            env = {"TUTTI_SIZE": "4", "TUTTI_STORE": store, "TUTTI_LOG": "info"}
            ranks = [start({**env, "TUTTI_RANK": str(rank)}) for rank in range(3)]
            for line in ranks[0].stdout:
                if "1 of 4 ranks did not join" in line:
                    break
            ranks[victim].send_signal(signal.SIGKILL)
            begin = time.monotonic()
            outputs = finish(ranks)
            for rank in {0, 1, 2} - {victim}:
                self.assertIn(f"peer lost; at fault {victim};", outputs[rank], (store, victim))
            self.assertLess(time.monotonic() - begin, SOON_S)

    def job_among_strangers(self, idle, files):
        """The outputs of four ranks, rank 0's most descriptors, and the seconds that ranks 1 to 3 took."""
        port = free_port()
        env = {"TUTTI_SIZE": "4", "TUTTI_STORE": f"tcp://127.0.0.1:{port}"}
        with contextlib.ExitStack() as strangers:
            ranks = [start({**env, "TUTTI_RANK": "0"}, files)]
            deadline = time.monotonic() + SOON_S
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            most = [0]
            watching = threading.Event()

            def watch():
                while not watching.wait(0.01):
                    with contextlib.suppress(OSError):
                        most[0] = max(most[0], len(os.listdir(f"/proc/{ranks[0].pid}/fd")))
            watcher = threading.Thread(target=watch)
            watcher.start()
            says = [b"", b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + os.urandom(200), os.urandom(60),
                    b"tutti/1\n" + os.urandom(32), b"tutti/1\n"]
            for i in range(idle):
                stranger = strangers.enter_context(socket.socket())
                stranger.settimeout(SOON_S)
                with contextlib.suppress(OSError):
                    stranger.connect(("127.0.0.1", port))
                    stranger.send(says[i % len(says)])
            begin = time.monotonic()  # the kernel may let a stranger's call wait for half a minute
            ranks += [start({**env, "TUTTI_RANK": str(rank)}, files) for rank in (1, 2, 3)]
            outputs = finish(ranks)
            took_s = time.monotonic() - begin
            watching.set()
            watcher.join()
        return outputs, most[0], took_s

    def test_a_job_joins_among_strangers_who_hold_few_descriptors(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2500 if hard == resource.RLIM_INFINITY else min(2500, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        idle = min(2000, max(soft, wanted) - 200)
        for files in (None, 64):
            outputs, most, took_s = self.job_among_strangers(idle, files)
            for output in outputs:
                self.assertIn("destroy: ok", output)
            self.assertLess(most, 150)
            self.assertLess(took_s, SOON_S)


if __name__ == "__main__":
    unittest.main()
