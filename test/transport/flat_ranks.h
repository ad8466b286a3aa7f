// Ranks of one flat group as threads, over any transport that has one.
#pragma once

#include <array>
#include <functional>

#include "transport/endpoints.h"

namespace tutti::test {

inline constexpr uint32_t flat_streams = 2;

// n ranks of one group. join happens from the last rank to the first, so that requests wait for the
// leader; size is the size of the job.
class FlatRanks {
public:
    FlatRanks(const JoinedTransport& kind, Rank n) : n_(n) {
        for (Rank r = 0; r < n; ++r)
            endpoints_.push_back(std::make_unique<TestEndpoint>(kind, r, n));
        groups_.resize(static_cast<std::size_t>(n));
        std::vector<std::thread> threads;
        for (Rank r = n - 1; r >= 0; --r) {
            threads.emplace_back([this, r] { groups_[index(r)] = join(r); });
            ::usleep(500);
        }
        for (auto& thread : threads) thread.join();
        for (const auto& group : groups_) REQUIRE(group);
    }

    Rank size() const { return n_; }
    IntrinsicGroup& group(Rank r) { return *groups_[index(r)]; }
    TestEndpoint& endpoint(Rank r) { return *endpoints_[index(r)]; }

    std::unique_ptr<Operation> bind(Rank r, const IntrinsicShape& shape) {
        auto bound = group(r).bind(shape);
        return bound ? std::move(*bound) : nullptr;
    }

    /// Runs body(rank) on a thread per rank; the sum of what they return.
    int each(const std::function<int(Rank)>& body) {
        std::atomic<int> sum{0};
        std::vector<std::thread> threads;
        for (Rank r = 0; r < n_; ++r) threads.emplace_back([&, r] { sum += body(r); });
        for (auto& thread : threads) thread.join();
        return sum;
    }

    std::function<Result<PeerAddress>(Rank)> addresses() const {
        return [this](Rank r) { return endpoints_[index(r)]->address; };
    }

private:
    static std::size_t index(Rank r) { return static_cast<std::size_t>(r); }
    std::unique_ptr<IntrinsicGroup> join(Rank r) {
        auto* provider = endpoints_[index(r)]->transport->intrinsics();
        auto member = provider->join({.comm = 3,
                                      .rank = r,
                                      .size = n_,
                                      .streams = flat_streams,
                                      .members = {},
                                      .find = addresses()},
                                     Deadline::after_ms(patience_ms));
        return member ? std::move(*member) : nullptr;
    }

    Rank n_;
    std::vector<std::unique_ptr<TestEndpoint>> endpoints_;
    std::vector<std::unique_ptr<IntrinsicGroup>> groups_;
};

inline Poll finish(Operation& operation) {
    const auto deadline = Deadline::after_ms(patience_ms);
    for (int turn = 0;; ++turn) {
        const Poll poll = operation.progress();
        if (!poll.pending()) return poll;
        if (turn % 16 == 15) std::this_thread::yield();
        if (turn % 4096 == 0 && deadline.passed()) return Code::timeout;
    }
}

inline Poll run(Operation& operation, const Tag& tag, const void* in, void* out) {
    operation.start(tag, in, out);
    return finish(operation);
}

inline IntrinsicShape allreduce_shape(std::size_t count, Dtype dtype = Dtype::float32,
                                      Op op = Op::sum, uint32_t stream = 0) {
    return {.collective = Collective::allreduce,
            .count = count,
            .reducer = *Reducer::make(dtype, op),
            .stream = stream};
}
inline IntrinsicShape barrier_shape(uint32_t stream = 0) {
    return {.collective = Collective::barrier, .stream = stream};
}

// Small integers: every order of additions gives the same float.
inline float value(uint64_t number, Rank rank, std::size_t i) {
    return static_cast<float>((number * 7 + static_cast<uint64_t>(rank) * 13 + i) % 101);
}

/// The second of three ranks calls something else: all are told, and the next epochs work.
inline void check_mismatch(FlatRanks& ranks) {
    std::vector<std::unique_ptr<Operation>> sums;
    for (Rank r = 0; r < 3; ++r) sums.push_back(ranks.bind(r, allreduce_shape(2)));
    const auto sum_of = [&](Rank me, const Tag& tag) {
        std::array<float, 2> data{1, static_cast<float>(me)};
        const Poll poll = run(*sums[static_cast<std::size_t>(me)], tag, data.data(), data.data());
        return poll == Code::ok && (data[0] != 3 || data[1] != 3) ? Poll(Code::system) : poll;
    };
    Tag other = make_tag(1);
    other.count = 99;
    REQUIRE(ranks.each([&](Rank me) {
        const bool odd = me == 1;
        const Poll poll = sum_of(me, odd ? other : make_tag(1));
        const bool right = poll == Code::mismatch && poll.failure &&
                           poll.failure->error.code == Code::mismatch &&
                           poll.failure->error.rank == (odd ? 0 : 1) &&
                           poll.failure->got == (odd ? make_tag(1) : other);
        sums[static_cast<std::size_t>(me)]->cancel();
        return right ? 0 : 1;
    }) == 0);
    for (uint64_t epoch = 2; epoch < 5; ++epoch) {
        for (Rank r = 0; r < 3; ++r) ranks.group(r).reset();
        REQUIRE(ranks.each([&](Rank me) {
            for (uint64_t number = 1; number < 10; ++number)
                if (sum_of(me, make_tag(number, epoch)) != Code::ok) return 1;
            return 0;
        }) == 0);
    }
}

/// Two ranks come late in turn, and each finds the other asleep.
inline void check_waking(FlatRanks& ranks, uint64_t operations) {
    std::atomic<bool> waiting_named{true};
    REQUIRE(ranks.each([&](Rank me) {
        auto operation = ranks.bind(me, barrier_shape());
        const auto deadline = Deadline::after_ms(patience_ms);
        for (uint64_t number = 1; number <= operations; ++number) {
            if (number % 2 == static_cast<uint64_t>(me)) ::usleep(2000);
            operation->start(make_tag(number), nullptr, nullptr);
            Poll code = operation->progress();
            while (code == Code::in_progress && !deadline.passed()) {
                operation->arm(true);
                code = operation->progress();
                if (code == Code::in_progress) {
                    if (operation->waits_for() != 1 - me) waiting_named = false;
                    ranks.endpoint(me).data.poll(patience_ms);
                }
                operation->arm(false);
                if (code == Code::in_progress) code = operation->progress();
            }
            if (code != Code::ok) return 1;
            if (operation->waits_for() != nobody) return 1;
        }
        return deadline.passed() ? 1 : 0;
    }) == 0);
    REQUIRE(waiting_named);
}

}  // namespace tutti::test
