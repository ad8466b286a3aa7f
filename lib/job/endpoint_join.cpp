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
#include "control/tree.h"
#include "job/endpoint.h"
#include "job/known_names.h"
#include "net/serving.h"
#include "net/socket.h"
#include "os/signals.h"

namespace tutti {
namespace {

constexpr const char* hidden_place =
    " of another host, which listens on its loopback only (see TUTTI_IFACE and TUTTI_SECRET)";

// A rank that cannot join anyway waits so long for the store, to tell the others.
constexpr int64_t tell_ms = 3000;
constexpr int publish_patience_ms = 60'000;  // if joining has no deadline

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

Result<std::shared_ptr<Endpoint>> Endpoint::join(const Config& config,
                                                 const std::string& generation,
                                                 std::shared_ptr<Store> own_store) {
    std::shared_ptr<Endpoint> endpoint(new Endpoint(config, generation));
    // The others wait for a rank that cannot go on, whatever the reason.
    if (auto done = catching([&] { return endpoint->set_up(std::move(own_store)); }); !done) {
        Error error = std::move(done).error();
        // A neighbour that is gone is a consequence: the cause may be known.
        if (error.code == Code::peer_lost) error = endpoint->published_failure().value_or(error);
        endpoint->bootstrap_step([&] {
            if (endpoint->bootstrap_) endpoint->bootstrap_->fail_with(error);
        });
        // Publishing takes a descriptor; a rank of which nobody knows needs these no more.
        if (!endpoint->directory_.published()) endpoint->close_listeners();
        if (endpoint->may_tell_) endpoint->notice_.publish(endpoint->directory_.store(), error);
        endpoint->leave(Deadline::after_ms(1000));
        error.message = fmt::format("rank {} of {} could not join job '{}': {}", config.rank,
                                    config.size, config.job, error.message);
        return tl::unexpected(std::move(error));
    }
    return endpoint;
}

void Endpoint::close_listeners() {
    transports_.close(Deadline::after_ms(1000));
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
    if (assembled) directory_.withdraw_will();
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
        directory_.enter(std::move(own_store));
        host_programs_store_ = true;
    } else {
        log::info("rank {} of {}: looks for the others in store {}", config_.rank, config_.size,
                  config_.store);
        TUTTI_ASSIGN(auto store, job_stores::open(config_, deadline));
        directory_.enter(std::move(store));
    }
    if (config_.rank >= config_.size) {
        may_tell_ = true;
        return {};
    }
    const auto patience =
        Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(publish_patience_ms)));
    TUTTI_TRY(directory_.claim(RankOwner::this_process(machine_id_), config_.job, patience));
    may_tell_ = true;
    watch_.begin(patience);
    return {};
}

Result<> Endpoint::prepare() {
    TUTTI_TRY(wakeups_.open());
    const NoSignals for_their_threads;
    return transports_.listen(config_.transports, transport_context());
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
    for (const auto& transport : transports_.all())
        self.transports.push_back(transport->capabilities());
    return self;
}

TransportContext Endpoint::transport_context() {
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
    return context;
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
        const auto text = directory_.store().get(
            directory_.key(parent),
            Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(200))));
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
            return tl::unexpected(earlier ? *earlier
                                          : directory_.missing_error(config_.timeout_ms));
        if (const auto waited_ms = notices.due_ms())
            log::info("rank {} waits: rank {} did not come within {} ms (store {})", config_.rank,
                      parent, *waited_ms, directory_.store().describe());
        pump();
    }
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
                if (auto failure = published_failure()) return tl::unexpected(*std::move(failure));
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
        const bool hidden = connector_.hides(record, deadline_);
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
        if (waited_ms) log::info("rank 0 waits: {}", directory_.missing_error(*waited_ms).message);
        return state() != State::gathering;
    };
    if (!wait_until(gathered)) return tl::unexpected(directory_.missing_error(config_.timeout_ms));
    if (state() == State::link) {
        std::vector<LinkAttributes> worst;
        bootstrap_step([&] { worst = bootstrap_->worst(); });
        transports_.agree_on(std::move(worst));
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

std::optional<Error> Endpoint::published_failure() const {
    return directory_.entered() ? notice_.published(directory_.store()) : std::nullopt;
}

Result<> Endpoint::publish() {
    const auto patience =
        Deadline::after_ms(std::max<int64_t>(1, deadline_.left_ms(publish_patience_ms)));
    PeerRecord record;
    record.size = config_.size;
    record.host_id = host_id_;
    record.control = control_address_;
    for (const auto& transport : transports_.all())
        record.addresses.emplace(transport->name(), transport->address());
    return directory_.publish(record, patience);
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

Endpoint::Endpoint(const Config& config, const std::string& generation)
    : config_(config),
      host_id_(config.host_id.empty() ? read_machine_id() : config.host_id),
      machine_id_(read_machine_id()),
      job_hash_(hash_of(config_.store + '\n' + config_.job + '\n' + generation)),
      directory_(generation, config_.rank, config_.size),
      notice_(generation, config_.rank, config_.size),
      watch_(config_.rank, config_.size, machine_id_, directory_, notice_),
      deadline_(Deadline::after_ms(config.timeout_ms)),
      wakeups_(config_.progress == Progress::manual, config_.look_ms),
      control_(wakeups_.reactor(),
               {[this](Rank from, ByteView message) { control_message(from, message); },
                [this](Rank peer, ControlTree::LinkKind kind, const std::string& cause) {
                    control_closed(peer, kind, cause);
                }}),
      connector_(config_.rank, host_id_, static_cast<uint32_t>(config_.nrings), transports_,
                 directory_) {}

}  // namespace tutti
