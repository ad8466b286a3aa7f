// The simulator held against what can be worked out on paper, and the whole catalog through it.
#include "proof/simulate.h"

#include <bit>
#include <cmath>

#include "collectives/catalog.h"
#include "proof/timeline.h"
#include "proof/uniform.h"
#include "proof/verify.h"
#include "support/catch.h"
#include "tools/tutti-sim/experiment.h"

using namespace tutti;
using namespace tutti::sim;

namespace {

Experiment experiment(Collective collective, std::string_view algorithm, Rank ranks,
                      uint64_t bytes) {
    Experiment e;
    e.collective = collective;
    e.algorithm = algorithm;
    e.ranks = ranks;
    e.bytes = bytes;
    e.lanes = 1;
    e.network = uniform(ranks);
    return e;
}

sim::Report report_of(const Experiment& e) {
    auto outcome = sim::run(e);
    INFO(e.algorithm << " of " << e.ranks << ": " << (outcome ? "" : outcome.error().message));
    REQUIRE(outcome);
    return std::move(outcome->report);
}

double time_us(const Experiment& e) {
    return microseconds(report_of(e).time);
}

uint64_t most_bytes(const sim::Report& report) {
    uint64_t most = 0;
    for (const RankTotals& rank : report.ranks) most = std::max(most, rank.bytes_sent);
    return most;
}

uint64_t bytes_over(const sim::Report& report, NetworkLinkKind kind) {
    uint64_t bytes = 0;
    for (const NetworkLink& link : report.links) bytes += link.kind == kind ? link.bytes : 0;
    return bytes;
}

}  // namespace

TEST_CASE("simulate: a ring allreduce takes 2(n-1) hops of 1/n of the bytes, and n-1 sums") {
    for (const Rank n : {2, 3, 8, 64}) {
        const double chunk = 64000;
        const double expected = 2 * (n - 1) * hop_us(chunk) + (n - 1) * chunk * reduce_us_per_byte;
        const auto bytes = static_cast<uint64_t>(chunk) * static_cast<uint64_t>(n);
        INFO(n << " ranks");
        REQUIRE(time_us(experiment(Collective::allreduce, "ring", n, bytes)) ==
                Approx(expected).epsilon(0.001));
    }
}

TEST_CASE("simulate: a binomial broadcast takes log2(n) hops of the whole message") {
    for (const Rank n : {2, 4, 8, 16, 64})
        REQUIRE(time_us(experiment(Collective::broadcast, "binomial", n, 64000)) ==
                Approx(std::bit_width(static_cast<uint32_t>(n) - 1) * hop_us(64000)));
    // Five ranks: the root's own messages follow each other closer than hops do.
    const double five = time_us(experiment(Collective::broadcast, "binomial", 5, 64000));
    REQUIRE(five > 2 * hop_us(64000));
    REQUIRE(five < 3 * hop_us(64000));
}

TEST_CASE("simulate: a barrier's rounds carry no bytes and take log2(n) hops") {
    for (const Rank n : {2, 7, 8, 100}) {
        const auto rounds = std::bit_width(static_cast<uint32_t>(n) - 1);
        const sim::Report r = report_of(experiment(Collective::barrier, "dissemination", n, 0));
        REQUIRE(microseconds(r.time) == Approx(rounds * hop_us(0)));
        REQUIRE(most_bytes(r) == 0);
    }
}

TEST_CASE("simulate: everyone sending to one waits for that one's link") {
    const Rank n = 9;
    const double block = 64000;
    const auto bytes = static_cast<uint64_t>(block) * n;
    const double alone = time_us(experiment(Collective::gather, "direct", 2, 2 * 64000));
    REQUIRE(alone == Approx(hop_us(block)));
    REQUIRE(time_us(experiment(Collective::gather, "direct", n, bytes)) ==
            Approx(hop_us(block) + (n - 2) * block * us_per_byte).epsilon(0.02));
}

