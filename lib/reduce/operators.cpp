#include "reduce/operators.h"

#include <mutex>
#include <unordered_map>

namespace tutti {
namespace {

struct Table {
    std::mutex mutex;
    std::unordered_map<int32_t, UserOperator> operators;
    int32_t next = first_user_op;
    uint32_t functions = 0;  // made so far
};

// Never destroyed: a program may still hold handles while it exits.
Table& table() {
    static auto* const the = new Table;
    return *the;
}

ErrorResult unknown(const Table& t, int32_t handle) {
    if (handle >= first_user_op && handle < t.next)
        return fail(Code::invalid,
                    "operator {} was destroyed: call tutti_op_destroy after its last use", handle);
    return fail(
        Code::invalid,
        "there is no operator {}: give a built-in one (0 … {}) or a handle of tutti_op_create",
        handle, op_count - 1);
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
        return fail(Code::invalid, "{} is built in and cannot be destroyed", op_name(op));
    Table& t = table();
    const std::lock_guard lock(t.mutex);
    const auto handle = static_cast<int32_t>(op);
    if (t.operators.erase(handle) == 0) return unknown(t, handle);
    return {};
}

}  // namespace tutti
