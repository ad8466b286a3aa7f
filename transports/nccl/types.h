// tutti's types and operators in NCCL's numbers.
#pragma once

#include "transport/intrinsic.h"

namespace tutti::nccl {

/// A collective as NCCL is asked for it.
struct Elements {
    int dtype = 0;
    std::size_t per_element = 1;  // of NCCL's for one of tutti's: what only moves travels as bytes
    int op = 0;
};

/// unsupported: that version has no such type or operator, and which path has.
Result<Elements> elements_of(const IntrinsicShape& shape, int version);

}  // namespace tutti::nccl
