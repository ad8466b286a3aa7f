// The messages of joining, from neighbours in the tree that may send anything in any order.
#include <string>
#include <utility>

#include "control/bootstrap.h"
#include "control/tree.h"
#include "fuzz/catalog.h"

namespace tutti::fuzz {
namespace {

constexpr Rank ranks = 20;  // rank 1 has a parent and children
// Beside the rank: it exchanges records; its parent does.
constexpr uint8_t with_records = 0x80, parent_with_records = 0x40;

Bootstrap::Self self_of(Rank rank, bool record) {
    return {.rank = rank,
            .size = ranks,
            .host_id = "host",
            .machine_id = rank % 2 ? "one" : "two",
            .cores = {0x3, 0x1},
            .agree = {{"TUTTI_RINGS", "8"}},
            .transports = {{.max_message_bytes = 4096, .latency_us = 1, .bandwidth_gbs = 2}},
            .record = record ? "addresses of rank " + std::to_string(rank) : ""};
}

Bootstrap::Parent parent_of(bool records) {
    return records ? Bootstrap::Parent::exchanges_records : Bootstrap::Parent::connected;
}

// Reports this rank's links as made, as soon as the bootstrap waits for them.
void settle(Bootstrap& one) {
    if (one.state() == Bootstrap::State::link) one.linked(true);
}

void check(const Bootstrap& one) {
    const bool failed = one.state() == Bootstrap::State::failed;
    const Error& error = one.error();
    require(!failed || error.code != Code::ok, "it failed, and the error is none");
    require(!failed || (error.rank >= nobody && error.rank < ranks), "a rank that is none failed");
    require(one.crowding() >= 0, "cores are counted wrongly");
}

}  // namespace

// The rank, and who exchanges records; then messages: sender, length (2), bytes.
void run_bootstrap(ByteView input) {
    Input in(input);
    const auto first = in.get<uint8_t>();
    Bootstrap one(self_of((first & 0x3f) % ranks, (first & with_records) != 0));
    const auto parent = parent_of((first & parent_with_records) != 0);
    const auto send = [&] {
        for (const auto& out : one.take_outgoing(parent))
            require(out.to >= 0 && out.to < ranks && out.message.size() < 64 * 1024,
                    "a message to nobody, or too long for the tree");
    };
    send();
    while (!in.empty()) {
        const Rank from = in.get<uint8_t>() % ranks;
        one.receive(from, in.take(in.get<uint16_t>()));
        settle(one);
        check(one);
        send();
    }
}

namespace {

Bytes framed(Rank from, const Bytes& message) {
    return joined({ByteWriter()
                       .put(static_cast<uint8_t>(from))
                       .put(static_cast<uint16_t>(message.size()))
                       .take(),
                   message});
}

// A whole start of a job, as ranks 0, 1 and the last hear it.
std::vector<Bytes> start_of_job(bool records) {
    std::vector<Bootstrap> job;
    std::vector<std::vector<Bytes>> heard(ranks);
    for (Rank rank = 0; rank < ranks; ++rank) {
        job.emplace_back(self_of(rank, records));
        const auto first =
            static_cast<uint8_t>(rank | (records ? with_records | parent_with_records : 0));
        heard[static_cast<std::size_t>(rank)] = {Bytes(1, static_cast<std::byte>(first))};
    }
    for (bool moved = true; std::exchange(moved, false);)
        for (Rank from = 0; from < ranks; ++from) {
            Bootstrap& sender = job[static_cast<std::size_t>(from)];
            settle(sender);
            for (const auto& out : sender.take_outgoing(parent_of(records))) {
                moved = true;
                const auto to = static_cast<std::size_t>(out.to);
                heard[to].push_back(framed(from, out.message));
                job[to].receive(from, out.message);
            }
        }
    for (const Bootstrap& one : job)
        require(one.state() == Bootstrap::State::done, "the seeds' job has not started");
    return {joined(heard[0]), joined(heard[1]), joined(heard[ranks - 1])};
}

}  // namespace

// Starts without and with records, and a failure.
std::vector<Bytes> seeds_bootstrap() {
    std::vector<Bytes> seeds = start_of_job(false);
    Bootstrap failing(self_of(0, false));
    failing.fail_with({Code::timeout, 3, 0, "rank 3 did not come"});
    seeds.push_back(joined({Bytes(1, std::byte{1}),
                            framed(0, failing.take_outgoing(parent_of(false)).front().message)}));
    for (Bytes& seed : start_of_job(true)) seeds.push_back(std::move(seed));
    return seeds;
}

}  // namespace tutti::fuzz
