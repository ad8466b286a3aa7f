// The backend as a python module.
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "released.h"

namespace py = pybind11;

namespace tutti_torch {

/// Python's holder of a backend. It drops the backend without the GIL, because leaving a group
/// may wait for code that needs the GIL. torch's own bindings read it as an intrusive_ptr.
template <typename T>
class Held {
public:
    explicit Held(T* raw) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(raw)) {}
    Held(const Held&) = default;
    ~Held() {
        if (!pointer_ || !PyGILState_Check()) return;
        const tutti_python::Released released;
        pointer_.reset();
    }
    T* get() const { return pointer_.get(); }

private:
    c10::intrusive_ptr<T> pointer_;
};
static_assert(sizeof(Held<Backend>) == sizeof(c10::intrusive_ptr<Backend>));

}  // namespace tutti_torch

PYBIND11_DECLARE_HOLDER_TYPE(T, tutti_torch::Held<T>, true)

namespace {

using tutti_torch::Backend;
using tutti_torch::CallError;
using tutti_torch::Settings;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

Backend& own(const BackendPtr& backend) {
    auto* found = dynamic_cast<Backend*>(backend.get());
    if (!found)
        throw py::type_error(
            "this is a backend of " + backend->getBackendName() +
            ", not one of tutti's. What to do: pass a group whose backend is tutti");
    return *found;
}

c10::intrusive_ptr<Backend::Options> options_of(const std::string& name, const Settings& settings,
                                                std::chrono::milliseconds timeout) {
    auto options = c10::make_intrusive<Backend::Options>(settings, timeout);
    options->group_name = name;
    return options;
}

BackendPtr create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  int64_t timeout_ms, const std::string& name, const Settings& settings,
                  bool one_launcher) {
    const std::chrono::milliseconds timeout(timeout_ms);
    auto group = tutti_torch::Group::join(store, rank, size, timeout, name, settings, one_launcher);
    return c10::make_intrusive<Backend>(std::move(group), options_of(name, settings, timeout));
}

// The group meets nobody before its first reconfigure().
BackendPtr create_later(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        int64_t timeout_ms, const std::string& name, const Settings& settings) {
    return c10::make_intrusive<Backend>(
        rank, size,
        options_of(name, tutti_torch::Group::with_secret(settings, store),
                   std::chrono::milliseconds(timeout_ms)));
}

// The communicator's address, and the object that keeps it alive.
py::tuple duplicate(const BackendPtr& backend) {
    using Holder = std::shared_ptr<tutti_torch::Group>;
    auto holder = std::make_unique<Holder>();
    {
        const tutti_python::Released released;
        *holder = own(backend).duplicate();
    }
    const auto address = reinterpret_cast<std::uintptr_t>((*holder)->comm());
    py::capsule keeper(holder.release(), [](void* held) {
        const tutti_python::Released released;
        delete static_cast<Holder*>(held);
    });
    return py::make_tuple(address, std::move(keeper));
}

// The python class for errors, by status; made by tutti.torch.
py::object raise_with;

py::object exception_of(const CallError& e) {
    return raise_with(static_cast<int>(e.status), e.rank, e.operation, e.cause,
                      std::string(e.what_without_backtrace()));
}

void translate(std::exception_ptr error) {
    if (!error) return;
    try {
        std::rethrow_exception(error);
    } catch (const CallError& e) {
        const py::object raised = exception_of(e);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    }
}

py::object last_error(const BackendPtr& backend) {
    const std::exception_ptr error = own(backend).last_failure();
    if (!error) return py::none();
    try {
        std::rethrow_exception(error);
    } catch (const CallError& e) {
        return exception_of(e);
    }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    // If a group is bound to a device, torch also calls this on ranks outside the new part. They
    // have nothing to do.
    py::class_<Backend, c10d::Backend, tutti_torch::Held<Backend>>(module, "Backend")
        .def("perform_nocolor_split", [](const BackendPtr&, const py::object& /*device*/) {})
        // From 2.15 on torch's class has these two.
        .def("_start_time_estimate", &Backend::startTimeEstimate,
             py::call_guard<tutti_python::Released>())
        .def("_end_time_estimate", &Backend::endTimeEstimate,
             py::call_guard<tutti_python::Released>());
    module.def(
        "abort", [](const BackendPtr& backend) { own(backend).abort(); },
        py::call_guard<tutti_python::Released>());
    module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
               py::arg("timeout_ms"), py::arg("name"), py::arg("settings"),
               py::arg("one_launcher") = true, py::call_guard<tutti_python::Released>());
    module.def("create_later", &create_later, py::arg("store"), py::arg("rank"), py::arg("size"),
               py::arg("timeout_ms"), py::arg("name"), py::arg("settings"),
               py::call_guard<tutti_python::Released>());
    module.def(
        "dump", [](const BackendPtr& backend, int fd) { own(backend).dump(fd); },
        py::call_guard<tutti_python::Released>());
    module.def("duplicate", &duplicate);
    module.def("is_own", [](const BackendPtr& backend) {
        return dynamic_cast<Backend*>(backend.get()) != nullptr;
    });
    module.def("set_error_factory", [](py::object factory) {
        raise_with = std::move(factory);
        raise_with.inc_ref();  // never released: errors may occur while the interpreter ends
    });
    module.def("interpreter_ends", &Backend::interpreter_ends,
               py::call_guard<tutti_python::Released>());
    module.def("last_error", &last_error);
    module.def(
        "lost_ranks", [](const BackendPtr& backend) { return own(backend).lost_ranks(); },
        py::call_guard<tutti_python::Released>());
    module.def(
        "memory_stats", [](const BackendPtr& backend) { return own(backend).getMemoryStats(); },
        py::call_guard<tutti_python::Released>());
    module.def("library_version", [] { return std::string(tutti_version()); });
    py::register_exception_translator(&translate);
}
