// A rank's addresses, as it publishes them in the store.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace tutti {

inline constexpr std::string_view malformed_record_advice =
    "install the same version of tutti on every host, and use another TUTTI_JOB if an earlier run "
    "left that record";

struct PeerRecord {
    /// The limit for each text of the record.
    static constexpr uint32_t max_text_bytes = 16 * 1024;
    /// The mark of exchanges_records: an address under this name, which no transport has. Version
    /// 0.1.0 reads only the addresses of its transports, so it ignores the mark.
    static constexpr std::string_view exchange_mark = "records";
    static constexpr std::string_view heartbeat_mark = "heartbeat";  // of has_heartbeat

    Rank size = 0;  // of the job, in that rank's settings
    std::string host_id;
    std::string control;
    std::map<std::string, std::string, std::less<>> addresses;  // by transport
    /// The rank exchanges records with its neighbours in the control tree at the start.
    bool exchanges_records = false;
    /// The rank has a thread that sends signs of life and accepts connections at any time.
    bool has_heartbeat = false;

    std::string encode() const;
    /// nullopt: it is malformed.
    static std::optional<PeerRecord> decode(std::string_view text);
};

}  // namespace tutti
