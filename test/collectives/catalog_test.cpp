// Every algorithm of the catalog, proved for every rank count: nothing here names one.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "collectives/catalog.h"
#include "collectives/promises.h"
#include "proof/draw.h"
#include "proof/verify.h"
#include "support/catch.h"
#include "support/sanitized.h"

using namespace tutti;
using test::most_credits;
using test::roots_of;

namespace {

void expect_verified(const Algorithm& a, Rank ranks, uint32_t lanes, Rank root, bool in_place) {
    VerifyRequest request;
    request.collective = a.collective;
    request.ranks = ranks;
    request.root = root;
    request.in_place = in_place;
    const Verdict verdict = verify(request, a.make, lanes);
    INFO(collective_name(a.collective)
         << " " << a.name << " ranks " << ranks << " lanes " << lanes << " root " << root
         << " in place " << in_place << ": " << verdict.problem);
    REQUIRE(verdict.ok);
    REQUIRE(verdict.credits <= most_credits);
    if (traits_of(a.collective).reduces) REQUIRE((verdict.ordered || a.reorders));
}

// Lanes differ in nothing but their chunks' numbers: all counts of them where that is cheap.
std::vector<uint32_t> lanes_of(Rank ranks) {
    if (ranks <= 16) return {1, 2, 3, 4};
    return {1, 3};
}

void expect_verified(const std::vector<Rank>& counts) {
    for (const Algorithm& a : algorithms())
        for (const Rank ranks : counts) {
            if (a.unsupported && !a.unsupported(ranks, {}).empty()) continue;
            // Each count has another root, and is in place or not, in turns.
            const Rank root = traits_of(a.collective).rooted ? ranks * 5 / 7 : 0;
            expect_verified(a, ranks, 1, root, ranks % 2 == 0);
        }
}

uint32_t hops_of(const char* name, Collective collective, Rank ranks) {
    VerifyRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return verify(request, find_algorithm(collective, name)->make, 1).hops;
}

}  // namespace

TEST_CASE("catalog: every algorithm is right for every rank count from 1 to 64") {
    const Rank most = test::sanitized ? 20 : 64;
    for (const Algorithm& a : algorithms())
        for (Rank ranks = 1; ranks <= most; ++ranks) {
            if (a.unsupported && !a.unsupported(ranks, {}).empty()) continue;
            for (uint32_t lanes : lanes_of(ranks))
                for (Rank root : roots_of(a, ranks))
                    for (bool in_place : {false, true})
                        expect_verified(a, ranks, lanes, root, in_place);
        }
}

TEST_CASE("catalog: every algorithm is right for some hundreds of ranks") {
    for (const Algorithm& a : algorithms())
        for (Rank ranks : {100, 128, 255, 257}) {
            if (test::sanitized && ranks > 100) continue;
            if (a.unsupported && !a.unsupported(ranks, {}).empty()) continue;
            for (Rank root : roots_of(a, ranks)) expect_verified(a, ranks, 1, root, true);
        }
}

TEST_CASE("catalog: every algorithm is right for every rank count to 128, and for a thousand",
          "[.][many]") {
    expect_verified(test::counts_between(65, 128));
    expect_verified({191, 192, 255, 256, 257, 1000});
}

TEST_CASE(
    "catalog: every algorithm is right for every rank count from 129 to 257, and beside a thousand",
    "[.][hundreds]") {
    expect_verified(test::counts_between(129, 257));
    expect_verified({1023, 1024});
}

TEST_CASE("catalog: every algorithm is right for 4,096 ranks", "[.][thousands]") {
    // All-to-all patterns have 16 million channels here: gigabytes and minutes each.
    for (const Algorithm& a : algorithms()) {
        if (a.unsupported && !a.unsupported(4096, {}).empty()) continue;  // hosts_test.cpp has them
        DYNAMIC_SECTION(a.name << " " << collective_name(a.collective)) {
            expect_verified(a, 4096, 1, traits_of(a.collective).rooted ? 2047 : 0, false);
        }
    }
}

