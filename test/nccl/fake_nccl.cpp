// A stand-in for NCCL: collectives on the stand-in driver's streams, computed through a shared
// file. It hangs where NCCL would hang, gives garbage where NCCL would, and records what NCCL
// forbids.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/fake_cuda.h"
#include "nccl/arithmetic.h"

extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device);

namespace {

using namespace fake_nccl;
using tutti::Op;

constexpr int ok = 0, internal_error = 3, invalid_argument = 4, invalid_usage = 5, remote_error = 6,
              in_progress = 7;
enum Kind { all_reduce = 1, broadcast, reduce, all_gather, reduce_scatter, exchange };

struct Part {
    int peer;
    const void* send;
    void* receive;
    std::size_t bytes;
};
struct Asked {
    int kind = 0, dtype = 0, op = 0, root = 0;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;
    void* stream = nullptr;
    std::vector<Part> parts;
    uint64_t turn = 0;   // among the collectives of all ranks
    uint64_t order = 0;  // among all of this rank's
};
struct PremulOp {
    int dtype;
    std::byte scalar[8];
};

struct Communicator {
    std::shared_ptr<SharedRanks> ranks;
    int device = -1;
    std::thread joining;
    std::vector<std::thread> splitting;  // of which this rank is no part
    std::atomic<int> state{in_progress};
    std::atomic<int> polls_left{0};  // queries that still answer "in progress"
    std::atomic<bool> abort{false};
    std::atomic<int> running{0};
    std::atomic<uint64_t> over{0};  // in order
    std::atomic<bool> worked{false};
    uint64_t launched = 0, collectives = 0;
    std::vector<std::unique_ptr<PremulOp>> premuls;
    std::atomic<int> registered{0};
    bool finalized = false;
    std::shared_ptr<std::atomic<bool>> family;  // of those that share resources: any was aborted
    bool shares = false;                        // its resources with what is split off it
    bool blocking = false;  // calls return when they are done, as for programs that ask for nothing
};

std::atomic<int> live{0};
thread_local int depth = 0;
thread_local std::vector<std::pair<Communicator*, Asked>> grouped;
thread_local std::vector<Communicator*> aborting;
// Counts allocations and registrations that programs have yet to give back.
std::atomic<int> live_windows{0}, registered{0};
// Each thread frees an aborted communicator once its kernels have ended.
std::mutex forgetting_mutex;
std::vector<std::thread> forgetting;
// Counts groups with work of several communicators, and groups of aborts.
std::atomic<int> shared_groups{0}, group_aborts{0};

int number(const char* variable, int otherwise) {
    const char* text = std::getenv(variable);
    return text ? std::atoi(text) : otherwise;
}

std::size_t bytes_of(const Asked& asked) {
    return asked.count * tutti::dtype_bytes(dtypes[asked.dtype]);
}

void pause() {
    std::this_thread::sleep_for(std::chrono::microseconds(30));
}

/// False if the communicator was aborted meanwhile.
template <typename Test>
bool wait_for(const Communicator& comm, Test test) {
    while (!test()) {
        if (comm.abort || *comm.family) return false;
        pause();
    }
    return true;
}

// ---- a collective, on its stream's thread -------------------------------------------------------

void publish(Communicator& comm, const Asked& asked, std::size_t input_bytes) {
    std::byte* area = comm.ranks->area(comm.ranks->rank());
    Called& called = comm.ranks->own().called;
    called = {asked.kind, asked.dtype, asked.op, asked.root, asked.count};
    const void* from = fake_cuda_touch(asked.in, input_bytes);
    if (input_bytes > area_bytes || !from) return fake_cuda_violation("an input out of bounds");
    std::memcpy(area, from, input_bytes);
    if (asked.op < built_in_ops) return;
    const PremulOp& op = *comm.premuls[static_cast<std::size_t>(asked.op - built_in_ops)];
    const auto times =
        tutti::Reducer::make(dtypes[op.dtype], Op::prod)
            ->reduce(tutti::Width::raw, tutti::Width::raw, tutti::Width::final, false);
    const std::size_t one = tutti::dtype_bytes(dtypes[op.dtype]);
    for (std::size_t i = 0; i < input_bytes; i += one)
        times({.dst = area + i, .a = area + i, .b = op.scalar, .count = 1});
}

void take(Communicator& comm, const Asked& asked, std::size_t block) {
    const SharedRanks& ranks = *comm.ranks;
    const auto n = static_cast<std::size_t>(ranks.size()),
               me = static_cast<std::size_t>(ranks.rank());
    const bool has_out = asked.kind != reduce || ranks.rank() == asked.root;
    const std::size_t out_bytes = asked.kind == all_gather ? block * n : block;
    auto* out = has_out ? static_cast<std::byte*>(fake_cuda_touch(asked.out, out_bytes)) : nullptr;
    if (has_out && !out) return fake_cuda_violation("an output out of bounds");
    switch (asked.kind) {
        case all_reduce:
        case reduce:
            if (out) combine(*comm.ranks, asked.dtype, asked.op, 0, asked.count, out);
            return;
        case reduce_scatter:
            return combine(*comm.ranks, asked.dtype, asked.op, me * asked.count, asked.count, out);
        case broadcast:
            std::memcpy(out, ranks.area(asked.root), block);
            return;
        case all_gather:
            for (std::size_t r = 0; r < n; ++r)
                std::memcpy(out + r * block, ranks.area(static_cast<int>(r)), block);
            return;
        default:
            return;
    }
}

/// A message's next piece, if there is room for it or it is there. True: the message is over.
bool move(const SharedRanks& ranks, const Part& part, std::size_t& moved) {
    Mailbox& box =
        part.send ? ranks.box(ranks.rank(), part.peer) : ranks.box(part.peer, ranks.rank());
    if (box.full != (part.send ? 0 : 1)) return false;
    auto* memory =
        static_cast<std::byte*>(fake_cuda_touch(part.send ? part.send : part.receive, part.bytes));
    if (!memory) fake_cuda_violation("a message out of bounds");
    const std::size_t left = part.bytes - moved;
    const std::size_t bytes = std::min<std::size_t>(left, part.send ? piece_bytes : box.bytes);
    if (part.send && memory) std::memcpy(box.data, memory + moved, bytes);
    if (part.receive && memory) std::memcpy(memory + moved, box.data, bytes);
    moved += bytes;
    if (part.send) {
        box.bytes = bytes;
        box.last = moved == part.bytes;
    }
    const bool last = box.last;
    box.full = part.send ? 1 : 0;
    return last;
}

/// Messages of one group are all under way at a time, those of a pair one after the other. False if
/// the communicator was aborted meanwhile.
bool move_all(Communicator& comm, const Asked& asked) {
    std::vector<std::size_t> moved(asked.parts.size());
    std::vector<bool> over(asked.parts.size());
    return wait_for(comm, [&] {
        bool busy[2][most_ranks] = {}, all = true;
        for (std::size_t i = 0; i < over.size(); ++i) {
            const Part& part = asked.parts[i];
            if (over[i] || std::exchange(busy[part.send ? 0 : 1][part.peer], true)) continue;
            while (true) {
                const std::size_t before = moved[i];
                over[i] = move(*comm.ranks, part, moved[i]);
                if (over[i] || moved[i] == before) break;
            }
            all &= over[i];
        }
        return all && std::all_of(over.begin(), over.end(), [](bool one) { return one; });
    });
}

/// False if the communicator was aborted meanwhile.
bool meet_all(Communicator& comm, const Asked& asked) {
    const std::size_t block = bytes_of(asked);
    const auto n = static_cast<std::size_t>(comm.ranks->size());
    const uint64_t turn = asked.turn;
    const bool gives = asked.kind != broadcast || comm.ranks->rank() == asked.root;
    if (!wait_for(comm,
                  [&] { return comm.ranks->all([&](Seat& s) { return s.finished >= turn - 1; }); }))
        return false;
    if (gives)
        publish(comm, asked, asked.kind == reduce_scatter ? block * n : block);
    else
        comm.ranks->own().called = {asked.kind, asked.dtype, asked.op, asked.root, asked.count};
    comm.ranks->own().published = turn;
    const auto everyone_called = [&] {
        return comm.ranks->all([&](Seat& s) { return s.published >= turn; });
    };
    if (!wait_for(comm, everyone_called)) return false;
    // Other collectives or lengths wait for bytes that never come; types and operators go unseen.
    const auto same = [&](Seat& s) {
        return s.called.kind == asked.kind && s.called.root == asked.root &&
               s.called.count == asked.count;
    };
    if (!wait_for(comm, [&] { return comm.ranks->all(same); })) return false;
    take(comm, asked, block);
    comm.ranks->own().finished = turn;
    return true;
}

bool is_slow_to_abort(const Communicator& comm) {
    // `told` is checked first: a communicator that is being split off has no ranks yet.
    const int told = fake_cuda_told(fake_slow_abort);
    return told >= 0 && comm.ranks->rank() == told;
}

/// A kernel that has yet to see that it was aborted writes what it likes.
void linger(const Asked& asked) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (void* out = fake_cuda_touch(asked.out, bytes_of(asked)))
        std::memset(out, 7, bytes_of(asked));
}

