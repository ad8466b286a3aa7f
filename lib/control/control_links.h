// The connections between neighbours in the control tree, as its users see them: without I/O.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/types.h"

namespace tutti {

/// Any thread may call any function; none blocks. Callers hold locks, so no function calls back.
class ControlLinks {
public:
    /// A peer has one branch, and the branch's end means that the peer has ended. Two ranks may
    /// open a detour to each other at once; after a detour's end, a new connection attempt tells
    /// whether the peer has ended.
    enum class LinkKind : uint8_t { branch, detour };

    virtual ~ControlLinks() = default;
    /// False: no connection to that peer takes messages any more, or there was none.
    virtual bool send(Rank to, ByteView message) = 0;
    virtual void flood(ByteView message, Rank except) = 0;
    /// True while a connection to that peer has not ended: messages may still come over it.
    virtual bool connected(Rank peer) = 0;
    /// The peer takes no more messages; the messages that it has sent are still read.
    virtual void retire(Rank peer) = 0;
    /// The peer sends no more messages.
    virtual void finish(Rank peer) = 0;
};

}  // namespace tutti