TEST_CASE("catalog: hop counts are those of the docstrings") {
    for (Rank n : {2, 3, 4, 8, 13, 16, 32}) {
        INFO("ranks " << n);
        uint32_t log = 0;
        while ((Rank{1} << log) < n) ++log;
        const bool power = (n & (n - 1)) == 0;
        const auto others = static_cast<uint32_t>(n - 1);
        REQUIRE(hops_of("ring", Collective::allreduce, n) == 2 * others);
        const uint32_t doubling = hops_of("recursive_doubling", Collective::allreduce, n);
        REQUIRE((power ? doubling == log : doubling <= log + 1));
        const uint32_t halving = hops_of("rabenseifner", Collective::allreduce, n);
        REQUIRE(halving == 2 * log);  // folding takes one round before and one after
        const uint32_t binomial = hops_of("binomial", Collective::broadcast, n);
        REQUIRE((power ? binomial == log : binomial <= log));
        REQUIRE(hops_of("chain", Collective::broadcast, n) == others);
        REQUIRE(hops_of("dissemination", Collective::barrier, n) == log);
        REQUIRE(hops_of("ring", Collective::allgather, n) == others);
        REQUIRE(hops_of("bruck", Collective::allgather, n) == log);
        REQUIRE(hops_of("direct", Collective::allgather, n) == 1);
        REQUIRE(hops_of("ring", Collective::reduce_scatter, n) == others);
        REQUIRE(hops_of("direct", Collective::reduce_scatter, n) == 1);
        REQUIRE(hops_of("circulant", Collective::reduce_scatter, n) == log);
        REQUIRE(hops_of("pairwise", Collective::alltoall, n) == static_cast<uint32_t>(n / 2));
        REQUIRE(hops_of("bruck", Collective::alltoall, n) == log);
        REQUIRE(hops_of("circulant", Collective::allreduce, n) == 2 * log);
        REQUIRE(hops_of("direct", Collective::allreduce, n) == 2);
    }
}

TEST_CASE("catalog: hop counts of trees, chains and scans are those of the docstrings") {
    struct Expected {
        const char* name;
        Collective collective;
        uint32_t hops;
        bool exact = true;  // else for powers of the radix, and at most so many for the others
    };
    for (Rank n : {2, 3, 4, 8, 13, 16, 32, 64}) {
        const auto last = static_cast<uint32_t>(n - 1);
        const auto log = static_cast<uint32_t>(std::bit_width(last));
        const uint32_t log4 = (log + 1) / 2;
        const bool power = std::has_single_bit(static_cast<uint32_t>(n));
        for (const Expected& e : {
                 Expected{"binomial", Collective::reduce, log, power},
                 Expected{"knomial", Collective::reduce, log4, power && log % 2 == 0},
                 Expected{"knomial", Collective::broadcast, log4, power && log % 2 == 0},
                 Expected{"binomial", Collective::gather, log, power},
                 Expected{"binomial", Collective::scatter, log, power},
                 Expected{"direct", Collective::gather, 1},
                 Expected{"direct", Collective::scatter, 1},
                 Expected{"chain", Collective::reduce, last},
                 Expected{"chain", Collective::scan, last},
                 Expected{"chain", Collective::exscan, last},
                 Expected{"recursive_doubling", Collective::scan, log, power},
                 Expected{"recursive_doubling", Collective::exscan, log, power},
                 Expected{"double_binary_tree", Collective::broadcast, log},
                 Expected{"double_binary_tree", Collective::reduce, log},
                 Expected{"double_binary_tree", Collective::allreduce, 2 * log},
             }) {
            const uint32_t hops = hops_of(e.name, e.collective, n);
            INFO(e.name << " " << collective_name(e.collective) << " ranks " << n << ": " << hops);
            REQUIRE((e.exact ? hops == e.hops : hops <= e.hops));
        }
    }
}

