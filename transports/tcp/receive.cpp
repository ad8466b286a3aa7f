#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errno_class.h"
#include "transports/tcp/input.h"

namespace tutti::tcp {
namespace {

// The most reads of one turn, so that other threads and connections get theirs.
constexpr int max_reads = 16;
// Bytes to read beyond a large message: the next header and little more, because a large payload
// after that header would have to be copied to its place.
constexpr std::size_t read_ahead_bytes = 4096;

}  // namespace

Input::Input(const ConnectionParts& shared, const PeerLimits& limits, std::size_t longest)
    : shared_(shared),
      limits_(limits),
      max_message_bytes_(longest),
      input_(std::make_unique_for_overwrite<std::byte[]>(input_bytes)) {}

bool Input::fail(std::string cause, Culprit culprit) {
    if (!std::exchange(failed_, true)) failure_ = {culprit, std::move(cause)};
    return false;
}

bool Input::receive(int fd, bool everything) {
    served_ = false;
    bool dry = false;
    for (int reads = 0;; ++reads) {
        if (parse(everything) == Next::later) return !failed_;
        if (!everything && (dry || reads == max_reads)) return true;
        if (!read_some(fd, dry)) return !failed_;
    }
}

/// One system call. It reads the rest of a large message directly to its place, and the next header
/// with it. False: nothing to read, or the connection has ended. dry: the kernel has no more.
bool Input::read_some(int fd, bool& dry) {
    // parse() has left at most an incomplete header; moves it to the front.
    const std::size_t kept = end_ - begin_;
    if (kept > 0) std::memmove(input_.get(), input_.get() + begin_, kept);
    begin_ = 0;
    end_ = kept;
    iovec parts[2] = {{nullptr, 0}, {input_.get() + kept, limit_ - kept}};
    if (flow_) parts[0] = {to_ + done_, header_.bytes - done_};
    const std::size_t direct = parts[0].iov_len;

    ssize_t got = 0;
    do {
        // recv() if one buffer is enough: it is a tenth of a microsecond faster than readv().
        got =
            direct > 0 ? ::readv(fd, parts, 2) : ::recv(fd, parts[1].iov_base, parts[1].iov_len, 0);
    } while (got < 0 && errno == EINTR);
    // A shortage of memory in this process does not mean that the peer is lost: a later call reads
    // the bytes.
    if (got < 0 && (errno == EAGAIN || classify_errno(errno) == ErrnoClass::shortage)) return false;
    if (got == 0)
        return fail("its connection ended without a goodbye: its process has probably ended");
    if (got < 0) return fail(fmt::format("receiving from it failed: {}", std::strerror(errno)));
    const auto bytes = static_cast<std::size_t>(got);
    dry = bytes < direct + parts[1].iov_len;
    done_ += std::min(bytes, direct);
    end_ += bytes - std::min(bytes, direct);
    if (flow_ && done_ == header_.bytes) finish_message();
    return true;
}

/// Handles the frames in the buffer. read: the next one is incomplete.
///
/// If this turn has already completed a message, an incomplete large message waits once: its
/// receiver will probably offer memory for it after the first. A sleeping thread misses nothing,
/// because the rest of the message makes the socket readable.
Input::Next Input::parse(bool everything) {
    while (!failed_) {
        const std::byte* input = input_.get() + begin_;
        const std::size_t have = end_ - begin_;
        if (flow_) {
            const std::size_t take = std::min(have, header_.bytes - done_);
            std::memcpy(to_ + done_, input, take);
            begin_ += take;
            done_ += take;
            if (done_ < header_.bytes) return Next::read;
            finish_message();
            continue;
        }
        if (have < sizeof(Header)) return Next::read;
        Header header;
        std::memcpy(&header, input, sizeof header);
        if (served_ && !everything && header.bytes > have - sizeof header) return Next::later;
        begin_ += sizeof header;
        if (!begin_frame(header)) return Next::later;
    }
    return Next::later;
}

/// False: the frame is malformed, and the connection has ended.
bool Input::begin_frame(const Header& header) {
    const auto bad = [&](const std::string& cause) {
        return fail(fmt::format("protocol error: {}", cause));
    };
    if ((header.magic & frame_magic_mask) != frame_magic)
        return bad("it sent something that is not a frame");
    const Kind kind = header.kind();
    if (kind < Kind::open || kind > Kind::bye)
        return bad(fmt::format("it sent a frame of unknown kind {}", static_cast<int>(kind)));
    if (bye_received_) return bad("it said goodbye and went on");
    if (kind != Kind::data && header.bytes != 0)
        return bad(
            fmt::format("it sent a frame of kind {} with a payload", static_cast<int>(kind)));
    if (kind == Kind::bye) return bye_received_ = true;
    if (kind == Kind::open)
        return begin_channel(header) ||
               bad(fmt::format("there are {} channels already", max_channels_taken));
    Flow* flow = shared_.flows.find({shared_.peer, header.comm, header.lane});
    const auto late = [&] { return shared_.flows.is_retired(header.comm); };
    if (header.credits > 0 && !(flow ? handle_credits(*flow, header.credits) : late()))
        return bad(fmt::format("it gave {} credits that it did not owe on lane {}", header.credits,
                               header.lane));
    if (kind == Kind::credit) return true;
    if ((!flow || !flow->in.open) && late()) return begin_data(shared_.late.flow, header);
    if (!flow || !flow->in.open)
        return bad(
            fmt::format("it sent a message on lane {} of communicator {}, which it has not "
                        "opened",
                        header.lane, header.comm));
    return begin_data(*flow, header);
}

/// False: the peer has too many channels.
bool Input::begin_channel(const Header& header) {
    // The peer does not know yet that this rank has left the communicator: it may send, and this
    // rank drops its messages.
    if (shared_.flows.is_retired(header.comm)) return true;
    Flow* flow =
        shared_.flows.find_or_add({shared_.peer, header.comm, header.lane}, shared_.unread_bytes);
    if (!flow) return false;
    flow->in.open = true;
    if (!shared_.entry.closing() && !std::exchange(flow->in.live, true))
        shared_.entry.pending().opened.push_back(flow);
    return true;
}

// The peer can release a message once the kernel has accepted all of it. A small message may reach
// that point while the rest of its batch still waits.
bool Input::handle_credits(Flow& flow, uint32_t credits) {
    const uint64_t complete = flow.out.begun - (flow.travelling ? 1 : 0);
    if (!flow.out.grant(credits, complete)) return false;
    flow.out.allow(complete);
    shared_.waker.wake(flow.out.sleeper);
    return true;
}

bool Input::begin_data(Flow& flow, const Header& header) {
    ReceiveQueue& in = flow.in;
    const uint64_t position = in.begun.load(std::memory_order_relaxed);
    if (header.bytes > max_message_bytes_)
        return fail(fmt::format(
            "protocol error: it announced a message of {} bytes; at most {} are allowed",
            header.bytes, max_message_bytes_));
    if (position - in.returned.load(std::memory_order_relaxed) >= credits_per_channel)
        return fail(fmt::format("protocol error: it sent more on lane {} than its credits allow",
                                header.lane));
    header_ = header;
    done_ = 0;
    if (!fill_offer(in, position) && !fill_cell(in))
        return fail(fmt::format("no memory for a message of {} bytes", header.bytes), Culprit::own);
    if (shared_.unread_bytes.load(std::memory_order_relaxed) > limits_.unread_bytes)
        return fail(fmt::format("it sent more than {} bytes that this rank has not read",
                                limits_.unread_bytes));
    flow_ = &flow;
    limit_ = header.bytes > read_ahead_bytes ? read_ahead_bytes : input_bytes;
    in.begun.store(position + 1, std::memory_order_seq_cst);
    if (header.bytes == 0) finish_message();
    return true;
}

bool Input::fill_cell(ReceiveQueue& in) {
    cell_ = in.cells.take(header_.bytes);
    if (cell_ == CellPool::none) return false;
    to_ = in.cells.data(cell_);
    return true;
}

bool Input::fill_offer(ReceiveQueue& in, uint64_t position) {
    std::byte* const wanted = in.offer.take(header_.tag, header_.bytes, position);
    if (!wanted) return false;
    cell_ = CellPool::none;
    to_ = wanted;
    return true;
}

void Input::finish_message() {
    Flow& flow = *std::exchange(flow_, nullptr);
    ReceiveQueue& in = flow.in;
    const uint64_t position = in.arrived.load(std::memory_order_relaxed);
    in.at(position) = {header_.tag, to_, header_.bytes, cell_};
    if (cell_ == CellPool::none) in.offer.clear();
    // Pairs with peek(): the message is visible before the count.
    in.arrived.store(position + 1, std::memory_order_seq_cst);
    served_ = true;
    shared_.waker.wake(in.sleeper);
    if (!in.live) in.drop();
    if (&flow == &shared_.late.flow) return finish_late();
    if (in.credits_due()) shared_.entry.ready().add(flow);
}

void Input::finish_late() {
    ReceiveQueue& in = shared_.late.flow.in;
    in.give_back(in.released.load(std::memory_order_relaxed));
    if (shared_.entry.closing()) return;
    if (shared_.late.credits.add({shared_.peer, header_.comm, header_.lane}))
        shared_.entry.ready().add(shared_.late.flow);
    else
        fail(fmt::format("protocol error: {}", LateCredits::too_many));
}

bool Input::copy_offered(Flow& flow) {
    ReceiveQueue& in = flow.in;
    in.offer.clear();
    bool copied = true;
    for (uint64_t p = in.released.load(std::memory_order_relaxed);
         p < in.arrived.load(std::memory_order_relaxed); ++p) {
        ReceiveQueue::ArrivedMessage& message = in.at(p);
        if (message.cell != CellPool::none || copy_to_cell(in.cells, message)) continue;
        message.tag = {};  // makes the message stale for every operation
        copied = false;
    }
    if (flow_ == &flow && cell_ == CellPool::none) {
        const std::byte* const from = to_;
        if (fill_cell(in))
            std::memcpy(to_, from, done_);
        else
            copied = false;
    }
    return copied;
}

}  // namespace tutti::tcp
