#include "simulation/comm.h"

#include <algorithm>
#include <utility>

#include "collectives/catalog.h"
#include "simulation/rank.h"
#include "simulation/world.h"

namespace simulation {
namespace {

std::vector<Rank> members_of(const Group& group) {
    std::vector<Rank> members;
    for (Rank rank = 0; rank < group.size(); ++rank) members.push_back(group.in_job(rank));
    return members;
}

Capabilities capabilities_of(const Scenario& scenario) {
    Capabilities capabilities;
    capabilities.mapped = scenario.mapped;
    capabilities.max_message_bytes = Pipe::max_message_bytes;
    capabilities.credits = Pipe{}.credits;
    return capabilities;
}

const Algorithm& choose(Collective collective, std::size_t which, const Hosts& hosts) {
    std::vector<const Algorithm*> serving;
    for (const Algorithm& a : algorithms())
        if (a.collective == collective &&
            (!a.unsupported || a.unsupported(hosts.ranks(), hosts.shape()).empty()))
            serving.push_back(&a);
    return *serving[which % serving.size()];
}

}  // namespace

SimComm::SimComm(SimRank& rank, Group group)
    : rank_(rank),
      group_(std::move(group)),
      members_(members_of(group_)),
      capabilities_(capabilities_of(rank.world().scenario())),
      failures_(group_.rank(), group_.size(), group_.id(), *this),
      consensus_(group_.rank(), group_.size(), group_.id(), *this),
      streams_(rank.config(), group_.rank(), failures_, recorder_, rank.world().waiting()) {
    std::vector<uint64_t> labels;
    for (const Rank member : members_)
        labels.push_back(static_cast<uint64_t>(rank.world().host_of(member)));
    group_.set_hosts(Hosts::by_label(labels));
}

SimComm::~SimComm() = default;

// ---- collectives -----------------------------------------------------------------------------

Plan& SimComm::plan(const Step& step, Rank root) {
    const auto key =
        std::pair{static_cast<uint64_t>(step.collective) << 32 | step.algorithm << 16 | step.count,
                  static_cast<uint64_t>(root)};
    auto& plan = plans_[key];
    if (plan) return *plan;
    const Algorithm& algorithm = choose(step.collective, step.algorithm, *group_.hosts());
    Call call;
    call.collective = step.collective;
    call.count = step.collective == Collective::barrier ? 0 : step.count;
    call.dtype = Dtype::uint32;
    call.root = root;
    call.algorithm = algorithm.name;
    plan = std::make_unique<Plan>(call, 0);
    plan->tag.count = call.count;
    plan->tag.root = root;
    plan->tag.call =
        pack_call(static_cast<uint32_t>(call.collective), static_cast<uint32_t>(call.dtype), 0);
    plan->tag.plan = static_cast<uint64_t>(&algorithm - algorithms().data());
    BindRequest request;
    request.collective = call.collective;
    request.ranks = group_.size();
    request.rank = group_.rank();
    request.root = root;
    request.schedule = algorithm.make({group_.size(), group_.rank(), root, 1, group_.hosts()});
    request.count = call.count;
    request.reducer = traits_of(call.collective).reduces ? *Reducer::make(call.dtype, Op::sum)
                                                         : Reducer::mover(sizeof(uint32_t));
    request.message_bytes = Pipe::max_message_bytes;
    auto bound = bind(std::move(request), *this);
    if (!bound) rank_.world().checks().fail("bind: {}", bound.error().message);
    plan->operation = std::move(*bound);
    return *plan;
}

// As Admission::submit.
SimComm::Entered SimComm::submit(Request& request, Plan& plan, Error& error) {
    Stream& stream = streams_[0];
    if (failures_.alarm()) {
        auto entry = failures_.admit(operation_number(sequence_) + 1);
        if (entry && *entry == FailureProtocol::CallDecision::wait) {
            apply_verdicts_here();
            return Entered::waits;
        }
        apply_verdicts();
        if (!entry) {
            error = std::move(entry).error();
            return Entered::refused;
        }
    }
    if (overruled_)
        rank_.world().checks().fail("rank {}: a call of communicator {} begins after its {}",
                                    rank_.number(), id(), code_name(*overruled_));
    stream.owner.take();
    request.plan = &plan;
    request.operation = plan.operation.get();
    request.timeout_ms = rank_.config().timeout_ms;
    request.tag = plan.tag;
    request.tag.sequence = ++sequence_;
    plan.busy = true;
    recorder_.begin(request.tag, plan.bytes, 0);
    streams_.push(stream, request);
    bool moved = false;
    streams_.drive(stream, moved);
    streams_.release(stream);
    return Entered::running;
}

void SimComm::drive() {
    bool moved = true;
    while (std::exchange(moved, false)) streams_.drive_all(moved);
}

void SimComm::check_clocks() {
    failures_.check_unreachable();
    streams_.check_deadlines();
    if (!rank_.world().is_broken(Broken::no_resend)) consensus_.resend();
}

// As Admission::wait_to_enter and not_all_back.
std::optional<Error> SimComm::check_entering(int64_t began_ns, int64_t& ask_ns) {
    const int64_t timeout_ms = rank_.config().timeout_ms, now = rank_.world().now();
    apply_verdicts_here();
    if (now - began_ns >= timeout_ms * ms) {
        const Late late = failures_.inquiry().behind();
        const Error error = fail_rank(Code::timeout, late.first(),
                                      "timed out after {} ms waiting after a mismatch", timeout_ms)
                                .on(group_.rank())
                                .value();
        failures_.raise(error);
        return failures_.fatal_error().value_or(FailureProtocol::FatalError{error}).error;
    }
    if (now < ask_ns) return std::nullopt;
    ask_ns = Inquiry::ask_at(began_ns, now, timeout_ms);
    failures_.inquiry().ask_who_is_behind();
    return std::nullopt;
}

Result<OpenSender> SimComm::sender(Rank peer, uint16_t lane, Deadline) {
    auto& sender = senders_[{peer, lane}];
    if (!sender) {
        World& world = rank_.world();
        auto pipe = std::make_shared<Pipe>();
        pipe->from = rank_.number();
        pipe->to = group_.in_job(peer);
        pipe->comm = id();
        world.network().note_channel(pipe->from, pipe->to, pipe->forth);
        const int64_t time = world.network().arrival(pipe->from, pipe->to, *pipe->forth);
        const uint64_t number = pipe->forth->sent++;
        const ChannelId channel{rank_.number(), id(), lane};
        world.at(time, [&world, pipe, channel, number] {
            if (number >= pipe->forth->limit) return;
            pipe->forth->arrived = number + 1;
            world.rank(pipe->to).serve([&world, pipe, channel] {
                world.rank(pipe->to).opened(channel, std::make_unique<SimReceiver>(world, pipe));
            });
        });
        pipes_.push_back(pipe);
        sender = std::make_unique<SimSender>(world, pipe);
    }
    return OpenSender{sender.get(), &capabilities_};
}

ReceiverSlot* SimComm::receiver(Rank peer, uint16_t lane) {
    Incoming& incoming = receivers_[{peer, lane}];
    incoming.slot.peer = peer;
    return &incoming.slot;
}

void SimComm::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    const Rank member = group_.of_job(id.peer);
    if (id.comm != this->id() || member == nobody)
        return rank_.world().checks().fail(
            "rank {}: communicator {} got a channel of communicator {}", rank_.number(), this->id(),
            id.comm);
    Incoming& incoming = receivers_[{member, id.lane}];
    incoming.slot.peer = member;
    incoming.receiver = std::move(receiver);
    incoming.slot.receiver = incoming.receiver.get();
}

