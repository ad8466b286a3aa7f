#include "reduce/streaming_stores.h"

#include "reduce/reduce.h"

namespace tutti {

void StreamingStorePolicy::copy(void* to, const void* from, std::size_t bytes) {
    static const ReduceFn streamed = Reducer::mover(1).move(Width::raw, Width::raw, true);
    measure(bytes, [&](bool past) {
        if (past)
            streamed({.dst = to, .a = from, .count = bytes});
        else
            std::memcpy(to, from, bytes);
    });
}

}  // namespace tutti
