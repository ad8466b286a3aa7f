// Estimates of the time of calls, which are planned and not made.
#include <tutti/inspect.h>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr const char* estimate_name = "time estimate";

}  // namespace

// torch does not end an estimate whose block raises an exception: the next one takes its place.
void Backend::startTimeEstimate() {
    const auto whole = group();
    const std::lock_guard one_at_a_time(issuing_);
    double ignored = 0;
    if (estimates()) (void)tutti_estimate_end(whole->comm(), &ignored);
    check(tutti_estimate_begin(whole->comm()), estimate_name);
    broken_off_ = false;
    estimator_ = std::this_thread::get_id();
}

float Backend::endTimeEstimate() {
    const auto whole = group();
    const std::lock_guard one_at_a_time(issuing_);
    double us = 0;
    check(tutti_estimate_end(whole->comm(), &us), estimate_name);
    estimator_ = std::thread::id();
    return static_cast<float>(us);
}

// After a refused call the thread makes no call until the estimate ends: the program may have left
// the block, and expect real calls.
void Backend::check_estimate(const Kind& kind, c10::Device device) const {
    TORCH_CHECK(!broken_off_, "tutti ", kind.name,
                ": this thread's time estimate is not over, and an earlier call in it failed. What "
                "to do: call _end_time_estimate() of the backend (tutti.torch.backend_of(group))");
    const bool two = is_message(kind.type), sparse = kind.type == c10d::OpType::_ALLREDUCE_SPARSE;
    TORCH_CHECK(device.is_cpu() && !two && !sparse, "tutti ", kind.name,
                ": cannot estimate the time of ",
                two      ? "messages between two ranks"
                : sparse ? "sums of sparse tensors"
                         : "calls on devices",
                ". What to do: end the estimate before, and measure the time instead");
}

}  // namespace tutti_torch
