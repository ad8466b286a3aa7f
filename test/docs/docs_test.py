"""The documentation: links, the site's navigation, the form of each page, and lists that must equal the sources."""
import ast
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
sys.dont_write_bytecode = True
sys.path[:0] = [str(SOURCE / "tools" / "house"), str(SOURCE / "tools" / "site")]
import measures  # noqa: E402
from blocks import blocks_of  # noqa: E402
import pages  # noqa: E402

NEXT = "Where to go next"
# The links at a page's end: enough to go on, few enough to choose.
LEAST_NEXT, MOST_NEXT = 2, 4
SUMMARY_SENTENCES = 3
unittest.TestCase.maxDiff = None


def read(name):
    return (SOURCE / name).read_text(encoding="utf-8")


def docs_pages():
    return [name for name in pages.project_pages(SOURCE) if name.startswith("docs/")]


def has_form(name):
    """Whether a page has the form of a page for readers. Decisions have one of their own, and the index leads on at once.
    A list of changes or of licences has none."""
    return not name.startswith("docs/adr/") and name not in ("docs/index.md", "CHANGELOG.md", "THIRD_PARTY.md")


def link_errors(name, text, exists, anchors_of):
    """The errors in the relative links of a page. exists and anchors_of take names relative to the repository."""
    for line, target in pages.links(text):
        if not target.startswith("#") and not pages.is_relative(target):
            continue
        path, anchor = pages.resolve(name, target)
        if not exists(path):
            yield f"{name}:{line}: {target}: there is no {path}"
        elif anchor and (not path.endswith(".md") or anchor not in anchors_of(path)):
            yield f"{name}:{line}: {target}: {path} has no heading for #{anchor}"


def form_errors(name, text):
    """The errors in the form of a page: title, opening, end."""
    blocks = pages.blocks(text)
    titles = [words for _, level, words in pages.headings(text) if level < 3]
    if [kind for _, kind, _ in blocks[:2]] != ["heading", "text"] or not blocks[1][2].rstrip().endswith((".", ":")):
        yield f"{name}: a page begins with its title and a sentence on its purpose"
    if titles[-1:] != [NEXT] or titles.count(NEXT) != 1:
        yield f"{name}: the last section is '{NEXT}'"
        return
    end = text.partition(f"## {NEXT}\n")[2]
    found = len(list(pages.links(end)))
    if not LEAST_NEXT <= found <= MOST_NEXT:
        yield f"{name}: '{NEXT}' has {found} links, not {LEAST_NEXT} to {MOST_NEXT}"


def summary_errors(name, text):
    """The errors in the opening of a decision's page: a title, then a summary of three sentences."""
    blocks = pages.blocks(text)
    label = "**Summary.** "
    if [kind for _, kind, _ in blocks[:2]] != ["heading", "text"] or not blocks[1][2].startswith(label):
        yield f"{name}: a decision begins with its title and '{label.strip()}'"
        return
    found = len(pages.sentences(blocks[1][2]))
    if found != SUMMARY_SENTENCES:
        yield f"{name}: the summary has {found} sentences, not {SUMMARY_SENTENCES}"


def headless(name, text):
    """Sentences of a page that open with a clause without an actor. Titles and labels are no sentences."""
    for line, kind, words in pages.blocks(text):
        if kind == "text":
            yield from (f"{name}:{line}: {sentence[:70]}" for sentence in pages.sentences(words)
                        if measures.is_headless(sentence))


def cells(text):
    """(line, cell) of each cell of a page's tables without the rows of titles, which are labels."""
    rule = re.compile(r"[|:\- ]+")
    rows = [(line, words) for line, kind, words in pages.blocks(text) if kind == "table"]
    for (line, words), (_, after) in zip(rows, [*rows[1:], (0, "")]):
        if not rule.fullmatch(words) and not rule.fullmatch(after):
            yield from ((line, cell.strip()) for cell in re.split(r"(?<!\\)\|", words.strip("|")))


def headless_cells(name, text):
    """Cells of a page's tables with a part that opens with a clause without an actor. A part may begin with a small letter."""
    for line, cell in cells(text):
        for sentence in pages.sentences(cell):
            parts = [part[:1].upper() + part[1:] for part in re.split(r"(?<=[.?!:;])\s+", sentence)]
            yield from (f"{name}:{line}: {part[:70]}" for part in parts if measures.is_headless(part))


def section(text, title):
    """The text below a heading of the second level, up to the next one."""
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def code_words(text, columns=None):
    """The words in code of a text's tables; columns: how many of a row's first cells are read."""
    for line in text.splitlines():
        if line.startswith("|"):
            for cell in line.strip("|").split("|")[:columns]:
                yield from re.findall(r"`([^`]+)`", cell)


