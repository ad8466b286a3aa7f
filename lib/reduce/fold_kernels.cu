// fold.h on a device: a kernel for each type and operator, named by their numbers.
#include "reduce/fold.h"

#define TUTTI_FOLD_KERNEL(number, op, type)                                                     \
    extern "C" __global__ void tutti_fold_##number##_##op(const tutti::fold::Args args) {       \
        using namespace tutti::fold;                                                            \
        const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;                    \
        for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;         \
             i < args.count; i += step)                                                         \
            element<typename Unwrapped<void type>::Type, op>(args, i);                          \
    }
#define TUTTI_FOLD_ARITHMETIC(name, number, type) \
    TUTTI_FOLD_KERNEL(number, 0, type)            \
    TUTTI_FOLD_KERNEL(number, 1, type)            \
    TUTTI_FOLD_KERNEL(number, 2, type)            \
    TUTTI_FOLD_KERNEL(number, 3, type)            \
    TUTTI_FOLD_KERNEL(number, 4, type)
#define TUTTI_FOLD_ALL(name, number, type)     \
    TUTTI_FOLD_ARITHMETIC(name, number, type)  \
    TUTTI_FOLD_KERNEL(number, 5, type)         \
    TUTTI_FOLD_KERNEL(number, 6, type)         \
    TUTTI_FOLD_KERNEL(number, 7, type)

TUTTI_FOLD_INTEGERS(TUTTI_FOLD_ALL)
TUTTI_FOLD_FLOATS(TUTTI_FOLD_ARITHMETIC)
