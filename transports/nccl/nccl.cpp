// NCCL as a device library: the collectives that it serves, and how its groups are joined.
#include "transports/catalog.h"
#include "transports/nccl/memory.h"
#include "transports/nccl/operation.h"
#include "transports/nccl/step.h"

#include <cstdlib>
#include <cstring>

namespace tutti {
namespace nccl {
namespace {

// From this version on two ranks may share a device, if this variable is 1.
constexpr int shares_devices_since = 23000;
constexpr const char* share_variable = "NCCL_MULTI_RANK_GPU_ENABLE";

class NcclGroup final : public DeviceGroup {
public:
    explicit NcclGroup(std::shared_ptr<Membership> membership)
        : membership_(std::move(membership)), memory_(membership_) {}

    Result<> serves(const IntrinsicShape& shape) const override {
        switch (shape.collective) {
            case Collective::barrier:
            case Collective::scan:
            case Collective::exscan:
                return fail(Code::unsupported, "NCCL has no {}", collective_name(shape.collective))
                    .advice("{}", other_algorithm);
            default:
                TUTTI_TRY(elements_of(shape, membership_->ability()));
                return {};
        }
    }
    Result<std::unique_ptr<DeviceOperation>> bind(const IntrinsicShape& shape) override {
        TUTTI_ASSIGN(auto step, bind_step(shape));
        return make_operation(membership_, runs_, std::move(step),
                              membership_->ring_of(shape.stream));
    }
    Result<std::unique_ptr<DeviceOperation>> bind_messages(std::vector<DeviceMessage> messages,
                                                           uint32_t stream) override {
        const std::size_t ring = membership_->ring_of(stream);
        return make_operation(membership_, runs_,
                              make_messages(membership_, std::move(messages), ring), ring);
    }
    Result<std::unique_ptr<DeviceStep>> bind_step(const IntrinsicShape& shape) override {
        TUTTI_TRY(serves(shape));
        TUTTI_ASSIGN(const Elements elements, elements_of(shape, membership_->ability()));
        return make_step(membership_, shape, elements);
    }
    std::unique_ptr<DeviceRun> make_run() override { return nccl::make_run(membership_, runs_); }
    bool idle() const override { return none(*runs_); }
    Result<std::shared_ptr<DeviceGroup>> split(const DeviceGroupPart& part,
                                               Deadline deadline) override {
        if (!membership_->library().split)
            return fail(Code::unsupported, "NCCL {} has no ncclCommSplit",
                        version_text(membership_->library().version))
                .advice("install a newer NCCL, or do not set TUTTI_DEVICE_SPLIT=share");
        TUTTI_ASSIGN(auto joined, membership_->split(part, deadline));
        if (!joined) return std::shared_ptr<DeviceGroup>();
        return std::make_shared<NcclGroup>(std::move(joined));
    }
    Result<> add_memory(std::byte* memory, std::size_t bytes, bool window) override {
        return memory_.add(memory, bytes, window);
    }
    void remove_memory(std::byte* memory) override { memory_.remove(memory); }
    void leave(Deadline deadline) override {
        memory_.clear();
        membership_->leave(deadline);
    }

private:
    const std::shared_ptr<Membership> membership_;
    const std::shared_ptr<Runs> runs_ = make_runs();
    KnownMemory memory_;
};

class NcclLibrary final : public DeviceLibrary {
public:
    explicit NcclLibrary(const Library& library) : library_(library) {}
    std::string_view name() const override { return "nccl"; }
    std::string describe() const override {
        return fmt::format("NCCL {} ({})", version_text(library_.version), library_.where);
    }
    int version() const override { return library_.version; }
    std::string_view reference(Collective collective) const override {
        switch (collective) {
            case Collective::allreduce:
            case Collective::allgather:
            case Collective::reduce_scatter:
                return "ring";
            case Collective::alltoall:
                return "pairwise";
            case Collective::broadcast:
            case Collective::reduce:
            case Collective::gather:
            case Collective::scatter:
                return "binomial";
            default:
                return "";
        }
    }
    bool shares_devices() const override {
        const char* set = std::getenv(share_variable);
        return library_.version >= shares_devices_since && set && std::strcmp(set, "1") == 0;
    }
    std::size_t id_bytes() const override { return sizeof(UniqueId); }
    Result<std::vector<std::byte>> make_id() const override {
        UniqueId id{};
        if (const Status status = library_.get_unique_id(&id); status != success)
            return tl::unexpected(
                nccl_error(library_, nullptr, status, "making an identifier of NCCL"));
        const auto* bytes = reinterpret_cast<const std::byte*>(id.bytes);
        return std::vector(bytes, bytes + sizeof id.bytes);
    }
    Result<std::byte*> allocate(int32_t device, std::size_t bytes) const override {
        TUTTI_ASSIGN(const device::Context context, context_of(device));
        const device::Context::Scope current(context);
        if (!has_allocator()) {
            device::Address address = 0;
            TUTTI_TRY(check(context.driver(), context.driver().device_alloc(&address, bytes),
                            "allocating device memory"));
            return reinterpret_cast<std::byte*>(address);
        }
        void* memory = nullptr;
        if (const Status status = library_.mem_alloc(&memory, bytes); status != success)
            return tl::unexpected(
                nccl_error(library_, nullptr, status, "allocating device memory"));
        return static_cast<std::byte*>(memory);
    }
    void free(int32_t device, std::byte* memory) const override {
        const auto context = context_of(device);
        if (!context) return;
        const device::Context::Scope current(*context);
        if (has_allocator())
            library_.mem_free(memory);
        else
            context->driver().device_free(reinterpret_cast<std::uintptr_t>(memory));
    }
    Result<> gather_launches() const override { return nccl::gather_launches(library_); }
    Result<> launch_gathered() const override { return nccl::launch_gathered(library_); }
    Result<std::shared_ptr<DeviceGroup>> join(const DeviceGroupRequest& request,
                                              Deadline deadline) const override {
        auto context = context_of(request.device);
        if (!context) {
            // The other ranks are about to call all_begun(); this tells them of the failure.
            if (request.all_begun) request.all_begun(false);
            return tl::unexpected(std::move(context).error());
        }
        TUTTI_ASSIGN(auto joined,
                     Membership::join(library_, std::move(*context), request, deadline));
        return std::make_shared<NcclGroup>(std::move(joined));
    }

private:
    static Result<device::Context> context_of(int32_t device) {
        const device::Driver* driver = device::driver();
        if (!driver)
            return fail(Code::unsupported, "there is no CUDA driver in this process")
                .advice("set TUTTI_CUDA_LIBRARY to auto, or to the driver's path");
        return device::Context::retain(*driver, device);
    }
    bool has_allocator() const { return library_.mem_alloc && library_.mem_free; }

    const Library& library_;
};

}  // namespace
}  // namespace nccl

Result<std::unique_ptr<DeviceLibrary>> make_nccl_library(const std::string& path) {
    TUTTI_ASSIGN(const nccl::Library* library, nccl::load_library(path));
    return std::make_unique<nccl::NcclLibrary>(*library);
}

}  // namespace tutti
