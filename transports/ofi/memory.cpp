#include "transports/ofi/memory.h"

#include <rdma/fi_errno.h>
#include <sys/resource.h>

namespace tutti::ofi {
namespace {

uint64_t locked_limit_bytes() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return ~uint64_t{0};
    return limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
}

bool may_be_limit(long code) {
    return code == -FI_ENOMEM || code == -FI_EAGAIN || code == -FI_EPERM;
}

}  // namespace

std::string registration_failure(std::size_t bytes, long code, uint64_t limit_bytes) {
    std::string text = fmt::format("registering {} bytes of memory: {}", bytes, reason(code));
    if (may_be_limit(code) && limit_bytes != ~uint64_t{0})
        text += fmt::format(" (this process may lock {} KiB of memory, `ulimit -l`)",
                            limit_bytes / 1024);
    return text;
}

Result<void*> OfiRegistrar::register_memory(std::byte* data, std::size_t bytes) {
    const uint64_t key = (mr_mode_ & FI_MR_PROV_KEY) != 0 ? 0 : next_key_++;
    fid_mr* region = nullptr;
    int code = fi_mr_reg(objects_.domain.get(), data, bytes, FI_SEND | FI_RECV, 0, key, 0, &region,
                         nullptr);
    if (code == 0 && is_of_endpoint()) {
        code = fi_mr_bind(region, &objects_.endpoint->fid, 0);
        if (code == 0) code = fi_mr_enable(region);
        if (code != 0) fi_close(&region->fid);
    }
    if (code == 0) return region;
    return fail(Code::no_memory, "libfabric ({}): {}", objects_.provider(),
                registration_failure(bytes, code, locked_limit_bytes()))
        .advice("{}", may_be_limit(code) ? "raise the limit of locked memory (ulimit -l)"
                                         : "name another provider with TUTTI_OFI_PROVIDER");
}

void OfiRegistrar::deregister(void* handle) {
    fi_close(&static_cast<fid_mr*>(handle)->fid);
}

}  // namespace tutti::ofi
