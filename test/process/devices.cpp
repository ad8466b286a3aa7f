// A rank on the stand-in GPU: the C API's side of device memory, in processes of their own.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "process/rank.h"
#include "tutti/inspect.h"

using namespace rank_test;

namespace {

// The stand-in driver's own entry points; its process has it loaded, as a framework would have.
struct Stand {
    void* (*alloc)(int, std::size_t) = nullptr;
    void (*poke)(void*, const void*, std::size_t) = nullptr;
    void (*peek)(void*, const void*, std::size_t) = nullptr;
    void (*increment)(void*, void*, std::size_t, int) = nullptr;
    const char* (*violations)() = nullptr;
    int (*live)() = nullptr;

    Stand() {
        void* handle = dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW);
        require(handle != nullptr, "the stand-in driver");
        const auto load = [&](auto& function, const char* name) {
            function =
                reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
        };
        load(alloc, "fake_cuda_alloc");
        load(poke, "fake_cuda_poke");
        load(peek, "fake_cuda_peek");
        load(increment, "fake_cuda_increment");
        load(violations, "fake_cuda_violations");
        load(live, "fake_cuda_live");
    }
};
const Stand& stand() {
    static const Stand made;
    return made;
}

constexpr std::size_t count = 3000;

/// The process's GPU: DEVICE, or the number of its first rank. It keeps it when its rank changes.
int own_device() {
    static const int device = std::getenv("DEVICE") ? std::atoi(std::getenv("DEVICE")) : rank_of;
    return device;
}

/// Floats on this rank's device.
struct Floats {
    explicit Floats(float value, int device = own_device())
        : at(stand().alloc(device, count * sizeof(float))) {
        const std::vector<float> values(count, value);
        stand().poke(at, values.data(), count * sizeof(float));
    }
    bool all(float value) const {
        std::vector<float> values(count);
        stand().peek(values.data(), at, count * sizeof(float));
        return values == std::vector<float>(count, value);
    }
    void* at;
};

float total() {
    return static_cast<float>(ranks * (ranks + 1)) / 2;
}

/// The one to the other, as a plan that is destroyed before it is launched.
void gathered(tutti_comm* comm, const void* in, const Floats& out) {
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce(comm, count, TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan), "plan");
    tutti_request* request = nullptr;
    need(tutti_launch_start(), "launch");
    need(tutti_plan_start(plan, in, out.at, &request), "start");
    tutti_plan_destroy(plan);
    expect_error(tutti_wait(&request, -1), TUTTI_ERR_INVALID, "tutti_launch_end");
    require(tutti_test(&request) == TUTTI_IN_PROGRESS, "polled");
    need(tutti_launch_end(), "launch");
    need(tutti_wait(&request, -1), "wait");
    require(out.all(total()), "what was gathered");
}

