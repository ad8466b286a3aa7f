#include "transports/ucx/cuda_messages.h"

#include <cstring>
#include <optional>
#include <utility>

#include "cuda/handles.h"
#include "cuda/memory.h"
#include "transports/ucx/port.h"

namespace tutti::ucx {

class PortCudaMessages final : public CudaMessages {
public:
    explicit PortCudaMessages(UcxPort& port) : port_(port) {}

    /// Over sockets UCX would copy the payload through the host too, and later.
    bool takes_device(Rank rank) const override {
        const UcxPort::UcxPeer* const peer = port_.find(rank);
        return peer && !peer->slow;
    }
    Progress send_from_device(Rank rank, const std::byte* header, const std::byte* data,
                              std::size_t bytes, void* context) override;
    Progress fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                             void* context) override;
    bool progress() override {
        Current current;
        if (context_) current.emplace(*context_);
        return port_.ucx_.ucp_worker_progress(port_.worker_) != 0;
    }

private:
    using Current = std::optional<device::Context::Scope>;
    void enter(Current& current, const std::byte* memory);

    UcxPort& port_;
    std::optional<device::Context> context_;  // set at the first message in a GPU's memory
};

// Makes the memory's device current. A rank has one device, so the first memory's serves for all.
void PortCudaMessages::enter(Current& current, const std::byte* memory) {
    if (const device::Driver* const driver = device::driver(); driver && !context_) {
        const auto kind = device::ask_driver(*driver, memory);
        if (!kind || !kind->on_device()) return;
        if (auto context = device::Context::retain(*driver, kind->device))
            context_ = std::move(*context);
    }
    if (context_) current.emplace(*context_);
}

// Always by rendezvous: an eager payload would arrive in the host's memory.
Progress PortCudaMessages::send_from_device(Rank rank, const std::byte* header,
                                            const std::byte* data, std::size_t bytes,
                                            void* context) {
    UcxPort::UcxPeer* const peer = port_.find(rank);
    if (!peer || peer->failed) return Progress::failed;
    Current current;
    enter(current, data);
    UcxPort::UcxRequest& request = port_.take_request(*peer, context, false);
    std::memcpy(request.message.data(), header, fabric::header_bytes);
    ucp_request_param_t param = UcxPort::send_param(request, UCP_AM_SEND_FLAG_RNDV);
    param.memory_type = UCS_MEMORY_TYPE_CUDA;
    return port_.started(request, port_.ucx_.ucp_am_send_nbx(
                                      peer->endpoint, UcxPort::message_id, request.message.data(),
                                      fabric::header_bytes, data, bytes, &param));
}

Progress PortCudaMessages::fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                                           void* context) {
    auto& kept = *static_cast<UcxPort::KeptArrival*>(hold);
    if (!kept.peer || kept.peer->failed) return Progress::failed;
    Current current;
    enter(current, where);
    return port_.fetch(kept, where, bytes, context, UCS_MEMORY_TYPE_CUDA);
}

const bool has_cuda_messages = true;

std::unique_ptr<CudaMessages> make_cuda_messages(UcxPort& port) {
    return std::make_unique<PortCudaMessages>(port);
}

}  // namespace tutti::ucx
