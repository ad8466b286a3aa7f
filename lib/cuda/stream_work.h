// Puts copies, waits and word writes on a device's stream, and waits for it on the host.
#pragma once

#include <atomic>

#include "cuda/handles.h"

namespace tutti::device {

inline Address address(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Copies between any two kinds of memory, in the stream's order; the stream's context is current.
/// No effect for 0 bytes.
Result<> copy(const Driver& driver, void* to, const void* from, std::size_t bytes,
              StreamHandle stream);

/// Makes later work on the stream wait until the word, in pinned memory, is at least that value.
/// The words are compared by difference, because they wrap. flush: later work also sees a network
/// card's earlier writes to the device, if flushes_remote_writes().
Result<> hold_until(const Driver& driver, StreamHandle stream, const uint32_t& word,
                    uint32_t at_least, bool flush = false);
bool flushes_remote_writes(const Driver& driver, Ordinal device);

/// Sets such a word from the host: a release store, after this thread's earlier writes.
inline void store_word(uint32_t& word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
}
/// Reads a word that a stream writes (acquire): the stream's earlier writes are then visible.
inline uint32_t load_word(uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
}

/// Makes the stream write the word when it gets there, after its earlier writes.
Result<> write_word(const Driver& driver, StreamHandle stream, uint32_t& word, uint32_t value);

/// Waits until the stream passes the mark, a query fails, or two seconds are over (false), so that
/// the host does not hang with the device.
bool wait_a_while(const DeviceEvent& event);

/// Limits how often a poll asks the driver whether the device has failed: only after some time
/// without progress, because the query may wait for a lock of the driver.
class HealthLook {
public:
    /// Call it at each poll without progress.
    bool due();
    void note_progress() { next_ns_ = 0; }

private:
    int64_t next_ns_ = 0;
};

}  // namespace tutti::device