void collectives(tutti_comm* comm) {
    const Floats in(static_cast<float>(rank_of + 1)), out(0);
    need(tutti_allreduce(comm, in.at, out.at, count, TUTTI_FLOAT32, TUTTI_SUM), "allreduce");
    need(tutti_comm_sync(comm, -1), "sync");
    require(out.all(total()), "the sums");
    need(tutti_allreduce(comm, in.at, out.at, count, TUTTI_FLOAT32, TUTTI_MAX), "allreduce");
    need(tutti_broadcast(comm, in.at, count, TUTTI_FLOAT32, ranks - 1), "broadcast");
    need(tutti_comm_sync(comm, -1), "sync");
    require(out.all(static_cast<float>(ranks)) && in.all(static_cast<float>(ranks)), "the largest");
    // NCCL has no scan: through the host.
    need(tutti_scan(comm, in.at, out.at, count, TUTTI_FLOAT32, TUTTI_SUM), "scan");
    need(tutti_comm_sync(comm, -1), "sync");
    require(out.all(static_cast<float>(ranks * (rank_of + 1))), "the prefixes");
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.algorithm = "staged";
    need(tutti_iallreduce(comm, in.at, in.at, count, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request));
    need(tutti_wait(&request, -1), "wait");
    require(in.all(static_cast<float>(ranks * ranks)), "staged");
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce(comm, count, TUTTI_FLOAT32, TUTTI_MIN, nullptr, &plan), "plan");
    need(tutti_plan_run(plan, in.at, out.at), "run");
    need(tutti_comm_sync(comm, -1), "sync");
    tutti_plan_destroy(plan);
    require(out.all(static_cast<float>(ranks * ranks)), "by a plan");
    const Floats one(1), two(2);
    const void* inputs[] = {one.at, two.at, one.at};
    for (int round = 0; round < 2; ++round) {
        need(tutti_allreduce_multi(comm, inputs, 3, two.at, count, TUTTI_FLOAT32, TUTTI_SUM));
        need(tutti_comm_sync(comm, -1), "sync");
        // 1 + 2 + 1, and then with the sums in the place of the 2
        require(two.all(static_cast<float>(round == 0 ? 4 * ranks : (4 * ranks + 2) * ranks)),
                "of several inputs");
    }
}

void on_shared(tutti_comm* comm, int device, const char* named) {
    const Floats data(1, device);
    for (const char* algorithm : {"", named}) {
        tutti_request* request = nullptr;
        tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
        opts.algorithm = algorithm;
        need(tutti_iallreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM, &opts,
                              &request));
        need(tutti_wait(&request, -1), "wait");
    }
    require(data.all(static_cast<float>(ranks * ranks)), "the sums");
}

/// Each host's ranks have the same GPUs: no NCCL communicator of all, but one of each host.
void shared(tutti_comm* comm) {
    on_shared(comm, rank_of % 2, "hierarchical");
}
/// The ranks of a host have one GPU.
void one_gpu_a_host(tutti_comm* comm) {
    on_shared(comm, rank_of / 2, "staged");
}

void parts(tutti_comm* comm) {
    tutti_comm* part = nullptr;
    need(tutti_comm_split(comm, rank_of % 2, 0, &part), "split");
    const Floats data(1);
    need(tutti_allreduce(part, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM), "on the part");
    need(tutti_comm_sync(part, -1), "sync");
    require(data.all(static_cast<float>(tutti_comm_size(part))), "the part's values");
    need(tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_MAX), "on the whole");
    need(tutti_comm_sync(comm, -1), "sync");
    require(data.all(static_cast<float>((ranks + 1) / 2)), "the whole's values");
    need(tutti_comm_destroy(part), "destroy");
}

/// Through the host, the ranks do not join NCCL, which windows need.
bool joins_nccl() {
    const char* path = std::getenv("TUTTI_DEVICE");
    return !path || std::strcmp(path, "staged") != 0;
}

/// Round the ranks into memory that all know.
void messages_in_a_window(tutti_comm* comm, const Floats& mine, int next, int before) {
    const Floats again(0);
    void* window = nullptr;
    need(tutti_mem_alloc_device(comm, count * sizeof(float), &window), "a window");
    need(tutti_group_start(comm), "group");
    need(tutti_send(comm, mine.at, count, TUTTI_FLOAT32, next, 0), "send");
    need(tutti_recv(comm, window, count, TUTTI_FLOAT32, before, 0, nullptr), "recv");
    need(tutti_group_end(comm), "group");
    gathered(comm, window, again);
    need(tutti_mem_free(comm, window), "free");
}

