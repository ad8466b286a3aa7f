"""deploy/Containerfile, as far as it can be tested without a container: its files, its packages, its command."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
BUILD = pathlib.Path(os.environ["TUTTI_BUILD"])
PROGRAMS = {"tutti-bench": BUILD / "bench" / "tutti-bench"}
LIMIT_S = 100


def instructions():
    """The instructions of the file, each as its name and its words; lines that end in a backslash go on."""
    text = (SOURCE / "deploy" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def told(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL)


class Container(unittest.TestCase):
    def test_every_instruction_is_read(self):
        self.assertEqual([name for name, _ in instructions()],
                         "FROM WORKDIR COPY RUN RUN FROM RUN COPY RUN RUN ENV USER WORKDIR CMD".split())

    def test_debian_has_every_package(self):
        commands = [part.split() for name, text in instructions() if name == "RUN" for part in text.split("&&")]
        packages = [word for words in commands if words[:2] == ["apt-get", "install"]
                    for word in words[2:] if not word.startswith("-")]
        self.assertGreater(len(packages), 5)
        if not shutil.which("apt-cache") or "Package:" not in told("apt-cache", "show", "python3").stdout:
            self.skipTest("this machine has no list of Debian's packages")
        for package in packages:
            with self.subTest(package):
                self.assertEqual(told("apt-cache", "show", package).returncode, 0)

    def test_scripts_of_the_repository_are_there_and_can_be_run(self):
        scripts = {word for name, text in instructions() if name == "RUN" for word in text.split()
                   if word.startswith("tools/")}
        self.assertEqual(scripts, {"tools/setup"})
        for script in scripts:
            self.assertTrue(os.access(SOURCE / script, os.X_OK), script)

    def test_the_default_command_measures_and_checks(self):
        program, *arguments = json.loads(dict(instructions())["CMD"])
        done = told(PROGRAMS[program], *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# wrong elements: 0 OK", done.stdout)

    def test_builds_of_this_machine_stay_out_of_the_image(self):
        left_out = (SOURCE / ".dockerignore").read_text(encoding="utf-8").split()
        built = re.findall(r"^/(build\S*)/$", (SOURCE / ".gitignore").read_text(encoding="utf-8"), re.M)
        self.assertEqual(set(built) - set(left_out), set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
