#include "request.h"

#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {

Request::~Request() {
    if (!request_) return;
    const auto inside = comm_.lock();
    const nb::gil_scoped_release released;
    (void)tutti_wait(&request_, -1);
}

bool Request::wait(int64_t timeout_ms) {
    if (request_) {
        const auto inside = comm_.lock();
        const nb::gil_scoped_release released;
        const tutti_status status = tutti_wait(&request_, timeout_ms);
        if (request_) return false;
        if (status != TUTTI_OK) failure_ = {status, tutti_last_error(), tutti_last_error_rank()};
    }
    if (failure_) raise(failure_->status, operation_, failure_->text.c_str(), failure_->rank);
    return true;
}

int Request::fd() {
    if (!request_) return -1;
    int fd = -1;
    check(tutti_request_fd(request_, &fd), operation_);
    return fd;
}

}  // namespace tutti_python
