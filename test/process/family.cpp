// The whole family through the C API, against the plain definition of each collective.
// usage: tutti-run -n N family CASE
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

long cases = 0;
using Data = std::vector<int32_t>;
constexpr int32_t untouched = -5;

/// Element i of the block that goes from one rank to another.
int32_t value(int source, int destination, std::size_t i) {
    return source * 1'000'003 + destination * 10'007 + static_cast<int32_t>(i % 1'000'000);
}
Data block(int source, int destination, std::size_t count) {
    Data data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = value(source, destination, i);
    return data;
}
Data sum(int first, int last, int destination, std::size_t count) {
    Data data(count);
    for (int r = first; r < last; ++r)
        for (std::size_t i = 0; i < count; ++i) data[i] += value(r, destination, i);
    return data;
}

/// The lengths of one call's blocks, by source and destination; the same function on every rank.
using Length = std::function<std::size_t(int source, int destination)>;

struct Row {
    Data data;
    std::vector<std::size_t> counts, displacements;
    void add(const Data& part) {
        counts.push_back(part.size());
        displacements.push_back(data.size());
        data.insert(data.end(), part.begin(), part.end());
    }
    int32_t* own() { return data.data() + displacements[static_cast<std::size_t>(rank_of)]; }
};
Row outgoing(const Length& length) {
    Row row;
    for (int r = 0; r < ranks; ++r) row.add(block(rank_of, r, length(rank_of, r)));
    return row;
}
Row incoming(const Length& length, bool of_destination) {
    Row row;
    for (int r = 0; r < ranks; ++r)
        row.add(block(r, of_destination ? rank_of : 0, length(r, rank_of)));
    return row;
}

void expect(const Data& got, const Data& want, const std::string& what) {
    ++cases;
    for (std::size_t i = 0; i < want.size(); ++i)
        if (got[i] != want[i])
            give_up(what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) +
                    ", not " + std::to_string(want[i]));
}
Data room(std::size_t count) {
    return Data(count + 1, untouched);
}
void expect_no_overrun(const Data& data, const std::string& what) {
    if (data.back() != untouched) give_up(what + ": wrote past the end");
}

void whole(tutti_comm* comm, std::size_t n) {
    const std::string at = " of " + std::to_string(n);
    const Data mine = block(rank_of, 0, n), all = sum(0, ranks, 0, n);
    for (int root = 0; root < ranks; ++root) {
        Data out = room(n);
        need(tutti_reduce(comm, mine.data(), rank_of == root ? out.data() : nullptr, n, TUTTI_INT32,
                          TUTTI_SUM, root),
             "reduce" + at);
        if (rank_of == root) expect(out, all, "reduce" + at);
        expect_no_overrun(out, "reduce" + at);
        out = mine;
        need(tutti_reduce(comm, out.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM, root),
             "reduce in place" + at);
        expect(out, rank_of == root ? all : mine, "reduce in place" + at);
    }
    Data out = room(n);
    need(tutti_scan(comm, mine.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM), "scan" + at);
    expect(out, sum(0, rank_of + 1, 0, n), "scan" + at);
    out = mine;
    need(tutti_scan(comm, out.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM), "scan" + at);
    expect(out, sum(0, rank_of + 1, 0, n), "scan in place" + at);
    out = room(n);
    need(tutti_exscan(comm, mine.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM), "exscan" + at);
    expect(out, rank_of == 0 ? Data(n, untouched) : sum(0, rank_of, 0, n), "exscan" + at);
    out = mine;
    need(tutti_exscan(comm, out.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM), "exscan" + at);
    expect(out, rank_of == 0 ? mine : sum(0, rank_of, 0, n), "exscan in place" + at);
}

