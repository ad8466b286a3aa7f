#include "gpu/device_messenger.h"

#include <algorithm>

#include "comm/failures.h"
#include "cuda/stream_work.h"
#include "gpu/device_group_batch.h"
#include "gpu/staged_messages.h"

namespace tutti {
namespace {

// Messages that are launched together have no order. If two share memory, the later one (within one
// group, the send) uses a pinned copy, made before either message arrives or after both are over.
Result<bool> may_be_direct(const device::Context& context, const DeviceMessages& messages,
                           const DeviceMessage& message) {
    const device::Driver& driver = context.driver();
    if (!message.sends && !device::flushes_remote_writes(driver, context.device())) return false;
    if (message.sends && messages.collides(message)) return false;
    for (const DeviceMessages* other : DeviceGroupBatch::here().messages())
        if (other->collides(message)) return false;
    TUTTI_ASSIGN(const bool managed, device::is_managed(driver, message.memory));
    return !managed;
}

}  // namespace

// True: messages go through the host. The device library needs all ranks in one group.
Result<bool> DeviceMessenger::stages() const {
    if (side_.core.config().device == DeviceMode::staged) return true;
    const bool all_ranks = side_.devices.group && !side_.devices.of_host;
    if (side_.devices.path_agreed &&
        (!all_ranks || side_.devices.generation == side_.core.generation))
        return !all_ranks;
    return fail(Code::unsupported,
                "the ranks have not joined on their GPUs, which messages on device memory need")
        .advice(
            "call tutti_comm_use_device, or a collective on device memory, on every rank first");
}

// Each message must be valid, and all must be in one kind of memory.
Result<> DeviceMessenger::check(const std::vector<OffloadMessage>& messages, bool staged) const {
    for (const OffloadMessage& m : messages) {
        const char* const what = m.sends ? "send" : "recv";
        if (!staged && !m.sends && m.peer == any_source)
            return fail(Code::unsupported,
                        "recv on device memory: NCCL cannot receive from TUTTI_ANY_SOURCE")
                .advice(
                    "name the sender, receive in host memory, or set TUTTI_DEVICE=staged on "
                    "every rank");
        Transfer like;
        like.sends = m.sends;
        like.peer = m.peer;
        like.user_tag = m.tag;
        like.memory = m.memory;
        like.bytes = m.bytes;
        TUTTI_TRY(side_.core.transfers.check(like));
        TUTTI_ASSIGN(const device::MemoryKind kind, side_.memory_of(m.memory));
        if (m.bytes > 0 && kind.device != side_.devices.device)
            return fail(Code::invalid,
                        "{}: the buffer is in {}, but the communicator's device is {}", what,
                        device::describe(kind), side_.devices.device)
                .advice("put all buffers of the group on device {}", side_.devices.device);
    }
    return {};
}

/// Messages through the host need no device library: only this rank's device is set up.
Result<> DeviceMessenger::find_device_of(const std::vector<OffloadMessage>& messages) {
    if (side_.devices.joined()) return {};
    for (const OffloadMessage& one : messages) {
        TUTTI_ASSIGN(const device::MemoryKind kind, side_.memory_of(one.memory));
        if (kind.on_device()) return path_.join.join(kind.device);
    }
    return fail(Code::invalid, "none of the messages is on device memory")
        .advice("send or receive at least one buffer on the GPU, or leave out the device stream");
}

// Marks messages as direct if their channel takes device memory.
Result<> DeviceMessenger::choose_ways(DeviceMessages& messages) const {
    for (DeviceMessages::Part& part : messages.parts) {
        const DeviceMessage& message = part.asked.message;
        part.pinned_bytes = message.bytes;
        if (!side_.core.transfers.takes_device(part.on_host)) continue;
        TUTTI_ASSIGN(part.direct, may_be_direct(*side_.devices.context, messages, message));
        if (part.direct)
            part.pinned_bytes =
                message.sends ? 0 : std::min(message.bytes, side_.core.transfers.message_bytes());
    }
    return {};
}

Result<std::unique_ptr<DeviceOperation>> DeviceMessenger::stage(
    std::deque<DeviceMessages::Part>& parts) {
    const std::size_t bytes = staging_bytes(parts);
    auto memory = side_.devices.staging->pinned.reuse(bytes);
    if (!memory) {
        TUTTI_TRY(side_.wait_for_idle());
        TUTTI_ASSIGN(memory, side_.devices.staging->pinned.allocate(bytes));
    }
    return stage_messages(side_.devices.staging, std::move(memory), parts);
}

// Opens the channels of all messages, before the first of them moves.
Result<> DeviceMessenger::connect(DeviceMessages& messages, int64_t timeout_ms) {
    Core& core = side_.core;
    const bool needs_channel = messages.staged && core.endpoint->transports().takes_devices();
    for (DeviceMessages::Part& part : messages.parts) {
        part.on_host.needs_channel = needs_channel;
        if (auto connected = core.transfers.connect(part.on_host, timeout_ms); !connected)
            return tl::unexpected(contact_failed(core, part.on_host, connected.error()));
    }
    return {};
}

/// Makes the operation for the messages that have bytes.
Result<> DeviceMessenger::prepare(DeviceMessages& messages) {
    if (messages.staged) {
        TUTTI_TRY(choose_ways(messages));
        TUTTI_ASSIGN(messages.moves, stage(messages.parts));
        return {};
    }
    std::vector<DeviceMessage> moving;
    for (const DeviceMessages::Part& part : messages.parts)
        if (part.asked.message.bytes > 0) moving.push_back(part.asked.message);
    if (moving.empty()) return {};
    TUTTI_ASSIGN(messages.moves, side_.devices.group->bind_messages(std::move(moving), 0));
    return {};
}

Result<std::unique_ptr<Request>> DeviceMessenger::start(const std::vector<OffloadMessage>& asked,
                                                        int64_t timeout_ms, void* device_stream) {
    Core& core = side_.core;
    TUTTI_TRY(core.may_start());
    if (auto over = core.failure_protocol.fatal_error()) return tl::unexpected(over->error);
    TUTTI_ASSIGN(const bool staged, stages());
    if (staged) TUTTI_TRY(find_device_of(asked));
    TUTTI_TRY(check(asked, staged));
    void* const stream = device_stream ? device_stream : side_.devices.stream;
    TUTTI_TRY(path_.queues.check_owner(stream));
    TUTTI_TRY(path_.queues.check_runs(side_.devices.device, stream));
    auto messages = std::make_unique<DeviceMessages>(core.rank(), asked, staged);
    TUTTI_TRY(connect(*messages, timeout_ms));
    TUTTI_TRY(prepare(*messages));
    messages->device.operation = messages->moves.get();
    messages->device.stream = stream;
    messages->timeout_ms = core.limit_ms(timeout_ms);
    messages->keep = core.self.lock();
    DeviceGroupBatch::here().make_room();
    core.waiting.add_pending();
    core.transfers.post(*messages);
    TUTTI_TRY(path_.launcher.launch({*messages, messages->device}));
    return messages;
}

}  // namespace tutti
