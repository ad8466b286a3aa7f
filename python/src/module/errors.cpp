#include "errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace tutti_python {

void raise(tutti_status status, const char* operation) {
    // Before anything else runs on this thread.
    const nb::str cause(tutti_last_error());
    const int rank = tutti_last_error_rank();
    const nb::object make = nb::module_::import_("tutti._errors").attr("make");
    const nb::object error = make(static_cast<int>(status), rank, operation, cause);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

}  // namespace tutti_python
