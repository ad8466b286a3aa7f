// The c10d::Work through which a caller waits for an operation.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "operation.h"

namespace tutti_torch {

/// The description of a call for its Work.
struct Description {
    c10d::OpType type;
    const char* title;  ///< "tutti:all_reduce": what a profiler shows; NULL without one
    uint64_t sequence;
    std::chrono::milliseconds timeout;
};

/// Whether it goes between two ranks.
inline bool is_message(c10d::OpType type) {
    return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
           type == c10d::OpType::RECVANYSOURCE;
}

/// Threads: any, several at once. A wait drives the operation on the caller's thread. If a stream
/// orders the operation, the current stream waits for it; the host waits only with a time-out.
class Work final : public c10d::Work {
public:
    Work(const Description& description, int rank, std::shared_ptr<Operation> operation,
         const std::optional<std::vector<at::Tensor>>& inputs);
    ~Work() override;

    /// The value of the future and of result().
    void set_results(std::vector<at::Tensor> results) { results_ = std::move(results); }
    /// Earlier operations on a device, for which a barrier's wait waits first.
    void come_after(std::vector<std::shared_ptr<Operation>> earlier) {
        earlier_ = std::move(earlier);
    }

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return description_.sequence; }
    /// In milliseconds.
    float getDuration() const override { return time().ms(); }
    // Overrides in newer versions of torch only.
    std::chrono::milliseconds getTimeout() const { return description_.timeout; }
    uint64_t getCompletionKey() const { return operation_->key(); }

    const std::shared_ptr<Operation>& operation() const { return operation_; }
    /// An error if the operation is not over, or was not timed.
    const CallTime& time() const;
    /// Tells the base class once the operation is over: profilers get it from there.
    void settle();

private:
    bool wait_in_order();
    void make_ordered_future(const c10::TypePtr& type);

    const Description description_;
    const std::shared_ptr<Operation> operation_;
    std::vector<at::Tensor> results_;
    std::vector<std::shared_ptr<Operation>> earlier_;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::atomic<bool> settled_{false};
};

}  // namespace tutti_torch
