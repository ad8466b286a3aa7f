#include "transports/ofi/completions.h"

#include <rdma/fi_errno.h>

#include <array>

#include "base/log.h"

namespace tutti::ofi {

bool CompletionReader::read() {
    if (!objects_.endpoint) return false;
    std::array<fi_cq_msg_entry, 16> entries;
    const ssize_t got = fi_cq_read(objects_.completions.get(), entries.data(), entries.size());
    if (got == -FI_EAVAIL) return read_error();
    for (ssize_t i = 0; i < got; ++i) {
        auto* operation = static_cast<OpContext*>(entries[static_cast<std::size_t>(i)].op_context);
        if (!operation) continue;
        sends_.left(*operation);
        waiting_.push({operation, entries[static_cast<std::size_t>(i)].len, 0});
    }
    return got > 0;
}

bool CompletionReader::read_error() {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(objects_.completions.get(), &entry, 0) <= 0) return false;
    auto* operation = static_cast<OpContext*>(entry.op_context);
    if (!operation) {
        log::debug("libfabric ({}): {}", objects_.provider(), reason(entry.err));
        return false;
    }
    sends_.left(*operation);
    waiting_.push({operation, entry.len, entry.err == 0 ? FI_EIO : entry.err});
    return true;
}

}  // namespace tutti::ofi
