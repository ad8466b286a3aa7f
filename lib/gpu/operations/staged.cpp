#include "gpu/operations/staged.h"

#include <algorithm>
#include <cstring>

#include "cuda/stream_work.h"
#include "reduce/fold.h"

namespace tutti {
namespace {

// Counts of runs, one cache line each. The device writes the numbers of fetched inputs and stored
// results, the host the number of finished runs. Each side waits for the other's word without a
// driver call, which could wait for the driver's lock.
enum Word : std::size_t { word_fetched, word_over, word_stored, words };

class StagedOperation final : public DeviceOperation {
public:
    static std::size_t all_inputs(const StageRequest& r) {
        return r.in_bytes * std::max<std::size_t>(1, r.inputs);
    }
    /// One after the other: the input, the output, the words.
    static std::size_t words_at(const StageRequest& r) {
        return round_up(all_inputs(r) + r.out_bytes, no_share_bytes);
    }

    StagedOperation(std::shared_ptr<const StagingArea> area, StageRequest request,
                    std::unique_ptr<Operation> inner, device::PinnedBuffer memory,
                    device::DeviceEvent stored)
        : area_(std::move(area)),
          r_(std::move(request)),
          inner_(std::move(inner)),
          memory_(std::move(memory)),
          stored_(std::move(stored)) {
        for (std::size_t i = 0; i < r_.inputs; ++i)
            list_.push_back(memory_.data() + i * r_.in_bytes);
    }
    ~StagedOperation() override { cancel(); }

    // Puts all work on the caller's stream now. A thread that frees device memory waits for the
    // stream, and a later submission may wait for that thread: a deadlock.
    Result<> launch(const void* in, void* out, void* stream, const GiveUp&) override {
        const device::Context::Scope current(area_->context);
        const auto callers = static_cast<device::StreamHandle>(stream);
        auto launched = put(in, static_cast<std::byte*>(out), callers);
        if (!launched) cancel_launch(callers);
        return launched;
    }
    void start(const Tag& tag, const void*, void*) override {
        tag_ = tag;
        failure_ = {};
        health_.note_progress();
        if (phase_ == Phase::launched) phase_ = Phase::fetching;
    }

    Poll progress() override {
        bool moved = false;
        if (phase_ == Phase::fetching) {
            // Pairs with the device's write of the word, after its copy of the input.
            if (!there(word_fetched)) return check_device(moved);
            moved = true;
            phase_ = Phase::running;
            inner_->start(tag_, list_.empty() ? from_ : list_.data(), result_);
        }
        if (phase_ == Phase::running) {
            Poll inner = inner_->progress();
            inner.moved |= moved;
            if (inner.code != Code::ok) return inner;
            moved = inner.moved;
            release();
        }
        if (phase_ == Phase::storing) {
            if (!there(word_stored)) return check_device(moved);
            phase_ = Phase::idle;
        }
        return Code::ok;
    }
    void cancel() override {
        if (phase_ == Phase::idle) return;
        if (phase_ == Phase::running) inner_->cancel();
        release();
        device::wait_a_while(stored_);
        phase_ = Phase::idle;
    }
    // The inner operation may have ended since it was armed, so disarming always reaches it.
    void arm(bool on) override {
        if (phase_ == Phase::running || !on) inner_->arm(on);
    }
    Code health() const override { return phase_ == Phase::running ? inner_->health() : Code::ok; }
    Rank waits_for() const override {
        return phase_ == Phase::running ? inner_->waits_for() : nobody;
    }

private:
    enum class Phase : uint8_t { idle, launched, fetching, running, storing };

    const device::Driver& driver() const { return area_->context.driver(); }
    uint32_t& word(Word which) const {
        return *reinterpret_cast<uint32_t*>(memory_.data() + words_at(r_) + which * no_share_bytes);
    }

    bool there(Word which) const { return device::load_word(word(which)) == run_; }

    // If one buffer lies within the other, its copy lies at the same offset in the other's copy.
    void place(const std::byte* in, const std::byte* out) {
        if (r_.in_bytes == 0 || r_.out_bytes == 0) return;
        if (in >= out && in < out + r_.out_bytes)
            in_ = result_ + (in - out);
        else if (out >= in && out < in + r_.in_bytes)
            result_ = in_ + (out - in);
    }

