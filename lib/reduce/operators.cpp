#include "reduce/operators.h"

#include <mutex>
#include <unordered_map>

namespace tutti {
namespace {

struct Table {
    std::mutex mutex;
    std::unordered_map<int32_t, UserOperator> operators;
    int32_t next = first_user_op;
    uint32_t functions = 0;  // count of functions made so far
};

// Never destroyed: a program may still use handles while it exits.
Table& table() {
    static auto* const the = new Table;
    return *the;
}

ErrorResult unknown(const Table& t, int32_t handle) {
    if (handle >= first_user_op && handle < t.next)
        return fail(Code::invalid, "operator {} was destroyed", handle)
            .advice("call tutti_op_destroy after the operator's last use");
    return fail(Code::invalid, "unknown operator {}", handle)
        .advice("give a built-in operator (0 to {}) or a handle of tutti_op_create", op_count - 1);
}

}  // namespace

Op add_operator(UserOperator op) {
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    if (op.kind == UserOperator::Kind::function) op.number = ++t.functions;
    t.operators.emplace(t.next, op);
    return static_cast<Op>(t.next++);
}

Result<UserOperator> find_operator(Op op) {
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    const auto handle = static_cast<int32_t>(op);
    const auto found = t.operators.find(handle);
    if (found == t.operators.end()) return unknown(t, handle);
    return found->second;
}

Result<> remove_operator(Op op) {
    if (op_name(op) != "unknown")
        return fail(Code::invalid, "{} is built in and cannot be destroyed", op_name(op))
            .advice("destroy only handles of tutti_op_create and tutti_op_create_premul_sum");
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    const auto handle = static_cast<int32_t>(op);
    if (t.operators.erase(handle) == 0) return unknown(t, handle);
    return {};
}

}  // namespace tutti
