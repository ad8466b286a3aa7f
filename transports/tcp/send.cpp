#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errno_class.h"
#include "transports/tcp/output.h"

namespace tutti::tcp {
namespace {

// Copying this much costs less than a second buffer in the system call.
constexpr std::size_t small_bytes = 4096;

// send() if one buffer is enough: it is a tenth of a microsecond faster than sendmsg().
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

void attach_credits(Header& out, Flow& flow) {
    const uint64_t free = flow.in.released.load(std::memory_order_seq_cst);
    out.credits = flow.in.owed(free);
    flow.in.give_back(free);
}

}  // namespace

bool Output::gather(bool closing) {
    batched_ = 0;
    small_count_ = 0;
    out_[1] = {};
    while (!ready_.empty() && !large_ && small_count_ < batch_frames &&
           batched_ + 3 * sizeof(Header) + small_bytes <= batch_bytes) {
        Flow& flow = *ready_.pop();
        // One frame per turn, then the flow goes to the end, so that no channel delays others.
        if (!batch(flow) || flow.out.pushed.load(std::memory_order_relaxed) == flow.out.begun)
            continue;
        ready_.append(flow);
    }
    if (closing && ready_.empty() && !large_ && !std::exchange(bye_sent_, true)) {
        add_header(Header::of(Kind::bye, {}));
    }
    out_[0] = {batch_.get(), batched_};
    return batched_ > 0;
}

/// Puts a flow's next frame into the batch. False: it has none.
bool Output::batch(Flow& flow) {
    if (&flow == &late_.flow) return batch_late_credits();
    if (std::exchange(flow.open_due, false)) add_header(Header::of(Kind::open, flow.id));
    if (flow.out.pushed.load(std::memory_order_seq_cst) != flow.out.begun) {
        batch_message(flow);
        return true;
    }
    if (!flow.in.credits_due()) return false;
    Header credit = Header::of(Kind::credit, flow.id);
    attach_credits(credit, flow);
    add_header(credit);
    return true;
}

/// Returns false, because it appends the flow to the ready list itself.
bool Output::batch_late_credits() {
    static_assert(batch_frames * sizeof(Header) <= small_bytes);
    std::size_t left = batch_frames;
    late_.credits.send([&](const ChannelId& id) {
        if (left == 0) return false;
        --left;
        Header credit = Header::of(Kind::credit, id);
        credit.credits = 1;
        add_header(credit);
        return true;
    });
    if (!late_.credits.empty()) ready_.append(late_.flow);
    return false;
}

// Copies the header byte by byte: after payloads of any length, its place in the batch may be
// unaligned.
void Output::add_header(const Header& out) {
    std::memcpy(batch_.get() + batched_, &out, sizeof out);
    batched_ += sizeof out;
}

void Output::batch_message(Flow& flow) {
    SendQueue::QueuedMessage& message = flow.out.at(flow.out.begun++);
    Header out = Header::of(Kind::data, flow.id);
    attach_credits(out, flow);
    out.bytes = message.bytes;
    out.tag = message.tag;
    add_header(out);
    if (message.bytes > small_bytes) {
        large_ = &flow;
        flow.travelling = true;
        out_[1] = {const_cast<std::byte*>(message.data), message.bytes};
        return;
    }
    if (message.bytes > 0) std::memcpy(batch_.get() + batched_, message.data, message.bytes);
    batched_ += message.bytes;
    flow.out.staging.give(message.cell);
    small_[small_count_++] = &flow;
}

bool Output::write(DataSocket& socket) {
    while (pending()) {
        const ssize_t written = write_parts(socket.fd(), out_);
        if (written < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || classify_errno(errno) == ErrnoClass::shortage) {
                socket.output_waits();
            } else {
                broken_errno_ = errno;
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
    socket.output_written();
    if (Flow* flow = std::exchange(large_, nullptr)) {
        flow->travelling = false;
        const SendQueue::QueuedMessage& message = flow->out.at(flow->out.begun - 1);
        flow->out.staging.give(message.cell);
        sent(*flow);
    }
    return true;
}

void Output::sent(Flow& flow) {
    // Pairs with drained(): the caller's memory is free once the lane sees the count.
    flow.out.sent.fetch_add(1, std::memory_order_seq_cst);
    waker_.wake(flow.out.sleeper);
}

// The peer still receives pushed messages, from copies: on a connection that all channels share,
// withdrawing a frame would only save the peer from dropping it.
bool Output::copy_unsent(Flow& flow) {
    SendQueue& out = flow.out;
    SendQueue::QueuedMessage* const message = flow.travelling ? &out.at(out.begun - 1) : nullptr;
    if (message && message->cell == CellPool::none) {
        if (!copy_to_cell(out.staging, *message)) return false;
        const std::byte* const end = message->data + message->bytes;
        out_[1].iov_base = const_cast<std::byte*>(end - out_[1].iov_len);
    }
    return out.copy_queued();
}

void Output::clear() {
    out_[0] = out_[1] = {};
    if (Flow* const flow = std::exchange(large_, nullptr)) flow->travelling = false;
    small_count_ = 0;
}

}  // namespace tutti::tcp
