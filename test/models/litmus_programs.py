"""The protocols between tutti's threads as litmus programs for memory_model.py.

A program has the accesses of one protocol, in straight lines: the outcome names the values that lead along these lines.
`forbidden` lists the outcomes that would be a bug. The test weakens each order step by step. Each weaker order must
allow a forbidden outcome, which shows that the code needs its order. Otherwise the event lists the weaker order as
`spare`: another program needs the stronger one, or it is the default. `instead` is another event in the place of this
one, or LEFT_OUT; it must allow a forbidden outcome, too. A program without any such change would show nothing.

An event's `at` is a key of CODE (litmus_code.py). An event without one is no access of the code: it prepares a value,
or stands for what the kernel orders: a write and a read of an eventfd or a socket, the end of a thread, a futex.
"""
import collections

from memory_model import ACQ, ACQ_REL, F, PLAIN, REL, RLX, SC, R, U, W

# place: where the protocol is in the code.
Litmus = collections.namedtuple("Litmus", "name place threads forbidden")
LEFT_OUT = "left out"
ANY = (REL, ACQ, ACQ_REL, RLX)  # spare: the access is needed, with any order


def sleeps(name, place, announce, check, publish, look):
    """Dekker's pattern: a sleeper announces and checks; another thread publishes and looks for the sleeper."""
    return Litmus(name, place, [[announce, check], [publish, look]], [{check.tag: 0, look.tag: 0}])


def passes(name, place, first, store, load):
    """Message passing: a thread that sees the store may use the plain memory that the storing thread used before."""
    return Litmus(name, place, [[first, store], [load, W("memory", 2, PLAIN)]], [{load.tag: store.value, "race": True}])


def process_ended(name, place, load):
    """The kernel marks the word of a thread that ends; the thread that sees the mark reports it in a second word. Other
    threads of the process stop within microseconds, for which the kernel gives no order (docs/adr/0018)."""
    return Litmus(name, place, [
        [WAS_READ, W("word", 1, REL)],
        [R("word", SC, "word", "word", spare=(ACQ,)), W("ended", 1, REL, "ended=")],
        [load, W("memory", 2, PLAIN)]], [{"word": 1, load.tag: 1, "race": True}])


def call_counted(name, place, last):
    """A thread that sees the number of a call (2) finds the call's entry, in the large array of entries, too."""
    return Litmus(name, place, [
        [W("many", 1, REL, "many_=", spare=(RLX,)), W("sequence", 2, REL, "sequence=", spare=(RLX,)),
         W("last", 2, REL, "last_=")],
        [last, R("many", ACQ, "many", "many_ in entries", spare=(RLX,)),
         R("sequence", ACQ, "first", "sequence first", spare=(RLX,))]],
        [{last.tag: 2, "many": 0}, {last.tag: 2, "first": 0}])


# A futex in the kernel: a sleeper enters the queue and then compares the word, a waker looks at the queue after its
# caller has changed the word, and each has a full barrier between (kernel/futex/waitwake.c).
SLEEPER_QUEUED, LOOK_AT_QUEUE = (U("queue", 1, RLX), F(SC)), (F(SC), R("queue", RLX, "queue"))
WRITTEN, WAS_READ = W("memory", 1, PLAIN), R("memory", PLAIN)

