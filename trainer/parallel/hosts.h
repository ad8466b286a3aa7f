// The communicator over which the layers of a pool add up between hosts.
#pragma once

#include <memory>

#include "trainer/base/result.h"

namespace tutti::trainer::parallel {

/// A pool's own communicator: a replica's failure aborts it, which ends the other hosts' waits but
/// leaves the program's communicator working. All layers of the pool over one communicator share
/// it, because their rounds have one order.
class HostComm {
public:
    /// Collective.
    static Result<std::shared_ptr<HostComm>> of(tutti_comm* program);
    explicit HostComm(tutti_comm* program, tutti_comm* own) : program_(program), own_(own) {}
    HostComm(const HostComm&) = delete;
    ~HostComm() { tutti_comm_destroy(own_); }

    bool is_of(const tutti_comm* program) const { return program_ == program; }
    tutti_comm* get() const { return own_; }
    /// Ends the communicator: the other hosts fail in their next sum at the latest. From any
    /// thread.
    void abort() const { tutti_comm_abort(own_); }

private:
    const tutti_comm* const program_;
    tutti_comm* const own_;
};

}  // namespace tutti::trainer::parallel
