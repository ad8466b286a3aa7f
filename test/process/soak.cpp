// A long life of one communicator, drawn at random: collectives, messages, plans, parts, calls that
// differ and ranks that come late, in any order. All ranks draw the same, but for when they act.
// usage: tutti-run -n N soak STEPS SEED
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

using Random = std::mt19937_64;
std::string context;  // which step, for messages

std::size_t draw(Random& random, std::size_t below) {
    return static_cast<std::size_t>(random() % below);
}
bool one_in(Random& random, std::size_t times) {
    return draw(random, times) == 0;
}

constexpr uint32_t untouched = 0xbad0bad0;

/// Element i of a rank's input to the serial-th call.
uint32_t value(int rank, std::size_t i, uint32_t serial) {
    return static_cast<uint32_t>(rank) * 1'000'003u + static_cast<uint32_t>(i) * 31u +
           serial * 101u;
}
uint32_t sum(int ranks_before, std::size_t i, uint32_t serial) {
    uint32_t total = 0;
    for (int r = 0; r < ranks_before; ++r) total += value(r, i, serial);
    return total;
}

/// One call, as every rank of its communicator draws it.
struct Call {
    tutti_comm* comm = nullptr;
    int rank = 0, size = 1, root = 0;
    std::size_t count = 0;
    uint32_t serial = 0;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
};

// in, out, count and dtype stand in the same place in all of them.
#define TUTTI_SOAK_DATA in, out, call.count, TUTTI_UINT32
using Start = tutti_status (*)(const Call& call, const void* in, void* out,
                               tutti_request** request);

struct Kind {
    const char* name;
    bool block_in, block_out;  // of each rank, or one for all
    Start start;
    uint32_t (*expected)(const Call& call, std::size_t i);
};

uint32_t of_all(const Call& c, std::size_t i) {
    return sum(c.size, i, c.serial);
}
uint32_t at_root(const Call& c, std::size_t i) {
    return c.rank == c.root ? of_all(c, i) : untouched;
}
uint32_t gathered(const Call& c, std::size_t i) {
    return value(static_cast<int>(i / c.count), i % c.count, c.serial);
}
std::size_t in_own_block(const Call& c, std::size_t i) {
    return static_cast<std::size_t>(c.rank) * c.count + i;
}

const Kind kinds[] = {
    {"allreduce", false, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_iallreduce(call.comm, TUTTI_SOAK_DATA, TUTTI_SUM, &call.opts, request);
     },
     &of_all},
    {"broadcast", false, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         if (call.rank == call.root && call.count > 0)
             std::copy_n(static_cast<const uint32_t*>(in), call.count, static_cast<uint32_t*>(out));
         return tutti_ibroadcast(call.comm, out, call.count, TUTTI_UINT32, call.root, &call.opts,
                                 request);
     },
     [](const Call& c, std::size_t i) { return value(c.root, i, c.serial); }},
    {"barrier", false, false,
     [](const Call& call, const void*, void*, tutti_request** request) {
         return tutti_ibarrier(call.comm, &call.opts, request);
     },
     [](const Call&, std::size_t) { return untouched; }},
    {"reduce", false, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_ireduce(call.comm, TUTTI_SOAK_DATA, TUTTI_SUM, call.root, &call.opts,
                              request);
     },
     &at_root},
    {"allgather", false, true,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_iallgather(call.comm, TUTTI_SOAK_DATA, &call.opts, request);
     },
     &gathered},
    {"reduce_scatter", true, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_ireduce_scatter(call.comm, TUTTI_SOAK_DATA, TUTTI_SUM, &call.opts, request);
     },
     [](const Call& c, std::size_t i) { return of_all(c, in_own_block(c, i)); }},
    {"gather", false, true,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_igather(call.comm, TUTTI_SOAK_DATA, call.root, &call.opts, request);
     },
     [](const Call& c, std::size_t i) { return c.rank == c.root ? gathered(c, i) : untouched; }},
    {"scatter", true, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_iscatter(call.comm, TUTTI_SOAK_DATA, call.root, &call.opts, request);
     },
     [](const Call& c, std::size_t i) { return value(c.root, in_own_block(c, i), c.serial); }},
    {"alltoall", true, true,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_ialltoall(call.comm, TUTTI_SOAK_DATA, &call.opts, request);
     },
     [](const Call& c, std::size_t i) {
         return value(static_cast<int>(i / c.count), in_own_block(c, i % c.count), c.serial);
     }},
    {"scan", false, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_iscan(call.comm, TUTTI_SOAK_DATA, TUTTI_SUM, &call.opts, request);
     },
     [](const Call& c, std::size_t i) { return sum(c.rank + 1, i, c.serial); }},
    {"exscan", false, false,
     [](const Call& call, const void* in, void* out, tutti_request** request) {
         return tutti_iexscan(call.comm, TUTTI_SOAK_DATA, TUTTI_SUM, &call.opts, request);
     },
     [](const Call& c, std::size_t i) {
         return c.rank == 0 ? untouched : sum(c.rank, i, c.serial);
     }},
};
#undef TUTTI_SOAK_DATA

