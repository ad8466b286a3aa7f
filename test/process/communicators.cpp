// Communicators made out of communicators: who is in them, that they work side by side, and what
// they cost.
// usage: tutti-run -n N communicators CASE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

/// The sum over the communicator of every member's rank in the job, once small and once large.
void expect_sum(tutti_comm* comm, int expected, const std::string& what) {
    for (std::size_t count : {1ul, 100'000ul}) {
        std::vector<float> x(count, static_cast<float>(rank_of));
        need(tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM), what);
        require(x.front() == static_cast<float>(expected) && x.back() == x.front(), what);
    }
}
int sum_of(int first, int step) {
    int sum = 0;
    for (int r = first; r < ranks; r += step) sum += r;
    return sum;
}

void split(tutti_comm* world) {
    tutti_comm* part = nullptr;
    // Odd and even ranks, in reverse order.
    need(tutti_comm_split(world, rank_of % 2, -rank_of, &part), "split");
    const int members = (ranks - rank_of % 2 + 1) / 2;
    require(tutti_comm_size(part) == members, "the size of the part");
    require(tutti_comm_rank(part) == members - 1 - rank_of / 2, "the rank in the part");
    expect_sum(part, sum_of(rank_of % 2, 2), "sum of a part");
    expect_sum(world, sum_of(0, 1), "sum of all, beside the part");
    std::vector<int32_t> mine{rank_of}, all(static_cast<std::size_t>(members));
    need(tutti_allgather(part, mine.data(), all.data(), 1, TUTTI_INT32), "allgather in the part");
    for (int r = 0; r < members; ++r)
        require(all[static_cast<std::size_t>(r)] == rank_of % 2 + 2 * (members - 1 - r), "order");

    // A part of the part, in which some take no part.
    tutti_comm* smaller = nullptr;
    const bool in = tutti_comm_rank(part) != 0;
    need(tutti_comm_split(part, in ? 7 : -1, 0, &smaller), "split again");
    require((smaller != nullptr) == in, "a negative colour gets no communicator");
    if (smaller) {
        require(tutti_comm_size(smaller) == members - 1, "the size of the smaller part");
        need(tutti_barrier(smaller), "barrier");
    }
    need(tutti_comm_destroy(smaller), "destroy");
    expect_sum(part, sum_of(rank_of % 2, 2), "sum after a part of it has gone");
    need(tutti_comm_destroy(part), "destroy");
    expect_sum(world, sum_of(0, 1), "sum after its parts have gone");
}

// A copy's operations have an order of their own: here the other way round on every second rank.
void dup(tutti_comm* world) {
    tutti_comm* copy = nullptr;
    need(tutti_comm_dup(world, &copy), "dup");
    require(tutti_comm_rank(copy) == rank_of && tutti_comm_size(copy) == ranks, "a copy");
    std::vector<float> a(50'000, 1), b(50'000, 2);
    tutti_request *first = nullptr, *second = nullptr;
    const auto start = [&](tutti_comm* comm, std::vector<float>& x, tutti_request** request) {
        need(tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                              request),
             "start");
    };
    if (rank_of % 2 == 0) start(world, a, &first);
    start(copy, b, &second);
    if (rank_of % 2 == 1) start(world, a, &first);
    need(tutti_wait(&second, -1), "wait");
    need(tutti_wait(&first, -1), "wait");
    require(a[0] == static_cast<float>(ranks) && b[0] == static_cast<float>(2 * ranks), "sums");
    // The original goes first; the copy keeps the process in the job.
    need(tutti_comm_destroy(world), "destroy the original");
    expect_sum(copy, sum_of(0, 1), "sum of the copy alone");
    need(tutti_comm_destroy(copy), "destroy the copy");
    std::exit(0);
}

// With tutti-run --hosts-act 2: every host has ranks / 2 neighbours.
void hosts(tutti_comm* world) {
    tutti_comm *local = nullptr, *across = nullptr;
    need(tutti_comm_split_host(world, rank_of, &local), "split by host");
    require(tutti_comm_size(local) == ranks / 2, "ranks of a host");
    require(tutti_comm_local_size(world) == ranks / 2 && tutti_comm_host_count(world) == 2,
            "hosts and their ranks, asked");
    const int host = tutti_comm_host_of(world, rank_of);
    require(host == rank_of / (ranks / 2), "this rank's host");
    require(tutti_comm_local_rank(world) == rank_of % (ranks / 2), "the rank on its host");
    require(tutti_comm_host_of(world, ranks) == -1 && tutti_comm_host_of(world, -1) == -1,
            "hosts of ranks that there are not");
    require(tutti_comm_host_count(local) == 1 && tutti_comm_local_size(local) == ranks / 2,
            "hosts of a host's part");
    require(tutti_comm_ring_count(world) == 2 && tutti_comm_ring_count(nullptr) == -1, "rings");
    require(tutti_comm_local_rank(nullptr) == -1 && tutti_comm_local_size(nullptr) == -1 &&
                tutti_comm_host_count(nullptr) == -1 && tutti_comm_host_of(nullptr, 0) == -1,
            "hosts of nothing");
    need(tutti_comm_split(world, tutti_comm_rank(local), 0, &across), "one of each host");
    require(tutti_comm_size(across) == 2, "hosts");
    require(tutti_comm_host_count(across) == 2 && tutti_comm_local_size(across) == 1 &&
                tutti_comm_host_of(across, 1) == 1,
            "hosts of a part across them");
    std::vector<int32_t> one{1};
    need(tutti_allreduce(local, one.data(), one.data(), 1, TUTTI_INT32, TUTTI_SUM), "inside");
    need(tutti_allreduce(across, one.data(), one.data(), 1, TUTTI_INT32, TUTTI_SUM), "across");
    require(one[0] == ranks, "the sum over both levels");
    need(tutti_comm_destroy(local), "destroy");
    need(tutti_comm_destroy(across), "destroy");
}