void SimComm::close_channels(Rank peer) {
    for (const auto& pipe : pipes_)
        if (pipe->to == peer) pipe->peer_gone = true;
}

// ---- control ---------------------------------------------------------------------------------

void SimComm::send_control(Rank to, const ControlMessage& message) {
    World& world = rank_.world();
    int copies = 1;
    if (message.kind == ControlMessage::Kind::agree) {
        if (world.is_broken(Broken::copies)) copies = 32;
        const auto agreement = AgreementMessage::decode(message.body, group_.size());
        for (int copy = 0; agreement && copy < copies; ++copy)
            world.checks().traffic().sent(rank_.number(), id(), agreement->instance >> 16,
                                          group_.size());
    }
    for (int copy = 0; copy < copies; ++copy) rank_.router().send(group_.in_job(to), message);
}

std::optional<Rank> SimComm::blocked_on() {
    return waiting_ ? std::optional(streams_.waits_for()) : std::nullopt;
}

void SimComm::apply_verdicts() {
    apply_verdicts_here();
    rank_.turn_soon();
}

// A turn of the program may call it: it asks for no other turn.
void SimComm::apply_verdicts_here() {
    consensus_.learn(failures_.gone());
    streams_.apply_verdicts();
}

void SimComm::note_agreement() {
    if (const auto error = consensus_.exclusion()) failures_.overrule(*error);
    rank_.turn_soon();
}