    Result<> put(const void* in, std::byte* out, device::StreamHandle callers) {
        ++run_;
        in_ = memory_.data();
        result_ = in_ + all_inputs(r_);
        const bool one = r_.inputs == 0 && !r_.fold;
        if (one) place(static_cast<const std::byte*>(in), out);
        // A host buffer is used without a copy: a copy from host to host returns only when it is
        // done, and the stream may wait for work that comes after this call.
        from_ = r_.in_on_host ? in : in_;
        if (r_.out_on_host) result_ = out;
        if (!r_.in_on_host) TUTTI_TRY(fetch(in, callers));
        TUTTI_TRY(device::write_word(driver(), callers, word(word_fetched), run_));
        TUTTI_TRY(device::hold_until(driver(), callers, word(word_over), run_));
        if (!r_.out_on_host) TUTTI_TRY(store(out, callers));
        TUTTI_TRY(device::write_word(driver(), callers, word(word_stored), run_));
        TUTTI_TRY(stored_.record(callers));
        phase_ = Phase::launched;
        return {};
    }

    Result<> fetch(const void* in, device::StreamHandle callers) {
        const auto list = static_cast<const void* const*>(in);
        for (std::size_t i = 0; i < r_.inputs; ++i)
            TUTTI_TRY(device::copy(driver(), memory_.data() + i * r_.in_bytes, list[i], r_.in_bytes,
                                   callers));
        if (r_.inputs > 0) return {};
        if (r_.fold) TUTTI_TRY(r_.fold->put(list, callers));
        return device::copy(driver(), in_, r_.fold ? r_.fold->result() : in, r_.in_bytes, callers);
    }

    Result<> store(std::byte* out, device::StreamHandle callers) {
        for (const StageRequest::ResultBytes& piece : r_.results)
            TUTTI_TRY(
                device::copy(driver(), out + piece.at, result_ + piece.at, piece.bytes, callers));
        return {};
    }

    // Work that is already on the stream uses the caller's buffers and this operation's words, so
    // wait for it before the caller may free them.
    void cancel_launch(device::StreamHandle callers) {
        release();
        if (stored_.record(callers)) device::wait_a_while(stored_);
        phase_ = Phase::idle;
    }

    /// Lets the caller's stream continue, also after a failure.
    void release() {
        device::store_word(word(word_over), run_);
        phase_ = Phase::storing;
    }

    /// Detects a failed device, which would never write its word.
    Poll check_device(bool moved) {
        if (!health_.due()) return {Code::in_progress, moved};
        const auto asked = stored_.passed();
        return asked ? Poll(Code::in_progress, moved) : failed(asked.error());
    }

    Poll failed(const Error& error) {
        failure_ = {error, {}};
        return failure_;
    }

    const std::shared_ptr<const StagingArea> area_;
    const StageRequest r_;
    const std::unique_ptr<Operation> inner_;
    const device::PinnedBuffer memory_;
    const device::DeviceEvent stored_;
    std::vector<const void*>
        list_;  // addresses of the inputs in pinned memory, if there are several
    uint32_t run_ = 0;
    Phase phase_ = Phase::idle;
    std::byte* in_ = nullptr;     // the copy
    const void* from_ = nullptr;  // in_, or the caller's host buffer; likewise result_
    std::byte* result_ = nullptr;
    device::HealthLook health_;
    Tag tag_;
    Failure failure_;
};

}  // namespace

Result<std::shared_ptr<const StagingArea>> StagingArea::make(const device::Driver& driver,
                                                             device::Ordinal device) {
    TUTTI_ASSIGN(device::Context context, device::Context::retain(driver, device));
    TUTTI_ASSIGN(device::DeviceStream aside, device::DeviceStream::create(context));
    return std::make_shared<const StagingArea>(std::move(context), std::move(aside));
}

Result<const device::Kernels*> StagingArea::kernels() const {
    if (!kernels_) {
        TUTTI_ASSIGN(device::Kernels loaded, device::Kernels::load(context, fold::device_image()));
        kernels_.emplace(std::move(loaded));
    }
    return &*kernels_;
}

Result<std::unique_ptr<DeviceOperation>> stage(std::shared_ptr<const StagingArea> area,
                                               StageRequest request,
                                               std::unique_ptr<Operation> inner) {
    const device::Context& context = area->context;
    const std::size_t words_at = StagedOperation::words_at(request);
    const std::size_t bytes = words_at + words * no_share_bytes;
    TUTTI_ASSIGN(device::PinnedBuffer memory, device::PinnedBuffer::allocate(context, bytes));
    std::memset(memory.data() + words_at, 0, words * no_share_bytes);
    TUTTI_ASSIGN(device::DeviceEvent stored, device::DeviceEvent::create(context));
    return std::make_unique<StagedOperation>(std::move(area), std::move(request), std::move(inner),
                                             std::move(memory), std::move(stored));
}

}  // namespace tutti
