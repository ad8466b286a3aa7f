#include "control/failure_protocol.h"

#include <algorithm>
#include <iterator>

#include "base/told_error.h"

namespace tutti {
namespace {

// A rank that is gone may have said bye, or have ended because another rank did: wait this long for
// the message that says so.
constexpr int64_t bye_patience_ns = 500'000'000;

// The rank that left after the fewest operations is the cause; others may have left because of it.
Error departed_error(const std::vector<std::pair<Rank, uint64_t>>& departed) {
    const auto first = std::min_element(departed.begin(), departed.end(),
                                        [](auto& a, auto& b) { return a.second < b.second; });
    return fail_rank(Code::peer_lost, first->first,
                     "rank {} has left: it left or destroyed its communicator after operation #{}",
                     first->first, first->second)
        .advice("let every rank make the same number of calls before it destroys the communicator")
        .value();
}

// After a revoke the program continues with another communicator, and after an abort it does not.
bool replaces(Code code, Code earlier) {
    if (code == Code::revoked) return earlier != Code::revoked && earlier != Code::aborted;
    return code == Code::aborted && earlier == Code::revoked;
}

// The failure ends operations from that sequence on, perhaps earlier ones than before.
void fail_from(uint64_t sequence, ControlMessage& failure, ProtocolContext& context, Rank except) {
    if (sequence >= failure.tag.sequence) return;
    failure.tag.sequence = sequence;
    context.flood(failure, except);
}

// The bye may take a shorter way than the news of the mismatch took, and must not be taken for the
// cause.
void flood_bye(const ControlMessage& bye, const std::optional<ControlMessage>& disagreement,
               ProtocolContext& context, Rank except) {
    if (disagreement) context.flood(*disagreement, except);
    context.flood(bye, except);
}

}  // namespace

FailureProtocol::FailureProtocol(Rank rank, Rank size, uint32_t comm, FailureProtocolHost& host)
    : context_(rank, size, comm, host), inquiry_(context_, *this), strict_(context_, *this) {}

// Returns the mismatch for call `number`, and keeps the lowest such number.
Error FailureProtocol::mismatch_of_call(uint64_t number) {
    if (first_heard_ == 0 || number < first_heard_) first_heard_ = number;
    return *mismatch_;
}

std::optional<Error> FailureProtocol::verdict(uint64_t sequence) {
    const Lock lock(context_.mutex);
    // A known mismatch came before the end and may be its cause: a rank that gets the mismatch may
    // abort.
    if (mismatch_ && sequence >= mismatch_from_)
        return mismatch_of_call(operation_number(sequence));
    if (dead_) return dead_;
    for (auto& [rank, last] : departed_)
        if (operation_number(sequence) > last) return dead_ = departed_error(departed_);
    return std::nullopt;
}

FailureProtocol::ToleratedLoss FailureProtocol::tolerated_loss(uint64_t sequence) {
    const Lock lock(context_.mutex);
    const Rank rank = tolerated_loss_locked(sequence);
    if (rank == nobody) return {};
    return {rank, context_.host.grace_ns(rank)};
}

Rank FailureProtocol::tolerated_loss_locked(uint64_t sequence) const {
    if (!failure_ || sequence >= failure_->tag.sequence || mismatch_ || !unreported_.empty())
        return nobody;
    for (auto& [rank, last] : departed_)
        if (operation_number(sequence) > last) return nobody;
    return failure_->rank;
}

void FailureProtocol::fail_after_loss(uint64_t sequence) {
    const Lock lock(context_.mutex);
    if (failure_) fail_from(sequence, *failure_, context_, nobody);
}

std::optional<FailureProtocol::FatalError> FailureProtocol::fatal_error() {
    const Lock lock(context_.mutex);
    if (!failure_) return std::nullopt;
    Error error = told_error(failure_->code, failure_->rank, context_.size, failure_->text);
    // This rank's own failure gets its reporter back, so that its text names the rank once.
    const std::string own = fmt::format("rank {}: ", context_.rank);
    if (error.message.starts_with(own)) {
        error.message.erase(0, own.size());
        error.reporter = context_.rank;
    }
    const bool may_receive =
        failure_->code == Code::peer_lost && failure_->tag.sequence == no_sequence;
    return FatalError{.error = std::move(error),
                      .may_receive = may_receive,
                      .grace_ns = may_receive ? context_.host.grace_ns(failure_->rank) : 0,
                      .unresponsive = unresponsive_};
}

bool FailureProtocol::has_left(Rank rank) {
    const Lock lock(context_.mutex);
    if (rank == any_rank) return static_cast<Rank>(departed_.size()) >= context_.size - 1;
    return said_bye(rank);
}

Result<FailureProtocol::CallDecision> FailureProtocol::admit(uint64_t next_number) {
    const Lock lock(context_.mutex);
    const bool departed = std::any_of(departed_.begin(), departed_.end(),
                                      [&](auto& d) { return next_number > d.second; });
    const bool mismatch_is_due = !unreported_.empty() || (mismatch_ && first_heard_ == 0);
    if (!dead_ && departed && !mismatch_is_due) dead_ = departed_error(departed_);
    // After a loss a call may still get all data that it needs.
    if (dead_ && tolerated_loss_locked(epoch_ << Tag::epoch_shift | next_number) != nobody)
        return CallDecision::proceed;
    if (dead_ && unreported_.empty())
        return tl::unexpected(mismatch_is_due ? mismatch_of_call(next_number) : *dead_);
    // For each mismatch, refuse as many calls as failed on the other ranks.
    if (!unreported_.empty()) {
        Error error = unreported_.front().error;
        if (--unreported_.front().calls == 0) unreported_.pop_front();
        if (is_without_failure()) alarm_.store(false, std::memory_order_seq_cst);
        return tl::unexpected(std::move(error));
    }
    if (!mismatch_) return CallDecision::proceed;
    if (first_heard_ != 0) return CallDecision::wait;
    // The call precedes the mismatch; other ranks may have completed it already.
    if (next_number < operation_number(mismatch_from_)) return CallDecision::proceed;
    // Operations that still run here will return the mismatch and are counted: this call must wait.
    if (!self_quiet_) return CallDecision::wait;
    return tl::unexpected(mismatch_of_call(next_number));
}

void FailureProtocol::raise(const Error& error) {
    end(error, every_sequence, nobody, false);
    context_.host.apply_verdicts();
}

void FailureProtocol::overrule(Error error) {
    if (error.code == Code::revoked) {
        const Lock lock(context_.mutex);
        if (const auto& before = dead_ ? dead_ : mismatch_)
            error.message += fmt::format(
                " (after: {})",
                std::string_view(before->message).substr(0, before->message.find(advice_marker)));
    }
    end(error, every_sequence, nobody, true);
    context_.host.apply_verdicts();
}

// The first failure stands; later ones are mostly its consequences. An operation that a revoke has
// ended may report `aborted`, for example. If a rank has only left (dead_ without failure_), there
// is no failure yet: nothing was flooded, and messages go on.
void FailureProtocol::end(const Error& error, uint64_t from_sequence, Rank except,
                          bool may_replace) {
    const Lock lock(context_.mutex);
    if (failure_ && !(may_replace && replaces(error.code, failure_->code))) {
        fail_from(from_sequence, *failure_, context_, except);
    } else {
        if (!dead_ || replaces(error.code, dead_->code)) dead_ = error;
        if (error.code == Code::revoked) {  // its calls get the revoke, not a mismatch before it
            mismatch_.reset();
            disagreement_.reset();
            unreported_.clear();
        }
        const bool late = error.code == Code::peer_lost || error.code == Code::timeout;
        if (late && error.rank != context_.rank) unresponsive_ = error.rank;
        alarm_.store(true, std::memory_order_seq_cst);
        ended_ = true;
        failure_ = context_.make(ControlMessage::Kind::failed, {});
        failure_->code = error.code;
        failure_->rank = error.rank;
        failure_->text = error_text(error);
        failure_->tag.sequence = from_sequence;
        context_.flood(*failure_, except);
    }
    // The lost rank passes nothing on: its neighbours hear from the rank that replaces it in the
    // tree.
    if (error.code == Code::peer_lost && error.rank != nobody && error.rank != context_.rank)
        replace(error.rank, true);
}

void FailureProtocol::raise_mismatch(const Tag& own, Rank peer, const Tag& got) {
    // The message that arrived may belong to an operation that this rank has long returned from.
    const Tag same = context_.host.recorder().find(got.sequence).value_or(own);
    const std::string ours = describe_call(same), theirs = describe_call(got);
    ControlMessage message = context_.make(ControlMessage::Kind::mismatch, {});
    message.tag.sequence = std::min(own.sequence, got.sequence);
    message.tag.root = context_.rank;
    message.rank = peer;
    message.text = fmt::format(
        "collective mismatch: rank {} called {}, rank {} called {}{}", context_.rank, ours, peer,
        theirs,
        ours == theirs ? " with other settings of the algorithm, the ring, the operator or the name"
                       : "");
    raise_mismatch(message);
}

void FailureProtocol::raise_mismatch(const ControlMessage& message) {
    handle_mismatch(message, nobody);
    context_.host.apply_verdicts();
}

void FailureProtocol::handle_mismatch(const ControlMessage& message, Rank from) {
    const Lock lock(context_.mutex);
    if (!may_run(message.tag)) return;
    const Rank other = message.rank == context_.rank ? message.tag.root : message.rank;
    if (!mismatch_) mismatch_ = told_error(Code::mismatch, other, context_.size, message.text);
    mismatch_from_ = message.tag.sequence;
    disagreement_ = message;
    alarm_.store(true, std::memory_order_seq_cst);
    context_.flood(message, from);
}

bool FailureProtocol::may_run(const Tag& tag) const {
    return tag.epoch() == epoch_ && !dead_ && (!mismatch_ || tag.sequence < mismatch_from_);
}

std::optional<uint64_t> FailureProtocol::failing_epoch() {
    const Lock lock(context_.mutex);
    return mismatch_ ? std::optional(epoch_) : std::nullopt;
}

// True if the caller has yet to make a call that precedes the mismatch. begun_after_ counts the
// operations that other ranks ran and this rank was refused.
bool FailureProtocol::behind_mismatch(uint64_t last_number) const {
    return std::max(last_number, begun_after_) + 1 < operation_number(mismatch_from_);
}

void FailureProtocol::quiet(uint64_t epoch, uint64_t last_number) {
    Lock lock(context_.mutex);
    if (!mismatch_ || epoch != epoch_ || self_quiet_) return;
    const uint64_t last_issued = last_number;
    if (behind_mismatch(last_number)) return;
    last_number = std::max(last_number, begun_after_);
    self_quiet_ = true;
    quiet_number_ = std::max(quiet_number_, last_number);
    // Count all operations issued from the first failed one on. A refused call has no number, but
    // counts.
    if (first_heard_ != 0) own_failed_ = std::max(last_issued + 1, first_heard_ + 1) - first_heard_;
    most_failed_ = std::max(most_failed_, own_failed_);
    handle_quiet(lock);
}

// Passes "quiet" on once the whole subtree is; the root starts the new epoch.
void FailureProtocol::handle_quiet(Lock& lock) {
    const auto& children = context_.tree.children();
    const bool all = self_quiet_ && std::all_of(children.begin(), children.end(), [&](Rank c) {
                         return quiet_children_.count(c) > 0;
                     });
    if (!all || !mismatch_ || quiet_sent_) return;
    quiet_sent_ = true;
    // A rank that left may have issued more operations than the others: the new epoch must not
    // reuse its numbers.
    for (auto& [rank, last] : departed_) quiet_number_ = std::max(quiet_number_, last);
    Tag tag;
    tag.sequence = epoch_ << Tag::epoch_shift | quiet_number_;
    tag.count = most_failed_;
    if (context_.tree.parent() != nobody)
        return context_.host.send_control(context_.tree.parent(),
                                          context_.make(ControlMessage::Kind::quiet, tag));
    const uint64_t next = (epoch_ + 1) << Tag::epoch_shift | quiet_number_;
    lock.unlock();
    handle_resume(next, tag.count);
}

void FailureProtocol::handle_resume(uint64_t sequence, uint64_t failed) {
    {
        const Lock lock(context_.mutex);
        if (sequence >> Tag::epoch_shift != epoch_ + 1) return;
    }
    // The host takes all streams and sets the next number before the alarm ends.
    context_.host.resume(sequence);
    const Lock lock(context_.mutex);
    epoch_ += 1;
    begun_after_ = operation_number(sequence);
    // If fewer calls failed here than on other ranks, the next calls here get the mismatch.
    const uint64_t heard = first_heard_ == 0 ? 0 : std::max<uint64_t>(own_failed_, 1);
    const uint64_t all = std::max<uint64_t>(failed, 1);
    if (mismatch_ && heard < all) unreported_.push_back({*mismatch_, all - heard});
    mismatch_.reset();
    disagreement_.reset();
    first_heard_ = own_failed_ = most_failed_ = 0;
    self_quiet_ = quiet_sent_ = false;
    quiet_children_.clear();
    quiet_number_ = 0;
    strict_.begin_epoch();
    Tag tag;
    tag.sequence = sequence;
    tag.count = failed;
    for (Rank child : context_.tree.children())
        context_.host.send_control(child, context_.make(ControlMessage::Kind::resume, tag));
    if (is_without_failure()) alarm_.store(false, std::memory_order_seq_cst);
}

ControlMessage FailureProtocol::send_bye(uint64_t last_number, Bytes agreements) {
    Tag tag;
    tag.sequence = last_number;
    const Lock lock(context_.mutex);
    tag.count = departed_.size();
    ControlMessage bye = context_.make(ControlMessage::Kind::bye, tag);
    bye.body = std::move(agreements);
    if (failure_) {
        bye.code = failure_->code;
        bye.tag.root = failure_->rank;
        bye.tag.plan = failure_->tag.sequence;
        bye.text = failure_->text;
    }
    flood_bye(bye, disagreement_, context_, nobody);
    bye.body.clear();
    return bye;
}

FailureProtocol::GoneRanks FailureProtocol::gone() {
    const Lock lock(context_.mutex);
    GoneRanks gone;
    gone.accusations.assign(accusations_.begin(), accusations_.end());
    const auto is_accused = [&](Rank rank) {
        return std::any_of(accusations_.begin(), accusations_.end(),
                           [&](const Accusation& one) { return one.accused == rank; });
    };
    std::remove_copy_if(without_bye_.begin(), without_bye_.end(), std::back_inserter(gone.lost),
                        is_accused);
    gone.self = own_loss_;
    for (auto& [rank, last] : departed_) gone.left.push_back(rank);
    return gone;
}

void FailureProtocol::handle_bye(const ControlMessage& message, Rank from) {
    // First, so that this rank does not blame the leaving rank for data that it does not get.
    if (message.code != Code::ok)
        end(told_error(message.code, message.tag.root, context_.size, message.text),
            message.tag.plan, from, true);
    Lock lock(context_.mutex);
    if (message.rank < 0 || message.rank >= context_.size || said_bye(message.rank)) return;
    // The leaving rank has told its neighbours, which are each other's neighbours from now on. It
    // has not passed on messages that reached it after it had left. If it did not know all byes,
    // they are sent again.
    flood_bye(message, disagreement_, context_, from);
    const bool knew_all = message.tag.count == departed_.size();
    departed_.emplace_back(message.rank, operation_number(message.tag.sequence));
    if (!message.body.empty()) agreements_[message.rank] = message.body;
    alarm_.store(true, std::memory_order_seq_cst);
    bye_until_ns_.erase(message.rank);
    const bool replaced = without_bye_.erase(message.rank) > 0;
    const bool neighbours = !replaced && !replace(message.rank, !knew_all).empty();
    without_bye_.erase(message.rank);
    // The leaving rank may have been the last child without a "quiet", or may not have passed on
    // this rank's "quiet".
    quiet_sent_ = quiet_sent_ && !replaced && !neighbours;
    handle_quiet(lock);
}

/// Replaces a gone rank in the tree, and sends its new neighbours the messages that it may not have
/// passed on.
std::vector<Rank> FailureProtocol::replace(Rank rank, bool byes) {
    if (context_.tree.has_left(rank)) return {};
    without_bye_.insert(rank);
    std::vector<Rank> added = context_.tree.remove(rank);
    for (const Rank neighbour : added) resend_failure_state(neighbour, byes);
    return added;
}

void FailureProtocol::unreachable(Rank peer) {
    std::optional<ControlMessage> question;
    {
        const Lock lock(context_.mutex);
        if (peer == context_.rank || context_.tree.has_left(peer)) return;
        const int64_t now = context_.now_ns();
        bye_until_ns_[peer] = now + bye_patience_ns;
        if (next_lost_ns_ == 0) next_lost_ns_ = now + bye_patience_ns;
        // The peer may have got a question and neither answered it nor passed it on.
        question = inquiry_.interrupted(now);
        if (replace(peer, true).empty()) question.reset();
    }
    if (question) inquiry_.ask_again(*question);
}

bool FailureProtocol::check_unreachable() {
    const int64_t due = next_lost_ns_.load(std::memory_order_relaxed);
    if (due == 0 || context_.now_ns() < due) return ended();
    std::vector<Rank> lost;
    {
        const Lock lock(context_.mutex);
        const int64_t now = context_.now_ns();
        int64_t next = 0;
        for (const auto& [rank, until] : bye_until_ns_) {
            if (until <= now)
                lost.push_back(rank);
            else if (next == 0 || until < next)
                next = until;
        }
        for (const Rank rank : lost) bye_until_ns_.erase(rank);
        next_lost_ns_ = next;
    }
    for (const Rank rank : lost) peer_lost(rank, "its process has ended without a goodbye");
    return ended();
}

void FailureProtocol::catch_up(Rank to, uint64_t number) {
    const bool departed =
        std::any_of(departed_.begin(), departed_.end(), [&](auto& d) { return number > d.second; });
    if (failure_ || departed) resend_failure_state(to, true);
}

void FailureProtocol::resend_failure_state(Rank to, bool byes) {
    // Before the byes, as in flood_bye().
    if (disagreement_) context_.host.send_control(to, *disagreement_);
    for (auto& [rank, last] : departed_) {
        if (!byes) break;
        Tag tag;
        tag.sequence = last;
        ControlMessage bye = context_.make(ControlMessage::Kind::bye, tag);
        bye.rank = rank;
        if (const auto found = agreements_.find(rank); found != agreements_.end())
            bye.body = found->second;
        context_.host.send_control(to, bye);
    }
    if (failure_) context_.host.send_control(to, *failure_);
}

void FailureProtocol::peer_lost(Rank peer, const std::string& cause, Rank accuser) {
    {
        const Lock lock(context_.mutex);
        if (said_bye(peer)) return;
        own_loss_ |= peer == context_.rank;
        if (accuser != nobody) accusations_.insert({accuser, peer});
    }
    end({Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)}, no_sequence,
        nobody, false);
    context_.host.apply_verdicts();
}