/// A call with its buffers, under way or done.
class Run {
public:
    Run(const Kind& kind, const Call& call) : kind_(kind), call_(call) {
        const auto size = static_cast<std::size_t>(call.size);
        in_.resize(call.count * (kind.block_in ? size : 1));
        out_.assign(call.count * (kind.block_out ? size : 1) + 1, untouched);
        for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = value(call.rank, i, call.serial);
    }
    Run(const Run&) = delete;

    /// Not at all where the algorithm that was drawn cannot: all ranks are told the same.
    void start() {
        const tutti_status status = kind_.start(call_, in_.data(), out_.data(), &request_);
        given_up_ = status == TUTTI_ERR_UNSUPPORTED && call_.opts.algorithm != nullptr;
        if (!given_up_) need(status, text());
    }
    void finish(Random& own) {
        if (given_up_) return;
        tutti_status status = TUTTI_IN_PROGRESS;
        for (const bool polls = one_in(own, 4); polls && status == TUTTI_IN_PROGRESS;) {
            status = tutti_test(&request_);
            std::this_thread::yield();
        }
        need(status == TUTTI_IN_PROGRESS ? tutti_wait(&request_, -1) : status, text());
        check();
    }
    /// Blocking, where that is a call of its own.
    void run(Random& own) {
        const bool allreduce = kind_.name == std::string("allreduce");
        if (allreduce && call_.opts.algorithm == nullptr && call_.opts.stream < 0) {
            need(tutti_allreduce(call_.comm, in_.data(), out_.data(), call_.count, TUTTI_UINT32,
                                 TUTTI_SUM),
                 text());
            return check();
        }
        start();
        finish(own);
    }

private:
    std::string text() const {
        return context + ", " + kind_.name + " of " + std::to_string(call_.count) + " root " +
               std::to_string(call_.root) + " by " +
               (call_.opts.algorithm ? call_.opts.algorithm : "choice");
    }
    void check() const {
        require(out_.back() == untouched, text() + ": wrote past the end");
        for (std::size_t i = 0; i + 1 < out_.size(); ++i)
            require(out_[i] == kind_.expected(call_, i),
                    text() + ": element " + std::to_string(i) + " is wrong");
        for (std::size_t i = 0; i < in_.size(); ++i)
            require(in_[i] == value(call_.rank, i, call_.serial), text() + ": the input changed");
    }

    const Kind& kind_;
    const Call call_;
    std::vector<uint32_t> in_, out_;
    tutti_request* request_ = nullptr;
    bool given_up_ = false;
};

std::size_t draw_count(Random& random) {
    const std::size_t most[] = {4, 16, 200, 2000, 20'000, 60'000};
    return draw(random, most[std::min(draw(random, 6), draw(random, 6))] + 1);
}

