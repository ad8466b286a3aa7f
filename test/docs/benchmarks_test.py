"""docs/reference/benchmarks.md: its tables and plots are those of the JSON files beside it, and so is the README."""
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "bench"))
from results import curves, form, tables  # noqa: E402

PAGE = SOURCE / "docs" / "reference" / "benchmarks.md"
IMAGES = SOURCE / "docs" / "images"
MOST_PLOT_BYTES = 40_000
MOST_PAGE_LINES = 320
RENEW = "run bench/plot"


class Benchmarks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = PAGE.with_suffix("")
        cls.reports = form.read_all(cls.folder)
        cls.page = PAGE.read_text(encoding="utf-8")

    def test_the_page_has_the_table_of_every_question_once(self):
        self.assertEqual(sorted(tables.marked(self.page)), sorted([*self.reports, "runs"]))

    def test_every_file_is_a_question_and_every_question_has_a_file_with_rows(self):
        self.assertEqual(sorted(path.stem for path in self.folder.iterdir()), sorted(form.QUESTIONS))
        self.assertEqual([name for name, report in self.reports.items() if report["question"] != name or not report["rows"]], [])

    def test_the_tables_are_those_of_the_results(self):
        self.assertEqual(tables.rewritten(self.page, self.reports), self.page, RENEW)

    def test_the_readme_has_two_results_and_their_machine(self):
        report = self.reports["one-host"]
        us = {(row["library"], row["bytes"]): tables.number(row["median_us"]) for row in report["rows"]
              if row["collective"] == "allreduce"}
        name, cores = report["machine"].replace("(R)", "").split(", ")[:2]
        other = next(version for version in report["versions"] if version.startswith("Open MPI "))
        small, large = 8, 1024 * 1024
        self.assertIn(f"takes {us['tutti', small]} µs for 8 B ({other}: {us['Open MPI', small]} µs) and "
                      f"{us['tutti', large]} µs for 1 MiB ({us['Open MPI', large]} µs), on an {name} with {cores}",
                      (SOURCE / "README.md").read_text(encoding="utf-8"))

    def test_a_changed_result_is_seen(self):
        name, report = next(iter(self.reports.items()))
        changed = {**report, "rows": [{**report["rows"][0], "median_us": report["rows"][0]["median_us"] * 2}, *report["rows"][1:]]}
        self.assertNotEqual(tables.rewritten(self.page, {**self.reports, name: changed}), self.page)

    def test_every_question_has_a_small_plot_of_these_results(self):
        for name, report in self.reports.items():
            with self.subTest(name):
                path = IMAGES / f"benchmark-{name}.svg"
                text = path.read_text(encoding="utf-8")
                self.assertLessEqual(len(text.encode()), MOST_PLOT_BYTES)
                self.assertIn(f"<dc:identifier>{form.digest(report)}</dc:identifier>", text, RENEW)
                for _, found in curves.panels(report):
                    for curve in found:
                        self.assertIn(f">{curve.library}".replace("'", "&#x27;"), text.replace("'", "&#x27;"))
                self.assertIn(f"](../images/{path.name})", self.page)

    def test_each_question_is_a_section_and_the_page_stays_short(self):
        for title in form.QUESTIONS.values():
            self.assertIn(f"\n## {title}\n", self.page)
        self.assertLessEqual(len(self.page.splitlines()), MOST_PAGE_LINES)

    def test_no_plot_is_left_over(self):
        self.assertEqual({path.stem for path in IMAGES.glob("benchmark-*.svg")}, {f"benchmark-{name}" for name in self.reports})


if __name__ == "__main__":
    unittest.main()
