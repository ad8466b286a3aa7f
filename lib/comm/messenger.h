// Sends and receives on host memory: from a call to a request.
#pragma once

#include <memory>

#include "comm/core.h"
#include "comm/progress.h"

namespace tutti {

/// For the issuing thread only.
class Messenger {
public:
    Messenger(Core& core, ProgressEngine& progress) : core_(core), progress_(progress) {}

    Result<> check(const Transfer& transfer) const { return core_.transfers.check(transfer); }
    /// Runs a transfer on the caller's stack, and returns when it is over.
    Result<> run(Transfer& transfer);
    Result<std::unique_ptr<Request>> start(std::unique_ptr<Transfer> transfer, int64_t timeout_ms);

private:
    Result<> post(Transfer& transfer, int64_t timeout_ms);
    Result<> connect_and_post(Transfer& transfer, int64_t timeout_ms);

    Core& core_;
    ProgressEngine& progress_;
};

}  // namespace tutti
