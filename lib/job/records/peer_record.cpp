#include "job/records/peer_record.h"

#include "base/bytes.h"

namespace tutti {

std::string PeerRecord::encode() const {
    ByteWriter out;
    const auto entries = static_cast<uint32_t>(addresses.size()) + (exchanges_records ? 1u : 0u) +
                         (has_heartbeat ? 1u : 0u);
    out.put(size).put_text(host_id).put_text(control).put(entries);
    for (auto& [transport, address] : addresses) out.put_text(transport).put_text(address);
    if (exchanges_records) out.put_text(exchange_mark).put_text("");
    if (has_heartbeat) out.put_text(heartbeat_mark).put_text("");
    return std::string(as_text(out.take()));
}

std::optional<PeerRecord> PeerRecord::decode(std::string_view text) {
    ByteReader in(as_bytes(text));
    PeerRecord record;
    record.size = in.get<Rank>();
    record.host_id = in.get_text(max_text_bytes);
    record.control = in.get_text(max_text_bytes);
    const auto count = in.get<uint32_t>();
    for (uint32_t i = 0; i < count && in.ok(); ++i) {
        std::string transport = in.get_text(max_text_bytes);
        record.addresses[std::move(transport)] = in.get_text(max_text_bytes);
    }
    if (!in.at_end()) return std::nullopt;
    record.exchanges_records = record.addresses.erase(std::string(exchange_mark)) > 0;
    record.has_heartbeat = record.addresses.erase(std::string(heartbeat_mark)) > 0;
    return record;
}

}  // namespace tutti
