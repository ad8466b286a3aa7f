#include "operations.h"

#include <array>
#include <chrono>
#include <thread>

namespace recovery_test {
namespace {

using Values = std::vector<uint32_t>;

std::size_t draw(Random& random, std::size_t from, std::size_t to) {
    return from + static_cast<std::size_t>(random() % (to - from + 1));
}

/// Element i of the input of a rank; wraps around.
uint32_t value(int name, std::size_t i, uint32_t serial) {
    return static_cast<uint32_t>(name) * 1'000'003u + static_cast<uint32_t>(i) * 31u +
           serial * 101u;
}

Values values_of(int name, std::size_t count, uint32_t serial) {
    Values values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value(name, i, serial);
    return values;
}

void check_sum(const Ranks& ranks, const Values& got, uint32_t serial) {
    uint32_t of_names = 0;
    for (const int name : ranks.names) of_names += value(name, 0, 0);
    const auto terms = static_cast<uint32_t>(ranks.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i] != of_names + terms * value(0, i, serial))
            throw WrongResult("element " + std::to_string(i) + " of a sum of " +
                              std::to_string(got.size()) + " elements over " +
                              std::to_string(ranks.size()) + " ranks");
}

tutti_status sum(const Ranks& ranks, std::size_t count, uint32_t serial) {
    Values x = values_of(ranks.name(), count, serial);
    const tutti_status status =
        tutti_allreduce(ranks.comm, x.data(), x.data(), count, TUTTI_UINT32, TUTTI_SUM);
    if (status == TUTTI_OK) check_sum(ranks, x, serial);
    return status;
}

Outcome idle(const Ranks& ranks, Random& random) {
    std::this_thread::sleep_for(std::chrono::microseconds(draw(random, 0, 4000)));
    return {ranks, tutti_barrier(ranks.comm)};
}

Outcome small(const Ranks& ranks, Random& random) {
    tutti_status status = TUTTI_OK;
    for (uint32_t i = 0; i < 10 && status == TUTTI_OK; ++i)
        status = sum(ranks, draw(random, 1, 200), i);
    return {ranks, status};
}

Outcome large(const Ranks& ranks, Random& random) {
    return {ranks, sum(ranks, draw(random, 100'000, 1'000'000), static_cast<uint32_t>(random()))};
}

/// The last failure, which is tutti_last_error's; all requests are over afterwards.
template <std::size_t N>
tutti_status wait_for_all(std::array<tutti_request*, N>& requests, tutti_status status) {
    for (tutti_request*& request : requests) {
        const tutti_status own = request ? tutti_wait(&request, -1) : TUTTI_OK;
        if (own != TUTTI_OK) status = own;
    }
    return status;
}

Outcome several(const Ranks& ranks, Random& random) {
    std::array<Values, 4> x;
    std::array<tutti_request*, 4> requests{};
    tutti_status status = TUTTI_OK;
    for (uint32_t i = 0; i < x.size() && status == TUTTI_OK; ++i) {
        x[i] = values_of(ranks.name(), draw(random, 1, 50'000), i);
        status = tutti_iallreduce(ranks.comm, x[i].data(), x[i].data(), x[i].size(), TUTTI_UINT32,
                                  TUTTI_SUM, nullptr, &requests[i]);
    }
    status = wait_for_all(requests, status);
    for (uint32_t i = 0; i < x.size() && status == TUTTI_OK; ++i) check_sum(ranks, x[i], i);
    return {ranks, status};
}

/// Each rank sends to the next one.
Outcome messages(const Ranks& ranks, Random& random) {
    const std::size_t count = draw(random, 0, 1) ? draw(random, 1, 100) : draw(random, 1, 100'000);
    const int next = (ranks.rank + 1) % ranks.size();
    const int previous = (ranks.rank + ranks.size() - 1) % ranks.size();
    const Values sent = values_of(ranks.name(), count, 7);
    Values got(count);
    std::array<tutti_request*, 2> requests{};
    tutti_status status = tutti_irecv(ranks.comm, got.data(), count, TUTTI_UINT32, previous, 1,
                                      nullptr, nullptr, &requests[0]);
    if (status == TUTTI_OK)
        status = tutti_isend(ranks.comm, sent.data(), count, TUTTI_UINT32, next, 1, nullptr,
                             &requests[1]);
    status = wait_for_all(requests, status);
    if (status == TUTTI_OK &&
        got != values_of(ranks.names[static_cast<std::size_t>(previous)], count, 7))
        throw WrongResult("a message from the rank before");
    return {ranks, status};
}

/// A sum over the part, which is destroyed.
Outcome use_and_destroy(const Ranks& part) {
    const Outcome outcome(part, sum(part, 1000, 3));
    if (tutti_comm_destroy(part.comm) != TUTTI_OK)
        throw WrongResult(std::string("tutti_comm_destroy: ") + tutti_last_error());
    return outcome;
}

Outcome split(const Ranks& ranks, Random&) {
    Ranks part;
    const tutti_status status =
        tutti_comm_split(ranks.comm, ranks.rank % 2, ranks.rank, &part.comm);
    if (status != TUTTI_OK) return {ranks, status};
    part.rank = ranks.rank / 2;
    for (std::size_t i = static_cast<std::size_t>(ranks.rank) % 2; i < ranks.names.size(); i += 2)
        part.names.push_back(ranks.names[i]);
    Outcome outcome = use_and_destroy(part);
    // If a rank outside of the part is lost, the part ends because of the member that learns it.
    outcome.may_blame_the_living = true;
    return outcome;
}

Outcome dup(const Ranks& ranks, Random&) {
    Ranks copy = ranks;
    const tutti_status status = tutti_comm_dup(ranks.comm, &copy.comm);
    return status == TUTTI_OK ? use_and_destroy(copy) : Outcome(ranks, status);
}

Outcome plan(const Ranks& ranks, Random& random) {
    const std::size_t count = draw(random, 1, 20'000);
    tutti_plan* bound = nullptr;
    tutti_status status =
        tutti_plan_allreduce(ranks.comm, count, TUTTI_UINT32, TUTTI_SUM, nullptr, &bound);
    for (uint32_t i = 0; i < 5 && status == TUTTI_OK; ++i) {
        Values x = values_of(ranks.name(), count, i);
        status = tutti_plan_run(bound, x.data(), x.data());
        if (status == TUTTI_OK) check_sum(ranks, x, i);
    }
    const Outcome outcome(ranks, status);
    tutti_plan_destroy(bound);
    return outcome;
}

constexpr Operation all[] = {
    {"idle", idle},         {"small", small}, {"large", large}, {"several", several},
    {"messages", messages}, {"split", split}, {"dup", dup},     {"plan", plan},
};

}  // namespace

std::span<const Operation> operations() {
    return all;
}

Outcome check_members(const Ranks& ranks) {
    const int own = ranks.name();
    std::vector<int> names(ranks.names.size(), -1);
    const tutti_status status = tutti_allgather(ranks.comm, &own, names.data(), 1, TUTTI_INT32);
    if (status != TUTTI_OK) return {ranks, status};
    if (names != ranks.names) throw WrongResult("the ranks are others than those that remained");
    return {ranks, sum(ranks, 5000, 11)};
}

}  // namespace recovery_test
