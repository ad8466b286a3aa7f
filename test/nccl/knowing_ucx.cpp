// In place of transports/ucx/library.cpp.
#include "nccl/knowing_ucx.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucp/api/ucp.h>

#include "cuda/fake_cuda.h"
#include "transports/ucx/library.h"

namespace gpu_test {

KnowingUcx knowing_ucx;

namespace {

constexpr std::size_t large = 64 * 1024;
tutti::ucx::Library real;

bool is_on_device(const void* memory, std::size_t bytes) {
    return fake_cuda_touch(memory, bytes) != memory;
}

/// Checks the memory type in the request, sets it to the host's, and returns the host address.
void* host_memory_of(const void* memory, std::size_t bytes, ucp_request_param_t& param) {
    if (bytes >= large && knowing_ucx.dies_after > 0 && --knowing_ucx.dies_after == 0)
        ::raise(SIGKILL);
    const bool named = (param.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0;
    const bool device = bytes > 0 && is_on_device(memory, bytes);
    const auto wanted = device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
    if (!named || param.memory_type != wanted)
        fake_cuda_violation("UCX was told another kind of memory than it was given");
    if (device && fake_cuda_current() < 0)
        fake_cuda_violation("UCX was given a device's memory without the device's context");
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return device ? fake_cuda_touch(memory, bytes) : const_cast<void*>(memory);
}

ucs_status_t query(ucp_context_h context, ucp_context_attr_t* attributes) {
    const ucs_status_t status = real.ucp_context_query(context, attributes);
    if (knowing_ucx.knows) attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    return status;
}

ucs_status_ptr_t send(ucp_ep_h endpoint, unsigned id, const void* header, std::size_t header_bytes,
                      const void* data, std::size_t bytes, const ucp_request_param_t* given) {
    ucp_request_param_t param = *given;
    const void* const memory = host_memory_of(data, bytes, param);
    if (memory != data) ++knowing_ucx.sent;
    return real.ucp_am_send_nbx(endpoint, id, header, header_bytes, memory, bytes, &param);
}

ucs_status_ptr_t fetch(ucp_worker_h worker, void* what, void* where, std::size_t bytes,
                       const ucp_request_param_t* given) {
    ucp_request_param_t param = *given;
    void* const memory = host_memory_of(where, bytes, param);
    if (memory != where) ++knowing_ucx.fetched;
    return real.ucp_am_recv_data_nbx(worker, what, memory, bytes, &param);
}

}  // namespace
}  // namespace gpu_test

namespace tutti::ucx {

Result<const Library*> load_library() {
    static const Library knowing = [] {
        void* const handle = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
        Library& real = gpu_test::real;
#define TUTTI_UCX_LOAD(function) \
    real.function = reinterpret_cast<decltype(real.function)>(::dlsym(handle, #function));
        TUTTI_UCX_FUNCTIONS(TUTTI_UCX_LOAD)
#undef TUTTI_UCX_LOAD
        real.version = "1.13-cuda";
        Library library = real;
        library.ucp_context_query = &gpu_test::query;
        library.ucp_am_send_nbx = &gpu_test::send;
        library.ucp_am_recv_data_nbx = &gpu_test::fetch;
        return library;
    }();
    return &knowing;
}

}  // namespace tutti::ucx
