#include "handles.h"

#include <cstddef>

#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {

nb::bytes handle(const Settings& settings) {
    constexpr const char* name = "handle";
    const Config config = config_of(settings, name);
    std::vector<std::byte> handle(TUTTI_MAX_HANDLE_BYTES);
    std::size_t bytes = 0;
    check_released(name, [&] {
        return tutti_comm_get_handle(config.get(), handle.data(), handle.size(), &bytes);
    });
    return nb::bytes(handle.data(), bytes);
}

std::unique_ptr<Communicator> reconfigure(const Settings& settings, const std::string& uuid,
                                          const std::vector<nb::bytes>& handles,
                                          int64_t timeout_ms) {
    constexpr const char* name = "reconfigure";
    const Config config = config_of(settings, name);
    std::vector<const void*> starts;
    std::vector<std::size_t> sizes;
    for (const nb::bytes& handle : handles) {
        starts.push_back(handle.data());
        sizes.push_back(handle.size());
    }
    tutti_comm* made = nullptr;
    check_released(name, [&] {
        return tutti_comm_reconfigure(config.get(), uuid.c_str(), starts.data(), sizes.data(),
                                      static_cast<int>(starts.size()), timeout_ms, &made);
    });
    return std::make_unique<Communicator>(std::make_shared<Joined>(made));
}

}  // namespace tutti_python
