"""The processes that a test of recovery starts, and what they say."""
import os
import socket
import subprocess


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A process, and what it has written so far; reading never waits."""

    def __init__(self, command, env):
        self.popen = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
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
