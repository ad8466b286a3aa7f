// Messages that end together as one request, with other work beside them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "p2p/transfer.h"

namespace tutti {

struct Bundle : Request {
    struct End {
        Error error;         // Code::ok: everything succeeded
        bool tells = false;  // the other ranks must be told of the error
    };
    /// Drives the bundle as far as it goes now; nullopt while it is pending. Called by the owner of
    /// the transfers.
    virtual std::optional<End> advance(bool& moved) = 0;
    /// Abandons the work beside the messages. False: it cannot be abandoned yet.
    virtual bool let_go() = 0;
    /// For people: "2 messages on device memory, the first of them with rank 3".
    virtual std::string describe() const = 0;

    std::vector<Transfer*> messages;  // in the order in which they are posted
};

}  // namespace tutti
