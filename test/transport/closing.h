// A listener that closes every call, as a rank without free file descriptors seems to do.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/fd.h"

namespace tutti::test {

/// Closes every connection in mid-handshake.
class Closing {
public:
    explicit Closing(UniqueFd listener) : listener_(std::move(listener)) {
        thread_ = std::thread([this] {
            while (!stop_) {
                const UniqueFd fd(::accept(listener_.get(), nullptr, nullptr));
                if (fd)
                    ++calls_;
                else
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    ~Closing() {
        stop_ = true;
        thread_.join();
    }
    int calls() const { return calls_; }

private:
    UniqueFd listener_;
    std::atomic<int> calls_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace tutti::test
