#include "comm/exchange.h"

namespace tutti {
namespace {

std::string describe(const Exchange::Record& record) {
    return fmt::format("{} bytes of {} with tag {}", record.bytes,
                       dtype_name(static_cast<Dtype>(record.dtype)), record.tag);
}

}  // namespace

Exchange::Exchange(const std::vector<DeviceTransfer>& all) {
    for (const DeviceTransfer& one : all) {
        Part& part = parts.emplace_back();
        part.asked = one;
        if (one.message.sends)
            part.record = {one.message.bytes, one.tag, static_cast<int32_t>(one.dtype)};
        Transfer& witness = part.witness;
        witness.sends = one.message.sends;
        witness.peer = one.message.peer;
        witness.user_tag = witness_tag;
        witness.memory = reinterpret_cast<std::byte*>(&part.record);
        witness.bytes = sizeof part.record;
    }
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