// Across streams too they come in the order of their launch.
void run(Communicator& comm, const Asked& asked) {
    if (comm.abort || *comm.family) return;
    if (!wait_for(comm, [&] { return comm.over == asked.order - 1; })) return;
    comm.worked = true;
    if (asked.kind == exchange ? move_all(comm, asked) : meet_all(comm, asked))
        comm.over = asked.order;
    else if (asked.kind != exchange && is_slow_to_abort(comm))
        linger(asked);
}

struct Job {
    Communicator* comm;
    Asked asked;
};
void run_job(void* argument) {
    const std::unique_ptr<Job> job(static_cast<Job*>(argument));
    run(*job->comm, job->asked);
    fake_cuda_collective(job->comm->device, -1);
    --job->comm->running;
}

// ---- the calls ----------------------------------------------------------------------------------

int must_be_ready(Communicator* comm, const char* what) {
    if (comm->polls_left > 0 || comm->state == in_progress)
        fake_cuda_violation((std::string(what) + " while NCCL is in progress").c_str());
    if (comm->abort || comm->finalized)
        fake_cuda_violation((std::string(what) + " on a communicator that is over").c_str());
    return comm->state == in_progress ? invalid_usage : comm->state.load();
}

void begin(Communicator* comm, Asked asked) {
    ++comm->running;
    fake_cuda_collective(comm->device, +1);
    void* stream = asked.stream;
    asked.order = ++comm->launched;
    if (asked.kind != exchange) asked.turn = ++comm->collectives;
    comm->ranks->own().begun = 1;
    fake_cuda_enqueue(stream, run_job, new Job{comm, std::move(asked)});
}

