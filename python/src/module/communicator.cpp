#include "communicator.h"

#include "collectives.h"
#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {
namespace {

Call call_of(const std::optional<Input>& in, const std::optional<Output>& out, std::size_t count,
             const char* op, int root) {
    Call call;
    call.root = root;
    if (!in && !out) return call;
    const nb::dlpack::dtype type = in ? in->dtype() : out->dtype();
    if (in && out && in->dtype() != out->dtype())
        throw nb::type_error("the input and the output have different types");
    const Elements elements = elements_of(type);
    call.dtype = elements.dtype;
    call.op = op_of(op, elements);
    call.count = count * elements.parts;
    if (in) call.in = in->data();
    if (out) call.out = out->data();
    return call;
}

// Whoever holds it last has the GIL.
std::shared_ptr<tutti_comm> owned(tutti_comm* comm) {
    return {comm, [](tutti_comm* last) {
                const nb::gil_scoped_release released;
                (void)tutti_comm_destroy(last);
            }};
}

}  // namespace

Communicator::Communicator(const std::map<std::string, std::string>& settings) {
    tutti_config* raw = nullptr;
    check(tutti_config_create(&raw), "init");
    const std::unique_ptr<tutti_config, decltype(&tutti_config_destroy)> config(
        raw, &tutti_config_destroy);
    for (const auto& [key, value] : settings)
        check(tutti_config_set(raw, key.c_str(), value.c_str()), "init");
    tutti_comm* made = nullptr;
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = tutti_comm_create(raw, &made);
    }
    check(status, "init");
    comm_ = owned(made);
}

std::shared_ptr<tutti_comm> Communicator::comm() const {
    if (!comm_) {
        PyErr_SetString(PyExc_ValueError, "the communicator is closed");
        throw nb::python_error();
    }
    return comm_;
}

void Communicator::run(const char* collective, std::optional<Input> in, std::optional<Output> out,
                       std::size_t count, const char* op, int root) {
    const Collective& found = collective_of(collective);
    const Call call = call_of(in, out, count, op, root);
    const std::shared_ptr<tutti_comm> held = comm();
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = found.run(held.get(), call);
    }
    check(status, found.name);
}

std::unique_ptr<Request> Communicator::start(const char* collective, std::optional<Input> in,
                                             std::optional<Output> out, std::size_t count,
                                             const char* op, int root, int64_t timeout_ms) {
    const Collective& found = collective_of(collective);
    const Call call = call_of(in, out, count, op, root);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    // The stream of blocking calls: ranks may differ in which of the two they make.
    opts.stream = 0;
    opts.timeout_ms = timeout_ms;
    auto request = std::make_unique<Request>(found.name, std::move(in), std::move(out), comm_);
    const std::shared_ptr<tutti_comm> held = comm();
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = found.start(held.get(), call, &opts, request->slot());
    }
    check(status, found.name);
    return request;
}

std::unique_ptr<Request> Communicator::send(Input data, int destination, int tag,
                                            int64_t timeout_ms) {
    const Elements elements = elements_of(data.dtype());
    const void* memory = data.data();
    const std::size_t count = data.size() * elements.parts;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = timeout_ms;
    auto request = std::make_unique<Request>("send", std::move(data), std::nullopt, comm_);
    const std::shared_ptr<tutti_comm> held = comm();
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = tutti_isend(held.get(), memory, count, elements.dtype, destination, tag, &opts,
                             request->slot());
    }
    check(status, "send");
    return request;
}

std::unique_ptr<Request> Communicator::receive(Output data, int source, int tag,
                                               int64_t timeout_ms) {
    const Elements elements = elements_of(data.dtype());
    void* memory = data.data();
    const std::size_t count = data.size() * elements.parts;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = timeout_ms;
    auto request = std::make_unique<Request>("recv", std::nullopt, std::move(data), comm_);
    const std::shared_ptr<tutti_comm> held = comm();
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = tutti_irecv(held.get(), memory, count, elements.dtype, source, tag,
                             request->received(), &opts, request->slot());
    }
    check(status, "recv");
    return request;
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
    tutti_comm* part = nullptr;
    const std::shared_ptr<tutti_comm> held = comm();
    tutti_status status = TUTTI_OK;
    {
        const nb::gil_scoped_release released;
        status = tutti_comm_split(held.get(), color, key, &part);
    }
    check(status, "split");
    if (!part) return nullptr;
    return std::unique_ptr<Communicator>(new Communicator(owned(part)));
}

std::unique_ptr<Communicator> Communicator::adopt(std::uintptr_t address, nb::object keeper) {
    auto* const comm = reinterpret_cast<tutti_comm*>(address);
    // Requests outlive it, and with them this function: the keeper goes when it is called.
    auto let_go = [kept = std::move(keeper)](tutti_comm*) mutable { kept.reset(); };
    return std::unique_ptr<Communicator>(new Communicator({comm, std::move(let_go)}));
}

std::string Communicator::explain(const char* collective, std::size_t bytes) {
    std::string text(4096, '\0');
    check(tutti_comm_explain(comm().get(), collective, bytes, text.data(), text.size()), "explain");
    text.resize(text.find('\0'));
    return text;
}

void Communicator::dump(int fd) {
    check(tutti_comm_dump(comm().get(), fd), "dump");
}

void Communicator::abort() {
    check(tutti_comm_abort(comm().get()), "abort");
}

// The last thread that is inside takes it along.
void Communicator::close() {
    if (comm_.use_count() > 1) (void)tutti_comm_abort(comm_.get());
    comm_.reset();
}

}  // namespace tutti_python