TEST_CASE("catalog: a ring sends 2(n-1) of n chunks per rank") {
    for (Rank n : {2, 5, 16}) {
        VerifyRequest request;
        request.ranks = n;
        const Verdict v = verify(request, ring_allreduce, 1);
        REQUIRE(v.busiest_chunks == 2u * static_cast<uint64_t>(n - 1));
        REQUIRE(v.messages == 2u * static_cast<uint64_t>(n - 1) * static_cast<uint64_t>(n));
    }
}

TEST_CASE("catalog: bandwidth-optimal algorithms send no more than they must") {
    const auto chunks_sent = [](const Algorithm& a, Rank n) {
        VerifyRequest request;
        request.collective = a.collective;
        request.ranks = n;
        return verify(request, a.make, 1).busiest_chunks;
    };
    const auto parts = [](const Algorithm& a, Rank n) {
        return a.make({n, 0, 0, 1}).chunks / static_cast<uint32_t>(n);
    };
    for (Rank n : {2, 5, 16, 23}) {
        const auto others = static_cast<uint64_t>(n - 1);
        for (const Algorithm& a : algorithms()) {
            INFO(collective_name(a.collective) << " " << a.name << " ranks " << n);
            if (a.collective == Collective::allgather || a.collective == Collective::reduce_scatter)
                REQUIRE(chunks_sent(a, n) == others * parts(a, n));
        }
        REQUIRE(chunks_sent(*find_algorithm(Collective::alltoall, "pairwise"), n) == others);
        for (const char* name : {"circulant", "direct"})
            REQUIRE(chunks_sent(*find_algorithm(Collective::allreduce, name), n) == 2 * others);
    }
    // The data has 16 chunks. With 23 ranks, a rank that works for two sends all of them once more.
    const Algorithm& rabenseifner = *find_algorithm(Collective::allreduce, "rabenseifner");
    REQUIRE(chunks_sent(rabenseifner, 16) == 30);
    REQUIRE(chunks_sent(rabenseifner, 23) == 46);
}

