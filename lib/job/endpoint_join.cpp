// Joining a job: store, listeners, the control tree, and the agreement that everyone is there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>

#include "base/blame.h"
#include "base/catching.h"
#include "base/log.h"
#include "comm/at_exit.h"
#include "control/tree.h"
#include "job/endpoint.h"
#include "job/forks.h"
#include "job/known_names.h"
#include "net/serving.h"
#include "net/socket.h"
#include "os/signals.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

constexpr const char* hidden_place =
    " of another host, which listens on its loopback only (see TUTTI_IFACE and TUTTI_SECRET)";

// A rank that cannot join anyway waits so long for the store, to tell the others.
constexpr int64_t tell_ms = 3000;

// Of several networks, the one that leads to the store leads to the other ranks.
std::string address_on_the_way(const Config& config, Deadline deadline) {
    constexpr std::string_view scheme = "tcp://";
    if (!config.store.starts_with(scheme)) return {};
    const auto store = net::parse_host_port(std::string_view(config.store).substr(scheme.size()));
    return store ? net::address_towards(*store, deadline) : std::string{};
}

// Names this boot of this machine: equal ids share cores and, unless told otherwise, a host.
std::string read_machine_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id.empty() ? "unknown machine" : id;
}

// Rank 0 serves the tcp store to later communicators too, so an opened one stays for the process. A
// forked child has its own: its parent's would be one connection for both.
std::mutex stores_mutex;
std::map<std::string, std::shared_ptr<Store>>& kept_stores() {
    static auto* stores = new std::map<std::string, std::shared_ptr<Store>>;
    return *stores;
}