void blocks(tutti_comm* comm, std::size_t n) {
    const std::string at = " of " + std::to_string(n);
    const Length even = [n](int, int) { return n; };
    const auto row = n * static_cast<std::size_t>(ranks);
    const Data mine = block(rank_of, 0, n);
    const Data gathered = incoming(even, false).data;
    Data out = room(row);
    need(tutti_allgather(comm, mine.data(), out.data(), n, TUTTI_INT32), "allgather" + at);
    expect(out, gathered, "allgather" + at);
    expect_no_overrun(out, "allgather" + at);
    out.assign(row + 1, untouched);
    int32_t* own = out.data() + n * static_cast<std::size_t>(rank_of);
    std::copy(mine.begin(), mine.end(), own);
    need(tutti_allgather(comm, own, out.data(), n, TUTTI_INT32), "allgather in place" + at);
    expect(out, gathered, "allgather in place" + at);

    Row give = outgoing(even);
    const Data reduced = sum(0, ranks, rank_of, n);
    out = room(n);
    need(tutti_reduce_scatter(comm, give.data.data(), out.data(), n, TUTTI_INT32, TUTTI_SUM),
         "reduce_scatter" + at);
    expect(out, reduced, "reduce_scatter" + at);
    need(tutti_reduce_scatter(comm, give.data.data(), give.own(), n, TUTTI_INT32, TUTTI_SUM),
         "reduce_scatter in place" + at);
    expect(Data(give.own(), give.own() + n), reduced, "reduce_scatter in place" + at);

    give = outgoing(even);
    const Data exchanged = incoming(even, true).data;
    out = room(row);
    need(tutti_alltoall(comm, give.data.data(), out.data(), n, TUTTI_INT32), "alltoall" + at);
    expect(out, exchanged, "alltoall" + at);
    expect_no_overrun(out, "alltoall" + at);
    need(tutti_alltoall(comm, give.data.data(), give.data.data(), n, TUTTI_INT32),
         "alltoall in place" + at);
    expect(give.data, exchanged, "alltoall in place" + at);

    for (int root = 0; root < ranks; ++root) {
        const bool is_root = rank_of == root;
        out = room(is_root ? row : 0);
        need(tutti_gather(comm, mine.data(), is_root ? out.data() : nullptr, n, TUTTI_INT32, root),
             "gather" + at);
        if (is_root) expect(out, gathered, "gather" + at);
        give = outgoing(even);
        out = room(n);
        need(tutti_scatter(comm, is_root ? give.data.data() : nullptr, out.data(), n, TUTTI_INT32,
                           root),
             "scatter" + at);
        expect(out, block(root, rank_of, n), "scatter" + at);
        expect_no_overrun(out, "scatter" + at);
    }
}

