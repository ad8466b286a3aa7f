// Reads records that ranks leave in the store for each other; other programs may overwrite them.
#include "fuzz/catalog.h"
#include "job/records/peer_record.h"
#include "job/records/rank_owner.h"

namespace tutti::fuzz {

void run_records(ByteView input) {
    // A claim is any text; a claim that cannot be read belongs to no rank.
    const RankOwner claimant = RankOwner::decode(std::string(as_text(input)));
    const RankOwner again = RankOwner::decode(claimant.encode());
    require(again.pid == claimant.pid && again.machine == claimant.machine, "a claim changes");
    const auto record = PeerRecord::decode(as_text(input));
    if (!record) return;
    const auto same = PeerRecord::decode(record->encode());
    require(same && same->control == record->control && same->addresses == record->addresses &&
                same->exchanges_records == record->exchanges_records,
            "a record that was read cannot be written");
}

std::vector<Bytes> seeds_records() {
    const PeerRecord record{.size = 4,
                            .host_id = "host",
                            .control = "127.0.0.1:4000",
                            .addresses = {{"shm", "@tutti-7"}, {"tcp", "127.0.0.1:4001"}}};
    RankOwner claimant;
    claimant.machine = "boot 1";
    claimant.pid_namespace = 4026531836;
    claimant.pid = 123;
    claimant.start_ticks = 4567;
    PeerRecord exchanging = record;
    exchanging.exchanges_records = true;
    return {to_bytes(record.encode()), to_bytes(claimant.encode()), to_bytes(exchanging.encode())};
}

}  // namespace tutti::fuzz
