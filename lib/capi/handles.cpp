// Handles of processes at the C boundary.
#include <cstring>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "handles/own_handles.h"
#include "handles/reconfigure.h"

static_assert(TUTTI_MAX_HANDLE_BYTES == tutti::Handle::max_bytes);

namespace {

using tutti::Code;
using tutti::Result;

Result<tutti::Config> settings_of(const tutti_config* config) {
    if (!config) return tutti::config_of_process();
    return config->values;
}

Result<std::vector<tutti::ByteView>> views_of(const char* function, const void* const* handles,
                                              const size_t* handle_bytes, int count) {
    if (count < 1)
        return tutti::fail(Code::invalid, "{}: count is {}", function, count)
            .advice("give the handle of every process, that of this one, too");
    if (!handles) return tutti::null_argument(function, "handles");
    if (!handle_bytes) return tutti::null_argument(function, "handle_bytes");
    std::vector<tutti::ByteView> views;
    for (int i = 0; i < count; ++i) {
        if (!handles[i])
            return tutti::null_argument(function, fmt::format("handles[{}]", i).c_str());
        views.emplace_back(static_cast<const std::byte*>(handles[i]), handle_bytes[i]);
    }
    return views;
}

}  // namespace

extern "C" {

tutti_status tutti_comm_get_handle(const tutti_config* config, void* handle, size_t capacity,
                                   size_t* bytes) {
    const char* const function = "tutti_comm_get_handle";
    return tutti::guard([&]() -> Result<> {
        if (!bytes) return tutti::null_argument(function, "bytes");
        *bytes = 0;
        if (!handle && capacity > 0) return tutti::null_argument(function, "handle");
        TUTTI_ASSIGN(const tutti::Config settings, settings_of(config));
        TUTTI_ASSIGN(const auto own,
                     tutti::in_function(function, tutti::own_handles::get(settings)));
        const tutti::Bytes text = own.handle.encode();
        *bytes = text.size();
        if (capacity < text.size())
            return tutti::fail(Code::invalid, "{}: the handle has {} bytes, but capacity is {}",
                               function, text.size(), capacity)
                .advice("pass memory for TUTTI_MAX_HANDLE_BYTES bytes");
        std::memcpy(handle, text.data(), text.size());
        return {};
    });
}

tutti_status tutti_comm_reconfigure(const tutti_config* config, const char* uuid,
                                    const void* const* handles, const size_t* handle_bytes,
                                    int count, int64_t timeout_ms, tutti_comm** comm) {
    const char* const function = "tutti_comm_reconfigure";
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        *comm = nullptr;
        if (!uuid) return tutti::null_argument(function, "uuid");
        TUTTI_ASSIGN(const auto views, views_of(function, handles, handle_bytes, count));
        TUTTI_ASSIGN(const tutti::Config settings, settings_of(config));
        TUTTI_ASSIGN(auto made,
                     tutti::in_function(
                         function, tutti::reconfigure(
                                       settings, {uuid, views, timeout_ms < 0 ? -1 : timeout_ms})));
        *comm = new tutti_comm{std::move(made), 0, {}};
        return {};
    });
}

}  // extern "C"
