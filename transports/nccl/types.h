// tutti's types and operators in NCCL's numbers.
#pragma once

#include <string_view>

#include "transport/intrinsic.h"

namespace tutti::nccl {

/// The dtype and counts that a collective passes to NCCL.
struct Elements {
    int dtype = 0;
    std::size_t per_element = 1;  // NCCL elements for one of tutti's: data that is only moved is
                                  // passed as bytes
    int op = 0;
};

/// The NCCL version of all ranks, and the least capable of their devices.
struct Ability {
    int version = 0;
    int capability = 0;  // compute capability, 90 for 9.0
};

/// The advice if NCCL cannot do a collective.
inline constexpr std::string_view other_algorithm = "leave out the algorithm, or name 'staged'";

/// unsupported: that version, or those devices, have no such type or operator.
Result<Elements> elements_of(const IntrinsicShape& shape, const Ability& ability);

}  // namespace tutti::nccl
