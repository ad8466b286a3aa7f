// Messages that wait for a connection past a rank of the control tree that is gone: without I/O.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/types.h"

namespace tutti {

/// Messages for one rank keep their order: while some wait, later ones wait behind them. A
/// connection may be wanted for no message, too. Its owner guards it.
class DetourQueue {
public:
    /// Takes the message if others wait for that rank.
    bool add_behind_others(Rank to, Bytes& message);
    /// The way there that the message lacks is wanted. False: there is none; the message is gone.
    bool add(Rank to, Bytes message);
    /// A connection is wanted, to find out whether that rank is still there.
    void request(Rank to) { waiting_.try_emplace(to); }

    /// A rank that a connection is wanted to; nobody if there is none.
    Rank next() const { return waiting_.empty() ? nobody : waiting_.begin()->first; }
    /// The messages for that rank, which is connected now, in order.
    std::vector<Bytes> take(Rank to);
    /// There was no way to that rank, and will be none: what waits for it is dropped.
    void close(Rank to);

private:
    std::map<Rank, std::vector<Bytes>> waiting_;
    std::set<Rank> closed_;
};

}  // namespace tutti
