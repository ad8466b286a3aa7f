#include "job/endpoint.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/catching.h"
#include "base/log.h"
#include "control/tree.h"
#include "net/serving.h"

namespace tutti {
namespace {

constexpr int64_t leave_ms = 1000;

HostIdentity identify(const Config& config) {
    std::string machine = machine_id();
    std::string host = config.host_id.empty() ? machine : config.host_id;
    return {std::move(machine), std::move(host)};
}

}  // namespace

Endpoint::Endpoint(const Config& config, const std::string& generation, bool host_programs_store)
    : config_(config),
      identity_(identify(config)),
      job_hash_(hash_of(config_.store + '\n' + config_.job + '\n' + generation)),
      host_programs_store_(host_programs_store),
      directory_(generation, config_.rank, config_.size),
      wakeups_(config_.progress == ProgressMode::manual, config_.longest_sleep_ms),
      control_(wakeups_.reactor(),
               {[this](Rank from, ByteView message) { router_.handle_message(from, message); },
                [this](Rank peer, ControlTree::LinkKind kind, const std::string& cause) {
                    router_.link_closed(peer, kind, cause);
                }}),
      assembly_(control_),
      connector_(config_.rank, identity_.host, static_cast<uint32_t>(config_.nrings), transports_,
                 directory_),
      detours_([this] { wakeups_.wake_service(); }),
      dialer_(config_, directory_, control_, detours_, leaving_,
              [this](Rank peer) { router_.link_dialled(peer); }),
      heartbeat_(wakeups_.manual() ? 0 : config_.heartbeat_ms),
      heartbeat_timer_(wakeups_.reactor(),
                       [this] {
                           router_.pulse(config_.rank == 0 && assembly_.complete() &&
                                         assembly_.knows_heartbeats());
                       }),
      router_(config_.rank, config_.size,
              {control_, assembly_, detours_, clients_,
               [this](Rank peer) { transports_.peer_gone(peer); }, leaving_, heartbeat_,
               [this](int64_t due_ns) { heartbeat_timer_.arm(due_ns); }}),
      listener_(config_, control_, assembly_, router_),
      opener_(clients_, connector_, detours_, dialer_, router_, wakeups_, leaving_),
      service_(wakeups_, clients_, opener_, assembly_),
      beats_(heartbeat_, control_),
      departure_(control_, assembly_, transports_, detours_, dialer_, router_, opener_, service_,
                 leaving_) {}

Endpoint::~Endpoint() {
    leave(Deadline::after_ms(leave_ms));
}

Result<std::shared_ptr<Endpoint>> Endpoint::join(const Config& config,
                                                 const std::string& generation,
                                                 std::shared_ptr<Store> own_store) {
    std::shared_ptr<Endpoint> endpoint(
        new Endpoint(config, generation, own_store && !config.shares_store));
    Endpoint& own = *endpoint;
    Joiner joiner(
        {own.config_, own.identity_, own.directory_, own.wakeups_, own.control_, own.assembly_,
         own.transports_, own.connector_, own.listener_, own.service_, own},
        generation);
    const bool beats = config.size > 1 && config.heartbeat_ms > 0 && !own.manual();
    // Other ranks wait for this one, so every failure must be caught and reported.
    auto joined = catching([&]() -> Result<Joiner::Joined> {
        if (beats) TUTTI_TRY(own.heartbeat_timer_.open());
        own.heartbeat_timer_.arm(now_ns());
        return joiner.join(std::move(own_store));
    });
    if (!joined) {
        Error error = joiner.report_failure(std::move(joined).error());
        own.leave(Deadline::after_ms(leave_ms));
        const std::string doing = fmt::format("could not join job '{}' of {} rank{}", config.job,
                                              config.size, config.size == 1 ? "" : "s");
        return wrap(on_rank(config.rank, std::move(error)), doing);
    }
    own.joined_ = *std::move(joined);
    own.heartbeat_timer_.arm(now_ns());  // the beats may begin
    if (const auto started = beats ? own.beats_.start() : Result<>(); !started)
        log::warn(
            wrap(started.error(),
                 fmt::format(
                     "rank {} seems silent while a completion callback runs for longer than {} ms",
                     config.rank, config.heartbeat_ms)));
    return endpoint;
}

void Endpoint::leave(Deadline deadline) {
    if (!departure_.leave_once(deadline)) return;
    beats_.stop();
    service_.stop();
    listener_.stop();
    control_.close();
    directory_.withdraw_will();
    directory_.withdraw_records(deadline);
    directory_.close();
}

void Endpoint::leave_at_exit(Deadline deadline) {
    if (!departure_.leave_once(deadline)) return;
    beats_.stop();
    if (!service_.stop(deadline)) return;
    control_.close();
    directory_.withdraw_will();
    if (!host_programs_store_) directory_.withdraw_records(deadline);
}

void Endpoint::add(uint32_t comm, EndpointClient* client) {
    const auto lock = clients_.hold();
    if (clients_.add(comm, client)) wakeups_.ring();
    router_.replay_losses(*client);
}

bool Endpoint::remove(uint32_t comm, LastWords last_words, Deadline deadline) {
    const auto lock = clients_.hold(deadline);
    if (!lock.owns_lock()) return false;
    const bool last = clients_.remove(comm, std::move(last_words));
    transports_.retire(comm);
    return last;
}

bool Endpoint::claim_ids(uint32_t first, uint32_t count) {
    if (first >= first_hashed_id) return clients_.claim(first);
    uint32_t free = next_id_.load();
    while (free <= first)
        if (next_id_.compare_exchange_weak(free, first + count)) return true;
    return false;
}

Result<Opened> Endpoint::open(const ChannelId& id, Deadline deadline) {
    const net::ServeWhileWaiting serving(manual() ? &wakeups_.reactor() : nullptr);
    return connector_.open(id, deadline);
}

void Endpoint::look_up_neighbours(const Group& group, Deadline deadline) {
    std::vector<Rank> neighbours = tree_children(group.rank(), group.size());
    if (group.rank() != 0) neighbours.push_back(tree_parent(group.rank()));
    for (const Rank neighbour : neighbours) {
        const auto record = directory_.find(group.in_job(neighbour), deadline);
        if (!record) log::info("rank {}: {}", config_.rank, record.error().message);
    }
}

void Endpoint::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    switch (clients_.opened(id, std::move(receiver))) {
        case ClientTable::Taken::given:
            return wakeups_.ring();
        case ClientTable::Taken::kept_or_dropped:
            return;
        case ClientTable::Taken::too_many:
            return router_.mark_lost(
                id.peer,
                fmt::format("it opened more than {} channels of communicators that rank {} "
                            "does not have",
                            PeerLimits{}.early_channels, config_.rank));
    }
}

void Endpoint::peer_lost(Rank peer, const std::string& cause) {
    // Peers that leave together with this rank are no loss.
    if (!leaving_) router_.mark_lost(peer, cause);
}

}  // namespace tutti
