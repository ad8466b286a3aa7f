// Sends and receives of device memory.
#include "comm/communicator.h"

namespace tutti {

// What all of them must be for a device's library to match them.
Result<> Communicator::check_messages(const std::vector<DeviceTransfer>& messages) const {
    for (const DeviceTransfer& one : messages) {
        const DeviceMessage& m = one.message;
        const char* const what = m.sends ? "send" : "recv";
        if (!m.sends && m.peer == any_source)
            return fail(Code::unsupported,
                        "rank {}: recv on device memory: TUTTI_ANY_SOURCE has no way there: name "
                        "the sender, or receive in host memory",
                        rank());
        Transfer like;
        like.sends = m.sends;
        like.peer = m.peer;
        like.user_tag = one.tag;
        like.memory = m.memory;
        like.bytes = m.bytes;
        if (auto fine = transfers_.check(like); !fine)
            return wrap(fine.error(), fmt::format("rank {}", rank()));
        if (const auto kind = device::memory_of(m.memory);
            m.bytes > 0 && devices_.joined() && kind.device != devices_.device)
            return fail(Code::invalid,
                        "rank {}: {}: the buffer is {}, the communicator's device is {}: messages "
                        "of one group are all of one kind",
                        rank(), what, device::describe(kind), devices_.device);
    }
    const bool all_ranks = devices_.group && devices_.settled && !devices_.of_host;
    if (all_ranks && devices_.generation == generation_) return {};
    const bool other_way = endpoint_->config().device == DeviceWay::staged ||
                           (devices_.settled && (!devices_.group || devices_.of_host));
    if (other_way)
        return fail(Code::unsupported,
                    "rank {}: messages on device memory need one NCCL communicator of all ranks, "
                    "and here device memory goes another way (TUTTI_DEVICE): copy them to host "
                    "memory",
                    rank());
    return fail(Code::unsupported,
                "rank {}: messages on device memory go through NCCL, which the ranks have not "
                "joined: call tutti_comm_use_device, or a collective on device memory, on all of "
                "them before",
                rank());
}

Result<std::unique_ptr<Request>> Communicator::start(const std::vector<DeviceTransfer>& messages,
                                                     int64_t timeout_ms, void* device_stream) {
    TUTTI_TRY(forked());
    TUTTI_TRY(owed());
    if (destroyed_) return fail(Code::aborted, "rank {}: the communicator was destroyed", rank());
    if (auto over = agreement_.over()) return tl::unexpected(*over);
    TUTTI_TRY(check_messages(messages));
    void* const on_stream = device_stream ? device_stream : devices_.stream;
    TUTTI_TRY(check_stream(on_stream));
    auto exchange = std::make_unique<Exchange>(messages);
    std::vector<DeviceMessage> moving;
    for (Exchange::Part& part : exchange->parts) {
        if (auto connected = transfers_.connect(part.witness); !connected)
            return tl::unexpected(binding_failed(connected.error()));
        if (part.asked.message.bytes > 0) moving.push_back(part.asked.message);
    }
    if (!moving.empty()) {
        TUTTI_ASSIGN(exchange->device, devices_.group->bind_messages(std::move(moving), 0));
    }
    exchange->operation = exchange->device.get();
    exchange->on_device = true;
    exchange->device_stream = on_stream;
    exchange->launched = false;
    exchange->timeout_ms = timeout_ms < 0 ? endpoint_->config().timeout_ms : timeout_ms;
    exchange->keep = shared_from_this();
    waiting_.add_pending();
    transfers_.post(*exchange);
    TUTTI_TRY(launch(*exchange));
    return exchange;
}

Result<> Communicator::run(const std::vector<DeviceTransfer>& messages) {
    TUTTI_ASSIGN(auto request, start(messages, -1, nullptr));
    detached_.push_back(std::move(request));
    return {};
}

}  // namespace tutti
