// The caller's memory that is registered in advance with a UCX context.
#pragma once

#include <map>
#include <utility>

#include "fabric/port.h"
#include "transports/ucx/library.h"

namespace tutti::ucx {

/// The mappings stay in UCX's registration cache, where UCX's own paths find them.
class ContextMemory final : public fabric::PortMemory {
public:
    explicit ContextMemory(const Library& ucx) : ucx_(ucx) {}

    void use(ucp_context_h context) { context_ = context; }
    Result<> add_memory(std::byte* data, std::size_t bytes) override;
    void remove_memory(std::byte* data, std::size_t bytes) override;
    /// Call before the context ends.
    void remove_all();

private:
    const Library& ucx_;
    ucp_context_h context_ = nullptr;
    std::multimap<std::pair<std::byte*, std::size_t>, ucp_mem_h> mapped_;
};

}  // namespace tutti::ucx
