#include "joined.h"

#include <utility>

#include "request.h"

namespace nb = nanobind;

namespace tutti_python {

// Destroys the communicator first, which ends its requests, so that their destruction does not wait
// for a deadline.
Joined::~Joined() {
    if (keeper_) {
        keeper_.reset();
    } else {
        const Released released;
        (void)tutti_comm_destroy(comm_);
    }
    left_.clear();
}

void Joined::leave(Request& request) {
    nb::object held = nb::find(request);
    for (const nb::object& other : left_)
        if (other.is(held)) return;
    left_.push_back(std::move(held));
}

// Skips a request that another reference holds: only the holder's thread may poll it. Polling
// releases the GIL, so other threads may append to left_ in the meantime.
void Joined::let_go() {
    for (nb::object& request : std::exchange(left_, {}))
        if (Py_REFCNT(request.ptr()) > 1 || !nb::cast<Request&>(request).over())
            left_.push_back(std::move(request));
}

std::shared_ptr<Joined> not_closed(std::shared_ptr<Joined> joined) {
    if (joined) return joined;
    PyErr_SetString(
        PyExc_ValueError,
        "the communicator is closed. What to do: make the call before close(), or a new "
        "communicator");
    throw nb::python_error();
}

std::shared_ptr<Joined> entered(std::shared_ptr<Joined> joined) {
    std::shared_ptr<Joined> inside = not_closed(std::move(joined));
    inside->let_go_of_what_is_over();
    return inside;
}

}  // namespace tutti_python
