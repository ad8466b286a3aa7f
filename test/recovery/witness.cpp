// A rank that witnesses the end of another: it calls one small allreduce after the other, and
// prints when a call fails and why.
// usage: witness RESIDENT_MB
// Its place in the job comes from the environment. Prints "ready RANK", then "failed RANK AT_NS
// STATUS CULPRIT: TEXT"; the time is CLOCK_MONOTONIC's.
#include <time.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

int give_up(const char* what) {
    std::fprintf(stderr, "%s: %s\n", what, tutti_last_error());
    return 1;
}

long long clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::vector<char> resident(static_cast<std::size_t>(std::atoll(argv[1])) << 20, '\1');
    tutti_comm* comm = nullptr;
    if (tutti_comm_create(nullptr, &comm) != TUTTI_OK) return give_up("tutti_comm_create");
    const int rank = tutti_comm_rank(comm);
    if (tutti_barrier(comm) != TUTTI_OK) return give_up("tutti_barrier");
    std::printf("ready %d\n", rank);
    std::fflush(stdout);
    tutti_status status = TUTTI_OK;
    double value = 1;
    while (status == TUTTI_OK)
        status = tutti_allreduce(comm, &value, &value, 1, TUTTI_FLOAT64, TUTTI_MAX);
    const long long at_ns = clock_ns();
    std::printf("failed %d %lld %d %d: %s\n", rank, at_ns, static_cast<int>(status),
                tutti_last_error_rank(), tutti_last_error());
    std::fflush(stdout);
    tutti_comm_destroy(comm);
    return resident.back() == '\1' ? 0 : 1;
}
