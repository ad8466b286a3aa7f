"""Reads the project's Markdown pages as text: headings, links, paragraphs, and the site's navigation.

Used by hooks.py, which builds the site, and by test/docs. Needs nothing beside Python.
"""
import os
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DOCS = "docs"
# Pages of the site that lie outside docs/. Their place in the site is their place in the repository.
OUTSIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "THIRD_PARTY.md", "examples/*.md",
           "examples/*/*.md")
# Pages outside docs/ that stand for a page of the site.
ALIASES = {"README.md": f"{DOCS}/index.md"}
# Folders that no page of the project lies in.
SKIPPED = re.compile(r"(\.|build|subprojects$|__pycache__$)")

_FENCE = r"^(?P<indent> *)(?P<fence>```+|~~~+)[^\n]*\n.*?^(?P=indent)(?P=fence)[ ]*$"
_CODE = r"(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`)"
_LINK = r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
_PIECES = re.compile(f"{_FENCE}|{_LINK}|{_CODE}", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"(#{1,6}) +(.*?)(?: +#+)?$")


def outside(source=SOURCE):
    """The names of the site's pages outside docs/, relative to the repository."""
    return sorted(path.relative_to(source).as_posix() for pattern in OUTSIDE for path in source.glob(pattern))


def project_pages(source=SOURCE):
    """The names of all Markdown files of the project, relative to the repository."""
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if not SKIPPED.match(name))
        for name in sorted(files):
            if name.endswith(".md"):
                yield pathlib.Path(folder, name).relative_to(source).as_posix()


def _without_fences(text):
    """The lines of a page; those of fenced blocks are empty."""
    def blank(found):
        return "\n" * found[0].count("\n") if found["fence"] else found[0]
    return _PIECES.sub(blank, text).splitlines()


def slug(heading):
    """The anchor of a heading, as the hosting platform makes it; the site uses the same function."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def headings(text):
    """(line, level, words) of each heading."""
    for number, line in enumerate(_without_fences(text), 1):
        if found := _HEADING.match(line):
            yield number, len(found[1]), found[2]


def anchors(text):
    """The anchors of a page's headings. Equal headings give one anchor: the generator names the other ones'."""
    return {slug(words) for _, _, words in headings(text)}


def links(text):
    """(line, target) of each link and image outside code."""
    for found in _PIECES.finditer(text):
        if found["target"]:
            yield text.count("\n", 0, found.start()) + 1, found["target"]


def replace_links(text, replacement):
    """The page with each link outside code replaced: replacement gets a match with the groups image, text and target."""
    return _PIECES.sub(lambda found: replacement(found) if found["target"] else found[0], text)


def is_relative(target):
    """Whether a link leads to a file of the project."""
    return not re.match(r"[a-z][a-z0-9+.-]*:|/|#", target)


def resolve(page, target):
    """(file, anchor) of a link in a page, both names relative to the repository; the page itself for "#anchor"."""
    path, _, anchor = target.partition("#")
    return (os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page), anchor


def nav(text):
    """The pages that mkdocs.yml lists under nav, in order, as it names them."""
    block = text.partition("\nnav:\n")[2]
    block = re.split(r"^(?=\S)(?!#)", block, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", block, re.MULTILINE)


def place(name):
    """The name that mkdocs.yml has for a page of the site."""
    return ALIASES.get(name, name).removeprefix(DOCS + "/")


def blocks(text):
    """(line, kind, words) of each block of a page: "heading", "text" for a paragraph or an item of a list, "table" for
    a row of one, "code" without words."""
    found, last, fence = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if fence or (opened := re.match(r"```+|~~~+", bare)):
            if not fence:
                fence = opened[0]
                found.append((number, "code", ""))
            elif bare == fence:
                fence = None
            last = None
        elif not bare:
            last = None
        elif _HEADING.match(line):
            found.append((number, "heading", bare.lstrip("# ")))
            last = None
        elif line.startswith("    ") and last != "text":
            if last != "code":
                found.append((number, "code", ""))
            last = "code"
        elif bare.startswith("|"):
            found.append((number, "table", bare))
            last = None
        else:
            item = re.match(r"([*+-]|\d+\.) +", bare)
            if last == "text" and not item:
                found[-1] = (*found[-1][:2], f"{found[-1][2]} {bare}")
            else:
                found.append((number, "text", bare[item.end():] if item else bare))
            last = "text"
    return found


def sentences(words):
    """The sentences of a paragraph, without the marks of emphasis, the content of code in a line, and a label in bold at
    the beginning."""
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", words)
    text = re.sub(r"`[^`]+`", "`…`", text)
    text = re.sub(r"^\*\*[^*]{1,60}(?:[.:?]\*\*|\*\*:)\s*", "", text).replace("**", "")
    return [part for part in re.split(r"(?<=[.?!:])\s+(?=[\"“`(*]*(?:[A-Z]|tutti\b))", text) if part]
