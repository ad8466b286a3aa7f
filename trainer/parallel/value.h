// Nested values: arrays, plain pointers, lists, tuples and maps of them. They share their parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/base/result.h"
#include "tutti/trainer_parallel.h"

namespace tutti::trainer::parallel {
struct ValueNode;
}

struct tutti_value {
    std::shared_ptr<const tutti::trainer::parallel::ValueNode> node;
};

namespace tutti::trainer::parallel {

struct ValueNode {
    tutti_value_kind kind = TUTTI_VALUE_PLAIN;
    tutti_array array{};
    void* plain = nullptr;
    std::vector<tutti_value> items;
    std::vector<std::string> keys;
    std::shared_ptr<const void> owner;  // of an array's memory, or of a plain value's target
};

inline tutti_value make_value(ValueNode node) {
    return {std::make_shared<const ValueNode>(std::move(node))};
}

/// INVALID for an impossible number of devices.
Result<> check_devices(const char* function, int devices);

struct SplitPlan {
    int devices = 1;
    tutti_split_opts opts = TUTTI_SPLIT_OPTS_INIT;
};
/// name: of the argument, for the error.
Result<SplitPlan> read_split(const char* name, int devices, const tutti_split_opts* opts);
/// One value for each device that has a sample.
Result<std::vector<tutti_value>> split(const tutti_value& batch, const SplitPlan& plan);

}  // namespace tutti::trainer::parallel
