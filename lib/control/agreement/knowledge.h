// The facts about a communicator's ranks on which an agreement builds. Facts are only ever added,
// so two ranks that have exchanged them derive the same tree, the same root and the same ballot.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "control/agreement/rank_set.h"
#include "control/group.h"

namespace tutti {

/// Orders the roots that may decide one instance. Knowledge that grows never lowers it, and no two
/// ranks are the root of the same ballot.
struct Ballot {
    uint32_t epoch = 0;  // the number of accusations
    uint32_t place = 0;  // the root's index in tree_preorder()
    auto operator<=>(const Ballot&) const = default;
};

struct Knowledge {
    explicit Knowledge(Rank size) : dead(size), left(size), leavers(size) {}

    /// Proven: the kernel has closed the rank's sockets, or the rank has said that it aborted.
    RankSet dead;
    /// The rank has said goodbye in order.
    RankSet left;
    /// The callers have named these ranks: they stay outside and do not call.
    RankSet leavers;
    /// Ascending, none twice, at most max_accusations.
    std::vector<Accusation> accusations;

    static constexpr std::size_t max_accusations = 1024;

    /// Ignored if the table is full or if a rank accuses itself.
    void accuse(Rank accuser, Rank accused);
    /// True if there is a new fact.
    bool merge(const Knowledge& other);
    /// The ranks to exclude so that no two remaining ranks accuse each other: again and again the
    /// rank that most remaining ranks accuse; of several, the highest. So a host that is cut off is
    /// excluded although only its neighbours in the tree accuse it; if two sides accuse each other,
    /// the smaller one is; if two ranks do, the higher one.
    RankSet silent() const;
    /// The ranks that need not call: all sets above.
    RankSet excluded() const;

    void encode(ByteWriter& out) const;
    static std::optional<Knowledge> decode(ByteReader& in, Rank size);

    bool operator==(const Knowledge&) const = default;
};

}  // namespace tutti
