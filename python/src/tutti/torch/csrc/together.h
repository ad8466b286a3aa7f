// Several Works as one.
#pragma once

#include <vector>

#include "work.h"

namespace tutti_torch {

/// All works that one thread issued between startCoalescing and endCoalescing.
class Together final : public c10d::Work {
public:
    /// hooks: told once, under one key, when all works are over.
    Together(int rank, std::vector<c10::intrusive_ptr<tutti_torch::Work>> works,
             const Hooks& hooks);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override { wait(kNoTimeout); }
    /// The time-out is for each Work.
    bool wait(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    /// From the beginning of the first call until this rank noticed the last end.
    float getDuration() const override;
    uint64_t getCompletionKey() const { return key_; }

private:
    const uint64_t key_ = new_completion_key();
    std::vector<c10::intrusive_ptr<tutti_torch::Work>> works_;
};

}  // namespace tutti_torch
