// Registers memory with libfabric.
#pragma once

#include <string>

#include "transport/registration/library_memory.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {

/// The reason why memory could not be registered, for error messages; names `ulimit -l` if that may
/// be the cause. code: -FI_E…; locked_limit_bytes: RLIMIT_MEMLOCK, ~0: none.
std::string registration_failure(std::size_t bytes, long code, uint64_t locked_limit_bytes);

/// The descriptor that libfabric expects in each call with registered memory.
inline void* descriptor_of(void* handle) {
    return handle ? fi_mr_desc(static_cast<fid_mr*>(handle)) : nullptr;
}

class OfiRegistrar final : public MemoryRegistrar {
public:
    explicit OfiRegistrar(const Objects& objects)
        : objects_(objects), mr_mode_(objects.info->domain_attr->mr_mode) {}

    /// Whether the provider requires registration.
    bool is_needed() const { return (mr_mode_ & FI_MR_LOCAL) != 0; }
    /// Whether memory belongs to the endpoint, and must be deregistered before the endpoint closes.
    bool is_of_endpoint() const { return (mr_mode_ & FI_MR_ENDPOINT) != 0; }
    Result<void*> register_memory(std::byte* data, std::size_t bytes) override;
    void deregister(void* handle) override;

private:
    const Objects& objects_;
    const int mr_mode_;
    uint64_t next_key_ = 1;
};

}  // namespace tutti::ofi
