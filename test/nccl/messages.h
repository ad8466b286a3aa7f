// Messages on device memory, as both ways of them are tested.
#pragma once

#include <atomic>
#include <chrono>

#include "nccl/job.h"

namespace gpu_test {

inline OffloadMessage send_of(const OnDevice& data, std::size_t floats, Rank to, int32_t tag = 0) {
    return {true, to, data.get(), floats * sizeof(float), tag, Dtype::float32, nullptr};
}
inline OffloadMessage receive_of(const OnDevice& data, std::size_t floats, Rank from,
                                 int32_t tag = 0, Received* into = nullptr) {
    return {false, from, data.get(), floats * sizeof(float), tag, Dtype::float32, into};
}

inline void join(Ranked& r) {
    r.works(r.comm->offload().use(r.rank), "joining");
}

inline Result<> both_ways(Ranked& r, const std::vector<OffloadMessage>& messages,
                          int64_t timeout_ms = -1, void* stream = nullptr) {
    return r.finish(r.comm->offload().start(messages, timeout_ms, stream));
}

inline void ring(Ranked& r, std::size_t floats) {
    const Rank next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
    const OnDevice mine(r.rank, values_of(r.rank, floats)),
        theirs(r.rank, std::vector<float>(floats));
    Received got;
    r.works(
        both_ways(r, {send_of(mine, floats, next, 7), receive_of(theirs, floats, before, 7, &got)}),
        "ring");
    r.holds(theirs.floats() == values_of(before, floats), "the ring's values");
    r.holds(got.source == before && got.tag == 7 && got.count == floats, "the ring's status");
}

/// Each rank sends each rank, itself too, a message of a length of its own, some of them nothing,
/// in one group; receives are called in another order than sends.
inline void all_pairs(Ranked& r, int round) {
    const auto length = [round](Rank from, Rank to) {
        return static_cast<std::size_t>((from * 5 + to * 3 + round) % 7) * 4'001;
    };
    std::vector<std::unique_ptr<OnDevice>> sent, got;
    std::vector<OffloadMessage> group;
    std::vector<Received> told(static_cast<std::size_t>(r.size));
    for (Rank peer = 0; peer < r.size; ++peer) {
        const std::size_t out = length(r.rank, peer), in = length(peer, r.rank);
        sent.push_back(std::make_unique<OnDevice>(r.rank, values_of(r.rank * 8 + peer, out)));
        got.push_back(std::make_unique<OnDevice>(r.rank, std::vector<float>(in, -1)));
        group.push_back(send_of(*sent.back(), out, peer, 1 + peer));
        group.insert(group.begin(), receive_of(*got.back(), in, peer, 1 + r.rank,
                                               &told[static_cast<std::size_t>(peer)]));
    }
    r.works(both_ways(r, group), "all pairs");
    for (Rank peer = 0; peer < r.size; ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        const std::size_t in = length(peer, r.rank);
        r.holds(got[p]->floats() == values_of(peer * 8 + r.rank, in), "a pair's values");
        r.holds(told[p].source == peer && told[p].count == in, "a pair's status");
    }
}

/// Rank 1 sends nothing until rank 0 has heard that.
inline void peer_that_does_not_come(Ranked& r, std::atomic<int>& heard) {
    if (r.rank == 1) return wait_for(heard, 1);
    const device::DeviceStream stream = stream_of(r);
    const OnDevice data(r.rank, std::vector<float>(100, 1));
    r.fails(both_ways(r, {receive_of(data, 100, 1)}, 300, stream.handle()), Code::timeout,
            "300 ms");
    fake_cuda_synchronize(stream.handle());
    heard = 1;
}

inline void messages_between_kernels(Ranked& r) {
    const device::DeviceStream stream = stream_of(r);
    r.works(r.comm->offload().set_queue(stream.handle()), "set");
    const OnDevice data(r.rank, std::vector<float>(100, 1));
    for (int round = 0; round < 3; ++round) {
        fake_cuda_increment(stream.handle(), data.get(), 100, 20'000);
        if (r.rank == 0) r.works(r.comm->offload().run({send_of(data, 100, 1)}), "send");
        if (r.rank == 1) r.works(r.comm->offload().run({receive_of(data, 100, 0)}), "receive");
        r.works(r.comm->calls().run(call_of(Collective::allreduce, 100), data.get(), data.get()),
                "allreduce");
    }
    r.works(r.comm->offload().sync(-1), "sync");
    // x → 2 (x + 1) three times
    r.holds(data.floats() == std::vector<float>(100, 22), "the values");
}

}  // namespace gpu_test