const char* draw_algorithm(Random& random, const Kind& kind) {
    int known = 0;
    while (tutti_algorithm_name(kind.name, known)) ++known;
    return tutti_algorithm_name(kind.name,
                                static_cast<int>(draw(random, static_cast<std::size_t>(known))));
}

std::unique_ptr<Run> draw_run(tutti_comm* comm, Random& random, bool on_any_stream) {
    Call call{.comm = comm, .rank = tutti_comm_rank(comm), .size = tutti_comm_size(comm)};
    const Kind& kind = kinds[draw(random, std::size(kinds))];
    call.count = draw_count(random);
    call.root = static_cast<int>(draw(random, static_cast<std::size_t>(call.size)));
    call.serial = static_cast<uint32_t>(random());
    if (on_any_stream && one_in(random, 2))
        call.opts.stream =
            static_cast<int>(draw(random, static_cast<std::size_t>(tutti_comm_ring_count(comm))));
    if (one_in(random, 4)) call.opts.algorithm = draw_algorithm(random, kind);
    return std::make_unique<Run>(kind, call);
}

/// Sleeps at times that differ between ranks: all draw from `random` alike, each from its `own`.
void nap(Random& own) {
    if (one_in(own, 20)) std::this_thread::sleep_for(std::chrono::microseconds(draw(own, 3000)));
}

void single(tutti_comm* comm, Random& random, Random& own) {
    draw_run(comm, random, false)->run(own);
}

void several(tutti_comm* comm, Random& random, Random& own) {
    std::vector<std::unique_ptr<Run>> runs;
    for (std::size_t i = 1 + draw(random, 8); i > 0; --i) {
        runs.push_back(draw_run(comm, random, true));
        nap(own);
        runs.back()->start();
    }
    std::shuffle(runs.begin(), runs.end(), own);
    for (const auto& run : runs) run->finish(own);
}

/// Each rank sends a message of random size to the rank at a random distance, and receives one.
void messages(tutti_comm* comm, Random& random, Random& own) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const int distance = static_cast<int>(draw(random, static_cast<std::size_t>(size)));
    const int from = (rank + size - distance) % size;
    const auto serial = static_cast<uint32_t>(random());
    const auto tag = static_cast<int>(draw(random, 5));
    std::vector<uint32_t> out(draw_count(random)), in(out.size() + 1, untouched);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(rank, i, serial);
    const bool from_any = one_in(random, 3);
    tutti_request *sending = nullptr, *receiving = nullptr;
    tutti_recv_status got{};
    const auto receive = [&] {
        need(tutti_irecv(comm, in.data(), out.size(), TUTTI_UINT32,
                         from_any ? TUTTI_ANY_SOURCE : from, tag, &got, nullptr, &receiving),
             context + ", irecv");
    };
    const bool late = one_in(own, 2);
    if (!late) receive();
    need(tutti_isend(comm, out.data(), out.size(), TUTTI_UINT32, (rank + distance) % size, tag,
                     nullptr, &sending),
         context + ", isend");
    nap(own);
    if (late) receive();
    need(tutti_wait(&receiving, -1), context + ", receive");
    need(tutti_wait(&sending, -1), context + ", send");
    require(got.source == from && got.tag == tag && got.count == out.size(),
            context + ": a message of another");
    for (std::size_t i = 0; i < out.size(); ++i)
        require(in[i] == value(from, i, serial), context + ": a message's element is wrong");
    // A receive from any rank must not match a message of the next step with the same tag.
    need(tutti_barrier(comm), context + ", barrier");
}

void plans(tutti_comm* comm, Random& random, Random& own) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const std::size_t count = draw_count(random);
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce(comm, count, TUTTI_UINT32, TUTTI_SUM, nullptr, &plan), context);
    for (std::size_t turn = 1 + draw(random, 6); turn > 0; --turn) {
        const auto serial = static_cast<uint32_t>(random());
        std::vector<uint32_t> data(count);
        for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i, serial);
        nap(own);
        need(tutti_plan_run(plan, data.data(), data.data()), context + ", plan");
        for (std::size_t i = 0; i < count; ++i)
            require(data[i] == sum(size, i, serial), context + ": a plan's element is wrong");
    }
    tutti_plan_destroy(plan);
}