void forget(Communicator* comm);

void forget_aborted(Communicator* comm) {
    if (!is_slow_to_abort(*comm)) return forget(comm);
    const std::lock_guard lock(forgetting_mutex);
    forgetting.emplace_back(forget, comm);
}

int end_group() {
    std::vector<std::pair<Communicator*, Asked>> all;
    all.swap(grouped);
    std::vector<Communicator*> aborted;
    aborted.swap(aborting);
    if (!all.empty() && !aborted.empty()) fake_cuda_violation("an abort in a group of launches");
    for (Communicator* comm : aborted) comm->abort = true;
    for (Communicator* comm : aborted) forget_aborted(comm);
    if (!aborted.empty()) ++group_aborts;
    std::set<Communicator*> touched;
    std::vector<std::pair<Communicator*, Asked>> merged;
    for (auto& [comm, asked] : all) {
        if (std::count(aborted.begin(), aborted.end(), comm) > 0) continue;
        touched.insert(comm);
        if (asked.kind == exchange && !merged.empty() && merged.back().first == comm &&
            merged.back().second.kind == exchange)
            merged.back().second.parts.push_back(asked.parts[0]);
        else
            merged.emplace_back(comm, std::move(asked));
    }
    for (auto& [comm, asked] : merged) begin(comm, std::move(asked));
    if (touched.size() > 1) ++shared_groups;
    bool all_blocking = true;
    for (Communicator* comm : touched) {
        if (!comm->blocking) comm->polls_left = 2;
        all_blocking &= comm->blocking;
    }
    if (!merged.empty() && fake_cuda_told(fake_fail_group) >= 0) return internal_error;
    return all_blocking ? ok : in_progress;
}

