"""Messages that the troubleshooting page quotes are texts of the sources.

A format string is cut at its placeholders. Nearly all words of each quoted message must lie in such pieces: a message
that is reworded in the sources and not on the page fails.
"""
import os
import pathlib
import re
import unittest

from blocks import blocks_of

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
PAGE = "docs/how-to/troubleshooting.md"
FOLDERS = ("bench", "include", "lib", "python/src", "tools", "trainer", "transports")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Texts of the dynamic loader and of errno in the quotes.
SYSTEM = {"error while loading shared libraries", "cannot open shared object file", "No such file or directory",
          "Connection reset by remote peer", "Connection refused", "Address already in use", "Too many open files"}
# The other words may be values: names of hosts, devices and settings.
LEAST_COVERED = 0.75


def pieces(code):
    """The constant parts of the code's string literals; neighbours are one string."""
    for run in re.finditer(rf"(?:{STRING.pattern}\s*)+", code):
        text = "".join(STRING.findall(run[0]))
        for piece in re.split(r"\{[^{}]*\}|%[sdr]", text.replace('\\"', '"')):
            if len(piece.strip()) > 4:
                yield piece.strip()


def messages(text):
    """The quoted messages of a page, each in one line: an indented line continues the one before."""
    for block in blocks_of(PAGE, text):
        if block.language == "text":
            yield from re.sub(r"\n\s+", " ", block.text).strip().splitlines()


def covered(message, known):
    """The share of the message's words of four letters or more that lie in a known piece."""
    inside = set()
    for piece in known:
        at = message.find(piece)
        while at >= 0:
            inside.update(range(at, at + len(piece)))
            at = message.find(piece, at + 1)
    words = [set(range(*word.span())) for word in re.finditer(r"\b[a-z]{4,}\b", message)]
    return sum(word <= inside for word in words) / len(words) if words else 1


class Messages(unittest.TestCase):
    maxDiff = None

    def test_the_troubleshooting_page_quotes_the_sources(self):
        files = [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*")
                 if path.suffix in (".cpp", ".h", ".hpp", ".py")]
        known = SYSTEM | {piece for path in files for piece in pieces(path.read_text(encoding="utf-8"))}
        quoted = list(messages((SOURCE / PAGE).read_text(encoding="utf-8")))
        self.assertGreater(len(quoted), 60)
        self.assertEqual([(f"{share:.2f}", message) for message in quoted
                          if (share := covered(message, known)) < LEAST_COVERED], [])

    def test_a_message_that_was_reworded_is_seen(self):
        known = set(pieces('fail(code, "rank {} does not answer: "\n  "its \\"host\\" is {}", a, b)'))
        self.assertEqual(known, {"does not answer: its \"host\" is"})
        self.assertEqual(covered('rank 3 does not answer: its "host" is down', known), 3 / 5)
        self.assertLess(covered('rank 3 never answered, as its "host" is down', known), LEAST_COVERED)

    def test_lines_that_continue_a_message_belong_to_it(self):
        self.assertEqual(list(messages("```text\na b\n    c\nd\n```\n```sh\ne\n```\n")), ["a b c", "d"])


if __name__ == "__main__":
    unittest.main()
