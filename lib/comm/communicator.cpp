// Making and ending a communicator. issue.cpp starts its operations, progress.cpp moves them.
#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "comm/at_exit.h"
#include "comm/calibrate.h"
#include "comm/joined.h"
#include "gpu/device_group_batch.h"
#include "rendezvous/meeting.h"
#include "wait/backoff.h"

namespace tutti {

Communicator::Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host)
    : endpoint_(std::move(endpoint)),
      group_(std::move(group)),
      strict_(endpoint_->config().check == Check::strict),
      oversubscribed_(endpoint_->oversubscribed()),
      channels_(*endpoint_, group_),
      agreement_(rank(), size(), group_.id(), *this),
      waiting_(*endpoint_),
      planner_(*endpoint_, channels_, {rank(), size(), one_host}),
      device_planner_(planner_, endpoint_->config(), channels_),
      plans_(static_cast<std::size_t>(endpoint_->config().nrings)),
      streams_(endpoint_->config(), rank(), agreement_, recorder_, waiting_),
      transfers_(endpoint_->config(), group_, planner_.max_message_bytes(), channels_, agreement_,
                 waiting_),
      memory_(rank(), endpoint_->transports()) {}

Communicator::~Communicator() {
    destroy();
}

namespace {

// The ranks have a launcher in common, and no store: what that says of the job is made one.
Result<> find_store(Config& config, std::shared_ptr<Store>& store) {
    TUTTI_ASSIGN(MeetingPlace place,
                 find_meeting_place(config, std::getenv, Deadline::after_ms(config.timeout_ms)));
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
    const int64_t start_ns = now_ns();
    if (Completion::calling_back())
        return fail(Code::invalid, "a completion callback may not make a communicator");
    TUTTI_TRY(check_whole(given));
    Config config = given;
    if (config.size > 1 && config.store.empty() && !own_store)
        TUTTI_TRY(find_store(config, own_store));
    std::string generation = Endpoint::next_generation(config, own_store.get());
    TUTTI_ASSIGN(std::shared_ptr<Endpoint> endpoint,
                 Endpoint::join(config, std::move(generation), std::move(own_store)));
    const bool one_host = endpoint->one_host();
    std::shared_ptr<Communicator> comm(
        new Communicator(std::move(endpoint), Group(config.rank, config.size), one_host));
    comm->planner_.use(comm->endpoint_->take_intrinsics());
    comm->endpoint_->add(comm->group_.id(), comm.get());
    at_exit::arm(fmt::format("{}", fmt::join(config.transports, ",")));
    at_exit::add(comm);
    TUTTI_TRY(comm->learn_hosts());
    const int64_t took_ms = (now_ns() - start_ns) / 1'000'000;
    if (config.fit_ms > 0) TUTTI_TRY(calibrate(*comm, config.fit_ms));
    say_joined(*comm, *comm->endpoint_, took_ms);
    return comm;
}

void Communicator::abort() {
    agreement_.raise(
        {Code::aborted, rank(), 0, fmt::format("rank {} called tutti_comm_abort", rank())});
}

void Communicator::destroy() {
    if (destroyed_.exchange(true) || !home_.here()) return;
    // What was called is done in order; it has deadlines.
    constexpr int64_t longest_ms = 60'000;
    const int64_t timeout_ms = endpoint_->config().timeout_ms;
    if (!detached_.empty())
        (void)sync(timeout_ms == 0 ? longest_ms : std::min(timeout_ms, longest_ms));
    DeviceGroupBatch::here().forget(*this);
    const uint64_t last = streams_.end_all(sequence_);
    transfers_.end_all();
    leave_devices();
    give_up_on_culprit();
    agreement_.say_bye(last);
    memory_.clear();
    // The last communicator takes this process out of the job.
    if (endpoint_->remove(group_.id(), Deadline())) endpoint_->leave(Deadline::after_ms(1000));
    at_exit::remove(*this);
}

void Communicator::leave_at_exit(Deadline deadline) {
    if (!home_.here() || destroyed_.exchange(true)) return;
    // A library of devices may have ended already: it is not entered any more.
    give_up_on_culprit();
    agreement_.say_bye(streams_.last_before_end(sequence_, deadline));
    if (endpoint_->remove(group_.id(), deadline)) endpoint_->leave_at_exit(deadline);
    at_exit::remove(*this);
}

// Leaving waits for no answer of a rank that is lost, or that did not answer in time.
void Communicator::give_up_on_culprit() {
    const auto over = agreement_.over();
    const bool late = over && (over->code == Code::peer_lost || over->code == Code::timeout);
    if (late && over->rank != nobody && over->rank != rank())
        endpoint_->give_up_on(group_.in_job(over->rank));
}

// In order where that is possible: the others leave too, or the deadline ends it.
void Communicator::leave_devices() {
    constexpr int64_t most_ms = 1000;
    detached_.clear();
    for (PlanCache& plans : plans_) plans.drop([](Path path) { return path != Path::host; });
    device_planner_.use({});
    free_device_memory();
    if (devices_.group && devices_.generation == generation_ && !agreement_.over())
        devices_.group->leave(Deadline::after_ms(most_ms));
    devices_.group.reset();
    devices_.staging.reset();
    devices_.context.reset();
}

// ---- trouble
// -------------------------------------------------------------------------------------

void Communicator::settle() {
    // Messages sent before the news may have come, too, and not been read.
    if (agreement_.ended()) endpoint_->progress();
    streams_.settle();
    bool moved = false;
    transfers_.drive(moved);
    endpoint_->ring();
}

void Communicator::resume(uint64_t sequence) {
    const auto held = streams_.hold_all();
    generation_.fetch_add(1);
    sequence_ = sequence;
    planner_.reset_intrinsics();
}

bool Communicator::still_wanted(const ChannelId& id) {
    return channels_.still_wanted(id);
}

void Communicator::connected(const ChannelId& id, Result<Opened> opened) {
    channels_.connected(id, std::move(opened));
}

void Communicator::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    channels_.opened(id, std::move(receiver));
}

// From here on ranks are those of the communicator; strangers have nothing to say in it.
void Communicator::news(Rank from, const News& news) {
    if (const Rank member = group_.of_job(from); member != nobody) agreement_.receive(member, news);
}

void Communicator::peer_lost(Rank peer, const std::string& cause) {
    const Rank member = group_.of_job(peer);
    if (member == nobody) return;
    // The cause has the job's numbers.
    agreement_.peer_lost(
        member, member == peer ? cause : fmt::format("it is rank {} of the job: {}", peer, cause));
}

void Communicator::unreachable(Rank peer) {
    if (const Rank member = group_.of_job(peer); member != nobody) agreement_.unreachable(member);
}

// A program that waits for nothing in here is late by itself.
std::optional<Rank> Communicator::blocked_on() {
    return waiting_.waiters() ? std::optional(streams_.waits_for()) : std::nullopt;
}

}  // namespace tutti