int call(Communicator* comm, Asked asked) {
    if (const int state = must_be_ready(comm, "a collective"); state != ok) return state;
    if (fake_cuda_told(fake_fail_launch) == comm->ranks->rank()) return internal_error;
    if (fake_cuda_told(fake_lose_launch) == comm->ranks->rank()) return remote_error;
    const bool sums =
        asked.kind == all_reduce || asked.kind == reduce || asked.kind == reduce_scatter;
    int generation = 0;
    cuDeviceGetAttribute(&generation, 75, comm->device);
    if (sums && asked.dtype >= 10 && generation < 9) return invalid_argument;
    if (fake_cuda_current() != comm->device)
        fake_cuda_violation("a collective with another device current");
    asked.stream = fake_cuda_stream(asked.stream);
    grouped.emplace_back(comm, std::move(asked));
    return depth > 0 ? ok : end_group();
}

void join(Communicator* comm) {
    const SharedRanks& ranks = *comm->ranks;
    ranks.own().joined = 1;
    if (!wait_for(*comm, [&] { return ranks.all([](Seat& s) { return s.joined == 1; }); })) return;
    int state = number("FAKE_NCCL_FAIL_JOIN", -1) == ranks.rank() ? internal_error : ok;
    for (int r = 0; r < ranks.size(); ++r)
        if (r != ranks.rank() && std::strcmp(ranks.seat(r).device, ranks.own().device) == 0)
            state = invalid_usage;
    comm->state = state;
}

void forget(Communicator* comm) {
    if (comm->joining.joinable()) comm->joining.join();
    for (std::thread& thread : comm->splitting) thread.join();
    while (comm->running > 0) pause();
    registered -= comm->registered;
    --live;
    delete comm;
}

}  // namespace

