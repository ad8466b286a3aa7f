// tutti's types and operators in NCCL's numbers.
#pragma once

#include <string_view>

#include "transport/intrinsic.h"

namespace tutti::nccl {

/// A collective as NCCL is asked for it.
struct Elements {
    int dtype = 0;
    std::size_t per_element = 1;  // of NCCL's for one of tutti's: what only moves travels as bytes
    int op = 0;
};

/// The NCCL version of all ranks, and the least capable of their devices.
struct Ability {
    int version = 0;
    int capability = 0;  // compute capability, 90 for 9.0
};

/// The advice where NCCL cannot do a collective.
inline constexpr std::string_view other_algorithm = "leave out the algorithm, or name 'staged'";

/// unsupported: that version, or those devices, have no such type or operator.
Result<Elements> elements_of(const IntrinsicShape& shape, const Ability& ability);

}  // namespace tutti::nccl
