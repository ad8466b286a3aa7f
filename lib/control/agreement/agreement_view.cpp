#include "control/agreement/agreement_view.h"

#include "control/live_tree.h"

namespace tutti {

Leadership leadership(const Knowledge& known, Rank size, Rank arity) {
    const RankSet gone = known.excluded();
    Leadership found;
    found.ballot.epoch = static_cast<uint32_t>(known.accusations.size());
    for (const Rank rank : tree_preorder(size, arity)) {
        if (!gone.contains(rank)) {
            found.root = rank;
            break;
        }
        ++found.ballot.place;
    }
    return found;
}

AgreementView::AgreementView(const AgreementMember& member, const Knowledge& known)
    : lead(leadership(known, member.size, member.arity)),
      gone(known.excluded()),
      remaining(RankSet::all(member.size).without(gone)),
      subtree(member.size) {
    if (gone.contains(member.rank)) {
        parent = lead.root;
        subtree.insert(member.rank);
        return;
    }
    LiveTree tree(member.rank, member.size, member.arity);
    for (const Rank rank : gone.ranks()) tree.remove(rank);
    parent = tree.parent();
    children = tree.children();
    for (const Rank rank : tree.subtree()) subtree.insert(rank);
}

RankSet AgreementView::neighbours() const {
    RankSet ranks(gone.size());
    ranks.insert(parent);
    for (const Rank child : children) ranks.insert(child);
    return ranks;
}

}  // namespace tutti
