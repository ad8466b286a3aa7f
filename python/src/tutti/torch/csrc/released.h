// Releases the interpreter's lock, in the package's module and in the backend of torch.distributed.
#pragma once

#include <Python.h>

#include <unistd.h>

namespace tutti_python {

/// As pybind11::gil_scoped_release or nanobind's, for threads that may still be inside a call when
/// the interpreter ends. Before 3.14 Python ends such a thread by unwinding its stack, which aborts
/// the process at the first destructor. This class lets the thread sleep until the process exits,
/// as 3.14 does.
class Released {
public:
    Released() : state_(PyEval_SaveThread()) {}
    ~Released() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) ::pause();  // reached only by the unwinding of pthread_exit
        }
    }
    Released(const Released&) = delete;

private:
    PyThreadState* const state_;
};

}  // namespace tutti_python
