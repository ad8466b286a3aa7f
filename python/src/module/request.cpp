#include "request.h"

#include <algorithm>

#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {

Request::~Request() {
    if (!request_) return;
    const auto inside = joined_.lock();
    const Released released;
    (void)tutti_wait(&request_, -1);
}

bool Request::wait(int64_t timeout_ms) {
    const auto inside = joined_.lock();
    if (!wait_in_slices(timeout_ms)) return false;
    if (failure_) raise(failure_->status, operation_, failure_->text.c_str(), failure_->rank);
    return true;
}

// Python runs signal handlers in its main thread, and only between that thread's bytecodes.
bool Request::wait_in_slices(int64_t timeout_ms) {
    for (int64_t left_ms = timeout_ms;
         !poll(timeout_ms < 0 ? slice_ms : std::min(slice_ms, left_ms)); left_ms -= slice_ms) {
        if (timeout_ms >= 0 && left_ms <= slice_ms) return false;
        if (PyErr_CheckSignals() == 0) continue;
        nb::python_error raised;
        leave();
        throw raised;
    }
    return true;
}

bool Request::poll(int64_t timeout_ms) {
    if (!request_) return true;
    const Released released;
    const tutti_status status = tutti_wait(&request_, timeout_ms);
    if (request_) return false;
    if (status != TUTTI_OK) failure_ = {status, tutti_last_error(), tutti_last_error_rank()};
    return true;
}

void Request::leave() {
    if (const auto inside = joined_.lock(); inside && !over()) inside->leave(*this);
}

int Request::fd() {
    if (!request_) return -1;
    int fd = -1;
    check(tutti_request_fd(request_, &fd), operation_);
    return fd;
}

}  // namespace tutti_python
