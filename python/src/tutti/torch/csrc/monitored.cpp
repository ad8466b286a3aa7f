// A barrier that names the missing ranks. It uses messages without a deadline, so that a late rank
// does not end the group.
#include <algorithm>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "backend.h"

namespace tutti_torch {
namespace {

// Each round has its own tags, so that a late rank's message matches only the round it missed.
constexpr uint32_t rounds = 1u << 20;
enum Message : int { arrived, here, verdict, messages };
constexpr const char* monitored_name = "monitored_barrier";
constexpr std::chrono::milliseconds verdict_grace{5000};

using Ranks = std::vector<int>;
using Clock = std::chrono::steady_clock;

// With gloo's sentences, which scripts look for.
std::string text_of(int rank, const Ranks& missing, std::chrono::milliseconds timeout) {
    std::ostringstream text;
    text << "[Rank " << rank << "]: ";
    if (rank != 0)
        text << "Rank " << rank
             << " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0: ";
    text << (missing.size() > 1 ? "Ranks " : "Rank ");
    for (std::size_t i = 0; i < missing.size(); ++i) text << (i ? ", " : "") << missing[i];
    text << " failed to pass monitoredBarrier in " << timeout.count() << " ms";
    if (rank == 0) text << ": Rank 0 timed out in monitoredBarrier";
    text << ". What to do: look at what the named ranks do; if they are only slow, raise the "
            "timeout";
    return text.str();
}

[[noreturn]] void fail(int rank, const Ranks& missing, std::chrono::milliseconds timeout) {
    const std::string text = text_of(rank, missing, timeout);
    throw CallError(TUTTI_ERR_TIMEOUT, missing.front(), monitored_name, text, text);
}

}  // namespace

std::shared_ptr<Operation> Backend::post(const Group& group, const at::Tensor& words, int peer,
                                         int tag, bool sending) {
    auto operation = std::make_shared<Operation>(monitored_name, reaper_);
    operation->keep(words);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = 0;
    const auto count = static_cast<std::size_t>(words.numel());
    tutti_request* request = nullptr;
    noting([&] {
        const std::lock_guard one_at_a_time(issuing_);
        check(sending ? tutti_isend(group.comm(), words.const_data_ptr(), count, TUTTI_INT32, peer,
                                    tag, &opts, &request)
                      : tutti_irecv(group.comm(), words.data_ptr(), count, TUTTI_INT32, peer, tag,
                                    nullptr, &opts, &request),
              monitored_name);
    });
    operation->add(request);
    return operation;
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
    if (size_ == 1) return;
    const auto held = group();
    const Milliseconds timeout = opts.timeout.count() < 0 ? options_->timeout : opts.timeout;
    const int tag =
        first_internal_tag + static_cast<int>(monitored_++ % rounds) * static_cast<int>(messages);
    if (rank_ == 0)
        watch_others(*held, tag, timeout, wait_all_ranks);
    else
        report_to_first(*held, tag, timeout);
}

void Backend::watch_others(const Group& group, int tag, Milliseconds timeout, bool name_all) {
    const auto limit = Clock::now() + timeout;
    std::vector<std::shared_ptr<Operation>> arrivals;
    const at::Tensor nothing = at::zeros({1}, at::kInt);
    for (int rank = 1; rank < size_; ++rank) {
        arrivals.push_back(post(group, at::empty({1}, at::kInt), rank, tag + arrived, false));
        post(group, nothing, rank, tag + here, true)->leave_alone();
    }
    Ranks missing;
    for (int rank = 1; rank < size_; ++rank) {
        Operation& arrival = *arrivals[rank - 1];
        const auto left = std::chrono::ceil<Milliseconds>(limit - Clock::now());
        const bool came = arrival.wait(std::max(left, Milliseconds(1)));
        if (came && !arrival.error()) continue;
        if (!came) arrival.leave_alone();
        if (missing.empty() || name_all) missing.push_back(rank);
    }
    at::Tensor words = at::zeros({static_cast<int64_t>(missing.size()) + 1}, at::kInt);
    int* out = words.data_ptr<int>();
    out[0] = static_cast<int>(missing.size());
    std::copy(missing.begin(), missing.end(), out + 1);
    for (int rank = 1; rank < size_; ++rank) {
        // Send no answer to a rank that is gone; the other ranks get its name.
        if (arrivals[rank - 1]->done() && arrivals[rank - 1]->error()) continue;
        post(group, words, rank, tag + verdict, true)->leave_alone();
    }
    if (!missing.empty()) fail(rank_, missing, timeout);
}

void Backend::report_to_first(const Group& group, int tag, Milliseconds timeout) {
    const at::Tensor words = at::zeros({size_ + 1}, at::kInt);
    const auto hello = post(group, at::empty({1}, at::kInt), 0, tag + here, false);
    const auto answer = post(group, words, 0, tag + verdict, false);
    post(group, at::zeros({1}, at::kInt), 0, tag + arrived, true)->leave_alone();
    const bool came = hello->wait(timeout);
    const bool told = came && !hello->error() && answer->wait(timeout + verdict_grace);
    if (!came) hello->leave_alone();
    if (!told) answer->leave_alone();
    if (came && hello->error()) std::rethrow_exception(hello->error());
    if (!came) fail(rank_, {0}, timeout);
    TORCH_CHECK(told, "[Rank ", rank_, "]: Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0: it did not say within ",
                timeout.count(),
                " ms which other ranks did. What to do: read the output of rank 0");
    if (answer->error()) std::rethrow_exception(answer->error());
    const int* in = words.const_data_ptr<int>();
    // Never trust a peer's length.
    const int count = std::clamp(in[0], 0, size_);
    if (count > 0) fail(rank_, Ranks(in + 1, in + 1 + count), timeout);
}

}  // namespace tutti_torch
