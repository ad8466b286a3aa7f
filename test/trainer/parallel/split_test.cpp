// split_and_load: nested batches, uneven shares, devices' memory; and the facade that uses it.
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "support/catch.h"
#include "trainer/parallel/parallel_fixture.h"

using namespace tutti::test;

namespace {

std::vector<float> counting(std::size_t count, float from = 0) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), from);
    return values;
}

std::vector<Value> split(const tutti_value* batch, int devices,
                         const tutti_split_opts* opts = nullptr) {
    std::vector<tutti_value*> parts(static_cast<std::size_t>(devices));
    int used = 0;
    ok(tutti_split_and_load(batch, devices, opts, parts.data(), &used));
    std::vector<Value> owned;
    for (int d = 0; d < devices; ++d) {
        if ((parts[static_cast<std::size_t>(d)] != nullptr) != (d < used))
            throw std::runtime_error("parts and used differ");
        if (d < used) owned.emplace_back(parts[static_cast<std::size_t>(d)]);
    }
    return owned;
}

tutti_split_opts along(int axis) {
    tutti_split_opts opts = TUTTI_SPLIT_OPTS_INIT;
    opts.axis = axis;
    return opts;
}

std::string refused(const tutti_value* batch, int devices, const tutti_split_opts* opts = nullptr) {
    std::vector<tutti_value*> parts(8);
    int used = 0;
    REQUIRE(tutti_split_and_load(batch, devices, opts, parts.data(), &used) == TUTTI_ERR_INVALID);
    return tutti_trainer_last_error();
}

}  // namespace

TEST_CASE("split_and_load: every sample goes to one device, in order, however uneven") {
    for (int64_t samples = 1; samples <= 13; ++samples)
        for (int devices = 1; devices <= 5; ++devices)
            for (const int axis : {0, 1, 2, -1}) {
                // The samples' extent stands at the axis; 2 and 3 are the others.
                std::vector<int64_t> shape{2, 3};
                const int at = axis < 0 ? 2 : axis;
                shape.insert(shape.begin() + at, samples);
                const auto count = static_cast<std::size_t>(6 * samples);
                const Value batch = array(counting(count), shape);
                const tutti_split_opts opts = along(axis);
                const auto parts = split(batch.get(), devices, &opts);
                REQUIRE(parts.size() ==
                        static_cast<std::size_t>(std::min<int64_t>(samples, devices)));
                std::vector<int> seen(count);
                int64_t first = 0;
                const std::size_t inner = at == 0 ? 6 : at == 1 ? 3 : 1;
                for (const Value& part : parts) {
                    const int64_t own = shape_of(part.get())[static_cast<std::size_t>(at)];
                    REQUIRE((own == samples / static_cast<int64_t>(parts.size()) ||
                             own == samples / static_cast<int64_t>(parts.size()) + 1));
                    for (const float value : floats_of(part.get())) {
                        const auto index = static_cast<std::size_t>(value);
                        const auto sample = static_cast<int64_t>(index / inner) % samples;
                        REQUIRE((sample >= first && sample < first + own));
                        ++seen[index];
                    }
                    first += own;
                }
                REQUIRE(seen == std::vector<int>(count, 1));
            }
}

