// Messages that end together as one request, with work of another kind beside them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "p2p/transfer.h"

namespace tutti {

struct Bundle : Request {
    struct End {
        Error error;         // Code::ok: all of it went well
        bool tells = false;  // the other ranks have to hear of it
    };
    /// Goes as far as it can; nothing while it is under way. The owner's of the transfers.
    virtual std::optional<End> advance(bool& moved) = 0;
    /// Abandons the work beside the messages. False: it cannot be abandoned yet.
    virtual bool let_go() = 0;
    /// For people: "2 messages on device memory, the first of them with rank 3".
    virtual std::string describe() const = 0;

    std::vector<Transfer*> messages;  // in the order in which they are posted
};

}  // namespace tutti
