// Messages on device memory that are launched as one group. The device library matches them by
// their order alone, so a witness with the sender's tag, length and dtype travels on the host
// beside each. Staged messages are host messages from and to pinned memory, or from and to device
// memory if their channel accepts that.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/offload.h"
#include "cuda/library.h"
#include "gpu/device_request.h"
#include "p2p/bundle.h"

namespace tutti {

/// One message, as the caller gave it.
struct DeviceTransfer {
    explicit DeviceTransfer(const OffloadMessage& given)
        : message{given.sends, given.peer, given.memory, given.bytes},
          tag(given.tag),
          dtype(given.dtype),
          into(given.into) {}

    DeviceMessage message;
    int32_t tag = 0;
    Dtype dtype = Dtype::uint8;
    Received* into = nullptr;
};

struct DeviceMessages final : Bundle {
    /// A witness's payload: the sender's description of its message.
    struct Record {
        uint64_t bytes = 0;
        int32_t tag = 0;
        int32_t dtype = 0;
        bool operator==(const Record&) const = default;
    };
    struct Part {
        explicit Part(const OffloadMessage& given) : asked(given) {}
        DeviceTransfer asked;
        Record record;     // sent, or received
        Transfer on_host;  // of the record; staged: of the message
        // Staged: the channel takes device memory. Pinned memory then only serves a receive whose
        // message arrives in host memory.
        bool direct = false;
        std::size_t pinned_bytes = 0;
    };
    // One tag for all witnesses, which match by their order; no tag of the program's equals it.
    static constexpr int32_t witness_tag = -1;

    DeviceMessages(Rank rank, const std::vector<OffloadMessage>& all, bool through_host);

    std::optional<End> advance(bool& moved) override;
    bool let_go() override;
    std::string describe() const override;

    /// Whether that message shares memory with one of these, except send with send.
    bool collides(const DeviceMessage& message) const;

    const Rank rank;
    const bool staged;
    DevicePart device;
    std::deque<Part> parts;                  // a deque: parts do not move in memory
    std::unique_ptr<DeviceOperation> moves;  // of messages with bytes; nullptr: there are none

private:
    std::optional<Error> misfit() const;
    std::optional<End> advance_staged(bool& moved);
    End succeed();
    End fail(const Error& why) const;
};

}  // namespace tutti
