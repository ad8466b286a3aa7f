#include "record/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "base/collective.h"
#include "record/call_name.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

Collective collective_of(const Tag& tag) {
    return static_cast<Collective>(tag.call & 0xff);
}
// A number from a wire may not be a collective.
bool is_known(Collective collective) {
    return static_cast<int>(collective) < collective_count;
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

std::string name_of(const Tag& tag) {
    return fmt::format("{}{}{}", collective_name(collective_of(tag)),
                       tag.call & uneven_call ? "v" : "", tag.call & multi_call ? "_multi" : "");
}

// In gatherv, scatterv and alltoallv, only the two ranks of a message know its length, so the tag
// has no count.
bool has_count(const Tag& tag, const CollectiveTraits& traits) {
    return !(tag.call & uneven_call) || !(traits.rooted || traits.cut == Cut::pairs);
}

std::string part_of(const Tag& tag) {
    const uint32_t number = tag.call & user_op_flag << 16 ? 0 : tag.call >> part_shift;
    if (number == 0 || number >= numbered_names.size()) return "";
    return fmt::format(" in '{}'", numbered_names[number]);
}

// The arguments that the call has, as members of a JSON object.
std::string fields_of(const Tag& tag) {
    const Collective collective = collective_of(tag);
    std::string text = fmt::format(R"("collective":"{}")", name_of(tag));
    if (!is_known(collective) || collective == Collective::barrier) return text;
    const CollectiveTraits& traits = traits_of(collective);
    if (has_count(tag, traits)) text += fmt::format(R"(,"count":{})", tag.count);
    text += fmt::format(R"(,"dtype":"{}")", dtype_name(dtype_of(tag)));
    if (traits.reduces) text += fmt::format(R"(,"op":"{}")", op_of(tag));
    if (traits.rooted) text += fmt::format(R"(,"root":{})", tag.root);
    return text;
}

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

}  // namespace

std::string describe_call(const Tag& tag) {
    const Collective collective = collective_of(tag);
    const std::string name =
        fmt::format("{} #{}{}", name_of(tag), operation_number(tag), part_of(tag));
    if (!is_known(collective)) return name;
    if (collective == Collective::barrier) {
        const std::string what = CallName{tag.count, static_cast<uint32_t>(tag.root)}.text();
        return what.empty() ? name : fmt::format("barrier '{}' #{}", what, operation_number(tag));
    }
    const CollectiveTraits& traits = traits_of(collective);
    std::string text = fmt::format("{} (count {}, {}", name, tag.count, dtype_name(dtype_of(tag)));
    if (traits.reduces) text += fmt::format(", {}", op_of(tag));
    if (traits.rooted) text += fmt::format(", root {}", tag.root);
    return text + ")";
}

Recorder::CallEntry* Recorder::entry(uint64_t number) const {
    CallEntry* const all = entries(number);
    return all ? &all[number % capacity] : nullptr;
}

void Recorder::begin(const Tag& tag, uint64_t bytes, uint32_t ring) {
    const uint64_t number = operation_number(tag);
    if (number >= few && !owned_) {
        owned_.reset(new (std::nothrow) CallEntry[capacity]);
        many_.store(owned_.get(), release);
    }
    CallEntry* const all = entries(number);
    if (!all) return last_.store(tag.sequence, release);
    CallEntry& e = all[number % capacity];
    e.sequence.store(~uint64_t{0}, relaxed);
    e.count.store(tag.count, release);
    e.plan.store(tag.plan, release);
    e.call.store(tag.call, release);
    e.root.store(tag.root, release);
    e.bytes.store(bytes, release);
    e.ring.store(ring, release);
    e.start.store(ticks(), release);
    e.status.store(status_of(number, State::running, Code::ok), release);
    // Pairs with the first acquire in read(): a reader that sees the sequence sees the fields.
    e.sequence.store(tag.sequence, release);
    last_.store(tag.sequence, release);
}

