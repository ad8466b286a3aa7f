// The tests of the C API share a job of one rank and the check of a refused call.
#pragma once

#include <string>

#include "support/catch.h"
#include "tutti/tutti.h"

namespace capi_test {

struct Comm {
    tutti_comm* comm = nullptr;
    Comm() { REQUIRE(tutti_comm_create(nullptr, &comm) == TUTTI_OK); }
    ~Comm() { tutti_comm_destroy(comm); }
    operator tutti_comm*() const { return comm; }
};

inline void expect_invalid(tutti_status status, const std::string& words) {
    INFO(tutti_last_error());
    REQUIRE(status == TUTTI_ERR_INVALID);
    REQUIRE(std::string(tutti_last_error()).find(words) != std::string::npos);
}

}  // namespace capi_test
