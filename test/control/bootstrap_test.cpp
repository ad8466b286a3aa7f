// The bootstrap state machine, driven by a plain message queue: no sockets, any number of ranks.
#include <cmath>
#include <deque>
#include <optional>
#include <random>
#include <set>

#include "control/bootstrap.h"
#include "control/tree.h"
#include "support/catch.h"

using namespace tutti;

namespace {

struct Job {
    std::vector<Bootstrap> ranks;
    std::deque<std::tuple<Rank, Rank, Bytes>> wire;  // from, to, message
    std::set<Rank> met_parent;
    uint64_t messages = 0;

    void collect(Rank rank) {
        const bool met = met_parent.count(rank) > 0;
        for (auto& out : ranks[static_cast<std::size_t>(rank)].take_outgoing(met))
            if (tree_parent(out.to) != rank || met_parent.count(out.to) > 0)
                wire.emplace_back(rank, out.to, std::move(out.message));
    }
    void meet_parent(Rank rank) {
        met_parent.insert(rank);
        collect(rank);
        if (rank == 0) return;
        ranks[static_cast<std::size_t>(tree_parent(rank))].child_connected(rank);
        collect(tree_parent(rank));
    }
    /// Delivers everything, in an order the seed chooses among the links (each stays in order).
    /// When a rank meets its parent it chooses, too; until then nothing reaches it from there.
    void run(uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<Rank> alone;
        for (Rank r = 0; r < static_cast<Rank>(ranks.size()); ++r) {
            collect(r);
            if (met_parent.count(r) == 0) alone.push_back(r);
        }
        std::shuffle(alone.begin(), alone.end(), random);
        while (!wire.empty() || !alone.empty()) {
            if (wire.empty() || (!alone.empty() && random() % 2 == 0)) {
                meet_parent(alone.back());
                alone.pop_back();
                continue;
            }
            const auto pick = wire.begin() + static_cast<ptrdiff_t>(random() % wire.size());
            // The oldest message of the picked link.
            const auto from = std::get<0>(*pick), to = std::get<1>(*pick);
            const auto first = std::find_if(wire.begin(), wire.end(), [&](auto& m) {
                return std::get<0>(m) == from && std::get<1>(m) == to;
            });
            const Bytes message = std::get<2>(*first);
            wire.erase(first);
            ++messages;
            ranks[static_cast<std::size_t>(to)].receive(from, message);
            collect(to);
        }
    }
};

Bootstrap::Self self_of(Rank rank, Rank size) {
    Bootstrap::Self self;
    self.rank = rank;
    self.size = size;
    self.host_id = "host";
    self.machine_id = "machine";
    self.agree = {{"nrings", "2"}};
    self.transports = {{.max_message_bytes = 4096, .latency_us = 1, .bandwidth_gbs = 10}};
    return self;
}

Job make_job(Rank size, const std::function<void(Rank, Bootstrap::Self&)>& change = {}) {
    Job job;
    for (Rank r = 0; r < size; ++r) {
        Bootstrap::Self self = self_of(r, size);
        if (change) change(r, self);
        job.ranks.emplace_back(self);
    }
    return job;
}

}  // namespace

TEST_CASE("bootstrap: every job size assembles, whatever the order of messages") {
    for (Rank size : {1, 2, 3, 8, 9, 10, 64, 73, 74, 600}) {
        for (uint32_t seed = 1; seed <= 3; ++seed) {
            INFO("size " << size << " seed " << seed);
            Job job = make_job(size);
            job.run(seed);
            for (auto& rank : job.ranks) {
                REQUIRE(rank.state() == Bootstrap::State::link);
                REQUIRE(rank.one_host());
                REQUIRE(rank.machine_ranks() == static_cast<uint32_t>(size));
            }
            for (Rank r = 0; r < size; ++r)
                job.ranks[static_cast<std::size_t>(r)].linked(r != size / 2 || seed != 2);
            job.run(seed);
            for (auto& rank : job.ranks) {
                REQUIRE(rank.state() == Bootstrap::State::done);
                REQUIRE(rank.all_linked() == (seed != 2));
            }
            // join and linked up, ready and go down: four messages an edge.
            REQUIRE(job.messages == 4u * static_cast<uint64_t>(size - 1));
        }
    }
}

