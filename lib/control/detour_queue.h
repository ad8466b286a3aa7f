// Messages that wait for a connection around a gone rank of the control tree: without I/O.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/types.h"

namespace tutti {

/// Messages for one rank keep their order: while some wait, later ones wait behind them. A
/// connection may be wanted without a message, too. The caller holds the lock of the object that
/// owns the queue.
class DetourQueue {
public:
    /// Takes the message if others wait for that rank.
    bool add_behind_others(Rank to, Bytes& message);
    /// Queues the message and asks for a connection. False: the way there was closed; the message
    /// is dropped.
    bool add(Rank to, Bytes message);
    /// Asks for a connection, to find out whether that rank is still there.
    void request(Rank to) { waiting_.try_emplace(to); }

    /// A rank to which a connection is wanted; nobody if there is none.
    Rank next() const { return waiting_.empty() ? nobody : waiting_.begin()->first; }
    /// The messages for that rank, which is connected now, in order.
    std::vector<Bytes> take(Rank to);
    /// Closes the way to that rank for good, because there is none, and drops its messages.
    void close(Rank to);

private:
    std::map<Rank, std::vector<Bytes>> waiting_;
    std::set<Rank> closed_;
};

}  // namespace tutti
