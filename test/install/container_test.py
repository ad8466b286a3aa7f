"""deploy/Containerfile without a container engine: each stage is a root that debootstrap makes, where its lines run.

The suite long runs it. It is skipped without root, namespaces or Debian's packages, and fails without PyPI.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import unittest

from deploy_test import BUILD, SOURCE, instructions

sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "test" / "python"))
from portable_wheel_test import MAKE_TIMEOUT_S, SUITE, enter, need_namespaces  # noqa: E402

BASE = "docker.io/library/debian:12-slim"
STEP_TIMEOUT_S = 2400
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def make_base(folder):
    """A Debian with nothing that is not essential, as the slim image. Returns the reason why there is none."""
    if shutil.which("debootstrap") is None:
        return "there is no debootstrap (tools/setup --tests)"
    done = subprocess.run(["debootstrap", "--variant=minbase", SUITE, folder], capture_output=True, text=True,
                          check=False, timeout=MAKE_TIMEOUT_S)
    return "" if done.returncode == 0 else f"debootstrap failed: {(done.stdout + done.stderr).strip()[-300:]}"


class Stage:
    """A root folder, and the state that an instruction leaves to the next one."""

    def __init__(self, root, base):
        self.root, self.user, self.folder = root, "root", "/"
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        subprocess.run(["cp", "-a", base, root], check=True)
        shutil.copyfile("/etc/resolv.conf", root / "etc" / "resolv.conf")

    def run(self, words):
        """Runs a command with the machine's network and its certificates. Returns what it did."""
        more = {name: value for name, value in os.environ.items() if re.fullmatch(r"(?i)https?_proxy|PIP_INDEX_URL", name)}
        mounts = [f"mount -t proc proc {self.root}/proc", f"mount --rbind /dev {self.root}/dev",
                  f"mount -t tmpfs tmpfs {self.root}/mnt"]
        if CERTIFICATES.is_file():
            mounts.append(f"cp {CERTIFICATES} {self.root}/mnt/certificates")
            more["PIP_CERT"] = "/mnt/certificates"
        inside = f"cd {self.folder} && exec {shlex.join(words)}"
        return enter(self.root, mounts, f"/bin/sh -c {shlex.quote(inside)}", user=self.user, network=True,
                     timeout_s=STEP_TIMEOUT_S, **{**more, **self.variables})


class Builder:
    """Carries out the instructions that the file uses; another one is an error."""

    def __init__(self, folder, base):
        self.folder, self.base, self.stages, self.command = folder, base, {}, None

    def build(self):
        for word, rest in instructions():
            getattr(self, "do_" + word.lower())(rest)
        return self.stage

    def do_from(self, rest):
        image, _, name = rest.partition(" AS ")
        if image != BASE:
            raise AssertionError(f"the file begins a stage with {image}, and this test makes {BASE}")
        self.stage = self.stages[name] = Stage(self.folder / f"stage-{len(self.stages)}", self.base)

    def do_workdir(self, rest):
        self.stage.folder = rest
        (self.stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def do_copy(self, rest):
        source, target = rest.split()[-2:]
        if found := re.match(r"--from=(\S+) ", rest):
            shutil.copytree(self.stages[found[1]].root / source.lstrip("/"), self.stage.root / target.lstrip("/"))
            return
        if (source, target) != (".", "."):
            raise AssertionError(f"COPY {rest}: this test copies the whole tree alone")
        names = subprocess.run(["git", "-C", SOURCE, "ls-files"], capture_output=True, text=True, check=True).stdout
        subprocess.run(["cp", "--parents", "-at", self.stage.root / self.stage.folder.lstrip("/"), *names.splitlines()],
                       check=True, cwd=SOURCE)

    def do_run(self, rest):
        done = self.stage.run(["/bin/sh", "-c", rest])
        if done.returncode != 0:
            raise AssertionError(f"RUN {rest}\nexit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")

    def do_env(self, rest):
        name, _, value = rest.partition("=")
        self.stage.variables[name] = string.Template(value).substitute(self.stage.variables)

    def do_user(self, rest):
        self.stage.user = rest

    def do_cmd(self, rest):
        self.command = json.loads(rest)


class ContainerFile(unittest.TestCase):
    def test_every_line_runs_and_the_command_checks_an_allreduce(self):
        need_namespaces(self)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix="container-") as folder:
            folder = pathlib.Path(folder)
            if reason := make_base(folder / "base"):
                self.skipTest(reason)
            builder = Builder(folder, folder / "base")
            done = builder.build().run(builder.command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# wrong elements: 0 OK", done.stdout)


if __name__ == "__main__":
    unittest.main()
