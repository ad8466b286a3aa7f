#include "job/records/peer_record.h"

#include "base/bytes.h"

namespace tutti {

std::string PeerRecord::encode() const {
    ByteWriter out;
    out.put(size).put_text(host_id).put_text(control).put(static_cast<uint32_t>(addresses.size()));
    for (auto& [transport, address] : addresses) out.put_text(transport).put_text(address);
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
    return record;
}

}  // namespace tutti
