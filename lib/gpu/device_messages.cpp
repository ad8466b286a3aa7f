// Sends and receives of device memory.
#include <algorithm>

#include "comm/communicator.h"
#include "cuda/stream_work.h"
#include "gpu/device_group_batch.h"
#include "gpu/staged_messages.h"

namespace tutti {
namespace {

// What is launched together is not in order: of two that share memory the later goes by a copy,
// which is made before either comes or after both are over; within one group, what is sent.
Result<bool> may_be_direct(const device::Context& context, const Exchange& exchange,
                           const DeviceMessage& message) {
    const device::Driver& driver = context.driver();
    if (!message.sends && !device::flushes_remote_writes(driver, context.device())) return false;
    if (message.sends && exchange.collides(message)) return false;
    for (const Exchange* other : DeviceGroupBatch::here().exchanges())
        if (other->collides(message)) return false;
    TUTTI_ASSIGN(const bool managed, device::is_managed(driver, message.memory));
    return !managed;
}

}  // namespace

// Through the host, or by the devices' library: that needs all ranks in one group.
Result<bool> Communicator::stages_messages() const {
    if (endpoint_->config().device == DeviceWay::staged) return true;
    const bool all_ranks = devices_.group && !devices_.of_host;
    if (devices_.settled && (!all_ranks || devices_.generation == generation_)) return !all_ranks;
    return fail(Code::unsupported,
                "rank {}: for messages on device memory the ranks have to join first: call "
                "tutti_comm_use_device, or a collective on device memory, on all of them before",
                rank());
}

// What all of them must be.
Result<> Communicator::check_messages(const std::vector<DeviceTransfer>& messages,
                                      bool staged) const {
    for (const DeviceTransfer& one : messages) {
        const DeviceMessage& m = one.message;
        const char* const what = m.sends ? "send" : "recv";
        if (!staged && !m.sends && m.peer == any_source)
            return fail(Code::unsupported,
                        "rank {}: recv on device memory: TUTTI_ANY_SOURCE has no way in NCCL: name "
                        "the sender, receive in host memory, or set TUTTI_DEVICE=staged on every "
                        "rank",
                        rank());
        Transfer like;
        like.sends = m.sends;
        like.peer = m.peer;
        like.user_tag = one.tag;
        like.memory = m.memory;
        like.bytes = m.bytes;
        if (auto fine = transfers_.check(like); !fine)
            return wrap(fine.error(), fmt::format("rank {}", rank()));
        TUTTI_ASSIGN(const device::MemoryKind kind, memory_of(m.memory));
        if (m.bytes > 0 && kind.device != devices_.device)
            return fail(Code::invalid,
                        "rank {}: {}: the buffer is {}, the communicator's device is {}: messages "
                        "of one group are all of one kind",
                        rank(), what, device::describe(kind), devices_.device);
    }
    return {};
}

/// Where messages go through the host, ranks need not join for them.
Result<> Communicator::find_device_of(const std::vector<DeviceTransfer>& messages) {
    if (devices_.joined()) return {};
    for (const DeviceTransfer& one : messages) {
        TUTTI_ASSIGN(const device::MemoryKind kind, memory_of(one.message.memory));
        if (kind.on_device()) return join_devices(kind.device);
    }
    return fail(Code::invalid, "rank {}: none of the messages is on device memory", rank());
}

// Straight from and to the device where the channel takes that.
Result<> Communicator::choose_ways(Exchange& exchange) const {
    for (Exchange::Part& part : exchange.parts) {
        const DeviceMessage& message = part.asked.message;
        part.pinned_bytes = message.bytes;
        if (!transfers_.takes_device(part.on_host)) continue;
        TUTTI_ASSIGN(part.direct, may_be_direct(*devices_.context, exchange, message));
        if (part.direct)
            part.pinned_bytes =
                message.sends ? 0 : std::min(message.bytes, transfers_.message_bytes());
    }
    return {};
}

Result<std::unique_ptr<DeviceOperation>> Communicator::stage(std::deque<Exchange::Part>& parts) {
    const std::size_t bytes = staging_bytes(parts);
    auto memory = devices_.staging->pinned.reuse(bytes);
    if (!memory) {
        TUTTI_TRY(wait_for_idle_device());
        TUTTI_ASSIGN(memory, devices_.staging->pinned.allocate(bytes));
    }
    return stage_messages(devices_.staging, std::move(memory), parts);
}

Result<std::unique_ptr<Request>> Communicator::start(const std::vector<DeviceTransfer>& messages,
                                                     int64_t timeout_ms, void* device_stream) {
    TUTTI_TRY(may_call());
    TUTTI_TRY(owed());
    if (destroyed_) return fail(Code::aborted, "rank {}: the communicator was destroyed", rank());
    if (auto over = agreement_.over()) return tl::unexpected(*over);
    TUTTI_ASSIGN(const bool staged, stages_messages());
    if (staged) TUTTI_TRY(find_device_of(messages));
    TUTTI_TRY(check_messages(messages, staged));
    void* const on_stream = device_stream ? device_stream : devices_.stream;
    TUTTI_TRY(check_stream(on_stream));
    TUTTI_TRY(check_runs(devices_.device, on_stream));
    auto exchange = std::make_unique<Exchange>(rank(), messages, staged);
    std::vector<DeviceMessage> moving;
    const bool meets = staged && endpoint_->takes_devices();
    for (Exchange::Part& part : exchange->parts) {
        part.on_host.meets = meets;
        if (auto connected = transfers_.connect(part.on_host, timeout_ms); !connected)
            return tl::unexpected(contact_failed(part.on_host, connected.error()));
        if (part.asked.message.bytes > 0) moving.push_back(part.asked.message);
    }
    if (staged) {
        TUTTI_TRY(choose_ways(*exchange));
        TUTTI_ASSIGN(exchange->moves, stage(exchange->parts));
    } else if (!moving.empty()) {
        TUTTI_ASSIGN(exchange->moves, devices_.group->bind_messages(std::move(moving), 0));
    }
    exchange->device.operation = exchange->moves.get();
    exchange->device.stream = on_stream;
    exchange->timeout_ms = limit_ms(timeout_ms);
    exchange->keep = shared_from_this();
    DeviceGroupBatch::here().make_room();
    waiting_.add_pending();
    transfers_.post(*exchange);
    TUTTI_TRY(launch({*exchange, exchange->device}));
    return exchange;
}

}  // namespace tutti
