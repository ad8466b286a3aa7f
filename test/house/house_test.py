"""The rules of the house, held against the sources: who may include whom, sizes, catalogs, headers."""
import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TUTTI_SOURCE"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools" / "house"))
import measures  # noqa: E402

GLOSSARY = SOURCE / "docs" / "reference" / "glossary.md"
CONFIGURATION = SOURCE / "docs" / "reference" / "configuration.md"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_HEADER_COLUMNS = 100
MAX_MEMBER_FUNCTIONS = 30
# Classes over the limit. A number may only fall; at the limit its line goes.
LARGE_CLASSES = {}
# The sources of each port of a message library, which may have so many lines together (docs/how-to/new-transport.md).
MAX_PORT_LINES = 1000
PORTS = {
    "ucx": ("cuda_messages", "messages", "payload", "pool", "port"),
    "ofi": ("memory", "messenger", "objects", "port", "wake"),
}
CODE = {".h", ".hpp", ".c", ".cpp"}
FOLDERS = ("include", "lib", "transports", "collectives", "trainer", "tools", "bench", "examples", "python",
           "test")
CATALOGS = {"collectives/catalog.h", "transports/catalog.h"}

# The rooms that each room builds on. It may include these, and the rooms that those build on in turn. A room that lies
# in another one has a row of its own; the row "trainer" is for the files directly in that folder.
BUILDS_ON = {
    "base": set(),
    "os": {"base"},
    # Below all that sleep or wake: transports ring for threads that sleep, and the service thread is one of them.
    "wait": {"base"},
    "config": {"base"},
    "reduce": {"base"},
    "schedule": {"base"},
    "proof": {"schedule"},
    "net": {"os", "wait"},
    "transport": {"reduce", "wait"},
    "transport/posted": {"transport"},
    "transport/mapped": {"transport"},
    "transport/flat": {"transport"},
    "transport/registration": {"os", "wait"},
    "fabric": {"transport/posted", "transport/flat", "net"},
    "fabric/messages": {"fabric", "transport/registration"},
    "cuda": {"transport", "os"},
    "record": {"transport"},
    "engine": {"schedule", "transport"},
    "rendezvous": {"net", "config"},
    "control": {"net", "record", "schedule"},
    "control/agreement": {"control"},
    "select": {"schedule", "transport/flat", "config", "catalogs"},
    "job/records": {"rendezvous", "control"},
    "job/connecting": {"job/records", "catalogs"},
    "job": {"control/agreement", "job/connecting", "select", "wait"},
    "plan": {"engine", "job"},
    "run": {"plan"},
    "p2p": {"run"},
    "comm": {"p2p"},
    "comm/growth": {"comm"},
    "handles": {"comm"},
    "gpu/operations": {"cuda", "engine"},
    "gpu/plan": {"gpu/operations", "plan"},
    "gpu": {"gpu/plan", "comm"},
    "capi": {"comm/growth", "handles", "api"},
    "catalogs": set(),
    "collectives": {"schedule"},
    "transports": {"transport/mapped", "fabric/messages", "cuda"},
    "api": set(),
    "trainer/base": {"api"},
    "trainer/model": {"trainer/base"},
    "trainer/device": {"trainer/base"},
    "trainer/plan": {"trainer/model", "trainer/device"},
    "trainer/sync": {"trainer/plan"},
    "trainer/execution": {"trainer/sync"},
    "trainer/checkpoint": {"trainer/base"},
    "trainer/parallel": {"trainer/device"},
    "trainer/sharded": {"trainer/base"},
    "trainer/assembly": {"trainer/sync"},
    "trainer": {"trainer/assembly", "trainer/execution", "trainer/checkpoint"},
    "trainer/capi": {"trainer"},
    "python": {"api"},
    "examples": {"api"},
    "bench": {"api"},
}
MOST_FILES = 28
ANYTHING = ("tools", "test", "bench/kernels")


def read(path):
    return path.read_text(encoding="utf-8")


def sources(suffixes=CODE):
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


def python_sources():
    for folder in FOLDERS:
        yield from (path for path in sorted((SOURCE / folder).rglob("*")) if measures.is_python(path))


