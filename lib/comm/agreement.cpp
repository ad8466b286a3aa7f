#include "comm/agreement.h"

#include <algorithm>

#include "base/told_error.h"
#include "store/tree.h"

namespace tutti {
namespace {

constexpr uint64_t number_mask = (uint64_t{1} << Tag::epoch_shift) - 1;
constexpr std::size_t max_proposals = std::size_t{1} << 20;  // 100 MB or so
constexpr int64_t ms = 1'000'000;
constexpr int64_t stall_window_ns = 50 * ms;
constexpr int64_t first_question_ns = 100 * ms;
constexpr int64_t question_growth = 4;
// The last question comes so long before the deadline, or a quarter of its time: answers take the
// tree's latency, and that of programs that drive their communicators themselves.
constexpr int64_t last_question_ms = 500;
// Who has said nothing for so long after a question is told of with the next.
constexpr int64_t silence_ns = 100 * ms;

// True if it was not there.
bool insert_few(std::vector<Rank>& ranks, Rank rank) {
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (ranks.size() == Late::most_named || (place != ranks.end() && *place == rank)) return false;
    ranks.insert(place, rank);
    return true;
}

}  // namespace

std::string Late::names_of(const std::vector<Rank>& ranks) {
    std::string list;
    for (const Rank rank : ranks) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    return fmt::format("{}rank{} {}", ranks.size() < most_named ? "" : "at least ",
                       ranks.size() == 1 ? "" : "s", list);
}

Agreement::Agreement(Rank rank, Rank size, uint32_t comm, AgreementHost& host)
    : rank_(rank),
      size_(size),
      comm_(comm),
      first_parent_(tree_parent(rank)),
      first_children_(tree_children(rank, size)),
      host_(host),
      tree_(rank, size) {}

News Agreement::make(News::Kind kind, const Tag& tag) const {
    News news;
    news.kind = kind;
    news.comm = comm_;
    news.rank = rank_;
    news.tag = tag;
    return news;
}

// To everyone who is there, along the communicator's own tree; each rank passes on what is new to
// it. With the mutex.
void Agreement::flood(const News& news, Rank except) {
    const Rank parent = tree_.parent();
    if (parent != nobody && parent != except) host_.send_control(parent, news);
    for (Rank child : tree_.children())
        if (child != except) host_.send_control(child, news);
}

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
    const Lock lock(mutex_);
    if (dead_) return dead_;
    if (mismatch_ && sequence >= mismatch_from_) return hear(sequence & number_mask);
    for (auto& [rank, last] : departed_)
        if ((sequence & number_mask) > last) return dead_ = departed_error();
    return std::nullopt;
}

std::optional<Error> Agreement::over() {
    const Lock lock(mutex_);
    if (!failure_) return std::nullopt;
    return Error{failure_->code, failure_->rank, 0, failure_->text};
}

bool Agreement::has_left(Rank rank) {
    const Lock lock(mutex_);
    if (rank == any_rank) return static_cast<Rank>(departed_.size()) >= size_ - 1;
    return tree_.has_left(rank);
}

