// Calls on device memory: found out by the buffers, launched by the caller in the order of the
// calls, and polled from then on.
#include <unistd.h>

#include "comm/communicator.h"
#include "gpu/device_group_batch.h"
#include "plan/buffer_range.h"

namespace tutti {
namespace {

// How often a mismatch may come between joining and issuing before we say so.
constexpr int most_attempts = 8;
constexpr useconds_t strict_poll_us = 20;

}  // namespace

Result<device::MemoryKind> Communicator::memory_of(const void* buffer) const {
    auto kind = device::memory_of(buffer);
    if (!kind) return wrap(kind.error(), fmt::format("rank {}", rank()));
    return kind;
}

// Several inputs go through the host, but all from one place.
Result<Kinds> Communicator::kinds_of_list(const Call& call, const void* in, const void* out) const {
    TUTTI_ASSIGN(const device::MemoryKind kind, memory_of(out));
    const auto* list = static_cast<const void* const*>(in);
    for (int32_t i = 0; i < call.inputs; ++i) {
        TUTTI_ASSIGN(const device::MemoryKind other, memory_of(list[i]));
        if (other != kind)
            return fail(Code::invalid,
                        "rank {}: allreduce_multi: input {} is {}, the output {}: all must be of "
                        "one kind",
                        rank(), i, device::describe(other), device::describe(kind));
    }
    return Kinds{kind, kind};
}

// The kinds of the buffers that this rank uses; where it uses one, both are that one's.
Result<Kinds> Communicator::kinds(const Call& call, const void* in, const void* out) const {
    if (call.inputs > 0) return kinds_of_list(call, in, out);
    const BufferRange a = range_of(call, rank(), size(), Space::input);
    const BufferRange b = range_of(call, rank(), size(), Space::output);
    const bool has_in = a.used && a.length > 0, has_out = b.used && b.length > 0;
    // Without any blocks a rank is where its pointers say: the others' call is on a device.
    const bool none = !has_in && !has_out && call.uneven;
    Kinds kinds;
    if (has_in || none) {
        TUTTI_ASSIGN(kinds.in, memory_of(in));
    }
    if (has_out || none) {
        TUTTI_ASSIGN(kinds.out, memory_of(out));
    }
    if (none) return Kinds{kinds.device(), kinds.device()};
    if (!has_in) kinds.in = kinds.out;
    if (!has_out) kinds.out = kinds.in;
    const bool staged = endpoint_->config().device == DeviceWay::staged;
    if (!kinds.differ() || (kinds.mixed() && staged)) return kinds;
    return fail(Code::invalid,
                "rank {}: {}: the input is {}, the output {}: both must be of one kind{}", rank(),
                collective_name(call.collective), device::describe(kinds.in),
                device::describe(kinds.out),
                kinds.mixed() ? ", or set TUTTI_DEVICE=staged on every rank" : "");
}

Result<bool> Communicator::on_device(const Call& call, const void* in, const void* out,
                                     void* device_stream) const {
    if (!device::driver()) [[likely]] {
        if (!device_stream) return false;
        // The program may have loaded the driver since.
        const auto found = device::find_driver(endpoint_->config().cuda_library);
        if (!found)
            return wrap(found.error(), fmt::format("rank {}: a device stream was given", rank()));
    }
    if (call.collective == Collective::barrier) return false;
    bool perhaps = call.inputs > 0 && call.count > 0;
    for (const void* one : {in, out}) {
        if (perhaps) break;
        TUTTI_ASSIGN(const device::MemoryKind kind, memory_of(one));
        perhaps = kind.on_device();
    }
    if (!perhaps) {
        // Of different blocks this rank may have none: then it is where the caller says.
        const bool stated = device_stream || devices_.stream_was_set;
        return call.uneven && call.count == 0 && !in && !out && stated;
    }
    TUTTI_ASSIGN(const Kinds both, kinds(call, in, out));
    const device::MemoryKind kind = both.device();
    if (!kind.on_device()) return false;
    if (!devices_.joined() || devices_.device == kind.device) return true;
    return fail(Code::invalid, "rank {}: {}: the buffers are {}, the communicator's device is {}",
                rank(), collective_name(call.collective), device::describe(kind), devices_.device);
}

// ---- issuing
// -------------------------------------------------------------------------------------

Result<Plan*> Communicator::device_plan(const Call& call, Plan* own, uint32_t stream) {
    const bool current = own ? own->on_device && own->on_device->call.path == call.path &&
                                   own->on_device->call.on_host == call.on_host &&
                                   own->on_device->generation == devices_.generation
                             : plans_[stream].find(call) != nullptr;
    if (!current && call.path != Path::library) TUTTI_TRY(wait_for_idle_device());
    if (!own) return plan_for(call, stream, limit_ms(-1));
    if (!current) {
        TUTTI_ASSIGN(own->on_device, bind_plan(call, stream, limit_ms(-1)));
        own->on_device->generation = devices_.generation;
    }
    return own->on_device.get();
}

Result<std::unique_ptr<Request>> Communicator::start_on_device(const Call& wanted, Plan* own,
                                                               int wanted_stream,
                                                               int64_t timeout_ms, const void* in,
                                                               void* out, void* device_stream) {
    TUTTI_ASSIGN(const Kinds both, kinds(wanted, in, out));
    device::Ordinal device = devices_.joined() ? devices_.device : both.device().device;
    TUTTI_TRY(planner_.check(wanted, wanted_stream));
    void* const on_stream = device_stream ? device_stream : devices_.stream;
    // A rank without any blocks is where its stream is.
    if (device < 0)
        device = device::device_of(*device::driver(), static_cast<device::StreamHandle>(on_stream));
    TUTTI_TRY(check_runs(device, on_stream));
    const bool in_place = in == out && in != nullptr;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
        TUTTI_TRY(enter_before_binding(stream_for(wanted_stream), limit_ms(timeout_ms)));
        TUTTI_TRY(may_join());
        TUTTI_TRY(join_devices(device));
        TUTTI_TRY(check_stream(on_stream));
        Call call = wanted;
        TUTTI_ASSIGN(call.path, device_planner_.path_of(call, {in_place, both.mixed()},
                                                        endpoint_->config().device));
        call.on_host = both.on_host();
        const uint32_t stream = stream_for(wanted_stream);
        TUTTI_ASSIGN(Plan * plan, device_plan(call, own, stream));
        auto request = std::make_unique<DeviceRequest>();
        if (size() > 1) {
            TUTTI_ASSIGN(request->device.use,
                         DeviceStreamGuard::begin({devices_.device, on_stream,
                                                   endpoint_->job_hash(), group_.id(), rank()}));
        }
        request->in = in;
        request->out = out;
        request->round_robin_stream = wanted_stream < 0;
        request->device.operation = plan->launched;
        request->device.stream = on_stream;
        request->device.generation = by_group(call.path) ? devices_.generation : generation_.load();
        request->keep = shared_from_this();
        DeviceGroupBatch::here().make_room();
        auto submitted = submit(*request, *plan, limit_ms(timeout_ms));
        if (!submitted) {
            // A mismatch came and went meanwhile: everyone joins anew.
            if (submitted.error().code == Code::in_progress) continue;
            return tl::unexpected(std::move(submitted).error());
        }
        waiting_.add_pending();
        streams_.release(streams_[stream]);
        TUTTI_TRY(launch({*request, request->device}));
        return request;
    }
    return fail(Code::system, "rank {}: the ranks called different things again and again", rank());
}

