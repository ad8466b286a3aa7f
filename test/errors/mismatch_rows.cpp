// Ranks that call different things.
#include <array>
#include <cstdint>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::mismatches {
namespace {

/// The buffers of a rank's call.
struct Buffers {
    std::array<double, 64> in{}, out{};
};
using Call = tutti_status (*)(tutti_comm* comm, Buffers& b);

tutti_status sum(tutti_comm* comm, Buffers& b) {
    return tutti_allreduce(comm, b.in.data(), b.out.data(), 4, TUTTI_FLOAT32, TUTTI_SUM);
}

tutti_status named_barrier(tutti_comm* comm, const char* name) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.name = name;
    tutti_request* request = nullptr;
    const tutti_status status = tutti_ibarrier(comm, &opts, &request);
    return status == TUTTI_OK ? tutti_wait(&request, -1) : status;
}

tutti_status sum_on_stream(tutti_comm* comm, Buffers& b, int stream) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = stream;
    tutti_request* request = nullptr;
    const tutti_status status = tutti_iallreduce(comm, b.in.data(), b.out.data(), 4, TUTTI_FLOAT32,
                                                 TUTTI_SUM, &opts, &request);
    return status == TUTTI_OK ? tutti_wait(&request, -1) : status;
}

tutti_status split(tutti_comm* comm, Buffers&) {
    tutti_comm* part = nullptr;
    const tutti_status status = tutti_comm_split(comm, 0, 0, &part);
    tutti_comm_destroy(part);
    return status;
}

void keep_first(const void*, const void*, void*, size_t, tutti_dtype, void*) {}

tutti_status own_operator(tutti_comm* comm, Buffers& b) {
    tutti_op_spec spec = TUTTI_OP_SPEC_INIT;
    spec.combine = keep_first;
    tutti_op op = -1;
    if (tutti_op_create(&spec, &op) != TUTTI_OK) return TUTTI_OK;
    const tutti_status status =
        tutti_allreduce(comm, b.in.data(), b.out.data(), 4, TUTTI_FLOAT32, op);
    tutti_op_destroy(op);
    return status;
}

struct Mismatch {
    const char* what;
    const char* names;  // of one of the calls
    Call first, second;
    bool strict_only = false;
};

constexpr Mismatch all_mismatches[] = {
    {"counts", "count 5", sum,
     [](tutti_comm* comm, Buffers& b) {
         return tutti_allreduce(comm, b.in.data(), b.out.data(), 5, TUTTI_FLOAT32, TUTTI_SUM);
     }},
    {"dtypes", "float64", sum,
     [](tutti_comm* comm, Buffers& b) {
         return tutti_allreduce(comm, b.in.data(), b.out.data(), 4, TUTTI_FLOAT64, TUTTI_SUM);
     }},
    {"operators", "max", sum,
     [](tutti_comm* comm, Buffers& b) {
         return tutti_allreduce(comm, b.in.data(), b.out.data(), 4, TUTTI_FLOAT32, TUTTI_MAX);
     }},
    {"an operator of the program's own", "operator", sum, own_operator},
    {"collectives", "barrier", sum, [](tutti_comm* comm, Buffers&) { return tutti_barrier(comm); }},
    {"roots", "root 1",
     [](tutti_comm* comm, Buffers& b) {
         return tutti_broadcast(comm, b.in.data(), 4, TUTTI_FLOAT32, 0);
     },
     [](tutti_comm* comm, Buffers& b) {
         return tutti_broadcast(comm, b.in.data(), 4, TUTTI_FLOAT32, 1);
     },
     true},
    {"lists of counts", "allgatherv",
     [](tutti_comm* comm, Buffers& b) {
         const std::size_t counts[] = {2, 2};
         return tutti_allgatherv(comm, b.in.data(), b.out.data(), counts, nullptr, TUTTI_FLOAT32);
     },
     [](tutti_comm* comm, Buffers& b) {
         const std::size_t counts[] = {3, 2};
         return tutti_allgatherv(comm, b.in.data(), b.out.data(), counts, nullptr, TUTTI_FLOAT32);
     }},
    {"names", "save", [](tutti_comm* comm, Buffers&) { return named_barrier(comm, "save"); },
     [](tutti_comm* comm, Buffers&) { return named_barrier(comm, "load"); }},
    {"streams", "allreduce", [](tutti_comm* comm, Buffers& b) { return sum_on_stream(comm, b, 0); },
     [](tutti_comm* comm, Buffers& b) { return sum_on_stream(comm, b, 1); }},
    {"a split and an allreduce", "split", sum, split},
    {"a split and a copy", "dup", split,
     [](tutti_comm* comm, Buffers&) {
         tutti_comm* copy = nullptr;
         const tutti_status status = tutti_comm_dup(comm, &copy);
         tutti_comm_destroy(copy);
         return status;
     }},
};

void mismatch_all(Ledger& ledger, const char* check) {
    const Job job{2, {{"check", check}}};
    const bool strict = std::string(check) == "strict";
    run_job(ledger, "mismatches", job, [&](tutti_comm* comm, int rank) {
        for (const Mismatch& mismatch : all_mismatches) {
            if (mismatch.strict_only && !strict) continue;
            Buffers buffers;
            const tutti_status status =
                (rank == 0 ? mismatch.first : mismatch.second)(comm, buffers);
            const std::string row = std::string("different ") + mismatch.what + ", check=" + check +
                                    ", on rank " + std::to_string(rank);
            ledger.take(row, status, {TUTTI_ERR_MISMATCH, mismatch.names, rank, 1 - rank});
            if (sum(comm, buffers) != TUTTI_OK)
                ledger.broken(row, std::string("the next call fails: ") + tutti_last_error());
        }
    });
}

}  // namespace

void provoke_mismatches(Ledger& ledger) {
    mismatch_all(ledger, "frames");
    mismatch_all(ledger, "strict");
}

}  // namespace errors_test::mismatches
