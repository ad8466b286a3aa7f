#include "transports/ucx/context_memory.h"

#include "base/clock.h"
#include "transports/ucx/cause.h"

namespace tutti::ucx {

Result<> ContextMemory::add_memory(std::byte* data, std::size_t bytes) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = data;
    params.length = bytes;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    ucp_mem_h handle = nullptr;
    const int64_t start_ns = now_ns();
    const ucs_status_t status = ucx_.ucp_mem_map(context_, &params, &handle);
    if (status != UCS_OK)
        return fail(Code::system, "UCX cannot register the memory: {}{}",
                    ucx_.ucs_status_string(status), cause_since(start_ns))
            .advice("raise the limit of locked memory (ulimit -l)");
    mapped_.emplace(std::pair(data, bytes), handle);
    return {};
}

void ContextMemory::remove_memory(std::byte* data, std::size_t bytes) {
    const auto found = mapped_.find({data, bytes});
    if (found == mapped_.end()) return;
    ucx_.ucp_mem_unmap(context_, found->second);
    mapped_.erase(found);
}

void ContextMemory::remove_all() {
    for (const auto& [range, handle] : mapped_) ucx_.ucp_mem_unmap(context_, handle);
    mapped_.clear();
}

}  // namespace tutti::ucx
