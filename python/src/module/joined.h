// The library's communicator as requests and calls hold it, with what nobody waits for any more.
#pragma once

#include <tutti/tutti.h>

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

namespace tutti_python {

class Request;

/// Held by the Communicator, and once more by each thread that is inside. With the GIL.
class Joined {
public:
    /// Ours, or that of somebody else, which lives as long as keeper.
    explicit Joined(tutti_comm* comm, nanobind::object keeper = {})
        : comm_(comm), keeper_(std::move(keeper)) {}
    ~Joined();
    Joined(const Joined&) = delete;

    tutti_comm* comm() const { return comm_; }
    /// Keeps a request, and with it its arrays, until it is over: its waiter was interrupted.
    void leave(Request& request);
    /// Lets go of what is over of that.
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

/// The same; ValueError for NULL, which is what is left of one that was closed.
std::shared_ptr<Joined> not_closed(std::shared_ptr<Joined> joined);
/// The same, for a call that begins.
std::shared_ptr<Joined> entered(std::shared_ptr<Joined> joined);

}  // namespace tutti_python
