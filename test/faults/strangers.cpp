// Rank 0, which serves the store, is killed. Then the other ranks make smaller communicators: one
// of ranks 2 and 7, which have never been connected, and one of the rest. Prints what the calls
// came to, for the script.
// usage: strangers, as rank TUTTI_RANK of a job of 8
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tutti/tutti.h"

namespace {

void say(const char* what, tutti_status status) {
    std::printf("%s: %s; at fault %d; %s\n", what, tutti_status_string(status),
                status == TUTTI_OK ? -1 : tutti_last_error_rank(),
                status == TUTTI_OK ? "" : tutti_last_error());
    std::fflush(stdout);
}

// An allreduce of ones.
tutti_status count_members(tutti_comm* comm, int members) {
    float x = 1;
    const tutti_status status = tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM);
    return status == TUTTI_OK && x != static_cast<float>(members) ? TUTTI_ERR_SYSTEM : status;
}

}  // namespace

int main() {
    tutti_comm *comm = nullptr, *part = nullptr, *smaller = nullptr;
    if (const tutti_status joined = tutti_comm_create(nullptr, &comm); joined != TUTTI_OK) {
        say("create", joined);
        return 1;
    }
    const int rank = tutti_comm_rank(comm), ranks = tutti_comm_size(comm);
    // Every rank but 0 is in the part when the barrier ends. Rank 0 lets the others end theirs.
    tutti_status status = tutti_comm_split(comm, rank == 0 ? -1 : 0, rank, &part);
    if (status == TUTTI_OK) status = tutti_barrier(comm);
    say("together", status);
    if (rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        kill(getpid(), SIGKILL);
    }
    say("whole", count_members(comm, ranks));
    const bool stranger = rank == 2 || rank == 7;
    say("split", tutti_comm_split(part, stranger ? 1 : 0, 0, &smaller));
    say("sum", count_members(smaller, stranger ? 2 : ranks - 3));
    for (tutti_comm* one : {smaller, part, comm}) say("destroy", tutti_comm_destroy(one));
    return 0;
}