def scripts():
    """The files of Meson, TOML and shell scripts."""
    places = [*SOURCE.iterdir(), *(path for folder in (*FOLDERS, ".ci", "deploy", "docs", "packaging")
                                   for path in sorted((SOURCE / folder).rglob("*")))]
    yield from (path for path in places if measures.has_hash_comments(path))


def name_of(path):
    return path.relative_to(SOURCE).as_posix()


def reachable(folder):
    found, todo = {folder}, [folder]
    while todo:
        for other in BUILDS_ON[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


def folder_of(name):
    """The row of the table that a file belongs to, None where anything goes."""
    if any(name.startswith(free + "/") for free in ANYTHING):
        return None
    return "api" if name.startswith("include/") else row_of(name.removeprefix("lib/"))


def row_of(name):
    """The row of a file by the name under which others include it, None for what is no part of the project."""
    first, second = (name.split("/") + [""])[:2]
    return first + "/" + second if first + "/" + second in BUILDS_ON else first if first in BUILDS_ON else None


def include_error(name, included):
    """Why a file of that name may not include that, or None."""
    folder = folder_of(name)
    if folder is None or "/" not in included:
        return None
    kind = "catalogs" if included in CATALOGS else "api" if included.startswith("tutti/") else row_of(included)
    if kind is None or (kind == "catalogs" and row_of(included) == folder):
        return None
    if kind == folder == "transports":
        own = name.split("/")[1]
        return None if included.split("/")[1] == own or name.count("/") == 1 \
            else f"{name} includes another transport's {included}"
    if kind in reachable(folder):
        return None
    allowed = ", ".join(sorted(reachable(folder) - {folder})) or "nothing else"
    return f"{name} includes {included}; {folder} may include: {allowed}"


def includes_of(path):
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', read(path), re.MULTILINE)


def long_functions(text):
    """(line, length) of functions that begin and end in the first column, as clang-format lays them."""
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        if line == "}" and begin is not None:
            if number - begin + 1 > MAX_FUNCTION_LINES:
                yield begin, number - begin + 1
            begin = None
        elif re.match(r"[A-Za-z_\[]", line) and not re.match(r"(namespace|extern|public|private)\b", line):
            begin = number


def types_of(text):
    """The types that a text defines in named namespaces, as clang-format lays them: "tutti::shm::Pair"."""
    open_names = []
    for line in text.splitlines():
        if found := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
            open_names.append(found[1])
        elif line.startswith("}  // namespace"):
            open_names.pop()
        elif found := re.match(r"(?:class|struct) (?:alignas\([^)]*\) )?(\w+)(?: final)?(?: :.*)?(?: \{|$)", line):
            if open_names and "" not in open_names:
                yield "::".join(open_names + [found[1]])


# Names that several types of lib, transports and trainer have, and why. Any other name is one type's.
SHARED_TYPE_NAMES = {
    "Error": "the trainer is a library of its own, above the C API",
    "ErrorResult": "of an Error, for which the trainer has its own type",
    "Flow": "a channel as its engine has it: a connection's and a fabric's",
    "Format": "a small float's, for vectors of the host and for kernels of a device",
    "Header": "of messages on the wire: TCP's and the fabrics'",
    "Kind": "an enumeration beside or inside what it tells the kinds of",
    "Library": "of functions that are found at run time: each transport's",
    "Options": "inside the class that takes them",
    "Phase": "an enumeration inside the operation whose phases they are",
    "ReceiveQueue": "of a flow: a connection's and a fabric's",
    "State": "an enumeration inside what has the state",
}
# First words that no member function's name has, and what docs/reference/glossary.md has for them.
UNUSED_VERBS = {"bring", "come", "condemn", "go", "hear", "heard", "kick", "look", "lose", "meet", "owe", "rest", "rouse",
                "say", "settle", "talk", "tell", "want"}
FIELD_VERBS = {"look_up"}
# A verb that begins member functions of more classes than this has a line in the glossary. These words are no verbs.
MAX_CLASSES_WITHOUT_A_LINE = 3
NO_VERBS = set("""
    address after all any at bytes calls chunk connected count data device driver each empty ended error failed fd finished
    first gone host hosts in index last lost manual missing name of on opened part path peer pending port rank ready rounded
    several size slot state turn unreachable value waits
""".split())


def type_names(text):
    """The names of all classes, structures and enumerations that a text defines, those inside others too."""
    yield from (name for name, _ in measures.classes(text))
    code = measures.without_comments_and_strings(text)
    yield from re.findall(r"\benum\s+(?:class\s+|struct\s+)?(\w+)\s*(?::[^;{]*)?\{", code)


def verb_of(function):
    """The first word of a member function's name; of the names that the glossary has as a whole, all."""
    return next((verb for verb in FIELD_VERBS if re.match(verb + r"(_|$)", function)), function.split("_")[0])


unittest.TestCase.maxDiff = None


class Includes(unittest.TestCase):
    def test_each_folder_includes_only_what_it_builds_on(self):
        errors = [error for path in sources() for included in includes_of(path)
                  if (error := include_error(name_of(path), included))]
        self.assertEqual(errors, [])

    def test_every_room_of_the_library_and_the_trainer_has_a_row_and_no_two_build_on_each_other(self):
        rooms = {path.parent.relative_to(SOURCE / "lib").as_posix() for path in (SOURCE / "lib").rglob("*.h")}
        rooms |= {name_of(path.parent) for path in (SOURCE / "trainer").rglob("*.cpp")}
        self.assertEqual(rooms - set(BUILDS_ON), set())
        for room, others in BUILDS_ON.items():
            self.assertEqual([other for other in others if room in reachable(other)], [], room)

    def test_no_room_has_too_many_files(self):
        counts = collections.Counter(path.parent for path in sources()
                                     if name_of(path).startswith(("lib/", "transports/", "trainer/")))
        self.assertEqual({name_of(folder): n for folder, n in counts.items() if n > MOST_FILES}, {})

    def test_the_rule_itself_tells_right_from_wrong(self):
        for name, included in (("lib/base/a.cpp", "engine/bind.h"), ("lib/schedule/a.h", "transport/channel.h"),
                               ("collectives/ring.cpp", "transport/channel.h"),
                               ("transports/shm/a.cpp", "schedule/schedule.h"),
                               ("transports/shm/a.cpp", "transports/tcp/b.h"),
                               ("lib/engine/a.cpp", "comm/comm.h"), ("lib/run/a.cpp", "gpu/b.h"),
                               ("lib/transport/a.h", "transport/posted/b.h"), ("lib/plan/a.cpp", "cuda/driver.h"),
                               ("lib/engine/a.cpp", "rendezvous/store.h"),
                               ("lib/engine/a.cpp", "collectives/catalog.h"),
                               ("bench/tutti_bench.cpp", "comm/comm.h"), ("examples/a.c", "base/fd.h"),
                               ("trainer/sync/a.h", "trainer/execution/b.h"), ("trainer/plan/a.h", "trainer/sync/b.h"),
                               ("trainer/checkpoint/a.h", "trainer/trainer.h"), ("trainer/sync/a.h", "base/fd.h"),
                               ("lib/comm/a.cpp", "tutti/tutti.h"), ("include/tutti/tutti.hpp", "base/fd.h")):
            self.assertIsNotNone(include_error(name, included), f"{name} may not include {included}")
        for name, included in (("lib/rendezvous/a.cpp", "net/socket.h"), ("lib/rendezvous/a.cpp", "base/fd.h"),
                               ("lib/fabric/a.cpp", "transport/posted/flow.h"), ("lib/transport/posted/a.h", "transport/channel.h"),
                               ("lib/select/a.cpp", "transports/catalog.h"), ("lib/capi/a.cpp", "tutti/tutti.h"),
                               ("transports/shm/a.cpp", "transports/catalog.h"),
                               ("transports/shm/a.cpp", "transports/shm/b.h"), ("lib/base/a.cpp", "fmt/core.h"),
                               ("trainer/execution/a.h", "trainer/sync/b.h"), ("trainer/capi/a.cpp", "trainer/trainer.h"),
                               ("trainer/trainer.h", "trainer/sync/b.h"), ("trainer/sync/a.cpp", "tutti/tutti.h"),
                               ("test/engine/a.cpp", "comm/comm.h"), ("bench/kernels/a.cpp", "reduce/reduce.h")):
            self.assertIsNone(include_error(name, included), f"{name} may include {included}")


class Names(unittest.TestCase):
    # The linker keeps one of two inline functions with the same name, and both types would call it.
    def test_no_two_types_of_a_library_have_one_name(self):
        for library in ("lib", "transports", "collectives"), ("trainer",), ("python",):
            where = {}
            for path in sources({".h", ".hpp", ".cpp"}):
                if name_of(path).split("/")[0] in library:
                    for name in types_of(read(path)):
                        where.setdefault(name, set()).add(name_of(path))
            self.assertEqual({name: paths for name, paths in where.items() if len(paths) > 1}, {})
            self.assertTrue(where, library)

    def test_a_type_name_has_one_meaning(self):
        where = {}
        for path in sources({".h", ".cpp"}):
            if name_of(path).startswith(("lib/", "transports/", "trainer/")):
                for name in type_names(read(path)):
                    where.setdefault(name, set()).add(name_of(path))
        shared = {name: sorted(paths) for name, paths in where.items() if len(paths) > 1}
        self.assertEqual({name: paths for name, paths in shared.items() if name not in SHARED_TYPE_NAMES}, {},
                         "rename one, or add the reason to SHARED_TYPE_NAMES")
        self.assertEqual(set(SHARED_TYPE_NAMES) - set(shared), set(), "take these out of SHARED_TYPE_NAMES")

    def test_no_member_function_begins_with_a_word_that_had_many_meanings(self):
        found = [f"{name_of(path)}: {name}::{function}" for path in sources({".h", ".cpp"})
                 if name_of(path).startswith(("lib/", "transports/", "trainer/"))
                 for name, functions in measures.classes(read(path)) for function in functions
                 if verb_of(function) in UNUSED_VERBS]
        self.assertEqual(found, [], "docs/reference/glossary.md has other words")
        glossary = read(GLOSSARY).partition("## Not used")[2]
        self.assertEqual({verb for verb in UNUSED_VERBS if not re.search(rf"\b{verb}\b", glossary)}, set())

    def test_a_verb_of_many_classes_is_in_the_glossary(self):
        where = {}
        for path in sources({".h", ".cpp"}):
            if name_of(path).startswith(("lib/", "transports/", "trainer/")):
                for name, functions in measures.classes(read(path)):
                    for function in functions:
                        where.setdefault(verb_of(function), set()).add(name)
        glossary = read(GLOSSARY).partition("## Verbs")[2].partition("## Not used")[0]
        explained = {verb_of(word) for word in re.findall(r"`(\w+)`", glossary)} | NO_VERBS
        found = {verb: len(classes) for verb, classes in where.items()
                 if len(classes) > MAX_CLASSES_WITHOUT_A_LINE and verb not in explained}
        self.assertEqual(found, {}, "give them lines in docs/reference/glossary.md")

    def test_type_names_and_verbs_are_seen(self):
        text = "struct A { enum class B : uint8_t { c }; class D final : E { void settle_it(); }; };\nenum F { g };"
        self.assertEqual(sorted(type_names(text)), ["A", "B", "D", "F"])
        self.assertEqual([verb_of(f) for f in ("settle_it", "look_up", "look_up_ring", "look_at", "rest")],
                         ["settle", "look_up", "look_up", "look", "rest"])

    def test_types_are_seen_where_others_see_them(self):
        text = ("namespace tutti {\nnamespace {\nstruct Hidden {\n};\n}  // namespace\nclass Declared;\n"
                "class A final : public B {\n    struct Inner {\n};\nstruct alignas(64) C {};\n"
                "}  // namespace tutti\nnamespace tutti::shm {\nclass D\n    : public E {\n")
        self.assertEqual(list(types_of(text)), ["tutti::A", "tutti::C", "tutti::shm::D"])


class Sizes(unittest.TestCase):
    def test_no_file_is_too_long(self):
        long = {name_of(p): n for p in sources(CODE | {".py"})
                if (n := len(read(p).splitlines())) > MAX_FILE_LINES}
        self.assertEqual(long, {})

    def test_no_line_of_a_public_header_is_too_long(self):
        long = [f"{name_of(path)}:{number}: {len(line)} columns" for path in sources({".h", ".hpp"})
                if name_of(path).startswith("include/")
                for number, line in enumerate(read(path).splitlines(), 1) if len(line) > MAX_HEADER_COLUMNS]
        self.assertEqual(long, [])

    def test_no_function_is_too_long(self):
        long = [f"{name_of(path)}:{line}: {length} lines" for path in sources({".cpp", ".c"})
                for line, length in long_functions(read(path))]
        self.assertEqual(long, [])

    def test_no_port_of_a_message_library_is_too_long(self):
        lines = {name: sum(len(read(path).splitlines()) for path in (SOURCE / "transports" / name).iterdir()
                           if path.stem in sources_of and path.suffix in CODE) for name, sources_of in PORTS.items()}
        self.assertEqual({name: n for name, n in lines.items() if n > MAX_PORT_LINES}, {},
                         "move what others could use to lib/fabric")

    def test_a_long_function_is_seen(self):
        body = "    x();\n" * MAX_FUNCTION_LINES
        self.assertEqual(len(list(long_functions("int f(int a,\n      int b) {\n" + body + "}\n"))), 1)
        self.assertEqual(len(list(long_functions("int f() {\n    x();\n}\n" + body + "}  // namespace\n"))), 0)


class Classes(unittest.TestCase):
    def test_no_class_has_too_many_member_functions(self):
        large = {name: len(found) for folder in ("lib", "transports", "trainer")
                 for path in sorted((SOURCE / folder).rglob("*")) if path.suffix in CODE
                 for name, found in measures.classes(read(path)) if len(found) > MAX_MEMBER_FUNCTIONS}
        self.assertEqual(large, LARGE_CLASSES, "lower the number in LARGE_CLASSES, or divide the class")


class Comments(unittest.TestCase):
    def comments(self):
        """(file, line, text) of each comment, docstrings too."""
        kinds = ((sources(), measures.comment_blocks), (sources(), measures.trailing_comments),
                 (python_sources(), measures.python_blocks), (scripts(), measures.hash_blocks))
        yield from ((name_of(path), line, text) for paths, blocks in kinds
                    for path in paths for line, text in blocks(read(path)))

    def test_no_comment_opens_with_a_clause_without_an_actor(self):
        found = [f"{name}:{line}: {text[:70]}" for name, line, text in self.comments() if measures.is_headless(text)]
        self.assertEqual(found, [], "name the actor; docs/reference/glossary.md has the words")

    def test_no_later_sentence_opens_with_such_a_clause(self):
        found = [f"{name}:{line}: {sentence[:70]}" for name, line, text in self.comments()
                 if (sentence := measures.headless_sentence(text))]
        self.assertEqual(found, [], "name the actor; docs/reference/glossary.md has the words")

    def test_scripts_are_looked_at(self):
        named = {name_of(path) for path in scripts()}
        self.assertLessEqual({".ci/run", "lib/meson.build", "meson.build", "meson_options.txt", "pyproject.toml",
                              "tools/check", "tools/common.sh"}, named)
        self.assertFalse({"tools/house-report", "mkdocs.yml"} & named)

    def test_comments_and_docstrings_of_python_are_seen_whole(self):
        text = ('#!/usr/bin/env python3\n"""One\n\ntwo."""\n# Three\n# four.\ndef f():\n    """Five."""\n'
                '    return "# no", """no"""  # six\n# Seven.\n')
        self.assertEqual(list(measures.python_blocks(text)),
                         [(2, "One two."), (5, "Three four."), (8, "Five."), (9, "six"), (10, "Seven.")])
        named = {name_of(path) for path in python_sources()}
        self.assertLessEqual({"tools/house-report", "bench/compare", "test/house/house_test.py"}, named)
        self.assertFalse({"tools/check", "tools/house/walk.c"} & named)


class Errors(unittest.TestCase):
    FOLDERS = ("lib", "transports", "trainer", "collectives", "tools", "bench")

    def sources(self):
        yield from (path for path in sources() if name_of(path).split("/")[0] in self.FOLDERS)

    def test_each_error_that_its_caller_can_correct_says_what_to_do(self):
        found = [f"{name_of(path)}:{line}: {code[:80]}" for path in self.sources()
                 for line, code in measures.errors_without_advice(read(path))]
        self.assertEqual(found, [], "add .advice(…) in the same statement")

    def test_each_warning_in_the_log_is_an_error_with_its_advice(self):
        found = [f"{name_of(path)}:{line}: {code[:80]}" for path in self.sources()
                 for line, code in measures.warnings_without_advice(read(path))]
        self.assertEqual(found, [], 'log::warn(fail(code, "…").advice("…")), or log::warn(wrap(error, "…"))')

    def test_one_function_of_each_library_joins_a_message_and_its_advice(self):
        of_cxx = (path for path in sources({".cpp", ".h"}) if name_of(path).startswith(("lib/", "transports/", "trainer/")))
        of_python = (path for path in python_sources() if name_of(path).startswith("python/src/"))
        found = {name_of(path) for paths, is_python in ((of_cxx, False), (of_python, True))
                 for path in paths if measures.has_typed_advice(read(path), is_python)}
        self.assertEqual(found, {"lib/base/result.h", "trainer/base/boundary.cpp", "python/src/tutti/_errors.py"},
                         "use .advice(…) or with_advice(message, advice)")

    def test_no_error_or_warning_opens_with_a_clause_without_an_actor(self):
        programs = (path for path in python_sources() if not name_of(path).startswith("test/"))
        found = [f"{name_of(path)}:{line}: {text[:70]}"
                 for paths, texts in ((self.sources(), measures.error_texts), (self.sources(), measures.help_texts),
                                      (programs, measures.python_error_texts))
                 for path in paths for line, text in texts(read(path))
                 if measures.is_headless_text(text) or measures.headless_sentence(text)]
        self.assertEqual(found, [], "name the rank, the operation, the function or the setting first")


class Files(unittest.TestCase):
    def test_every_source_is_built(self):
        missing = []
        for path in sources({".c", ".cpp"}):
            if name_of(path).startswith(("bench/peers/", "tools/house/")):
                continue  # compiled by bench/compare and tools/house-report themselves, for what they look at
            folder, listed = path.parent, False
            while folder != SOURCE and not listed:
                build = folder / "meson.build"
                listed = build.is_file() and path.name in read(build)
                if not listed and build.is_file():
                    # A list of names without their ending, in a foreach.
                    listed = re.search(rf"'(?:[\w/]*/)?{re.escape(path.stem)}'", read(build)) is not None
                folder = folder.parent
            if not listed:
                missing.append(name_of(path))
        self.assertEqual(missing, [], "in no meson.build")

    def test_threads_sleep_and_yield_in_one_room(self):
        calls = r"\b(usleep|nanosleep|sleep_for|sleep_until|sched_yield|this_thread::yield)\b"
        found = [name_of(path) for path in sources() if name_of(path).startswith(("lib/", "transports/"))
                 and not name_of(path).startswith("lib/wait/")
                 and re.search(calls, measures.without_comments_and_strings(read(path)))]
        self.assertEqual(found, [], "lib/wait has Backoff, Pace, Doorbell and Wakeups")

    def test_every_transport_is_in_the_catalog(self):
        folders = {p.name for p in (SOURCE / "transports").iterdir() if any(p.glob("*.cpp"))}
        catalog = set(re.findall(r'^\s*\{\s*"(\w+)"', read(SOURCE / "transports" / "catalog.cpp"), re.MULTILINE))
        self.assertTrue(folders)
        self.assertEqual(folders - catalog, set(), "missing in transports/catalog.cpp")

    def test_every_variable_that_is_no_setting_is_known_as_one_that_is_read(self):
        outside = read(CONFIGURATION).partition("## Settings outside this table")[2]
        documented = set(re.findall(r"`(TUTTI_\w+)`", outside))
        listed = read(SOURCE / "lib" / "config" / "misspelt.cpp").partition("others[]")[2].partition(";")[0]
        self.assertTrue(documented)
        self.assertEqual(documented, set(re.findall(r'"(TUTTI_\w+)"', listed)), "others in lib/config/misspelt.cpp")

    def test_the_help_of_each_setting_opens_its_row_in_the_configuration_page(self):
        table = read(SOURCE / "lib" / "config" / "config.cpp").partition("ConfigKey keys[]")[2].partition("\n};")[0]
        helps = {name: "".join(re.findall(r'"([^"]*)"', text)) for name, text
                 in re.findall(r'^    \{"(\w+)", "[^"]*",((?:\s*"[^"]*")+)', table, re.MULTILINE)}
        rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| (.*) \|$", read(CONFIGURATION), re.MULTILINE))
        self.assertGreater(len(helps), 30)
        self.assertEqual([name for name, text in helps.items() if not rows.get(name, "").startswith(text)], [])

    def test_the_walk_of_a_call_names_functions_that_there_are(self):
        named = re.findall(r"`(\w+)::(\w+)`", read(SOURCE / "ARCHITECTURE.md").partition("## One allreduce")[2])
        self.assertGreater(len(named), 30)
        code = "\n".join(read(path) for path in sources() if name_of(path).startswith(("lib/", "transports/")))
        self.assertEqual([f"{kind}::{name}" for kind, name in named
                          if not re.search(rf"\b(class|struct) {kind}\b", code) or not re.search(rf"\b{name}\(", code)], [])

    def test_nothing_is_left_open_and_no_machine_is_named(self):
        # Put together here, so that this file does not find itself.
        words = r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"
        places = r"(?<![\w.])/(wo" + r"rk|fa" + r"rm|ro" + r"ot)/|/tmp/ba" + r"sh_jobs"
        found = []
        text_files = [p for p in sources(CODE | {".py", ".build", ".in", ".md", ".sh"})]
        text_files += [p for p in (SOURCE / "docs").rglob("*.md")] + list(SOURCE.glob("*.md"))
        text_files += [p for p in (SOURCE / "tools").iterdir() if p.is_file() and not p.suffix]
        for path in text_files:
            for number, line in enumerate(read(path).splitlines(), 1):
                if re.search(words, line) or re.search(places, line):
                    found.append(f"{name_of(path)}:{number}: {line.strip()}")
        self.assertEqual(found, [])


class Headers(unittest.TestCase):
    def compiles(self, compiler, standard, suffix, header):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / ("alone" + suffix)
            unit.write_text(f"#include <{header}>\nint main(void) {{ return 0; }}\n", encoding="utf-8")
            run = subprocess.run(shlex.split(os.environ[compiler]) + [
                f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
                "-I", str(SOURCE / "include"), str(unit)], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)

    def headers(self, suffix):
        found = sorted(p.name for p in (SOURCE / "include" / "tutti").glob("*" + suffix))
        self.assertTrue(found)
        return found

    def test_c_headers_compile_alone_as_c11(self):
        for header in self.headers(".h"):
            self.compiles("TUTTI_CC", "c11", ".c", "tutti/" + header)

    def test_c_headers_compile_alone_as_cxx(self):
        for header in self.headers(".h"):
            for standard in ("c++11", "c++20"):
                self.compiles("TUTTI_CXX", standard, ".cpp", "tutti/" + header)

    def test_cxx_headers_compile_alone(self):
        for header in self.headers(".hpp"):
            self.compiles("TUTTI_CXX", "c++20", ".cpp", "tutti/" + header)

    def test_every_function_of_the_c_api_is_documented(self):
        for header in self.headers(".h"):
            lines = read(SOURCE / "include" / "tutti" / header).splitlines()
            bare = [line for before, line in zip(lines, lines[1:])
                    if line.startswith("TUTTI_API") and not before.rstrip().endswith("*/")]
            self.assertEqual(bare, [], header)


if __name__ == "__main__":
    unittest.main()
