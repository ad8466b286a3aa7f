// Puts copies, waits and word writes on a device's stream, and waits for it on the host.
#pragma once

#include <atomic>

#include "cuda/handles.h"

namespace tutti::device {

inline Address address(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Between any two kinds of memory, in the stream's order; the stream's context is current. Nothing
/// for 0 bytes.
Result<> copy(const Driver& driver, void* to, const void* from, std::size_t bytes,
              StreamHandle stream);

/// Makes later work on the stream wait until the word, in pinned memory, is at least that. The
/// words are compared by difference, because they wrap. flush: later work also sees what a network
/// card had written to the device by then, where the driver has that: flushes_remote_writes().
Result<> hold_until(const Driver& driver, StreamHandle stream, const uint32_t& word,
                    uint32_t at_least, bool flush = false);
bool flushes_remote_writes(const Driver& driver, Ordinal device);

/// Sets such a word from the host, after all that this thread has written.
inline void store_word(uint32_t& word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
}
/// Reads a word that a stream stores: all that it has written before is then visible.
inline uint32_t load_word(uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
}

/// The stream stores it when it has come so far, after all that it has written.
Result<> write_word(const Driver& driver, StreamHandle stream, uint32_t& word, uint32_t value);

/// Until the mark was passed, a query fails, or two seconds are over (false): a device that hangs
/// is no reason for the host to.
bool wait_a_while(const DeviceEvent& event);

/// When to ask the driver whether a device that is waited for has failed: after some time without
/// progress. To ask may have to wait for a lock of the driver's, and so is not for every look.
class HealthLook {
public:
    /// Asked at each fruitless look.
    bool due();
    void note_progress() { next_ns_ = 0; }

private:
    int64_t next_ns_ = 0;
};

}  // namespace tutti::device
