#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "comm/calibrate.h"
#include "comm/joined.h"
#include "comm/living_communicators.h"
#include "job/job_stores.h"
#include "os/at_exit.h"
#include "rendezvous/rendezvous.h"
#include "transports/catalog.h"

namespace tutti {

Communicator::Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host)
    : core_(std::move(endpoint), std::move(group), one_host, *this),
      progress_(core_),
      issuer_(core_, progress_),
      messenger_(core_, progress_),
      recovery_(core_, progress_),
      offload_(make_offload({core_, issuer_, progress_})) {
    core_.offload = offload_.get();
}

std::shared_ptr<Communicator> Communicator::make(std::shared_ptr<Endpoint> endpoint, Group group,
                                                 bool one_host, std::optional<Hosts> hosts) {
    std::shared_ptr<Communicator> comm(
        new Communicator(std::move(endpoint), std::move(group), one_host));
    Core& core = comm->core_;
    core.self = comm;
    if (hosts) core.set_hosts(*std::move(hosts));
    core.endpoint->add(core.group.id(), comm.get());
    living_communicators::add(comm);
    return comm;
}

std::shared_ptr<Communicator> Communicator::make_part(const Core& whole,
                                                      const std::vector<Rank>& members,
                                                      uint32_t id) {
    std::vector<uint64_t> labels;
    std::vector<Rank> in_job;
    for (const Rank member : members) {
        labels.push_back(static_cast<uint64_t>(whole.group.hosts()->host_of(member)));
        in_job.push_back(whole.group.in_job(member));
    }
    Hosts hosts = Hosts::by_label(labels);
    const auto own = std::find(members.begin(), members.end(), whole.rank());
    Group group(id, std::move(in_job), static_cast<Rank>(own - members.begin()));
    const bool one_host = hosts.count() == 1;
    return make(whole.endpoint, std::move(group), one_host, std::move(hosts));
}

Communicator::~Communicator() {
    destroy();
}