TEST_CASE("bootstrap: hosts and machines are told apart") {
    Job job = make_job(20, [](Rank r, Bootstrap::Self& self) {
        self.host_id = r < 10 ? "a" : "b";
        self.machine_id = r < 15 ? "m" : "k";
    });
    job.run(1);
    REQUIRE_FALSE(job.ranks[0].one_host());
    REQUIRE_FALSE(job.ranks[19].one_host());
    REQUIRE(job.ranks[3].machine_ranks() == 15);
    REQUIRE(job.ranks[19].machine_ranks() == 5);
}

TEST_CASE("bootstrap: ranks per core count each core once, however ranks are bound to them") {
    const auto crowding = [](const std::function<CoreSet(Rank)>& cores) {
        Job job = make_job(8, [&](Rank r, Bootstrap::Self& self) {
            self.machine_id = r < 6 ? "m" : "k";
            self.cores = cores(r);
        });
        job.run(1);
        for (auto& rank : job.ranks) REQUIRE(rank.crowding() == job.ranks[0].crowding());
        REQUIRE(job.ranks[0].machine_cores() == job.ranks[5].machine_cores());
        return job.ranks[0].crowding();
    };
    REQUIRE(crowding([](Rank) { return CoreSet{3}; }) == 3);            // all share two
    REQUIRE(crowding([](Rank r) { return CoreSet{1ull << r}; }) == 1);  // each has its own
    REQUIRE(crowding([](Rank r) { return CoreSet{0, 1ull << r % 3}; }) == 2);
    REQUIRE(crowding([](Rank) { return CoreSet{}; }) == 0);  // not known
}

TEST_CASE("bootstrap: every rank goes by the worst that any rank's transports state") {
    Job job = make_job(74, [](Rank r, Bootstrap::Self& self) {
        self.transports = {{.max_message_bytes = r == 9 ? 1000u : 4000u,
                            .latency_us = r == 73 ? 8.0 : 2.0,
                            .bandwidth_gbs = r == 40 ? 3.0 : 25.0},
                           {.max_message_bytes = 64, .sockets = r == 1, .lacking = r == 50}};
    });
    job.run(3);
    for (auto& rank : job.ranks) {
        REQUIRE(rank.state() == Bootstrap::State::link);
        const auto& stated = rank.worst();
        REQUIRE(stated.size() == 2);
        REQUIRE(stated[0].max_message_bytes == 1000);
        REQUIRE(stated[0].latency_us == 8);
        REQUIRE(stated[0].bandwidth_gbs == 3);
        REQUIRE_FALSE(stated[0].sockets);
        REQUIRE(stated[1].sockets);
        REQUIRE(stated[1].sockets_within == false);
        REQUIRE_FALSE(stated[0].lacking);
        REQUIRE(stated[1].lacking);
    }
}

TEST_CASE("bootstrap: what a rank finds out on its way to its parent counts for all") {
    Job job = make_job(74);
    job.ranks[73].found_latency(0, 500);
    job.ranks[40].found_latency(0, 8000);
    job.ranks[5].found_latency(0, 0);  // less than the transport states
    job.run(4);
    for (auto& rank : job.ranks) {
        REQUIRE(rank.state() == Bootstrap::State::link);
        REQUIRE(rank.worst()[0].latency_us == 8000);
        REQUIRE(rank.worst()[0].max_message_bytes == 4096);
    }
}

TEST_CASE("bootstrap: nobody is told that its transports can do more than they said") {
    Job job = make_job(3, [](Rank r, Bootstrap::Self& self) {
        if (r == 2) self.transports[0].max_message_bytes = 1000;
    });
    Bootstrap liar(self_of(0, 3));  // it has not heard of rank 2's
    for (Rank r : {1, 2})
        liar.receive(r, Bootstrap(self_of(r, 3)).take_outgoing(true).at(0).message);
    job.ranks[2].receive(0, liar.take_outgoing(true).at(1).message);
    REQUIRE(job.ranks[2].state() == Bootstrap::State::link);
    REQUIRE(job.ranks[2].worst()[0].max_message_bytes == 1000);
    for (const double never : {-1.0, std::nan("")}) {
        Bootstrap root(self_of(0, 3));
        Bootstrap::Self child = self_of(1, 3);
        child.transports[0].bandwidth_gbs = never;
        root.receive(1, Bootstrap(child).take_outgoing(true).at(0).message);
        REQUIRE(root.state() == Bootstrap::State::failed);
    }
}