void parts(tutti_comm* comm, Random& random, Random& own) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    int color = 0;
    for (int r = 0; r < size; ++r) {
        const auto drawn = static_cast<int>(draw(random, 2));
        if (r == rank) color = drawn;
    }
    Random of_part(random() + static_cast<uint64_t>(color));
    tutti_comm* part = nullptr;
    need(tutti_comm_split(comm, color, one_in(of_part, 2) ? rank : -rank, &part), context);
    for (std::size_t i = draw(of_part, 12); i > 0; --i)
        one_in(of_part, 3) ? several(part, of_part, own) : single(part, of_part, own);
    need(tutti_comm_destroy(part), context + ", destroy of a part");
}

/// One rank's call differs: all are told, and go on.
void mismatch(tutti_comm* comm, Random& random, Random& own) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const auto odd = static_cast<int>(draw(random, static_cast<std::size_t>(size)));
    const std::size_t count = 1 + draw_count(random);
    if (size == 1) return;
    std::vector<uint32_t> data(count + 1);
    nap(own);
    const tutti_status status = tutti_allreduce(
        comm, data.data(), data.data(), rank == odd ? count + 1 : count, TUTTI_UINT32, TUTTI_SUM);
    require(status == TUTTI_ERR_MISMATCH,
            context + ": calls that differ came to " + std::string(tutti_status_string(status)));
}

using Step = void (*)(tutti_comm* comm, Random& random, Random& own);
struct Weighed {
    const char* name;
    std::size_t weight;
    Step step;
};
constexpr Weighed steps[] = {{"single", 60, &single},     {"several", 15, &several},
                             {"messages", 10, &messages}, {"plans", 5, &plans},
                             {"parts", 5, &parts},        {"mismatch", 5, &mismatch}};

/// Handlers of all signals: network libraries may install their own, but the program's must stay.
std::vector<void (*)(int)> handlers() {
    std::vector<void (*)(int)> found;
    for (int signal = 1; signal < NSIG; ++signal) {
        struct sigaction action {};
        sigaction(signal, nullptr, &action);
        found.push_back(action.sa_handler);
    }
    return found;
}

/// Whether all threads but the program's own leave signals to it.
bool leave_signals_alone() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        if (task.path().filename() == std::to_string(getpid())) continue;
        std::ifstream status(task.path() / "status");
        for (std::string line; std::getline(status, line);) {
            if (line.rfind("SigBlk:", 0) != 0) continue;
            const auto blocked = std::stoull(line.substr(7), nullptr, 16);
            if ((blocked >> (SIGUSR1 - 1) & 1) == 0) return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const long many = std::stol(argv[1]);
    const auto seed = std::stoull(argv[2]);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, &std::_Exit);
    const auto own_handlers = handlers();
    tutti_comm* comm = nullptr;
    need(tutti_comm_create(nullptr, &comm), "create");
    rank_of = tutti_comm_rank(comm);
    Random random(seed), own(seed + 1 + static_cast<uint64_t>(rank_of));
    for (long i = 0; i < many; ++i) {
        std::size_t drawn = draw(random, 100);
        const Weighed* step = steps;
        for (; drawn >= step->weight; ++step) drawn -= step->weight;
        context = "seed " + std::to_string(seed) + " step " + std::to_string(i) + " " + step->name;
        nap(own);
        step->step(comm, random, own);
    }
    require(handlers() == own_handlers, "a signal has another handler than the program's");
    require(leave_signals_alone(), "a thread takes the program's signals");
    need(tutti_comm_destroy(comm), "destroy");
    if (rank_of == 0) std::printf("%ld steps right\n", many);
    return 0;
}
