#include "control/inquiry.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr int64_t ms = 1'000'000;
constexpr int64_t stall_window_ns = 50 * ms;
constexpr int64_t first_question_ns = 100 * ms;
constexpr int64_t question_growth = 4;
// The last question is asked this long before the deadline, or a quarter of the time-out if that is
// less. Answers take the tree's latency, and longer from programs with manual progress.
constexpr int64_t last_question_ms = 500;
// If a neighbour has not answered for this long, the next question reports it as silent.
constexpr int64_t silence_ns = 100 * ms;
constexpr int64_t longest_pause_ns = 2'000'000'000;  // between questions

// True if the rank was inserted.
bool insert_few(std::vector<Rank>& ranks, Rank rank) {
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (ranks.size() == Late::most_named || (place != ranks.end() && *place == rank)) return false;
    ranks.insert(place, rank);
    return true;
}
template <typename Value>
bool insert_few(std::map<Rank, Value>& ranks, Rank rank, Value value) {
    return ranks.size() < Late::most_named && ranks.emplace(rank, value).second;
}

}  // namespace

std::string Late::names_of(const std::vector<Rank>& ranks) {
    std::string list;
    for (const Rank rank : ranks) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    return fmt::format("{}rank{} {}", ranks.size() < most_named ? "" : "at least ",
                       ranks.size() == 1 ? "" : "s", list);
}

std::vector<Rank> Late::silent_for(int64_t least_ms) const {
    std::vector<Rank> found;
    for (const auto& [rank, for_ms] : silent_ms)
        if (for_ms >= least_ms) found.push_back(rank);
    return found;
}

std::pair<Rank, Rank> Late::chain(Rank own) const {
    if (waiting.empty()) return {nobody, nobody};
    const Rank first = waiting.begin()->first;
    Rank last = first;
    for (std::size_t links = 0; links < waiting.size(); ++links) {
        const auto next = waiting.find(last);
        if (next == waiting.end() || next->second == nobody || next->second == own) break;
        last = next->second;
    }
    return {first, last};
}

void Inquiry::handle_stall(const ControlMessage& message) {
    {
        const Lock lock(context_.mutex);
        if (message.tag.epoch() != state_.epoch()) return;
        // Many ranks stall at once: within stall_window_ns, one question about an operation serves
        // all.
        const int64_t now = context_.now_ns();
        if (message.tag.sequence <= stall_.tag.sequence && now < stall_ns_ + stall_window_ns)
            return;
        stall_ = message;
        stall_ns_ = now;
        if (const Rank parent = context_.tree.parent(); parent != nobody) {
            const bool silent = is_silent(parent);
            ask(parent, message);
            if (silent) report_silent(parent);
            return;
        }
    }
    ControlMessage query = message;
    query.kind = ControlMessage::Kind::query;
    handle_query(query, nobody);
}

void Inquiry::handle_query(const ControlMessage& message, Rank from) {
    const Recorder& recorder = context_.host.recorder();
    bool late = recorder.last() < message.tag.sequence, failed = false;
    {
        const Lock lock(context_.mutex);
        late_.answered = late_heard_ = false;
        late_.waiting.clear();
        const auto mismatch = state_.mismatch_from();
        failed = mismatch && message.tag.sequence >= *mismatch;
        if (failed) late = state_.behind_mismatch(operation_number(recorder.last()));
        std::vector<Rank> silent;
        silent_ms_.clear();
        for (const Rank child : context_.tree.children()) {
            if (child == from) continue;
            if (is_silent(child)) silent.push_back(child);
            ask(child, message);
        }
        for (const Rank child : silent) report_silent(child);
    }
    const auto own = failed ? std::nullopt : recorder.find(message.tag.sequence);
    if (own && *own != message.tag && message.rank != context_.rank)
        return state_.raise_mismatch(*own, message.rank, message.tag);
    if (!late) return;
    ControlMessage answer = context_.make(ControlMessage::Kind::late, message.tag);
    const auto blocked_on = failed ? std::nullopt : context_.host.blocked_on();
    answer.tag.count = blocked_on.has_value();
    answer.tag.root = blocked_on.value_or(nobody);
    handle_late(answer);
}

void Inquiry::handle_late(const ControlMessage& message) {
    const Lock lock(context_.mutex);
    if (!note_late(message)) return;
    if (context_.tree.parent() != nobody)
        return context_.host.send_control(context_.tree.parent(), message);
    ControlMessage suspect = message;
    suspect.kind = ControlMessage::Kind::suspect;
    for (Rank child : context_.tree.children()) context_.host.send_control(child, suspect);
}

