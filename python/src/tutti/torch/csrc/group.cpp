#include "group.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include <c10/util/Logging.h>

#include "errors.h"

namespace tutti_torch {
namespace {

using Config = std::unique_ptr<tutti_config, decltype(&tutti_config_destroy)>;

constexpr int default_streams = 2;

bool own_secret(const Settings& settings) {
    return settings.count("secret") > 0 || settings.count("secret_file") > 0 ||
           std::getenv("TUTTI_SECRET") != nullptr || std::getenv("TUTTI_SECRET_FILE") != nullptr;
}

void set(const Config& config, const char* key, const std::string& value) {
    check(tutti_config_set(config.get(), key, value.c_str()), "init");
}

}  // namespace

int streams_wanted(const Settings& settings) {
    const auto found = settings.find("nrings");
    const char* text =
        found != settings.end() ? found->second.c_str() : std::getenv("TUTTI_NRINGS");
    const int streams = text ? std::atoi(text) : default_streams;
    return streams > 0 ? streams : default_streams;  // set() refuses a bad value later
}

// Rounds a time-out of less than 1 ms up: the library takes 0 as infinite.
std::chrono::milliseconds deadline_of(std::chrono::milliseconds timeout) {
    using Limits = std::numeric_limits<int32_t>;
    return std::clamp(timeout, std::chrono::milliseconds(1),
                      std::chrono::milliseconds(Limits::max()));
}

Settings Group::with_secret(const Settings& settings,
                            const c10::intrusive_ptr<c10d::Store>& store) {
    Settings all = settings;
    if (!own_secret(settings))
        if (std::string secret = HostStore(store).agree_on_secret(); !secret.empty())
            all["secret"] = std::move(secret);
    return all;
}

std::shared_ptr<Group> Group::join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout, const std::string& name,
                                   const Settings& settings, bool one_launcher) {
    tutti_config* raw = nullptr;
    check(tutti_config_create(&raw), "init");
    const Config config(raw, &tutti_config_destroy);
    auto host_store = std::make_shared<HostStore>(store);
    const std::string generation = host_store->next_generation(rank, one_launcher);
    const std::chrono::milliseconds deadline = deadline_of(timeout);
    set(config, "rank", std::to_string(rank));
    set(config, "size", std::to_string(size));
    // Each group is a separate job: tutti numbers the communicators of a job by counting, but the
    // processes may have created different numbers of groups.
    set(config, "job", generation + "/" + name);
    set(config, "timeout_ms", std::to_string(deadline.count()));
    const int streams = streams_wanted(settings);
    for (const auto& [key, value] : settings) set(config, key.c_str(), value);
    if (!own_secret(settings)) {
        set(config, "secret", host_store->share_secret(rank, generation, deadline));
        VLOG(1) << "tutti: the secret of this group went through torch's store: it is no safer "
                   "than that; TUTTI_SECRET sets another";
    }
    host_store->attach(config.get());
    host_store->count_in(generation);
    tutti_comm* comm = nullptr;
    const tutti_status status = tutti_comm_create(config.get(), &comm);
    if (status != TUTTI_OK && !host_store->failure().empty())
        TORCH_WARN("tutti: torch's store failed: ", host_store->failure(),
                   ". What to do: read the output of the rank that hosts the store");
    check(status, "init");
    std::shared_ptr<Group> group(new Group(comm, streams, host_store));
    // All ranks have joined, so each rank of a new version has counted itself in.
    group->all_name_lists_ = host_store->counted(generation) == size;
    return group;
}

std::shared_ptr<Group> Group::split(int color, int key) {
    tutti_comm* part = nullptr;
    check(tutti_comm_split(comm_, color, key, &part), "split");
    return part ? part_of(part) : nullptr;
}

std::shared_ptr<Group> Group::shrink(const std::vector<int>& excluded) {
    tutti_comm* smaller = nullptr;
    check(tutti_comm_shrink_without(comm_, excluded.data(), excluded.size(), &smaller), "shrink");
    return part_of(smaller);
}

std::shared_ptr<Group> Group::part_of(tutti_comm* part) const {
    std::shared_ptr<Group> group(new Group(part, streams_, store_));
    group->all_name_lists_ = all_name_lists_;
    return group;
}

Group::~Group() {
    if (store_.use_count() == 1) store_->close();
    (void)tutti_comm_destroy(comm_);
}

}  // namespace tutti_torch
