#include "communicator.h"

#include "collectives.h"
#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {
namespace {

Counts times(Counts counts, std::size_t parts) {
    for (std::size_t& count : counts) count *= parts;
    return counts;
}

Call call_of(const std::optional<Input>& in, const std::optional<Output>& out, std::size_t count,
             const char* op, int root, const Counts& counts = {}, const Counts& out_counts = {}) {
    Call call;
    call.root = root;
    if (!in && !out) return call;
    const nb::dlpack::dtype type = in ? in->dtype() : out->dtype();
    if (in && out && in->dtype() != out->dtype())
        throw nb::type_error(
            "the input and the output have different types. What to do: pass an output of the "
            "input's dtype");
    const Elements elements = elements_of(type);
    call.dtype = elements.dtype;
    call.op = op_of(op, elements);
    call.count = count * elements.parts;
    call.counts = times(counts, elements.parts);
    call.out_counts = times(out_counts, elements.parts);
    if (in) call.in = in->data();
    if (out) call.out = out->data();
    return call;
}

// All calls use stream 0, because one rank may call the blocking form and another the "i" form.
tutti_call_opts within(int64_t timeout_ms) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = 0;
    opts.timeout_ms = timeout_ms;
    return opts;
}

}  // namespace

Config config_of(const Settings& settings, const char* operation) {
    tutti_config* raw = nullptr;
    check(tutti_config_create(&raw), operation);
    Config config(raw, &tutti_config_destroy);
    for (const auto& [key, value] : settings)
        check(tutti_config_set(raw, key.c_str(), value.c_str()), operation);
    return config;
}

Communicator::Communicator(const Settings& settings) {
    const Config config = config_of(settings, "init");
    tutti_comm* made = nullptr;
    check_released("init", [&] { return tutti_comm_create(config.get(), &made); });
    joined_ = std::make_shared<Joined>(made);
}

std::shared_ptr<Joined> Communicator::joined() const {
    return not_closed(joined_);
}

std::shared_ptr<Joined> Communicator::enter() const {
    return entered(joined_);
}

void Communicator::run(const char* collective, std::optional<Input> in, std::optional<Output> out,
                       std::size_t count, const char* op, int root) {
    const Collective& found = collective_of(collective);
    const Call call = call_of(in, out, count, op, root);
    const std::shared_ptr<Joined> inside = enter();
    const tutti_call_opts opts = within(-1);
    start_and_wait(
        found.name,
        [&](tutti_request** slot) { return found.start(inside->comm(), call, &opts, slot); },
        [&] {
            return std::make_unique<Request>(found.name, std::move(in), std::move(out), inside);
        });
}

void Communicator::barrier(const std::optional<std::string>& name) {
    const std::shared_ptr<Joined> inside = enter();
    tutti_call_opts opts = within(-1);
    opts.name = name ? name->c_str() : nullptr;
    start_and_wait(
        "barrier",
        [&](tutti_request** slot) { return tutti_ibarrier(inside->comm(), &opts, slot); },
        [&] { return std::make_unique<Request>("barrier", std::nullopt, std::nullopt, inside); });
}

std::unique_ptr<Request> Communicator::start(const char* collective, std::optional<Input> in,
                                             std::optional<Output> out, std::size_t count,
                                             const char* op, int root, int64_t timeout_ms,
                                             const Counts& counts, const Counts& out_counts) {
    const Collective& found = collective_of(collective);
    const Call call = call_of(in, out, count, op, root, counts, out_counts);
    const tutti_call_opts opts = within(timeout_ms);
    const std::shared_ptr<Joined> inside = enter();
    auto request = std::make_unique<Request>(found.name, std::move(in), std::move(out), inside);
    check_released(found.name,
                   [&] { return found.start(inside->comm(), call, &opts, request->slot()); });
    return request;
}

std::unique_ptr<Plan> Communicator::plan(const char* collective, std::optional<Input> in,
                                         std::optional<Output> out, std::size_t count,
                                         const char* op, int root, int64_t timeout_ms,
                                         const Counts& counts, const Counts& out_counts) {
    const Collective& found = collective_of(collective);
    const Call call = call_of(in, out, count, op, root, counts, out_counts);
    const tutti_call_opts opts = within(timeout_ms);
    const std::shared_ptr<Joined> inside = enter();
    tutti_plan* made = nullptr;
    check_released(found.name, [&] { return found.plan(inside->comm(), call, &opts, &made); });
    return std::make_unique<Plan>(found.name, made, std::move(in), std::move(out), inside);
}

std::unique_ptr<Request> Communicator::send(Input data, int destination, int tag,
                                            int64_t timeout_ms) {
    const Elements elements = elements_of(data.dtype());
    const void* memory = data.data();
    const std::size_t count = data.size() * elements.parts;
    const tutti_call_opts opts = within(timeout_ms);
    const std::shared_ptr<Joined> inside = enter();
    auto request = std::make_unique<Request>("send", std::move(data), std::nullopt, inside);
    check_released("send", [&] {
        return tutti_isend(inside->comm(), memory, count, elements.dtype, destination, tag, &opts,
                           request->slot());
    });
    return request;
}