void Inquiry::handle_suspect(const ControlMessage& message) {
    const Lock lock(context_.mutex);
    for (Rank child : context_.tree.children()) context_.host.send_control(child, message);
    note_late(message);
}

// The first answer to a question replaces the answers to earlier ones. True if the answer is new.
bool Inquiry::note_late(const ControlMessage& message) {
    if (!late_heard_ || late_sequence_ != message.tag.sequence) late_ = {};
    late_heard_ = true;
    late_sequence_ = message.tag.sequence;
    if (message.tag.count > 0) {
        const bool known = message.tag.root >= 0 && message.tag.root < context_.size;
        return insert_few(late_.waiting, message.rank, known ? message.tag.root : nobody);
    }
    late_.answered = true;
    return insert_few(late_.ranks, message.rank);
}

// ---- silent neighbours, with the mutex held

void Inquiry::ask(Rank neighbour, const ControlMessage& message) {
    context_.host.send_control(neighbour, message);
    unheard_.try_emplace(neighbour, context_.now_ns());
}

bool Inquiry::is_silent(Rank neighbour) const {
    const auto asked = unheard_.find(neighbour);
    return asked != unheard_.end() && context_.now_ns() - asked->second >= silence_ns;
}

void Inquiry::report_silent(Rank neighbour) {
    ControlMessage silent = context_.make(ControlMessage::Kind::silent, {});
    silent.rank = neighbour;
    silent.tag.count = static_cast<uint64_t>(ns_to_ms(context_.now_ns() - unheard_[neighbour]));
    handle_silent(silent, neighbour);
}

void Inquiry::handle_silent(const ControlMessage& message, Rank from) {
    if (insert_few(silent_ms_, message.rank, static_cast<int64_t>(message.tag.count)))
        context_.flood(message, from);
}

bool Inquiry::note_alive(Rank from, const ControlMessage& message) {
    unheard_.erase(from);
    silent_ms_.erase(from);
    if (message.kind == ControlMessage::Kind::silent) handle_silent(message, from);
    // A neighbour that asks may not have got the failure messages that this rank knows.
    if (message.kind == ControlMessage::Kind::stall ||
        message.kind == ControlMessage::Kind::query) {
        context_.host.send_control(from, context_.make(ControlMessage::Kind::here, {}));
        state_.catch_up(from, operation_number(message.tag.sequence));
    }
    return message.kind == ControlMessage::Kind::silent ||
           message.kind == ControlMessage::Kind::here;
}

void Inquiry::receive(Rank from, const ControlMessage& message) {
    switch (message.kind) {
        case ControlMessage::Kind::stall:
            return handle_stall(message);
        case ControlMessage::Kind::query:
            return handle_query(message, from);
        case ControlMessage::Kind::late:
            return handle_late(message);
        default:
            return handle_suspect(message);
    }
}

std::optional<ControlMessage> Inquiry::interrupted(int64_t now) {
    const bool recent = stall_.tag.sequence != 0 && now < stall_ns_ + longest_pause_ns;
    stall_ns_ = 0;
    return recent ? std::optional(stall_) : std::nullopt;
}

Late Inquiry::late(uint64_t sequence) {
    const Lock lock(context_.mutex);
    Late late = late_sequence_ == sequence ? late_ : Late{};
    late.silent_ms = silent_ms_;
    return late;
}

void Inquiry::ask_who_is_behind() {
    Tag tag;
    {
        const Lock lock(context_.mutex);
        const auto mismatch = state_.mismatch_from();
        if (!mismatch) return;
        tag.sequence = *mismatch;
    }
    stalled(tag);
}

Late Inquiry::behind() {
    const Lock lock(context_.mutex);
    return late_sequence_ == state_.mismatch_from() ? late_ : Late{};
}

int64_t Inquiry::ask_at(int64_t began_ns, int64_t now, int64_t timeout_ms) {
    const int64_t waited_ns = now - began_ns;
    const int64_t pause_ns = waited_ns < first_question_ns
                                 ? first_question_ns
                                 : std::min(waited_ns * question_growth, longest_pause_ns);
    const int64_t last_ms =
        timeout_ms - std::min(timeout_ms / 4, last_question_ms) - ns_to_ms(waited_ns);
    return now + (last_ms > 0 && last_ms < ns_to_ms(pause_ns) ? last_ms * ms : pause_ns);
}

}  // namespace tutti
