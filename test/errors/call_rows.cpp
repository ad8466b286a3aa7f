// Calls of one rank that are refused: options, operators, memory, plans, groups and devices.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "tutti/inspect.h"

namespace errors_test::calls {
namespace {

/// A job of one rank and what its calls need.
struct Scene {
    Ledger& ledger;
    tutti_comm* comm;
    tutti_comm* other;  // another communicator of one rank
    std::array<float, 64> data{};
    tutti_request* request = nullptr;
    tutti_plan* plan = nullptr;
    tutti_op op = -1;
    char text[64] = "";
    void* memory = nullptr;
};

struct Row {
    const char* what;
    Want want;
    tutti_status (*call)(Scene& s);
};

template <std::size_t N>
void take_all(Scene& scene, const Row (&rows)[N]) {
    for (const Row& row : rows) scene.ledger.take(row.what, row.call(scene), row.want);
}

tutti_call_opts opts_with(void (*change)(tutti_call_opts&)) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    change(opts);
    return opts;
}

tutti_status start_with(Scene& s, void (*change)(tutti_call_opts&)) {
    const tutti_call_opts opts = opts_with(change);
    return tutti_iallreduce(s.comm, s.data.data(), s.data.data(), 4, TUTTI_FLOAT32, TUTTI_SUM,
                            &opts, &s.request);
}

tutti_status plan_with(Scene& s, void (*change)(tutti_call_opts&)) {
    const tutti_call_opts opts = opts_with(change);
    return tutti_plan_broadcast(s.comm, 4, TUTTI_FLOAT32, 0, &opts, &s.plan);
}

tutti_status begin_named(Scene& s, const char* name) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.name = name;
    return tutti_ibarrier(s.comm, &opts, &s.request);
}

int a_stream = 0;  // its address stands for a device stream

const Row option_rows[] = {
    {"options of no size",
     {.names = "tutti_iallreduce", .reporter = 0},
     [](Scene& s) { return start_with(s, [](tutti_call_opts& o) { o.struct_size = 0; }); }},
    {"a plan's options of no size",
     {.names = "tutti_plan_broadcast", .reporter = 0},
     [](Scene& s) { return plan_with(s, [](tutti_call_opts& o) { o.struct_size = 0; }); }},
    {"a stream past the last",
     {.names = "ring 99", .reporter = 0},
     [](Scene& s) { return start_with(s, [](tutti_call_opts& o) { o.stream = 99; }); }},
    {"a plan's stream past the last",
     {.names = "ring 98", .reporter = 0},
     [](Scene& s) { return plan_with(s, [](tutti_call_opts& o) { o.stream = 98; }); }},
    {"an unknown algorithm",
     {TUTTI_ERR_UNSUPPORTED, "magic", 0},
     [](Scene& s) { return start_with(s, [](tutti_call_opts& o) { o.algorithm = "magic"; }); }},
    {"an unknown algorithm of a plan",
     {TUTTI_ERR_UNSUPPORTED, "wizardry", 0},
     [](Scene& s) { return plan_with(s, [](tutti_call_opts& o) { o.algorithm = "wizardry"; }); }},
    {"an algorithm of several hosts on one",
     {TUTTI_ERR_UNSUPPORTED, "hierarchical", 0},
     [](Scene& s) {
         return start_with(s, [](tutti_call_opts& o) { o.algorithm = "hierarchical"; });
     }},
    {"data of another dtype on the wire",
     {TUTTI_ERR_UNSUPPORTED, "tutti_iallreduce", 0},
     [](Scene& s) {
         return start_with(s, [](tutti_call_opts& o) { o.wire_dtype = TUTTI_BFLOAT16; });
     }},
    {"a name that is too long",
     {.names = "a name of many letters", .reporter = 0},
     [](Scene& s) { return begin_named(s, "a name of many letters"); }},
    {"a name with other signs",
     {.names = "semi;colon", .reporter = 0},
     [](Scene& s) { return begin_named(s, "semi;colon"); }},
    {"a message's options of no size",
     {.names = "tutti_isend", .reporter = 0},
     [](Scene& s) {
         const tutti_call_opts opts = opts_with([](tutti_call_opts& o) { o.struct_size = 0; });
         return tutti_isend(s.comm, s.data.data(), 1, TUTTI_FLOAT32, 0, 0, &opts, &s.request);
     }},
    {"a receive's options of no size",
     {.names = "tutti_irecv", .reporter = 0},
     [](Scene& s) {
         const tutti_call_opts opts = opts_with([](tutti_call_opts& o) { o.struct_size = 0; });
         return tutti_irecv(s.comm, s.data.data(), 1, TUTTI_FLOAT32, 0, 0, nullptr, &opts,
                            &s.request);
     }},
};

