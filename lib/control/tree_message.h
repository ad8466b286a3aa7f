// The messages along the control tree: a communicator's control message in an envelope that names
// its destination, and messages that concern the whole job.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "control/control_message.h"

namespace tutti {

struct TreeMessage {
    enum class Topic : uint8_t {
        bootstrap,  // the start of the job: body is Bootstrap's
        control,    // passed on until it reaches rank `to`
        loss,       // for every rank: rank `lost` is gone, and why
        leaving,    // the sender's process ends in order
        returned,   // a control message on its way back, because the next rank on its way is gone
        farewell,   // the answer to `leaving`, and the last message that its sender gets
        // No version before heartbeats knows the next two. They are sent only in jobs whose ranks
        // all know them.
        beat,        // a sign of life to a neighbour
        accusation,  // for every rank: rank `from` has heard nothing of rank `lost`, and how long
    };
    static constexpr uint32_t max_cause_bytes = 1024;

    Topic topic{};
    ByteView body{};                  // of bootstrap
    Rank to = nobody, from = nobody;  // of control and returned: ranks of the job
                                      // (`from` of accusation, too)
    ControlMessage control{};
    Rank lost = nobody;  // of loss and accusation
    std::string cause{};

    /// A longer cause is cut.
    Bytes encode() const;
    /// `body` points into the bytes. nullopt: they are malformed, or name a rank that a job of
    /// `ranks` ranks lacks.
    static std::optional<TreeMessage> decode(ByteView bytes, Rank ranks);
};

}  // namespace tutti
