// Operators of the program's own, and several inputs in one allreduce, at the C boundary.
#include <algorithm>
#include <cstring>

#include "capi/calls.h"

using namespace tutti;

namespace {

static_assert(TUTTI_OP_USER_FIRST == first_user_op);

// For avg, inputs times ranks is a divisor of 32 bits.
constexpr int most_inputs = 4096;

Result<UserOperator> read_spec(const tutti_op_spec* spec) {
    constexpr const char* function = "tutti_op_create";
    if (!spec) return null_argument(function, "spec");
    if (spec->struct_size == 0)
        return fail(Code::invalid, "{}: spec.struct_size is 0", function)
            .advice("initialise the spec with TUTTI_OP_SPEC_INIT");
    tutti_op_spec read = TUTTI_OP_SPEC_INIT;
    std::memcpy(&read, spec, std::min(spec->struct_size, sizeof read));
    if (!read.combine) return null_argument(function, "spec.combine");
    // The dtype is not known yet, but an element has at least one byte.
    if (read.item_elements < 1 || read.item_elements > max_mover_bytes)
        return fail(Code::invalid, "{}: spec.item_elements is {}, which is out of range", function,
                    read.item_elements)
            .advice("give 1 to {} elements an item", max_mover_bytes);
    UserOperator op;
    op.combine = read.combine;
    op.user = read.user;
    op.commutative = read.commutative != 0;
    op.item = static_cast<uint32_t>(read.item_elements);
    return op;
}

Result<Call> several_inputs(const char* function, tutti_comm* comm, int nin, std::size_t count,
                            tutti_dtype dtype, tutti_op op) {
    if (!comm) return null_argument(function, "comm");
    if (nin < 1 || nin > most_inputs)
        return fail(Code::invalid, "{}: nin is {}, which is out of range", function, nin)
            .advice("give 1 to {} inputs", most_inputs);
    Call call = plain_call(Collective::allreduce, count, dtype, op);
    call.inputs = nin;
    return call;
}

}  // namespace

namespace tutti {

Result<> check_inputs(const char* function, const Communicator& comm, const Call& call,
                      const void* const* ins, void* out) {
    if (!ins) return null_argument(function, "ins");
    for (int i = 0; i < call.inputs; ++i) {
        const std::string name = fmt::format("{}: ins[{}]", function, i);
        if (!ins[i] && call.count > 0)
            return fail(Code::invalid, "{} is NULL but count is {}", name, call.count)
                .advice("pass a buffer of {} elements, or 0 as count", call.count);
        TUTTI_TRY(check_buffers(name.c_str(), comm, call, ins[i], out));
    }
    return {};
}

}  // namespace tutti

extern "C" {

tutti_status tutti_op_create(const tutti_op_spec* spec, tutti_op* op) {
    return guard([&]() -> Result<> {
        if (!op) return null_argument("tutti_op_create", "op");
        TUTTI_ASSIGN(const UserOperator made, read_spec(spec));
        *op = static_cast<tutti_op>(add_operator(made));
        return {};
    });
}

tutti_status tutti_op_create_premul_sum(tutti_comm* comm, const void* scalar, tutti_dtype dtype,
                                        tutti_op* op) {
    return guard(comm, [&]() -> Result<> {
        constexpr const char* function = "tutti_op_create_premul_sum";
        if (!comm) return null_argument(function, "comm");
        if (!scalar) return null_argument(function, "scalar");
        if (!op) return null_argument(function, "op");
        TUTTI_ASSIGN(const Op made,
                     comm->impl->planner().make_premul_sum(scalar, static_cast<Dtype>(dtype)));
        *op = static_cast<tutti_op>(made);
        return {};
    });
}

tutti_status tutti_op_destroy(tutti_op op) {
    return guard([&] { return remove_operator(static_cast<Op>(op)); });
}

tutti_status tutti_allreduce_multi(tutti_comm* comm, const void* const* ins, int nin, void* out,
                                   size_t count, tutti_dtype dtype, tutti_op op) {
    return guard(comm, [&]() -> Result<> {
        constexpr const char* function = "tutti_allreduce_multi";
        TUTTI_ASSIGN(const Call call, several_inputs(function, comm, nin, count, dtype, op));
        TUTTI_TRY(check_inputs(function, *comm->impl, call, ins, out));
        return comm->impl->calls().run(call, ins, out);
    });
}

tutti_status tutti_iallreduce_multi(tutti_comm* comm, const void* const* ins, int nin, void* out,
                                    size_t count, tutti_dtype dtype, tutti_op op,
                                    const tutti_call_opts* opts, tutti_request** request) {
    return guard(comm, [&]() -> Result<> {
        constexpr const char* function = "tutti_iallreduce_multi";
        if (!request) return null_argument(function, "request");
        *request = nullptr;
        TUTTI_ASSIGN(const Call call, several_inputs(function, comm, nin, count, dtype, op));
        TUTTI_TRY(check_inputs(function, *comm->impl, call, ins, out));
        return start_checked(function, comm, call, ins, out, opts, request);
    });
}

tutti_status tutti_plan_allreduce_multi(tutti_comm* comm, int nin, size_t count, tutti_dtype dtype,
                                        tutti_op op, const tutti_call_opts* opts,
                                        tutti_plan** plan) {
    return guard(comm, [&] {
        constexpr const char* function = "tutti_plan_allreduce_multi";
        return call_plan(function, comm, several_inputs(function, comm, nin, count, dtype, op),
                         opts, plan);
    });
}

}  // extern "C"
