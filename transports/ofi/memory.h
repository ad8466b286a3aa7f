// Memory is registered with libfabric here.
#pragma once

#include <string>

#include "transport/registration/library_memory.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {

/// Why memory could not be registered, for people; names `ulimit -l` where that may be it.
/// code: -FI_E…; locked_limit_bytes: RLIMIT_MEMLOCK, ~0: none.
std::string registration_failure(std::size_t bytes, long code, uint64_t locked_limit_bytes);

/// libfabric takes this with each call that names registered memory.
inline void* descriptor_of(void* handle) {
    return handle ? fi_mr_desc(static_cast<fid_mr*>(handle)) : nullptr;
}

class OfiRegistrar final : public MemoryRegistrar {
public:
    explicit OfiRegistrar(const Objects& objects)
        : objects_(objects), mr_mode_(objects.info->domain_attr->mr_mode) {}

    /// Whether the provider asks for it.
    bool is_needed() const { return (mr_mode_ & FI_MR_LOCAL) != 0; }
    /// Whether memory belongs to the endpoint, and must go before it.
    bool is_of_endpoint() const { return (mr_mode_ & FI_MR_ENDPOINT) != 0; }
    Result<void*> register_memory(std::byte* data, std::size_t bytes) override;
    void deregister(void* handle) override;

private:
    const Objects& objects_;
    const int mr_mode_;
    uint64_t next_key_ = 1;
};

}  // namespace tutti::ofi