void SimComm::handle_message(Rank from, const ControlMessage& message) {
    const Rank member = group_.of_job(from);
    if (message.comm != id())
        rank_.world().checks().fail("rank {}: communicator {} got a message of communicator {}",
                                    rank_.number(), id(), message.comm);
    if (member == nobody) return;
    if (message.kind == ControlMessage::Kind::failed && rank_.world().is_broken(Broken::no_failed))
        return;
    if (message.kind == ControlMessage::Kind::quiet && rank_.world().is_broken(Broken::no_quiet))
        return;
    if (message.kind == ControlMessage::Kind::agree) {
        consensus_.receive(member, message);
        return note_agreement();
    }
    if (message.kind == ControlMessage::Kind::bye && !message.body.empty() &&
        !rank_.world().is_broken(Broken::no_last_words)) {
        consensus_.receive_last_words(member, message.body);
        note_agreement();
    }
    if (message.kind == ControlMessage::Kind::failed && message.code != Code::peer_lost &&
        rank_.world().is_broken(Broken::other_culprit)) {
        ControlMessage altered = message;
        altered.rank = member;
        return failures_.receive(member, altered);
    }
    failures_.receive(member, message);
}

void SimComm::peer_lost(Rank peer, const std::string& cause, Rank accuser) {
    rank_.world().checks().lost(rank_.number(), peer);
    rank_.world().checks().traffic().accused(accuser, peer);
    if (const Rank member = group_.of_job(peer); member != nobody)
        failures_.peer_lost(member, cause, group_.accuser_here(accuser, member));
}

void SimComm::unreachable(Rank peer) {
    const Rank member = group_.of_job(peer);
    if (member == nobody || rank_.world().is_broken(Broken::no_unreachable)) return;
    failures_.unreachable(member);
    consensus_.learn(failures_.gone());
    rank_.turn_soon();
}

void SimComm::revoke() {
    overruled(Code::revoked);
    failures_.overrule({Code::revoked, group_.rank(), 0,
                        fmt::format("rank {} revoked the communicator", group_.rank())});
}

void SimComm::overruled(Code code) {
    overruled_ = code;
    // As FailureProtocol decides it: an abort replaces only a revoke.
    const auto before = failures_.fatal_error();
    const Code stands = before ? before->error.code : Code::ok;
    const bool is_first = code == Code::revoked ? stands != Code::revoked && stands != Code::aborted
                                                : stands == Code::ok || stands == Code::revoked;
    if (is_first) rank_.world().checks().verdicts().overruled(rank_.number(), id(), code);
    rank_.world().checks().overruled(rank_.number(), id(), code);
}

void SimComm::abort() {
    rank_.world().note("rank {} aborts communicator {}", rank_.number(), id());
    overruled(Code::aborted);
    failures_.overrule({Code::aborted, group_.rank(), 0,
                        fmt::format("rank {} called tutti_comm_abort", group_.rank())});
}

bool SimComm::destroy() {
    if (std::exchange(destroyed_, true)) return false;
    rank_.world().note("rank {} destroys communicator {}", rank_.number(), id());
    const uint64_t last = streams_.end_all(sequence_);
    const auto over = failures_.fatal_error();
    if (over && over->unresponsive != nobody)
        rank_.router().stop_waiting_for(group_.in_job(over->unresponsive));
    if (!rank_.is_dead()) rank_.world().checks().destroyed(rank_.number(), id());
    ControlMessage bye = failures_.send_bye(last, consensus_.encode_last_words());
    const auto lock = rank_.clients().hold();
    LastWords words;
    if (!rank_.world().is_broken(Broken::no_archive))
        words = {consensus_.last_words(), std::move(bye)};
    return rank_.clients().remove(id(), std::move(words));
}

}  // namespace simulation
