// The calls after a failure at the C boundary.
#include <algorithm>
#include <vector>

#include "capi/boundary.h"

namespace {

using tutti::Rank;
using tutti::Result;

tutti_status make_smaller(const char* function, tutti_comm* comm, const int* ranks, size_t count,
                          tutti_comm** smaller) {
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        if (!smaller) return tutti::null_argument(function, "smaller");
        *smaller = nullptr;
        if (!ranks && count > 0) return tutti::null_argument(function, "ranks");
        const std::vector<Rank> leavers(ranks, ranks + count);
        TUTTI_ASSIGN(auto made, comm->impl->recovery().shrink(function, leavers));
        *smaller = new tutti_comm{std::move(made), 0, {}};
        return {};
    });
}

}  // namespace

extern "C" {

tutti_status tutti_comm_revoke(tutti_comm* comm) {
    return tutti::guard(comm, [&]() -> tutti::Result<> {
        TUTTI_TRY(tutti::check_member("tutti_comm_revoke", comm));
        comm->impl->revoke();
        return {};
    });
}

tutti_status tutti_comm_shrink(tutti_comm* comm, tutti_comm** smaller) {
    return make_smaller("tutti_comm_shrink", comm, nullptr, 0, smaller);
}

tutti_status tutti_comm_shrink_without(tutti_comm* comm, const int* ranks, size_t count,
                                       tutti_comm** smaller) {
    return make_smaller("tutti_comm_shrink_without", comm, ranks, count, smaller);
}

tutti_status tutti_comm_agree(tutti_comm* comm, uint64_t* bits) {
    const char* const function = "tutti_comm_agree";
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        if (!bits) return tutti::null_argument(function, "bits");
        TUTTI_ASSIGN(*bits, comm->impl->recovery().agree(function, *bits));
        return {};
    });
}

tutti_status tutti_comm_lost(const tutti_comm* comm, int* ranks, size_t capacity, size_t* count) {
    const char* const function = "tutti_comm_lost";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        if (!count) return tutti::null_argument(function, "count");
        if (!ranks && capacity > 0) return tutti::null_argument(function, "ranks");
        const std::vector<Rank> lost = comm->impl->recovery().lost();
        std::copy_n(lost.begin(), std::min(capacity, lost.size()), ranks);
        *count = lost.size();
        return {};
    });
}

}  // extern "C"
