// The message that ranks send over the control tree about a communicator: one type with a kind.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/channel.h"

namespace tutti {

struct ControlMessage {
    enum class Kind : uint8_t {
        failed = 1,  // flood: the communicator is over; code, rank at fault, text; tag.sequence:
                     // the first operation that it ends even if all its data has arrived
        mismatch,    // flood: operations from `tag.sequence` on fail; rank, text
        quiet,       // up: the subtree runs nothing of the failed epoch; tag.sequence: its last one
        resume,      // down: a new epoch begins after operation number tag.sequence
        bye,         // flood: `rank` has left in order; tag.sequence: its last operation; after a
                     // failure: code, text, tag.root: the rank at fault, tag.plan: the sequence;
                     // body: the agreements that the rank may be the only one to know
        stall,       // up: `rank` has waited suspiciously long in the operation `tag`
        query,       // down: asks every rank about the operation `tag`, in which `rank` waits
        late,        // up: `rank` has not called it yet; tag.sequence: the operation
        suspect,     // down: the content of a `late` message
        propose,     // up (strict): the subtree agrees on `tag`
        agreed,      // down (strict): all ranks agree on `tag`
        here,        // to a neighbour that sent stall or query: this rank is alive
        silent,      // flood: `rank`, a neighbour of the sender, has not sent `here`
        agree,       // to any rank: body is an AgreementMessage (control/agreement)
    };
    Kind kind{};
    uint32_t comm = 0;
    Rank rank = nobody;
    Code code = Code::ok;  // of failed or bye, as told (told_error)
    Tag tag;
    std::string text;
    Bytes body;

    static constexpr uint32_t max_body_bytes = 48 * 1024;

    /// A longer text is cut.
    Bytes encode() const;
    static std::optional<ControlMessage> decode(ByteView bytes);
};

}  // namespace tutti
