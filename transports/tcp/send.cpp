// A connection's outgoing direction: which frames are next, and writing them.
//
// Frames of small messages are copied into one batch and go out together; the payload of a large
// one is written from where it lies, behind the batch that ends with its header.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/blame.h"
#include "net/reactor.h"
#include "transports/tcp/connection.h"

namespace tutti::tcp {
namespace {

// Copying this much costs less than a second part in the system call.
constexpr std::size_t small_bytes = 4096;

// The plain call where it will do: it is a tenth of a microsecond quicker.
ssize_t write_parts(int fd, iovec (&parts)[2]) {
    if (parts[0].iov_len > 0 && parts[1].iov_len > 0) {
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        return ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    const iovec& part = parts[parts[0].iov_len > 0 ? 0 : 1];
    return ::send(fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

/// Writes until nothing is queued or the kernel takes no more.
void Connection::flush() {
    ready_.take_added();
    while (health() == Code::ok && output_errno_ == 0 && (output_pending() || gather()))
        if (!write()) break;
    if (output_errno_ == 0 || health() != Code::ok) return;
    // What the peer sent before it went is still to be had, its goodbye maybe among it.
    receive(true);
    fail(fmt::format("sending failed: {}", std::strerror(output_errno_)));
}

/// Makes the next batch. False: there is nothing to send.
bool Connection::gather() {
    batched_ = 0;
    small_count_ = 0;
    out_[1] = {};
    while (!ready_.empty() && !large_ && small_count_ < batch_frames &&
           batched_ + 3 * sizeof(Header) + small_bytes <= batch_bytes) {
        Flow& flow = *ready_.pop();
        // To the end after each frame, so that a busy channel does not hold up the others.
        if (!batch(flow) || flow.out.pushed.load(std::memory_order_relaxed) == flow.out.begun)
            continue;
        ready_.append(flow);
    }
    if (closing_ && ready_.empty() && !large_ && !std::exchange(bye_sent_, true)) {
        add_header(header(Kind::bye, 0, 0));
    }
    out_[0] = {batch_.get(), batched_};
    return batched_ > 0;
}

/// Puts a flow's next frame into the batch. False: it has none.
bool Connection::batch(Flow& flow) {
    if (&flow == &late_) return batch_late_credits();
    if (std::exchange(flow.open_due, false)) add_header(header(Kind::open, flow.comm, flow.lane));
    if (flow.out.pushed.load(std::memory_order_seq_cst) != flow.out.begun) {
        batch_message(flow);
        return true;
    }
    if (!flow.in.credits_due()) return false;
    Header credit = header(Kind::credit, flow.comm, flow.lane);
    attach_credits(credit, flow);
    add_header(credit);
    return true;
}

/// False, as the rest lines up again by itself.
bool Connection::batch_late_credits() {
    static_assert(batch_frames * sizeof(Header) <= small_bytes);
    for (std::size_t n = 0; n < batch_frames && !late_credits_.empty(); ++n) {
        add_header(late_credits_.back());
        late_credits_.pop_back();
    }
    if (!late_credits_.empty()) ready_.append(late_);
    return false;
}

Header Connection::header(Kind kind, uint32_t comm, uint16_t lane) {
    Header out;
    out.magic = Header::magic_of(kind);
    out.comm = comm;
    out.lane = lane;
    return out;
}

// Payloads of any length lie between headers in the batch, so a header is copied to its place.
void Connection::add_header(const Header& out) {
    std::memcpy(batch_.get() + batched_, &out, sizeof out);
    batched_ += sizeof out;
}

void Connection::attach_credits(Header& out, Flow& flow) {
    const uint64_t released = flow.in.released.load(std::memory_order_seq_cst);
    const uint64_t returned = flow.in.returned.load(std::memory_order_relaxed);
    out.credits = static_cast<uint16_t>(released - returned);
    flow.in.returned.store(released, std::memory_order_relaxed);
}

void Connection::batch_message(Flow& flow) {
    SendQueue::Message& message = flow.out.at(flow.out.begun++);
    Header out = header(Kind::data, flow.comm, flow.lane);
    attach_credits(out, flow);
    out.bytes = message.bytes;
    out.tag = message.tag;
    add_header(out);
    if (message.bytes > small_bytes) {
        large_ = &flow;
        out_[1] = {const_cast<std::byte*>(message.data), message.bytes};
        return;
    }
    if (message.bytes > 0) std::memcpy(batch_.get() + batched_, message.data, message.bytes);
    batched_ += message.bytes;
    if (message.cell != CellPool::none) flow.out.staging.give(message.cell);
    small_[small_count_++] = &flow;
}

/// True if the batch is out; false if the kernel is full or the connection broke.
bool Connection::write() {
    while (output_pending()) {
        const ssize_t written = write_parts(fd_.get(), out_);
        if (written < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || blame_of(errno) == Blame::shortage) {
                watch_output(true);
                count_unsent(true);
            } else {
                output_errno_ = errno;
            }
            return false;
        }
        auto left = static_cast<std::size_t>(written);
        for (iovec& part : out_) {
            const std::size_t took = std::min(left, part.iov_len);
            part.iov_base = static_cast<std::byte*>(part.iov_base) + took;
            part.iov_len -= took;
            left -= took;
        }
        while (out_[0].iov_len == 0 && small_count_ > 0) sent(*small_[--small_count_]);
    }
    count_unsent(false);
    if (Flow* flow = std::exchange(large_, nullptr)) {
        const SendQueue::Message& message = flow->out.at(flow->out.begun - 1);
        if (message.cell != CellPool::none) flow->out.staging.give(message.cell);
        sent(*flow);
    }
    return true;
}

void Connection::sent(Flow& flow) {
    // Pairs with drained(): the caller's memory is free once it sees the count.
    flow.out.sent.fetch_add(1, std::memory_order_seq_cst);
    wake(flow.out.sleeper);
}

// Left on when the queue empties: a busy connection would pay for a system call twice per message.
// The reactor's next look, if there ever is one, takes it off.
void Connection::watch_output(bool on) {
    if (on == output_watched_) return;
    output_watched_ = on;
    options_.data_reactor->modify(fd_.get(),
                                  EPOLLIN | EPOLLRDHUP | (on ? uint32_t{EPOLLOUT} : uint32_t{0}));
}

void Connection::count_unsent(bool is) {
    if (is == unsent_) return;
    unsent_ = is;
    if (options_.unsent) options_.unsent->fetch_add(is ? 1 : -1);
}

// What was pushed is delivered all the same, from copies: on a connection that all channels share,
// taking back a frame would only save the other side from dropping it.
void Connection::cancel_sends(Flow& flow) {
    if (!enter()) return;
    SendQueue& out = flow.out;
    const bool travelling = large_ == &flow;
    const uint64_t pushed = out.pushed.load(std::memory_order_relaxed);
    for (uint64_t p = travelling ? out.begun - 1 : out.begun; health() == Code::ok && p < pushed;
         ++p) {
        SendQueue::Message& message = out.at(p);
        if (message.cell != CellPool::none) continue;
        const int cell = out.staging.take(message.bytes);
        if (cell == CellPool::none) {
            cannot_go_on("no memory to finish what was being sent");
            break;
        }
        std::byte* copy = out.staging.data(cell);
        if (message.bytes > 0) std::memcpy(copy, message.data, message.bytes);
        if (travelling && p < out.begun)
            out_[1].iov_base = copy + (message.bytes - out_[1].iov_len);
        message.data = copy;
        message.cell = cell;
    }
    leave();
}

}  // namespace tutti::tcp
