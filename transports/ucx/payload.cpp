#include "transports/ucx/payload.h"

#include <algorithm>
#include <cstring>

namespace tutti::ucx {
namespace {

Payload& payload_of(void* state) {
    return *static_cast<Payload*>(state);
}

void* start_pack(void* context, const void* buffer, std::size_t count) {
    static_cast<void>(context), static_cast<void>(count);
    return const_cast<void*>(buffer);
}

void* start_unpack(void* context, void* buffer, std::size_t count) {
    return start_pack(context, buffer, count);
}

std::size_t packed_size(void* state) {
    return payload_of(state).bytes;
}

std::size_t pack(void* state, std::size_t offset, void* to, std::size_t room) {
    const Payload& payload = payload_of(state);
    const std::size_t bytes = std::min(room, payload.bytes - std::min(offset, payload.bytes));
    if (payload.memory)
        std::memcpy(to, payload.memory + offset, bytes);
    else
        std::memset(to, 0, bytes);  // the payload's endpoint is closed
    return bytes;
}

ucs_status_t unpack(void* state, std::size_t offset, const void* from, std::size_t bytes) {
    const Payload& payload = payload_of(state);
    if (offset > payload.bytes || bytes > payload.bytes - offset) return UCS_ERR_MESSAGE_TRUNCATED;
    if (payload.memory) std::memcpy(payload.memory + offset, from, bytes);
    return UCS_OK;
}

void finish(void* state) {
    static_cast<void>(state);
}

constexpr ucp_generic_dt_ops_t operations = {.start_pack = &start_pack,
                                             .start_unpack = &start_unpack,
                                             .packed_size = &packed_size,
                                             .pack = &pack,
                                             .unpack = &unpack,
                                             .finish = &finish};

}  // namespace

// One datatype for the process: UCX may keep a port's requests longer than the port lives.
Result<ucp_datatype_t> payload_type(const Library& ucx) {
    struct Made {
        ucs_status_t status;
        ucp_datatype_t type = 0;
    };
    static const Made made = [&] {
        Made out{};
        out.status = ucx.ucp_dt_create_generic(&operations, nullptr, &out.type);
        return out;
    }();
    if (made.status == UCS_OK) return made.type;
    return fail(Code::no_memory, "creating a UCX datatype: {}", ucx.ucs_status_string(made.status));
}

}  // namespace tutti::ucx
