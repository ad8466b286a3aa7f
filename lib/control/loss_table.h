// Which ranks of a job are gone, as one rank knows it, and what it tells the others of them: a
// state machine without I/O, events in, actions out.
//
// ControlMessage of a loss takes two ways. It floods the control tree, of which any rank may be
// gone, and it goes round the ring of all ranks that are there: each tells the next one, which has
// then been told of all that are lost.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/types.h"

namespace tutti {

/// A rank is named as lost at most once, and never after it has said that it leaves. Its owner
/// guards it.
class LossTable {
public:
    LossTable(Rank rank, Rank size) : rank_(rank), size_(size) {}

    /// A process ended, or another rank said so. True if that is new: then the neighbours in the
    /// tree are told, and the next rank on the ring (for_ring).
    bool mark_lost(Rank peer, std::string cause);
    /// That rank has said that its process ends in order.
    void note_leaving(Rank peer) { left_.insert(peer); }
    /// There is no way to that rank for messages. ended: nothing listens there any more. True if
    /// the communicators are to hear that it is unreachable. The next rank on the ring may be
    /// another one now.
    bool cut_off(Rank peer, bool ended);
    /// A detour to that rank has ended. True if it is to be called again: only if nothing listens
    /// there has its process ended.
    bool detour_ended(Rank peer);
    /// Whether a rank has ended, in order or not.
    bool is_gone(Rank peer) const;

    /// Losses that the next rank on the ring has yet to hear of.
    struct ForRing {
        Rank next = nobody;  // none is there
        std::vector<Rank> lost;
    };
    /// lost: the one that is new, nobody if there is none. It counts as told.
    ForRing for_ring(Rank lost);

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void stop_waiting_for(Rank rank) { not_waited_for_.insert(rank); }
    /// The ranks that leaving does not wait for. All that are lost are among them.
    const std::set<Rank>& not_waited_for();

    const std::map<Rank, std::string>& lost() const { return lost_; }
    const std::set<Rank>& unreachable() const { return unreachable_; }

private:
    Rank next_on_ring() const;

    const Rank rank_, size_;
    std::map<Rank, std::string> lost_;  // gone, and why
    std::set<Rank> left_;               // said that they would go
    std::set<Rank> unreachable_;        // nothing listens at their address any more
    std::set<Rank> cut_off_;            // there was no way to them
    std::map<Rank, int> ended_detours_;
    Rank told_ = nobody;  // has been told of all that are lost
    std::set<Rank> not_waited_for_;
};

}  // namespace tutti
