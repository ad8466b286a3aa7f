#include "request.h"

#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {

Request::~Request() {
    if (!request_) return;
    const nb::gil_scoped_release released;
    (void)tutti_wait(&request_, -1);
}

bool Request::wait(int64_t timeout_ms) {
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = tutti_wait(&request_, timeout_ms);
    }
    if (request_) return false;
    check(status, operation_);
    return true;
}

int Request::fd() {
    if (!request_) return -1;
    int fd = -1;
    check(tutti_request_fd(request_, &fd), operation_);
    return fd;
}

}  // namespace tutti_python
