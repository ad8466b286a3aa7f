// The module tutti._tutti, the base of communicator.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "checkpoint.h"
#include "communicator.h"
#include "handles.h"
#include "lightgbm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using tutti_python::Checkpoint;
using tutti_python::Communicator;
using tutti_python::Counts;
using tutti_python::LightgbmNetwork;
using tutti_python::Plan;
using tutti_python::Request;
using tutti_python::Settings;

std::vector<std::string> transports() {
    std::vector<std::string> names;
    for (int i = 0; const char* name = tutti_transport_name(i); ++i) names.emplace_back(name);
    return names;
}

std::vector<std::string> algorithms(const char* collective) {
    std::vector<std::string> names;
    for (int i = 0; const char* name = tutti_algorithm_name(collective, i); ++i)
        names.emplace_back(name);
    return names;
}

}  // namespace

NB_MODULE(_tutti, module) {
    module.def("version", [] { return std::string(tutti_version()); });
    module.def("transports", &transports);
    module.def("algorithms", &algorithms, "collective"_a);
    nb::class_<Request>(module, "Request")
        .def("wait", &Request::wait, "timeout_ms"_a)
        .def("leave", &Request::leave)
        .def("fd", &Request::fd)
        .def("source", &Request::source);
    nb::class_<Plan>(module, "Plan").def("run", &Plan::run).def("start", &Plan::start);
    nb::class_<Communicator>(module, "Communicator")
        .def(nb::init<const Settings&>(), "settings"_a)
        .def_prop_ro("rank", &Communicator::rank)
        .def_prop_ro("size", &Communicator::size)
        .def_prop_ro("local_rank", &Communicator::local_rank)
        .def_prop_ro("local_size", &Communicator::local_size)
        .def_prop_ro("host_count", &Communicator::host_count)
        .def("host_of", &Communicator::host_of, nb::arg("rank"))
        // noconvert: an array that is not in one piece is an error, never a silent copy.
        .def("run", &Communicator::run, "collective"_a, nb::arg("input").noconvert().none(),
             nb::arg("output").noconvert().none(), "count"_a, "op"_a, "root"_a)
        .def("barrier", &Communicator::barrier, nb::arg("name").none())
        .def("start", &Communicator::start, "collective"_a, nb::arg("input").noconvert().none(),
             nb::arg("output").noconvert().none(), "count"_a, "op"_a, "root"_a, "timeout_ms"_a,
             "counts"_a = Counts{}, "out_counts"_a = Counts{})
        .def("plan", &Communicator::plan, "collective"_a, nb::arg("input").noconvert().none(),
             nb::arg("output").noconvert().none(), "count"_a, "op"_a, "root"_a, "timeout_ms"_a,
             "counts"_a = Counts{}, "out_counts"_a = Counts{})
        .def("send", &Communicator::send, nb::arg("data").noconvert(), "destination"_a, "tag"_a,
             "timeout_ms"_a)
        .def("receive", &Communicator::receive, nb::arg("data").noconvert(), "source"_a, "tag"_a,
             "timeout_ms"_a)
        .def("sendrecv", &Communicator::sendrecv, nb::arg("data").noconvert(), "destination"_a,
             "tag"_a, nb::arg("received").noconvert(), "source"_a, "received_tag"_a)
        .def_static("adopt", &Communicator::adopt, "address"_a, "keeper"_a)
        .def("split", &Communicator::split, "color"_a, "key"_a)
        .def("duplicate", &Communicator::duplicate)
        .def("shrink", &Communicator::shrink, "leavers"_a)
        .def("grow", &Communicator::grow, "newcomers"_a)
        .def("waiting", &Communicator::waiting)
        .def("agree", &Communicator::agree, "bits"_a)
        .def("lost", &Communicator::lost)
        .def("explain", &Communicator::explain, "collective"_a, "bytes"_a, "dtype"_a, "op"_a)
        .def("dump", &Communicator::dump, "fd"_a)
        .def("abort", &Communicator::abort)
        .def("revoke", &Communicator::revoke)
        .def("leave", &Communicator::leave)
        .def("close", &Communicator::close);
    module.def("handle", &tutti_python::handle, "settings"_a);
    module.def("reconfigure", &tutti_python::reconfigure, "settings"_a, "uuid"_a, "handles"_a,
               "timeout_ms"_a);
    nb::class_<Checkpoint>(module, "Checkpoint")
        .def(nb::init<>())
        .def("add_source", &Checkpoint::add_source, "name"_a, nb::arg("data").noconvert(),
             nb::arg("first_row").none(), "rows"_a)
        .def("add_target", &Checkpoint::add_target, "name"_a, nb::arg("data").noconvert(),
             nb::arg("first_row").none(), "rows"_a)
        .def("set_text", &Checkpoint::set_text, "key"_a, "text"_a)
        .def("text", &Checkpoint::text, "key"_a)
        .def("save", &Checkpoint::save, nb::arg("comm").none(), "path"_a)
        .def("load", &Checkpoint::load, nb::arg("comm").none(), "path"_a, "allow_missing"_a,
             "allow_extra"_a)
        .def("missing", &Checkpoint::missing);
    nb::class_<LightgbmNetwork>(module, "LightgbmNetwork")
        .def(nb::init<const Communicator&>(), "comm"_a)
        .def("used", &LightgbmNetwork::used)
        .def("leave", &LightgbmNetwork::leave)
        .def_static("reduce_scatter_address", &LightgbmNetwork::reduce_scatter_address)
        .def_static("allgather_address", &LightgbmNetwork::allgather_address);
}
