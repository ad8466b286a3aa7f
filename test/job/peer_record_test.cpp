// The record of addresses that a rank publishes in the store.
#include "job/records/peer_record.h"

#include "base/bytes.h"
#include "support/catch.h"

using namespace tutti;

TEST_CASE("peer record: the mark of an exchange is an address that version 0.1.0 ignores") {
    PeerRecord record{.size = 4,
                      .host_id = "host",
                      .control = "10.0.0.1:4000",
                      .addresses = {{"shm", "@7"}, {"tcp", "10.0.0.1:4001"}}};
    const auto expected = [](uint32_t addresses) {
        ByteWriter out;
        out.put(Rank{4}).put_text("host").put_text("10.0.0.1:4000").put(addresses);
        out.put_text("shm").put_text("@7").put_text("tcp").put_text("10.0.0.1:4001");
        if (addresses == 3) out.put_text("records").put_text("");
        return std::string(as_text(out.take()));
    };
    for (const bool exchanges : {false, true}) {
        INFO("exchanges records: " << exchanges);
        record.exchanges_records = exchanges;
        CHECK(record.encode() == expected(exchanges ? 3 : 2));
        const auto same = PeerRecord::decode(record.encode());
        REQUIRE(same);
        CHECK(same->exchanges_records == exchanges);
        CHECK(same->addresses == record.addresses);
        CHECK(same->control == record.control);
    }
    CHECK_FALSE(PeerRecord::decode(record.encode() + "more"));

    record.has_heartbeat = true;
    const auto beating = PeerRecord::decode(record.encode());
    REQUIRE(beating);
    CHECK(beating->has_heartbeat);
    CHECK(beating->addresses == record.addresses);
}
