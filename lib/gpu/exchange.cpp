#include "gpu/exchange.h"

#include <algorithm>

namespace tutti {
namespace {

std::string describe(const Exchange::Record& record) {
    return fmt::format("{} bytes of {} with tag {}", record.bytes,
                       dtype_name(static_cast<Dtype>(record.dtype)), record.tag);
}

}  // namespace

Exchange::Exchange(const std::vector<DeviceTransfer>& all, bool through_host)
    : staged(through_host) {
    for (const DeviceTransfer& one : all) {
        Part& part = parts.emplace_back();
        part.asked = one;
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
}

bool Exchange::collides(const DeviceMessage& message) const {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
        const DeviceMessage& other = part.asked.message;
        return !(message.sends && other.sends) && other.memory < message.memory + message.bytes &&
               message.memory < other.memory + other.bytes;
    });
}

std::optional<Error> Exchange::misfit(Rank rank) const {
    for (const Part& part : parts) {
        const DeviceTransfer& asked = part.asked;
        const Record wanted{asked.message.bytes, asked.tag, static_cast<int32_t>(asked.dtype)};
        if (asked.message.sends || part.record == wanted) continue;
        return Error{
            Code::mismatch, asked.message.peer, 0,
            fmt::format("rank {} sent {} on device memory where rank {} receives {}: messages on "
                        "devices are matched in the order of the calls, and have one length",
                        asked.message.peer, describe(part.record), rank, describe(wanted))};
    }
    return std::nullopt;
}

}  // namespace tutti
