#include "work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>

#include "device.h"

namespace tutti_torch {
namespace {

// Stores a callback's exception in the future, because the thread has other operations to end.
void complete(c10::ivalue::Future& future, const std::vector<at::Tensor>& results) {
    try {
        future.markCompleted(c10::IValue(results));
    } catch (const std::exception&) {
        future.setErrorIfNeeded(std::current_exception());
    }
}

}  // namespace

Work::Work(const Description& description, int rank, std::shared_ptr<Operation> operation,
           const std::optional<std::vector<at::Tensor>>& inputs)
    : c10d::Work(rank, description.type, description.title, inputs),
      description_(description),
      operation_(std::move(operation)) {}

Work::~Work() {
    if (!operation_->done()) operation_->leave_alone();
    if (recordFunctionEndCallback_ && !settled_) recordFunctionEndCallback_();
}

void Work::settle() {
    if (!settled_.exchange(true)) finish(operation_->error());
}

bool Work::isCompleted() {
    if (!operation_->poll()) return false;
    settle();
    return true;
}

bool Work::isSuccess() const {
    return operation_->done() && !operation_->error();
}

std::exception_ptr Work::exception() const {
    return operation_->done() ? operation_->error() : nullptr;
}

int Work::sourceRank() const {
    return operation_->done() ? operation_->source().source : -1;
}

std::vector<at::Tensor> Work::result() {
    TORCH_CHECK(
        operation_->ordered() || isCompleted(), "tutti ", operation_->name(),
        ": the operation is not over, so that it has no result. What to do: call wait() before "
        "result()");
    return results_;
}

// Data in host memory needs no stream order once the operation is over.
void Work::synchronize() {
    wait(kNoTimeout);
}

// The current stream waits, the host does not. Throws a failure that is already known; the group's
// next call on the device throws a later one.
bool Work::wait_in_order() {
    if (operation_->poll() && operation_->error()) {
        operation_->heard();
        settle();
        std::rethrow_exception(operation_->error());
    }
    operation_->put_before(current_stream(operation_->stream()->device()));
    return true;
}

bool Work::wait(std::chrono::milliseconds timeout) {
    for (const auto& operation : earlier_) operation->wait(timeout);
    if (operation_->ordered() && timeout == kNoTimeout) return wait_in_order();
    if (!operation_->wait(timeout))
        TORCH_CHECK(
            false, "tutti ", operation_->name(), ": Operation timed out! It was not over ",
            timeout.count(),
            " ms after this wait began, and goes on. What to do: wait again, or with a longer "
            "timeout");
    settle();
    if (operation_->ordered()) operation_->heard();
    if (operation_->error()) std::rethrow_exception(operation_->error());
    if (operation_->ordered())
        operation_->put_before(current_stream(operation_->stream()->device()));
    return true;
}

const CallTime& Work::time() const {
    TORCH_CHECK(operation_->done(), "tutti ", operation_->name(),
                ": the operation is not over, so that it has no duration. What to do: call wait() "
                "before _get_duration()");
    TORCH_CHECK(operation_->time(), "tutti ", operation_->name(),
                ": the group did not time its calls when this one began. What to do: call "
                "_enable_collectives_timing() of the group before the call");
    return *operation_->time();
}

void Work::abort() {
    TORCH_CHECK(
        false, "tutti ", operation_->name(),
        ": a single operation cannot be aborted, as the other ranks count on it. What to do: "
        "abort the group (tutti.torch.abort)");
}

// The future is complete at once, like torch's futures of devices: torch orders a user of the value
// behind its stream. The future marks the end of another stream, because the group's own may have
// later operations by now.
void Work::make_ordered_future(const c10::TypePtr& type) {
    const c10::Device device = operation_->stream()->device();
    future_ = c10::make_intrusive<c10::ivalue::Future>(type, std::vector<c10::Device>{device});
    if (operation_->done() && operation_->error()) {
        future_->setError(operation_->error());
        return;
    }
    const c10::Stream behind = pool_stream(device);
    operation_->put_before(behind);
    const c10::StreamGuard on(behind);
    future_->markCompleted(c10::IValue(results_));
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
    if (operation_->ordered()) operation_->poll();  // without the lock: a failure calls the program
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    const auto type = c10::ListType::create(c10::TensorType::get());
    if (operation_->ordered()) {
        make_ordered_future(type);
        return future_;
    }
    // An operation that the host waits for may have its results on a device, too.
    std::vector<c10::Device> devices;
    if (!results_.empty() && !results_.front().is_cpu())
        devices.push_back(results_.front().device());
    future_ = c10::make_intrusive<c10::ivalue::Future>(type, std::move(devices));
    // A raw pointer: the operation lives until its callbacks are called.
    operation_->when_done([future = future_, results = results_, operation = operation_.get()] {
        if (operation->error())
            future->setError(operation->error());
        else
            complete(*future, results);
    });
    return future_;
}

}  // namespace tutti_torch
