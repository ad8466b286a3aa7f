// A non-blocking operation and the arrays that it reads and writes.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <nanobind/stl/unique_ptr.h>

#include "../tutti/torch/csrc/released.h"
#include "arrays.h"
#include "errors.h"
#include "joined.h"

namespace tutti_python {

/// A wait returns to python this often, so that signal handlers run.
constexpr int64_t slice_ms = 100;

/// One thread at a time. Dropping it waits for the operation, without the GIL.
class Request {
public:
    Request(const char* operation, std::optional<Input> in, std::optional<Output> out,
            std::weak_ptr<Joined> joined)
        : operation_(operation),
          in_(std::move(in)),
          out_(std::move(out)),
          joined_(std::move(joined)) {}
    /// A request of a plan; the plan holds the arrays.
    Request(const char* operation, std::shared_ptr<const void> plan, std::weak_ptr<Joined> joined)
        : operation_(operation), plan_(std::move(plan)), joined_(std::move(joined)) {}
    ~Request();
    Request(const Request&) = delete;

    tutti_request** slot() { return &request_; }
    tutti_recv_status* received() { return received_.get(); }
    /// True when it is over; raises its failure, in each call. If a signal's handler raises during
    /// the wait, calls leave().
    bool wait(int64_t timeout_ms);
    /// Gives the request of an interrupted waiter to the communicator, until it is over.
    void leave();
    /// Whether it is over, with success or failure.
    bool over() { return poll(0); }
    /// A descriptor that becomes readable when it is over; -1 if it is.
    int fd();
    /// (source, tag, elements) of a receive.
    std::tuple<int, int, std::size_t> source() const {
        return {received_->source, received_->tag, received_->count};
    }

private:
    bool wait_in_slices(int64_t timeout_ms);
    bool poll(int64_t timeout_ms);

    struct Failure {
        tutti_status status;
        std::string text;
        int rank;
    };
    const char* operation_;
    std::optional<Input> in_;
    std::optional<Output> out_;
    const std::shared_ptr<const void> plan_;
    const std::weak_ptr<Joined> joined_;  // locked during a wait, which counts as a call inside
    // On the heap: the library writes to this address, which must stay if the object moves.
    std::unique_ptr<tutti_recv_status> received_ = std::make_unique<tutti_recv_status>();
    tutti_request* request_ = nullptr;
    std::optional<Failure> failure_;
};

/// Starts and waits. Most operations end before a signal could matter and need no Request; `make`
/// makes one for the others.
template <typename Start, typename Make>
void start_and_wait(const char* operation, Start start, Make make) {
    tutti_request* raw = nullptr;
    tutti_status status = TUTTI_OK;
    {
        const Released released;
        status = start(&raw);
        if (status == TUTTI_OK) status = tutti_wait(&raw, slice_ms);
    }
    if (!raw) return check(status, operation);
    std::unique_ptr<Request> request = make();
    *request->slot() = raw;
    Request& waited = *request;
    const nanobind::object owner = nanobind::cast(std::move(request));
    waited.wait(-1);
}

}  // namespace tutti_python
