#include "fabric/engine.h"

namespace tutti::fabric {
namespace {

// The most polls of a waiting thread while it keeps other threads out. Over sockets a poll is a
// system call. Eight polls were no faster, and kept peers that share the core from running.
constexpr int most_looks = 2;

/// Finds an unread message of a call before that one.
const ReceiveQueue::ReceiveSlot* find_stray(SlotStream& stream, const Tag& now) {
    if (!stream.unread.load(std::memory_order_relaxed)) return nullptr;
    bool unread = false;
    for (Flow* flow : stream.flows) {
        ReceiveQueue& in = flow->in;
        const uint64_t released = in.released.load(std::memory_order_relaxed);
        if (in.begun.load(std::memory_order_relaxed) == released) [[likely]]
            continue;
        unread = true;
        const ReceiveQueue::ReceiveSlot& slot = in.at(released);
        const auto state = slot.state.load(std::memory_order_relaxed);
        const bool here =
            state != ReceiveQueue::State::empty && state != ReceiveQueue::State::spent;
        if (here && slot.tag.epoch() == now.epoch() && slot.tag.sequence < now.sequence)
            return &slot;
    }
    stream.unread.store(unread, std::memory_order_relaxed);
    return nullptr;
}

}  // namespace

Result<> FlatExchange::join(SlotBoard& board, std::span<const Contact> contacts, std::size_t port) {
    const Guard guard(loop_);
    if (!guard || parts_.entry.closing()) return fail(Code::aborted, "the transport is closed");
    for (std::size_t member = 0; member < board.size(); ++member) {
        const auto& [rank, address] = contacts[member];
        if (std::cmp_equal(member, board.rank)) continue;
        TUTTI_ASSIGN(board.peers[member],
                     parts_.peers.reach(rank, address.ports[port], address.nonce));
    }
    parts_.boards.add(board);
    loop_.flush();
    return {};
}

void FlatExchange::leave(const SlotBoard& board) {
    const Guard guard(loop_);
    for (const auto& stream : board.streams)
        if (stream)
            for (Flow* flow : stream->flows) flow->flat = nullptr;
    // Once the engine is closed no thread reads the boards.
    if (guard) parts_.boards.remove(board);
}

const ReceiveQueue::ReceiveSlot* FlatExchange::stray(SlotStream& stream, const Tag& now) {
    const Guard guard(loop_);
    return guard ? find_stray(stream, now) : nullptr;
}

// As with flows: this thread publishes first and tries the flag second; the owner clears the flag
// first and checks for published contributions second.
const ReceiveQueue::ReceiveSlot* FlatExchange::exchange(SlotBoard& board, SlotStream& stream,
                                                        const FlatRun& run, std::size_t awaited) {
    if (!parts_.entry.try_enter()) {
        if (stream.unsent.load(std::memory_order_relaxed) == 0) return nullptr;
        parts_.boards.publish();
        if (!parts_.entry.try_enter()) return nullptr;
    }
    if (stream.unsent.load(std::memory_order_relaxed) != 0) {
        if (!parts_.entry.ready().empty() || parts_.entry.ready().added()) loop_.flush();
        parts_.boards.send(board, stream);
    }
    const auto done = [&] {
        return stream.unsent.load(std::memory_order_relaxed) == 0 &&
               stream.has(awaited, run.number, run.turn);
    };
    for (int looks = 0; looks < most_looks && !done(); ++looks) loop_.poll();
    loop_.tidy();
    const ReceiveQueue::ReceiveSlot* const stray = find_stray(stream, run.tag);
    loop_.exit();
    return stray;
}

void FlatExchange::cancel(SlotStream& stream) {
    const Guard guard(loop_);
    stream.unsent.store(0, std::memory_order_relaxed);
}

}  // namespace tutti::fabric