// Not with the stream owned: it may have to wait for NCCL, and whoever settles a mismatch meanwhile
// needs the stream. The request stays as it is until it is launched.
Result<> Communicator::launch(const DeviceLaunch& launch) {
    if (DeviceGroupBatch::here().gathering()) {
        DeviceGroupBatch::here().add(shared_from_this(), launch);
        return {};
    }
    auto launched = may_launch(launch.request);
    if (launched) launched = put_on_stream(launch);
    return finish_launch(launch.request, launched);
}

bool Communicator::gives_up(const Request& request) {
    endpoint_->pump();
    look_at_clocks();
    if (!agreement_.alarm()) return false;
    // A message belongs to no operation's epoch: only the end of all ends it.
    return request.plan ? agreement_.verdict(request.tag.sequence).has_value()
                        : agreement_.over().has_value();
}

Result<> Communicator::may_launch(Request& request) {
    while (strict_ && request.plan && !agreement_.strict().agreed(request.tag.sequence)) {
        if (gives_up(request)) return fail(Code::aborted, "it was not launched");
        ::usleep(strict_poll_us);
    }
    return {};
}

Result<> Communicator::put_on_stream(const DeviceLaunch& launch) {
    if (!launch.device.operation) return {};
    return launch.device.operation->launch(launch.request.in, launch.request.out,
                                           launch.device.stream,
                                           [&] { return gives_up(launch.request); });
}

