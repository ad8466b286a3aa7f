// Completion hooks for the tests, which torch has in C++ alone, and what Python cannot read of a
// Work.
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace {

struct Reports {
    std::mutex mutex;
    std::map<int64_t, std::vector<std::pair<uint64_t, std::optional<float>>>> of_hook;
};

// Never destroyed: a call may end while the process does.
Reports& reports() {
    static auto* made = new Reports;
    return *made;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("reports", [](int64_t id) {
        const std::lock_guard lock(reports().mutex);
        return reports().of_hook[id];
    });
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
    module.def("add", [](c10d::Backend& backend, int64_t id) {
        backend.registerCompletionHook(id, [id](const c10d::CompletionHookArgs& args) {
            const std::lock_guard lock(reports().mutex);
            reports().of_hook[id].emplace_back(args.completionKey, args.duration_ms);
        });
    });
    module.def("remove",
               [](c10d::Backend& backend, int64_t id) { backend.unregisterCompletionHook(id); });
    module.def("key", [](const c10d::Work& work) { return work.getCompletionKey(); });
    module.def("timeout_ms", [](const c10d::Work& work) { return work.getTimeout().count(); });
#endif
}
