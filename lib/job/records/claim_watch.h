// Watches ranks that join through a store which does not notice the end of a process: by the
// processes that their claims name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/types.h"
#include "job/records/rank_owner.h"

namespace tutti {

/// A killed run leaves claims behind that name dead processes, too. A rank counts as ended if its
/// process was seen alive before, or was started after this one; or at most half a second before,
/// and its claim was not replaced for three seconds.
class ClaimWatch {
public:
    /// A rank's claim as it stands in the store, if it is there.
    using Look = std::function<std::optional<std::string>(Rank rank)>;

    /// Rank 0 watches every other rank; any other watches rank 0, its parent and the two ranks
    /// beside it.
    ClaimWatch(RankOwner self, Rank rank, Rank size);
    /// A rank whose process has ended, if there is one. Claims are looked up until they name a
    /// process that runs.
    std::optional<Rank> ended(const Look& look);

private:
    struct Watched {
        std::optional<RankOwner> alive;
        std::string dead;  // a claim whose process has ended
        int64_t dead_since_ns = 0;
    };
    bool has_ended(Watched& watched, const std::string& claim) const;

    RankOwner self_;
    std::map<Rank, Watched> watched_;
};

}  // namespace tutti
