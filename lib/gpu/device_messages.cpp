#include "gpu/device_messages.h"

#include <algorithm>

namespace tutti {
namespace {

std::string describe_record(const DeviceMessages::Record& record) {
    return fmt::format("{} bytes of {} with tag {}", record.bytes,
                       dtype_name(static_cast<Dtype>(record.dtype)), record.tag);
}

}  // namespace

DeviceMessages::DeviceMessages(Rank own_rank, const std::vector<OffloadMessage>& all,
                               bool through_host)
    : rank(own_rank), staged(through_host) {
    external = true;
    released = false;
    for (const OffloadMessage& given : all) {
        Part& part = parts.emplace_back(given);
        const DeviceTransfer& one = part.asked;
        if (one.message.sends)
            part.record = {one.message.bytes, one.tag, static_cast<int32_t>(one.dtype)};
        Transfer& on_host = part.on_host;
        on_host.sends = one.message.sends;
        on_host.peer = one.message.peer;
        if (staged) {
            on_host.user_tag = one.tag;
            on_host.bytes = one.message.bytes;
            on_host.dtype = one.dtype;
        } else {
            on_host.user_tag = witness_tag;
            on_host.memory = reinterpret_cast<std::byte*>(&part.record);
            on_host.bytes = sizeof part.record;
        }
    }
    // A rank's message to itself is received before it is sent.
    for (const bool sends : {false, true})
        for (Part& part : parts)
            if (part.on_host.sends == sends) messages.push_back(&part.on_host);
}

std::string DeviceMessages::describe() const {
    return fmt::format("{} messages on device memory, the first of them with rank {}", parts.size(),
                       parts.empty() ? nobody : parts.front().asked.message.peer);
}

std::optional<Bundle::End> DeviceMessages::advance(bool& moved) {
    if (staged) return advance_staged(moved);
    for (const Part& part : parts) {
        const Code state = part.on_host.code.load(std::memory_order_acquire);
        if (state == Code::in_progress) return std::nullopt;
        if (state != Code::ok) return End{part.on_host.error};
    }
    if (auto wrong = misfit()) return End{std::move(*wrong), true};
    const Poll poll = moves ? moves->progress() : Poll(Code::ok);
    if (poll.pending()) return std::nullopt;
    return poll.failure ? fail(poll.failure->error) : succeed();
}

// As on the host, one failed message does not fail the others.
std::optional<Bundle::End> DeviceMessages::advance_staged(bool& moved) {
    const Poll poll = moves->progress();
    moved |= poll.moved;
    if (poll.pending()) return std::nullopt;
    if (poll.failure) return fail(poll.failure->error);
    for (const Part& part : parts)
        if (!part.on_host.done()) return std::nullopt;
    for (const Part& part : parts)
        if (part.on_host.code.load(std::memory_order_acquire) != Code::ok)
            return End{part.on_host.error};
    return succeed();
}

Bundle::End DeviceMessages::succeed() {
    for (const Part& part : parts)
        if (const DeviceTransfer& asked = part.asked; asked.into)
            *asked.into = staged ? part.on_host.received
                                 : Received{asked.message.peer, asked.tag,
                                            asked.message.bytes / dtype_bytes(asked.dtype)};
    return {Error{Code::ok, nobody, 0, {}}};
}

// aborted: the failure of another call ended these messages too, and is reported on its own.
Bundle::End DeviceMessages::fail(const Error& why) const {
    Error told = on_rank(rank, wrap(why, "messages on device memory").value());
    if (told.rank == nobody) told.rank = rank;
    return {std::move(told), why.code != Code::aborted};
}

bool DeviceMessages::let_go() {
    if (!moves) return true;
    if (!moves->may_cancel()) return false;
    moves->cancel();
    return true;
}

bool DeviceMessages::collides(const DeviceMessage& message) const {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
        const DeviceMessage& other = part.asked.message;
        return !(message.sends && other.sends) && other.memory < message.memory + message.bytes &&
               message.memory < other.memory + other.bytes;
    });
}

/// The mismatch error if a witness differs from this rank's call; then the data of the messages is
/// undefined.
std::optional<Error> DeviceMessages::misfit() const {
    for (const Part& part : parts) {
        const DeviceTransfer& asked = part.asked;
        const Record wanted{asked.message.bytes, asked.tag, static_cast<int32_t>(asked.dtype)};
        if (asked.message.sends || part.record == wanted) continue;
        return fail_rank(Code::mismatch, asked.message.peer,
                         "rank {} sent {} on device memory, but rank {} receives {}",
                         asked.message.peer, describe_record(part.record), rank,
                         describe_record(wanted))
            .advice(
                "call sends and receives of device memory in the same order on both ranks, "
                "with the same count, dtype and tag")
            .value();
    }
    return std::nullopt;
}

}  // namespace tutti
