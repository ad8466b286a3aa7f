// The root, the ballot and one rank's place in the tree, as they follow from the facts that the
// rank knows.
#pragma once

#include <vector>

#include "control/agreement/knowledge.h"
#include "control/tree.h"

namespace tutti {

struct Leadership {
    Rank root = nobody;  // nobody: no rank remains
    Ballot ballot;
};
Leadership leadership(const Knowledge& known, Rank size, Rank arity = tree_arity);

struct AgreementMember {
    Rank rank, size;
    Rank arity = tree_arity;
};

struct AgreementView {
    AgreementView(const AgreementMember& member, const Knowledge& known);

    Leadership lead;
    RankSet gone, remaining;
    /// The remaining ranks whose way to the root passes this rank, and this rank. A rank that is
    /// gone for the others is alone, and asks the root.
    RankSet subtree;
    Rank parent = nobody;
    std::vector<Rank> children;

    RankSet neighbours() const;
};

}  // namespace tutti