void FailureProtocol::receive(Rank from, const ControlMessage& message) {
    // Only a failure message may name no rank.
    const bool of_member = message.rank >= 0 && message.rank < context_.size;
    if (message.kind != ControlMessage::Kind::failed && !of_member) return;
    {
        const Lock lock(context_.mutex);
        if (inquiry_.note_alive(from, message)) return;
    }
    switch (message.kind) {
        case ControlMessage::Kind::failed:
            end(told_error(message.code, message.rank, context_.size, message.text),
                message.tag.sequence, from, true);
            return context_.host.apply_verdicts();
        case ControlMessage::Kind::mismatch:
            handle_mismatch(message, from);
            return context_.host.apply_verdicts();
        case ControlMessage::Kind::quiet: {
            Lock lock(context_.mutex);
            if (message.tag.epoch() != epoch_) return;
            quiet_children_.insert(from);
            quiet_number_ = std::max(quiet_number_, operation_number(message.tag.sequence));
            most_failed_ = std::max(most_failed_, message.tag.count);
            handle_quiet(lock);
            lock = {};
            return context_.host.apply_verdicts();
        }
        case ControlMessage::Kind::resume:
            handle_resume(message.tag.sequence, message.tag.count);
            return context_.host.apply_verdicts();
        case ControlMessage::Kind::bye:
            handle_bye(message, from);
            return context_.host.apply_verdicts();
        case ControlMessage::Kind::stall:
        case ControlMessage::Kind::query:
        case ControlMessage::Kind::late:
        case ControlMessage::Kind::suspect:
            return inquiry_.receive(from, message);
        case ControlMessage::Kind::here:
        case ControlMessage::Kind::silent:
            return;  // note_alive() has handled it
        case ControlMessage::Kind::propose:
        case ControlMessage::Kind::agreed:
            return strict_.receive(from, message);
        case ControlMessage::Kind::agree:
            return;  // the communicator's Consensus gets it
    }
}

}  // namespace tutti