void Recorder::end(const Tag& tag, Code code, bool by_issuer) {
    const uint64_t number = operation_number(tag);
    CallEntry* const place = entry(number);
    if (!place || place->sequence.load(relaxed) != tag.sequence) return;
    CallEntry& e = *place;
    e.end.store(ticks(), release);
    const uint64_t ended = status_of(number, code == Code::ok ? State::done : State::failed, code);
    // Stored last, and paired with the acquire in read(): a reader that sees the end sees its time.
    // The compare-exchange fails if begin() has overwritten the entry since the check above. The
    // issuing thread, which alone calls begin(), saves the locked instruction.
    if (by_issuer) return e.status.store(ended, release);
    uint64_t running = status_of(number, State::running, Code::ok);
    e.status.compare_exchange_strong(running, ended, release, relaxed);
}

std::optional<Recorder::RecordedCall> Recorder::read(const CallEntry& e) {
    RecordedCall call;
    call.tag.sequence = e.sequence.load(acquire);
    if (call.tag.sequence == ~uint64_t{0}) return std::nullopt;
    call.tag.count = e.count.load(acquire);
    call.tag.call = e.call.load(acquire);
    call.tag.root = e.root.load(acquire);
    call.tag.plan = e.plan.load(acquire);
    call.bytes = e.bytes.load(acquire);
    call.ring = e.ring.load(acquire);
    call.start = e.start.load(acquire);
    const uint64_t status = e.status.load(acquire);
    call.state = static_cast<State>(status >> 8 & 0xff);
    call.code = static_cast<Code>(status & 0xff);
    call.end = e.end.load(acquire);
    if (e.sequence.load(relaxed) != call.tag.sequence) return std::nullopt;
    return call;
}

std::optional<Tag> Recorder::find(uint64_t sequence) const {
    const CallEntry* found = entry(operation_number(sequence));
    const auto call = found ? read(*found) : std::nullopt;
    if (!call || call->tag.sequence != sequence) return std::nullopt;
    return call->tag;
}

std::vector<Recorder::RecordedCall> Recorder::calls() const {
    const uint64_t last = operation_number(last_.load(acquire));
    std::vector<RecordedCall> out;
    const auto add = [&](const CallEntry* first, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
            const auto call = read(first[i]);
            if (call && operation_number(call->tag) + capacity > last) out.push_back(*call);
        }
    };
    add(few_.get(), few);
    if (const CallEntry* many = many_.load(acquire)) add(many, capacity);
    std::sort(out.begin(), out.end(), [](const RecordedCall& a, const RecordedCall& b) {
        return a.tag.sequence < b.tag.sequence;
    });
    return out;
}

std::string Recorder::text(Rank rank, std::size_t most) const {
    const std::vector<RecordedCall> all = calls();
    std::string text;
    static constexpr std::string_view states[] = {"running", "done", "failed"};
    for (std::size_t i = all.size() - std::min(all.size(), most); i < all.size(); ++i) {
        const RecordedCall& call = all[i];
        const bool running = call.state == State::running;
        text += fmt::format(
            R"({{"rank":{},"epoch":{},"number":{},"call":"{}",{},"bytes":{},"ring":{},)"
            R"("state":"{}","result":"{}","start_ns":{},"end_ns":{}}})"
            "\n",
            rank, call.tag.epoch(), operation_number(call.tag), describe_call(call.tag),
            fields_of(call.tag), call.bytes, call.ring,
            states[static_cast<std::size_t>(call.state)], running ? "" : code_name(call.code),
            scale_.to_ns(call.start), running ? 0 : scale_.to_ns(call.end));
    }
    return text;
}

Result<> Recorder::dump(int fd, Rank rank) const {
    const std::string text = this->text(rank, capacity);
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(errno, "cannot write the flight recorder");
        at += static_cast<std::size_t>(written);
    }
    return {};
}

}  // namespace tutti
