#include "job/job_stores.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "os/at_exit.h"
#include "os/forks.h"

namespace tutti::job_stores {
namespace {

constexpr int64_t take_over_ms = 5000;
constexpr int64_t look_for_others_ms = 300;

// Rank 0 serves the tcp store to later communicators too, so an opened store stays open until the
// process ends. A forked child opens its own store, because both processes would use one
// connection.
struct JobStores {
    std::mutex mutex;  // guards the members below
    std::map<std::string, std::shared_ptr<Store>> kept;
    std::map<std::string, uint64_t> jobs_joined;
};

constinit PerProcess<JobStores> stores;

/// Closes the kept stores, and ends their threads.
void close_kept(Deadline) {
    std::map<std::string, std::shared_ptr<Store>> closing;  // destroyed without the mutex
    JobStores& own = stores.here();
    const std::lock_guard lock(own.mutex);
    closing.swap(own.kept);
}

}  // namespace

Result<std::shared_ptr<Store>> open_anew(const Config& config, Deadline deadline) {
    StoreOptions options;
    options.url = config.store;
    options.job = config.job;
    options.secret = config.secret;
    options.rank = config.rank;
    options.hosted = config.store_hosted;
    options.in_job = config.store_in_job;
    options.insecure = config.insecure;
    options.deadline = deadline;
    TUTTI_ASSIGN(std::unique_ptr<Store> opened, open_store(options));
    return std::shared_ptr<Store>(std::move(opened));
}

Result<std::shared_ptr<Store>> open(const Config& config, Deadline deadline) {
    if (!config.store.starts_with("tcp:")) return open_anew(config, deadline);
    const std::string name =
        fmt::format("{}\n{}\n{}\n{}", config.store, config.job, config.secret, config.rank);
    JobStores& own = stores.here();
    {
        const std::lock_guard lock(own.mutex);
        if (const auto found = own.kept.find(name); found != own.kept.end()) return found->second;
    }
    TUTTI_ASSIGN(std::shared_ptr<Store> opened, open_anew(config, deadline));
    at_exit::arm("store", at_exit::ExitStep::close_stores, close_kept);
    const std::lock_guard lock(own.mutex);
    return own.kept[name] = std::move(opened);
}

Result<std::shared_ptr<Store>> take_over(const Config& config, Deadline deadline) {
    Config own = config;
    own.rank = 0;
    own.store_hosted = false;
    Config others = config;
    others.store_hosted = others.store_in_job = true;
    const auto patience = deadline.within_ms(take_over_ms);
    for (;;) {
        if (auto found = open_anew(others, Deadline::after_ms(look_for_others_ms))) return found;
        auto served = open(own, patience);
        if (served) return served;
        if (patience.passed() || served.error().sys_errno != EADDRINUSE)
            return wrap(std::move(served).error(),
                        fmt::format("the process that served store {} has ended", config.store));
    }
}

std::string next_generation(const Config& config, const Store* own_store) {
    if (config.size == 1) return {};  // meets no other rank, and other ranks may not count it
    const uint32_t depth = HomeProcess().depth();
    const std::string name =
        fmt::format("{}\n{}\n{}\n{}", config.attempt,
                    own_store ? own_store->describe() : config.store, config.job, config.rank);
    JobStores& own = stores.here();
    const std::lock_guard lock(own.mutex);
    const uint64_t number = own.jobs_joined[name]++;
    // A launcher that restarts its ranks keeps the store: the processes of each attempt count anew.
    const std::string attempt = config.attempt == 0 ? "" : fmt::format("a{}", config.attempt);
    const std::string forked = depth == 0 ? "" : fmt::format("f{}", depth);
    return fmt::format("{}{}c{}", attempt, forked, number);
}

}  // namespace tutti::job_stores