/// The number after a name in a file that gives them in KiB, in bytes.
long proc_bytes(const char* path, const std::string& name) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
        if (word != name + ":") continue;
        long kib = 0;
        file >> kib;
        return kib * 1024;
    }
    return 0;
}
long resident_bytes() {
    return proc_bytes("/proc/self/status", "VmRSS");
}
long own_bytes() {
    return proc_bytes("/proc/self/status", "RssAnon");
}
/// The resident memory that this process maps together with others.
long shared_bytes() {
    return proc_bytes("/proc/self/status", "RssShmem");
}
long open_files() {
    long count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        count += !entry.path().empty();
    return count;
}

std::vector<tutti_comm*> copies_of(tutti_comm* world, int count) {
    std::vector<tutti_comm*> all(static_cast<std::size_t>(count));
    for (tutti_comm*& one : all) need(tutti_comm_dup(world, &one), "dup");
    return all;
}
void destroy_all(const std::vector<tutti_comm*>& all) {
    for (tutti_comm* comm : all) need(tutti_comm_destroy(comm), "destroy");
}
void sum_on(tutti_comm* comm, std::vector<float>& x) {
    std::fill(x.begin(), x.end(), 1.0F);
    need(tutti_allreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM), "sum");
    for (const float value : x) require(value == static_cast<float>(ranks), "the sum");
}

// Many at once, each used a little, by a process that may open few files.
void many(tutti_comm* world) {
    constexpr int wanted = 500;
    const rlimit few{.rlim_cur = 256, .rlim_max = 256};
    require(setrlimit(RLIMIT_NOFILE, &few) == 0, "the limit of open files");
    // The first communicator pays for what all of them share, so measure from there.
    std::vector<tutti_comm*> all = copies_of(world, 1);
    const long before = resident_bytes(), files = open_files();
    for (tutti_comm* one : copies_of(world, wanted - 1)) all.push_back(one);
    std::vector<float> x(1);
    for (tutti_comm* comm : all) sum_on(comm, x);
    if (rank_of == 0)
        std::printf("each communicator: %ld bytes; files: %ld more\n",
                    (resident_bytes() - before) / (wanted - 1), open_files() - files);
    destroy_all(all);
    expect_sum(world, sum_of(0, 1), "sum after all of them");
}

// One large operation on each in turn: the cells that the first used serve them all.
void large(tutti_comm* world) {
    constexpr int few = 20, wanted = 200;
    std::vector<float> x(1 << 20);
    long after_few = 0;
    std::vector<tutti_comm*> all = copies_of(world, wanted);
    for (int i = 0; i < wanted; ++i) {
        sum_on(all[static_cast<std::size_t>(i)], x);
        if (i + 1 == few) after_few = shared_bytes();
    }
    if (rank_of == 0)
        std::printf("shared memory after %d: %ld KiB, after %d: %ld KiB\n", few, after_few / 1024,
                    wanted, shared_bytes() / 1024);
    destroy_all(all);
    expect_sum(world, sum_of(0, 1), "sum after all of them");
}

// Communicators that are made one after the other give back all that they took. The heap is
// measured in three phases, because a pool may grow once at any time; a leak shows in each phase.
void cycles(tutti_comm* world) {
    constexpr int warm = 50, phases = 3, phase = 150, wanted = warm + phases * phase;
    std::vector<float> small(1), big(1 << 16);
    long files = 0, shared = 0, heap = 0, least = std::numeric_limits<long>::max();
    const auto end_phase = [&] {
        const long now = own_bytes();
        least = std::min(least, now - std::exchange(heap, now));
    };
    for (int i = 0; i < wanted; ++i) {
        if (i == warm) {
            files = open_files();
            shared = shared_bytes();
            heap = own_bytes();
        } else if (i > warm && (i - warm) % phase == 0) {
            end_phase();
        }
        tutti_comm* part = nullptr;
        need(tutti_comm_split(world, i % 2 == 0 ? 0 : rank_of % 2, -rank_of, &part), "split");
        const auto members = static_cast<float>(tutti_comm_size(part));
        for (std::vector<float>* x : {&small, &big}) {
            std::fill(x->begin(), x->end(), 1.0F);
            need(tutti_allreduce(part, x->data(), x->data(), x->size(), TUTTI_FLOAT32, TUTTI_SUM));
            require(x->front() == members && x->back() == members, "the sum in a part");
        }
        need(tutti_comm_destroy(part), "destroy");
    }
    end_phase();
    if (rank_of == 0)
        std::printf("%d cycles: files %ld, shared KiB %ld, heap KiB %ld\n", wanted - warm,
                    open_files() - files, (shared_bytes() - shared) / 1024, phases * least / 1024);
}