TEST_CASE("bootstrap: a setting that differs fails every rank with both values") {
    for (Rank odd : {0, 1, 7, 19}) {
        Job job = make_job(20, [&](Rank r, Bootstrap::Self& self) {
            if (r == odd) self.agree = {{"nrings", "3"}};
        });
        job.run(7);
        for (Rank r = 0; r < 20; ++r) {
            INFO("rank " << r << ", odd " << odd);
            const auto& rank = job.ranks[static_cast<std::size_t>(r)];
            REQUIRE(rank.state() == Bootstrap::State::failed);
            REQUIRE(rank.error().code == Code::invalid);
            REQUIRE(rank.error().message.find("nrings is '") != std::string::npos);
            REQUIRE(rank.error().message.find("'3'") != std::string::npos);
            REQUIRE(rank.error().message.find("'2'") != std::string::npos);
        }
    }
}

TEST_CASE("bootstrap: a job size that differs names the rank and both sizes") {
    Job job = make_job(4, [](Rank r, Bootstrap::Self& self) {
        if (r == 2) self.size = 5;
    });
    // Rank 2 believes in a rank 4 that does not exist; its parent sees the difference first.
    job.run(1);
    for (Rank r : {0, 1, 3}) {
        const auto& rank = job.ranks[static_cast<std::size_t>(r)];
        REQUIRE(rank.state() == Bootstrap::State::failed);
        REQUIRE(rank.error().message.find("rank 2 was started with size 5, rank 0 with size 4") !=
                std::string::npos);
    }
}

TEST_CASE("bootstrap: knows which children are missing") {
    Bootstrap root(self_of(0, 5));
    REQUIRE(root.missing() == std::vector<Rank>{1, 2, 3, 4});
    Bootstrap child(self_of(3, 5));
    root.receive(3, child.take_outgoing(true).at(0).message);
    REQUIRE(root.missing() == std::vector<Rank>{1, 2, 4});
}

TEST_CASE("bootstrap: malformed messages fail the job instead of being believed") {
    std::mt19937 random(12345);
    INFO("seed 12345");
    const Bytes good = Bootstrap(self_of(1, 3)).take_outgoing(true).at(0).message;
    for (int i = 0; i < 2000; ++i) {
        Bootstrap root(self_of(0, 3));
        Bytes bad = good;
        if (i % 2)
            bad.resize(random() % bad.size());
        else
            bad[random() % bad.size()] ^= static_cast<std::byte>(1 + random() % 255);
        if (bad == good) continue;
        root.receive(1, bad);
        // Either it was recognised, or only names and counts changed: never a finished job.
        REQUIRE(root.state() != Bootstrap::State::done);
        REQUIRE(root.state() != Bootstrap::State::link);
    }
    Bootstrap stranger(self_of(0, 3));
    stranger.receive(17, good);
    REQUIRE(stranger.state() == Bootstrap::State::failed);
}

TEST_CASE("bootstrap: a failure that a rank tells of is one, whatever it says") {
    constexpr std::size_t code_at = 1, rank_at = 2;  // after the kind
    Bootstrap child(self_of(1, 3));
    child.take_outgoing(true);
    child.fail_with({Code::timeout, 2, 0, "it was late"});
    const Bytes good = child.take_outgoing(true).at(0).message;
    const auto heard = [](const Bytes& message) {
        Bootstrap root(self_of(0, 3));
        root.receive(1, message);
        REQUIRE(root.state() == Bootstrap::State::failed);
        return root.error();
    };
    CHECK(heard(good).code == Code::timeout);
    CHECK(heard(good).rank == 2);
    CHECK(heard(good).message == "it was late");
    for (const int code : {0, 1, static_cast<int>(last_code) + 1, 255}) {
        Bytes bad = good;
        bad[code_at] = static_cast<std::byte>(code);
        bad[rank_at] = std::byte{3};
        CHECK(heard(bad).code == Code::system);
        CHECK(heard(bad).rank == nobody);
        CHECK(heard(bad).message == "it was late");
    }
    for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
        const Error error =
            heard(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)));
        CHECK(error.code == Code::system);
        CHECK(error.rank == 1);
        CHECK(error.message == "rank 1 sent a malformed message while joining");
    }
}

TEST_CASE("control tree: parents and children agree, and depth is logarithmic") {
    for (Rank size : {1, 2, 9, 100, 4097}) {
        Rank edges = 0;
        for (Rank r = 0; r < size; ++r)
            for (Rank child : tree_children(r, size)) {
                REQUIRE(tree_parent(child) == r);
                ++edges;
            }
        REQUIRE(edges == size - 1);
    }
    int depth = 0;
    for (Rank r = 99'999; r != 0; r = tree_parent(r)) ++depth;
    REQUIRE(depth <= 6);
}