void even(tutti_comm* comm) {
    for (std::size_t n : {0ul, 1ul, 5ul, 1000ul, 50'001ul}) {
        whole(comm, n);
        blocks(comm, n);
    }
}

void uneven_with(tutti_comm* comm, std::size_t unit, const std::string& at) {
    const Length by_source = [unit](int s, int) { return unit * static_cast<std::size_t>(s % 3); };
    const Length by_pair = [unit](int s, int d) {
        return unit * static_cast<std::size_t>((s * 2 + d) % 4) / 2;
    };
    const Length by_destination = [&](int, int d) { return by_source(d, 0); };
    const std::size_t own = by_source(rank_of, 0);
    const Data mine = block(rank_of, 0, own);
    Row all;
    for (int r = 0; r < ranks; ++r) all.add(block(r, 0, by_source(r, 0)));
    Data out = room(all.data.size());
    need(tutti_allgatherv(comm, mine.data(), out.data(), all.counts.data(), nullptr, TUTTI_INT32),
         "allgatherv" + at);
    expect(out, all.data, "allgatherv" + at);
    expect_no_overrun(out, "allgatherv" + at);

    Row give = outgoing(by_destination);
    out = room(own);
    need(tutti_reduce_scatterv(comm, give.data.data(), out.data(), give.counts.data(), TUTTI_INT32,
                               TUTTI_SUM),
         "reduce_scatterv" + at);
    expect(out, sum(0, ranks, rank_of, own), "reduce_scatterv" + at);

    for (int root = 0; root < ranks; ++root) {
        const bool is_root = rank_of == root;
        // Blocks in the opposite order, to show that displacements are obeyed.
        Row want;
        std::vector<std::size_t> places(static_cast<std::size_t>(ranks));
        for (int r = ranks - 1; r >= 0; --r) {
            places[static_cast<std::size_t>(r)] = want.data.size();
            want.add(block(r, 0, by_source(r, 0)));
        }
        out = room(is_root ? want.data.size() : 0);
        need(
            tutti_gatherv(comm, mine.data(), own, out.data(), is_root ? all.counts.data() : nullptr,
                          is_root ? places.data() : nullptr, TUTTI_INT32, root),
            "gatherv" + at);
        if (is_root) expect(out, want.data, "gatherv" + at);
        give = outgoing(by_destination);
        out = room(own);
        need(tutti_scatterv(comm, is_root ? give.data.data() : nullptr,
                            is_root ? give.counts.data() : nullptr, nullptr, out.data(), own,
                            TUTTI_INT32, root),
             "scatterv" + at);
        expect(out, block(root, rank_of, own), "scatterv" + at);
    }
    give = outgoing(by_pair);
    const Row take = incoming(by_pair, true);
    out = room(take.data.size());
    need(tutti_alltoallv(comm, give.data.data(), give.counts.data(), give.displacements.data(),
                         out.data(), take.counts.data(), nullptr, TUTTI_INT32),
         "alltoallv" + at);
    expect(out, take.data, "alltoallv" + at);
    expect_no_overrun(out, "alltoallv" + at);
}

void uneven(tutti_comm* comm) {
    for (std::size_t unit : {0ul, 1ul, 2ul, 100ul, 70'000ul})
        uneven_with(comm, unit, " of units of " + std::to_string(unit));
}

// Requests and plans of collectives that have blocks.
void forms(tutti_comm* comm) {
    constexpr std::size_t n = 3000;
    const Length even_length = [](int, int) { return n; };
    const Row give = outgoing(even_length);
    const Data want = incoming(even_length, true).data, reduced = sum(0, ranks, rank_of, n);
    Data a = room(want.size()), b = room(n);
    tutti_request *first = nullptr, *second = nullptr;
    need(tutti_ialltoall(comm, give.data.data(), a.data(), n, TUTTI_INT32, nullptr, &first),
         "ialltoall");
    need(tutti_ireduce_scatter(comm, give.data.data(), b.data(), n, TUTTI_INT32, TUTTI_SUM, nullptr,
                               &second),
         "ireduce_scatter");
    need(tutti_wait(&second, -1), "wait");
    need(tutti_wait(&first, -1), "wait");
    expect(a, want, "ialltoall");
    expect(b, reduced, "ireduce_scatter");

    tutti_plan* plan = nullptr;
    need(tutti_plan_alltoall(comm, n, TUTTI_INT32, nullptr, &plan), "plan_alltoall");
    for (int round = 0; round < 3; ++round) {
        a = room(want.size());
        need(tutti_plan_run(plan, give.data.data(), a.data()), "run");
        expect(a, want, "a planned alltoall");
        Data in_place = give.data;
        need(tutti_plan_run(plan, in_place.data(), in_place.data()), "run in place");
        expect(in_place, want, "a planned alltoall in place");
    }
    tutti_plan_destroy(plan);

    Row lengths;
    for (int r = 0; r < ranks; ++r) lengths.add(block(r, 0, static_cast<std::size_t>(r) * 10));
    std::vector<std::size_t> counts = lengths.counts;
    need(tutti_plan_allgatherv(comm, counts.data(), nullptr, TUTTI_INT32, nullptr, &plan),
         "plan_allgatherv");
    counts.assign(counts.size(), 999);  // the plan has its own
    const Data mine = block(rank_of, 0, static_cast<std::size_t>(rank_of) * 10);
    a = room(lengths.data.size());
    need(tutti_plan_run(plan, mine.data(), a.data()), "run");
    expect(a, lengths.data, "a planned allgatherv");
    tutti_plan_destroy(plan);
}

// Checks the errors of ranks that disagree, or ask for the impossible.
void wrong(tutti_comm* comm) {
    const std::size_t n = 100;
    Data data(n * static_cast<std::size_t>(ranks) + 10, rank_of);
    expect_error(tutti_allreduce(comm, data.data(), data.data() + 1, n, TUTTI_INT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "overlap, 4 bytes apart, and are not in place");
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), SIZE_MAX / 4);
    expect_error(tutti_allgatherv(comm, data.data(), &counts, counts.data(), nullptr, TUTTI_INT32),
                 TUTTI_ERR_INVALID, "more bytes than memory can hold");
    expect_error(tutti_allgatherv(comm, data.data(), data.data(), nullptr, nullptr, TUTTI_INT32),
                 TUTTI_ERR_INVALID, "the list of counts is NULL");
    expect_error(tutti_gather(comm, data.data(), data.data(), n, TUTTI_INT32, ranks),
                 TUTTI_ERR_INVALID, "root " + std::to_string(ranks) + " is out of range");
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request* request = nullptr;
    Data out(data.size());
    // Nothing is nowhere, wherever its pointer shows to.
    counts.assign(counts.size(), 0);
    counts[0] = n;
    need(tutti_reduce_scatterv(comm, data.data(), rank_of == 0 ? out.data() : data.data() + 1,
                               counts.data(), TUTTI_INT32, TUTTI_SUM),
         "a reduce_scatterv's empty output inside its input");
    opts.algorithm = "magic";
    expect_error(tutti_ialltoall(comm, data.data(), out.data(), n, TUTTI_INT32, &opts, &request),
                 TUTTI_ERR_UNSUPPORTED, "pairwise");
    if (ranks == 1) return;
    std::vector<std::size_t> there(counts.size()), back(counts.size());
    std::iota(there.begin(), there.end(), 0);
    std::reverse_copy(there.begin(), there.end(), back.begin());
    counts.assign(counts.size(), 1);
    expect_error(tutti_alltoallv(comm, data.data(), counts.data(), there.data(), data.data(),
                                 counts.data(), back.data(), TUTTI_INT32),
                 TUTTI_ERR_INVALID,
                 "the same buffer, but the block for rank 0 has 1 elements at 0");
    opts.algorithm = "bruck";
    counts.assign(counts.size(), 1);
    expect_error(tutti_ialltoallv(comm, data.data(), counts.data(), nullptr, out.data(),
                                  counts.data(), nullptr, TUTTI_INT32, &opts, &request),
                 TUTTI_ERR_UNSUPPORTED,
                 "do not know their lengths. What to do: use one of pairwise");
    // No rank may learn of the mismatch below while its refused calls above are still going on.
    need(tutti_barrier(comm), "barrier");
    // Rank 0 thinks that its block for rank 1 is longer than rank 1 does.
    std::vector<std::size_t> sends = counts;
    if (rank_of == 0) sends[1] = 2;
    const tutti_status status = tutti_alltoallv(comm, data.data(), sends.data(), nullptr,
                                                out.data(), counts.data(), nullptr, TUTTI_INT32);
    if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH) give_up("expected a mismatch");
    tutti_status later = status;
    for (int i = 0; i < 3 && later == TUTTI_OK; ++i) later = tutti_barrier(comm);
    expect_error(later, TUTTI_ERR_MISMATCH, "count 2");
    whole(comm, 10);
    // Different lists of the same total.
    counts[0] = rank_of == 0 ? 2 : 1;
    counts[1] = rank_of == 0 ? 0 : 1;
    later = tutti_allgatherv(comm, data.data(), out.data(), counts.data(), nullptr, TUTTI_INT32);
    for (int i = 0; i < 3 && later == TUTTI_OK; ++i) later = tutti_barrier(comm);
    expect_error(later, TUTTI_ERR_MISMATCH, "allgatherv");
    whole(comm, 10);
}

}  // namespace

int main(int argc, char** argv) {
    const int code = run_case(
        argc, argv, {{"even", even}, {"uneven", uneven}, {"forms", forms}, {"wrong", wrong}});
    if (code == 0 && rank_of == 0) std::printf("family: %s, %ld cases right\n", argv[1], cases);
    return code;
}
