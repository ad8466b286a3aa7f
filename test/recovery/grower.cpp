// Ranks of a job that replaces its dead: after each loss, the survivors shrink and grow again, and
// new processes join. The script starts and kills them. usage: grower SIZE STOP_FILE
// A process with TUTTI_JOIN=1 is a newcomer. Prints "verified GENERATION RANK SIZE" for each
// communicator of SIZE ranks that has worked, "census FILES MAPS" after it, and "over" at the end.
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "channels.h"

namespace {

using recovery_test::give_up;
using recovery_test::is_loss;
using recovery_test::need;
using recovery_test::use_channels;

/// Operations over all kinds of channels, on a copy and a part, too.
tutti_status use(tutti_comm* comm) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    tutti_status status = use_channels(comm);
    if (status != TUTTI_OK) return status;
    tutti_plan* plan = nullptr;
    status = tutti_plan_allreduce(comm, 100, TUTTI_INT32, TUTTI_MAX, nullptr, &plan);
    std::vector<int32_t> most(100, rank);
    if (status == TUTTI_OK) status = tutti_plan_run(plan, most.data(), most.data());
    tutti_plan_destroy(plan);
    if (status != TUTTI_OK) return status;
    if (most.back() != size - 1) give_up("a wrong maximum");
    tutti_comm* half = nullptr;
    status = tutti_comm_split(comm, rank % 2, 0, &half);
    if (status == TUTTI_OK) status = tutti_barrier(half);
    tutti_comm_destroy(half);
    return status;
}

void take_census() {
    int files = 0, maps = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        (void)entry;
        ++files;
    }
    std::ifstream mapped("/proc/self/maps");
    for (std::string line; std::getline(mapped, line);)
        for (const char* kind : {"memfd", "/dev/shm", "/SYSV"})
            if (line.find(kind) != std::string::npos) ++maps;
    std::printf("census %d %d\n", files, maps);
    std::fflush(stdout);
}

class Member {
public:
    Member(tutti_comm* comm, int size, std::string stop)
        : comm_(comm), size_(size), stop_(std::move(stop)) {}

    /// Until the stop file is there, on all ranks.
    void live() {
        for (;;) {
            const tutti_status status =
                tutti_comm_size(comm_) == size_ ? work() : TUTTI_ERR_PEER_LOST;
            if (over_) break;
            if (status == TUTTI_OK) continue;
            if (!is_loss(status)) give_up("no rank's end explains this");
            regroup();
        }
        tutti_comm_destroy(comm_);
        std::printf("over\n");
    }

private:
    /// Agrees on the generation, which newcomers do not know, and on whether to end.
    tutti_status work() {
        int64_t state[2] = {generation_, access(stop_.c_str(), F_OK) == 0};
        tutti_status status = tutti_allreduce(comm_, state, state, 2, TUTTI_INT64, TUTTI_MAX);
        if (status == TUTTI_OK) status = use(comm_);
        if (status != TUTTI_OK) return status;
        if (state[0] > generation_ || generation_ == 0 || !told_) tell(state[0]);
        over_ = state[1] != 0;
        usleep(1000);
        return TUTTI_OK;
    }

    void tell(int64_t generation) {
        generation_ = generation;
        told_ = true;
        std::printf("verified %lld %d %d\n", static_cast<long long>(generation_),
                    tutti_comm_rank(comm_), tutti_comm_size(comm_));
        std::fflush(stdout);
        take_census();
    }

    void replace(tutti_comm* other) {
        need(tutti_comm_destroy(comm_), "tutti_comm_destroy");
        comm_ = other;
    }

    void regroup() {
        while (tutti_comm_size(comm_) != size_ || !healthy_) {
            tutti_comm* other = nullptr;
            tutti_comm_revoke(comm_);
            need(tutti_comm_shrink(comm_, &other), "tutti_comm_shrink");
            replace(other);
            healthy_ = true;
            const int missing = size_ - tutti_comm_size(comm_);
            if (missing == 0) break;
            const tutti_status status = tutti_comm_grow(comm_, missing, &other);
            if (status == TUTTI_OK)
                replace(other);
            else if (!is_loss(status) && status != TUTTI_ERR_SYSTEM)
                give_up("tutti_comm_grow");
            else
                std::printf("again: %s\n", tutti_last_error());
        }
        ++generation_;
        told_ = healthy_ = false;
    }

    tutti_comm* comm_;
    const int size_;
    const std::string stop_;
    int64_t generation_ = 0;
    bool told_ = false, over_ = false, healthy_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "tutti_comm_create");
    std::printf("joined %d\n", tutti_comm_rank(comm));
    std::fflush(stdout);
    Member(comm, std::atoi(argv[1]), argv[2]).live();
    return 0;
}