TEST_CASE("split_and_load: a nest keeps its structure, and what is no array is replicated") {
    int answer = 42;
    const Value images = array(counting(10), {5, 2});
    const Value labels = array(counting(5, 100), {5});
    const Value scale = array({0.5F}, {});
    const Value pointer = plain(&answer);
    const Value pair = sequence({labels.get(), pointer.get(), scale.get()}, TUTTI_VALUE_TUPLE);
    const Value list = sequence({pair.get()});
    const Value batch = map({"image", "targets"}, {images.get(), list.get()});
    const auto parts = split(batch.get(), 3);
    REQUIRE(parts.size() == 3);
    const std::vector<std::vector<float>> image{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
    const std::vector<std::vector<float>> label{{100, 101}, {102, 103}, {104}};
    for (std::size_t d = 0; d < 3; ++d) {
        const tutti_value* part = parts[d].get();
        REQUIRE(tutti_value_kind_of(part) == TUTTI_VALUE_MAP);
        REQUIRE(tutti_value_key(part, 1) == std::string("targets"));
        REQUIRE(floats_of(tutti_value_item(part, 0)) == image[d]);
        const tutti_value* targets = tutti_value_item(part, 1);
        REQUIRE(tutti_value_kind_of(targets) == TUTTI_VALUE_LIST);
        const tutti_value* tuple = tutti_value_item(targets, 0);
        REQUIRE(tutti_value_kind_of(tuple) == TUTTI_VALUE_TUPLE);
        REQUIRE(floats_of(tutti_value_item(tuple, 0)) == label[d]);
        REQUIRE(tutti_value_plain(tutti_value_item(tuple, 1)) == &answer);
        REQUIRE(floats_of(tutti_value_item(tuple, 2)) == std::vector{0.5F});
    }
}

TEST_CASE("split_and_load: fewer samples than devices use fewer workers") {
    const Value batch = array(counting(4), {2, 2});
    const auto parts = split(batch.get(), 8);
    REQUIRE(parts.size() == 2);
    REQUIRE(floats_of(parts[1].get()) == std::vector{2.0F, 3.0F});
    int answer = 0;
    REQUIRE(split(plain(&answer).get(), 3).size() == 3);  // nothing says how many samples
}

TEST_CASE("split_and_load: parts in the host's memory are views that keep the batch") {
    Value batch = array(counting(6), {6});
    const void* start = tutti_value_array(batch.get())->data;
    const auto parts = split(batch.get(), 2);
    REQUIRE(tutti_value_array(parts[0].get())->data == start);
    batch.reset();
    REQUIRE(floats_of(parts[1].get()) == counting(3, 3));
}

TEST_CASE("split_and_load: parts come to devices through the program's functions, and go back") {
    struct Memory {
        std::vector<int> live = std::vector<int>(3);
    } memory;
    tutti_split_opts opts = along(1);
    opts.user = &memory;
    opts.alloc = [](void* user, int device, size_t bytes) -> void* {
        ++static_cast<Memory*>(user)->live[static_cast<std::size_t>(device)];
        return std::malloc(bytes);
    };
    opts.free = [](void* user, int device, void* data) {
        --static_cast<Memory*>(user)->live[static_cast<std::size_t>(device)];
        std::free(data);
    };
    opts.copy = [](void*, int, void* data, const void* from, size_t rows, size_t row_bytes,
                   size_t row_stride) {
        for (size_t i = 0; i < rows; ++i)
            std::memcpy(static_cast<char*>(data) + i * row_bytes,
                        static_cast<const char*>(from) + i * row_stride, row_bytes);
        return TUTTI_OK;
    };
    const Value batch = array(counting(6), {2, 3});
    auto parts = split(batch.get(), 3, &opts);
    REQUIRE(memory.live == std::vector<int>{1, 1, 1});
    REQUIRE(floats_of(parts[2].get()) == std::vector{2.0F, 5.0F});
    REQUIRE(tutti_value_array(parts[2].get())->device == 2);
    parts.clear();
    REQUIRE(memory.live == std::vector<int>(3));
    opts.copy = [](void*, int device, void*, const void*, size_t, size_t, size_t) {
        return device == 1 ? TUTTI_ERR_SYSTEM : TUTTI_OK;
    };
    std::vector<tutti_value*> raw(3);
    int used = 0;
    REQUIRE(tutti_split_and_load(batch.get(), 3, &opts, raw.data(), &used) == TUTTI_ERR_SYSTEM);
    REQUIRE(tutti_trainer_last_error_device() == 1);
    // The failed call has released the first device's part.
    REQUIRE(memory.live == std::vector<int>(3));
}

TEST_CASE("split_and_load: what does not fit is refused by its place in the batch") {
    const Value five = array(counting(5), {5});
    const Value four = array(counting(4), {4});
    const Value batch = map({"image", "label"}, {five.get(), sequence({four.get()}).get()});
    REQUIRE(refused(batch.get(), 2)
                .starts_with("split_and_load: batch['label'][0] has 4 samples along axis 0, but "
                             "batch['image'] has 5. What to do: "));
    const tutti_split_opts opts = along(1);
    REQUIRE(refused(five.get(), 2, &opts)
                .starts_with("split_and_load: batch has 1 dimensions and no axis 1. What to do: "));
    tutti_split_opts even = along(0);
    even.even = 1;
    REQUIRE(refused(five.get(), 2, &even).find("2 devices cannot share 5 samples evenly") !=
            std::string::npos);
    REQUIRE(split(four.get(), 2, &even).size() == 2);
    REQUIRE(refused(array({}, {0, 3}).get(), 2).find("batch has no samples") != std::string::npos);
    REQUIRE(refused(five.get(), 0).find("the number of devices is 0") != std::string::npos);
    tutti_split_opts half = along(0);
    half.free = [](void*, int, void*) {};
    REQUIRE(refused(five.get(), 2, &half).find("set alloc, free and copy") != std::string::npos);
}

namespace {

/// Doubles its part of the batch, and says in which mode.
tutti_status doubled(tutti_replica* replica, void*) {
    const tutti_value* input = tutti_replica_input(replica);
    std::vector<float> values = floats_of(input);
    for (float& value : values) value *= tutti_replica_training(replica) ? 2.0F : -2.0F;
    tutti_replica_set_output(replica, array(values, shape_of(input)).release());
    return TUTTI_OK;
}
tutti_status difference(tutti_replica* replica, void*) {
    const tutti_value* input = tutti_replica_input(replica);
    const auto output = floats_of(tutti_value_item(input, 0));
    const auto target = floats_of(tutti_value_item(input, 1));
    if (output.size() != target.size()) return TUTTI_ERR_INVALID;
    float loss = 0;
    for (std::size_t i = 0; i < output.size(); ++i) loss += output[i] - target[i];
    tutti_replica_set_output(replica, array({loss}, {1}).release());
    return TUTTI_OK;
}

}  // namespace

TEST_CASE("data_parallel: outputs stay on their devices, and the loss form splits the targets") {
    for (const int sync : {0, 1})
        for (const int devices : {1, 2, 3, 7}) {
            tutti_data_parallel_spec spec = TUTTI_DATA_PARALLEL_SPEC_INIT;
            spec.devices = devices;
            spec.sync = sync;
            spec.model = doubled;
            tutti_data_parallel* handle = nullptr;
            ok(tutti_data_parallel_create(&spec, &handle));
            const OwnerGuard<tutti_data_parallel, tutti_data_parallel_destroy>::Handle model(
                handle);
            const Value batch = array(counting(5), {5});
            tutti_value* list = nullptr;
            ok(tutti_data_parallel_forward(model.get(), batch.get(), 1, 1, &list));
            const Value outputs(list);
            // One device has the same list shape as many.
            REQUIRE(tutti_value_kind_of(list) == TUTTI_VALUE_LIST);
            REQUIRE(tutti_value_count(list) == std::min(devices, 5));
            std::vector<float> joined;
            for (int d = 0; d < tutti_value_count(list); ++d)
                for (const float value : floats_of(tutti_value_item(list, d)))
                    joined.push_back(value);
            REQUIRE(joined == std::vector<float>{0, 2, 4, 6, 8});
            const Value targets = array({1, 1, 1, 1, 1}, {5});
            ok(tutti_data_parallel_loss(model.get(), difference, nullptr, outputs.get(),
                                        targets.get(), 1, &list));
            const Value losses(list);
            REQUIRE(tutti_value_count(list) == std::min(devices, 5));
            float total = 0;
            for (int d = 0; d < tutti_value_count(list); ++d)
                total += floats_of(tutti_value_item(list, d))[0];
            REQUIRE(total == 15.0F);
            ok(tutti_data_parallel_forward(model.get(), batch.get(), 0, 0, &list));
            const Value evaluated(list);
            REQUIRE(floats_of(tutti_value_item(list, 0)).back() <= 0.0F);
        }
}

TEST_CASE("data_parallel: a replica without output, and targets that do not fit, are errors") {
    tutti_data_parallel_spec spec = TUTTI_DATA_PARALLEL_SPEC_INIT;
    spec.devices = 2;
    tutti_data_parallel* handle = nullptr;
    REQUIRE(tutti_data_parallel_create(&spec, &handle) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("spec.model is NULL"));
    spec.model = [](tutti_replica* replica, void*) {
        if (tutti_replica_device(replica) == 0)
            tutti_replica_set_output(replica, array({1}, {1}).release());
        return TUTTI_OK;
    };
    for (const int devices : {0, 4097}) {
        tutti_data_parallel_spec other = spec;
        other.devices = devices;
        REQUIRE(tutti_data_parallel_create(&other, &handle) == TUTTI_ERR_INVALID);
        REQUIRE(error_says("the number of devices is " + std::to_string(devices)));
        REQUIRE(error_says("pass 1 to 4096 devices"));
    }
    ok(tutti_data_parallel_create(&spec, &handle));
    const OwnerGuard<tutti_data_parallel, tutti_data_parallel_destroy>::Handle model(handle);
    const Value batch = array(counting(2), {2});
    tutti_value* list = nullptr;
    REQUIRE(tutti_data_parallel_forward(model.get(), batch.get(), 1, 1, &list) ==
            TUTTI_ERR_INVALID);
    REQUIRE(error_says("device 1 gave no output"));
    const Value one = array(counting(1), {1});
    const Value outputs = sequence({one.get(), one.get()});
    REQUIRE(tutti_data_parallel_loss(model.get(), difference, nullptr, outputs.get(), one.get(), 1,
                                     &list) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("2 outputs, but targets for 1 devices"));
}
