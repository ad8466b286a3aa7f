"""The code of the documents: fenced blocks, and the lines and spans that are commands of the tree's programs."""
import ast
import dataclasses
import os
import pathlib
import re
import shlex

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])

# Languages that the tests read, under these names only. A block in another language has no test.
CHECKED = {"c", "cpp", "cmake", "python", "sh", "console"}
OTHER_NAMES = {"": "text", "C": "c", "h": "c", "c++": "cpp", "cc": "cpp", "cxx": "cpp", "hpp": "cpp", "py": "python",
               "python3": "python", "bash": "sh", "shell": "sh", "zsh": "sh"}
# Marks after the language, as in "cpp {.excerpt}", and the languages that have them. The braces make the mark a class of the
# block on the site, whose Markdown processor knows no other form.
MARKS = {
    "continued": {"python"},  # continues the block of Python before it on the page
    "excerpt": {"cpp"},  # lines of a file of the tree, in its order
    "other-library": {"c", "cpp"},  # a program of the library that the page compares with tutti
}


# Libraries that only tools/setup-clients installs: the suite "clients" runs the programs that import one.
CLIENTS = {"lightgbm", "ray", "torchft"}
# Blocks that a test of their own runs or compares: (page, heading, language) → (file of the test, its name). There is one
# such block below the heading.
OWN_TESTS = {
    ("docs/how-to/clients.md", "Switch", "sh"):
        ("test/docs/python_blocks_test.py", "test_the_switch_to_tutti_under_torchrun"),
    ("docs/how-to/run-on-a-cluster.md", "With Slurm", "sh"):
        ("test/process/slurm_test.py", "test_the_guides_batch_script"),
    ("docs/how-to/debug-a-hang.md", "5. Compare the flight recorders", "json"):
        ("test/docs/code_blocks_test.py", "test_a_line_of_the_flight_recorder_has_the_fields_of_the_page"),
}


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int  # of the fence
    language: str
    mark: str
    text: str
    heading: str = ""

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def place(self):
        return self.page, self.heading, self.language


def pages():
    found = {*(SOURCE / "docs").rglob("*.md"), *(SOURCE / "examples").rglob("README.md"), SOURCE / "README.md",
             SOURCE / "python" / "README.md", SOURCE / "CONTRIBUTING.md"}
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in sorted(found)}


def blocks_of(page, text):
    lines = text.splitlines()
    number, heading = 0, ""
    while number < len(lines):
        fence = re.match(r"( *)(`{3,}|~{3,})(.*)$", lines[number])
        begin, number = number, number + 1
        if not fence:
            title = re.match(r"#+ +(.*)", lines[begin])
            heading = title[1] if title else heading
            continue
        while number < len(lines) and lines[number].strip() != fence[2]:
            number += 1
        body = [line.removeprefix(fence[1]) for line in lines[begin + 1:number]]
        language, _, mark = fence[3].strip().partition(" ")
        mark = re.sub(r"^\{\.(.*)\}$", r"\1", mark)
        yield Block(page, begin + 1, language, mark, "\n".join(body) + "\n", heading)
        number += 1


def blocks(*languages):
    return [block for page, text in pages().items() for block in blocks_of(page, text)
            if not languages or block.language in languages]


def imported(text):
    """The packages that a program in Python imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
            [node.module] if isinstance(node, ast.ImportFrom) else []
        found |= {name.split(".")[0] for name in names}
    return found


def joined(lines):
    """Lines without a prompt, each with the lines that a backslash at its end continues it by."""
    command = ""
    for line in lines:
        command += line.strip().removeprefix("$ ")
        if command.endswith("\\"):
            command = command[:-1]
            continue
        yield command
        command = ""


def commands_of(page, text):
    """Command lines: those of shell blocks, indented lines, and spans in a sentence."""
    prose = text
    for block in blocks_of(page, text):
        prose = prose.replace(block.text, "", 1)
        if block.language == "console":
            yield from joined(line for line in block.text.splitlines() if line.startswith(("$ ", "  ")))
        elif block.language == "sh":
            yield from joined(block.text.splitlines())
    yield from joined(line for line in prose.splitlines() if line.startswith("    "))
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose):
        yield " ".join(span.split())


def options_of(command, programs):
    """(program, option) of each option on a command line: of programs of that set, and of scripts as "tools/check"."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return  # a quotation mark of a sentence
    program = None
    for word in words:
        name = {"tutti.run": "tutti-run", "tutti.bench": "tutti-bench"}.get(word, word.rpartition("/")[2])
        found = word if word in programs else name if name in programs or name.startswith("tutti-") else None
        if re.fullmatch(r"[&|;<>]+|mpirun|mpiexec|srun|torchrun|python3?|\./\S*|\S+\.py", word):
            program = None
        elif found and program in (None, "tutti-run"):  # which starts the program after its own options
            program = found
        elif program in programs and re.match(r"--?[a-zA-Z]", word):
            yield program, word.partition("=")[0]
