// The bootstrap state machine, driven by a plain message queue: no sockets, any number of ranks.
#include <fmt/format.h>

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

constexpr auto connected = Bootstrap::Parent::connected;
constexpr auto exchanges_records = Bootstrap::Parent::exchanges_records;

struct Job {
    std::vector<Bootstrap> ranks;
    std::set<Rank> exchanging;                       // records
    std::deque<std::tuple<Rank, Rank, Bytes>> wire;  // from, to, message
    std::set<Rank> met_parent;
    uint64_t messages = 0;
    std::size_t longest = 0;  // message

    void collect(Rank rank) {
        auto parent = exchanging.count(tree_parent(rank)) ? exchanges_records : connected;
        if (met_parent.count(rank) == 0) parent = Bootstrap::Parent::not_connected;
        for (auto& out : ranks[static_cast<std::size_t>(rank)].take_outgoing(parent))
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
            longest = std::max(longest, message.size());
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

std::string record_of(Rank rank, std::size_t bytes = 0) {
    std::string record = fmt::format("addresses of rank {}", rank);
    record.resize(std::max(record.size(), bytes), '.');
    return record;
}

Bootstrap with_record(Rank rank, Rank size) {
    Bootstrap::Self self = self_of(rank, size);
    self.record = record_of(rank);
    return Bootstrap(self);
}

/// A message of records, as other versions or a hostile rank may send it.
Bytes records_message(Rank size, const std::vector<std::pair<Rank, std::string>>& records) {
    ByteWriter out;
    out.put(uint8_t{6}).put(size);
    for (const auto& [rank, record] : records) out.put(rank).put_text(record);
    return out.take();
}

using Heard = std::pair<Rank, Bytes>;

/// The error of a rank that gathers until it hears the last of these messages.
Error error_of(Bootstrap rank, const std::vector<Heard>& heard) {
    for (const auto& [from, message] : heard) {
        REQUIRE(rank.state() == Bootstrap::State::gathering);
        rank.receive(from, message);
    }
    REQUIRE(rank.state() == Bootstrap::State::failed);
    REQUIRE_FALSE(rank.take_outgoing(connected).empty());  // the other ranks hear of it
    return rank.error();
}

Job make_job(Rank size, const std::function<void(Rank, Bootstrap::Self&)>& change = {}) {
    Job job;
    for (Rank r = 0; r < size; ++r) {
        Bootstrap::Self self = self_of(r, size);
        if (change) change(r, self);
        if (!self.record.empty()) job.exchanging.insert(r);
        job.ranks.emplace_back(self);
    }
    return job;
}

}  // namespace

TEST_CASE("bootstrap: every job size assembles, whatever the order of messages") {
    for (Rank size : {1, 2, 3, 8, 9, 10, 64, 73, 74, 600}) {
        for (uint32_t seed = 1; seed <= 3; ++seed) {
            INFO("size " << size << " seed " << seed);
            Job job = make_job(size);  // without records, as if it were large
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

TEST_CASE("bootstrap: every rank gets every rank's record, whatever the order of messages") {
    for (Rank size : {1, 2, 3, 8, 9, 10, 64, 73, 74, 600, 1024}) {
        for (uint32_t seed = 1; seed <= 2; ++seed) {
            INFO("size " << size << " seed " << seed);
            Job job =
                make_job(size, [](Rank r, Bootstrap::Self& self) { self.record = record_of(r); });
            job.run(seed);
            std::vector<std::string> all;
            for (Rank r = 0; r < size; ++r) all.push_back(record_of(r));
            for (auto& rank : job.ranks) {
                REQUIRE(rank.state() == Bootstrap::State::link);
                REQUIRE(rank.take_records() == all);
                rank.linked(true);
            }
            job.run(seed);
            for (auto& rank : job.ranks) REQUIRE(rank.state() == Bootstrap::State::done);
            // join and ready come after one message of records each.
            REQUIRE(job.messages == 6u * static_cast<uint64_t>(size - 1));
        }
    }
}

TEST_CASE("bootstrap: long records travel in messages that the control tree takes") {
    // One in a message; two; three that just fit.
    constexpr std::size_t head_bytes = 5, entry_bytes = 8;
    constexpr std::size_t third = (RankRecords::max_chunk_bytes - head_bytes) / 3 - entry_bytes;
    static_assert((RankRecords::max_chunk_bytes - head_bytes) % 3 == 1);
    for (const std::size_t bytes : {std::size_t{RankRecords::max_record_bytes}, third + 1, third}) {
        INFO("records of " << bytes << " bytes");
        Job job =
            make_job(20, [&](Rank r, Bootstrap::Self& self) { self.record = record_of(r, bytes); });
        job.run(5);
        const std::size_t most =
            (RankRecords::max_chunk_bytes - head_bytes) / (bytes + entry_bytes);
        CHECK(job.longest == head_bytes + most * (bytes + entry_bytes));
        CHECK(job.longest <= RankRecords::max_chunk_bytes);
        for (auto& rank : job.ranks) {
            REQUIRE(rank.state() == Bootstrap::State::link);
            const std::vector<std::string> records = rank.take_records();
            for (Rank r = 0; r < 20; ++r)
                REQUIRE(records.at(static_cast<std::size_t>(r)) == record_of(r, bytes));
        }
    }
}

TEST_CASE("bootstrap: a record that has no place in a message fails the job and says why") {
    // Rank 1 has the parent 0 and the children 9 to 16.
    constexpr Rank size = 20;
    const auto error_of_1 = [&](const std::vector<Heard>& heard) {
        const Error error = error_of(with_record(1, size), heard);
        CHECK(error.rank == heard.back().first);
        return error.message;
    };
    const auto malformed = [](const std::string& why) {
        return "rank 9 sent a malformed message while joining: " + why;
    };
    const auto from_9 = [&](const std::vector<std::pair<Rank, std::string>>& records) {
        return error_of_1({{9, records_message(size, records)}});
    };
    for (const Rank rank : {-1, 0, 1, 10, 17, 20, INT32_MAX})
        CHECK(from_9({{9, "here"}, {rank, "there"}}) ==
              malformed(fmt::format("it has a record of rank {}, which is not behind it in the "
                                    "control tree",
                                    rank)));
    CHECK(from_9({{9, "here"}, {9, "there"}}) == malformed("the record of rank 9 came twice"));
    const std::string unreadable = "a record is cut off, empty or longer than 24576 bytes";
    CHECK(from_9({{9, std::string(RankRecords::max_record_bytes + 1, 'x')}}) ==
          malformed(unreadable));
    CHECK(from_9({{9, ""}}) == malformed(unreadable));
    CHECK(from_9({}) == malformed(unreadable));
    const Bytes whole = records_message(size, {{9, "here"}});
    for (std::size_t bytes = 1; bytes < whole.size(); ++bytes)
        CHECK(error_of_1({{9, Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes))}})
                  .starts_with(malformed("")));
    CHECK(error_of_1({{9, whole}, {9, whole}}) == malformed("the record of rank 9 came twice"));
    CHECK(error_of_1({{9, records_message(21, {{9, "here"}})}}) ==
          "rank 9 was started with size 21, rank 1 with size 20");

    const auto sent = with_record(9, size).take_outgoing(exchanges_records);
    REQUIRE(sent.size() == 2);  // its record, and that it joins
    const Bytes &record = sent[0].message, &join = sent[1].message;
    for (const std::vector<Heard>& heard :
         {std::vector<Heard>{{9, record}, {9, join}}, std::vector<Heard>{{9, join}}}) {
        std::vector<Heard> late = heard;
        late.emplace_back(9, record);
        CHECK(error_of_1(late) == "rank 9 sent an unexpected message while joining");
    }
    CHECK(error_of_1({{0, records_message(size, {{0, "here"}})}}) ==
          "rank 0 sent an unexpected message while joining");  // its own subtree has not joined
    CHECK(error_of_1({{2, records_message(size, {{2, "here"}})}}) ==
          "rank 2 sent an unexpected message while joining");
    CHECK(error_of(Bootstrap(self_of(1, size)), {{9, record}}).message ==
          "rank 9 sent an unexpected message while joining");  // rank 1 exchanges none
}

TEST_CASE("bootstrap: a record that the parent may not send fails the job and says why") {
    const Bytes roots = records_message(2, {{0, "here"}});
    const auto error_of_leaf = [&](Bootstrap::Parent parent, const std::vector<Heard>& heard) {
        Bootstrap leaf = with_record(1, 2);
        leaf.take_outgoing(parent);
        const Error error = error_of(std::move(leaf), heard);
        CHECK(error.rank == 0);
        return error.message;
    };
    const std::string malformed_root = "rank 0 sent a malformed message while joining: ";
    CHECK(error_of_leaf(connected, {{0, roots}}) ==
          "rank 0 sent an unexpected message while joining");  // the leaf has sent it none
    CHECK(error_of_leaf(exchanges_records, {{0, roots}, {0, roots}}) ==
          malformed_root + "the record of rank 0 came twice");
    CHECK(error_of_leaf(exchanges_records, {{0, records_message(2, {{1, "here"}})}}) ==
          malformed_root + "it has a record of rank 1, which is not behind it in the control tree");
}

TEST_CASE("bootstrap: records pass only between neighbours that exchange them") {
    const auto start = [](Rank size, const std::set<Rank>& without, uint32_t seed) {
        Job job = make_job(size, [&](Rank r, Bootstrap::Self& self) {
            if (without.count(r) == 0) self.record = record_of(r);
        });
        job.run(seed);
        // A record comes if each rank on its way exchanges records, the ends among them.
        const auto comes = [&](Rank from, Rank to) {
            for (Rank at = from; without.count(at) == 0; at = tree_next_hop(at, to))
                if (at == to) return true;
            return false;
        };
        for (Rank to = 0; to < size; ++to) {
            Bootstrap& rank = job.ranks[static_cast<std::size_t>(to)];
            REQUIRE(rank.state() == Bootstrap::State::link);
            std::vector<std::string> expected;
            for (Rank from = 0; from < size && without.count(to) == 0; ++from)
                expected.push_back(comes(from, to) ? record_of(from) : "");
            REQUIRE(rank.take_records() == expected);
            rank.linked(true);
        }
        job.run(seed);
        for (auto& rank : job.ranks) REQUIRE(rank.state() == Bootstrap::State::done);
        uint64_t partners = 0;
        for (Rank r = 1; r < size; ++r)
            partners += without.count(r) == 0 && without.count(tree_parent(r)) == 0;
        REQUIRE(job.messages == 4u * static_cast<uint64_t>(size - 1) + 2 * partners);
    };
    for (const Rank size : {2, 3, 9, 10, 20, 74, 150}) {
        for (Rank odd = 0; odd < size; ++odd) {  // the root, an inner rank, a leaf
            INFO("size " << size << ", without records: rank " << odd);
            start(size, {odd}, static_cast<uint32_t>(odd));
        }
        for (uint32_t seed = 1; seed <= 10; ++seed) {
            INFO("size " << size << " seed " << seed);
            std::mt19937 random(seed);
            std::set<Rank> without;
            for (Rank r = 0; r < size; ++r)
                if (random() % (1 + seed % 4) == 0) without.insert(r);
            start(size, without, seed);
        }
    }
}

TEST_CASE("bootstrap: a record that does not come is no failure") {
    constexpr Rank size = 10;
    const auto join_of = [](Bootstrap rank) { return rank.take_outgoing(connected).at(0).message; };
    Bootstrap root = with_record(0, size), inner(self_of(1, size));
    inner.receive(9, join_of(Bootstrap(self_of(9, size))));
    root.receive(1, records_message(size, {{9, record_of(9)}}));  // rank 1 leaves its own out
    root.receive(1, join_of(std::move(inner)));
    for (Rank leaf = 2; leaf < 9; ++leaf)
        root.receive(leaf, join_of(Bootstrap(self_of(leaf, size))));
    REQUIRE(root.state() == Bootstrap::State::link);
    const auto sent = root.take_outgoing(connected);
    REQUIRE(sent.size() == 9);  // records to rank 1 only, and to each child that all have joined
    CHECK(sent[0].to == 1);
    CHECK(sent[0].message == records_message(size, {{0, record_of(0)}}));
    std::vector<std::string> known(size);
    for (const Rank rank : {0, 9}) known[static_cast<std::size_t>(rank)] = record_of(rank);
    CHECK(root.take_records() == known);
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
        liar.receive(r, Bootstrap(self_of(r, 3)).take_outgoing(connected).at(0).message);
    job.ranks[2].receive(0, liar.take_outgoing(connected).at(1).message);
    REQUIRE(job.ranks[2].state() == Bootstrap::State::link);
    REQUIRE(job.ranks[2].worst()[0].max_message_bytes == 1000);
    for (const double never : {-1.0, std::nan("")}) {
        Bootstrap root(self_of(0, 3));
        Bootstrap::Self child = self_of(1, 3);
        child.transports[0].bandwidth_gbs = never;
        root.receive(1, Bootstrap(child).take_outgoing(connected).at(0).message);
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

TEST_CASE("bootstrap: the root knows whether every rank understands heartbeats") {
    constexpr Rank size = 30;
    for (const Rank old : {nobody, Rank{1}, Rank{29}}) {
        INFO("of an older version: rank " << old);
        Job job;
        for (Rank r = 0; r < size; ++r) {
            Bootstrap::Self self = self_of(r, size);
            if (r != old) self.agree.emplace_back(Bootstrap::heartbeat_key, "5000");
            job.ranks.emplace_back(self);
        }
        job.run(7);
        for (const Bootstrap& rank : job.ranks) CHECK(rank.state() != Bootstrap::State::failed);
        CHECK(job.ranks[0].knows_heartbeats() == (old == nobody));
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
    root.receive(3, child.take_outgoing(connected).at(0).message);
    REQUIRE(root.missing() == std::vector<Rank>{1, 2, 4});
}

TEST_CASE("bootstrap: malformed messages fail the job instead of being believed") {
    std::mt19937 random(12345);
    INFO("seed 12345");
    const Bytes good = Bootstrap(self_of(1, 3)).take_outgoing(connected).at(0).message;
    const auto two = with_record(1, 3).take_outgoing(exchanges_records);  // its record; it joins
    for (int i = 0; i < 6000; ++i) {
        const bool records = i % 3 > 0;
        Bootstrap root = records ? with_record(0, 3) : Bootstrap(self_of(0, 3));
        if (i % 3 == 2) root.receive(1, two.at(0).message);
        const Bytes whole = records ? two.at(i % 3 == 1 ? 0 : 1).message : good;
        Bytes bad = whole;
        if (i % 2)
            bad.resize(random() % bad.size());
        else
            bad[random() % bad.size()] ^= static_cast<std::byte>(1 + random() % 255);
        if (bad == whole) continue;
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
    child.take_outgoing(connected);
    child.fail_with({Code::timeout, 2, 0, "it was late"});
    const Bytes good = child.take_outgoing(connected).at(0).message;
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
