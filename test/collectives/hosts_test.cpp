// Algorithms that know which ranks share a host, proved for many distributions; and that each byte
// crosses the wire as often as they promise.
#include <algorithm>

#include "collectives/catalog.h"
#include "collectives/hierarchy.h"
#include "collectives/promises.h"
#include "collectives/rings.h"
#include "proof/verify.h"
#include "support/catch.h"
#include "support/layouts.h"
#include "support/sanitized.h"

using namespace tutti;
using test::most_credits;
using test::roots_of;

namespace {

bool knows_hosts(const Algorithm& a) {
    return a.name.starts_with("hierarchical") || a.name == "multi_ring";
}

Verdict expect_verified(const Algorithm& a, const test::Layout& layout, Rank root, uint32_t lanes,
                        bool in_place) {
    VerifyRequest request;
    request.collective = a.collective;
    request.ranks = layout.hosts.ranks();
    request.root = root;
    request.in_place = in_place;
    request.hosts = &layout.hosts;
    const Verdict v = verify(request, a.make, lanes);
    INFO(collective_name(a.collective)
         << " " << a.name << " ranks " << request.ranks << " hosts " << layout.name << " lanes "
         << lanes << " root " << root << " in place " << in_place << ": " << v.problem);
    REQUIRE(v.ok);
    REQUIRE(v.credits <= most_credits);
    if (traits_of(a.collective).reduces) REQUIRE((v.ordered || a.reorders));
    return v;
}

/// The chunks of a tile that each host sends to other hosts.
std::vector<uint64_t> wire_chunks(const Algorithm& a, const Hosts& hosts, Rank root) {
    std::vector<uint64_t> sent(static_cast<std::size_t>(hosts.count()));
    for (Rank r = 0; r < hosts.ranks(); ++r)
        for (const Lane& lane : a.make({hosts.ranks(), r, root, 1, &hosts}).lanes)
            for (const Step& step : lane)
                if (step.send != nobody && hosts.host_of(step.send) != hosts.host_of(r))
                    sent[static_cast<std::size_t>(hosts.host_of(r))] += step.chunks;
    return sent;
}

void expect_verified_on_hosts(const std::vector<Rank>& counts) {
    for (const Algorithm& a : algorithms()) {
        if (!knows_hosts(a)) continue;
        for (const Rank n : counts) {
            // n² blocks: each count has one of the algorithms for them, in turns.
            const bool blocks = traits_of(a.collective).cut != Cut::whole;
            if (blocks && (&a - algorithms().data() + n) % 4 != 0) continue;
            const auto layouts = test::host_layouts(n);
            const Rank root = traits_of(a.collective).rooted ? n * 5 / 7 : 0;
            // Each count has another of the distributions, in turns.
            expect_verified(a, layouts[static_cast<std::size_t>(n) % layouts.size()], root, 1,
                            n / 2 % 2 == 0);
        }
    }
}

}  // namespace

TEST_CASE("hosts: every question has the answer of the labels") {
    for (Rank n = 1; n <= 40; ++n)
        for (const auto& [name, hosts] : test::host_layouts(n)) {
            INFO(name << " ranks " << n);
            REQUIRE(hosts.ranks() == n);
            Rank seen = 0, largest = 0, smallest = n;
            for (Rank h = 0; h < hosts.count(); ++h) {
                REQUIRE(hosts.before(h) == seen);
                REQUIRE(hosts.size_of(h) > 0);
                for (Rank i = 0; i < hosts.size_of(h); ++i) {
                    const Rank r = hosts.member(h, i);
                    REQUIRE(hosts.host_of(r) == h);
                    REQUIRE(hosts.local_of(r) == i);
                    REQUIRE(hosts.in_order(seen + i) == r);
                    if (i > 0) REQUIRE(hosts.member(h, i - 1) < r);
                }
                if (h > 0) REQUIRE(hosts.member(h - 1, 0) < hosts.member(h, 0));
                REQUIRE(hosts.carrier(h, hosts.size_of(h)) == hosts.member(h, 0));
                seen += hosts.size_of(h);
                largest = std::max(largest, hosts.size_of(h));
                smallest = std::min(smallest, hosts.size_of(h));
            }
            REQUIRE(seen == n);
            REQUIRE(hosts.shape().hosts == hosts.count());
            REQUIRE(hosts.shape().largest == largest);
            REQUIRE(hosts.shape().smallest == smallest);
        }
}

TEST_CASE("hosts: what cannot serve says why") {
    for (const Algorithm& a : algorithms()) {
        if (!a.name.starts_with("hierarchical")) continue;
        const HostShape one = Hosts::in_blocks(4, 4).shape(), two = Hosts::in_blocks(4, 2).shape();
        const HostShape four = Hosts::in_blocks(4, 1).shape();
        REQUIRE(a.unsupported(4, four) == "every rank has a host of its own");
        REQUIRE(a.unsupported(4, {}) == "it is not known which ranks share a host");
        REQUIRE(a.unsupported(4, one) == "all ranks are on one host");
        REQUIRE(a.unsupported(4, two).empty());
    }
}

