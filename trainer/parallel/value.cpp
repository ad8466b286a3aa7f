// Nested values at the C boundary.
#include <algorithm>
#include <set>

#include "trainer/base/boundary.h"
#include "trainer/parallel/pool.h"

using namespace tutti::trainer;            // NOLINT: the C functions are their face
using namespace tutti::trainer::parallel;  // NOLINT

namespace tutti::trainer::parallel {

Result<> check_devices(const char* function, int devices) {
    constexpr int most_devices = 4096;
    if (devices >= 1 && devices <= most_devices) return {};
    return fail(TUTTI_ERR_INVALID, "{}: the number of devices is {}, out of range", function,
                devices)
        .advice("pass 1 to {} devices", most_devices);
}

}  // namespace tutti::trainer::parallel

namespace {

std::shared_ptr<const void> owned(void (*release)(void*), void* owner) {
    if (!release) return nullptr;
    return {owner, [release](const void* p) { release(const_cast<void*>(p)); }};
}

Result<> check_array(const tutti_array& array) {
    if (tutti_dtype_size(array.dtype) == 0)
        return fail(TUTTI_ERR_INVALID, "tutti_value_create_array: unknown dtype {}", array.dtype)
            .advice("set dtype to a constant of tutti_dtype, such as TUTTI_FLOAT32");
    if (array.dims < 0 || array.dims > TUTTI_ARRAY_DIMENSIONS)
        return fail(TUTTI_ERR_INVALID, "tutti_value_create_array: dims is {}, out of range",
                    array.dims)
            .advice("set dims to 0 to {}", TUTTI_ARRAY_DIMENSIONS);
    std::size_t bytes = tutti_dtype_size(array.dtype);
    for (int d = 0; d < array.dims; ++d)
        if (array.shape[d] < 0 ||
            __builtin_mul_overflow(bytes, static_cast<std::size_t>(array.shape[d]), &bytes))
            return fail(TUTTI_ERR_INVALID,
                        "tutti_value_create_array: shape[{}] is {}, negative or too large", d,
                        array.shape[d])
                .advice("give a shape of extents of 0 or more that fits into memory");
    if (!array.data && bytes > 0) return null_argument("tutti_value_create_array", "data");
    return {};
}

Result<> take_items(ValueNode& node, const char* function, const tutti_value* const* items,
                    int count) {
    if (count < 0)
        return fail(TUTTI_ERR_INVALID, "{}: count is {}, which is negative", function, count)
            .advice("pass the number of items");
    if (count > 0 && !items) return null_argument(function, "items");
    for (int i = 0; i < count; ++i) {
        if (!items[i])
            return fail(TUTTI_ERR_INVALID, "{}: items[{}] is NULL", function, i)
                .advice("pass values that are not NULL");
        node.items.push_back(*items[i]);
    }
    return {};
}

const ValueNode* node_of(const tutti_value* value) {
    return value ? value->node.get() : nullptr;
}

}  // namespace

extern "C" {

tutti_status tutti_value_create_array(const tutti_array* array, void (*release)(void*), void* owner,
                                      tutti_value** value) {
    return guard([&]() -> Result<> {
        if (!array || !value)
            return null_argument("tutti_value_create_array", array ? "value" : "array");
        TRAINER_TRY(check_array(*array));
        *value = new tutti_value(make_value(
            {.kind = TUTTI_VALUE_ARRAY, .array = *array, .owner = owned(release, owner)}));
        return {};
    });
}

tutti_status tutti_value_create_plain(void* pointer, void (*release)(void*), tutti_value** value) {
    return guard([&]() -> Result<> {
        if (!value) return null_argument("tutti_value_create_plain", "value");
        *value = new tutti_value(make_value(
            {.kind = TUTTI_VALUE_PLAIN, .plain = pointer, .owner = owned(release, pointer)}));
        return {};
    });
}

tutti_status tutti_value_create_sequence(tutti_value_kind kind, const tutti_value* const* items,
                                         int count, tutti_value** value) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_value_create_sequence";
        if (!value) return null_argument(function, "value");
        if (kind != TUTTI_VALUE_LIST && kind != TUTTI_VALUE_TUPLE)
            return fail(TUTTI_ERR_INVALID, "{}: kind {} is neither a list nor a tuple", function,
                        static_cast<int>(kind))
                .advice("pass TUTTI_VALUE_LIST or TUTTI_VALUE_TUPLE");
        ValueNode node{.kind = kind};
        TRAINER_TRY(take_items(node, function, items, count));
        *value = new tutti_value(make_value(std::move(node)));
        return {};
    });
}

