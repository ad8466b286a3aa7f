// A stand-in for LightGBM's library: the network functions of its C API, and calls of the installed
// functions as its Network makes them: in the thread of the init, with a reference to the reducer,
// and with exceptions kept as the error's text. An allreduce has the order and the aliases of
// LightGBM's.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

using Size = int32_t;
using Reducer = void (*)(const char* input, char* output, int type_size, Size size);
using ReduceScatter = void (*)(char*, Size, int, const Size*, const Size*, int, char*, Size,
                               const Reducer&);
using Allgather = void (*)(char*, Size, const Size*, const Size*, int, char*, Size);

thread_local int machines = 1;
thread_local int own_rank = 0;
thread_local ReduceScatter installed_reduce_scatter = nullptr;
thread_local Allgather installed_allgather = nullptr;
thread_local std::string last_error;

template <typename Function>
int guarded(Function function) {
    try {
        function();
        return 0;
    } catch (const std::exception& error) {
        last_error = error.what();
    }
    return -1;
}

void add_doubles(const char* input, char* output, int type_size, Size size) {
    for (Size at = 0; at < size; at += type_size) {
        double a = 0, b = 0;
        std::memcpy(&a, input + at, sizeof a);
        std::memcpy(&b, output + at, sizeof b);
        b += a;
        std::memcpy(output + at, &b, sizeof b);
    }
}

// Not commutative: the result shows the order of the ranks.
void digits(const char* input, char* output, int, Size size) {
    for (Size at = 0; at < size; ++at) output[at] = static_cast<char>(output[at] * 10 + input[at]);
}

// A whole of several bytes, of which the larger wins: by its first byte.
void larger(const char* input, char* output, int type_size, Size size) {
    for (Size at = 0; at < size; at += type_size)
        if (input[at] > output[at])
            std::memcpy(output + at, input + at, static_cast<std::size_t>(type_size));
}

const Reducer reducers[] = {&add_doubles, &digits, &larger};

}  // namespace

#define ACTED extern "C" __attribute__((visibility("default")))

ACTED int LGBM_NetworkInitWithFunctions(int count, int rank, void* reduce_scatter,
                                        void* allgather) {
    machines = count;
    own_rank = rank;
    installed_reduce_scatter = reinterpret_cast<ReduceScatter>(reduce_scatter);
    installed_allgather = reinterpret_cast<Allgather>(allgather);
    return 0;
}

ACTED int LGBM_NetworkFree() {
    return LGBM_NetworkInitWithFunctions(1, 0, nullptr, nullptr);
}

ACTED const char* LGBM_GetLastError() {
    return last_error.c_str();
}

ACTED int acted_machines() {
    return machines;
}

ACTED int acted_reduce_scatter(char* input, Size input_size, int type_size, const Size* starts,
                               const Size* lengths, char* output, Size output_size, int reducer) {
    return guarded([&] {
        installed_reduce_scatter(input, input_size, type_size, starts, lengths, machines, output,
                                 output_size, reducers[reducer]);
    });
}

ACTED int acted_allgather(char* input, const Size* starts, const Size* lengths, char* output,
                          Size output_size) {
    return guarded([&] {
        installed_allgather(input, lengths[own_rank], starts, lengths, machines, output,
                            output_size);
    });
}

// Blocks of whole items; the last ones may be empty.
ACTED int acted_allreduce(char* input, Size size, int type_size, char* output, int reducer) {
    return guarded([&] {
        const Size step = (size / type_size + machines - 1) / machines * type_size;
        std::vector<Size> starts, lengths;
        for (int machine = 0; machine < machines; ++machine) {
            starts.push_back(std::min(machine * step, size));
            lengths.push_back(std::min(step, size - starts.back()));
        }
        installed_reduce_scatter(input, size, type_size, starts.data(), lengths.data(), machines,
                                 output, size, reducers[reducer]);
        installed_allgather(output, lengths[static_cast<std::size_t>(own_rank)], starts.data(),
                            lengths.data(), machines, output, size);
    });
}

// The installed functions in the calling thread, which may have no network: as a thread of a pool
// would call them.
ACTED int acted_call_elsewhere(void* allgather) {
    return guarded([&] {
        char byte = 0;
        const Size start = 0, length = 1;
        reinterpret_cast<Allgather>(allgather)(&byte, 1, &start, &length, 1, &byte, 1);
    });
}
