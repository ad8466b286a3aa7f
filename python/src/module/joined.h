// The library's communicator, held by requests and calls, and the requests whose waiters have left.
#pragma once

#include <tutti/tutti.h>

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

namespace tutti_python {

class Request;

/// The Communicator and each thread inside a call hold a reference. All members need the GIL.
class Joined {
public:
    /// Owns comm, or wraps another owner's, which lives as long as keeper.
    explicit Joined(tutti_comm* comm, nanobind::object keeper = {})
        : comm_(comm), keeper_(std::move(keeper)) {}
    ~Joined();
    Joined(const Joined&) = delete;

    tutti_comm* comm() const { return comm_; }
    /// Keeps a request whose waiter was interrupted, and its arrays, until it is over.
    void leave(Request& request);
    /// Drops the kept requests that are over.
    void let_go_of_what_is_over() {
        if (!left_.empty()) [[unlikely]]
            let_go();
    }

private:
    void let_go();

    tutti_comm* const comm_;
    nanobind::object keeper_;
    std::vector<nanobind::object> left_;
};

/// Returns its argument; ValueError for NULL, a closed communicator.
std::shared_ptr<Joined> not_closed(std::shared_ptr<Joined> joined);
/// As not_closed(), for a call that begins.
std::shared_ptr<Joined> entered(std::shared_ptr<Joined> joined);

}  // namespace tutti_python
