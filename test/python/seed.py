"""Runs a test program beside a process, the seed, that has imported torch and forks the python programs of the tests.

usage: test/python/seed.py FILE ARGUMENT…     (a test program and its arguments)

`import torch` takes two seconds of CPU time, and the imports of DistributedDataParallel take two more. Most cases need
less time than that.

The test program gets the seed's address in TUTTI_TEST_SEED. It calls `seed.py --fork ADDRESS PYTHON ARGUMENT…`
(support.FORKED) where it would call `PYTHON ARGUMENT…`. This client sends its arguments, environment, folder and
standard files to the seed, and exits as the forked program does, or by the same signal. If the client is killed, the
forked program and its children are killed. If the process that started the seed ends, all programs are killed.

A forked program runs in the interpreter's `__main__`, with the interpreter's normal end. It differs from a fresh one:
- torch and torch._dynamo are imported, without triton. tutti is not.
- Python does not collect torch's own objects at its end.
- All programs have the same hashes of strings, so that the ranks' sets have the same order.
- torch has read its environment variables. The seed lets PYTHON run a program if a variable that READ_LATER does not
  list has another value than in the seed.
"""
import contextlib
import ctypes
import gc
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types

MESSAGE_BYTES = 1 << 18
# `import torch` does not read these, except CXX, which it keeps for torch.compile. It reads TUTTI_AS_GLOO, through
# tutti_autoload. A shell sets those in the last line.
READ_LATER = re.compile(r"TUTTI_(?!AS_GLOO$)\w+|(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCH_FR_DUMP_\w+|"
                        r"PATH|CXX|"
                        r"PWD|OLDPWD|SHLVL|_")


def fork(address, interpreter, *arguments):
    """Ends as the interpreter does with these arguments."""
    os.umask(mask := os.umask(0o077))
    request = {"arguments": arguments, "env": dict(os.environ), "folder": os.getcwd(), "umask": mask}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as seed:
        try:
            seed.connect(address)
            socket.send_fds(seed, [json.dumps(request).encode()], [0, 1, 2])
            answer = seed.recv(MESSAGE_BYTES).decode()
        except OSError as error:
            answer = str(error)
    if answer == "fresh":
        os.execv(interpreter, [interpreter, *arguments])
    if not re.fullmatch(r"-?\d+", answer):
        sys.exit(f"seed.py: the process that forks programs does not answer ({answer or 'it has ended'}). What to do: "
                 "read its error above, or run the test program without seed.py")
    code = int(answer)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve(descriptor):
    """Forks a process for each client until descriptor 0 is closed. In a forked program it returns code and globals."""
    before = dict(os.environ)
    sys.modules["triton"] = None  # torch does without; its library would report what gc.freeze keeps as leaked
    import numpy  # noqa: F401
    import torch._dynamo  # noqa: F401  a DistributedDataParallel imports it
    import torch.distributed  # noqa: F401

    gc.freeze()  # else a child's end copies and visits all that the imports have made, which takes a second
    assert "tutti" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the threads that the imports have started"
    listener, changes = socket.socket(fileno=descriptor), dict(os.environ.items() - before.items())
    while listener in select.select([0, listener], [], [])[0]:
        client, _ = listener.accept()
        if os.fork() == 0:
            end_with_parent()
            listener.close()
            return attend(client, before, changes)
        client.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(0)


def attend(client, before, changes):
    """Serves one client in a process of its own. In the forked program it returns code and globals."""
    message, files, _, _ = socket.recv_fds(client, MESSAGE_BYTES, 3)
    request = json.loads(message)
    if not all(READ_LATER.fullmatch(name) for name, _ in request["env"].items() ^ before.items()):
        client.send(b"fresh")
        os._exit(0)
    child = os.fork()
    if child == 0:
        end_with_parent()
        client.close()
        request["env"].update(changes)  # torch has set these
        return become(request, files)
    ended = os.pidfd_open(child)
    if ended not in select.select([client, ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it has not called setsid yet
            os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):  # the client is gone
        client.send(str(code).encode())
    os._exit(0)


def become(request, files):
    os.setsid()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.modules["numpy"].random.seed()  # Python's own generator does this at a fork; torch's starts with a constant
    program, *arguments = request["arguments"]
    # Python does not delete what is reachable from the __main__ that gc.freeze has kept.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if program == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
        return compile(arguments[0], "<string>", "exec", dont_inherit=True), vars(main)
    if program == "-m":
        sys.argv, sys.path[0] = arguments, os.getcwd()
        return f"import runpy; runpy.run_module({arguments[0]!r}, None, '__main__', True)", vars(main)
    sys.argv, sys.path[0], main.__file__ = [program, *arguments], os.path.dirname(program), program
    return compile(pathlib.Path(program).read_bytes(), program, "exec", dont_inherit=True), vars(main)


def run_beside(arguments):
    """Runs the test program, with a seed if there is an interpreter with torch, and returns its exit status."""
    import support  # not above: it takes longer than the rest of a client

    command = [sys.executable, *arguments]
    if support.reason_to_skip():
        return subprocess.run(command).returncode
    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "seed")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen(100)
            number = listener.fileno()
            seed = subprocess.Popen([support.PYTHON, "-c", f"import seed; exec(*seed.serve({number}))"],
                                    pass_fds=[number], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                    cwd=support.HERE, env=support.environment(), start_new_session=True)
        with seed:  # closes its standard input at the end
            return subprocess.run(command, env={**os.environ, "TUTTI_TEST_SEED": address}).returncode


if __name__ == "__main__":
    if sys.argv[1] == "--fork":
        fork(*sys.argv[2:])
    sys.exit(run_beside(sys.argv[1:]))