TEST_CASE("catalog: log-round algorithms build log-sized schedules") {
    constexpr Rank many = 100'000;
    for (const char* name : {"recursive_doubling"})
        REQUIRE(find_algorithm(Collective::allreduce, name)
                    ->make({many, 77'777, 0, 1})
                    .lanes[0]
                    .size() <= 40);
    for (const auto& [name, collective] : {
             std::pair{"binomial", Collective::reduce},
             std::pair{"knomial", Collective::reduce},
             std::pair{"knomial", Collective::broadcast},
             std::pair{"binomial", Collective::gather},
             std::pair{"binomial", Collective::scatter},
             std::pair{"recursive_doubling", Collective::scan},
             std::pair{"recursive_doubling", Collective::exscan},
             std::pair{"double_binary_tree", Collective::broadcast},
             std::pair{"double_binary_tree", Collective::reduce},
             std::pair{"double_binary_tree", Collective::allreduce},
         })
        for (Rank rank : {0, 5, 65'536, 77'777, many - 1})
            for (const Lane& lane :
                 find_algorithm(collective, name)->make({many, rank, 3, 1}).lanes)
                REQUIRE(lane.size() <= 40);
    for (const char* name : {"rabenseifner", "circulant"})
        REQUIRE(find_algorithm(Collective::allreduce, name)
                    ->make({many, 77'777, 0, 1})
                    .lanes[0]
                    .size() <= 70);
    REQUIRE(circulant_reduce_scatter({many, 5, 0, 1}).lanes[0].size() <= 35);
    REQUIRE(bruck_allgather({many, 5, 0, 1}).lanes[0].size() <= 34);
    REQUIRE(binomial_broadcast({many, 0, 0, 1}).lanes[0].size() <= 17);
    REQUIRE(dissemination_barrier({many, 5, 0, 1}).lanes[0].size() <= 34);
    REQUIRE(chain_broadcast({many, 5, 0, 1}).lanes[0].size() == 1);
}

TEST_CASE("catalog: a double binary tree has no rank send more than the message, once each way") {
    for (Rank n : {2, 3, 5, 8, 16, 33}) {
        VerifyRequest request;
        request.ranks = n;
        INFO("ranks " << n);
        // The message is two chunks.
        REQUIRE(verify(request, double_binary_tree_allreduce, 1).busiest_chunks <= 4);
        request.collective = Collective::broadcast;
        REQUIRE(verify(request, double_binary_tree_broadcast, 1).busiest_chunks == 2);
        request.collective = Collective::reduce;
        REQUIRE(verify(request, double_binary_tree_reduce, 1).busiest_chunks == 2);
    }
}

TEST_CASE("catalog: holds every file of collectives/, and finds each by its name") {
    namespace fs = std::filesystem;
    std::set<std::string> files, entries;
    for (const auto& file : fs::directory_iterator(fs::path(TUTTI_SOURCE_ROOT) / "collectives"))
        // A source with a header holds code that several algorithms share, or the catalog itself.
        if (file.path().extension() == ".cpp" &&
            !fs::exists(fs::path(file.path()).replace_extension(".h")))
            files.insert(file.path().stem());
    for (const Algorithm& a : algorithms()) {
        entries.insert(std::string(a.name) + "_" + std::string(collective_name(a.collective)));
        REQUIRE(find_algorithm(a.collective, a.name) == &a);
        REQUIRE_FALSE(a.summary.empty());
    }
    REQUIRE(files == entries);
    REQUIRE(find_algorithm(Collective::barrier, "ring") == nullptr);
}

TEST_CASE("catalog: every algorithm's file says what it costs and where it comes from") {
    namespace fs = std::filesystem;
    for (const Algorithm& a : algorithms()) {
        const std::string stem =
            std::string(a.name) + "_" + std::string(collective_name(a.collective));
        std::ifstream file(fs::path(TUTTI_SOURCE_ROOT) / "collectives" / (stem + ".cpp"));
        std::string docstring, line;
        while (std::getline(file, line))
            if (line.starts_with("///")) docstring += line + "\n";
        for (const char* part : {"Generated in ", "Cost: ", "Source: "}) {
            INFO(stem << ": " << part);
            REQUIRE(docstring.find(part) != std::string::npos);
        }
    }
}

TEST_CASE("draw: text has a line for every step, in words") {
    std::vector<Schedule> ranks;
    for (Rank r = 0; r < 3; ++r) ranks.push_back(ring_allreduce({3, r, 0, 1}));
    const std::string text = draw_text(ranks);
    REQUIRE(std::count(text.begin(), text.end(), '\n') == 15);
    REQUIRE(text.find("rank 0 lane 0 step 0: input[0] (raw), send 1 (raw)") != std::string::npos);
    REQUIRE(text.find("recv 2 (partial) ⊕ input[1] (raw) -> output[1] (final), send 1 (final)") !=
            std::string::npos);
}

TEST_CASE("draw: the SVG has a column for every rank and an arrow for every message") {
    for (const Algorithm& a : algorithms()) {
        INFO(a.name);
        constexpr Rank n = 5;
        std::vector<Schedule> ranks;
        std::size_t messages = 0;
        for (Rank r = 0; r < n; ++r) {
            ranks.push_back(a.make({n, r, 0, 2}));
            for (const Lane& lane : ranks.back().lanes)
                for (const Step& step : lane) messages += step.send != nobody;
        }
        const std::string svg = draw_svg(ranks, "a < b & c");
        const auto count = [&](const std::string& what) {
            std::size_t found = 0;
            for (auto at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1))
                ++found;
            return found;
        };
        REQUIRE(svg.find("<svg ") == 0);
        REQUIRE(svg.find("</svg>") != std::string::npos);
        REQUIRE(svg.find("a &lt; b &amp; c") != std::string::npos);
        REQUIRE(count(">rank ") == static_cast<std::size_t>(n));
        REQUIRE(count("<circle ") == messages);
        REQUIRE(count("<text") == count("</text>"));
    }
}

namespace {

/// The costs of one tile in the schedules of all ranks, named as in Cost; bytes are in chunks.
struct Needs {
    double messages = 0, peers = 0, busy = 0, partial = 0, reduced = 0, share = 0, each = 0;
};

struct Way {
    double messages = 0, chunks = 0, partial = 0;
    std::set<Rank> peers;

    void count(Rank peer, const Step& step, Form form) {
        ++messages;
        chunks += step.chunks;
        if (form == Form::partial) partial += step.chunks;
        peers.insert(peer);
    }
};

Needs needs_of(const Algorithm& a, Rank ranks) {
    Needs needs;
    for (Rank rank = 0; rank < ranks; ++rank) {
        Way out, in;
        double reduced = 0;
        for (const Lane& lane : a.make({.ranks = ranks, .rank = rank}).lanes)
            for (const Step& step : lane) {
                const bool receives = step.recv != nobody && !step.keep;
                if (step.send != nobody) out.count(step.send, step, step.result);
                if (receives) in.count(step.recv, step, step.in);
                if ((receives || step.keep) && step.local) reduced += step.chunks;
            }
        for (const Way* way : {&out, &in}) {
            needs.messages = std::max(needs.messages, way->messages);
            needs.peers = std::max(needs.peers, static_cast<double>(way->peers.size()));
            needs.busy = std::max(needs.busy, way->chunks);
            needs.partial = std::max(needs.partial, way->partial);
        }
        needs.reduced = std::max(needs.reduced, reduced);
        needs.share += out.chunks / ranks;
        needs.each += out.messages / ranks;
    }
    return needs;
}

// An upper bound, and no loose one.
void require_bound(double claim, double least, double most) {
    REQUIRE(claim + 1e-9 >= least);
    REQUIRE(claim <= most + 1e-9);
}

}  // namespace

// Selection goes by the closed forms; what the schedules really need is theirs to say.
TEST_CASE("catalog: what an algorithm says it costs is what its schedules need") {
    for (const Algorithm& a : algorithms())
        for (Rank ranks = 1; ranks <= 33; ++ranks) {
            if (!a.cost || (a.unsupported && !a.unsupported(ranks, {}).empty())) continue;
            VerifyRequest request;
            request.collective = a.collective;
            request.ranks = ranks;
            const Verdict verdict = verify(request, a.make, 1);
            const Cost cost = a.cost(ranks);
            INFO(collective_name(a.collective) << " " << a.name << " ranks " << ranks);
            require_bound(cost.hops, verdict.hops, 1.5 * verdict.hops + 1);
            if (ranks == 1) continue;  // it is never asked
            const Needs needs = needs_of(a, ranks);
            require_bound(cost.messages, needs.messages, needs.messages);
            require_bound(cost.peers, needs.peers, needs.peers);
            require_bound(cost.mean_messages(), needs.each, needs.each);
            if (a.collective == Collective::barrier) continue;
            const Rank buffers = traits_of(a.collective).cut == Cut::pairs ? ranks : 1;
            const double whole = static_cast<double>(a.make({.ranks = ranks}).chunks) / buffers;
            require_bound(cost.busy, needs.busy / whole, needs.busy / whole);
            require_bound(cost.share, needs.share / whole, needs.share / whole);
            REQUIRE(cost.busy <= cost.path + 1e-9);
            require_bound(cost.partial, needs.partial / whole, 2 * needs.partial / whole);
            // An exscan's last rounds are counted as if all ranks sent in them.
            require_bound(cost.reduced, needs.reduced / whole, needs.reduced / whole + 1);
        }
}
