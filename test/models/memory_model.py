"""Enumerates all executions of a small concurrent program under the memory model of C++20.

The model is RC11: O. Lahav, V. Vafeiadis, J. Kang, C.-K. Hur, D. Dreyer, "Repairing Sequential Consistency in C/C++11",
PLDI 2017. C++20 has adopted its order of sequentially consistent accesses (WG21 paper P0668R5). Release sequences are
those of C++20 (P0982R1): a store and the read-modify-writes that follow it, whichever thread runs them. RC11 forbids
values out of thin air by a rule that C++ only recommends: no cycle of program order and reads-from.

A program is a list of threads, and a thread is a list of events in program order. The outcome expresses branches: an
event after a branch counts only in executions in which the reads before it have the values that the outcome names.
"""
import collections
import itertools

# Memory orders. A plain access is not atomic: two of them that conflict without synchronization are a data race.
PLAIN, RLX, ACQ, REL, ACQ_REL, SC = "plain", "rlx", "acq", "rel", "acq_rel", "sc"
RELEASES = {REL, ACQ_REL, SC}
ACQUIRES = {ACQ, ACQ_REL, SC}

# kind: W (store), R (load), U (read-modify-write) or F (fence). value: what a W or U stores; a U may have a function of
# the value that it reads. tag: the name of the value read, in outcomes. The other fields are of litmus_test.py.
Event = collections.namedtuple("Event", "kind place value order tag at spare instead", defaults=("", "", "", None))


def W(place, value, order, at="", **more):
    return Event("W", place, value, order, "", at, **more)


def R(place, order, tag="", at="", **more):
    return Event("R", place, None, order, tag, at, **more)


def U(place, value, order, tag="", at="", **more):
    return Event("U", place, value, order, tag, at, **more)


def F(order, at="", **more):
    return Event("F", "", None, order, "", at, **more)


class Relation:
    """A set of pairs of events: `rows[i]` has bit j set if (i, j) is in the relation."""

    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def of(cls, count, pairs):
        rows = [0] * count
        for a, b in pairs:
            rows[a] |= 1 << b
        return cls(rows)

    def __or__(self, other):
        return Relation([a | b for a, b in zip(self.rows, other.rows)])

    def __and__(self, other):
        return Relation([a & b for a, b in zip(self.rows, other.rows)])

    def __sub__(self, other):
        return Relation([a & ~b for a, b in zip(self.rows, other.rows)])

    def __matmul__(self, other):
        """The composition: first self, then other."""
        rows = []
        for row in self.rows:
            reached = 0
            while row:
                reached |= other.rows[(row & -row).bit_length() - 1]
                row &= row - 1
            rows.append(reached)
        return Relation(rows)

    def __contains__(self, pair):
        return self.rows[pair[0]] >> pair[1] & 1

    def closure(self):
        """The transitive closure."""
        rows = self.rows[:]
        for k in range(len(rows)):
            for i, row in enumerate(rows):
                if row >> k & 1:
                    rows[i] = row | rows[k]
        return Relation(rows)

    def is_irreflexive(self):
        return not any(row >> i & 1 for i, row in enumerate(self.rows))


class Program:
    """The events, with one initial store of 0 to each place, and the relations that all executions share."""

    def __init__(self, threads):
        self.places = sorted({e.place for thread in threads for e in thread if e.kind != "F"})
        self.events = [W(place, 0, PLAIN) for place in self.places]
        self.thread = [-1] * len(self.events)
        for number, thread in enumerate(threads):
            self.events += thread
            self.thread += [number] * len(thread)
        self.count = len(self.events)
        every, events = range(self.count), self.events
        first = len(self.places)
        self.reads = [i for i in every if events[i].kind in "RU"]
        self.fences = [i for i in every if events[i].kind == "F"]
        self.stores = {place: [i for i in every if i >= first and events[i].kind in "WU" and events[i].place == place]
                       for place in self.places}
        self.sb = self.relation((i, j) for i in every for j in every
                                if i < j and (i < first <= j or first <= i and self.thread[i] == self.thread[j]))
        self.same_place = self.relation((i, j) for i in every for j in every
                                        if events[i].place and events[i].place == events[j].place)
        self.identity = self.relation((i, i) for i in every)
        self.sc = self.relation((i, i) for i in every if events[i].order == SC and events[i].kind != "F")
        self.sc_fences = self.relation((i, i) for i in self.fences if events[i].order == SC)
        self.conflicts = [(i, j) for i in every for j in every
                          if first <= i < j and self.thread[i] != self.thread[j] and (i, j) in self.same_place
                          and PLAIN in (events[i].order, events[j].order)
                          and {"W", "U"} & {events[i].kind, events[j].kind}]

    def relation(self, pairs):
        return Relation.of(self.count, pairs)

    def modification_orders(self):
        """Yields a list of stores for each place, in an order that agrees with each thread's."""
        def orders(place):
            initial = self.places.index(place)
            for order in itertools.permutations(self.stores[place]):
                if not any((b, a) in self.sb for a, b in itertools.combinations(order, 2)):
                    yield [initial, *order]
        for chosen in itertools.product(*(list(orders(place)) for place in self.places)):
            yield dict(zip(self.places, chosen))

    def reads_from(self, orders, wanted):
        """Yields a store for each read. `wanted` leaves out stores of constants that the outcome does not allow."""
        def sources(read):
            event, order = self.events[read], orders[self.events[read].place]
            # A read-modify-write reads the store just before its own.
            found = [order[order.index(read) - 1]] if event.kind == "U" else order
            for store in found:
                value = self.events[store].value
                if event.tag not in wanted or callable(value) or value == wanted[event.tag]:
                    yield store
        for chosen in itertools.product(*(list(sources(read)) for read in self.reads)):
            yield dict(zip(self.reads, chosen))

    def executions(self, wanted):
        """Yields the consistent executions in which the tagged reads have the wanted values."""
        for orders in self.modification_orders():
            for source in self.reads_from(orders, wanted):
                execution = Execution(self, orders, source)
                values = execution.values()
                if all(values[tag] == value for tag, value in wanted.items()) and execution.is_consistent():
                    yield execution