/// Round the ranks in every form that there is, and into memory that all know.
void messages(tutti_comm* comm) {
    need(tutti_comm_use_device(comm, own_device()), "use");
    const int next = (rank_of + 1) % ranks, before = (rank_of + ranks - 1) % ranks;
    const auto theirs = static_cast<float>(before + 1);
    const Floats mine(static_cast<float>(rank_of + 1)), got(0);
    tutti_recv_status status{};
    need(tutti_sendrecv(comm, mine.at, count, next, 3, got.at, count, before, 3, TUTTI_FLOAT32,
                        &status));
    need(tutti_comm_sync(comm, -1), "sync");
    require(got.all(theirs) && status.source == before && status.count == count, "sendrecv");
    if (joins_nccl()) messages_in_a_window(comm, mine, next, before);
    // In the stand-in, messages are a collective of all ranks.
    if (ranks > 2) return;
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    if (rank_of == 0)
        need(tutti_isend(comm, mine.at, count, TUTTI_FLOAT32, next, 1, &opts, &request));
    else
        need(tutti_irecv(comm, got.at, count, TUTTI_FLOAT32, 0, 1, &status, &opts, &request));
    need(tutti_wait(&request, -1), "wait");
    if (rank_of == 1) require(got.all(1) && status.tag == 1, "irecv");
}

void wrong(tutti_comm* comm) {
    const Floats data(1);
    std::vector<float> host(count);
    expect_error(tutti_allreduce(comm, data.at, host.data(), count, TUTTI_FLOAT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "put both buffers on one GPU");
    expect_error(tutti_send(comm, data.at, count, TUTTI_FLOAT32, 0, 1), TUTTI_ERR_UNSUPPORTED,
                 "tutti_comm_use_device");
    expect_error(tutti_launch_end(), TUTTI_ERR_INVALID, "has not called tutti_launch_start");
    void* window = nullptr;
    expect_error(tutti_mem_alloc_device(comm, 100, &window), TUTTI_ERR_UNSUPPORTED,
                 "tutti_comm_use_device");
    need(tutti_mem_register(comm, data.at, 100, -1), "register");
    expect_error(tutti_mem_free(comm, data.at), TUTTI_ERR_INVALID, "has not allocated");
    need(tutti_mem_deregister(comm, data.at), "deregister");
    expect_error(tutti_mem_deregister(comm, data.at), TUTTI_ERR_INVALID, "has not registered");
    double us = 0;
    need(tutti_estimate_begin(comm), "estimate");
    expect_error(tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM),
                 TUTTI_ERR_UNSUPPORTED, "cannot estimate the time of collectives on device memory");
    need(tutti_estimate_end(comm, &us), "estimate");
    const void* inputs[] = {data.at, host.data()};
    expect_error(tutti_allreduce_multi(comm, inputs, 2, data.at, count, TUTTI_FLOAT32, TUTTI_SUM),
                 TUTTI_ERR_INVALID, "input 1 is in host memory");
    const tutti_op op = rank_of == 0 ? TUTTI_MAX : TUTTI_SUM;
    // The others' call may be known at the launch already.
    const tutti_status launched = tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, op);
    expect_error(launched == TUTTI_OK ? tutti_comm_sync(comm, -1) : launched, TUTTI_ERR_MISMATCH,
                 "collective mismatch");
    const Floats again(1);
    need(tutti_allreduce(comm, again.at, again.at, count, TUTTI_FLOAT32, TUTTI_SUM), "again");
    need(tutti_comm_sync(comm, -1), "sync");
    require(again.all(static_cast<float>(ranks)), "the communicator works on");
}

/// The last rank dies with a collective under way.
void death(tutti_comm* comm) {
    const Floats data(1);
    need(tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM), "allreduce");
    need(tutti_comm_sync(comm, -1), "sync");
    // Not before the others are done with the first.
    int word = 0;
    const int last = ranks - 1;
    if (rank_of != last) need(tutti_send(comm, &word, 1, TUTTI_INT32, last, 0), "send");
    for (int r = 0; rank_of == last && r < last; ++r)
        need(tutti_recv(comm, &word, 1, TUTTI_INT32, r, 0, nullptr), "receive");
    if (rank_of == last) ::_exit(0);
    // The loss is noticed at the launch already, or while waiting for it.
    const tutti_status launched =
        tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM);
    expect_error(launched == TUTTI_OK ? tutti_comm_sync(comm, -1) : launched, TUTTI_ERR_PEER_LOST,
                 "is gone");
    require(tutti_last_error_rank() == ranks - 1, "the rank at fault");
}

