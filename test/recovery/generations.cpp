// Ranks that make one communicator after the other, and count what their process holds.
// usage: generations parts TIMES | generations deaths MILLISECONDS
// parts: so many times, all ranks make a communicator, use it and destroy it; then so many times,
// all ranks but the last. deaths: the last rank of each communicator kills itself, until one rank
// is left, which counts after that time. Prints "census WHEN FILES MAPS RSS_KB", then the kinds of
// files.
#include <signal.h>
#include <tutti/tutti.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "channels.h"

namespace {

using recovery_test::give_up;
using recovery_test::is_loss;
using recovery_test::need;
using recovery_test::use_channels;

long resident_kb() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
    return -1;
}

/// "socket:[123]" counts as "socket", "/memfd:tutti (deleted)" as "memfd".
std::string kind_of(const std::string& target) {
    for (const char* kind : {"socket", "memfd", "eventpoll", "eventfd", "timerfd", "pipe"})
        if (target.find(kind) != std::string::npos) return kind;
    return "other";
}

void take_census(const std::string& when) {
    std::map<std::string, int> kinds;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;  // the descriptor of this loop
        const auto target = std::filesystem::read_symlink(entry.path(), gone);
        if (gone || target.string().starts_with("/proc/")) continue;
        ++files;
        ++kinds[kind_of(target.string())];
    }
    int maps = 0;
    std::ifstream mapped("/proc/self/maps");
    for (std::string line; std::getline(mapped, line);)
        for (const char* kind : {"memfd", "/dev/shm", "/SYSV"})
            if (line.find(kind) != std::string::npos) ++maps;
    std::printf("census %s %d %d %ld", when.c_str(), files, maps, resident_kb());
    for (const auto& [kind, count] : kinds) std::printf(" %s=%d", kind.c_str(), count);
    std::printf("\n");
    std::fflush(stdout);
}

/// leavers: the number of ranks that are left out, 0 or 1.
void make_parts(tutti_comm* whole, std::size_t leavers, int times) {
    const int last = tutti_comm_size(whole) - 1;
    for (int i = 1; i <= times; ++i) {
        tutti_comm* part = nullptr;
        need(tutti_comm_shrink_without(whole, &last, leavers, &part), "tutti_comm_shrink_without");
        need(use_channels(part), "an operation");
        need(tutti_comm_destroy(part), "tutti_comm_destroy");
        if (i == times / 3) take_census("early");
    }
    take_census("late");
}

/// close_ms: until the kernel, and the transport's library, have closed what led to the last peer.
void outlive(tutti_comm* comm, int close_ms) {
    while (tutti_comm_size(comm) > 1) {
        need(use_channels(comm), "an operation");
        need(tutti_barrier(comm), "tutti_barrier");
        if (tutti_comm_rank(comm) == tutti_comm_size(comm) - 1) raise(SIGKILL);
        tutti_status status = TUTTI_OK;
        while (status == TUTTI_OK) status = use_channels(comm);
        if (!is_loss(status)) give_up("an operation");
        need(tutti_comm_revoke(comm), "tutti_comm_revoke");
        tutti_comm* smaller = nullptr;
        need(tutti_comm_shrink(comm, &smaller), "tutti_comm_shrink");
        need(tutti_comm_destroy(comm), "tutti_comm_destroy");
        comm = smaller;
    }
    need(use_channels(comm), "an operation");
    std::this_thread::sleep_for(std::chrono::milliseconds(close_ms));
    take_census("left");
    need(tutti_comm_destroy(comm), "tutti_comm_destroy");
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "tutti_comm_create");
    need(use_channels(comm), "an operation");
    if (argc != 3) return 2;
    if (what == "deaths") {
        outlive(comm, std::atoi(argv[2]));
        return 0;
    }
    if (what != "parts") return 2;
    const int times = std::atoi(argv[2]);
    make_parts(comm, 0, times);
    if (tutti_comm_rank(comm) != tutti_comm_size(comm) - 1) make_parts(comm, 1, times);
    std::printf("done\n");
    std::fflush(stdout);
    (void)std::getchar();  // until all are done
    tutti_comm_destroy(comm);
    return 0;
}