class Execution:
    """One choice of the modification orders and of the store that each read reads from."""

    def __init__(self, program, orders, source):
        self.program, self.orders, self.source = program, orders, source
        self.hb = None  # happens-before, once is_consistent() has made it

    def stored(self, i):
        value = self.program.events[i].value
        return value(self.stored(self.source[i])) if callable(value) else value

    def values(self):
        events = self.program.events
        return {events[read].tag: self.stored(store) for read, store in self.source.items() if events[read].tag}

    def synchronizes(self):
        """Yields the pairs of a release and an acquire operation, accesses or fences, that synchronize."""
        events, sb, fences = self.program.events, self.program.sb, self.program.fences
        for read, store in self.source.items():
            chain = [store]  # the heads of the release sequences that the store belongs to
            while events[chain[-1]].kind == "U":
                chain.append(self.source[chain[-1]])
            atomic = [i for i in chain if events[i].order != PLAIN]
            releases = [i for i in atomic if events[i].order in RELEASES]
            releases += [f for f in fences if events[f].order in RELEASES and any((f, i) in sb for i in atomic)]
            acquires = [read] if events[read].order in ACQUIRES else []
            if events[read].order != PLAIN:
                acquires += [f for f in fences if events[f].order in ACQUIRES and (read, f) in sb]
            yield from itertools.product(releases, acquires)

    def is_consistent(self):
        """The axioms of RC11."""
        p = self.program
        rf = p.relation((store, read) for read, store in self.source.items())
        if not (p.sb | rf).closure().is_irreflexive():
            return False
        mo = p.relation(pair for order in self.orders.values() for pair in itertools.combinations(order, 2))
        # From a read to the stores that overwrite the value that it reads.
        later = {read: self.orders[p.events[read].place] for read in self.source}
        fr = p.relation((read, other) for read, store in self.source.items()
                        for other in later[read][later[read].index(store) + 1:] if other != read)
        self.hb = hb = (p.sb | p.relation(self.synchronizes())).closure()
        eco = (rf | mo | fr).closure()
        if not hb.is_irreflexive() or not (hb @ eco).is_irreflexive():  # coherence
            return False
        elsewhere = p.sb - p.same_place
        scb = p.sb | elsewhere @ hb @ elsewhere | hb & p.same_place | mo | fr
        reflexive_hb = hb | p.identity
        psc = (p.sc | p.sc_fences @ reflexive_hb) @ scb @ (p.sc | reflexive_hb @ p.sc_fences)
        psc |= p.sc_fences @ (hb | hb @ eco @ hb) @ p.sc_fences
        return psc.closure().is_irreflexive()

    def has_race(self):
        """True if two conflicting accesses, one of them plain, are not ordered by happens-before."""
        return any((a, b) not in self.hb and (b, a) not in self.hb for a, b in self.program.conflicts)


def allows(threads, outcome):
    """True if some execution has the outcome: a value for each tag that it names. An outcome that names the tag "race"
    also asks for a data race."""
    wanted = {tag: value for tag, value in outcome.items() if tag != "race"}
    return any("race" not in outcome or execution.has_race() for execution in Program(threads).executions(wanted))