TEST_CASE("simulate: bytes per rank are those the algorithms promise") {
    const Rank n = 8;
    const uint64_t m = 8 * 64000;
    const auto sends = [&](Collective c, std::string_view name) {
        return most_bytes(report_of(experiment(c, name, n, m)));
    };
    for (const auto* name : {"ring", "rabenseifner", "circulant", "direct"})
        REQUIRE(sends(Collective::allreduce, name) == 2 * (n - 1) * m / n);
    REQUIRE(sends(Collective::allreduce, "recursive_doubling") == 3 * m);
    REQUIRE(sends(Collective::broadcast, "binomial") == 3 * m);
    REQUIRE(sends(Collective::broadcast, "chain") == m);
    REQUIRE(sends(Collective::reduce, "chain") == m);
    for (const auto* name : {"ring", "bruck", "direct"})
        REQUIRE(sends(Collective::allgather, name) == (n - 1) * m / n);
    for (const auto* name : {"ring", "direct", "circulant"})
        REQUIRE(sends(Collective::reduce_scatter, name) == (n - 1) * m / n);
    REQUIRE(sends(Collective::alltoall, "pairwise") == (n - 1) * m / n);
    REQUIRE(sends(Collective::alltoall, "bruck") == 3 * m / 2);
}

TEST_CASE("simulate: 16-bit floats travel as fp32 while they are partial sums") {
    Experiment e = experiment(Collective::allreduce, "ring", 4, 4 * 64000);
    e.dtype = Dtype::bfloat16;
    // One raw chunk, two partial ones, three finished ones.
    REQUIRE(most_bytes(report_of(e)) == (1 + 2 * 2 + 3) * 64000);
}

TEST_CASE("simulate: every algorithm runs for every rank count, and no byte is lost") {
    for (const Algorithm& a : algorithms())
        for (const Rank n : {1, 2, 3, 8, 17})
            for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000}, uint64_t{3000000}}) {
                Experiment e = experiment(a.collective, a.name, n, bytes);
                e.lanes = n % 2 == 0 ? 2 : 1;
                e.root = n / 2;
                e.network.hosts = (n + 1) / 2;
                e.network.switches = (n + 3) / 4;
                const HostShape hosts = hosts_of(e).shape();
                if (a.unsupported && !a.unsupported(n, hosts).empty()) continue;
                const sim::Report r = report_of(e);
                INFO(collective_name(a.collective) << ' ' << a.name << ' ' << n << ' ' << bytes);
                uint64_t sent = 0, received = 0, messages = 0, arrived = 0;
                for (const RankTotals& rank : r.ranks) {
                    sent += rank.bytes_sent;
                    received += rank.bytes_received;
                    messages += rank.messages_sent;
                    arrived += rank.messages_received;
                    REQUIRE(rank.busy <= r.time);
                }
                REQUIRE(sent == received);
                REQUIRE(messages == arrived);
                REQUIRE((messages > 0) == (n > 1));
                const uint64_t in_memory = bytes_over(r, NetworkLinkKind::memory);
                REQUIRE(sent == in_memory + bytes_over(r, NetworkLinkKind::out));
                REQUIRE(sent == in_memory + bytes_over(r, NetworkLinkKind::in));
                REQUIRE(bytes_over(r, NetworkLinkKind::up) == bytes_over(r, NetworkLinkKind::down));
                for (const NetworkLink& link : r.links) REQUIRE(link.busy <= r.time);
            }
}

TEST_CASE("simulate: sends as many messages a tile as the verifier counts") {
    for (const Algorithm& a : algorithms())
        for (const Rank n : {4, 5, 8}) {
            VerifyRequest request;
            request.collective = a.collective;
            request.ranks = n;
            Experiment e = experiment(a.collective, a.name, n, 1000);
            e.network.hosts = (n + 1) / 2;
            const Hosts hosts = hosts_of(e);
            request.hosts = &hosts;
            const sim::Report r = report_of(e);
            uint64_t messages = 0;
            for (const RankTotals& rank : r.ranks) messages += rank.messages_sent;
            INFO(collective_name(a.collective) << ' ' << a.name << ' ' << n);
            REQUIRE(messages == verify(request, a.make, 1).messages);
        }
}