void combine_nothing(const void*, const void*, void*, size_t, tutti_dtype, void*) {}

tutti_op_spec operator_spec(std::size_t item_elements = 1) {
    tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
    spec.combine = combine_nothing;
    spec.item_elements = item_elements;
    return spec;
}

tutti_status create_operator(Scene& s, const std::function<void(tutti_op_spec&)>& change) {
    tutti_op_spec spec = operator_spec();
    change(spec);
    return tutti_op_create(&spec, &s.op);
}

tutti_status sum_with(Scene& s, tutti_op op, std::size_t count = 4,
                      tutti_dtype dtype = TUTTI_FLOAT32) {
    return tutti_allreduce(s.comm, s.data.data(), s.data.data(), count, dtype, op);
}

// Runs call with an operator of so many elements an item, which ends afterwards.
template <typename Call>
tutti_status with_operator(std::size_t item_elements, Call&& call) {
    const tutti_op_spec spec = operator_spec(item_elements);
    tutti_op op = -1;
    if (tutti_op_create(&spec, &op) != TUTTI_OK) return TUTTI_OK;
    const tutti_status status = call(op);
    tutti_op_destroy(op);
    return status;
}

template <typename Call>
tutti_status with_premul_sum(tutti_comm* comm, Call&& call) {
    const float half = 0.5F;
    tutti_op op = -1;
    if (tutti_op_create_premul_sum(comm, &half, TUTTI_FLOAT32, &op) != TUTTI_OK) return TUTTI_OK;
    const tutti_status status = call(op);
    tutti_op_destroy(op);
    return status;
}

tutti_op destroyed_operator() {
    const tutti_op_spec spec = operator_spec();
    tutti_op op = -1;
    tutti_op_create(&spec, &op);
    tutti_op_destroy(op);
    return op;
}

const Row operator_rows[] = {
    {"an operator's specification of no size",
     {.names = "tutti_op_create"},
     [](Scene& s) { return create_operator(s, [](tutti_op_spec& o) { o.struct_size = 0; }); }},
    {"an operator without a function",
     {.names = "spec.combine"},
     [](Scene& s) { return create_operator(s, [](tutti_op_spec& o) { o.combine = nullptr; }); }},
    {"an operator of items without elements",
     {.names = "spec.item_elements"},
     [](Scene& s) { return create_operator(s, [](tutti_op_spec& o) { o.item_elements = 0; }); }},
    {"an operator of long items",
     {.names = "spec.item_elements"},
     [](Scene& s) { return create_operator(s, [](tutti_op_spec& o) { o.item_elements = 65; }); }},
    {"destroying a built-in operator",
     {.names = "avg"},
     [](Scene&) { return tutti_op_destroy(TUTTI_AVG); }},
    {"destroying no operator",
     {.names = "1073741824"},
     [](Scene&) { return tutti_op_destroy(1 << 30); }},
    {"destroying an operator twice",
     {.names = "operator"},
     [](Scene&) { return tutti_op_destroy(destroyed_operator()); }},
    {"a destroyed operator",
     {.names = "allreduce", .reporter = 0},
     [](Scene& s) { return sum_with(s, destroyed_operator()); }},
    {"a scalar of no dtype",
     {.names = "tutti_op_create_premul_sum", .reporter = 0},
     [](Scene& s) { return tutti_op_create_premul_sum(s.comm, s.data.data(), 77, &s.op); }},
    {"a pre-multiplied sum of another communicator",
     {.names = "allreduce", .reporter = 0},
     [](Scene& s) {
         return with_premul_sum(s.other, [&](tutti_op op) { return sum_with(s, op); });
     }},
    {"a pre-multiplied sum of another dtype",
     {.names = "float64", .reporter = 0},
     [](Scene& s) {
         return with_premul_sum(s.comm,
                                [&](tutti_op op) { return sum_with(s, op, 4, TUTTI_FLOAT64); });
     }},
    {"elements that are no whole items",
     {.names = "allreduce", .reporter = 0},
     [](Scene& s) { return with_operator(2, [&](tutti_op op) { return sum_with(s, op, 3); }); }},
    {"items of too many bytes",
     {.names = "float64", .reporter = 0},
     [](Scene& s) {
         return with_operator(16, [&](tutti_op op) { return sum_with(s, op, 16, TUTTI_FLOAT64); });
     }},
    {"the average of a scan",
     {.names = "scan", .reporter = 0},
     [](Scene& s) {
         return tutti_scan(s.comm, s.data.data(), s.data.data(), 4, TUTTI_FLOAT32, TUTTI_AVG);
     }},
    {"no inputs",
     {.names = "tutti_allreduce_multi", .reporter = 0},
     [](Scene& s) {
         const void* ins[] = {s.data.data()};
         return tutti_allreduce_multi(s.comm, ins, 0, s.data.data(), 4, TUTTI_FLOAT32, TUTTI_SUM);
     }},
    {"an input that is missing",
     {.names = "ins[1]", .reporter = 0},
     [](Scene& s) {
         const void* ins[] = {s.data.data(), nullptr};
         return tutti_allreduce_multi(s.comm, ins, 2, s.data.data(), 4, TUTTI_FLOAT32, TUTTI_SUM);
     }},
};