uint32_t Communicator::launch_parts(const DevicePart& device) {
    return device.operation ? device.operation->launch_parts() : 0;
}

Result<> Communicator::put_on_stream(const DeviceLaunch& launch, uint32_t part) {
    return launch.device.operation->launch_part(part, launch.request.in, launch.request.out,
                                                launch.device.stream,
                                                [&] { return gives_up(launch.request); });
}

Result<> Communicator::mark_launch(const DevicePart& device, uint32_t part) {
    return device.operation->mark_part(part, device.stream);
}

Result<> Communicator::settle_launch(const DeviceLaunch& launch, uint32_t part) {
    return launch.device.operation->settle_part(part, launch.device.stream,
                                                [&] { return gives_up(launch.request); });
}

void Communicator::tell_failed_launch(const Request& request, const Error& error) {
    if (gives_up(request)) return;
    agreement_.raise(
        {error.code, rank(), 0,
         fmt::format("rank {}: {}: {}", rank(),
                     request.plan ? describe_call(request.tag) : "messages on device memory",
                     error.message)});
}

Result<> Communicator::finish_launch(Request& request, const Result<>& launched) {
    if (!launched) tell_failed_launch(request, launched.error());
    request.released.store(true, std::memory_order_release);
    bool moved = false;
    if (request.plan) {
        Stream& stream = streams_[request.plan->stream];
        {
            Owned owned(stream.owner);
            owned.keep();
        }
        streams_.drive(stream, moved);
        streams_.release(stream);
    } else {
        transfers_.drive(moved);
    }
    if (launched) {
        if (!request.done() && !manual()) endpoint_->kick();
        return {};
    }
    // Whoever holds the stream ends it; it has a deadline.
    wait(request, -1);
    return tl::unexpected(request.error);
}

Result<> Communicator::check_stream(void* device_stream) {
    if (device_stream == devices_.checked_stream) return {};
    auto own = devices_.context->owns(static_cast<device::StreamHandle>(device_stream));
    if (!own) return wrap(own.error(), fmt::format("rank {}", rank()));
    devices_.checked_stream = device_stream;
    return {};
}

/// Asked with every call: a program may begin a capture at any time. Before the ranks join, too.
Result<> Communicator::check_runs(device::Ordinal device, void* device_stream) const {
    std::optional<device::Context> context = devices_.context;
    if (!context) {
        TUTTI_ASSIGN(context, device::Context::retain(*device::driver(), device));
    }
    const auto runs = context->runs(static_cast<device::StreamHandle>(device_stream));
    return runs ? Result<>{} : wrap(runs.error(), fmt::format("rank {}", rank()));
}

/// The other ranks may be waiting for the same thread.
Result<> Communicator::may_join() const {
    const bool joined =
        devices_.joined() && (endpoint_->config().device == DeviceWay::staged ||
                              (devices_.settled && devices_.generation == generation_));
    if (joined || size() == 1 || !DeviceGroupBatch::here().gathering()) return {};
    return fail(Code::invalid,
                "rank {}: the ranks have not joined on their devices, which cannot be gathered: "
                "call tutti_comm_use_device before, each rank on a thread",
                rank());
}

Result<> Communicator::may_wait(const Request& request) const {
    TUTTI_TRY(may_call());
    if (request.done() || !DeviceGroupBatch::here().holds(*this, request)) return {};
    return fail(Code::invalid,
                "rank {}: {} is launched by tutti_launch_end, or comes after what is: call that "
                "before waiting for it",
                rank(), request.plan ? describe_call(request.tag) : "a message on device memory");
}

