"""The processes that a test of recovery starts, what they say, and what they leave behind."""
import os
import pathlib
import re
import socket
import subprocess

SHARED_MEMORY = pathlib.Path("/dev/shm")

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def files_left(pids=None):
    """The names of files in /dev/shm of tutti, of UCX, and of libfabric's provider shm: of all processes, or of these
    only. tutti-ucx-UID is not among them: it is the user's permanent folder for UCX's shared memory. A process
    that is killed may leave ucx_shm_posix_… in it, which the next start removes after a minute."""
    def counts(name):
        of_libfabric = re.match(r"(\d+):\d+:\d+", name)
        return (bool(of_libfabric) and (pids is None or int(of_libfabric[1]) in pids) or name.startswith("ucx_shm_posix_") or
                "tutti" in name and name != f"tutti-ucx-{os.getuid()}")

    return {path.name for path in SHARED_MEMORY.iterdir() if counts(path.name)}


class Process:
    """A process, and what it has written so far; reading never waits."""
    pids = set()  # of all that were started

    def __init__(self, command, env):
        self.popen = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
        self.pids.add(self.popen.pid)
        os.set_blocking(self.popen.stdout.fileno(), False)
        self.text = b""
        self.read_to = 0

    def new_lines(self):
        """The whole lines since the last call. None at the end of the output."""
        data = b"" if self.popen.stdout.closed else self.popen.stdout.read()
        if data == b"":
            return None
        self.text += data or b""
        end = self.text.rfind(b"\n") + 1
        lines, self.read_to = self.text[self.read_to:end], max(end, self.read_to)
        return lines.decode(errors="replace").splitlines()
