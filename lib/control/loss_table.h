// One rank's record of the job's ranks that are gone, and of the losses that it must tell to
// others: a state machine without I/O, events in, actions out.
//
// The message of a loss takes two ways. It floods the control tree, in which any rank may be gone.
// It also goes from each remaining rank to the next one, by number, and from the last to the first:
// each tells the next of every loss.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/types.h"
#include "control/group.h"

namespace tutti {

/// A rank is named as lost at most once, and never after it has said that it leaves. The caller
/// holds the lock of the object that owns the table.
class LossTable {
public:
    LossTable(Rank rank, Rank size) : rank_(rank), size_(size) {}

    /// A process has ended, or another rank has said so. True if that is new: then the caller tells
    /// the neighbours in the tree, and the next rank (for_next).
    bool mark_lost(Rank peer, std::string cause);
    /// A rank is silent, or another rank has said so. True if that is new: then the caller tells as
    /// with mark_lost(). The accused counts as lost from the first accusation on; it may be this
    /// rank. An accuser that counts as lost itself is not believed: of two ranks that accuse each
    /// other, the others lose only one.
    bool accuse(Accusation one, std::string cause);
    /// That rank has said that its process ends in order.
    void note_leaving(Rank peer) { left_.insert(peer); }
    /// No message can reach that rank. The next rank may have changed.
    void cut_off(Rank peer) { cut_off_.insert(peer); }
    /// No process listens there any more. True if that is new: then the caller tells the
    /// communicators.
    bool note_unreachable(Rank peer) { return unreachable_.insert(peer).second; }
    /// A detour to that rank has ended. True if the caller must connect again: the process has
    /// ended only if no process listens there.
    bool detour_ended(Rank peer);
    /// True if a rank has ended, in order or not.
    bool is_gone(Rank peer) const;

    /// Losses that the next rank has yet to hear of.
    struct ForNext {
        Rank next = nobody;  // nobody: no other rank remains
        std::vector<Rank> lost;
    };
    /// lost: the new loss, nobody if there is none. The losses returned count as told.
    ForNext for_next(Rank lost);

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void stop_waiting_for(Rank rank) { not_waited_for_.insert(rank); }
    /// The ranks for which leaving does not wait, with all lost ranks.
    const std::set<Rank>& not_waited_for();

    /// With the cause of each.
    const std::map<Rank, std::string>& lost() const { return lost_; }
    const std::map<Accusation, std::string>& accusations() const { return accusations_; }
    /// True if that rank is lost without a proof.
    bool is_accused(Rank rank) const;
    const std::set<Rank>& unreachable() const { return unreachable_; }

private:
    Rank next_rank() const;

    const Rank rank_, size_;
    std::map<Rank, std::string> lost_;  // with the cause
    std::map<Accusation, std::string> accusations_;
    std::set<Rank> left_;         // have said that they leave
    std::set<Rank> unreachable_;  // no process listens at their address any more
    std::set<Rank> cut_off_;      // no message could reach them
    std::map<Rank, int> ended_detours_;
    Rank told_ = nobody;  // the next rank, told of every loss
    std::set<Rank> not_waited_for_;
};

}  // namespace tutti
