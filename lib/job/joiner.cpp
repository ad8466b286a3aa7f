#include "job/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "control/rank_records.h"
#include "control/tree.h"
#include "job/job_stores.h"
#include "job/known_names.h"
#include "net/interfaces.h"
#include "net/round_trip.h"
#include "net/serving.h"
#include "net/socket.h"
#include "os/signals.h"
#include "select/distance.h"
#include "wait/pace.h"

namespace tutti {
namespace {

// The time that a rank which cannot join waits for the store, to tell the other ranks.
constexpr int64_t tell_ms = 3000;
constexpr int64_t publish_ms = 60'000;  // if joining has no deadline
constexpr int64_t look_up_ms = 200;     // of the parent's record, between checks for failures
constexpr unsigned call_again_us = 20'000;
constexpr int64_t close_ms = 1000;
constexpr Rank next_known = 4;  // ranks after this one, whose records it looks up at the start

// If there are several networks, the one towards the store is taken to lead to the other ranks.
std::string address_on_the_way(const Config& config, Deadline deadline) {
    constexpr std::string_view scheme = "tcp://";
    if (!config.store.starts_with(scheme)) return {};
    const std::string_view first = std::string_view(config.store).substr(0, config.store.find(','));
    const auto store = net::parse_host_port(first.substr(scheme.size()));
    return store ? net::address_towards(*store, deadline) : std::string{};
}

bool loopback_only(const Config& config) {
    return config.secret.empty() && !config.insecure;
}

Result<std::string> own_address(const Config& config, const std::string& usual_address) {
    return net::choose_address({config.iface, loopback_only(config), usual_address});
}

// Checks the settings that can be refused before anything is opened.
Result<> check_settings(const Config& config, const std::string& usual_address) {
    if (config.refused) return tl::unexpected(*config.refused);
    if (config.rank >= config.size)
        return fail(Code::invalid, "rank {} of a job of size {} is out of range", config.rank,
                    config.size)
            .advice("set TUTTI_RANK to a number from 0 to {}", config.size - 1);
    if (auto known = check_algorithm(config); !known) return wrap(known.error(), "TUTTI_ALGO");
    if (auto known = check_transports(config); !known)
        return wrap(known.error(), "TUTTI_TRANSPORT");
    if (config.size > 1) TUTTI_TRY(own_address(config, usual_address));
    return {};
}

Result<> check_length(Rank rank, std::string_view record) {
    if (record.size() <= RankRecords::max_record_bytes) return {};
    return fail_rank(Code::invalid, rank,
                     "the addresses of rank {} have {} bytes; the ranks exchange at most {} for "
                     "each rank",
                     rank, record.size(), RankRecords::max_record_bytes)
        .advice("set TUTTI_TRANSPORT to fewer transports, or lower TUTTI_FABRIC_PORTS");
}

/// Names the rank in its own error, for the other ranks that get it.
template <typename AnyResult>
AnyResult named(Rank rank, AnyResult result) {
    if (!result) result.error() = on_rank(rank, std::move(result.error()));
    return result;
}

// The times of the log lines about a long wait: the first soon, then ever more rarely.
class Notices {
public:
    /// The ms waited so far, if a log line is due.
    std::optional<int64_t> due_ms() {
        const int64_t waited_ms = (now_ns() - start_ns_) / 1'000'000;
        if (waited_ms < next_ms_ || !log::enabled(log::Level::info)) return {};
        next_ms_ = waited_ms * 2;
        return waited_ms;
    }

private:
    const int64_t start_ns_ = now_ns();
    int64_t next_ms_ = 3000;
};

}  // namespace

Joiner::Joiner(const EndpointParts& parts, const std::string& generation)
    : parts_(parts),
      config_(parts.config),
      limit_(config_.join_limit.value_or(TimeLimit::from_now(config_.timeout_ms))),
      notice_(generation, config_.rank, config_.size),
      watch_(config_.rank, config_.size, parts.identity.machine, parts.directory, notice_) {}

Deadline Joiner::store_patience() const {
    return limit_.by.within_ms(publish_ms);
}

// The store comes first: through it, a rank that cannot go on tells the others why.
Result<Joiner::Joined> Joiner::join(std::shared_ptr<Store> own_store) {
    Wakeups& wakeups = parts_.wakeups;
    const net::ServeWhileWaiting serving(wakeups.manual() ? &wakeups.reactor() : nullptr);
    usual_address_ = address_on_the_way(config_, limit_.by);
    const auto sound = named(config_.rank, check_settings(config_, usual_address_));
    if (config_.size > 1) {
        const auto tells = limit_.by.within_ms(tell_ms);
        const auto entered = enter_store(std::move(own_store), sound ? limit_.by : tells);
        if (sound) TUTTI_TRY(entered);
    } else if (own_store) {
        parts_.directory.enter(std::move(own_store));  // for newcomers
    }
    TUTTI_TRY(sound);
    TUTTI_TRY(named(config_.rank, wakeups.open()));
    {
        const NoSignals for_their_threads;
        TUTTI_TRY(
            named(config_.rank, parts_.transports.listen(config_.transports, transport_context())));
    }
    // A rank that cannot read the tuning file still joins, so that the other ranks hear of the
    // difference at once.
    auto tuning = named(config_.rank, load_tuning(config_.tuning));
    TUTTI_TRY(begin_assembly(tuning ? tuning->fingerprint() : "unusable"));
    if (!wakeups.manual()) TUTTI_TRY(named(config_.rank, parts_.service.start()));
    if (config_.rank != 0) TUTTI_TRY(connect_parent());
    Joined joined;
    auto assembled = assemble(joined.intrinsics);
    if (assembled) look_up_next();
    if (!tuning) return tl::unexpected(std::move(tuning).error());
    TUTTI_TRY(assembled);
    parts_.directory.withdraw_will();
    joined.tuning = *std::move(tuning);
    return joined;
}

Error Joiner::report_failure(Error error) {
    // A lost neighbour is a consequence: another rank may have published the cause.
    if (error.code == Code::peer_lost) error = published_failure().value_or(error);
    parts_.assembly.fail(error);
    // Publishing takes a descriptor: free the descriptors of a rank whose record is not published.
    if (!parts_.directory.published()) {
        parts_.transports.close(Deadline::after_ms(close_ms));
        parts_.transports.clear();
        parts_.listener.stop();
    }
    if (may_publish_) notice_.publish(parts_.directory.store(), error);
    return error;
}

Result<> Joiner::enter_store(std::shared_ptr<Store> own_store, Deadline deadline) {
    if (!own_store) {
        log::info("rank {} of {}: looks for the other ranks in store {}", config_.rank,
                  config_.size, config_.store);
        TUTTI_ASSIGN(own_store, job_stores::open(config_, deadline));
    }
    parts_.directory.enter(std::move(own_store));
    may_publish_ = config_.rank >= config_.size;
    if (may_publish_) return {};
    const Deadline patience = store_patience();
    TUTTI_TRY(parts_.directory.claim(RankOwner::this_process(parts_.identity.machine), config_.job,
                                     patience));
    may_publish_ = true;
    watch_.begin(patience);
    return {};
}

TransportContext Joiner::transport_context() const {
    TransportContext context;
    context.rank = config_.rank;
    context.size = config_.size;
    context.job = config_.job;
    context.secret = config_.secret;
    context.host_id = parts_.identity.host;
    context.iface = config_.iface;
    context.usual_address = usual_address_;
    context.window_bytes = config_.window_bytes;
    context.ofi_provider = config_.ofi_provider;
    context.fabric_ports = config_.fabric_ports;
    context.loopback_only = loopback_only(config_);
    context.starts_threads = !parts_.wakeups.manual();
    context.doorbell_fd = parts_.wakeups.doorbell_fd();
    context.reactor = &parts_.wakeups.reactor();
    context.data_reactor = &parts_.wakeups.data_reactor();
    context.sink = &parts_.sink;
    context.unsent = &parts_.wakeups.unsent();
    return context;
}

Bootstrap::Self Joiner::introduction(std::string_view tuning) const {
    Bootstrap::Self self;
    self.rank = config_.rank;
    self.size = config_.size;
    self.host_id = parts_.identity.host;
    self.machine_id = parts_.identity.machine;
    self.cores = usable_cores();
    self.agree = {{"nrings", std::to_string(config_.nrings)},
                  {"transport", fmt::format("{}", fmt::join(config_.transports, ","))},
                  {"fabric_ports", std::to_string(config_.fabric_ports)},
                  {"heartbeat_ms", std::to_string(config_.heartbeat_ms)},
                  {"algo", config_.algo},
                  {"round_trip_ms", std::to_string(config_.round_trip_ms)},
                  {"fit_ms", std::to_string(config_.fit_ms)},
                  {"tuning", std::string(tuning)},
                  {"device", config_.device == DeviceMode::staged ? "staged" : "library"},
                  {"device_tile_bytes", std::to_string(config_.device_tile_bytes)},
                  {"device_rings", std::to_string(config_.device_rings)},
                  {"device_split", config_.device_split == DeviceSplit::share ? "share" : "own"},
                  {"check", config_.check == Check::strict ? "strict" : "frames"}};
    for (const auto& transport : parts_.transports.all())
        self.transports.push_back(transport->capabilities());
    return self;
}

PeerRecord Joiner::own_record(const std::string& control_address) const {
    PeerRecord record;
    record.size = config_.size;
    record.host_id = parts_.identity.host;
    record.control = control_address;
    for (const auto& transport : parts_.transports.all())
        record.addresses.emplace(transport->name(), transport->address());
    record.has_heartbeat = config_.heartbeat_ms > 0 && !parts_.wakeups.manual();
    record.exchanges_records = config_.exchange_records && config_.size <= RankRecords::most_ranks;
    return record;
}

// Begins the assembly, and publishes how the other ranks reach this one. No thread accepts
// connections of other ranks before the assembly has begun.
Result<> Joiner::begin_assembly(std::string_view tuning) {
    Bootstrap::Self self = introduction(tuning);
    if (config_.size == 1) {
        parts_.assembly.begin(std::move(self));
        return {};
    }
    TUTTI_ASSIGN(const std::string host, own_address(config_, usual_address_));
    TUTTI_ASSIGN(const std::string address,
                 named(config_.rank, parts_.listener.listen(host, parts_.wakeups.reactor())));
    const PeerRecord record = own_record(address);
    if (record.exchanges_records) self.record = record.encode();
    const auto fits = named(config_.rank, check_length(config_.rank, self.record));
    parts_.assembly.begin(std::move(self));
    TUTTI_TRY(fits);
    return parts_.directory.publish(record, store_patience());
}

std::optional<Error> Joiner::published_failure() const {
    if (!parts_.directory.entered()) return std::nullopt;
    return notice_.published(parts_.directory.store());
}

Result<> Joiner::connect_parent() {
    ParentSearch search(config_.rank, config_.size);
    Notices notices;
    net::Redial redial;
    Pace between_calls(limit_.by, {.sleep_us = call_again_us});
    for (;;) {
        switch (search.step()) {
            case ParentSearch::SearchStep::look_up: {
                const int64_t most_ms = std::max<int64_t>(1, limit_.by.left_ms(look_up_ms));
                search.on_record(parts_.directory.store().get(parts_.directory.key(search.parent()),
                                                              Deadline::after_ms(most_ms)));
                break;
            }
            case ParentSearch::SearchStep::call:
                call_parent(search, redial);
                break;
            case ParentSearch::SearchStep::look_for_trouble: {
                search.on_failure_check(watch_.trouble(has_parent_, now_ns()),
                                        limit_.by.passed() || net::wait_cancelled());
                if (search.step() != ParentSearch::SearchStep::look_up) break;
                const auto waited_ms = search.was_refused() ? std::nullopt : notices.due_ms();
                if (waited_ms)
                    log::info("rank {} waits: rank {} did not join within {} ms (store {})",
                              config_.rank, search.parent(), *waited_ms,
                              parts_.directory.store().describe());
                parts_.service.pump();
                if (search.was_refused()) between_calls.pause();
                break;
            }
            case ParentSearch::SearchStep::name_missing:
                search.named_missing(parts_.directory.missing_error(limit_.ms));
                break;
            case ParentSearch::SearchStep::connected:
                has_parent_ = true;
                parts_.assembly.parent_connected(search.record().exchanges_records);
                return {};
            case ParentSearch::SearchStep::failed:
                return tl::unexpected(search.error());
        }
    }
}

void Joiner::call_parent(ParentSearch& search, net::Redial& redial) {
    auto fd = net::connect_tcp(search.address(), {.deadline = limit_.by, .keep_trying = false});
    if (!fd) return search.refused(fd.error(), parts_.connector.hides(search.record(), limit_.by));
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const auto hello = ControlTree::Hello{.rank = config_.rank}.encode();
    if (const auto introduced = net::introduce(fd->get(), secret, hello, limit_.by); !introduced) {
        auto published = published_failure();
        const bool again = !published && redial.again(introduced.error(), limit_.by);
        return search.turned_away(introduced.error(), std::move(published), again);
    }
    state_distance(fd->get());
    search.attached(
        parts_.control.attach(search.parent(), std::move(*fd), ControlTree::LinkKind::branch));
}

/// The round trip to the parent stands for that to any rank; all ranks use the longest one stated.
void Joiner::state_distance(int parent_fd) const {
    const double round_trip_us = config_.round_trip_ms >= 0
                                     ? static_cast<double>(config_.round_trip_ms) * 1000
                                     : net::round_trip_us(parent_fd);
    const double latency_us = coarse_latency_us(round_trip_us);
    const auto transports = parts_.transports.all();
    for (std::size_t i = 0; i < transports.size(); ++i)
        if (transports[i]->capabilities().over_ip) parts_.assembly.found_latency(i, latency_us);
}

Result<> Joiner::assemble(JoinedIntrinsics& intrinsics) {
    using State = Bootstrap::State;
    Assembly& assembly = parts_.assembly;
    // A rank that fails before its parent knows it can only publish the failure; the root reads it
    // and tells every rank.
    Notices notices;
    const auto gathered = [&] {
        const auto why = config_.size > 1 ? watch_.trouble(has_parent_, now_ns()) : std::nullopt;
        if (why) assembly.fail(*why);
        const auto waited_ms = config_.rank == 0 ? notices.due_ms() : std::nullopt;
        if (waited_ms)
            log::info("rank 0 waits: {}", parts_.directory.missing_error(*waited_ms).message);
        return assembly.state() != State::gathering;
    };
    if (!wait_until(gathered)) return tl::unexpected(parts_.directory.missing_error(limit_.ms));
    if (assembly.state() == State::link) {
        TUTTI_ASSIGN(const bool know_all, take_records());
        parts_.transports.agree_on(assembly.worst());
        if (know_all) parts_.connector.introduce(config_.size, limit_.by);
        intrinsics = join_intrinsics();
        assembly.linked(intrinsics.group != nullptr);
    }
    if (!wait_until([&] {
            const State state = assembly.state();
            return state == State::done || state == State::failed;
        }))
        return fail(Code::timeout, "timed out: not all ranks finished joining within {} ms",
                    limit_.ms);
    if (!assembly.complete()) return tl::unexpected(assembly.error());
    if (!assembly.all_linked()) intrinsics = {};
    return {};
}

// From here on no channel and no detour to these ranks needs the store, which may end with a rank.
// The records of all ranks come if each of them exchanges records; if not, this returns false.
Result<bool> Joiner::take_records() {
    const std::vector<std::string> records = parts_.assembly.take_records();
    for (std::size_t rank = 0; rank < records.size(); ++rank)
        if (!records[rank].empty())
            TUTTI_TRY(parts_.directory.add(static_cast<Rank>(rank), records[rank]));
    return !records.empty();
}

// Empty if this rank could not join the intrinsics that all ranks would use.
JoinedIntrinsics Joiner::join_intrinsics() const {
    if (config_.size == 1) return {};
    const net::CancelWaitsWhen failed(parts_.assembly.failed());
    return parts_.connector.join_intrinsics(Group(config_.rank, config_.size),
                                            parts_.assembly.one_host(), limit_.by);
}

template <typename Done>
bool Joiner::wait_until(Done done) {
    while (!done()) {
        if (limit_.by.passed() || net::wait_cancelled()) return false;
        if (parts_.wakeups.manual())
            parts_.wakeups.reactor().poll(static_cast<int>(limit_.by.left_ms(50)));
        else
            parts_.assembly.wait_for_change(1);
    }
    return true;
}

// A rank that ends may take the store along, so look up the next ranks now, as far as their records
// have not come from the control tree.
void Joiner::look_up_next() {
    const bool of_launcher = config_.store_hosted && !config_.store_in_job;
    const bool outlives_ranks = of_launcher || !config_.store.starts_with("tcp:");
    const Rank most = outlives_ranks ? 0 : std::min(next_known, config_.size - 1);
    for (Rank step = 1; step <= most; ++step) {
        const auto record = parts_.directory.find((config_.rank + step) % config_.size, limit_.by);
        if (!record) return log::info("rank {}: {}", config_.rank, record.error().message);
    }
}

}  // namespace tutti
