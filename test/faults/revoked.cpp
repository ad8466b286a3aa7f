// One rank of a job that loses a rank while the others sum; the lowest survivor revokes the
// communicator when its sum has failed. Prints what the calls came to, for the script.
// usage: tutti-run --keep-going -n N revoked VICTIM
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "worker.h"

namespace {

void say(const char* what, tutti_status status, Clock::time_point start) {
    std::printf("%s: %s; at fault %d; after %.3f s; %s\n", what, tutti_status_string(status),
                status == TUTTI_OK ? -1 : tutti_last_error_rank(), seconds_since(start),
                status == TUTTI_OK ? "" : tutti_last_error());
    std::fflush(stdout);
}

tutti_status sum(tutti_comm* comm, std::size_t count) {
    std::vector<float> x(count, 1.0f);
    return tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
}

/// Sums until the status is no longer this one.
tutti_status sum_while(tutti_comm* comm, tutti_status status) {
    tutti_status got = status;
    while (got == status) got = sum(comm, 50'000);
    return got;
}

}  // namespace

int main(int argc, char** argv) {
    const int victim = argc > 1 ? std::atoi(argv[1]) : 0;
    tutti_comm *comm = nullptr, *copy = nullptr;
    const auto start = Clock::now();
    tutti_status status = tutti_comm_create(nullptr, &comm);
    if (status == TUTTI_OK) status = tutti_comm_dup(comm, &copy);
    if (status == TUTTI_OK) status = sum(comm, 10);
    if (status == TUTTI_OK) status = tutti_barrier(copy);
    if (status != TUTTI_OK) {
        say("start", status, start);
        return 1;
    }
    if (tutti_comm_rank(comm) == victim) kill(getpid(), SIGKILL);
    say("operation", sum_while(comm, TUTTI_OK), start);
    const auto failed = Clock::now();
    if (tutti_comm_rank(comm) == (victim == 0 ? 1 : 0))
        say("revoke", tutti_comm_revoke(comm), failed);
    say("afterwards", sum_while(comm, TUTTI_ERR_PEER_LOST), failed);
    say("copy", sum_while(copy, TUTTI_OK), failed);
    const auto destroying = Clock::now();
    tutti_comm_destroy(copy);
    say("destroy", tutti_comm_destroy(comm), destroying);
    return 0;
}