/// All paths of device memory on this communicator, a copy and a part of it.
void use_all(tutti_comm* comm) {
    rank_of = tutti_comm_rank(comm);
    ranks = tutti_comm_size(comm);
    collectives(comm);
    messages(comm);
    parts(comm);
    tutti_comm* copy = nullptr;
    need(tutti_comm_dup(comm, &copy), "dup");
    collectives(copy);
    need(tutti_comm_destroy(copy), "destroy");
}

/// The rank VICTIM is killed. The others go on without it, and then with a new process.
void replaced(tutti_comm* comm) {
    if (std::getenv("TUTTI_JOIN")) return use_all(comm);
    use_all(comm);
    need(tutti_barrier(comm), "barrier");
    if (rank_of == std::atoi(std::getenv("VICTIM"))) ::raise(SIGKILL);
    const Floats data(1);
    tutti_status status = tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM);
    if (status == TUTTI_OK) status = tutti_comm_sync(comm, -1);
    require(status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_REVOKED, "the loss is noticed");
    need(tutti_comm_revoke(comm), "revoke");
    tutti_comm *smaller = nullptr, *larger = nullptr;
    need(tutti_comm_shrink(comm, &smaller), "shrink");
    require(tutti_comm_size(smaller) == ranks - 1, "the survivors");
    use_all(smaller);
    need(tutti_comm_grow(smaller, 1, &larger), "grow");
    require(tutti_comm_size(larger) == ranks + 1, "the survivors and the newcomer");
    use_all(larger);
    need(tutti_comm_destroy(larger), "destroy");
    need(tutti_comm_destroy(smaller), "destroy");
}

void absent(tutti_comm* comm) {
    const Floats data(1);
    std::vector<float> host(count, 1);
    expect_error(tutti_allreduce(comm, data.at, data.at, count, TUTTI_FLOAT32, TUTTI_SUM),
                 TUTTI_ERR_UNSUPPORTED, std::getenv("EXPECTED"));
    need(tutti_allreduce(comm, host.data(), host.data(), count, TUTTI_FLOAT32, TUTTI_SUM), "host");
    require(host[0] == static_cast<float>(ranks), "the host's values");
}

void without_driver(tutti_comm* comm) {
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.device_stream = &opts;
    std::vector<float> host(count, 1);
    expect_error(tutti_iallreduce(comm, host.data(), host.data(), count, TUTTI_FLOAT32, TUTTI_SUM,
                                  &opts, &request),
                 TUTTI_ERR_UNSUPPORTED, "TUTTI_CUDA_LIBRARY");
    expect_error(tutti_comm_set_device_stream(comm, &opts), TUTTI_ERR_UNSUPPORTED, "libcuda.so.1");
    expect_error(tutti_sync_calc_stream(comm, &opts), TUTTI_ERR_UNSUPPORTED, "CUDA driver");
}

}  // namespace

int main(int argc, char** argv) {
    const int result = run_case(argc, argv,
                                {{"collectives", collectives},
                                 {"parts", parts},
                                 {"shared", shared},
                                 {"one_gpu_a_host", one_gpu_a_host},
                                 {"messages", messages},
                                 {"wrong", wrong},
                                 {"death", death},
                                 {"replaced", replaced},
                                 {"absent", absent},
                                 {"without_driver", without_driver}});
    if (argc > 1 && std::strcmp(argv[1], "without_driver") == 0) return result;
    require(std::strcmp(stand().violations(), "") == 0, stand().violations());
    require(stand().live() == 0, "handles of the driver are left");
    return result;
}
