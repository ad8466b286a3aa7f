// Communicators at the C boundary.
#include <algorithm>
#include <cstring>

#include "capi/boundary.h"
#include "comm/growth/growth.h"

namespace {

using tutti::Call;
using tutti::Code;
using tutti::Collective;
using tutti::Result;

Result<Collective> parse_collective(const char* function, const char* name) {
    if (!name) return tutti::null_argument(function, "collective");
    for (int c = 0; c < tutti::collective_count; ++c)
        if (tutti::collective_traits[c].name == name) return static_cast<Collective>(c);
    std::string names;
    for (const auto& traits : tutti::collective_traits)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", traits.name);
    return tutti::fail(Code::invalid, "{}: unknown collective '{}'", function, name)
        .advice("give one of {}", names);
}

// The arguments of a call that is explained, not run.
struct Described {
    const char* collective;
    size_t count;
    tutti_dtype dtype;
    tutti_op op;
};
Result<Call> make_call(const char* function, const tutti_comm& comm, const Described& described) {
    Call call;
    TUTTI_ASSIGN(call.collective, parse_collective(function, described.collective));
    if (call.collective == Collective::barrier) return call;
    call.count = described.count;
    call.dtype = static_cast<tutti::Dtype>(described.dtype);
    if (tutti::traits_of(call.collective).reduces) call.op = static_cast<tutti::Op>(described.op);
    TUTTI_TRY(comm.impl->planner().check(call, -1));
    return call;
}

template <typename Split>
tutti_status make_part(const char* function, tutti_comm* comm, tutti_comm** part, Split&& split) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        if (!part) return tutti::null_argument(function, "the place for the new communicator");
        *part = nullptr;
        TUTTI_ASSIGN(auto made, split(*comm->impl));
        if (made) *part = new tutti_comm{std::move(made), 0, {}};
        return {};
    });
}

}  // namespace

extern "C" {

tutti_status tutti_comm_create(const tutti_config* config, tutti_comm** comm) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_create", "comm");
        *comm = nullptr;
        tutti_config defaults;
        if (!config) {
            TUTTI_ASSIGN(defaults.values, tutti::config_of_process());
            config = &defaults;
        }
        auto store = config->make_store ? config->make_store(*config) : nullptr;
        auto made = config->values.join
                        ? tutti::join_running_job(config->values, std::move(store))
                        : tutti::Communicator::create(config->values, std::move(store));
        if (!made) return tl::unexpected(std::move(made).error());
        *comm = new tutti_comm{std::move(*made), 0, {}};
        return {};
    });
}

int tutti_comm_rank(const tutti_comm* comm) {
    return comm ? comm->impl->rank() : -1;
}
int tutti_comm_size(const tutti_comm* comm) {
    return comm ? comm->impl->size() : -1;
}

int tutti_comm_local_rank(const tutti_comm* comm) {
    return comm ? comm->impl->hosts().local_of(comm->impl->rank()) : -1;
}

int tutti_comm_local_size(const tutti_comm* comm) {
    if (!comm) return -1;
    const tutti::Hosts& hosts = comm->impl->hosts();
    return hosts.size_of(hosts.host_of(comm->impl->rank()));
}

int tutti_comm_host_count(const tutti_comm* comm) {
    return comm ? comm->impl->hosts().count() : -1;
}

int tutti_comm_host_of(const tutti_comm* comm, int rank) {
    if (!comm || rank < 0 || rank >= comm->impl->size()) return -1;
    return comm->impl->hosts().host_of(rank);
}

int tutti_comm_ring_count(const tutti_comm* comm) {
    return comm ? comm->impl->rings() : -1;
}

tutti_status tutti_comm_split(tutti_comm* comm, int color, int key, tutti_comm** part) {
    return make_part("tutti_comm_split", comm, part,
                     [&](tutti::Communicator& c) { return c.split(color, key); });
}

tutti_status tutti_comm_split_host(tutti_comm* comm, int key, tutti_comm** part) {
    return make_part("tutti_comm_split_host", comm, part,
                     [&](tutti::Communicator& c) { return c.split_host(key); });
}

tutti_status tutti_comm_dup(tutti_comm* comm, tutti_comm** copy) {
    return make_part("tutti_comm_dup", comm, copy, [&](tutti::Communicator& c) { return c.dup(); });
}

tutti_status tutti_comm_abort(tutti_comm* comm) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_comm_abort", comm));
        comm->impl->abort();
        return {};
    });
}

tutti_status tutti_comm_destroy(tutti_comm* comm) {
    return tutti::guard([&]() -> Result<> {
        // In a forked child the communicator is the parent's, and the child shares its connections:
        // leave it.
        if (comm && !comm->impl->forked()) return {};
        if (comm) TUTTI_TRY(comm->impl->may_call());
        const std::unique_ptr<tutti_comm> owned(comm);
        if (comm) comm->impl->destroy();
        return {};
    });
}

tutti_status tutti_comm_explain(tutti_comm* comm, const char* collective, size_t count,
                                tutti_dtype dtype, tutti_op op, char* text, size_t capacity) {
    const char* const function = "tutti_comm_explain";
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        if (!text || capacity == 0) return tutti::null_argument(function, "text");
        TUTTI_ASSIGN(const Call call, make_call(function, *comm, {collective, count, dtype, op}));
        const std::string words = comm->impl->planner().explain(call);
        const size_t length = std::min(words.size(), capacity - 1);
        std::memcpy(text, words.data(), length);
        text[length] = '\0';
        return {};
    });
}

const char* tutti_comm_algorithm(tutti_comm* comm, const char* collective, size_t count,
                                 tutti_dtype dtype, tutti_op op) {
    const char* const function = "tutti_comm_algorithm";
    const char* name = nullptr;
    const tutti_status status = tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        TUTTI_ASSIGN(const Call call, make_call(function, *comm, {collective, count, dtype, op}));
        TUTTI_ASSIGN(const tutti::Choice choice, comm->impl->planner().choose(call));
        name = choice.name.data();  // catalog names are literals
        return {};
    });
    return status == TUTTI_OK ? name : nullptr;
}

tutti_status tutti_comm_dump(tutti_comm* comm, int fd) {
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_dump", "comm");
        return comm->impl->dump(fd);
    });
}

tutti_status tutti_progress(tutti_comm* comm) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_progress", comm));
        comm->impl->progress().advance();
        return {};
    });
}

tutti_status tutti_progress_fd(tutti_comm* comm, int* fd) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_progress_fd", comm));
        if (!fd) return tutti::null_argument("tutti_progress_fd", "fd");
        if (!comm->impl->manual())
            return tutti::fail(Code::unsupported,
                               "tutti_progress_fd: this communicator has a progress thread, and no "
                               "descriptor to wait for")
                .advice(
                    "set \"progress\" to \"manual\" (TUTTI_PROGRESS=manual) before "
                    "tutti_comm_create");
        *fd = comm->impl->progress().fd();
        return {};
    });
}

}  // extern "C"
