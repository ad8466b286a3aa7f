#include "job/job_stores.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/at_exit.h"
#include "os/forks.h"

namespace tutti::job_stores {
namespace {

// Rank 0 serves the tcp store to later communicators too, so an opened one stays for the process. A
// forked child has its own: its parent's would be one connection for both.
std::mutex stores_mutex;
std::map<std::string, std::shared_ptr<Store>>& kept_stores() {
    static auto* stores = new std::map<std::string, std::shared_ptr<Store>>;
    return *stores;
}

}  // namespace

Result<std::shared_ptr<Store>> open(const Config& config, Deadline deadline) {
    StoreOptions options;
    options.url = config.store;
    options.job = config.job;
    options.secret = config.secret;
    options.rank = config.rank;
    options.hosted = config.store_hosted;
    options.in_job = config.store_in_job;
    options.insecure = config.insecure;
    options.deadline = deadline;
    if (!config.store.starts_with("tcp:")) {
        TUTTI_ASSIGN(std::unique_ptr<Store> opened, open_store(options));
        return std::shared_ptr<Store>(std::move(opened));
    }
    const std::string name = fmt::format("{}\n{}\n{}\n{}\n{}", config.store, config.job,
                                         config.secret, config.rank, HomeProcess().depth());
    {
        const std::lock_guard lock(stores_mutex);
        if (const auto found = kept_stores().find(name); found != kept_stores().end())
            return found->second;
    }
    TUTTI_ASSIGN(std::unique_ptr<Store> opened, open_store(options));
    at_exit::arm("store");
    const std::lock_guard lock(stores_mutex);
    return kept_stores()[name] = std::shared_ptr<Store>(std::move(opened));
}

void close_kept() {
    const std::string here = fmt::format("\n{}", HomeProcess().depth());
    std::vector<std::shared_ptr<Store>> own;  // destroyed without the mutex
    const std::lock_guard lock(stores_mutex);
    std::erase_if(kept_stores(), [&](auto& kept) {
        if (!kept.first.ends_with(here)) return false;
        own.push_back(std::move(kept.second));
        return true;
    });
}

std::string next_generation(const Config& config, const Store* own_store) {
    if (config.size == 1) return {};  // it meets nobody, and others may not make it
    static auto* counts = new std::map<std::string, uint64_t>;
    const uint32_t depth = HomeProcess().depth();
    const std::string name =
        fmt::format("{}\n{}\n{}\n{}\n{}", depth, config.attempt,
                    own_store ? own_store->describe() : config.store, config.job, config.rank);
    const std::lock_guard lock(stores_mutex);
    const uint64_t number = (*counts)[name]++;
    // A launcher that restarts its ranks keeps the store: the processes of each attempt count anew.
    const std::string attempt = config.attempt == 0 ? "" : fmt::format("a{}", config.attempt);
    const std::string forked = depth == 0 ? "" : fmt::format("f{}", depth);
    return fmt::format("{}{}c{}", attempt, forked, number);
}

}  // namespace tutti::job_stores
