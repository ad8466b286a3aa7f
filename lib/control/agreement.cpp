#include "control/agreement.h"

#include <algorithm>

#include "base/told_error.h"

namespace tutti {
namespace {

// A rank that is gone may have said bye, or have ended because of another's end: the news of that
// are on their way.
constexpr int64_t bye_patience_ns = 500'000'000;

}  // namespace

Agreement::Agreement(Rank rank, Rank size, uint32_t comm, AgreementHost& host)
    : circle_(rank, size, comm, host), inquiry_(circle_, *this), strict_(circle_, *this) {}

// The one that left first is the cause; others may have left because of it.
Error Agreement::departed_error() const {
    const auto first = std::min_element(departed_.begin(), departed_.end(),
                                        [](auto& a, auto& b) { return a.second < b.second; });
    return {Code::peer_lost, first->first, 0,
            fmt::format("rank {} has left: it destroyed its communicator after operation #{}",
                        first->first, first->second)};
}

// The call of that number gets the mismatch.
Error Agreement::hear(uint64_t number) {
    if (first_heard_ == 0 || number < first_heard_) first_heard_ = number;
    return *mismatch_;
}

std::optional<Error> Agreement::verdict(uint64_t sequence) {
    const Lock lock(circle_.mutex);
    // A mismatch that is known came before the end, and may be its cause: a rank that hears of it
    // may abort.
    if (mismatch_ && sequence >= mismatch_from_) return hear(operation_number(sequence));
    if (dead_) return dead_;
    for (auto& [rank, last] : departed_)
        if (operation_number(sequence) > last) return dead_ = departed_error();
    return std::nullopt;
}

Rank Agreement::survived(uint64_t sequence) {
    const Lock lock(circle_.mutex);
    return survived_loss(sequence);
}

Rank Agreement::survived_loss(uint64_t sequence) const {
    if (!failure_ || sequence >= failure_->tag.sequence || mismatch_ || !owed_.empty())
        return nobody;
    for (auto& [rank, last] : departed_)
        if (operation_number(sequence) > last) return nobody;
    return failure_->rank;
}

void Agreement::give_up(uint64_t sequence) {
    const Lock lock(circle_.mutex);
    if (failure_) fail_from(sequence, nobody);
}

void Agreement::fail_from(uint64_t sequence, Rank except) {
    if (sequence >= failure_->tag.sequence) return;
    failure_->tag.sequence = sequence;
    circle_.flood(*failure_, except);
}

std::optional<Error> Agreement::over(bool* may_receive) {
    const Lock lock(circle_.mutex);
    if (!failure_) return std::nullopt;
    if (may_receive)
        *may_receive = failure_->code == Code::peer_lost && failure_->tag.sequence == no_sequence;
    return Error{failure_->code, failure_->rank, 0, failure_->text};
}

bool Agreement::has_left(Rank rank) {
    const Lock lock(circle_.mutex);
    if (rank == any_rank) return static_cast<Rank>(departed_.size()) >= circle_.size - 1;
    return said_bye(rank);
}

Agreement::Entry Agreement::admit(uint64_t next_number, Error& error) {
    const Lock lock(circle_.mutex);
    const bool departed = std::any_of(departed_.begin(), departed_.end(),
                                      [&](auto& d) { return next_number > d.second; });
    const bool unheard = !owed_.empty() || (mismatch_ && first_heard_ == 0);
    if (!dead_ && departed && !unheard) dead_ = departed_error();
    // After a loss a call may still find all that it needs.
    if (dead_ && survived_loss(epoch_ << Tag::epoch_shift | next_number) != nobody)
        return Entry::proceed;
    if (dead_ && owed_.empty()) {
        error = unheard ? hear(next_number) : *dead_;
        return Entry::refused;
    }
    // As many calls for each as the others have made.
    if (!owed_.empty()) {
        error = owed_.front().error;
        if (--owed_.front().calls == 0) owed_.pop_front();
        if (fine()) alarm_.store(false, std::memory_order_seq_cst);
        return Entry::refused;
    }
    if (!mismatch_) return Entry::proceed;
    if (first_heard_ != 0) return Entry::wait;
    // A call from before the mismatch, which others may have returned from already.
    if (next_number < operation_number(mismatch_from_)) return Entry::proceed;
    // Operations that still run here will tell of it, and are counted: this call is one too many.
    if (!self_quiet_) return Entry::wait;
    error = hear(next_number);
    return Entry::refused;
}

void Agreement::raise(const Error& error) {
    end(error, every_sequence, nobody);
    circle_.host.settle();
}

// The first cause stands; later ones are mostly its consequences. But that somebody has left is no
// news of this rank's, and ends nobody's messages.
void Agreement::end(const Error& error, uint64_t from_sequence, Rank except) {
    const Lock lock(circle_.mutex);
    if (failure_) {
        fail_from(from_sequence, except);
    } else {
        if (!dead_) dead_ = error;
        alarm_.store(true, std::memory_order_seq_cst);
        ended_ = true;
        failure_ = circle_.make(ControlMessage::Kind::failed, {});
        failure_->code = error.code;
        failure_->rank = error.rank;
        failure_->text = error.message;
        failure_->tag.sequence = from_sequence;
        circle_.flood(*failure_, except);
    }
    // It passes nothing on: those that it would have told hear it from who takes its place.
    if (error.code == Code::peer_lost && error.rank != nobody && error.rank != circle_.rank)
        replace(error.rank, true);
}

void Agreement::raise_mismatch(const Tag& own, Rank peer, const Tag& got) {
    // What arrived may belong to an earlier operation that this rank has long returned from.
    const Tag same = circle_.host.recorder().find(got.sequence).value_or(own);
    const std::string ours = describe_call(same), theirs = describe_call(got);
    ControlMessage news = circle_.make(ControlMessage::Kind::mismatch, {});
    news.tag.sequence = std::min(own.sequence, got.sequence);
    news.tag.root = circle_.rank;
    news.rank = peer;
    news.text = fmt::format(
        "the ranks called different things: rank {} called {}, rank {} called {}{}", circle_.rank,
        ours, peer, theirs,
        ours == theirs ? " with other settings of the algorithm, the ring, the operator or the name"
                       : "");
    raise_mismatch(news);
}

void Agreement::raise_mismatch(const ControlMessage& news) {
    take_mismatch(news, nobody);
    circle_.host.settle();
}

void Agreement::take_mismatch(const ControlMessage& news, Rank from) {
    const Lock lock(circle_.mutex);
    if (!takes(news.tag)) return;
    const Rank other = news.rank == circle_.rank ? news.tag.root : news.rank;
    if (!mismatch_) mismatch_ = told_error(Code::mismatch, other, circle_.size, news.text);
    mismatch_from_ = news.tag.sequence;
    disagreement_ = news;
    alarm_.store(true, std::memory_order_seq_cst);
    circle_.flood(news, from);
}

bool Agreement::takes(const Tag& tag) const {
    return tag.epoch() == epoch_ && !dead_ && (!mismatch_ || tag.sequence < mismatch_from_);
}

std::optional<uint64_t> Agreement::failing_epoch() {
    const Lock lock(circle_.mutex);
    return mismatch_ ? std::optional(epoch_) : std::nullopt;
}

// Whether the caller has yet to call what comes before the mismatch. Operations that others ran and
// this rank was refused have numbers all the same.
bool Agreement::behind_mismatch(uint64_t last_number) const {
    return std::max(last_number, begun_after_) + 1 < operation_number(mismatch_from_);
}

void Agreement::quiet(uint64_t epoch, uint64_t last_number) {
    Lock lock(circle_.mutex);
    if (!mismatch_ || epoch != epoch_ || self_quiet_) return;
    const uint64_t last_issued = last_number;
    if (behind_mismatch(last_number)) return;
    last_number = std::max(last_number, begun_after_);
    self_quiet_ = true;
    quiet_number_ = std::max(quiet_number_, last_number);
    // From the first that failed on, all that was issued; one that was refused has no number.
    if (first_heard_ != 0) own_failed_ = std::max(last_issued + 1, first_heard_ + 1) - first_heard_;
    most_failed_ = std::max(most_failed_, own_failed_);
    take_quiet(lock);
}

// Passes "quiet" on once the whole subtree is; the root starts the new epoch.
void Agreement::take_quiet(Lock& lock) {
    const auto& children = circle_.tree.children();
    const bool all = self_quiet_ && std::all_of(children.begin(), children.end(), [&](Rank c) {
                         return quiet_children_.count(c) > 0;
                     });
    if (!all || !mismatch_ || quiet_sent_) return;
    quiet_sent_ = true;
    // One that has left may have been ahead: nothing begins again under its numbers.
    for (auto& [rank, last] : departed_) quiet_number_ = std::max(quiet_number_, last);
    Tag tag;
    tag.sequence = epoch_ << Tag::epoch_shift | quiet_number_;
    tag.count = most_failed_;
    if (circle_.tree.parent() != nobody)
        return circle_.host.send_control(circle_.tree.parent(),
                                         circle_.make(ControlMessage::Kind::quiet, tag));
    const uint64_t next = (epoch_ + 1) << Tag::epoch_shift | quiet_number_;
    lock.unlock();
    take_resume(next, tag.count);
}

void Agreement::take_resume(uint64_t sequence, uint64_t failed) {
    {
        const Lock lock(circle_.mutex);
        if (sequence >> Tag::epoch_shift != epoch_ + 1) return;
    }
    // The host makes sure that nothing runs, and learns the number, before the alarm ends.
    circle_.host.resume(sequence);
    const Lock lock(circle_.mutex);
    epoch_ += 1;
    begun_after_ = operation_number(sequence);
    // A rank that was idle still owes its caller the news, and one that was slow more of it.
    const uint64_t heard = first_heard_ == 0 ? 0 : std::max<uint64_t>(own_failed_, 1);
    const uint64_t all = std::max<uint64_t>(failed, 1);
    if (mismatch_ && heard < all) owed_.push_back({*mismatch_, all - heard});
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
    for (Rank child : circle_.tree.children())
        circle_.host.send_control(child, circle_.make(ControlMessage::Kind::resume, tag));
    if (fine()) alarm_.store(false, std::memory_order_seq_cst);
}

void Agreement::say_bye(uint64_t last_number) {
    Tag tag;
    tag.sequence = last_number;
    const Lock lock(circle_.mutex);
    tag.count = departed_.size();
    ControlMessage bye = circle_.make(ControlMessage::Kind::bye, tag);
    if (failure_) {
        bye.code = failure_->code;
        bye.tag.root = failure_->rank;
        bye.tag.plan = failure_->tag.sequence;
        bye.text = failure_->text;
    }
    circle_.flood(bye, nobody);
}

void Agreement::take_bye(const ControlMessage& news, Rank from) {
    // Before this rank takes the leaver for the cause of what it has not got from it.
    if (news.code != Code::ok)
        end(told_error(news.code, news.tag.root, circle_.size, news.text), news.tag.plan, from);
    Lock lock(circle_.mutex);
    if (news.rank < 0 || news.rank >= circle_.size || said_bye(news.rank)) return;
    // It has told its neighbours, who know each other from now on. What came to it from one of them
    // when it had gone has not reached the others: other ranks' byes, where it did not know all.
    circle_.flood(news, from);
    const bool knew_all = news.tag.count == departed_.size();
    departed_.emplace_back(news.rank, operation_number(news.tag.sequence));
    alarm_.store(true, std::memory_order_seq_cst);
    bye_until_ns_.erase(news.rank);
    const bool replaced = without_bye_.erase(news.rank) > 0;
    const bool neighbours = !replaced && !replace(news.rank, !knew_all).empty();
    without_bye_.erase(news.rank);
    // It may have been the one that was waited for, or have taken this rank's "quiet" along.
    quiet_sent_ = quiet_sent_ && !replaced && !neighbours;
    take_quiet(lock);
}

/// The new neighbours in its place are told the news that it may not have passed on.
std::vector<Rank> Agreement::replace(Rank rank, bool byes) {
    if (circle_.tree.has_left(rank)) return {};
    without_bye_.insert(rank);
    std::vector<Rank> added = circle_.tree.leave(rank);
    for (const Rank neighbour : added) tell_news(neighbour, byes);
    return added;
}

void Agreement::unreachable(Rank peer) {
    std::optional<ControlMessage> question;
    {
        const Lock lock(circle_.mutex);
        if (peer == circle_.rank || circle_.tree.has_left(peer)) return;
        const int64_t now = circle_.now_ns();
        bye_until_ns_[peer] = now + bye_patience_ns;
        if (next_lost_ns_ == 0) next_lost_ns_ = now + bye_patience_ns;
        // It may have been asked, or was to pass a question on.
        question = inquiry_.interrupted(now);
        if (replace(peer, true).empty()) question.reset();
    }
    if (question) inquiry_.ask_again(*question);
}

void Agreement::look_at_unreachable() {
    const int64_t due = next_lost_ns_.load(std::memory_order_relaxed);
    if (due == 0 || circle_.now_ns() < due) return;
    std::vector<Rank> lost;
    {
        const Lock lock(circle_.mutex);
        const int64_t now = circle_.now_ns();
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
    for (const Rank rank : lost)
        peer_lost(rank, "its process has ended, and it has not said goodbye");
}

void Agreement::catch_up(Rank to, uint64_t number) {
    const bool departed =
        std::any_of(departed_.begin(), departed_.end(), [&](auto& d) { return number > d.second; });
    if (failure_ || departed) tell_news(to, true);
}

void Agreement::tell_news(Rank to, bool byes) {
    for (auto& [rank, last] : departed_) {
        if (!byes) break;
        Tag tag;
        tag.sequence = last;
        ControlMessage bye = circle_.make(ControlMessage::Kind::bye, tag);
        bye.rank = rank;
        circle_.host.send_control(to, bye);
    }
    if (disagreement_) circle_.host.send_control(to, *disagreement_);
    if (failure_) circle_.host.send_control(to, *failure_);
}

void Agreement::peer_lost(Rank peer, const std::string& cause) {
    {
        const Lock lock(circle_.mutex);
        if (said_bye(peer)) return;
    }
    end({Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)}, no_sequence,
        nobody);
    circle_.host.settle();
}

void Agreement::receive(Rank from, const ControlMessage& news) {
    // Of a failure alone may it be nobody.
    const bool of_member = news.rank >= 0 && news.rank < circle_.size;
    if (news.kind != ControlMessage::Kind::failed && !of_member) return;
    {
        const Lock lock(circle_.mutex);
        if (inquiry_.hear(from, news)) return;
    }
    switch (news.kind) {
        case ControlMessage::Kind::failed:
            end(told_error(news.code, news.rank, circle_.size, news.text), news.tag.sequence, from);
            return circle_.host.settle();
        case ControlMessage::Kind::mismatch:
            take_mismatch(news, from);
            return circle_.host.settle();
        case ControlMessage::Kind::quiet: {
            Lock lock(circle_.mutex);
            if (news.tag.epoch() != epoch_) return;
            quiet_children_.insert(from);
            quiet_number_ = std::max(quiet_number_, operation_number(news.tag.sequence));
            most_failed_ = std::max(most_failed_, news.tag.count);
            take_quiet(lock);
            lock = {};
            return circle_.host.settle();
        }
        case ControlMessage::Kind::resume:
            take_resume(news.tag.sequence, news.tag.count);
            return circle_.host.settle();
        case ControlMessage::Kind::bye:
            take_bye(news, from);
            return circle_.host.settle();
        case ControlMessage::Kind::stall:
        case ControlMessage::Kind::query:
        case ControlMessage::Kind::late:
        case ControlMessage::Kind::suspect:
            return inquiry_.receive(from, news);
        case ControlMessage::Kind::here:
        case ControlMessage::Kind::silent:
            return;  // heard above
        case ControlMessage::Kind::propose:
        case ControlMessage::Kind::agreed:
            return strict_.receive(from, news);
    }
}

}  // namespace tutti