std::unique_ptr<Request> Communicator::receive(Output data, int source, int tag,
                                               int64_t timeout_ms) {
    const Elements elements = elements_of(data.dtype());
    void* memory = data.data();
    const std::size_t count = data.size() * elements.parts;
    const tutti_call_opts opts = within(timeout_ms);
    const std::shared_ptr<Joined> inside = enter();
    auto request = std::make_unique<Request>("recv", std::nullopt, std::move(data), inside);
    check_released("recv", [&] {
        return tutti_irecv(inside->comm(), memory, count, elements.dtype, source, tag,
                           request->received(), &opts, request->slot());
    });
    return request;
}

std::pair<std::unique_ptr<Request>, std::unique_ptr<Request>> Communicator::sendrecv(
    Input data, int destination, int tag, Output received, int source, int received_tag) {
    // Check both types before either message begins.
    const Elements sent = elements_of(data.dtype()), wanted = elements_of(received.dtype());
    const void* const from = data.data();
    void* const to = received.data();
    const std::size_t sent_count = data.size() * sent.parts;
    const std::size_t wanted_count = received.size() * wanted.parts;
    const tutti_call_opts opts = within(-1);
    const std::shared_ptr<Joined> inside = enter();
    auto receiving =
        std::make_unique<Request>("sendrecv", std::nullopt, std::move(received), inside);
    auto sending = std::make_unique<Request>("sendrecv", std::move(data), std::nullopt, inside);
    check_released("sendrecv", [&] {
        const tutti_status status =
            tutti_irecv(inside->comm(), to, wanted_count, wanted.dtype, source, received_tag,
                        receiving->received(), &opts, receiving->slot());
        if (status != TUTTI_OK) return status;
        return tutti_isend(inside->comm(), from, sent_count, sent.dtype, destination, tag, &opts,
                           sending->slot());
    });
    return {std::move(sending), std::move(receiving)};
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
    tutti_comm* part = nullptr;
    const std::shared_ptr<Joined> inside = joined();
    check_released("split", [&] { return tutti_comm_split(inside->comm(), color, key, &part); });
    if (!part) return nullptr;
    return std::unique_ptr<Communicator>(new Communicator(std::make_shared<Joined>(part)));
}

std::unique_ptr<Communicator> Communicator::duplicate() {
    tutti_comm* copy = nullptr;
    const std::shared_ptr<Joined> inside = joined();
    check_released("dup", [&] { return tutti_comm_dup(inside->comm(), &copy); });
    return std::unique_ptr<Communicator>(new Communicator(std::make_shared<Joined>(copy)));
}

std::unique_ptr<Communicator> Communicator::shrink(const std::vector<int>& leavers) {
    tutti_comm* smaller = nullptr;
    const std::shared_ptr<Joined> inside = joined();
    check_released(leavers.empty() ? "shrink" : "shrink_without", [&] {
        return tutti_comm_shrink_without(inside->comm(), leavers.data(), leavers.size(), &smaller);
    });
    return std::unique_ptr<Communicator>(new Communicator(std::make_shared<Joined>(smaller)));
}

std::unique_ptr<Communicator> Communicator::grow(int newcomers) {
    tutti_comm* larger = nullptr;
    const std::shared_ptr<Joined> inside = joined();
    check_released("grow", [&] { return tutti_comm_grow(inside->comm(), newcomers, &larger); });
    return std::unique_ptr<Communicator>(new Communicator(std::make_shared<Joined>(larger)));
}

uint64_t Communicator::agree(uint64_t bits) {
    const std::shared_ptr<Joined> inside = joined();
    check_released("agree", [&] { return tutti_comm_agree(inside->comm(), &bits); });
    return bits;
}

std::vector<int> Communicator::lost() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::size_t count = 0;
    check(tutti_comm_lost(joined()->comm(), ranks.data(), ranks.size(), &count), "lost");
    ranks.resize(count);
    return ranks;
}

std::unique_ptr<Communicator> Communicator::adopt(std::uintptr_t address, nb::object keeper) {
    auto* const comm = reinterpret_cast<tutti_comm*>(address);
    return std::unique_ptr<Communicator>(
        new Communicator(std::make_shared<Joined>(comm, std::move(keeper))));
}

std::string Communicator::explain(const char* collective, std::size_t bytes, const char* dtype,
                                  const char* op) {
    const Elements elements = elements_named(dtype);
    std::string text(4096, '\0');
    check(tutti_comm_explain(joined()->comm(), collective, bytes / tutti_dtype_size(elements.dtype),
                             elements.dtype, op_of(op, elements), text.data(), text.size()),
          "explain");
    text.resize(text.find('\0'));
    return text;
}

void Communicator::dump(int fd) {
    check(tutti_comm_dump(joined()->comm(), fd), "dump");
}

void Communicator::abort() {
    check(tutti_comm_abort(joined()->comm()), "abort");
}

void Communicator::revoke() {
    check(tutti_comm_revoke(joined()->comm()), "revoke");
}

int Communicator::waiting() {
    int newcomers = 0;
    const std::shared_ptr<Joined> inside = joined();
    check_released("waiting", [&] { return tutti_comm_waiting(inside->comm(), &newcomers); });
    return newcomers;
}

void Communicator::leave() {
    const std::shared_ptr<Joined> inside = joined();
    check_released("leave", [&] { return tutti_comm_leave(inside->comm()); });
}

// The last thread inside destroys the library's communicator.
void Communicator::close() {
    if (joined_.use_count() > 1) (void)tutti_comm_abort(joined_->comm());
    joined_.reset();
}

}  // namespace tutti_python