// One call each, and gone: a rank may still be joining, or hearing from others for the first time,
// when the next has left.
void brief(tutti_comm* world) {
    for (int i = 0; i < 30; ++i) {
        tutti_comm* copy = nullptr;
        need(tutti_comm_dup(world, &copy), "dup");
        need(tutti_barrier(copy), "barrier");
        need(tutti_comm_destroy(copy), "destroy");
    }
}

/// Sockets that a program executed by this one would have.
int inheritable_sockets() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string link = std::filesystem::read_symlink(entry.path(), gone);
        const int flags = fcntl(std::stoi(entry.path().filename()), F_GETFD);
        count += link.starts_with("socket:") && flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    return count;
}
const int sockets_from_outside = inheritable_sockets();

// tutti marks a library's sockets close-on-exec within moments, not as they are opened.
void executed(tutti_comm* world) {
    expect_sum(world, sum_of(0, 1), "sum");
    constexpr int looks = 1000;
    int look = 0;
    while (inheritable_sockets() > sockets_from_outside && ++look < looks)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    require(look < looks, "no socket stays open in a program that is executed");
}

// Large operations of two communicators under way at once, in another order on every second rank:
// neither gets the other's cells.
void beside(tutti_comm* world) {
    const std::vector<tutti_comm*> both = copies_of(world, 2);
    for (int round = 0; round < 30; ++round) {
        const std::size_t count =
            round % 3 == 0 ? 1 << 20 : 10'000 + 7919u * static_cast<unsigned>(round);
        std::vector<std::vector<float>> x;
        tutti_request* requests[2];
        for (std::size_t c = 0; c < both.size(); ++c) {
            x.emplace_back(count);
            for (std::size_t i = 0; i < count; ++i)
                x[c][i] =
                    static_cast<float>((i * (c + 3) + static_cast<std::size_t>(round)) % 1000);
        }
        const std::vector<std::vector<float>> sent = x;
        for (std::size_t i = 0; i < both.size(); ++i) {
            const std::size_t c = (i + static_cast<std::size_t>(rank_of)) % 2;
            need(tutti_iallreduce(both[c], x[c].data(), x[c].data(), count, TUTTI_FLOAT32,
                                  TUTTI_SUM, nullptr, &requests[c]),
                 "start");
        }
        for (tutti_request*& request : requests) need(tutti_wait(&request, -1), "wait");
        for (std::size_t c = 0; c < both.size(); ++c) {
            bool right = true;
            for (std::size_t i = 0; i < count; ++i)
                right = right && x[c][i] == sent[c][i] * static_cast<float>(ranks);
            require(right, "a sum of two at once");
        }
    }
    destroy_all(both);
}

// Calls that differ are the part's affair; the other part does not notice.
void mismatch(tutti_comm* world) {
    tutti_comm* part = nullptr;
    need(tutti_comm_split(world, rank_of < 2 ? 0 : 1, 0, &part), "split");
    std::vector<float> x(100);
    if (rank_of < 2) {
        const std::size_t count = rank_of == 0 ? 100 : 99;
        const tutti_status status =
            tutti_allreduce(part, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
        require(status == TUTTI_ERR_MISMATCH, "a mismatch in the part");
    }
    expect_sum(part, rank_of < 2 ? 1 : sum_of(2, 1), "the part works on");
    expect_sum(world, sum_of(0, 1), "the whole works on");
    need(tutti_comm_destroy(part), "destroy");
}

// The last rank dies: its part hears of it, although rank 1 has no connection to it in the tree of
// the job; the other part works on.
void killed(tutti_comm* world) {
    tutti_comm* part = nullptr;
    need(tutti_comm_split(world, rank_of % 2, 0, &part), "split");
    need(tutti_barrier(world), "all have split");
    if (rank_of == ranks - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        kill(getpid(), SIGKILL);
    }
    if (rank_of % 2 == (ranks - 1) % 2) {
        const tutti_status status = tutti_barrier(part);
        require(status == TUTTI_ERR_PEER_LOST, "the loss in the part");
        require(tutti_last_error_rank() == tutti_comm_size(part) - 1, "its rank in the part");
    } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        expect_sum(part, sum_of(rank_of % 2, 2), "the other part works on");
    }
    need(tutti_comm_destroy(part), "destroy");
    std::printf("survivor\n");
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv,
                    {{"split", split},
                     {"dup", dup},
                     {"hosts", hosts},
                     {"many", many},
                     {"large", large},
                     {"cycles", cycles},
                     {"brief", brief},
                     {"executed", executed},
                     {"beside", beside},
                     {"mismatch", mismatch},
                     {"killed", killed}});
}
