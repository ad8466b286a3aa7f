// Two ranks that open as many channels to each other as each may.
#pragma once

#include <memory>
#include <vector>

#include "transport/joined.h"

namespace tutti::test {

/// All of both, before or after the second has heard of the first's; then each hears of the other's
/// last one, and nobody is lost.
inline void open_all_channels(Duo& duo, uint32_t each, bool hears) {
    std::vector<std::unique_ptr<Sender>> senders;
    for (TestEndpoint* from : {&duo.a, &duo.b}) {
        const bool first = from == &duo.a;
        const PeerAddress& to = (first ? duo.b : duo.a).address;
        for (uint32_t i = 0; i < each; ++i) {
            const uint32_t comm = 2 * i + (first ? 1 : 2);
            auto sender = from->transport->open({.peer = to.rank, .comm = comm, .lane = 0}, to,
                                                Deadline::after_ms(patience_ms));
            INFO((sender ? "" : sender.error().message));
            REQUIRE(sender);
            senders.push_back(std::move(*sender));
        }
        for (uint32_t i = 0; hears && i < each; ++i)
            for (TestEndpoint* end : {&duo.a, &duo.b}) end->turn();
    }
    std::unique_ptr<Receiver> of_a, of_b;
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        if (!of_a) of_a = duo.b.sink.take({.peer = 0, .comm = 2 * each - 1, .lane = 0});
        if (!of_b) of_b = duo.a.sink.take({.peer = 1, .comm = 2 * each, .lane = 0});
        return of_a && of_b;
    }));
    // Read what is still on the way: an endpoint that is closing takes little at a time.
    for (uint32_t i = 0; i < each; ++i)
        for (TestEndpoint* end : {&duo.a, &duo.b}) end->turn();
    REQUIRE((duo.a.sink.lost().empty() && duo.b.sink.lost().empty()));
}

}  // namespace tutti::test