/// Before a blocking call on host memory has its place in a stream's order.
Result<> Communicator::may_block(const Call& call, uint32_t stream) {
    if (streams_[stream].queued.load(std::memory_order_relaxed) == 0 ||
        !DeviceGroupBatch::here().holds(*this, stream)) [[likely]]
        return {};
    return fail(Code::invalid,
                "rank {}: {} would wait behind calls on stream {} that tutti_launch_end launches: "
                "call that before, or take the non-blocking form or another stream",
                rank(), collective_name(call.collective), stream);
}

Result<> Communicator::run_on_device(const Call& call, Plan* own, int wanted_stream,
                                     int64_t timeout_ms, const void* in, void* out,
                                     void* device_stream) {
    return detach([&] {
        return start_on_device(call, own, wanted_stream, timeout_ms, in, out, device_stream);
    });
}

Result<> Communicator::run(const std::vector<DeviceTransfer>& messages) {
    return detach([&] { return start(messages, -1, nullptr); });
}

/// Its place first: what is started has to be kept.
template <typename Start>
Result<> Communicator::detach(Start start) {
    std::list<std::unique_ptr<Request>> one(1);
    TUTTI_ASSIGN(one.front(), start());
    detached_.splice(detached_.end(), one);
    return {};
}

// ---- what is told later
// --------------------------------------------------------------------------

Result<> Communicator::owed() {
    while (!detached_.empty() && detached_.front()->done()) {
        const auto request = std::move(detached_.front());
        detached_.pop_front();
        if (request->code.load(std::memory_order_acquire) != Code::ok)
            return tl::unexpected(std::move(request->error));
    }
    return {};
}

Result<> Communicator::sync(int64_t timeout_ms) {
    const Deadline limit = Deadline::after_ms(timeout_ms < 0 ? 0 : timeout_ms);
    while (!detached_.empty()) {
        const int64_t left_ms = timeout_ms < 0    ? -1
                                : timeout_ms == 0 ? 0
                                                  : std::max<int64_t>(1, limit.left_ms(timeout_ms));
        TUTTI_TRY(may_wait(*detached_.front()));
        if (!wait(*detached_.front(), left_ms))
            return fail(Code::timeout,
                        "rank {}: {} operations on device memory are not done after {} ms", rank(),
                        detached_.size(), timeout_ms);
        TUTTI_TRY(owed());
    }
    return {};
}

Result<> Communicator::need_driver() const {
    const auto found = device::find_driver(endpoint_->config().cuda_library);
    if (!found) return wrap(found.error(), fmt::format("rank {}", rank()));
    return {};
}

Result<> Communicator::set_device_stream(void* device_stream) {
    TUTTI_TRY(forked());
    TUTTI_TRY(need_driver());
    if (devices_.joined())
        if (auto own = devices_.context->owns(static_cast<device::StreamHandle>(device_stream));
            !own)
            return wrap(own.error(), fmt::format("rank {}", rank()));
    devices_.stream = device_stream;
    devices_.stream_was_set = true;
    return {};
}

Result<> Communicator::order_streams(void* before, void* after) {
    TUTTI_TRY(forked());
    TUTTI_TRY(need_driver());
    if (before == after) return {};
    std::optional<device::Context> context = devices_.context;
    if (!context) {
        // Before the first collective the device is the one that the program works with.
        device::Ordinal device = 0;
        if (device::driver()->context_device(&device) != device::success)
            return fail(Code::invalid, "rank {}: no device is current on this thread", rank());
        TUTTI_ASSIGN(context, device::Context::retain(*device::driver(), device));
    }
    for (void* stream : {before, after}) TUTTI_TRY(check_runs(context->device(), stream));
    const device::Context::Scope current(*context);
    TUTTI_ASSIGN(const device::Event mark, device::Event::create(*context));
    TUTTI_TRY(mark.record(static_cast<device::StreamHandle>(before)));
    return mark.hold(static_cast<device::StreamHandle>(after));
}

}  // namespace tutti