class Links(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading(self):
        names = list(pages.project_pages(SOURCE))
        self.assertLessEqual({"README.md", "docs/index.md", "examples/digits/README.md"}, set(names))
        anchors = {name: pages.anchors(read(name)) for name in names}
        errors = [error for name in names
                  for error in link_errors(name, read(name), lambda path: (SOURCE / path).exists(), anchors.__getitem__)]
        self.assertEqual(errors, [])

    def test_a_broken_link_is_told_from_one_that_leads_somewhere(self):
        text = ("[a](b.md#c-d) [a](missing.md) [a](b.md#no) [a](#here) [a](#gone) ![a](../x.svg) [a](https://x.org/y)\n"
                "`[a](in-code.md)`\n```\n[a](in-a-block.md)\n```\n# Here\n")
        wrong = list(link_errors("docs/a.md", text, {"docs/b.md", "docs/a.md", "x.svg"}.__contains__,
                                 {"docs/b.md": {"c-d"}, "docs/a.md": pages.anchors(text)}.__getitem__))
        self.assertEqual([re.search(r": (\S+):", error)[1] for error in wrong], ["missing.md", "b.md#no", "#gone"])

    def test_anchors_are_those_of_the_hosting_platform(self):
        for heading, anchor in (("Without a store: mpirun, srun", "without-a-store-mpirun-srun"), ("`a_b.h`", "a_bh"),
                                ("1. The file", "1-the-file"), ("16-bit sums", "16-bit-sums"), ("C++", "c"),
                                ("The [link](x.md) “… ms”", "the-link--ms")):
            self.assertEqual(pages.slug(heading), anchor)
        self.assertEqual(pages.anchors("# A\n```\n# B\n```\n## C d\n"), {"a", "c-d"})


class Navigation(unittest.TestCase):
    def setUp(self):
        self.nav = pages.nav(read("mkdocs.yml"))

    def test_every_page_is_in_the_navigation_and_the_other_way_round(self):
        wanted = {pages.place(name) for name in docs_pages()} | set(pages.outside(SOURCE))
        self.assertEqual(set(self.nav), wanted)
        self.assertEqual(sorted(self.nav), sorted(set(self.nav)), "a page is there twice")

    def test_the_readme_leads_to_every_page_but_the_decisions(self):
        linked = {pages.resolve("README.md", target)[0] for _, target in pages.links(read("README.md"))}
        self.assertEqual({name for name in docs_pages() if has_form(name)} - linked, set())

    def test_the_index_of_decisions_has_every_decision(self):
        index = "docs/adr/README.md"
        linked = {pages.resolve(index, target)[0] for _, target in pages.links(read(index))}
        self.assertEqual({name for name in docs_pages() if name.startswith("docs/adr/")} - linked, {index})

    def test_the_list_is_read_whole(self):
        text = "site_name: a\nnav:\n  - Home: index.md\n  - One:\n      - a/README.md\n      - Two: x.md\nextra: y.md\n"
        self.assertEqual(pages.nav(text), ["index.md", "a/README.md", "x.md"])


class Pages(unittest.TestCase):
    def test_every_page_opens_with_its_purpose_and_leads_on(self):
        names = [name for name in (*docs_pages(), *pages.outside(SOURCE)) if has_form(name)]
        self.assertLessEqual({"docs/how-to/tune.md", "ARCHITECTURE.md", "SECURITY.md", "examples/digits/README.md"}, set(names))
        self.assertEqual([error for name in names for error in form_errors(name, read(name))], [])

    def test_every_decision_opens_with_a_summary_of_three_sentences(self):
        names = [name for name in docs_pages() if re.match(r"docs/adr/\d", name)]
        self.assertGreater(len(names), 10)
        self.assertEqual([error for name in names for error in summary_errors(name, read(name))], [])

    def test_a_summary_of_another_length_is_seen(self):
        good = "# 1. A\n\n**Summary.** One is `a.b`. Two (of\ntwo: *b*) is. Three is.\n\n## B\n"
        self.assertEqual(list(summary_errors("a.md", good)), [])
        for wrong in (good.replace("Three is.\n", "Three is.\nFour is.\n"), good.replace(" Three is.", ""),
                      good.replace("**Summary.** ", "")):
            self.assertEqual(len(list(summary_errors("a.md", wrong))), 1, wrong)

    def test_no_sentence_opens_with_a_clause_without_an_actor(self):
        found = [error for name in pages.project_pages(SOURCE) for error in headless(name, read(name))]
        # The list of decisions has their titles.
        found += [error for name in pages.project_pages(SOURCE) if name != "docs/adr/README.md"
                  for error in headless_cells(name, read(name))]
        self.assertEqual(found, [], "name the actor; docs/reference/glossary.md has the words")

    def test_a_page_without_the_form_is_seen(self):
        good = f"# A\n\nThis page is a page.\n\n## B\n\n## {NEXT}\n\n* [a](a.md)\n* [b](b.md)\n"
        self.assertEqual(list(form_errors("a.md", good)), [])
        for wrong in (good.replace("This page is a page.\n\n", ""), good.replace("This page", "    code"),
                      good.replace(NEXT, "End"), good + "\n## More\n", good.replace("* [b](b.md)\n", "")):
            self.assertEqual(len(list(form_errors("a.md", wrong))), 1, wrong)

    def test_headless_sentences_are_seen_in_paragraphs_and_lists_alone(self):
        text = ("# What it is\n\nThe peer waits. What it lacks comes later.\n\n* Those that wait are woken.\n"
                "* **What to do.** The rank waits.\n\n| What |\n|--|\n\n```\nWho is there.\n```\n\n    Nobody is.\n")
        self.assertEqual([error.split(": ")[1] for error in headless("a.md", text)],
                         ["What it lacks comes later.", "Those that wait are woken."])


    def test_headless_cells_are_seen(self):
        text = ("# A\n\n| what | who it is |\n|--|--:|\n| those that wait | a rank; of two the first |\n"
                "| b | `a \\| b`. How many |\n| [who](a.md) | of the two, the first; the place where it is |\n\n| where |\n|--|\n| d |\n")
        self.assertEqual([error.partition(": ")[::2] for error in headless_cells("a.md", text)],
                         [("a.md:5", "Those that wait"), ("a.md:5", "Of two the first"), ("a.md:6", "How many"),
                          ("a.md:7", "Who")])


class Code(unittest.TestCase):
    def test_programs_of_the_first_pages_are_the_examples(self):
        for page, language, example in (("first-program-c", "c", "allreduce.c"), ("first-program-cpp", "cpp", "allreduce.cpp"),
                                        ("first-program-python", "python", "allreduce.py"),
                                        ("first-program-torch", "python", "train_torch.py")):
            name = f"docs/get-started/{page}.md"
            programs = [block.text for block in blocks_of(name, read(name)) if block.language == language and not block.mark]
            self.assertEqual(programs[0], read(f"examples/{example}"), page)


class Lists(unittest.TestCase):
    """Lists of a page, compared with the sources that they describe."""

    def test_the_c_reference_has_every_function_and_no_other(self):
        headers = "\n".join(path.read_text(encoding="utf-8") for path in sorted((SOURCE / "include/tutti").glob("*.h")))
        functions = set(re.findall(r"^TUTTI_API [^;(]*?\b(tutti_\w+)\(", headers, re.MULTILINE))
        self.assertGreater(len(functions), 100)
        listed = {word for word in code_words(read("docs/reference/c-api.md")) if word.startswith("tutti_")}
        self.assertEqual(listed, functions)

    def test_the_c_reference_has_every_header_and_class(self):
        text = read("docs/reference/c-api.md")
        parts = {"buffers.hpp", "handles.hpp", "plans.hpp", "recovery.hpp", "trainer_errors.h", "trainer_errors.hpp"}
        for path in (SOURCE / "include" / "tutti").iterdir():
            if path.name not in parts:
                self.assertIn(f"`tutti/{path.name}`", text)
        classes = set(code_words(section(text, "C++"), columns=1))
        code = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "include" / "tutti").glob("*.hpp"))
        defined = {name for name in re.findall(r"^class (\w+)\b[^;]*\{", code, re.MULTILINE) if name not in ("Plans", "Recovery")}
        self.assertEqual(classes, defined)

    def python_names(self, module, kind=None):
        """The public functions of a module or class: name → the names of its parameters."""
        body = ast.parse(read(f"python/src/tutti/{module}.py")).body
        if kind:
            found = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == kind)
            bases = [self.python_names(base.value.id, base.attr) for base in found.bases if isinstance(base, ast.Attribute)]
            return {name: each for names in (*bases, self.functions_in(found.body)) for name, each in names.items()}
        return self.functions_in(body)

    @staticmethod
    def functions_in(body):
        return {node.name: [argument.arg for argument in node.args.args + node.args.kwonlyargs if argument.arg != "self"]
                for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}

    def all_of(self, module):
        tree = ast.parse(read(f"python/src/tutti/{module}.py"))
        return set(next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                        and getattr(node.targets[0], "id", "") == "__all__"))

    def check_calls(self, words, functions):
        """The words in code are the functions; where a word has parameters, they are the function's."""
        self.assertEqual({word.split("(")[0] for word in words}, set(functions))
        for word in words:
            name, _, parameters = word.rstrip(")").partition("(")
            if "…" not in word and "**" not in word and "(" in word:
                self.assertEqual([each.strip() for each in parameters.split(",") if each.strip()], functions[name], name)

    def test_the_python_reference_has_every_name_and_no_other(self):
        text = read("docs/reference/python-api.md")
        words = {word.split("(")[0] for word in code_words(section(text, "tutti"), columns=1)}
        self.assertEqual(words, self.all_of("__init__"))
        checkpoint = {word.split("(")[0] for word in code_words(section(text, "tutti.checkpoint"), columns=1)}
        self.assertEqual(checkpoint, self.all_of("checkpoint"))
        torch = {word.split("(")[0] for word in code_words(section(text, "tutti.torch"), columns=1)}
        self.assertEqual(torch, self.all_of("torch/__init__"))

    def test_the_python_reference_has_every_method_with_its_parameters(self):
        rows = section(read("docs/reference/python-api.md"), "Communicator")
        methods = rows.partition("| class |")[0]
        calls, others = methods.split("| other methods |")
        words = list(code_words(calls, columns=2)) + list(code_words(others, columns=1))
        self.check_calls(words, self.python_names("communicator", "Communicator"))
        functions = {**self.python_names("checkpoint"), **self.python_names("torch/__init__")}
        for word in code_words(section(read("docs/reference/python-api.md"), "tutti.torch"), columns=1):
            if word.split("(")[0] in functions and "(" in word and "**" not in word:
                self.check_calls([word], {word.split("(")[0]: functions[word.split("(")[0]]})

    def test_the_programs_page_has_every_option_and_no_other(self):
        text = read("docs/reference/programs.md")
        for program, source in (("tutti-run", "tools/tutti-run"), ("tutti-bench", "bench"), ("tutti-info", "tools/tutti-info"),
                                ("tutti-tune", "tools/tutti-tune"), ("tutti-sim", "tools/tutti-sim")):
            with self.subTest(program):
                literals = re.findall(r'"((?:-\w,)?--[a-z][\w,-]*)"', read(f"{source}/options.cpp"))
                options = {option for literal in literals for option in literal.split(",")} - {"--version"}
                listed = {option for word in code_words(section(text, program), columns=1)
                          for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", word)}
                self.assertTrue(options)
                self.assertEqual(listed, options)

    def scripts(self):
        return {f"tools/{path.name}" for path in (SOURCE / "tools").iterdir()
                if path.is_file() and not path.suffix and os.access(path, os.X_OK) and path.name != "count_tests"}

    def test_every_script_has_a_help_and_refuses_an_unknown_option(self):
        for script in sorted(self.scripts() - {"tools/format"}):  # clang-format's own options, where there is one
            for option, works in (("--help", True), ("--frobnicate", False)):
                with self.subTest(script, option=option):
                    done = subprocess.run([str(SOURCE / script), option], capture_output=True, text=True, check=False,
                                          stdin=subprocess.DEVNULL, timeout=60)
                    self.assertEqual(done.returncode == 0, works, done.stdout + done.stderr)
                    self.assertIn("usage" if works else "frobnicate", done.stdout + done.stderr)

    def test_the_programs_page_has_every_script(self):
        text = section(read("docs/reference/programs.md"), "Scripts of the source tree")
        self.assertEqual({script for script in self.scripts() if not re.search(rf"`{script}[ `]", text)}, set())

    def test_settings_that_the_ranks_compare_are_marked(self):
        marked = re.findall(r"^\| `(\w+)` \|.*¹ \|$", read("docs/reference/configuration.md"), re.MULTILINE)
        agree = read("lib/job/joiner.cpp").partition("self.agree = {")[2].partition("};")[0]
        self.assertTrue(marked)
        self.assertEqual(set(marked), set(re.findall(r'\{"(\w+)",', agree)))


class Tool(unittest.TestCase):
    def run_docs(self, *arguments, **env):
        return subprocess.run([str(SOURCE / "tools" / "docs"), *arguments], capture_output=True, text=True, check=False,
                              timeout=60, stdin=subprocess.DEVNULL, env={**os.environ, **env})

    def test_help_and_wrong_usage(self):
        told = self.run_docs("--help")
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        for words in ("usage: tools/docs", "--serve", "examples:", "127.0.0.1"):
            self.assertIn(words, told.stdout)
        for wrong in (["--frobnicate"], ["--serve", "loopback"], ["--serve", "123456"]):
            self.assertEqual(self.run_docs(*wrong).returncode, 2, wrong)

    def test_the_versions_are_pinned(self):
        lines = [line for line in read("tools/site/requirements.txt").splitlines() if line and not line.startswith("#")]
        self.assertEqual([line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)], [])
        self.assertTrue(any(line.startswith("mkdocs==") for line in lines))


if __name__ == "__main__":
    unittest.main()
