#include "together.h"

#include <algorithm>

#include <ATen/core/ivalue.h>

#include "hooks.h"

namespace tutti_torch {

Together::Together(int rank, std::vector<c10::intrusive_ptr<tutti_torch::Work>> works,
                   const Hooks& hooks)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {
    if (hooks.completion.empty()) return;
    const auto joint = std::make_shared<JointCompletion>(key_, works_.size());
    for (const auto& work : works_) work->operation()->count_in(joint);
}

bool Together::isCompleted() {
    bool all = true;
    for (const auto& work : works_) all = work->isCompleted() && all;
    return all;
}

bool Together::isSuccess() const {
    return std::all_of(works_.begin(), works_.end(),
                       [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr Together::exception() const {
    for (const auto& work : works_)
        if (auto error = work->exception()) return error;
    return nullptr;
}

std::vector<at::Tensor> Together::result() {
    std::vector<at::Tensor> all;
    for (const auto& work : works_)
        for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
    return all;
}

// Waits for all Works, even after one has failed, because their memory is in use until they end.
bool Together::wait(std::chrono::milliseconds timeout) {
    std::exception_ptr first;
    for (const auto& work : works_) {
        try {
            work->wait(timeout);
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    }
    if (first) std::rethrow_exception(first);
    return true;
}

float Together::getDuration() const {
    std::optional<CallTime> whole;
    for (const auto& work : works_) {
        const CallTime& part = work->time();
        whole = whole ? whole->joined(part) : part;
    }
    return whole ? whole->ms() : 0;
}

c10::intrusive_ptr<c10::ivalue::Future> Together::getFuture() {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto& work : works_) futures.push_back(work->getFuture());
    const auto type = c10::ListType::create(c10::TensorType::get());
    return c10::collectAll(futures)->then(
        [works = works_](c10::ivalue::Future&) {
            std::vector<at::Tensor> all;
            for (const auto& work : works) {
                if (auto error = work->exception()) std::rethrow_exception(error);
                for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
            }
            return c10::IValue(std::move(all));
        },
        type);
}

}  // namespace tutti_torch