Agreement::Entry Agreement::admit(uint64_t next_number, Error& error) {
    const Lock lock(mutex_);
    const bool departed = std::any_of(departed_.begin(), departed_.end(),
                                      [&](auto& d) { return next_number > d.second; });
    const bool unheard = !owed_.empty() || (mismatch_ && first_heard_ == 0);
    if (!dead_ && departed && !unheard) dead_ = departed_error();
    if (dead_) {
        error = *dead_;
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
    if (next_number < (mismatch_from_ & number_mask)) return Entry::proceed;
    // Operations that still run here will tell of it, and are counted: this call is one too many.
    if (!self_quiet_) return Entry::wait;
    error = hear(next_number);
    return Entry::refused;
}

void Agreement::raise(const Error& error) {
    end(error, nobody);
    host_.settle();
}

// The first cause stands; later ones are mostly its consequences. But that somebody has left is no
// news of this rank's, and ends nobody's messages.
void Agreement::end(const Error& error, Rank except) {
    const Lock lock(mutex_);
    if (failure_) return;
    if (!dead_) dead_ = error;
    sound();
    ended_ = true;
    failure_ = make(News::Kind::failed, {});
    failure_->code = error.code;
    failure_->rank = error.rank;
    failure_->text = error.message;
    flood(*failure_, except);
}

void Agreement::raise_mismatch(const Tag& own, Rank peer, const Tag& got) {
    // What arrived may belong to an earlier operation that this rank has long returned from.
    const Tag same = host_.recorder().find(got.sequence).value_or(own);
    const std::string ours = describe_call(same), theirs = describe_call(got);
    News news = make(News::Kind::mismatch, {});
    news.tag.sequence = std::min(own.sequence, got.sequence);
    news.tag.root = rank_;
    news.rank = peer;
    news.text = fmt::format(
        "the ranks called different things: rank {} called {}, rank {} called {}{}", rank_, ours,
        peer, theirs,
        ours == theirs ? " with other settings of the algorithm, the ring or the operator" : "");
    take_mismatch(news, nobody);
    host_.settle();
}

void Agreement::take_mismatch(const News& news, Rank from) {
    const Lock lock(mutex_);
    if (news.tag.epoch() != epoch_ || dead_) return;
    if (mismatch_ && news.tag.sequence >= mismatch_from_) return;
    const Rank other = news.rank == rank_ ? news.tag.root : news.rank;
    if (!mismatch_) mismatch_ = told_error(Code::mismatch, other, size_, news.text);
    mismatch_from_ = news.tag.sequence;
    disagreement_ = news;
    sound();
    flood(news, from);
}

std::optional<uint64_t> Agreement::failing_epoch() {
    const Lock lock(mutex_);
    return mismatch_ ? std::optional(epoch_) : std::nullopt;
}

// Whether the caller has yet to call what comes before the mismatch. Operations that others ran and
// this rank was refused have numbers all the same.
bool Agreement::behind_mismatch(uint64_t last_number) const {
    return std::max(last_number, begun_after_) + 1 < (mismatch_from_ & number_mask);
}

void Agreement::quiet(uint64_t epoch, uint64_t last_number) {
    Lock lock(mutex_);
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
    const auto& children = tree_.children();
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
    if (tree_.parent() != nobody)
        return host_.send_control(tree_.parent(), make(News::Kind::quiet, tag));
    const uint64_t next = (epoch_ + 1) << Tag::epoch_shift | quiet_number_;
    lock.unlock();
    take_resume(next, tag.count);
}

void Agreement::take_resume(uint64_t sequence, uint64_t failed) {
    {
        const Lock lock(mutex_);
        if (sequence >> Tag::epoch_shift != epoch_ + 1) return;
    }
    // The host makes sure that nothing runs, and learns the number, before the alarm ends.
    host_.resume(sequence);
    const Lock lock(mutex_);
    epoch_ += 1;
    begun_after_ = sequence & number_mask;
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
    proposals_.clear();
    Tag tag;
    tag.sequence = sequence;
    tag.count = failed;
    for (Rank child : tree_.children()) host_.send_control(child, make(News::Kind::resume, tag));
    if (fine()) alarm_.store(false, std::memory_order_seq_cst);
}

void Agreement::say_bye(uint64_t last_number) {
    Tag tag;
    tag.sequence = last_number;
    const Lock lock(mutex_);
    tag.count = departed_.size();
    flood(make(News::Kind::bye, tag), nobody);
}

void Agreement::take_bye(const News& news, Rank from) {
    Lock lock(mutex_);
    if (news.rank < 0 || news.rank >= size_ || tree_.has_left(news.rank)) return;
    // It has told its neighbours, who know each other from now on. What came to it from one of them
    // when it had gone has not reached the others: other ranks' byes, where it did not know all.
    flood(news, from);
    const bool knew_all = news.tag.count == departed_.size();
    departed_.emplace_back(news.rank, news.tag.sequence & number_mask);
    sound();
    const std::vector<Rank> added = tree_.leave(news.rank);
    for (const Rank rank : added) catch_up(rank, !knew_all);
    // It may have been the one that was waited for, or have taken this rank's "quiet" along.
    quiet_sent_ = quiet_sent_ && added.empty();
    take_quiet(lock);
}

void Agreement::catch_up(Rank to, bool byes) {
    for (auto& [rank, last] : departed_) {
        if (!byes) break;
        Tag tag;
        tag.sequence = last;
        News bye = make(News::Kind::bye, tag);
        bye.rank = rank;
        host_.send_control(to, bye);
    }
    if (disagreement_) host_.send_control(to, *disagreement_);
    if (failure_) host_.send_control(to, *failure_);
}

void Agreement::stalled(const Tag& tag) {
    take_stall(make(News::Kind::stall, tag));
}

void Agreement::take_stall(const News& news) {
    {
        const Lock lock(mutex_);
        if (news.tag.epoch() != epoch_) return;
        // Stalled ranks come in crowds: one question about an operation serves them all for a
        // while.
        const int64_t now = now_ns();
        if (news.tag.sequence <= stall_sequence_ && now < stall_ns_ + stall_window_ns) return;
        stall_sequence_ = news.tag.sequence;
        stall_ns_ = now;
        if (const Rank parent = tree_.parent(); parent != nobody) {
            const bool silent = is_silent(parent);
            ask(parent, news);
            if (silent) tell_silent(parent);
            return;
        }
    }
    News query = news;
    query.kind = News::Kind::query;
    take_query(query, nobody);
}

void Agreement::take_query(const News& news, Rank from) {
    const Recorder& recorder = host_.recorder();
    bool late = recorder.last() < news.tag.sequence, failed = false;
    {
        const Lock lock(mutex_);
        late_.answered = false;
        failed = mismatch_ && news.tag.sequence >= mismatch_from_;
        if (failed) late = behind_mismatch(recorder.last() & number_mask);
        std::vector<Rank> silent;
        silent_.clear();
        for (const Rank child : tree_.children()) {
            if (child == from) continue;
            if (is_silent(child)) silent.push_back(child);
            ask(child, news);
        }
        for (const Rank child : silent) tell_silent(child);
    }
    const auto own = failed ? std::nullopt : recorder.find(news.tag.sequence);
    if (own && *own != news.tag && news.rank != rank_)
        return raise_mismatch(*own, news.rank, news.tag);
    if (late) take_late(make(News::Kind::late, news.tag));
}

void Agreement::take_late(const News& news) {
    const Lock lock(mutex_);
    if (!note_late(news)) return;
    if (tree_.parent() != nobody) return host_.send_control(tree_.parent(), news);
    News suspect = news;
    suspect.kind = News::Kind::suspect;
    for (Rank child : tree_.children()) host_.send_control(child, suspect);
}

void Agreement::take_suspect(const News& news) {
    const Lock lock(mutex_);
    for (Rank child : tree_.children()) host_.send_control(child, news);
    note_late(news);
}

// The first answer to a question takes the place of what was said before. True if it is news.
bool Agreement::note_late(const News& news) {
    std::vector<Rank>& ranks = late_.ranks;
    if (!late_.answered || late_sequence_ != news.tag.sequence) ranks.clear();
    late_.answered = true;
    late_sequence_ = news.tag.sequence;
    return insert_few(ranks, news.rank);
}

// ---- who says nothing at all, with the mutex

void Agreement::ask(Rank neighbour, const News& news) {
    host_.send_control(neighbour, news);
    unheard_.try_emplace(neighbour, now_ns());
}

bool Agreement::is_silent(Rank neighbour) const {
    const auto asked = unheard_.find(neighbour);
    return asked != unheard_.end() && now_ns() - asked->second >= silence_ns;
}

void Agreement::tell_silent(Rank neighbour) {
    News silent = make(News::Kind::silent, {});
    silent.rank = neighbour;
    take_silent(silent, neighbour);
}

void Agreement::take_silent(const News& news, Rank from) {
    if (insert_few(silent_, news.rank)) flood(news, from);
}

void Agreement::heard(Rank from) {
    unheard_.erase(from);
    std::erase(silent_, from);
}

Late Agreement::late(uint64_t sequence) {
    const Lock lock(mutex_);
    Late late = late_sequence_ == sequence ? late_ : Late{};
    late.silent = silent_;
    return late;
}

void Agreement::ask_who_is_behind() {
    Tag tag;
    {
        const Lock lock(mutex_);
        if (!mismatch_) return;
        tag.sequence = mismatch_from_;
    }
    stalled(tag);
}

Late Agreement::behind() {
    const Lock lock(mutex_);
    return mismatch_ && late_sequence_ == mismatch_from_ ? late_ : Late{};
}

int64_t Agreement::ask_at(int64_t began_ns, int64_t now, int64_t timeout_ms) {
    const int64_t waited_ns = now - began_ns;
    const int64_t pause_ns =
        waited_ns < first_question_ns ? first_question_ns : waited_ns * question_growth;
    const int64_t last_ms =
        timeout_ms - std::min(timeout_ms / 4, last_question_ms) - ns_to_ms(waited_ns);
    return now + (last_ms > 0 && last_ms < ns_to_ms(pause_ns) ? last_ms * ms : pause_ns);
}

void Agreement::propose(const Tag& tag) {
    take_proposal(rank_, tag);
}

void Agreement::take_proposal(Rank from, const Tag& tag) {
    Lock lock(mutex_);
    if (tag.epoch() != epoch_ || dead_) return;
    if (mismatch_ && tag.sequence >= mismatch_from_) return;
    if (proposals_.size() >= max_proposals && proposals_.count(tag.sequence) == 0) {
        lock.unlock();
        return raise({Code::no_memory, from, 0,
                      fmt::format("rank {} is more than {} calls ahead of others, and strict "
                                  "checking keeps no more",
                                  from, max_proposals)});
    }
    Proposal& p = proposals_[tag.sequence];
    if (p.have == 0) {
        p.tag = tag;
        p.first = from;
    } else if (p.tag != tag) {
        // Said from the point of view of whoever came first; both may be subtrees of this rank.
        News news = make(News::Kind::mismatch, {});
        news.tag.sequence = tag.sequence;
        news.tag.root = p.first;
        news.rank = from;
        news.text =
            fmt::format("the ranks called different things: rank {} called {}, rank {} called {}",
                        p.first, describe_call(p.tag), from, describe_call(tag));
        lock.unlock();
        take_mismatch(news, nobody);
        return host_.settle();
    }
    if (++p.have <= first_children_.size()) return;
    proposals_.erase(tag.sequence);
    if (first_parent_ != nobody)
        return host_.send_control(first_parent_, make(News::Kind::propose, tag));
    for (Rank child : first_children_) host_.send_control(child, make(News::Kind::agreed, tag));
    agreed_.store(tag.sequence, std::memory_order_release);
    lock.unlock();
    host_.settle();
}

void Agreement::peer_lost(Rank peer, const std::string& cause) {
    {
        const Lock lock(mutex_);
        if (tree_.has_left(peer)) return;
    }
    end({Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)}, nobody);
    host_.settle();
}