namespace {

// Called if no store is configured: makes one from the launcher's description of the job.
Result<> find_store(Config& config, std::shared_ptr<Store>& store) {
    TUTTI_ASSIGN(RendezvousPlace place,
                 find_rendezvous(config, std::getenv, Deadline::after_ms(config.timeout_ms)));
    config.store = std::move(place.url);
    config.store_hosted = place.hosted;
    config.store_in_job = place.hosted;
    if (!place.job.empty()) config.job = std::move(place.job);
    if (config.iface.empty()) config.iface = std::move(place.iface);
    if (config.secret.empty()) config.secret = std::move(place.secret);
    store = std::move(place.store);
    return {};
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(const Config& given,
                                                           std::shared_ptr<Store> own_store) {
    if (Completion::calling_back())
        return fail(Code::invalid, "a completion callback may not make a communicator")
            .advice("let another thread call tutti_comm_create");
    TUTTI_TRY(check_whole(given));
    Config config = given;
    if (config.size > 1 && config.store.empty() && !own_store)
        TUTTI_TRY(find_store(config, own_store));
    std::string generation = job_stores::next_generation(config, own_store.get());
    return join(std::move(config), std::move(generation), std::move(own_store));
}

Result<std::shared_ptr<Communicator>> Communicator::join(Config config, std::string generation,
                                                         std::shared_ptr<Store> own_store) {
    const int64_t start_ns = now_ns();
    // Only note the refusal: the endpoint returns it when it can still tell the other ranks.
    if (auto fits = check_offload(config); !fits && !config.refused)
        config.refused = std::move(fits).error();
    TUTTI_ASSIGN(std::shared_ptr<Endpoint> endpoint,
                 Endpoint::join(config, std::move(generation), std::move(own_store)));
    const bool one_host = endpoint->one_host();
    Endpoint::Intrinsics intrinsics = endpoint->take_intrinsics();
    at_exit::arm(fmt::format("{}", fmt::join(config.transports, ",")),
                 at_exit::ExitStep::leave_jobs, living_communicators::leave_all);
    auto comm = make(std::move(endpoint), Group(config.rank, config.size), one_host, std::nullopt);
    comm->core_.use_intrinsics(std::move(intrinsics));
    TUTTI_TRY(comm->learn_hosts());
    const int64_t took_ms = (now_ns() - start_ns) / 1'000'000;
    if (config.fit_ms > 0) TUTTI_TRY(calibrate(*comm, config.fit_ms));
    log_joined(*comm, *comm->core_.endpoint, took_ms);
    return comm;
}

// All ranks must choose the same algorithms, so each must know every rank's host before the first
// choice. Costs log2(ranks) messages per rank.
Result<> Communicator::learn_hosts() {
    const bool one_host = core_.planner.selection_input().one_host;
    if (one_host || size() == 2) {
        core_.set_hosts(Hosts::in_blocks(size(), one_host ? size() : 1));
        return {};
    }
    Call call;
    call.collective = Collective::allgather;
    call.count = 1;
    call.dtype = Dtype::uint64;
    call.algorithm = "bruck";
    const uint64_t mine = core_.endpoint->hashes().host;
    std::vector<uint64_t> hosts(static_cast<std::size_t>(size()));
    TUTTI_TRY(issuer_.run_own(call, &mine, hosts.data()));
    core_.set_hosts(Hosts::by_label(hosts));
    return {};
}

MemoryUse Communicator::used_memory() const {
    const MessageMemory messages = message_memory();
    return {.user = core_.memory.bytes(),
            .work = core_.planner.work_bytes(),
            .recorder = core_.recorder.allocated_bytes(),
            .mapped = messages.mapped,
            .cells = messages.cells};
}

void Communicator::abort() {
    if (core_.destroyed) return;
    core_.failure_protocol.overrule(
        {Code::aborted, rank(), 0, fmt::format("rank {} called tutti_comm_abort", rank())});
    recovery_.interrupt();
}

void Communicator::revoke() {
    core_.failure_protocol.overrule(
        {Code::revoked, rank(), 0, fmt::format("rank {} revoked the communicator", rank())});
}

namespace {

// A message of an agreement has come: wakes the thread that waits for the outcome.
void note_agreement(Core& core) {
    if (const auto error = core.consensus.exclusion()) core.failure_protocol.overrule(*error);
    core.endpoint->wakeups().ring();
}

// The goodbye waits for no answer of a rank that is lost or has timed out.
void stop_waiting_for_unresponsive(Core& core) {
    const auto over = core.failure_protocol.fatal_error();
    if (over && over->unresponsive != nobody)
        core.endpoint->stop_waiting_for(core.group.in_job(over->unresponsive));
}

}  // namespace

void Communicator::destroy(UserHandle handle) {
    if (handle == UserHandle::kept) core_.left = true;
    if (core_.destroyed.exchange(true) || !core_.home.here()) return;
    // Operations that were issued finish in order; each has a deadline.
    constexpr int64_t longest_ms = 60'000;
    const int64_t timeout_ms = core_.config().timeout_ms;
    offload_->finish(timeout_ms == 0 ? longest_ms : std::min(timeout_ms, longest_ms));
    const uint64_t last = core_.streams.end_all(core_.sequence);
    core_.transfers.end_all();
    offload_->leave();
    stop_waiting_for_unresponsive(core_);
    ControlMessage bye = core_.failure_protocol.send_bye(last, core_.consensus.encode_last_words());
    core_.memory.clear();
    // The last communicator takes this process out of the job.
    Endpoint& endpoint = *core_.endpoint;
    LastWords last_words{core_.consensus.last_words(), std::move(bye)};
    if (endpoint.remove(core_.group.id(), std::move(last_words), Deadline()))
        endpoint.leave(Deadline::after_ms(1000));
    living_communicators::remove(*this);
}

void Communicator::leave_at_exit(Deadline deadline) {
    if (!core_.home.here() || core_.destroyed.exchange(true)) return;
    // An accelerator's library may have shut down already, so do not call it.
    stop_waiting_for_unresponsive(core_);
    ControlMessage bye =
        core_.failure_protocol.send_bye(core_.streams.last_before_end(core_.sequence, deadline),
                                        core_.consensus.encode_last_words());
    Endpoint& endpoint = *core_.endpoint;
    LastWords last_words{core_.consensus.last_words(), std::move(bye)};
    if (endpoint.remove(core_.group.id(), std::move(last_words), deadline))
        endpoint.leave_at_exit(deadline);
    living_communicators::remove(*this);
}

// ---- events from the endpoint ----------------------------------------------------------------

bool Communicator::still_wanted(const ChannelId& id) {
    return core_.channels.still_wanted(id);
}

void Communicator::connected(const ChannelId& id, Result<Opened> opened) {
    core_.channels.connected(id, std::move(opened));
}

void Communicator::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    core_.channels.opened(id, std::move(receiver));
}

// Translates the job's rank to the communicator's. Messages of ranks outside the communicator are
// ignored.
void Communicator::handle_message(Rank from, const ControlMessage& message) {
    const Rank member = core_.group.of_job(from);
    if (member == nobody) return;
    if (message.kind == ControlMessage::Kind::agree) {
        core_.consensus.receive(member, message);
        return note_agreement(core_);
    }
    if (message.kind == ControlMessage::Kind::bye && !message.body.empty()) {
        core_.consensus.receive_last_words(member, message.body);
        note_agreement(core_);
    }
    core_.failure_protocol.receive(member, message);
}

void Communicator::peer_lost(Rank peer, const std::string& cause, Rank accuser) {
    const Rank member = core_.group.of_job(peer);
    if (member == nobody) return;
    // `cause` names ranks by their numbers in the job.
    core_.failure_protocol.peer_lost(
        member, member == peer ? cause : fmt::format("it is rank {} of the job: {}", peer, cause),
        core_.group.accuser_here(accuser, member));
}

void Communicator::unreachable(Rank peer) {
    if (const Rank member = core_.group.of_job(peer); member != nobody) {
        core_.failure_protocol.unreachable(member);
        core_.consensus.learn(core_.failure_protocol.gone());
        core_.endpoint->wakeups().ring();
    }
}

// The rank's threads had stopped when the kernel reported its end, a few microseconds earlier at
// most, and what they had written to shared memory is visible here.
int64_t Communicator::grace_ns(Rank lost) const {
    constexpr int64_t ended_ns = 1'000'000;
    return core_.endpoint->transports().has_ended(core_.group.in_job(lost)) ? ended_ns
                                                                            : on_the_way_ns;
}

// Returns nullopt if no thread waits for this communicator: then the program itself is late.
std::optional<Rank> Communicator::blocked_on() {
    return core_.waiting.waiters() ? std::optional(core_.streams.waits_for()) : std::nullopt;
}

}  // namespace tutti
