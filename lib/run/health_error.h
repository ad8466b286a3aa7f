// The error of a rank whose channels cannot continue.
#pragma once

#include <string_view>

#include "base/result.h"

namespace tutti {

/// what: the operations that end, as the object of "cannot continue".
inline Error health_error(Rank own, Code code, std::string_view what) {
    ErrorResult failed = fail_rank(code, own, "cannot continue {}: {}", what, code_name(code));
    if (code == Code::no_memory)
        std::move(failed).advice(
            "check whether /dev/shm or memory is full (df -h /dev/shm, free -h); raise the memory "
            "limit (docker: --shm-size), or lower TUTTI_NRINGS");
    return std::move(failed).on(own).value();
}

}  // namespace tutti
