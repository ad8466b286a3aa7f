// The implementation of comm's Offload for GPUs.
#include "comm/offload.h"

#include "gpu/detached.h"
#include "gpu/device_calls.h"
#include "gpu/device_group_batch.h"
#include "gpu/device_memory.h"
#include "gpu/device_messenger.h"

namespace tutti {
namespace {

class DeviceOffload final : public Offload {
public:
    explicit DeviceOffload(const OffloadHost& host)
        : side_(host),
          queues_(side_),
          join_(side_),
          memory_(side_),
          launcher_(side_),
          calls_(side_, {queues_, join_, launcher_}),
          messenger_(side_, {queues_, join_, launcher_}),
          detached_(side_) {}

    Result<bool> takes(OffloadCall& call) override {
        return detached_.empty() && !device::driver() && !call.queue ? false : ask_driver(call);
    }
    Result<bool> ask_driver(OffloadCall& call) {
        TUTTI_TRY(detached_.take_error());
        return device::driver() || call.queue ? calls_.takes(call) : false;
    }
    bool appeared() override {
        return !device::driver() &&
               device::find_driver(side_.core.config().cuda_library).has_value();
    }
    Result<std::unique_ptr<Plan>> bind(const Call& call, uint32_t stream,
                                       Deadline deadline) override {
        return side_.planner.make(call, stream, deadline);
    }

    Result<> may_block(const Call& call, uint32_t stream) const override;
    Result<> may_wait(const Request& request) const override;
    Result<> may_wait_for_all() const override;

    Result<> run(const OffloadCall& call) override {
        return detached_.keep([&] { return calls_.start(call); });
    }
    Result<std::unique_ptr<Request>> start(const OffloadCall& call) override {
        return calls_.start(call);
    }
    Result<> run(const std::vector<OffloadMessage>& messages) override {
        return detached_.keep([&] { return start(messages, -1, nullptr); });
    }
    Result<std::unique_ptr<Request>> start(const std::vector<OffloadMessage>& messages,
                                           int64_t timeout_ms, void* queue) override {
        TUTTI_TRY(side_.core.may_call());
        TUTTI_TRY(detached_.take_error());
        return messenger_.start(messages, timeout_ms, queue);
    }
    Result<> sync(int64_t timeout_ms) override { return detached_.sync(timeout_ms); }

    Result<bool> owns(const void* memory) const override {
        TUTTI_ASSIGN(const device::MemoryKind kind, side_.memory_of(memory));
        return kind.on_device();
    }
    Result<> use(int ordinal) override { return join_.use(ordinal); }
    Result<> set_queue(void* queue) override { return queues_.set(queue); }
    Result<> hold_own_queue(void* before) override {
        return queues_.order(before, side_.devices.stream);
    }
    Result<> hold_queue(void* after) override { return queues_.order(side_.devices.stream, after); }
    Result<std::byte*> allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
    Result<> add_memory(std::byte* data, std::size_t bytes) override {
        return memory_.add(data, bytes);
    }
    Result<bool> remove_memory(std::byte* data, bool handed_out) override {
        return memory_.remove(data, handed_out);
    }

    bool splits() const override { return join_.splits(); }
    std::unique_ptr<OffloadShare> split(const OffloadSplit& part) override {
        return join_.split(part);
    }
    Result<> adopt(std::unique_ptr<OffloadShare> share) override {
        return join_.adopt(std::move(share));
    }

    void finish(int64_t timeout_ms) override {
        (void)detached_.sync(timeout_ms);
        DeviceGroupBatch::here().forget(launcher_);
    }
    void leave() override {
        detached_.clear();
        join_.leave();
    }

private:
    // Each member builds on those before it.
    DeviceSide side_;
    DeviceQueues queues_;
    DeviceJoin join_;
    DeviceMemory memory_;
    DeviceLauncher launcher_;
    DeviceCalls calls_;
    DeviceMessenger messenger_;
    Detached detached_;
};

Result<> DeviceOffload::may_block(const Call& call, uint32_t stream) const {
    if (!DeviceGroupBatch::here().holds(launcher_, stream)) [[likely]]
        return {};
    return fail(Code::invalid,
                "{} would wait for calls on ring {} that tutti_launch_end has not launched yet",
                collective_name(call.collective), stream)
        .advice("call tutti_launch_end first, or use the non-blocking function or another ring");
}

Result<> DeviceOffload::may_wait(const Request& request) const {
    if (!DeviceGroupBatch::here().holds(launcher_, request)) return {};
    return fail(Code::invalid,
                "cannot wait for {}: tutti_launch_end has not launched it yet, or an earlier call "
                "on its stream",
                request.plan ? describe_call(request.tag) : "a message on device memory")
        .advice("call tutti_launch_end before you wait for it")
        .on(side_.rank());
}

// A wait for all requests would hang: a gathered request does not end before it is launched.
Result<> DeviceOffload::may_wait_for_all() const {
    if (!DeviceGroupBatch::here().holds(launcher_)) return {};
    return fail(Code::invalid, "collective mismatch inside tutti_launch_start/end")
        .advice("call tutti_launch_end before anything else; its error has the details");
}

}  // namespace

// A driver that a setting names must exist; otherwise calls look for one later.
Result<> check_offload(const Config& config) {
    const auto found = device::find_driver(config.cuda_library);
    if (found || config.cuda_library.empty() || config.cuda_library == "auto") return {};
    return wrap(found.error(), "TUTTI_CUDA_LIBRARY").on(config.rank);
}

std::unique_ptr<Offload> make_offload(const OffloadHost& host) {
    return std::make_unique<DeviceOffload>(host);
}

}  // namespace tutti