TEST_CASE("simulate: oversubscription slows only what crosses between switches") {
    Experiment e = experiment(Collective::alltoall, "pairwise", 8, 8 * 64000);
    e.network.switches = 2;
    const double balanced = time_us(e);
    e.network.oversubscription = 4;
    // Four hosts send four blocks each across, over a link of four hosts ÷ 4.
    REQUIRE(time_us(e) > 16 * 64000 * us_per_byte);
    REQUIRE(time_us(e) > 1.5 * balanced);
    e.network.switches = 1;  // nothing crosses
    const double beside = time_us(e);
    e.network.oversubscription = 1;
    REQUIRE(time_us(e) == beside);
    // A ring has one neighbour across: 1 GB/s fits a link of 4 hosts ÷ 4, not of 4 hosts ÷ 8.
    Experiment ring = experiment(Collective::allreduce, "ring", 8, 8 * 64000);
    const double alone = time_us(ring);
    ring.network.switches = 2;
    ring.network.oversubscription = 4;
    REQUIRE(time_us(ring) == Approx(alone));
    ring.network.oversubscription = 8;
    REQUIRE(time_us(ring) > 1.5 * alone);
}

TEST_CASE("simulate: ranks of one host leave its link alone") {
    Experiment e = experiment(Collective::allreduce, "ring", 8, 8 * 64000);
    e.network.hosts = 1;
    const sim::Report r = report_of(e);
    REQUIRE(bytes_over(r, NetworkLinkKind::out) == 0);
    REQUIRE(r.busiest_link().name() == "host 0 memory");
    REQUIRE(bytes_over(r, NetworkLinkKind::memory) == 8 * 14 * 64000);
}

TEST_CASE("simulate: a chain's tiles travel behind each other") {
    Experiment e = experiment(Collective::broadcast, "chain", 8, 16 << 20);
    const double bytes_us = static_cast<double>(e.bytes) * us_per_byte;
    const double time = time_us(e);
    REQUIRE(time > bytes_us);
    REQUIRE(time < 1.2 * bytes_us);
}

TEST_CASE("simulate: the same request has the same result, recorded or not") {
    Experiment e = experiment(Collective::alltoall, "pairwise", 17, 17 * 100000);
    e.lanes = 2;
    e.network.hosts = 5;
    e.network.switches = 2;
    e.network.oversubscription = 3;
    const sim::Report first = report_of(e);
    e.record = true;
    const sim::Report second = report_of(e), third = report_of(e);
    REQUIRE(first.time == second.time);
    REQUIRE(first.flights.empty());
    for (std::size_t i = 0; i < first.links.size(); ++i)
        REQUIRE(first.links[i].busy == second.links[i].busy);
    const std::string picture = draw_timeline(second, "a < b & c");
    REQUIRE(picture == draw_timeline(third, "a < b & c"));
    REQUIRE(picture.find("a &lt; b &amp; c") != std::string::npos);
}

TEST_CASE("simulate: records every message once, from its sender's step to its arrival") {
    Experiment e = experiment(Collective::allreduce, "ring", 4, 4 * 64000);
    e.record = true;
    const sim::Report r = report_of(e);
    REQUIRE(r.flights.size() == 4 * 6);
    for (const Flight& f : r.flights) {
        REQUIRE(f.to == (f.from + 1) % 4);
        REQUIRE(f.bytes == 64000);
        REQUIRE(microseconds(f.arrived - f.sent) == Approx(latency_us + 64000 * us_per_byte));
    }
}

TEST_CASE("simulate: the algorithm asked for, or the one the library would take") {
    const auto chosen = [](uint64_t bytes, std::string_view wanted) {
        const auto outcome = sim::run(experiment(Collective::allreduce, wanted, 8, bytes));
        return outcome ? std::string(outcome->choice.name) : error_text(outcome.error());
    };
    REQUIRE(chosen(1024, "direct") == "direct");
    REQUIRE(chosen(1024, "none").find("use one of ring, ") != std::string::npos);
    // The cost model knows this network: what it takes is nearly the best that there is.
    for (const uint64_t bytes : {1024ul, 32768ul, 1ul << 20, 16ul << 20}) {
        const auto time = [&](std::string_view name) {
            const auto outcome = sim::run(experiment(Collective::allreduce, name, 8, bytes));
            return outcome ? microseconds(outcome->report.time) : HUGE_VAL;
        };
        double best = HUGE_VAL;
        for (const Algorithm& a : algorithms())
            if (a.collective == Collective::allreduce) best = std::min(best, time(a.name));
        INFO(bytes << " bytes: " << chosen(bytes, ""));
        REQUIRE(time("") <= 1.25 * best);
    }
}
