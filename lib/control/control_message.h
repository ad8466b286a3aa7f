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
                     // the first operation that it ends whatever has arrived
        mismatch,    // flood: operations from `tag.sequence` on fail; rank, text
        quiet,       // up: the subtree runs nothing of the failed epoch; tag.sequence: its last one
        resume,      // down: a new epoch begins after operation number tag.sequence
        bye,         // flood: `rank` has left in order; tag.sequence: its last operation; after a
                     // failure: code, text, tag.root: the rank at fault, tag.plan: the sequence
        stall,       // up: `rank` waits in the operation `tag` for suspiciously long
        query,       // down: who knows the operation `tag` that `rank` waits in?
        late,        // up: `rank` has not called it yet; tag.sequence: the operation
        suspect,     // down: what `late` said
        propose,     // up (strict): the subtree agrees on `tag`
        agreed,      // down (strict): everyone does
        here,        // to the neighbour that said stall or query: heard
        silent,      // flood: `rank`, a neighbour of the sender's, does not say so
    };
    Kind kind{};
    uint32_t comm = 0;
    Rank rank = nobody;
    Code code = Code::ok;  // of failed or bye, as told (told_error)
    Tag tag;
    std::string text;

    Bytes encode() const;
    static std::optional<ControlMessage> decode(ByteView bytes);
};

}  // namespace tutti
