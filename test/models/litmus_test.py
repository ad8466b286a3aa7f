"""Checks the memory orders of tutti's protocols, in all executions that C++20 allows (litmus_programs.py).

Also checks that the protocols are all there: each atomic access of some folders is in a table (litmus_code.py).
"""
import os
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("TUTTI_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from litmus_code import CHECKED, CODE, ELSEWHERE  # noqa: E402
from litmus_programs import LEFT_OUT, PROGRAMS  # noqa: E402
from memory_model import ACQ, ACQ_REL, F, PLAIN, R, REL, RLX, SC, U, W, allows  # noqa: E402

WEAKER = {("W", SC): [REL], ("W", REL): [RLX], ("R", SC): [ACQ], ("R", ACQ): [RLX],
          ("U", SC): [ACQ_REL], ("U", ACQ_REL): [ACQ, REL], ("U", ACQ): [RLX], ("U", REL): [RLX]}
ORDERS = {"relaxed": RLX, "acquire": ACQ, "release": REL, "acq_rel": ACQ_REL, "seq_cst": SC}


def order_of(expression):
    """The memory order in an expression of CODE. That of a compare-exchange is its first."""
    named = re.findall(r"\b(?:memory_order_)?(relaxed|acquire|release|acq_rel|seq_cst)\b", expression)
    return ORDERS[named[0 if "compare" in expression else -1]] if named else SC


def with_event(threads, thread, index, event):
    """The threads with another event in that place; None: without the event."""
    changed = [list(t) for t in threads]
    changed[thread][index:index + 1] = [] if event is None else [event]
    return changed


def is_broken(threads, forbidden):
    """True if the threads allow a forbidden outcome. A mutant has no value for the tag of a load that it lacks."""
    tags = {e.tag for t in threads for e in t} | {"race"}
    return any(allows(threads, {k: v for k, v in outcome.items() if k in tags}) for outcome in forbidden)


def mutants(program):
    """Yields (description, threads, whether the table says that the mutant is spare)."""
    for t, thread in enumerate(program.threads):
        for i, event in enumerate(thread):
            if event.instead is not None:
                other = None if event.instead == LEFT_OUT else event.instead
                yield f"{event.at} instead", with_event(program.threads, t, i, other), False
            orders, seen = [event.order] if event.at else [], set()
            while orders:
                for order in WEAKER.get((event.kind, orders.pop()), []):
                    if order in seen:
                        continue
                    seen.add(order)
                    spare = order in event.spare
                    yield (f"{event.at} as {order}",
                           with_event(program.threads, t, i, event._replace(order=order)), spare)
                    if spare:
                        orders.append(order)


def accesses(text):
    """Yields (position, name of the function) of each atomic access by a member function."""
    for found in re.finditer(r"(?:\.|->)\s*(load|store|exchange|fetch_\w+|compare_exchange_\w+)\s*\(", text):
        yield found.start(1), found[1]


def atomics(text):
    """The names of the atomic variables that the text declares."""
    value = r"(?:\{(?:[^{}]|\{[^{}]*\})*\})?"
    declared = re.findall(rf"std::atomic<[\w:]+\s*\*?>&?\s+(\w+{value}(?:,\s*\w+{value})*);", text)
    return [name for names in declared for name in re.findall(r"(\w+)" + value + r"(?:,|$)", names)]


def checked_files():
    """(path, text) of each file of CHECKED."""
    found = [[p for p in sorted(SOURCE.glob(pattern)) if p.suffix in (".h", ".cpp")] for pattern in CHECKED]
    if not all(found):
        raise AssertionError(f"no file in one of {CHECKED}")
    return [(str(p.relative_to(SOURCE)), p.read_text()) for paths in found for p in paths]


def spans_of(name, path, text):
    """The spans of the text that an entry of the tables matches in that file."""
    where, expression = (CODE.get(name) or ELSEWHERE[name])[:2]
    return [m.span() for m in re.finditer(expression, text)] if where == path else []


class Published(unittest.TestCase):
    """Verdicts for C++20 from the papers that memory_model.py names, and from the standard's notes."""

    def check(self, verdict, outcome, *threads):
        self.assertEqual(allows(list(threads), outcome), verdict)

    def test_store_buffering(self):
        def program(*orders, fence=None):
            between = [F(fence)] if fence else []
            return ([W("x", 1, orders[0]), *between, R("y", orders[1], "a")],
                    [W("y", 1, orders[2]), *between, R("x", orders[3], "b")])
        none = {"a": 0, "b": 0}
        self.check(False, none, *program(SC, SC, SC, SC))
        for weak in range(4):
            orders = [SC, SC, SC, SC]
            orders[weak] = (REL, ACQ)[weak % 2]
            self.check(True, none, *program(*orders))
        self.check(False, none, *program(RLX, RLX, RLX, RLX, fence=SC))
        self.check(True, none, *program(RLX, RLX, RLX, RLX, fence=ACQ_REL))

    def test_message_passing(self):
        for store, load, verdict in ((REL, ACQ, False), (RLX, ACQ, True), (REL, RLX, True), (SC, SC, False)):
            self.check(verdict, {"a": 1, "b": 0}, [W("x", 1, RLX), W("y", 1, store)],
                       [R("y", load, "a"), R("x", RLX, "b")])
            self.check(verdict, {"a": 1, "race": True}, [W("x", 1, PLAIN), W("y", 1, store)],
                       [R("y", load, "a"), R("x", PLAIN)])
        self.check(False, {"a": 1, "b": 0}, [W("x", 1, RLX), F(REL), W("y", 1, RLX)],
                   [R("y", RLX, "a"), F(ACQ), R("x", RLX, "b")])
        self.check(True, {"a": 1, "b": 0}, [W("x", 1, RLX), F(REL), W("y", 1, RLX)],
                   [R("y", RLX, "a"), R("x", RLX, "b")])

    def test_load_buffering(self):
        # C++ allows it with relaxed orders, but the model's rule against values out of thin air does not.
        self.check(False, {"a": 1, "b": 1}, [R("x", RLX, "a"), W("y", 1, RLX)], [R("y", RLX, "b"), W("x", 1, RLX)])

    def test_independent_reads_of_independent_writes(self):
        for order, verdict in ((SC, False), (ACQ, True)):
            self.check(verdict, {"a": 1, "b": 0, "c": 1, "d": 0}, [W("x", 1, SC)], [W("y", 1, SC)],
                       [R("x", order, "a"), R("y", order, "b")], [R("y", order, "c"), R("x", order, "d")])

    def test_two_and_two_writes(self):
        for order, verdict in ((SC, False), (REL, True)):
            self.check(verdict, {"a": 1, "b": 1}, [W("x", 1, order), W("y", 2, order), R("y", RLX, "a")],
                       [W("y", 1, order), W("x", 2, order), R("x", RLX, "b")])

    def test_isa2(self):
        for order, verdict in ((ACQ, False), (RLX, True)):
            self.check(verdict, {"a": 1, "b": 1, "c": 0}, [W("x", 1, RLX), W("y", 1, REL)],
                       [R("y", order, "a"), W("z", 1, REL)], [R("z", ACQ, "b"), R("x", RLX, "c")])

    def test_coherence(self):
        self.check(False, {"a": 1, "b": 0}, [W("x", 1, RLX)], [R("x", RLX, "a"), R("x", RLX, "b")])
        self.check(False, {"a": 0}, [W("x", 1, RLX), R("x", RLX, "a")])
        self.check(False, {"a": 1}, [R("x", RLX, "a"), W("x", 1, RLX)])
        self.check(False, {"a": 1, "b": 2, "c": 2, "d": 1}, [W("x", 1, RLX)], [W("x", 2, RLX)],
                   [R("x", RLX, "a"), R("x", RLX, "b")], [R("x", RLX, "c"), R("x", RLX, "d")])

    def test_read_modify_writes(self):
        self.check(False, {"a": 0, "b": 0}, [U("x", 1, RLX, "a")], [U("x", 2, RLX, "b")])
        add = U("x", lambda old: old + 1, RLX)
        self.check(True, {"a": 2}, [add], [add, R("x", RLX, "a")])
        self.check(False, {"a": 0}, [add], [add, R("x", RLX, "a")])

    def test_release_sequences(self):
        # Through another thread's read-modify-write, but not through another store of either thread.
        for middle, verdict in ((U("y", 2, RLX, "m"), False), (W("y", 2, RLX), True)):
            self.check(verdict, {**({"m": 1} if middle.tag else {}), "a": 2, "b": 0}, [W("x", 1, RLX), W("y", 1, REL)],
                       [middle], [R("y", ACQ, "a"), R("x", RLX, "b")])
        self.check(True, {"a": 2, "b": 0}, [W("x", 1, RLX), W("y", 1, REL), W("y", 2, RLX)],
                   [R("y", ACQ, "a"), R("x", RLX, "b")])


class Protocols(unittest.TestCase):
    def test_no_execution_has_a_forbidden_outcome(self):
        for program in PROGRAMS:
            with self.subTest(program.name):
                self.assertFalse(is_broken(program.threads, program.forbidden), program.place)

    def test_every_order_is_needed_or_known_as_spare(self):
        for program in PROGRAMS:
            for name, threads, spare in mutants(program):
                with self.subTest(f"{program.name}: {name}"):
                    self.assertEqual(is_broken(threads, program.forbidden), not spare, "not as the table says")

    def test_every_program_has_a_change_that_breaks_it(self):
        for program in PROGRAMS:
            with self.subTest(program.name):
                self.assertTrue(any(not spare for _, _, spare in mutants(program)), "the program shows nothing")

    def test_the_code_has_the_orders_of_the_table(self):
        for name, (path, expression, times) in CODE.items():
            with self.subTest(name):
                found = re.findall(expression, (SOURCE / path).read_text())
                self.assertEqual(len(found), times, f"{path}: {expression}: has its memory order changed? "
                                 "Then change litmus_code.py and litmus_programs.py, too, and run this test")

    def test_every_access_of_the_checked_files_has_a_program_or_a_reason(self):
        for path, text in checked_files():
            spans = [s for name in (*CODE, *ELSEWHERE) for s in spans_of(name, path, text)]
            for position, function in accesses(text):
                line = text.count("\n", 0, position) + 1
                with self.subTest(f"{path}:{line}"):
                    entries = sum(first <= position < last for first, last in spans)
                    self.assertEqual(entries, 1, f"{path}:{line}: {function}: write a program and name the access in "
                                     "CODE, or give a reason in ELSEWHERE; one entry may match it (litmus_code.py)")

    def test_every_atomic_variable_of_the_checked_files_is_in_a_table(self):
        # Also finds a variable that is only accessed by operators, as `closed_ = true`.
        files = checked_files()
        known = {word for path, text in files for name in (*CODE, *ELSEWHERE)
                 for first, last in spans_of(name, path, text) for word in re.findall(r"\w+", text[first:last])}
        for path, text in files:
            for name in atomics(text):
                with self.subTest(path, variable=name):
                    self.assertTrue(name in known, "no entry of CODE or ELSEWHERE has it (litmus_code.py)")

    def test_every_exception_matches_an_access_and_has_a_reason(self):
        paths = {path for path, _ in checked_files()}
        for name, (path, expression, times, reason) in ELSEWHERE.items():
            with self.subTest(name):
                self.assertIn(path, paths)
                self.assertEqual(len(re.findall(expression, (SOURCE / path).read_text())), times)
                self.assertRegex(reason, r"^[A-Z][^.]*\.$", "one sentence")

    def test_programs_and_table_name_the_same_accesses(self):
        events = [(p.name, e) for p in PROGRAMS for t in p.threads for e in t if e.at]
        for program, event in events:
            with self.subTest(program, at=event.at):
                self.assertEqual(event.order, order_of(CODE[event.at][1]))
        self.assertEqual(set(CODE), {event.at for _, event in events})
        self.assertEqual(len(PROGRAMS), len({p.name for p in PROGRAMS}))


class ThreadModel(unittest.TestCase):
    def test_the_table_of_the_documentation_names_all_programs(self):
        text = (SOURCE / "docs/explanation/thread-model.md").read_text()
        section = text.split("\n## Memory orders\n")[1].split("\n## ")[0]
        rows = [line.split("|") for line in section.splitlines() if line.startswith("|")]
        named = [name.strip() for row in rows[2:] for name in row[5].split(",")]
        self.assertEqual(sorted(named), sorted(p.name for p in PROGRAMS))


if __name__ == "__main__":
    unittest.main(verbosity=2)
