// A non-blocking operation and the arrays that it reads and writes.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "joined.h"

namespace tutti_python {

/// How long a wait goes on before python's signal handlers get their turn.
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
    ~Request();
    Request(const Request&) = delete;

    tutti_request** slot() { return &request_; }
    tutti_recv_status* received() { return received_.get(); }
    /// True when it is over; raises what it came to, whenever it is asked. What a signal's handler
    /// raises meanwhile leaves it: below.
    bool wait(int64_t timeout_ms);
    /// Nobody waits for it any more, and its communicator keeps it until it is over.
    void leave();
    /// Whether it is over, whatever it came to.
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
    const std::weak_ptr<Joined> joined_;  // which waiting for it is being inside
    // Where it is does not change with the object's.
    std::unique_ptr<tutti_recv_status> received_ = std::make_unique<tutti_recv_status>();
    tutti_request* request_ = nullptr;
    std::optional<Failure> failure_;
};

}  // namespace tutti_python
