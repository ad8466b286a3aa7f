#include "gpu/device_calls.h"

#include "gpu/device_group_batch.h"
#include "plan/buffer_range.h"

namespace tutti {
namespace {

// A mismatch between joining and issuing restarts the attempt. After this many, start() fails.
constexpr int most_attempts = 8;

}  // namespace

// Asks the driver once for each pointer: its answer costs more than the other checks.
Result<Kinds> DeviceCalls::ask(const void* in, const void* out) const {
    Kinds kinds;
    TUTTI_ASSIGN(kinds.in, side_.memory_of(in));
    if (in == out) {
        kinds.out = kinds.in;
    } else {
        TUTTI_ASSIGN(kinds.out, side_.memory_of(out));
    }
    return kinds;
}

// The inputs go through the host, but all of them must be in one memory. A call without elements
// does not look at its inputs.
Result<Kinds> DeviceCalls::kinds_of_list(const OffloadCall& asked) const {
    TUTTI_ASSIGN(const device::MemoryKind kind, side_.memory_of(asked.out));
    if (asked.call.count == 0 && !kind.on_device()) return Kinds{};
    const auto* list = static_cast<const void* const*>(asked.in);
    for (int32_t i = 0; i < asked.call.inputs; ++i) {
        TUTTI_ASSIGN(const device::MemoryKind other, side_.memory_of(list[i]));
        if (other != kind)
            return fail(Code::invalid, "allreduce_multi: input {} is in {}, the output is in {}", i,
                        device::describe(other), device::describe(kind))
                .advice("put all inputs and the output in host memory, or all on one GPU");
    }
    return Kinds{kind, kind};
}

// The kinds of the buffers that this rank uses; if it uses one buffer, that one's kind for both.
Result<Kinds> DeviceCalls::kinds_of_used(const Call& call, const Kinds& both) const {
    const BufferRange a = range_of(call, side_.rank(), side_.core.size(), Space::input);
    const BufferRange b = range_of(call, side_.rank(), side_.core.size(), Space::output);
    const bool has_in = a.used && a.length > 0, has_out = b.used && b.length > 0;
    // A rank without blocks still takes part: its pointers tell the device of the call.
    if (!has_in && !has_out && call.uneven) return Kinds{both.device(), both.device()};
    Kinds kinds;
    if (has_in) kinds.in = both.in;
    if (has_out) kinds.out = both.out;
    if (!has_in) kinds.in = kinds.out;
    if (!has_out) kinds.out = kinds.in;
    const bool staged = side_.core.config().device == DeviceMode::staged;
    if (!kinds.differ() || (kinds.mixed() && staged)) return kinds;
    return fail(Code::invalid, "{}: the input is in {}, the output is in {}",
                collective_name(call.collective), device::describe(kinds.in),
                device::describe(kinds.out))
        .advice("put both buffers on one GPU{}",
                kinds.mixed() ? " or both in host memory, or set TUTTI_DEVICE=staged on every rank"
                              : "");
}

Result<Kinds> DeviceCalls::find_kinds(const OffloadCall& asked) const {
    if (asked.call.inputs > 0) return kinds_of_list(asked);
    TUTTI_ASSIGN(const Kinds both, ask(asked.in, asked.out));
    return both.device().on_device() ? kinds_of_used(asked.call, both) : both;
}

Result<bool> DeviceCalls::takes(OffloadCall& asked) const {
    const Devices& devices = side_.devices;
    const Call& call = asked.call;
    if (!device::driver()) [[likely]] {
        if (!asked.queue) return false;
        // The program may have loaded the driver since.
        const auto found = device::find_driver(side_.core.config().cuda_library);
        if (!found) return wrap(found.error(), "a call with a device stream needs the CUDA driver");
    }
    if (call.collective == Collective::barrier) return false;
    TUTTI_ASSIGN(const Kinds both, find_kinds(asked));
    const device::MemoryKind kind = both.device();
    if (!kind.on_device()) {
        // No buffer here (uneven blocks): a device stream says that the call is on the device.
        const bool stated = asked.queue || devices.stream_was_set;
        return call.uneven && call.count == 0 && !asked.in && !asked.out && stated;
    }
    asked.in_on = both.in.device;
    asked.out_on = both.out.device;
    if (!devices.joined() || devices.device == kind.device) return true;
    return fail(Code::invalid, "{}: the buffers are in {}, but the communicator's device is {}",
                collective_name(call.collective), device::describe(kind), devices.device)
        .advice("use buffers on device {}, or a communicator of its own for each GPU",
                devices.device);
}

// ---- issuing ---------------------------------------------------------------------------------

Result<Plan*> DeviceCalls::plan_for(const Call& call, Plan* own, uint32_t stream) {
    const bool current = own ? own->offloaded && own->offloaded->call.path == call.path &&
                                   own->offloaded->call.on_host == call.on_host &&
                                   own->offloaded->generation == side_.devices.generation
                             : side_.core.plans[stream].find(call) != nullptr;
    if (!current && call.path != Path::library) TUTTI_TRY(side_.wait_for_idle());
    if (!own) return side_.issuer.plan_for(call, stream, side_.core.limit_ms(-1));
    if (!current) {
        TUTTI_ASSIGN(own->offloaded, side_.issuer.bind_plan(call, stream, side_.core.limit_ms(-1)));
        own->offloaded->generation = side_.devices.generation;
    }
    return own->offloaded.get();
}

Result<DeviceCalls::ResolvedCall> DeviceCalls::resolve(const OffloadCall& asked) const {
    const Devices& devices = side_.devices;
    const Kinds both{{asked.in_on}, {asked.out_on}};
    TUTTI_TRY(side_.core.planner.check(asked.call, asked.stream));
    void* const stream = asked.queue ? asked.queue : devices.stream;
    device::Ordinal device = devices.joined() ? devices.device : both.device().device;
    // A rank without blocks may have no device pointer: take the stream's device.
    if (device < 0)
        device = device::device_of(*device::driver(), static_cast<device::StreamHandle>(stream));
    TUTTI_TRY(path_.queues.check_runs(device, stream));
    const bool in_place = asked.in == asked.out && asked.in != nullptr;
    return ResolvedCall{asked, both, device, stream, in_place};
}

/// The call with its path.
Result<Call> DeviceCalls::routed(const ResolvedCall& resolved) const {
    Call call = resolved.asked.call;
    TUTTI_ASSIGN(call.path, side_.planner.path_of(call, {resolved.in_place, resolved.kinds.mixed()},
                                                  side_.core.config().device));
    call.on_host = resolved.kinds.on_host();
    return call;
}

Result<std::unique_ptr<DeviceRequest>> DeviceCalls::make_request(const ResolvedCall& resolved,
                                                                 Plan& plan) {
    const Core& core = side_.core;
    auto request = std::make_unique<DeviceRequest>();
    if (core.size() > 1) {
        TUTTI_ASSIGN(
            request->device.use,
            DeviceStreamGuard::begin({side_.devices.device, resolved.stream,
                                      core.endpoint->hashes().job, core.group.id(), core.rank()}));
    }
    request->in = resolved.asked.in;
    request->out = resolved.asked.out;
    request->round_robin_stream = resolved.asked.stream < 0;
    request->device.operation = &operation_of(plan);
    request->device.stream = resolved.stream;
    request->device.generation =
        by_group(plan.call.path) ? side_.devices.generation : core.generation.load();
    request->keep = core.self.lock();
    return request;
}

// nullptr: the ranks had a mismatch in the meantime, and all must join again.
Result<std::unique_ptr<Request>> DeviceCalls::attempt(const ResolvedCall& resolved) {
    Core& core = side_.core;
    Admission& admission = side_.issuer.admission();
    const int64_t timeout_ms = core.limit_ms(resolved.asked.timeout_ms);
    TUTTI_TRY(admission.enter(admission.stream_for(resolved.asked.stream), timeout_ms));
    TUTTI_TRY(path_.join.may_join());
    TUTTI_TRY(path_.join.join(resolved.device));
    TUTTI_TRY(path_.queues.check_owner(resolved.stream));
    TUTTI_ASSIGN(const Call call, routed(resolved));
    const uint32_t stream = admission.stream_for(resolved.asked.stream);
    TUTTI_ASSIGN(Plan * plan, plan_for(call, resolved.asked.plan, stream));
    TUTTI_ASSIGN(auto request, make_request(resolved, *plan));
    DeviceGroupBatch::here().make_room();
    TUTTI_ASSIGN(const auto place, admission.submit(*request, *plan, timeout_ms));
    if (place == Admission::Place::outdated) return nullptr;
    core.waiting.add_pending();
    core.streams.release(core.streams[stream]);
    TUTTI_TRY(path_.launcher.launch({*request, request->device}));
    return request;
}

Result<std::unique_ptr<Request>> DeviceCalls::start(const OffloadCall& asked) {
    TUTTI_ASSIGN(const ResolvedCall resolved, resolve(asked));
    for (int tried = 0; tried < most_attempts; ++tried) {
        TUTTI_ASSIGN(auto request, attempt(resolved));
        if (request) return request;
    }
    return fail(Code::system, "{}: the ranks called different collectives in {} attempts in a row",
                collective_name(asked.call.collective), most_attempts)
        .advice(
            "make every rank call the same collectives in the same order; TUTTI_CHECK=strict finds "
            "the first call that differs");
}

}  // namespace tutti
