#include "engine/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "base/collective.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

Collective collective_of(const Tag& tag) {
    return static_cast<Collective>(tag.call & 0xff);
}
Dtype dtype_of(const Tag& tag) {
    return static_cast<Dtype>(tag.call >> 8 & 0xff);
}
std::string op_of(const Tag& tag) {
    const uint32_t op = tag.call >> 16 & 0xff;
    if (!(op & user_op_flag)) return std::string(op_name(static_cast<Op>(op)));
    return fmt::format("{} {}", op & premul_op_flag ? "pre-multiplied sum" : "user operator",
                       (op & user_op_mask) | tag.call >> 26 << 6);
}

constexpr auto relaxed = std::memory_order_relaxed;

}  // namespace

std::string describe_call(const Tag& tag) {
    const Collective collective = collective_of(tag);
    const std::string name =
        fmt::format("{}{}{} #{}", collective_name(collective), tag.call & uneven_call ? "v" : "",
                    tag.call & multi_call ? "_multi" : "", operation_number(tag));
    // A number from a wire may be no collective at all.
    if (static_cast<int>(collective) >= collective_count || collective == Collective::barrier)
        return name;
    const CollectiveTraits& traits = traits_of(collective);
    std::string text = fmt::format("{} (count {}, {}", name, tag.count, dtype_name(dtype_of(tag)));
    if (traits.reduces) text += fmt::format(", {}", op_of(tag));
    if (traits.rooted) text += fmt::format(", root {}", tag.root);
    return text + ")";
}

Recorder::Entry* Recorder::entry(uint64_t sequence) const {
    const uint64_t number = sequence & ((uint64_t{1} << Tag::epoch_shift) - 1);
    if (number < few) return &few_[number];
    Entry* many = many_.load(std::memory_order_acquire);
    return many ? &many[number % capacity] : nullptr;
}

void Recorder::begin(const Tag& tag, uint64_t bytes, uint32_t ring) {
    if (operation_number(tag) >= few && !owned_) {
        owned_.reset(new (std::nothrow) Entry[capacity]);
        many_.store(owned_.get(), std::memory_order_release);
    }
    Entry* const place = entry(tag.sequence);
    if (!place) return last_.store(tag.sequence, std::memory_order_release);
    Entry& e = *place;
    e.sequence.store(~uint64_t{0}, relaxed);
    e.count.store(tag.count, std::memory_order_release);
    e.plan.store(tag.plan, relaxed);
    e.call.store(tag.call, relaxed);
    e.root.store(tag.root, relaxed);
    e.bytes.store(bytes, relaxed);
    e.ring.store(ring, relaxed);
    e.start.store(ticks(), relaxed);
    e.state.store(State::running, relaxed);
    // Pairs with the acquire in find(): whoever sees the sequence sees the fields.
    e.sequence.store(tag.sequence, std::memory_order_release);
    last_.store(tag.sequence, std::memory_order_release);
}

void Recorder::end(const Tag& tag, Code code) {
    Entry* const place = entry(tag.sequence);
    if (!place || place->sequence.load(relaxed) != tag.sequence) return;
    Entry& e = *place;
    e.end.store(ticks(), relaxed);
    e.code.store(code, relaxed);
    e.state.store(code == Code::ok ? State::done : State::failed, relaxed);
}

std::optional<Tag> Recorder::find(uint64_t sequence) const {
    const Entry* found = entry(sequence);
    if (!found || found->sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
    const Entry& e = *found;
    Tag tag;
    tag.sequence = sequence;
    tag.count = e.count.load(std::memory_order_acquire);
    tag.call = e.call.load(std::memory_order_acquire);
    tag.root = e.root.load(std::memory_order_acquire);
    tag.plan = e.plan.load(std::memory_order_acquire);
    if (e.sequence.load(relaxed) != sequence) return std::nullopt;
    return tag;
}

// Those that are written, of the last `capacity` calls.
void Recorder::list(std::vector<const Entry*>& used) const {
    const uint64_t last = last_.load(relaxed) & ((uint64_t{1} << Tag::epoch_shift) - 1);
    const auto add = [&](const Entry* entries, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t sequence = entries[i].sequence.load(relaxed);
            const uint64_t number = sequence & ((uint64_t{1} << Tag::epoch_shift) - 1);
            if (sequence != ~uint64_t{0} && number + capacity > last) used.push_back(&entries[i]);
        }
    };
    add(few_.get(), few);
    if (const Entry* many = many_.load(std::memory_order_acquire)) add(many, capacity);
}

std::string Recorder::text(Rank rank, std::size_t most) const {
    std::vector<const Entry*> used;
    list(used);
    std::sort(used.begin(), used.end(), [](auto* a, auto* b) {
        return a->sequence.load(relaxed) < b->sequence.load(relaxed);
    });
    if (used.size() > most) used.erase(used.begin(), used.end() - static_cast<ptrdiff_t>(most));
    std::string text;
    static constexpr std::string_view states[] = {"running", "done", "failed"};
    for (const Entry* e : used) {
        const auto tag = find(e->sequence.load(relaxed));
        if (!tag) continue;
        const State state = e->state.load(relaxed);
        const int64_t start_ns = scale_.to_ns(e->start.load(relaxed));
        const int64_t end_ns = state == State::running ? 0 : scale_.to_ns(e->end.load(relaxed));
        text += fmt::format(
            R"({{"rank":{},"epoch":{},"number":{},"call":"{}","bytes":{},"ring":{},"state":"{}",)"
            R"("result":"{}","start_ns":{},"end_ns":{}}})"
            "\n",
            rank, tag->epoch(), operation_number(*tag), describe_call(*tag), e->bytes.load(relaxed),
            e->ring.load(relaxed), states[static_cast<std::size_t>(state)],
            state == State::running ? "" : code_name(e->code.load(relaxed)), start_ns, end_ns);
    }
    return text;
}

Result<> Recorder::dump(int fd, Rank rank) const {
    const std::string text = this->text(rank, capacity);
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(errno, "writing the flight recorder");
        at += static_cast<std::size_t>(written);
    }
    return {};
}

}  // namespace tutti
