"""Runs the programs that are compared, and describes the machine without its name."""
import argparse
import os
import pathlib
import platform
import socket
import subprocess
import sys
import time

BLOCK_TIMEOUT_S = 60
KI, MI = 1024, 1024 * 1024


class Failed(Exception):
    """A program is missing or failed; the text is for people."""


def result_file(text):
    """Checks an option's value before the measurement: the file of the results must be writable."""
    path = pathlib.Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written. What to do: give the path of a file in a folder "
                                         "that you can write to")
    return text


def words(command):
    return [str(word) for word in command]


def complaint(text):
    """The first line that has a letter: MPI's launchers draw frames around their messages."""
    return next((line.strip() for line in text.splitlines() if any(letter.isalpha() for letter in line)), "no output")


def run(command, env=None):
    """Returns the standard output of a command. Raises Failed if it fails or is late; the first line is for a table."""
    name = pathlib.Path(str(command[0])).name
    try:
        done = subprocess.run(words(command), capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=BLOCK_TIMEOUT_S, env=env)
    except FileNotFoundError as error:
        raise Failed(f"{command[0]} is missing. What to do: run tools/setup --bench, or install it") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{name}: timed out after {BLOCK_TIMEOUT_S} s\n{' '.join(words(command))}") from error
    if done.returncode != 0:
        raise Failed(f"{name}: exit status {done.returncode}: {complaint(done.stderr or done.stdout)}\n"
                     f"{' '.join(words(command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def python_of(environment, given):
    """The given interpreter, else that of an environment in the folder build, else the one that runs this."""
    made = pathlib.Path(__file__).resolve().parents[2] / "build" / environment / "bin" / "python"
    return given or (str(made) if os.access(made, os.X_OK) else sys.executable)


def run_pair(server, client, env=None, settle_s=0.3):
    """Returns the output of a test's client. The server runs beside it, and ends with it."""
    try:
        serving = subprocess.Popen(words(server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   stdin=subprocess.DEVNULL, env=env)
    except FileNotFoundError as error:
        raise Failed(f"{server[0]} is missing. What to do: run tools/setup --bench, or install it") from error
    try:
        time.sleep(settle_s)  # until the server listens: neither program reports that
        return run(client, env)
    finally:
        try:
            serving.wait(2)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()


def cores():
    """The processors on which this process may run."""
    return len(os.sched_getaffinity(0))


def machine():
    model, caches = platform.machine(), []
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text(encoding="utf-8").strip()
                             for name in ("level", "type", "size"))
        caches.append(f"L{level}{'i' if kind == 'Instruction' else 'd' if kind == 'Data' else ''} {size}")
    return f"{model}, {cores()} cores, {', '.join(caches)}, Linux {platform.release().partition('-')[0]}"


def bytes_of(text):
    """The bytes of a size such as "8", "64K", "16M" or "1G" (powers of 1024)."""
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdigit() or int(digits) == 0:
        raise ValueError(f"'{text}' is not a size. What to do: give bytes such as 8, 64K or 16M")
    return int(digits) << shift


def count(least, most):
    """A parser of an option's value: a whole number in that range."""
    def parse(text):
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is out of range or not a number. What to do: give {least} to {most}")
        return int(text)
    return parse


def human(size):
    for unit, name in ((MI, "MiB"), (KI, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"