const Row memory_rows[] = {
    {"memory without end",
     {TUTTI_ERR_NO_MEMORY, "bytes", 0, 0},
     [](Scene& s) { return tutti_mem_alloc(s.comm, SIZE_MAX, &s.memory); }},
    {"more memory than there is",
     {TUTTI_ERR_NO_MEMORY, "bytes", 0, 0},
     [](Scene& s) { return tutti_mem_alloc(s.comm, SIZE_MAX / 4, &s.memory); }},
    {"freeing what was not allocated",
     {.names = "tutti_mem_free", .reporter = 0},
     [](Scene& s) { return tutti_mem_free(s.comm, s.data.data()); }},
    {"freeing what was not allocated, without a communicator",
     {.names = "tutti_mem_free"},
     [](Scene& s) { return tutti_mem_free(nullptr, s.data.data()); }},
    {"registering no bytes",
     {.names = "tutti_mem_register", .reporter = 0},
     [](Scene& s) { return tutti_mem_register(s.comm, s.data.data(), 0, -1); }},
    {"registering bytes past the end of memory",
     {.names = "tutti_mem_register", .reporter = 0},
     [](Scene& s) { return tutti_mem_register(s.comm, s.data.data(), SIZE_MAX, -1); }},
    {"registering with a descriptor",
     {TUTTI_ERR_UNSUPPORTED, "tutti_mem_register", 0},
     [](Scene& s) { return tutti_mem_register(s.comm, s.data.data(), 64, 7); }},
    {"registering twice",
     {.names = "tutti_mem_register", .reporter = 0},
     [](Scene& s) {
         tutti_mem_register(s.comm, s.data.data(), 64, -1);
         return tutti_mem_register(s.comm, s.data.data(), 64, -1);
     }},
    {"deregistering another address",
     {.names = "tutti_mem_deregister", .reporter = 0},
     [](Scene& s) { return tutti_mem_deregister(s.comm, s.data.data() + 1); }},
};

const Row inspection_rows[] = {
    {"ending an estimate that has not begun",
     {.names = "tutti_estimate_end", .reporter = 0},
     [](Scene& s) {
         double us = 0;
         return tutti_estimate_end(s.comm, &us);
     }},
    {"beginning an estimate in another one",
     {.names = "tutti_estimate_begin", .reporter = 0},
     [](Scene& s) {
         double us = 0;
         tutti_estimate_begin(s.comm);
         const tutti_status status = tutti_estimate_begin(s.comm);
         tutti_estimate_end(s.comm, &us);
         return status;
     }},
    {"a message in an estimate",
     {TUTTI_ERR_UNSUPPORTED, "tutti_send", 0},
     [](Scene& s) {
         double us = 0;
         tutti_estimate_begin(s.comm);
         const tutti_status status = tutti_send(s.comm, s.data.data(), 1, TUTTI_FLOAT32, 0, 0);
         tutti_estimate_end(s.comm, &us);
         return status;
     }},
    {"memory statistics of no known size",
     {.names = "tutti_comm_memory", .reporter = 0},
     [](Scene& s) {
         tutti_memory_stats stats = TUTTI_MEMORY_STATS_INIT;
         stats.struct_size = 8;
         return tutti_comm_memory(s.comm, &stats);
     }},
};

