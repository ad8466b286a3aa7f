#include "cuda/stream_work.h"

#include "base/clock.h"
#include "wait/pace.h"

namespace tutti::device {
namespace {

constexpr useconds_t poll_us = 20;
constexpr int64_t patience_ms = 2000;
constexpr int64_t health_ns = 200'000'000;
constexpr unsigned wait_until_at_least = 0;       // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned flush_after_wait = 1U << 30U;  // CU_STREAM_WAIT_VALUE_FLUSH
constexpr int attribute_can_flush = 98;           // CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES
constexpr unsigned write_after_all = 0;           // CU_STREAM_WRITE_VALUE_DEFAULT

}  // namespace

Result<> copy(const Driver& driver, void* to, const void* from, std::size_t bytes,
              StreamHandle stream) {
    if (bytes == 0) return {};
    return check(driver, driver.copy_async(address(to), address(from), bytes, stream),
                 "copying to or from the GPU");
}

Result<> hold_until(const Driver& driver, StreamHandle stream, const uint32_t& word,
                    uint32_t at_least, bool flush) {
    const unsigned flags = wait_until_at_least | (flush ? flush_after_wait : 0);
    return check(driver, driver.stream_wait_value(stream, address(&word), at_least, flags),
                 "making a CUDA stream wait for the host");
}

bool flushes_remote_writes(const Driver& driver, Ordinal device) {
    int can = 0;
    return driver.device_attribute(&can, attribute_can_flush, device) == success && can != 0;
}

Result<> write_word(const Driver& driver, StreamHandle stream, uint32_t& word, uint32_t value) {
    return check(driver, driver.stream_write_value(stream, address(&word), value, write_after_all),
                 "writing a CUDA stream's progress");
}

bool wait_a_while(const DeviceEvent& event) {
    Pace pace(Deadline::after_ms(patience_ms), {.sleep_us = poll_us});
    do {
        if (const auto passed = event.passed(); !passed || *passed) return true;
    } while (pace.pause());
    return false;
}

bool HealthLook::due() {
    const int64_t now = now_ns();
    const bool over = next_ns_ != 0 && now >= next_ns_;
    if (over || next_ns_ == 0) next_ns_ = now + health_ns;
    return over;
}

}  // namespace tutti::device