extern "C" {

int cuDeviceGetPCIBusId(char* name, int length, int device);

int ncclGetVersion(int* version) {
    return *version = number("FAKE_NCCL_VERSION", 22807), ok;
}
const char* ncclGetErrorString(int status) {
    return status == ok              ? "no error"
           : status == invalid_usage ? "invalid usage"
           : status == remote_error  ? "remote process exited or there was a network error"
                                     : "internal error";
}
const char* ncclGetLastError(void*) {
    return "the stand-in was told to fail";
}

struct Id {
    char bytes[128];
};
int ncclGetUniqueId(Id* id) {
    std::memset(id, 0, sizeof *id);
    const std::string path = SharedRanks::make();
    std::memcpy(id->bytes, path.data(), path.size());
    return ok;
}
struct Config {
    std::size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char* net_name;
    int split_share;
};
int ncclCommInitRankConfig(Communicator** out, int size, Id id, int rank, Config* config) {
    if (config->magic != 0xcafebeef || config->blocking != 0)
        fake_cuda_violation("a communicator that blocks");
    auto* comm = new Communicator;
    comm->ranks = std::make_shared<SharedRanks>(id.bytes, rank, size);
    comm->family = std::make_shared<std::atomic<bool>>(false);
    comm->shares = config->split_share == 1;
    comm->device = fake_cuda_current();
    if (comm->device < 0) fake_cuda_violation("a communicator without a current device");
    cuDeviceGetPCIBusId(comm->ranks->own().device, 32, std::max(0, comm->device));
    comm->joining = std::thread(join, comm);
    ++live;
    *out = comm;
    return in_progress;
}
int ncclCommInitRank(Communicator** out, int size, Id id, int rank) {
    Config config{sizeof(Config), 0xcafebeef, 21800, 0, 0, 0, 0, nullptr, 0};
    ncclCommInitRankConfig(out, size, id, rank, &config);
    (*out)->blocking = true;
    while ((*out)->state == in_progress) std::this_thread::sleep_for(std::chrono::microseconds(30));
    return (*out)->state;
}
int ncclCommGetAsyncError(Communicator* comm, int* state) {
    // A rank that was told to breaks down once it has worked.
    if (comm->state == ok && comm->worked && fake_cuda_told(fake_break_down) == comm->ranks->rank())
        comm->state = internal_error;
    *state = comm->state;
    if (comm->polls_left > 0 && comm->state == ok) {
        --comm->polls_left;
        *state = in_progress;
    }
    // Told to, it connects with its first collective, for which it needs all ranks'.
    if (comm->state == ok && comm->launched > 0 && number("FAKE_NCCL_CONNECTS", 0) == 1 &&
        !comm->ranks->all([](Seat& s) { return s.begun == 1; }))
        *state = in_progress;
    // Or it takes no second while another is on the device.
    if (comm->state == ok && comm->running > 1 && number("FAKE_NCCL_CONNECTS", 0) == 2)
        *state = in_progress;
    return ok;
}
int ncclCommFinalize(Communicator* comm) {
    if (comm->running > 0) fake_cuda_violation("a communicator finalized while it works");
    comm->polls_left = 1;
    comm->finalized = true;
    return in_progress;
}
int ncclCommDestroy(Communicator* comm) {
    fake_cuda_may_wait("a communicator destroyed");
    if (!comm->finalized && !comm->blocking)
        fake_cuda_violation("a communicator destroyed that was not finalized");
    if (comm->registered > 0)
        fake_cuda_violation("a communicator destroyed that still knows memory");
    forget(comm);
    return ok;
}
int ncclCommAbort(Communicator* comm) {
    fake_cuda_may_wait("a communicator aborted");
    if (comm->abort || std::count(aborting.begin(), aborting.end(), comm) > 0)
        fake_cuda_violation("a communicator aborted twice");
    if (depth == 0) fake_cuda_violation("a communicator aborted outside of a group");
    *comm->family = true;
    aborting.push_back(comm);
    return depth > 0 ? ok : end_group();
}
int ncclGroupStart() {
    return ++depth, ok;
}
int ncclGroupEnd() {
    if (depth == 0) {
        fake_cuda_violation("a group ended that was not begun");
        return invalid_usage;
    }
    return --depth > 0 ? ok : end_group();
}

// Ranks that share the parent's resources; where they meet is a name that the parent's can work
// out: its file, how often it was split, and the colour.
int ncclCommSplit(Communicator* parent, int color, int key, Communicator** out, Config* config) {
    if (const int state = must_be_ready(parent, "a split"); state != ok) return state;
    parent->polls_left = 1;
    *out = nullptr;
    // A split returns at once; a thread waits for the other ranks.
    if (color < 0) {
        parent->splitting.emplace_back([parent, color, key, ranks = parent->ranks] {
            ranks->split(color, key, [&] { return parent->abort || *parent->family; });
        });
        return in_progress;
    }
    auto* comm = new Communicator;
    // The parent's own setting is what counts.
    comm->family = parent->shares ? parent->family : std::make_shared<std::atomic<bool>>(false);
    comm->shares = config->split_share == 1;
    comm->device = parent->device;
    comm->joining = std::thread([comm, color, key, ranks = parent->ranks, own = parent->family] {
        const auto meeting = ranks->split(color, key, [&] { return comm->abort || *own; });
        if (meeting.size == 0) return;
        comm->ranks = std::make_shared<SharedRanks>(meeting.path, meeting.rank, meeting.size);
        cuDeviceGetPCIBusId(comm->ranks->own().device, 32, std::max(0, comm->device));
        join(comm);
    });
    ++live;
    *out = comm;
    return in_progress;
}

int ncclMemAlloc(void** memory, std::size_t bytes) {
    const int device = fake_cuda_current();
    if (device < 0) return invalid_usage;
    *memory = fake_cuda_alloc(device, bytes);
    ++live_windows;
    return ok;
}
int ncclMemFree(void* memory) {
    fake_cuda_free(memory);
    --live_windows;
    return ok;
}
int ncclCommRegister(Communicator* comm, void* memory, std::size_t bytes, void** handle) {
    if (const int state = must_be_ready(comm, "a registration"); state != ok) return state;
    if (!fake_cuda_touch(memory, bytes)) fake_cuda_violation("memory registered out of bounds");
    ++registered;
    ++comm->registered;
    *handle = memory;
    return ok;
}
int ncclCommDeregister(Communicator* comm, void*) {
    if (const int state = must_be_ready(comm, "a deregistration"); state != ok) return state;
    --registered;
    --comm->registered;
    return ok;
}
// Collective: done when all have come as often.
int ncclCommWindowRegister(Communicator* comm, void* memory, std::size_t bytes, void** window,
                           int flags) {
    if (flags != 1) fake_cuda_violation("a window that is not symmetric");
    const int status = ncclCommRegister(comm, memory, bytes, window);
    if (status != ok) return status;
    const int mine = ++comm->ranks->own().windows;
    const bool all = wait_for(
        *comm, [&] { return comm->ranks->all([&](Seat& s) { return s.windows >= mine; }); });
    return all ? ok : internal_error;
}
int ncclCommWindowDeregister(Communicator* comm, void* window) {
    return ncclCommDeregister(comm, window);
}

int ncclAllReduce(const void* in, void* out, std::size_t count, int dtype, int op,
                  Communicator* comm, void* stream) {
    return call(comm, {all_reduce, dtype, op, 0, in, out, count, stream, {}});
}
int ncclBroadcast(const void* in, void* out, std::size_t count, int dtype, int root,
                  Communicator* comm, void* stream) {
    return call(comm, {broadcast, dtype, 0, root, in, out, count, stream, {}});
}
int ncclReduce(const void* in, void* out, std::size_t count, int dtype, int op, int root,
               Communicator* comm, void* stream) {
    return call(comm, {reduce, dtype, op, root, in, out, count, stream, {}});
}
int ncclAllGather(const void* in, void* out, std::size_t count, int dtype, Communicator* comm,
                  void* stream) {
    return call(comm, {all_gather, dtype, 0, 0, in, out, count, stream, {}});
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int dtype, int op,
                      Communicator* comm, void* stream) {
    return call(comm, {reduce_scatter, dtype, op, 0, in, out, count, stream, {}});
}
int ncclSend(const void* in, std::size_t bytes, int, int peer, Communicator* comm, void* stream) {
    return call(comm,
                {exchange, 1, 0, 0, nullptr, nullptr, 0, stream, {{peer, in, nullptr, bytes}}});
}
int ncclRecv(void* out, std::size_t bytes, int, int peer, Communicator* comm, void* stream) {
    return call(comm,
                {exchange, 1, 0, 0, nullptr, nullptr, 0, stream, {{peer, nullptr, out, bytes}}});
}
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int dtype, int residence, Communicator* comm) {
    if (residence != 1) return invalid_argument;
    auto made = std::make_unique<PremulOp>();
    made->dtype = dtype;
    std::memcpy(made->scalar, scalar, tutti::dtype_bytes(dtypes[dtype]));
    comm->premuls.push_back(std::move(made));
    *op = built_in_ops + static_cast<int>(comm->premuls.size()) - 1;
    return ok;
}
int ncclRedOpDestroy(int op, Communicator*) {
    return op >= built_in_ops ? ok : invalid_argument;
}

/// Communicators that exist, and memory that was allocated here.
int fake_nccl_live() {
    const std::lock_guard lock(forgetting_mutex);
    for (std::thread& thread : std::exchange(forgetting, {})) thread.join();
    return live + live_windows;
}
int fake_nccl_registered() {
    return registered;
}
/// Groups with the work of several communicators, and with aborted ones.
int fake_nccl_shared_groups() {
    return shared_groups;
}
int fake_nccl_group_aborts() {
    return group_aborts;
}
}
