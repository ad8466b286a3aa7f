// Runs fold.h's elements in sequence on the host: the reference for a device's kernels, and their
// replacement without a device.
#pragma once

#include "reduce/fold.h"

namespace tutti::fold {

using Loop = void (*)(const Args& args);

template <class T, int kOp>
void loop(const Args& args) {
    for (uint64_t i = 0; i < args.count; ++i) element<T, kOp>(args, i);
}

template <class T, bool kInteger>
Loop loop_of(int op) {
    constexpr Loop all[] = {loop<T, sum>, loop<T, max>, loop<T, min>, loop<T, prod>, loop<T, avg>};
    if (op >= 0 && op < 5) return all[op];
    if constexpr (kInteger) {
        constexpr Loop bits[] = {loop<T, band>, loop<T, bor>, loop<T, bxor>};
        if (op >= 5 && op < 8) return bits[op - 5];
    }
    return nullptr;
}

/// nullptr: there is no such type, or no such operator for it.
inline Loop find_loop(int dtype, int op) {
#define TUTTI_FOLD_CASE(integer, number, type) \
    case number:                               \
        return loop_of<typename Unwrapped<void type>::Type, integer>(op);
#define TUTTI_FOLD_INTEGER_CASE(name, number, type) TUTTI_FOLD_CASE(true, number, type)
#define TUTTI_FOLD_FLOAT_CASE(name, number, type) TUTTI_FOLD_CASE(false, number, type)
    switch (dtype) {
        TUTTI_FOLD_INTEGERS(TUTTI_FOLD_INTEGER_CASE)
        TUTTI_FOLD_FLOATS(TUTTI_FOLD_FLOAT_CASE)
        default:
            return nullptr;
    }
#undef TUTTI_FOLD_CASE
#undef TUTTI_FOLD_INTEGER_CASE
#undef TUTTI_FOLD_FLOAT_CASE
}

}  // namespace tutti::fold
