// Holds up a stream of the stand-in's, so that work behind it is not done before the test says so.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "cuda/fake_cuda.h"

namespace tutti::test {

/// Work that is put on the stream from here on waits until let_go(), but no longer than 20 s.
class HeldStream {
public:
    explicit HeldStream(void* stream) {
        fake_cuda_enqueue(stream, hold, new std::shared_ptr<std::atomic<bool>>(held_));
    }
    ~HeldStream() { let_go(); }
    HeldStream(const HeldStream&) = delete;
    void let_go() { *held_ = false; }

private:
    static void hold(void* argument) {
        const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> held(
            static_cast<std::shared_ptr<std::atomic<bool>>*>(argument));
        for (int i = 0; i < 20'000 && **held; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    const std::shared_ptr<std::atomic<bool>> held_ = std::make_shared<std::atomic<bool>>(true);
};

}  // namespace tutti::test