Result<std::shared_ptr<Store>> get_store(const Config& config, Deadline deadline) {
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

// All ranks must choose alike: a transport that one rank lacks is used by none.
void drop_lacking(std::vector<std::unique_ptr<Transport>>& transports,
                  std::vector<LinkAttributes>& common) {
    for (std::size_t i = transports.size(); i-- > 0;) {
        if (!common[i].lacking) continue;
        transports[i]->close(Deadline::after_ms(1000));
        transports.erase(transports.begin() + static_cast<std::ptrdiff_t>(i));
        common.erase(common.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

// When to say, in the log, what joining waits for: soon, then ever more rarely.
class Notices {
public:
    /// If it is time to: for how long it has been waiting.
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

void Endpoint::close_stores() {
    const std::string here = fmt::format("\n{}", HomeProcess().depth());
    std::vector<std::shared_ptr<Store>> own;  // destroyed without the mutex
    const std::lock_guard lock(stores_mutex);
    std::erase_if(kept_stores(), [&](auto& kept) {
        if (!kept.first.ends_with(here)) return false;
        own.push_back(std::move(kept.second));
        return true;
    });
}

std::string Endpoint::next_generation(const Config& config, const Store* own_store) {
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

Result<std::shared_ptr<Endpoint>> Endpoint::join(const Config& config, std::string generation,
                                                 std::shared_ptr<Store> own_store) {
    std::shared_ptr<Endpoint> endpoint(new Endpoint(config, std::move(generation)));
    // The others wait for a rank that cannot go on, whatever the reason.
    if (auto done = catching([&] { return endpoint->set_up(std::move(own_store)); }); !done) {
        Error error = std::move(done).error();
        // A neighbour that is gone is a consequence: the cause may be known.
        if (error.code == Code::peer_lost) error = endpoint->word_left().value_or(error);
        endpoint->bootstrap_step([&] {
            if (endpoint->bootstrap_) endpoint->bootstrap_->fail_with(error);
        });
        // Leaving word takes a descriptor; a rank of which nobody knows needs these no more.
        if (!endpoint->published_) endpoint->close_listeners();
        endpoint->leave_word(error);
        endpoint->leave(Deadline::after_ms(1000));
        error.message = fmt::format("rank {} of {} could not join job '{}': {}", config.rank,
                                    config.size, config.job, error.message);
        return tl::unexpected(std::move(error));
    }
    return endpoint;
}

void Endpoint::close_listeners() {
    for (const auto& transport : transports_) transport->close(Deadline::after_ms(1000));
    transports_.clear();
    acceptor_.reset();
}

// The store comes first: through it, a rank that cannot go on tells the others why.
Result<> Endpoint::set_up(std::shared_ptr<Store> own_store) {
    const net::ServeWhileWaiting serving(manual() ? &wakeups_.reactor() : nullptr);
    usual_address_ = address_on_the_way(config_, deadline_);
    auto sound = check_settings();
    if (config_.size > 1) {
        const auto tells = Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(tell_ms)));
        const auto entered = enter_store(std::move(own_store), sound ? deadline_ : tells);
        if (sound) TUTTI_TRY(entered);
    }
    TUTTI_TRY(sound);
    TUTTI_TRY(prepare());
    // Who cannot read it still joins, so that the others hear of the difference at once.
    auto tuning = load_tuning(config_.tuning);
    if (tuning) tuning_ = *tuning;
    bootstrap_ = std::make_unique<Bootstrap>(introduction(tuning.has_value()));
    if (config_.size > 1) {
        TUTTI_TRY(listen_control());
        TUTTI_TRY(publish());
    }
    if (!manual()) {
        const NoSignals for_the_thread;
        serving_ = true;
        TUTTI_ASSIGN(thread_, Thread::start("the service thread", [this] { serve(); }));
    }
    if (config_.rank != 0) TUTTI_TRY(connect_parent());
    auto assembled = assemble();
    if (assembled) meet_ring();
    if (!tuning) return tl::unexpected(std::move(tuning).error());
    if (assembled) will_.reset();
    return assembled;
}

// The settings that can be refused before anything is opened.
Result<> Endpoint::check_settings() const {
    if (config_.refused) return tl::unexpected(*config_.refused);
    if (config_.rank >= config_.size)
        return fail(Code::invalid, "rank {} of a job of size {}: ranks go from 0 to {}",
                    config_.rank, config_.size, config_.size - 1);
    if (auto known = check_algorithm(config_); !known) return wrap(known.error(), "TUTTI_ALGO");
    TUTTI_TRY(check_transports(config_));
    if (config_.size > 1) TUTTI_TRY(own_address());
    return {};
}

Result<> Endpoint::enter_store(std::shared_ptr<Store> own_store, Deadline deadline) {
    if (own_store) {
        store_ = std::move(own_store);
        host_programs_store_ = true;
    } else {
        log::info("rank {} of {}: looks for the others in store {}", config_.rank, config_.size,
                  config_.store);
        TUTTI_ASSIGN(store_, get_store(config_, deadline));
    }
    if (config_.rank >= config_.size) {
        may_tell_ = true;
        return {};
    }
    return claim_number();
}

Result<> Endpoint::prepare() {
    TUTTI_TRY(wakeups_.open());
    return open_transports();
}

// tuned: the tuning file could be read.
Bootstrap::Self Endpoint::introduction(bool tuned) const {
    Bootstrap::Self self;
    self.rank = config_.rank;
    self.size = config_.size;
    self.host_id = host_id_;
    self.machine_id = machine_id_;
    self.cores = usable_cores();
    self.agree = {{"nrings", std::to_string(config_.nrings)},
                  {"transport", fmt::format("{}", fmt::join(config_.transports, ","))},
                  {"fabric_ports", std::to_string(config_.fabric_ports)},
                  {"algo", config_.algo},
                  {"fit_ms", std::to_string(config_.fit_ms)},
                  {"tuning", tuned ? tuning_.fingerprint() : "unusable"},
                  {"device", config_.device == DeviceWay::staged ? "staged" : "library"},
                  {"device_tile_bytes", std::to_string(config_.device_tile_bytes)},
                  {"device_rings", std::to_string(config_.device_rings)},
                  {"device_split", config_.device_split == DeviceSplit::share ? "share" : "own"},
                  {"check", config_.check == Check::strict ? "strict" : "frames"}};
    for (const auto& transport : transports_) self.transports.push_back(transport->capabilities());
    return self;
}

Result<> Endpoint::open_transports() {
    const NoSignals for_their_threads;
    TransportContext context;
    context.rank = config_.rank;
    context.size = config_.size;
    context.job = config_.job;
    context.secret = config_.secret;
    context.host_id = host_id_;
    context.iface = config_.iface;
    context.usual_address = usual_address_;
    context.ofi_provider = config_.ofi_provider;
    context.fabric_ports = config_.fabric_ports;
    context.loopback_only = config_.secret.empty() && !config_.insecure;
    context.doorbell_fd = wakeups_.doorbell_fd();
    context.reactor = &wakeups_.reactor();
    context.data_reactor = &wakeups_.data_reactor();
    context.sink = this;
    context.unsent = &wakeups_.unsent();
    for (const std::string& name : config_.transports) {
        if (config_.size == 1) continue;
        const auto kinds = tutti::transports();
        const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                       [&](const TransportKind& k) { return k.name == name; });
        std::unique_ptr<Transport> transport = kind->make(context);
        if (auto listening = transport->listen(); !listening) {
            if (!transport->capabilities().lacking || config_.transports.size() == 1)
                return wrap(listening.error(), fmt::format("transport {}", name));
            log::warn("rank {}: the job does without {}: {}", config_.rank, name,
                      listening.error().message);
        }
        transports_.push_back(std::move(transport));
    }
    return {};
}

Result<std::string> Endpoint::own_address() const {
    const bool loopback_only = config_.secret.empty() && !config_.insecure;
    return net::choose_address({config_.iface, loopback_only, usual_address_});
}

Result<> Endpoint::listen_control() {
    net::HostPort at;
    TUTTI_ASSIGN(at.host, own_address());
    TUTTI_ASSIGN(UniqueFd listener, net::listen_tcp(at));
    TUTTI_ASSIGN(at.port, net::local_port(listener.get()));
    control_address_ = net::format_host_port(at);
    acceptor_ = std::make_unique<net::Acceptor>(
        wakeups_.reactor(), std::move(listener),
        net::AuthKey{config_.secret, "control/" + config_.job},
        [this](UniqueFd fd, Bytes hello) { take_connection(std::move(fd), hello); },
        net::Acceptor::Options{});
    return {};
}

// The parent's record, once it is there. What came of an earlier one is why, if none comes any
// more.
Result<PeerRecord> Endpoint::parent_record(const std::optional<Error>& earlier) {
    const Rank parent = tree_parent(config_.rank);
    for (Notices notices;;) {
        const auto text = store_->get(
            key(parent), Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(200))));
        if (text) {
            auto record = PeerRecord::decode(*text);
            if (record) return *std::move(record);
            return fail_rank(Code::system, parent, "rank {}'s record in the store is malformed",
                             parent);
        }
        if (text.error().code == Code::peer_lost) return tl::unexpected(text.error());
        if (text.error().code != Code::timeout)
            return tl::unexpected(earlier ? *earlier : text.error());
        if (auto why = trouble()) return tl::unexpected(*std::move(why));
        if (deadline_.passed())
            return tl::unexpected(earlier ? *earlier : missing_error(config_.timeout_ms));
        if (const auto waited_ms = notices.due_ms())
            log::info("rank {} waits: rank {} did not come within {} ms (store {})", config_.rank,
                      parent, *waited_ms, store_->describe());
        pump();
    }
}

/// Whether only its own host, which is not this one, reaches that rank: its control address is one
/// of those that it listens on.
bool Endpoint::hides(const PeerRecord& record, Deadline deadline) const {
    const auto address = net::parse_host_port(record.control);
    return record.host_id != host_id_ && address &&
           net::is_loopback(address->host, deadline).value_or(false);
}

Result<> Endpoint::connect_parent() {
    const Rank parent = tree_parent(config_.rank);
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const auto hello = ControlTree::Hello{.rank = config_.rank}.encode();
    // A record that a killed run left behind leads nowhere: ask again until its owner has renewed
    // it.
    std::optional<Error> refused;
    for (net::Redial redial;;) {
        TUTTI_ASSIGN(const PeerRecord record, parent_record(refused));
        // Of other differences the parent hears, and tells all; but that one has no place for it.
        if (config_.rank >= record.size)
            return fail_rank(Code::invalid, parent,
                             "size is '{}' on rank {} but '{}' on rank {}: it must be the same "
                             "everywhere",
                             config_.size, config_.rank, record.size, parent);
        auto address = net::parse_host_port(record.control);
        if (!address)
            return wrap(address.error(), fmt::format("rank {}'s control address", parent));
        auto fd = net::connect_tcp(*address, {.deadline = deadline_, .keep_trying = false});
        if (fd) {
            if (auto met = net::introduce(fd->get(), secret, hello, deadline_); !met) {
                // One that gives up, too, closes the connection.
                if (auto word = word_left()) return tl::unexpected(*std::move(word));
                if (redial.again(met.error(), deadline_)) continue;
                return wrap(met.error(), fmt::format("connecting to rank {}", parent));
            }
            if (auto attached =
                    control_.attach(parent, std::move(*fd), ControlTree::LinkKind::branch);
                !attached)
                return wrap(attached.error(), fmt::format("connecting to rank {}", parent));
            bootstrap_step([this] { parent_there_ = true; });
            return {};
        }
        const bool hidden = hides(record, deadline_);
        const char* where = hidden ? hidden_place : "";
        refused = wrap(fd.error(), fmt::format("connecting to rank {}{}", parent, where)).value();
        if (const Blame blame = blame_of(refused->sys_errno); blame != Blame::peer)
            return tl::unexpected(*std::move(refused));
        // Who is hidden only knows that this rank is missing.
        if (auto why = trouble()) return tl::unexpected(hidden ? *refused : *std::move(why));
        if (deadline_.passed()) return tl::unexpected(*std::move(refused));
        pump();
        ::usleep(20'000);
    }
}

Result<> Endpoint::assemble() {
    bootstrap_step([] {});
    using State = Bootstrap::State;
    const auto state = [this] {
        const std::lock_guard lock(mutex_);
        return bootstrap_->state();
    };
    // A rank that fails before it has met its parent can only leave word; the root tells everyone.
    Notices notices;
    const auto gathered = [&] {
        const auto why = config_.size > 1 ? trouble() : std::nullopt;
        if (why) bootstrap_step([&] { bootstrap_->fail_with(*why); });
        const auto waited_ms = config_.rank == 0 ? notices.due_ms() : std::nullopt;
        if (waited_ms) log::info("rank 0 waits: {}", missing_error(*waited_ms).message);
        return state() != State::gathering;
    };
    if (!wait_until(gathered)) return tl::unexpected(missing_error(config_.timeout_ms));
    if (state() == State::link) {
        bootstrap_step([&] { common_ = bootstrap_->worst(); });
        drop_lacking(transports_, common_);
        const bool joined = join_job_intrinsics();
        bootstrap_step([&] { bootstrap_->linked(joined); });
    }
    if (!wait_until([&] { return state() == State::done || state() == State::failed; }))
        return fail(Code::timeout, "not all ranks finished joining within {} ms",
                    config_.timeout_ms);
    const std::lock_guard lock(mutex_);
    if (bootstrap_->state() == State::failed) return tl::unexpected(bootstrap_->error());
    if (!bootstrap_->all_linked()) intrinsics_ = {};
    return {};
}

// Whether this rank could join the intrinsics that everyone would use.
bool Endpoint::join_job_intrinsics() {
    if (config_.size == 1) return false;
    const net::GiveUpWhen failed(start_failed_);
    intrinsics_ = join_intrinsics(Group(config_.rank, config_.size), one_host(), deadline_);
    return intrinsics_.group != nullptr;
}

// Those of the transport that carries everything in this group.
Endpoint::Intrinsics Endpoint::join_intrinsics(const Group& group, bool one_host,
                                               Deadline deadline) {
    for (std::size_t i = 0; i < transports_.size(); ++i) {
        const Transport& transport = *transports_[i];
        IntrinsicProvider* provider = transports_[i]->intrinsics();
        if (!provider || group.size() > provider->most_ranks()) continue;
        if (transport.capabilities().same_host_only && !one_host) continue;
        // Ranks may find differently. Where joining waits for rank 0, as within a host, all try.
        if (!transport.capabilities().same_host_only && reaches_any(i, group, deadline)) return {};
        GroupRequest request;
        request.comm = group.id();
        request.rank = group.rank();
        request.size = group.size();
        request.streams = static_cast<uint32_t>(config_.nrings);
        for (Rank rank = 0; rank < group.size(); ++rank)
            request.members.push_back(group.in_job(rank));
        request.find = [&](Rank rank) { return find(transport, rank, deadline); };
        auto joined = provider->join(request, deadline);
        if (joined) return {std::move(*joined), provider->name()};
        log::info("rank {}: no {} collectives: {}", config_.rank, provider->name(),
                  joined.error().message);
        return {};
    }
    return {};
}

// Whether one of the first so many transports would be taken to a member.
bool Endpoint::reaches_any(std::size_t transports, const Group& group, Deadline deadline) {
    for (Rank rank = 0; transports > 0 && rank < group.size(); ++rank) {
        if (rank == group.rank()) continue;
        for (std::size_t i = 0; i < transports; ++i) {
            const auto address = find(*transports_[i], group.in_job(rank), deadline);
            if (address && transports_[i]->may_reach(*address)) return true;
        }
    }
    return false;
}

Result<PeerAddress> Endpoint::find(const Transport& transport, Rank rank, Deadline deadline) {
    TUTTI_ASSIGN(const PeerRecord* record, peer(rank, deadline));
    const auto found = record->addresses.find(transport.name());
    if (found == record->addresses.end())
        return fail_rank(Code::unsupported, rank, "rank {} has no {}", rank, transport.name());
    return PeerAddress{rank, record->host_id, found->second};
}

template <typename Done>
bool Endpoint::wait_until(Done done) {
    while (!done()) {
        if (deadline_.passed()) return false;
        if (manual()) {
            wakeups_.reactor().poll(static_cast<int>(deadline_.left_ms(50)));
        } else {
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, std::chrono::milliseconds(1));
        }
    }
    return true;
}

// Feeds the state machine and sends what it wants sent.
void Endpoint::bootstrap_step(const std::function<void()>& step) {
    std::vector<Bootstrap::Outgoing> outgoing;
    {
        const std::lock_guard lock(mutex_);
        step();
        if (bootstrap_) {
            outgoing = bootstrap_->take_outgoing(parent_there_);
            start_failed_ = bootstrap_->state() == Bootstrap::State::failed;
        }
    }
    for (const Bootstrap::Outgoing& out : outgoing)
        control_.send(
            out.to,
            TreeMessage{.topic = TreeMessage::Topic::bootstrap, .body = out.message}.encode());
    changed_.notify_all();
}

Endpoint::Endpoint(const Config& config, std::string generation)
    : config_(config),
      started_s_(wall_clock_s()),
      machine_id_(read_machine_id()),
      generation_(std::move(generation)),
      job_hash_(hash_of(config_.store + '\n' + config_.job + '\n' + generation_)),
      deadline_(Deadline::after_ms(config.timeout_ms)),
      wakeups_(config_.progress == Progress::manual, config_.look_ms),
      control_(wakeups_.reactor(),
               {[this](Rank from, ByteView message) { control_message(from, message); },
                [this](Rank peer, ControlTree::LinkKind kind, const std::string& cause) {
                    control_closed(peer, kind, cause);
                }}) {
    host_id_ = config.host_id.empty() ? machine_id_ : config.host_id;
}

}  // namespace tutti
