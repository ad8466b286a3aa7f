#include "work.h"

#include <ATen/core/ivalue.h>

namespace tutti_torch {

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
    TORCH_CHECK(isCompleted(), "tutti ", operation_->name(),
                ": result() before the operation is over; wait() for it first");
    return results_;
}

// Data in host memory is there when the operation is over.
void Work::synchronize() {
    wait(kNoTimeout);
}

bool Work::wait(std::chrono::milliseconds timeout) {
    if (!operation_->wait(timeout))
        TORCH_CHECK(false, "tutti ", operation_->name(), ": Operation timed out! It was not over ",
                    timeout.count(), " ms after this wait began, and goes on");
    settle();
    if (operation_->error()) std::rethrow_exception(operation_->error());
    return true;
}

void Work::abort() {
    TORCH_CHECK(false, "tutti ", operation_->name(),
                ": a single operation cannot be aborted, as the other ranks count on it; abort "
                "the group");
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    // Raw: the operation lives as long as its callbacks are not called.
    operation_->when_done([future = future_, results = results_, operation = operation_.get()] {
        if (operation->error())
            future->setError(operation->error());
        else
            future->markCompleted(c10::IValue(results));
    });
    return future_;
}

}  // namespace tutti_torch