const Row list_rows[] = {
    {"a root's block of another length than its list says",
     {.names = "gatherv", .reporter = 0},
     [](Scene& s) {
         const std::size_t counts[] = {5};
         return tutti_gatherv(s.comm, s.data.data(), 4, s.data.data() + 8, counts, nullptr,
                              TUTTI_FLOAT32, 0);
     }},
    {"a scattered block of another length than its list says",
     {.names = "scatterv", .reporter = 0},
     [](Scene& s) {
         const std::size_t counts[] = {5};
         return tutti_scatterv(s.comm, s.data.data(), counts, nullptr, s.data.data() + 8, 4,
                               TUTTI_FLOAT32, 0);
     }},
    {"a block for itself of two lengths",
     {.names = "alltoallv", .reporter = 0},
     [](Scene& s) {
         const std::size_t in[] = {3}, out[] = {4};
         return tutti_alltoallv(s.comm, s.data.data(), in, nullptr, s.data.data() + 8, out, nullptr,
                                TUTTI_FLOAT32);
     }},
    {"blocks in place at two places",
     {.names = "alltoallv", .reporter = 0},
     [](Scene& s) {
         const std::size_t counts[] = {3}, in[] = {0}, out[] = {4};
         return tutti_alltoallv(s.comm, s.data.data(), counts, in, s.data.data(), counts, out,
                                TUTTI_FLOAT32);
     }},
    {"a block past the end of memory",
     {.names = "allgatherv", .reporter = 0},
     [](Scene& s) {
         const std::size_t counts[] = {3}, displacements[] = {SIZE_MAX / 4};
         return tutti_allgatherv(s.comm, s.data.data(), s.data.data() + 8, counts, displacements,
                                 TUTTI_FLOAT32);
     }},
};

tutti_status call_in_group(Scene& s, tutti_status (*call)(Scene& s)) {
    tutti_group_start(s.comm);
    const tutti_status status = call(s);
    if (tutti_group_end(s.comm) != TUTTI_OK) s.ledger.broken("a group", tutti_last_error());
    return status;
}

const Row other_rows[] = {
    {"explaining no collective",
     {.names = "teleport", .reporter = 0},
     [](Scene& s) {
         return tutti_comm_explain(s.comm, "teleport", 4, TUTTI_FLOAT32, TUTTI_SUM, s.text,
                                   sizeof s.text);
     }},
    {"explaining a dtype that there is not",
     {.names = "allreduce", .reporter = 0},
     [](Scene& s) {
         return tutti_comm_explain(s.comm, "allreduce", 4, 55, TUTTI_SUM, s.text, sizeof s.text);
     }},
    {"the algorithm of no collective",
     {.names = "teleport", .reporter = 0},
     [](Scene& s) {
         return tutti_comm_algorithm(s.comm, "teleport", 4, TUTTI_FLOAT32, TUTTI_SUM)
                    ? TUTTI_OK
                    : TUTTI_ERR_INVALID;
     }},
    {"a record to no file",
     {TUTTI_ERR_SYSTEM, "record", 0},
     [](Scene& s) {
         tutti_barrier(s.comm);  // an entry to write
         return tutti_comm_dump(s.comm, -1);
     }},
    {"a group's end without its start",
     {.names = "tutti_group_end", .reporter = 0},
     [](Scene& s) { return tutti_group_end(s.comm); }},
    {"a bad message in a group",
     {.names = "send", .reporter = 0},
     [](Scene& s) {
         return call_in_group(s, [](Scene& scene) {
             return tutti_send(scene.comm, scene.data.data(), 1, TUTTI_FLOAT32, 4, 0);
         });
     }},
    {"the descriptor of a communicator with a thread",
     {TUTTI_ERR_UNSUPPORTED, "tutti_progress_fd", 0},
     [](Scene& s) {
         int fd = -1;
         return tutti_progress_fd(s.comm, &fd);
     }},
    {"converting from no dtype",
     {.names = "tutti_convert"},
     [](Scene& s) { return tutti_convert(s.data.data(), 99, s.text, TUTTI_FLOAT32, 1); }},
    {"converting to no dtype",
     {.names = "tutti_convert"},
     [](Scene& s) { return tutti_convert(s.data.data(), TUTTI_FLOAT32, s.text, -7, 1); }},
    {"a conversion that there is not",
     {TUTTI_ERR_UNSUPPORTED, "tutti_convert"},
     [](Scene& s) {
         return tutti_convert(s.data.data(), TUTTI_FLOAT32, s.text, TUTTI_FLOAT64, 1);
     }},
};