void Agreement::receive(Rank from, const News& news) {
    // Of a failure alone may it be nobody.
    const bool of_member = news.rank >= 0 && news.rank < size_;
    if (news.kind != News::Kind::failed && !of_member) return;
    {
        const Lock lock(mutex_);
        heard(from);
        if (news.kind == News::Kind::silent) return take_silent(news, from);
        if (news.kind == News::Kind::stall || news.kind == News::Kind::query)
            host_.send_control(from, make(News::Kind::here, {}));
    }
    switch (news.kind) {
        case News::Kind::failed:
            end(told_error(news.code, news.rank, size_, news.text), from);
            return host_.settle();
        case News::Kind::mismatch:
            take_mismatch(news, from);
            return host_.settle();
        case News::Kind::quiet: {
            Lock lock(mutex_);
            if (news.tag.epoch() != epoch_) return;
            quiet_children_.insert(from);
            quiet_number_ = std::max(quiet_number_, news.tag.sequence & number_mask);
            most_failed_ = std::max(most_failed_, news.tag.count);
            take_quiet(lock);
            lock = {};
            return host_.settle();
        }
        case News::Kind::resume:
            take_resume(news.tag.sequence, news.tag.count);
            return host_.settle();
        case News::Kind::bye:
            take_bye(news, from);
            return host_.settle();
        case News::Kind::stall:
            return take_stall(news);
        case News::Kind::query:
            return take_query(news, from);
        case News::Kind::late:
            return take_late(news);
        case News::Kind::suspect:
            return take_suspect(news);
        case News::Kind::here:
        case News::Kind::silent:
            return;  // dealt with above
        case News::Kind::propose:
            return take_proposal(from, news.tag);
        case News::Kind::agreed:
            for (Rank child : first_children_) host_.send_control(child, news);
            // What came another way may have been overtaken.
            if (!agreed(news.tag.sequence))
                agreed_.store(news.tag.sequence, std::memory_order_release);
            return host_.settle();
    }
}

}  // namespace tutti