TEST_CASE("hosts: every algorithm is right for every distribution of 1 to 24 ranks") {
    const Rank most = test::sanitized ? 10 : 24;
    for (const Algorithm& a : algorithms()) {
        if (!knows_hosts(a)) continue;
        for (Rank n = 1; n <= most; ++n)
            for (const test::Layout& layout : test::host_layouts(n))
                for (const uint32_t lanes :
                     n <= 8 ? std::vector<uint32_t>{1, 2, 3, 4} : std::vector<uint32_t>{2})
                    for (const Rank root : roots_of(a, n))
                        for (const bool in_place : {false, true})
                            expect_verified(a, layout, root, lanes, in_place);
    }
}

TEST_CASE("hosts: every algorithm is right without being told of any") {
    for (const Algorithm& a : algorithms()) {
        if (!knows_hosts(a)) continue;
        for (const Rank n : {1, 2, 3, 8}) {
            VerifyRequest request;
            request.collective = a.collective;
            request.ranks = n;
            INFO(collective_name(a.collective) << " " << a.name << " ranks " << n);
            REQUIRE(verify(request, a.make, 2).ok);
        }
    }
}

TEST_CASE("hosts: every algorithm is right for every rank count to 128, and for a thousand",
          "[.][many]") {
    expect_verified_on_hosts(test::counts_between(25, 128));
    expect_verified_on_hosts({191, 192, 255, 256, 257, 1000});
}

TEST_CASE(
    "hosts: every algorithm is right for every rank count from 129 to 257, and beside a thousand",
    "[.][hundreds]") {
    expect_verified_on_hosts(test::counts_between(129, 257));
    expect_verified_on_hosts({1023, 1024});
}

TEST_CASE("hosts: every algorithm is right for 4,096 ranks", "[.][thousands]") {
    for (const Algorithm& a : algorithms()) {
        if (!knows_hosts(a)) continue;
        const Rank root = traits_of(a.collective).rooted ? 2047 : 0;
        const auto proved = [&](Rank n, const test::Layout& layout, bool in_place) {
            DYNAMIC_SECTION(a.name << " " << collective_name(a.collective) << " " << n << " "
                                   << layout.name) {
                expect_verified(a, layout, root % n, 1, in_place);
            }
        };
        for (const Rank n : {1023, 1024}) proved(n, {"blocks", Hosts::in_blocks(n, 8)}, false);
        proved(4096, {"blocks", Hosts::in_blocks(4096, 8)}, false);
        proved(4096, {"scattered", test::scattered_hosts(4096)}, true);
    }
}

TEST_CASE("hierarchical: each byte crosses the wire once a host") {
    for (const Rank hosts : {2, 3, 4, 7})
        for (const Rank each : {1, 2, 3, 8}) {
            const Hosts h = Hosts::in_blocks(hosts * each, each);
            const auto of = [&](Collective collective, const char* name, Rank root = 0) {
                return wire_chunks(*find_algorithm(collective, name), h, root);
            };
            INFO(hosts << " hosts of " << each);
            const auto others = static_cast<uint64_t>(hosts - 1);
            const auto stripes = static_cast<uint64_t>(each);
            // The data has hosts × stripes chunks, so this is 2(H-1)/H of all bytes.
            for (const uint64_t sent : of(Collective::allreduce, "hierarchical"))
                REQUIRE(sent == 2 * others * stripes);
            // A host receives and hands on no more than all, and the last ones do not.
            for (const Rank root : {0, hosts * each - 1}) {
                for (const auto collective : {Collective::broadcast, Collective::reduce}) {
                    uint64_t all = 0;
                    for (const uint64_t sent : of(collective, "hierarchical", root)) {
                        REQUIRE(sent <= 2 * stripes);
                        all += sent;
                    }
                    REQUIRE(all == 2 * stripes * others);
                }
            }
            // Blocks of all other hosts, once.
            for (const auto collective : {Collective::allgather, Collective::reduce_scatter})
                for (const uint64_t sent : of(collective, "hierarchical"))
                    REQUIRE(sent == others * stripes);
        }
}

TEST_CASE("hierarchical: every local rank carries its share, whatever the root") {
    const Hosts h = Hosts::in_blocks(8, 2);
    for (const Algorithm& a : algorithms()) {
        if (a.name != "hierarchical" || a.collective == Collective::barrier) continue;
        for (const Rank root : roots_of(a, 8)) {
            INFO(collective_name(a.collective) << " root " << root);
            uint64_t by_local[2] = {};
            for (Rank r = 0; r < 8; ++r)
                for (const Lane& lane : a.make({8, r, root, 1, &h}).lanes)
                    for (const Step& step : lane)
                        by_local[h.local_of(r)] +=
                            step.send != nobody && h.host_of(step.send) != h.host_of(r);
            REQUIRE(by_local[0] > 0);
            REQUIRE(by_local[0] == by_local[1]);
        }
    }
}

