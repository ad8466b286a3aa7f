// Any bytes as a handle that another process has given to the program.
#include "handles/handle.h"
#include "fuzz/catalog.h"

namespace tutti::fuzz {

void run_handle(ByteView input) {
    const auto handle = Handle::decode(input);
    if (!handle) return;
    require(as_text(handle->encode()) == as_text(input), "a handle has two forms");
    require(input.size() <= Handle::max_bytes, "a handle is too long");
    require(!handle->check(handle->job + "x", "").has_value(), "a handle fits another job");
}

std::vector<Bytes> seeds_handle() {
    Handle handle;
    handle.process = std::string(Handle::process_bytes, 'p');
    handle.version = "0.1.0";
    handle.job = "default";
    handle.address = "127.0.0.1:29500";
    Handle unnamed = handle;
    unnamed.job.clear();
    unnamed.address = "[fe80::1%eth0]:29500";
    require(handle.sign("").has_value() && unnamed.sign("secret").has_value(), "no proof");
    return {handle.encode(), unnamed.encode()};
}

}  // namespace tutti::fuzz
