#include "errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace tutti_python {

void raise(tutti_status status, const char* operation) {
    raise(status, operation, tutti_last_error(), tutti_last_error_rank());
}

void raise(tutti_status status, const char* operation, const char* text, int rank) {
    // Copy the text first: a later call on this thread could replace its last failure.
    const nb::str cause(text);
    const nb::object make = nb::module_::import_("tutti._errors").attr("make");
    const nb::object error = make(static_cast<int>(status), rank, operation, cause);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

}  // namespace tutti_python
