// Tests whether memory can be shared here.
#include "transport/mapped/shared_memory.h"
#include "transports/catalog.h"

namespace tutti {

std::vector<Device> shm_devices() {
    constexpr std::size_t page_bytes = 4096;
    const auto memory = make_shared_memory("tutti-probe", page_bytes, page_bytes);
    return {{.provider = "",
             .name = "memfd",
             .detail = "anonymous memory: as much as there is, whatever /dev/shm's size",
             .usable = memory.has_value(),
             .why_not = memory ? "" : error_text(memory.error())}};
}

}  // namespace tutti
