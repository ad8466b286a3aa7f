// The flight recorder: a communicator's last 1,024 operations. Errors name a call from
// it, other threads compare a peer's call with it (a mismatch), and people read it after a hang.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "transport/channel.h"

namespace tutti {

/// "allreduce #12 (count 1024, float32, sum)": a call as people would write it.
std::string describe_call(const Tag& tag);
/// The number of the operation on its communicator: its sequence without the epoch (Tag).
constexpr uint64_t operation_number(uint64_t sequence) {
    return sequence & ((uint64_t{1} << Tag::epoch_shift) - 1);
}
constexpr uint64_t operation_number(const Tag& tag) {
    return operation_number(tag.sequence);
}

// Tag::call, from the lowest bit: collective (8 bits), dtype (8), operator (8), `uneven_call`,
// `multi_call`, and 6 bits that hold either the rest of the program's operator's number or the
// part's number (pack_part).

/// A flag in the packed call: the collective's v form (allgatherv), whose counts differ by rank.
inline constexpr uint32_t uneven_call = uint32_t{1} << 24;
/// Another: several input buffers on each rank.
inline constexpr uint32_t multi_call = uint32_t{1} << 25;
/// The operator in Tag::call if it is the program's own: the low 12 bits of its number among
/// operators of its kind.
constexpr uint32_t user_op_flag = 0x80, premul_op_flag = 0x40, user_op_mask = 0x3f;
constexpr uint32_t pack_user_op(bool premul, uint32_t number) {
    return (user_op_flag | (premul ? premul_op_flag : 0) | (number & user_op_mask)) << 16 |
           (number >> 6 & user_op_mask) << 26;
}
/// The operation of several collectives that the call is a part of (call_name.h), by its number
/// among numbered_names. 0 if the operator is the program's own, whose number needs the bits.
constexpr uint32_t part_shift = 26;
constexpr uint32_t pack_part(uint32_t op_bits, uint32_t number) {
    return op_bits & user_op_flag << 16 ? 0 : number << part_shift;
}
/// The lower 24 bits of Tag::call.
constexpr uint32_t pack_call(uint32_t collective, uint32_t dtype, uint32_t op) {
    return collective | dtype << 8 | op << 16;
}

class Recorder {
public:
    static constexpr std::size_t capacity = 1024;
    enum class State : uint8_t { running, done, failed };

    /// Only the issuing thread calls this. `ring`: the communicator's ring that carries the
    /// operation. If there is no memory for an entry, the recorder keeps only the number.
    void begin(const Tag& tag, uint64_t bytes, uint32_t ring);
    /// Called by the thread that completed the operation. by_issuer: it is the issuing thread, so
    /// begin() does not run meanwhile.
    void end(const Tag& tag, Code code, bool by_issuer);

    /// The call that this rank made under that sequence, if the recorder still has it. Any thread.
    std::optional<Tag> find(uint64_t sequence) const;

    /// The sequence of the last call, 0 before the first. Any thread.
    uint64_t last() const { return last_.load(std::memory_order_acquire); }

    /// The memory of its entries. Any thread.
    std::size_t allocated_bytes() const {
        return sizeof(CallEntry) * (few + (many_.load(std::memory_order_acquire) ? capacity : 0));
    }

    /// One JSON object a line, oldest first, to a file descriptor.
    Result<> dump(int fd, Rank rank) const;
    /// The same for the last `most` operations, as text.
    std::string text(Rank rank, std::size_t most) const;

private:
    // A sequence lock: another thread may read an entry while the issuing thread overwrites it. The
    // writer invalidates `sequence` first and writes it last; a reader checks it before and after
    // it reads the fields. Fields are stored with release and loaded with acquire order: a reader
    // that saw a new field then also sees the changed sequence, on every processor. (Fences would
    // do the same, but the thread sanitizer does not know them.)
    struct CallEntry {
        std::atomic<uint64_t> sequence{~uint64_t{0}};
        std::atomic<uint64_t> count{0}, plan{0}, bytes{0}, start{0}, end{0};
        std::atomic<uint32_t> call{0}, ring{0};
        std::atomic<int32_t> root{0};
        // number << 16 | state << 8 | code, in one word: a thread that ends an operation may be so
        // late that begin() overwrites the entry meanwhile, and must not end the newer call.
        std::atomic<uint64_t> status{0};
    };
    static uint64_t status_of(uint64_t number, State state, Code code) {
        return number << 16 | static_cast<uint64_t>(state) << 8 | static_cast<uint64_t>(code);
    }
    // A communicator that is used only a few times has only these entries; the rest is allocated on
    // demand and kept.
    static constexpr uint64_t few = 32;
    /// The array that has the operation's entry, at number % capacity. nullptr: no operation has
    /// needed the large one, or there was no memory for it.
    CallEntry* entries(uint64_t number) const {
        return number < few ? few_.get() : many_.load(std::memory_order_acquire);
    }
    CallEntry* entry(uint64_t number) const;
    /// A consistent copy of an entry.
    struct RecordedCall {
        Tag tag;
        uint64_t bytes = 0, start = 0, end = 0;
        uint32_t ring = 0;
        State state = State::running;
        Code code = Code::ok;
    };
    /// nullopt: the entry was never written, or is being written now.
    static std::optional<RecordedCall> read(const CallEntry& entry);
    /// The last `capacity` calls, oldest first.
    std::vector<RecordedCall> calls() const;

    const std::unique_ptr<CallEntry[]> few_ = std::make_unique<CallEntry[]>(few);
    std::unique_ptr<CallEntry[]> owned_;
    std::atomic<CallEntry*> many_{nullptr};  // capacity of them: numbers past `few`
    std::atomic<uint64_t> last_{0};
    TickScale scale_;
};

}  // namespace tutti
