"""tutti.ray, with Ray itself if the environment has it."""
import unittest

import support
from support import HERE, PYTHON, run, setUpModule  # noqa: F401


class WithoutRay(unittest.TestCase):
    def test_the_import_says_what_it_lacks(self):
        done = run(PYTHON, "-c", "import sys; sys.modules['ray'] = None; import tutti.ray")
        self.assertRegex(done.stderr.splitlines()[-1], r"^ImportError: tutti\.ray needs Ray .*What to do: pip install")


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.need_module("ray.util.collective.backend_registry", "Ray")

    def test_groups_of_actors(self):
        done = run(PYTHON, HERE / "ranks" / "actors.py", RAY_DISABLE_IMPORT_WARNING="1", RAY_USAGE_STATS_ENABLED="0",
                   CUDA_VISIBLE_DEVICES="")
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-5000:])
        self.assertEqual(done.stdout.count("CASE "), 7, done.stdout)

    def test_the_name_is_registered_once(self):
        script = ("import tutti.ray, importlib\nfrom ray.util import collective\ntutti.ray.register()\n"
                  "print(collective.is_backend_available('tutti'), tutti.ray.TuttiGroup.backend())")
        done = run(PYTHON, "-c", script)
        self.assertEqual(done.stdout.strip(), "True TUTTI", done.stderr)


if __name__ == "__main__":
    unittest.main()