// With a GPU these calls may well work.
const Row device_rows[] = {
    {"a device stream in a call's options",
     {TUTTI_ERR_UNSUPPORTED, "device stream", 0},
     [](Scene& s) {
         return start_with(s, [](tutti_call_opts& o) { o.device_stream = &a_stream; });
     }},
    {"a communicator's device stream",
     {TUTTI_ERR_UNSUPPORTED, "tutti_comm_set_device_stream", 0},
     [](Scene& s) { return tutti_comm_set_device_stream(s.comm, &a_stream); }},
    {"a device",
     {TUTTI_ERR_UNSUPPORTED, "tutti_comm_use_device", 0},
     [](Scene& s) { return tutti_comm_use_device(s.comm, 0); }},
    {"device memory",
     {TUTTI_ERR_UNSUPPORTED, "tutti_mem_alloc_device", 0},
     [](Scene& s) { return tutti_mem_alloc_device(s.comm, 64, &s.memory); }},
    {"waiting for a calculating stream",
     {TUTTI_ERR_UNSUPPORTED, "tutti_sync_calc_stream", 0},
     [](Scene& s) { return tutti_sync_calc_stream(s.comm, &a_stream); }},
    {"waiting for the communicator's stream",
     {TUTTI_ERR_UNSUPPORTED, "tutti_sync_comm_stream", 0},
     [](Scene& s) { return tutti_sync_comm_stream(s.comm, &a_stream); }},
};

const Row launch_rows[] = {
    {"launches that end without a start",
     {TUTTI_WITH_DEVICE ? TUTTI_ERR_INVALID : TUTTI_ERR_UNSUPPORTED, "tutti_launch_end"},
     [](Scene&) { return tutti_launch_end(); }},
};

bool has_gpu() {
    return ::access("/dev/nvidiactl", F_OK) == 0 || ::access("/dev/nvidia0", F_OK) == 0;
}

tutti_status shrink(tutti_comm* comm) {
    tutti_comm* smaller = nullptr;
    return tutti_comm_shrink(comm, &smaller);
}

/// A child process calls on the parent's communicator, and tells what it heard.
void call_after_fork(Ledger& ledger, tutti_comm* comm, tutti_status (*call)(tutti_comm*)) {
    int pipe_fds[2];
    if (::pipe(pipe_fds) != 0) return ledger.broken("fork", "no pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        const tutti_status status = call(comm);
        const std::string told = std::to_string(status) + ' ' + tutti_last_error();
        const ssize_t written = ::write(pipe_fds[1], told.data(), told.size());
        ::_exit(written < 0);
    }
    ::close(pipe_fds[1]);
    std::string told;
    char chunk[1024];
    for (ssize_t got = 0; (got = ::read(pipe_fds[0], chunk, sizeof chunk)) > 0;)
        told.append(chunk, static_cast<std::size_t>(got));
    ::close(pipe_fds[0]);
    ::waitpid(child, nullptr, 0);
    const auto blank = told.find(' ');
    if (blank == told.npos) return ledger.broken("fork", "the child process said nothing");
    ledger.take_text("a call in a forked child",
                     static_cast<tutti_status>(std::stoi(told.substr(0, blank))),
                     {TUTTI_ERR_UNSUPPORTED, "fork", 0}, told.substr(blank + 1), -1);
}

}  // namespace

void provoke_call_options(Ledger& ledger) {
    const Alone alone(ledger), other(ledger);
    Scene scene{ledger, alone.comm(), other.comm()};
    take_all(scene, option_rows);
}

void provoke_single_rank_calls(Ledger& ledger) {
    const Alone alone(ledger), other(ledger);
    Scene scene{ledger, alone.comm(), other.comm()};
    take_all(scene, operator_rows);
    take_all(scene, memory_rows);
    take_all(scene, inspection_rows);
    take_all(scene, list_rows);
    take_all(scene, other_rows);
    take_all(scene, launch_rows);
    if (!has_gpu()) take_all(scene, device_rows);
    call_after_fork(ledger, alone.comm(), tutti_barrier);
    call_after_fork(ledger, alone.comm(), shrink);
}

}  // namespace errors_test::calls
