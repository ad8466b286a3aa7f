// Allocated and registered memory at the C boundary: transports and NCCL prepare it (map it, pin
// it) once, before calls use it.
#include "capi/boundary.h"

using tutti::Code;
using tutti::Result;

extern "C" {

tutti_status tutti_mem_alloc(tutti_comm* comm, size_t bytes, void** data) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_member("tutti_mem_alloc", comm));
        if (!data) return tutti::null_argument("tutti_mem_alloc", "data");
        *data = nullptr;
        TUTTI_ASSIGN(*data, comm->impl->memory().allocate(bytes));
        return {};
    });
}

tutti_status tutti_mem_alloc_device(tutti_comm* comm, size_t bytes, void** data) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_member("tutti_mem_alloc_device", comm));
        if (!data) return tutti::null_argument("tutti_mem_alloc_device", "data");
        *data = nullptr;
        TUTTI_ASSIGN(*data, tutti::in_function("tutti_mem_alloc_device",
                                               comm->impl->offload().allocate(bytes)));
        return {};
    });
}

tutti_status tutti_mem_free(tutti_comm* comm, void* data) {
    return tutti::guard(comm, [&]() -> Result<> {
        auto* const address = static_cast<std::byte*>(data);
        if (!comm) return tutti::UserMemory::free_of_any(address);
        TUTTI_TRY(tutti::check_comm("tutti_mem_free", comm));
        // owns(): is it device memory? If the driver has failed, owns() returns an error; host
        // memory can still be freed.
        if (comm->impl->offload().owns(data).value_or(false)) {
            TUTTI_ASSIGN(const bool known,
                         tutti::in_function("tutti_mem_free",
                                            comm->impl->offload().remove_memory(address, true)));
            if (known) return {};
        }
        return comm->impl->memory().free(address);
    });
}

tutti_status tutti_mem_register(tutti_comm* comm, void* data, size_t bytes, int fd) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_member("tutti_mem_register", comm));
        if (!data) return tutti::null_argument("tutti_mem_register", "data");
        if (bytes == 0)
            return tutti::fail(Code::invalid, "tutti_mem_register: bytes is 0")
                .advice("give the size of the memory in bytes, 1 or more");
        if (fd != -1)
            return tutti::fail(Code::unsupported,
                               "tutti_mem_register: fd is {}, but no transport of this build maps "
                               "the program's shared memory",
                               fd)
                .advice("give -1 as fd, which registers the memory for networks");
        TUTTI_ASSIGN(const bool on_device, comm->impl->offload().owns(data));
        if (on_device)
            return tutti::in_function(
                "tutti_mem_register",
                comm->impl->offload().add_memory(static_cast<std::byte*>(data), bytes));
        return comm->impl->memory().add(static_cast<std::byte*>(data), bytes);
    });
}

tutti_status tutti_mem_deregister(tutti_comm* comm, void* data) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_mem_deregister", comm));
        auto* const address = static_cast<std::byte*>(data);
        // owns(): is it device memory? If the driver has failed, owns() returns an error; host
        // memory can still be deregistered.
        if (comm->impl->offload().owns(data).value_or(false)) {
            TUTTI_ASSIGN(const bool known,
                         tutti::in_function("tutti_mem_deregister",
                                            comm->impl->offload().remove_memory(address, false)));
            if (known) return {};
        }
        return comm->impl->memory().remove(address);
    });
}

}  // extern "C"
