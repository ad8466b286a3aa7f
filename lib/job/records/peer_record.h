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

    Rank size = 0;  // of the job, in that rank's settings
    std::string host_id;
    std::string control;
    std::map<std::string, std::string, std::less<>> addresses;  // by transport

    std::string encode() const;
    /// nullopt: it is malformed.
    static std::optional<PeerRecord> decode(std::string_view text);
};

}  // namespace tutti