TEST_CASE("hierarchical: hops over the wire are those of the outer schedule") {
    // One rank a host: what is left is the outer schedule.
    for (const Rank n : {2, 3, 4, 8, 13, 16}) {
        const test::Layout layout{"one each", Hosts::in_blocks(n, 1)};
        const auto same = [&](Collective collective, const char* name, const char* outer) {
            VerifyRequest request;
            request.collective = collective;
            request.ranks = n;
            const uint32_t hops = verify(request, find_algorithm(collective, outer)->make, 1).hops;
            REQUIRE(expect_verified(*find_algorithm(collective, name), layout, 0, 1, false).hops ==
                    hops);
        };
        same(Collective::allreduce, "hierarchical", "ring");
        same(Collective::allreduce, "hierarchical_doubling", "recursive_doubling");
        same(Collective::broadcast, "hierarchical", "double_binary_tree");
        same(Collective::reduce, "hierarchical", "double_binary_tree");
        same(Collective::barrier, "hierarchical", "dissemination");
        same(Collective::allgather, "hierarchical", "ring");
        same(Collective::reduce_scatter, "hierarchical", "ring");
    }
}

TEST_CASE("hierarchical: log-round outer schedules stay log-sized") {
    const Hosts h = Hosts::in_blocks(100'000, 8);
    for (const auto& [name, collective] :
         {std::pair{"hierarchical_doubling", Collective::allreduce},
          std::pair{"hierarchical", Collective::broadcast},
          std::pair{"hierarchical", Collective::reduce},
          std::pair{"hierarchical", Collective::barrier}})
        for (const Rank rank : {0, 5, 65'536, 77'777, 99'999})
            for (const Lane& lane :
                 find_algorithm(collective, name)->make({100'000, rank, 3, 1, &h}).lanes)
                REQUIRE(lane.size() <= 4 * 7 + 40);
}

TEST_CASE("multi-ring: a ring goes through every rank once, host after host") {
    for (const Rank n : {1, 2, 5, 12, 24})
        for (const auto& [name, hosts] : test::host_layouts(n))
            for (uint32_t lane = 0; lane < 6; ++lane) {
                INFO(name << " ranks " << n << " lane " << lane);
                std::set<Rank> seen;
                Rank at = 0, borders = 0;
                for (Rank i = 0; i < n; ++i) {
                    seen.insert(at);
                    const RingOrder ring({n, at, 0, 1, &hosts}, lane);
                    const Rank next = ring.next();
                    REQUIRE(RingOrder({n, next, 0, 1, &hosts}, lane).prev() == at);
                    REQUIRE(RingOrder({n, next, 0, 1, &hosts}, lane).position() ==
                            (ring.position() + 1) % n);
                    borders += hosts.host_of(at) != hosts.host_of(next);
                    at = next;
                }
                REQUIRE(at == 0);
                REQUIRE(seen.size() == static_cast<std::size_t>(n));
                REQUIRE(borders == (hosts.count() == 1 ? 0 : hosts.count()));
            }
}

TEST_CASE("multi-ring: lanes go both ways, and pairs of them leave a host through other ranks") {
    const Hosts h = Hosts::in_blocks(8, 4);
    std::set<Rank> leaving;
    for (uint32_t pair = 0; pair < 4; ++pair) {
        const auto next = [&](Rank r, uint32_t lane) {
            return RingOrder({8, r, 0, 1, &h}, lane).next();
        };
        for (Rank r = 0; r < 8; ++r) REQUIRE(next(next(r, 2 * pair), 2 * pair + 1) == r);
        for (Rank r = 0; r < 4; ++r)
            if (next(r, 2 * pair) >= 4) leaving.insert(r);
    }
    REQUIRE(leaving.size() == 4);
}

TEST_CASE("hosts: what a two-level algorithm says it costs is what its carriers send") {
    for (const Algorithm& a : algorithms())
        for (const auto& [count, locals] : {std::pair<Rank, Rank>{2, 2}, {4, 2}, {3, 4}, {8, 3}}) {
            if (!a.inner_cost || a.collective == Collective::barrier) continue;
            const Rank ranks = count * locals;
            const Hosts hosts = Hosts::in_blocks(ranks, locals);
            double wire = 0, memory = 0;  // the busiest rank's, in shares of the whole
            for (Rank r = 0; r < ranks; ++r) {
                const Schedule s = a.make({ranks, r, 0, 1, &hosts});
                double crossing = 0, inside = 0;
                for (const Lane& lane : s.lanes)
                    for (const Step& step : lane)
                        if (step.send != nobody)
                            (hosts.host_of(step.send) == hosts.host_of(r) ? inside : crossing) +=
                                static_cast<double>(step.chunks) / s.chunks;
                wire = std::max(wire, crossing);
                memory = std::max(memory, inside);
            }
            INFO(collective_name(a.collective) << " " << a.name << " " << count << " x " << locals);
            const double outer = a.cost(count).busy / (a.one_stripe ? 1 : locals);
            REQUIRE(outer + 1e-9 >= wire);
            REQUIRE(outer <= 1.5 * wire);
            REQUIRE(a.inner_cost(locals).busy + 1e-9 >= memory);
            REQUIRE(a.inner_cost(locals).busy <= 2 * memory);
        }
}