PROGRAMS = (
    # ---- shared memory
    passes("cell published", "MappedSender::publish, MappedReceiver::has_message", WRITTEN,
           W("turn", 1, SC, "turn= published", spare=(REL,)),
           R("turn", SC, "turn", "turn in has_message", spare=(ACQ,))),
    passes("cell released", "MappedReceiver::release, MappedSender::can_push", WAS_READ,
           W("turn", 1, SC, "turn= released", spare=(REL,)),
           R("turn", SC, "turn", "turn in can_push", spare=(ACQ,))),
    sleeps("reader sleeps", "MappedReceiver::arm, MappedSender::publish",
           W("sleeps", 1, SC, "reader_sleeps="), R("turn", SC, "turn", "turn in has_message"),
           W("turn", 1, SC, "turn= published"), R("sleeps", SC, "sleeps", "reader_sleeps")),
    sleeps("writer sleeps", "MappedSender::arm, MappedReceiver::release",
           W("sleeps", 1, SC, "writer_sleeps="), R("turn", SC, "turn", "turn in can_push"),
           W("turn", 1, SC, "turn= released"), R("sleeps", SC, "sleeps", "writer_sleeps")),
    # The pool gives the memory of a channel to another one once the sender has closed, too.
    passes("channel closed", "~MappedReceiver, ChannelPool::take_closed", WAS_READ,
           W("closed", 1, REL, "reader_closed="), R("closed", ACQ, "closed", "reader_closed")),
    # The kernel orders what a process stored before it sent a message over a socket, and the message's arrival.
    Litmus("channel formatted", "format_mapped_channel, HostPeers::handle_channel", [
        [W("turn", 1, REL, "turn= formatted", spare=(RLX,)), U("socket", 1, ACQ_REL, instead=U("socket", 1, RLX))],
        [U("socket", 2, ACQ_REL, "socket"), R("turn", SC, "turn", "turn in has_message", spare=(ACQ, RLX))]],
        [{"socket": 1, "turn": 0}]),
    # A set of large cells goes to another channel of the process after the reader has read all of its messages. A thread
    # that finds messages unread writes nothing, but it reads the channel's position, which the channel then changes.
    passes("large cells all read", "MappedReceiver::release, mapped_cells_home", WAS_READ,
           W("turn", 1, SC, "turn= released", spare=(REL,)), R("turn", ACQ, "turn", "turn in mapped_cells_home")),
    passes("large cells idle", "ChannelPool::return_cells, ChannelPool::take_back", WRITTEN,
           W("loan", 1, REL, "loan= idle"), U("loan", 2, ACQ, "loan", "loan examined")),
    passes("large cells examined and left", "ChannelPool::take_back, ChannelPool::borrow", WAS_READ,
           W("loan", 1, REL, "loan= left"), U("loan", 2, ACQ, "loan", "loan used")),
    # The pool's mutex orders the other accesses. 2: examined, 3: none.
    Litmus("large cells taken away and borrowed again", "ChannelPool::take_back, ChannelPool::borrow", [
        [U("loan", 2, ACQ, "", "loan examined", spare=(RLX,)), WRITTEN,
         W("loan", 3, REL, "loan= none", spare=(RLX,)), W("mutex", 1, REL, instead=W("mutex", 1, RLX))],
        [U("mutex", 2, ACQ, "mutex"), R("loan", RLX, "loan", "loan in borrow"), W("memory", 2, PLAIN),
         W("loan", 4, RLX, "loan= used")]],
        [{"mutex": 1, "loan": 0}, {"mutex": 1, "loan": 2}, {"mutex": 1, "race": True}]),
    # The table's mutex orders the threads that publish segments.
    Litmus("segments published by two threads", "SegmentTable::publish", [
        [W("count", 1, REL, "count_=", spare=(RLX,)), W("mutex", 1, REL, instead=W("mutex", 1, RLX))],
        [U("mutex", 2, ACQ, "mutex"), R("count", RLX, "count", "count_ in publish")]], [{"mutex": 1, "count": 0}]),
    passes("segment announced", "SegmentTable::publish, HostPeers::announce", WRITTEN,
           W("count", 1, REL, "count_="), R("count", ACQ, "count", "count_ in count")),
    passes("segment mapped", "SegmentTable::publish, SegmentTable::at", WRITTEN,
           W("count", 1, REL, "count_="), R("count", ACQ, "count", "count_")),
    # The kernel orders what a process stored before its end, and the end of its socket.
    Litmus("last message of a process that is gone", "HostPeers, MappedReceiver::health", [
        [W("turn", 1, SC, "turn= published", spare=(REL, RLX)), U("socket", 1, ACQ_REL)],
        [U("socket", 2, ACQ_REL, "socket"), W("gone", 1, REL, "gone=")],
        [R("gone", ACQ, "gone", "gone"), R("turn", SC, "turn", "turn in has_message", spare=(ACQ, RLX))]],
        [{"socket": 1, "gone": 1, "turn": 0}]),
    passes("flat slot written", "MappedBoard::publish, FlatOperation::check_slot", WRITTEN,
           W("turn", 1, SC, "flat turn=", spare=(REL,)), R("turn", SC, "turn", "flat turn", spare=(ACQ,))),
    # Rank 0 writes its slot again once it has seen the later turns of ranks 1 and 2, which then read it no more.
    Litmus("flat slot used again", "flat_memory.h", [
        [R("memory", PLAIN), W("turn 1", 1, SC, "flat turn=", spare=(REL,))],
        [R("memory", PLAIN), W("turn 2", 1, SC, "flat turn=", spare=(REL,))],
        [R("turn 1", SC, "one", "flat turn", spare=(ACQ,)), R("turn 2", SC, "two", "flat turn", spare=(ACQ,)),
         W("memory", 1, PLAIN)]], [{"one": 1, "two": 1, "race": True}]),
    # The leader gives the memory to another group once both other ranks have left (bits 1 and 2). A plain store by rank
    # 2 would end the release sequence of rank 1.
    Litmus("flat group left", "~FlatMember, ClosedGroups::is_used", [
        [WAS_READ, U("left", lambda old: old | 1, ACQ_REL, "", "left|", spare=(REL,))],
        [WAS_READ, U("left", lambda old: old | 2, ACQ_REL, "one", "left|", spare=(REL,), instead=W("left", 3, REL))],
        [R("left", ACQ, "left", "left"), W("memory", 1, PLAIN)]], [{"one": 1, "left": 3, "race": True}]),
    # A second rank announces itself in the same word (bit 2), and recalls.
    Litmus("flat reader sleeps", "MappedBoard::arm, MappedBoard::publish", [
        [U("sleepers", lambda old: old | 1, SC, "", "flat sleepers|"), R("turn", SC, "turn", "flat turn")],
        [U("sleepers", lambda old: old | 2, SC, "", "flat sleepers|", spare=ANY),
         U("sleepers", lambda old: old & ~2, SC, "", "flat sleepers&", spare=ANY,
           instead=W("sleepers", 0, SC))],
        [W("turn", 1, SC, "flat turn="), R("sleepers", SC, "sleepers", "flat sleepers")]],
        [{"turn": 0, "sleepers": 0}, {"turn": 0, "sleepers": 2}]),
    process_ended("reader's process ended", "Watch, Neighbours::note_end, ChannelPool",
                  R("ended", ACQ, "ended", "ended in pool")),
    process_ended("flat member's process ended", "Watch, Neighbours::note_end, ClosedGroups",
                  R("ended", ACQ, "ended", "ended")),
    passes("listener destroyed by the reactor's thread", "destroy_on_reactor", WRITTEN,
           W("done", 1, REL, "done="), R("done", ACQ, "done", "done")),

    # ---- the host's board
    Litmus("row taken", "Watch::take_row, Watch::check_row", [
        [W("word", 1, SC, "word= owner", spare=(REL, RLX)), W("pid", 1, SC, "pid=", spare=(REL, RLX)),
         W("row", 1, SC, "rank_plus_1=", spare=(REL,))],
        [R("row", SC, "row", "rank_plus_1", spare=(ACQ,)), R("word", SC, "word", "word", spare=(ACQ, RLX)),
         R("pid", SC, "pid", "pid", spare=(ACQ, RLX))]], [{"row": 1, "word": 0}, {"row": 1, "pid": 0}]),
    # A rank that sees the new count, but not the row, would sleep until the next row is taken. So would a rank that
    # sleeps on the old count, unseen.
    Litmus("row taken while another rank goes to sleep", "Watch::take_row, Watch::watch_until_closed", [
        [W("row", 1, SC, "rank_plus_1=", spare=(REL, RLX)),
         U("changes", 1, SC, "", "changes++", spare=(ACQ_REL, REL), instead=LEFT_OUT), *LOOK_AT_QUEUE],
        [R("changes", SC, "changes", "changes", spare=(ACQ,)),
         R("row", SC, "row", "rank_plus_1", spare=(ACQ, RLX)), *SLEEPER_QUEUED, R("changes", RLX, "asleep")]],
        [{"changes": 1, "row": 0}, {"row": 0, "asleep": 0, "queue": 0}]),
    # A plain store by the second rank would end the release sequence of the first.
    Litmus("rows taken by two ranks", "Watch::take_row, Watch::watch_until_closed", [
        [W("row", 1, SC, "rank_plus_1=", spare=(REL, RLX)),
         U("changes", 1, SC, "", "changes++", spare=(ACQ_REL, REL))],
        [U("changes", 2, SC, "one", "changes++", spare=ANY, instead=W("changes", 2, SC))],
        [R("changes", SC, "changes", "changes", spare=(ACQ,)), R("row", SC, "row", "rank_plus_1", spare=(ACQ, RLX))]],
        [{"one": 1, "changes": 2, "row": 0}]),
    # 0: the owner's id, 1: the same and watched, 2: left. The kernel marks the end of a thread in the same way, by a
    # compare-exchange and a wake-up if the word was watched.
    Litmus("watched rank leaves", "Watch::leave_row, Watch::check_word", [
        [U("word", 2, SC, "old", "word left", spare=ANY, instead=W("word", 2, SC)), *LOOK_AT_QUEUE],
        [U("word", 1, SC, "mine", "word watched", spare=ANY, instead=W("word", 1, SC)), *SLEEPER_QUEUED,
         R("word", RLX, "asleep")]],
        [{"mine": 0, "old": 0, "asleep": 1}, {"mine": 0, "old": 1, "asleep": 1, "queue": 0}]),
    Litmus("watch thread told to stop", "Watch::close, Watch::watch_until_closed", [
        [W("closed", 1, SC, "closed_=", spare=ANY), W("wake", 1, SC, "wake_=", spare=ANY, instead=LEFT_OUT),
         *LOOK_AT_QUEUE],
        [R("closed", SC, "closed", "closed_", spare=ANY), *SLEEPER_QUEUED, R("wake", RLX, "asleep")]],
        [{"closed": 0, "asleep": 0, "queue": 0}]),

    # ---- requests and streams
    passes("stream passed on", "OwnerFlag, Streams", WRITTEN,
           W("owner", 1, SC, "owner given", spare=(REL,)),
           U("owner", 2, SC, "owner", "owner taken", spare=(ACQ_REL, ACQ))),
    # No other thread has the request: its issuer keeps the stream, and reads the code itself.
    Litmus("blocking call ended by the issuing thread", "publish.h, ProgressEngine::finish_blocking", [
        [WRITTEN, W("code", 1, REL, "code= by issuer", spare=(RLX,), instead=LEFT_OUT),
         R("code", SC, "code", "code in done", spare=(ACQ, RLX)), R("memory", PLAIN)]],
        [{"code": 0}, {"code": 1, "race": True}]),
    passes("request done", "publish.h, Request::done", WRITTEN,
           W("code", 1, SC, "code= published", spare=(REL,)), R("code", SC, "code", "code in done", spare=(ACQ,))),
    sleeps("request awaited", "Waiting::sleep, publish.h",
           U("sleepers", 1, SC, "", "sleepers_++"), R("code", SC, "code", "code in done"),
           W("code", 1, SC, "code= published"), R("sleepers", SC, "sleepers", "sleepers_")),
    Litmus("operation queued beside a sleeper", "Waiting::sleep, Issuer::start_on_host, ProgressEngine::hand_over", [
        [U("sleepers", 1, SC, "", "sleepers_++"),
         R("pending", SC, "", "pending_ in sleep", instead=LEFT_OUT), R("queued", RLX, "queued", "queued")],
        [W("queued", 1, RLX, "queued="), U("pending", 1, SC, "", "pending_++"),
         W("owner", 1, SC, "owner given", spare=ANY), R("sleepers", SC, "sleepers", "sleepers_")]],
        [{"queued": 0, "sleepers": 0}]),
    Litmus("alarm raised", "Streams::release, FailureProtocol", [
        [U("owner", 1, SC, "", "owner taken", spare=ANY), W("owner", 2, SC, "owner given"),
         R("alarm", SC, "alarm", "alarm")],
        [W("alarm", 1, SC, "alarm="), U("owner", 3, SC, "owner", "owner taken")]], [{"alarm": 0, "owner": 1}]),
    Litmus("verdicts left to the stream's owner", "Streams::apply_verdicts", [
        [U("owner", 1, SC, "", "owner taken", spare=ANY), W("owner", 2, SC, "owner given"),
         R("asked", SC, "asked", "asked_")],
        [U("asked", 1, SC, "", "asked_++"), U("owner", 3, SC, "owner", "owner taken")]],
        [{"asked": 0, "owner": 1}]),
    sleeps("completion's descriptor made", "Completion::event_fd, Completion::fire",
           U("fd", 1, SC, "", "fd_="), R("fired", SC, "fired", "fired_"),
           W("fired", 1, SC, "fired_="), R("fd", SC, "fd", "fd_")),
    Litmus("completion's callback set late", "Completion::set_callback, Completion::fire", [
        [W("code", 1, SC, "code_=", spare=(REL, RLX)),
         U("hook", 1, SC, "", "hook_ closed", spare=(ACQ_REL, REL))],
        [R("hook", SC, "hook", "hook_ set", spare=(ACQ,)), R("code", SC, "code", "code_", spare=(ACQ, RLX))]],
        [{"hook": 1, "code": 0}]),

    # ---- sleeping
    Litmus("output left unsent", "Wakeups::returns, Wakeups::sleep_idle", [
        [U("waiters", 1, SC, "", "waiters_ -"), R("unsent", SC, "unsent", "unsent_ in returns")],
        [U("unsent", 1, SC, "", "unsent_++")],
        [R("unsent", SC, "seen", "unsent_ in sleep_idle"), R("waiters", SC, "waiters", "waiters_")]],
        [{"unsent": 0, "seen": 1, "waiters": 0}]),
    sleeps("service thread watches output", "Wakeups::wake_for_unsent, Wakeups::sleep_idle",
           W("sends", 1, SC, "sends_unsent_="), R("unsent", SC, "unsent", "unsent_ in sleep_idle"),
           U("unsent", 1, SC, "", "unsent_++"), R("sends", SC, "sends", "sends_unsent_")),
    # The doorbell is an eventfd: the kernel orders its write and the read that drains it.
    Litmus("program drains the dozing service thread's ring", "Wakeups::doze, Wakeups::poll_program", [
        [W("dozing", 1, SC, "dozing_=", spare=ANY), W("sleeper", 1, SC, "Sleeper=", spare=(REL,))],
        [R("sleeper", SC, "sleeper", "Sleeper", spare=(ACQ,)), U("doorbell", 1, ACQ_REL)],
        [U("doorbell", 2, ACQ_REL, "doorbell"), R("dozing", SC, "dozing", "dozing_", spare=ANY)]],
        [{"sleeper": 1, "doorbell": 1, "dozing": 0}]),
    Litmus("service thread woken already", "Wakeups::wake_service, ChannelOpener", [
        [U("pending", 1, SC, "", "pending_++"), U("woken", 1, SC, "woken", "service_woken_ set")],
        [W("woken", 2, RLX), W("woken", 3, SC, "service_woken_ clear"), R("pending", SC, "pending", "pending_")]],
        [{"woken": 2, "pending": 0}]),
    sleeps("operation issued", "Handover",
           W("claims", 1, SC, "claims_="), R("pending", SC, "pending", "pending_"),
           U("pending", 1, SC, "", "pending_++"), R("claims", SC, "claims", "claims_")),
    sleeps("thread waits beside the polling one", "Reactor::wait_beside, Reactor::Turn",
           U("beside", 1, SC, "", "beside_++"), R("polling", SC, "polling", "polling_"),
           W("polling", 1, SC, "polling_="), R("beside", SC, "beside", "beside_")),
    passes("reactor's turn passed on", "Reactor::Turn", WRITTEN,
           W("polling", 1, SC, "polling_=", spare=(REL,)), U("polling", 2, ACQ, "polling", "polling_ taken")),

    # ---- posted channels
    Litmus("flow added to an owned engine", "EngineEntry, ReadyList::add", [
        [U("newest", 1, SC, "", "newest_ added"), U("owner", 1, SC, "owner", "owner taken")],
        [U("owner", 2, SC, "", "owner taken", spare=ANY), W("owner", 3, SC, "owner given"),
         R("newest", SC, "newest", "newest_")]], [{"owner": 2, "newest": 0}]),
    Litmus("flow is on the ready list already", "ReadyList::add, Output::batch, Outgoing::send_next", [
        [W("pushed", 1, SC, "pushed="), U("ready", 1, SC, "ready", "ready set")],
        [W("ready", 2, RLX), W("ready", 3, SC, "ready="), R("pushed", SC, "pushed", "pushed in tcp")]],
        [{"ready": 2, "pushed": 0}]),
    Litmus("list of two threads taken", "ReadyList", [
        [WRITTEN, U("newest", 1, SC, "", "newest_ added", spare=(ACQ_REL, REL))],
        [U("newest", 2, SC, "top", "newest_ added", spare=(ACQ_REL, REL, ACQ, RLX), instead=W("newest", 2, SC))],
        [U("newest", 3, SC, "newest", "newest_ taken", spare=(ACQ_REL, ACQ)), R("memory", PLAIN)]],
        [{"top": 1, "newest": 2, "race": True}]),
    passes("message pushed", "FlowSender::enqueue, Output::batch", WRITTEN,
           W("pushed", 1, SC, "pushed=", spare=(REL,)), R("pushed", SC, "pushed", "pushed in fabric", spare=(ACQ,))),
    sleeps("sender sleeps", "FlowSender::arm, SendQueue::allow, Sleeper",
           W("sleeper", 1, SC, "Sleeper="), R("allowed", SC, "allowed", "allowed"),
           W("allowed", 1, SC, "allowed="), R("sleeper", SC, "sleeper", "Sleeper")),
    sleeps("credits due over tcp", "ReceiveCounts::credits_due",
           W("released", 1, SC, "released="), R("begun", SC, "begun", "begun"),
           W("begun", 1, SC, "begun="), R("released", SC, "released", "released")),
    sleeps("credits due over a fabric", "ReceiveCounts::credits_due",
           W("released", 1, SC, "released="), R("begun", SC, "begun", "begun"),
           U("begun", 1, SC, "", "begun++"), R("released", SC, "released", "released")),
    sleeps("message announced while the lane offers memory", "FabricReceiver::put_offer, Incoming::place_announced",
           W("offer", 1, SC, "offer="), R("announced", SC, "announced", "announced"),
           W("announced", 1, SC, "announced="), R("offer", SC, "offer", "offer")),
    passes("offer taken", "Offer::put, Offer::take", WRITTEN,
           W("offer", 1, SC, "offer=", spare=(REL,)),
           U("offer", 2, SC, "offer", "offer taken", spare=(ACQ_REL, ACQ))),
    passes("offer cleared", "Offer::clear, Offer::withdraw", WAS_READ,
           W("offer", 1, REL, "offer cleared"), R("offer", SC, "offer", "offer withdrawn", spare=(ACQ,))),
    # 1: the cell is given back. 7: no cell is free.
    passes("cell of a pool given back", "CellPool::give, CellPool::claim", WRITTEN,
           U("free", 1, REL, "", "free_ given"), U("free", 2, ACQ, "free", "free_ claimed")),
    Litmus("examiner has the last free cell", "IdleCells::take_from, CellPool::claim", [
        [W("examined", 1, SC, "examined_=", spare=(REL, RLX)),
         U("free", 7, ACQ_REL, "", "free_ taken from", spare=(REL,))],
        [R("free", ACQ, "free", "free_"), R("examined", SC, "examined", "examined_", spare=(ACQ, RLX))]],
        [{"free": 7, "examined": 0}]),
    Litmus("examiner has given the cell back", "IdleCells::take_from, CellPool::wait_for_examiner", [
        [U("free", 7, ACQ_REL, "", "free_ taken from", spare=ANY), U("free", 1, REL, "", "free_ given", spare=ANY),
         W("examined", 1, SC, "examined_= over", spare=(REL,))],
        [R("examined", SC, "examined", "examined_", spare=(ACQ,)), R("free", ACQ, "free", "free_ again", spare=ANY)]],
        [{"examined": 1, "free": 7}, {"examined": 1, "free": 0}]),

    # ---- the flat exchange of a fabric
    Litmus("contribution published to an owned engine", "FlatExchange::exchange, EngineEntry::exit", [
        [U("added", 1, SC, "", "added_ set"), U("owner", 1, SC, "owner", "owner taken")],
        [U("owner", 2, SC, "", "owner taken", spare=ANY), W("owner", 3, SC, "owner given"),
         R("added", SC, "added", "added_")]], [{"owner": 2, "added": 0}]),
    # A second thread's plain store would end the release sequence of the first.
    Litmus("contributions of two threads published", "FlatBoards::publish, FlatBoards::send_unsent", [
        [W("unsent", 1, REL, "unsent=", spare=ANY), U("added", 1, SC, "", "added_ set", spare=(ACQ_REL,)),
         U("owner", 1, SC, "owner", "owner taken", spare=ANY)],
        [U("added", 2, SC, "", "added_ set", spare=ANY, instead=W("added", 2, SC))],
        [U("owner", 2, SC, "", "owner taken", spare=ANY), W("owner", 3, SC, "owner given", spare=ANY),
         U("added", 3, SC, "added", "added_ taken", spare=(ACQ_REL,)),
         R("unsent", ACQ, "unsent", "unsent", spare=ANY)]], [{"owner": 2, "added": 2, "unsent": 0}]),
    passes("contribution written", "FabricBoard::publish, FlatBoards::send", WRITTEN,
           W("unsent", 1, REL, "unsent="), R("unsent", ACQ, "unsent", "unsent")),
    passes("contribution sent", "FlatBoards::send, FabricBoard::has_sent", WAS_READ,
           W("unsent", 1, REL, "unsent= sent"), R("unsent", ACQ, "unsent", "unsent in has_sent")),
    passes("contribution arrived", "FlatBoards::handle_contribution, SlotStream::has", WRITTEN,
           W("turn", 1, REL, "board turn="), R("turn", ACQ, "turn", "board turn")),

    # ---- the flight recorder. 9: no sequence; 2: the newer call's.
    Litmus("entry read while it is overwritten", "Recorder::begin, Recorder::read", [
        [W("sequence", 9, RLX, "sequence= none"), W("field", 2, REL, "fields="), W("status", 2, REL, "status= begun"),
         W("sequence", 2, REL, "sequence=")],
        [R("sequence", ACQ, "first", "sequence first"), R("field", ACQ, "field", "fields"),
         R("status", ACQ, "status", "status"), R("sequence", RLX, "again", "sequence again")]],
        [{"first": a, "field": b, "status": c, "again": a} for a in (0, 2) for b in (0, 2) for c in (0, 2)
         if not a == b == c]),
    # 5: the older call is done.
    Litmus("older call ends while a newer one takes its entry", "Recorder::begin, Recorder::end, Recorder::read", [
        [W("sequence", 9, RLX, "sequence= none"), W("status", 2, REL, "status= begun", spare=ANY),
         W("sequence", 2, REL, "sequence=")],
        [R("sequence", RLX, "mine", "sequence in end"),
         U("status", 5, REL, "running", "status= ended", spare=ANY, instead=W("status", 5, REL))],
        [R("sequence", ACQ, "first", "sequence first"), R("status", ACQ, "status", "status", spare=ANY),
         R("sequence", RLX, "again", "sequence again")]],
        [{"mine": 0, "running": 0, "first": 2, "status": 5, "again": 2}]),
    Litmus("end seen before its time", "Recorder::end, Recorder::read", [
        [W("end", 1, REL, "end=", spare=ANY), U("status", 5, REL, "", "status= ended")],
        [R("status", ACQ, "status", "status"), R("end", ACQ, "end", "end", spare=ANY)]], [{"status": 5, "end": 0}]),
    # The issuing thread ends its own call (5: done) without a compare-exchange, and begins the next one itself.
    Litmus("entry read while the issuing thread begins and ends a newer call", "Recorder::end, Recorder::read", [
        [W("sequence", 9, RLX, "sequence= none"), W("status", 2, REL, "status= begun"),
         W("sequence", 2, REL, "sequence="), W("end", 2, REL, "end="), W("status", 5, REL, "status= by issuer")],
        [R("sequence", ACQ, "first", "sequence first"), R("status", ACQ, "status", "status"),
         R("end", ACQ, "end", "end"), R("sequence", RLX, "again", "sequence again")]],
        [{"first": 0, "status": 2, "again": 0}, {"first": 0, "status": 5, "again": 0},
         {"first": 0, "end": 2, "again": 0}, {"first": 2, "status": 0, "again": 2},
         {"first": 2, "status": 5, "end": 0, "again": 2}]),
    # The owner word passes the newer call on to the thread that ends it.
    Litmus("entry read while another thread ends a newer call", "Recorder::end, Recorder::read", [
        [W("sequence", 9, RLX, "sequence= none"), W("sequence", 2, REL, "sequence=", spare=(RLX,)),
         W("owner", 1, SC, "owner given", spare=(REL,))],
        [U("owner", 2, SC, "owner", "owner taken", spare=(ACQ_REL, ACQ)),
         R("sequence", RLX, "mine", "sequence in end"), W("end", 2, REL, "end=")],
        [R("sequence", ACQ, "first", "sequence first", spare=(RLX,)), R("end", ACQ, "end", "end"),
         R("sequence", RLX, "again", "sequence again")]],
        [{"owner": 1, "mine": 0}, {"owner": 1, "first": 0, "end": 2, "again": 0}]),
    call_counted("call counted before another rank asks for it", "Recorder::begin, Inquiry::handle_query",
                 R("last", ACQ, "last", "last_ in last")),
    call_counted("call counted before a thread writes the calls", "Recorder::begin, Recorder::calls",
                 R("last", ACQ, "last", "last_ in calls")),
    passes("large array of entries made before a look-up", "Recorder::begin, Recorder::find", WRITTEN,
           W("many", 1, REL, "many_="), R("many", ACQ, "many", "many_ in entries")),
    passes("large array of entries made before a dump", "Recorder::begin, Recorder::calls", WRITTEN,
           W("many", 1, REL, "many_="), R("many", ACQ, "many", "many_ in calls")),
)