tutti_status tutti_value_create_map(const char* const* keys, const tutti_value* const* items,
                                    int count, tutti_value** value) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_value_create_map";
        if (!value) return null_argument(function, "value");
        if (count > 0 && !keys) return null_argument(function, "keys");
        ValueNode node{.kind = TUTTI_VALUE_MAP};
        TRAINER_TRY(take_items(node, function, items, count));
        std::set<std::string> seen;
        for (int i = 0; i < count; ++i) {
            if (!keys[i])
                return fail(TUTTI_ERR_INVALID, "{}: keys[{}] is NULL", function, i)
                    .advice("pass keys that are not NULL");
            if (!seen.insert(keys[i]).second)
                return fail(TUTTI_ERR_INVALID, "{}: the key '{}' is given twice", function, keys[i])
                    .advice("pass each key once");
            node.keys.emplace_back(keys[i]);
        }
        *value = new tutti_value(make_value(std::move(node)));
        return {};
    });
}

tutti_status tutti_value_share(const tutti_value* value, tutti_value** other) {
    return guard([&]() -> Result<> {
        if (!value || !other) return null_argument("tutti_value_share", value ? "other" : "value");
        *other = new tutti_value(*value);
        return {};
    });
}

void tutti_value_destroy(tutti_value* value) {
    delete value;
}

tutti_value_kind tutti_value_kind_of(const tutti_value* value) {
    return value->node->kind;
}

int tutti_value_count(const tutti_value* value) {
    const ValueNode* node = node_of(value);
    return node ? static_cast<int>(node->items.size()) : 0;
}

const tutti_value* tutti_value_item(const tutti_value* value, int index) {
    if (index < 0 || index >= tutti_value_count(value)) return nullptr;
    return &value->node->items[static_cast<std::size_t>(index)];
}

const char* tutti_value_key(const tutti_value* value, int index) {
    const ValueNode* node = node_of(value);
    if (!node || index < 0 || static_cast<std::size_t>(index) >= node->keys.size()) return nullptr;
    return node->keys[static_cast<std::size_t>(index)].c_str();
}

const tutti_array* tutti_value_array(const tutti_value* value) {
    const ValueNode* node = node_of(value);
    return node && node->kind == TUTTI_VALUE_ARRAY ? &node->array : nullptr;
}

void* tutti_value_plain(const tutti_value* value) {
    const ValueNode* node = node_of(value);
    return node ? node->plain : nullptr;
}

tutti_status tutti_split_and_load(const tutti_value* batch, int devices,
                                  const tutti_split_opts* opts, tutti_value** parts, int* used) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_split_and_load";
        if (!batch) return null_argument(function, "batch");
        if (!parts || !used) return null_argument(function, parts ? "used" : "parts");
        TRAINER_TRY(check_devices(function, devices));
        TRAINER_ASSIGN(const SplitPlan plan,
                       read_split("tutti_split_and_load: opts", devices, opts));
        TRAINER_ASSIGN(const std::vector<tutti_value> found, split(*batch, plan));
        std::fill_n(parts, devices, nullptr);
        for (std::size_t d = 0; d < found.size(); ++d) parts[d] = new tutti_value(found[d]);
        *used = static_cast<int>(found.size());
        return {};
    });
}
}
