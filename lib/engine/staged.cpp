#include "engine/staged.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/stream_work.h"
#include "reduce/fold.h"

namespace tutti {
namespace {

class StagedOperation final : public Operation {
public:
    static std::size_t all_inputs(const StageRequest& r) {
        return r.in_bytes * std::max<std::size_t>(1, r.inputs);
    }
    /// One after the other: the input, the output, the word that the caller's stream waits for.
    static std::size_t word_at(const StageRequest& r) {
        return round_up(all_inputs(r) + r.out_bytes, no_share_bytes);
    }

    StagedOperation(std::shared_ptr<const StagingArea> area, StageRequest request,
                    std::unique_ptr<Operation> inner, std::unique_ptr<Operation> in_place,
                    device::PinnedBuffer memory, device::Event ready, device::Event fetched,
                    device::Event stored, device::Event gone_on)
        : area_(std::move(area)),
          r_(std::move(request)),
          inner_(std::move(inner)),
          in_place_(std::move(in_place)),
          memory_(std::move(memory)),
          ready_(std::move(ready)),
          fetched_(std::move(fetched)),
          stored_(std::move(stored)),
          gone_on_(std::move(gone_on)),
          word_(*reinterpret_cast<uint32_t*>(memory_.data() + word_at(r_))) {
        for (std::size_t i = 0; i < r_.inputs; ++i)
            list_.push_back(memory_.data() + i * r_.in_bytes);
    }
    ~StagedOperation() override { cancel(); }

    Result<> launch(const void* in, void* out, void* stream, const GiveUp&) override {
        const device::Context::Scope current(area_->context);
        const auto callers = static_cast<device::StreamHandle>(stream);
        auto launched = put(in, out, callers);
        if (!launched) give_up_launch(callers);
        return launched;
    }
    bool polled() const override { return phase_ != Phase::running; }
    void start(const Tag& tag, const void*, void*) override {
        tag_ = tag;
        trouble_ = {};
        moved_ = false;
        if (phase_ == Phase::launched) phase_ = Phase::fetching;
    }

    Code progress() override {
        moved_ = false;
        if (phase_ == Phase::fetching) {
            const auto here = fetched_.passed();
            if (!here) return failed(here.error());
            if (!*here) return Code::in_progress;
            moved_ = true;
            phase_ = Phase::running;
            running().start(tag_, list_.empty() ? static_cast<const void*>(in_) : list_.data(),
                            result_);
        }
        if (phase_ == Phase::running) {
            const Code code = running().progress();
            moved_ |= running().moved();
            if (code != Code::ok) return code;
            if (const auto sent = send_results(); !sent) return failed(sent.error());
            phase_ = Phase::storing;
        }
        if (phase_ == Phase::storing) {
            const auto there = stored_.passed();
            if (!there) return failed(there.error());
            if (!*there) return Code::in_progress;
            release();
        }
        if (phase_ == Phase::releasing) {
            const auto gone = gone_on_.passed();
            if (!gone) return failed(gone.error());
            if (!*gone) return Code::in_progress;
            phase_ = Phase::idle;
        }
        return Code::ok;
    }
    bool moved() const override { return moved_; }
    const Trouble& trouble() const override {
        return phase_ == Phase::running && trouble_.code == Code::ok ? running().trouble()
                                                                     : trouble_;
    }
    void cancel() override {
        if (phase_ == Phase::idle) return;
        if (phase_ == Phase::running) running().cancel();
        // Results wait for nothing but each other; the input for what was on the caller's stream.
        if (phase_ != Phase::running)
            device::wait_a_while(phase_ == Phase::storing ? stored_ : fetched_);
        release();
        device::wait_a_while(gone_on_);
        phase_ = Phase::idle;
    }
    // What was armed may have ended since.
    void arm(bool on) override {
        if (phase_ == Phase::running || !on) running().arm(on);
    }
    Code health() const override {
        return phase_ == Phase::running ? running().health() : Code::ok;
    }
    Rank waits_for() const override {
        return phase_ == Phase::running ? running().waits_for() : nobody;
    }

private:
    enum class Phase : uint8_t { idle, launched, fetching, running, storing, releasing };

    const device::Driver& driver() const { return area_->context.driver(); }
    Operation& running() const { return in_place_ && same_ ? *in_place_ : *inner_; }

    // In place stays in place: the one buffer lies in the other's copy as it does in the original.
    void place(const std::byte* in, const std::byte* out) {
        same_ = in == out;
        if (r_.in_bytes == 0 || r_.out_bytes == 0) return;
        if (in >= out && in < out + r_.out_bytes)
            in_ = result_ + (in - out);
        else if (out >= in && out < in + r_.in_bytes)
            result_ = in_ + (out - in);
    }

    Result<> copy(void* to, const void* from, std::size_t bytes, const device::Stream& stream) {
        return device::copy(driver(), to, from, bytes, stream.handle());
    }

    Result<> put(const void* in, void* out, device::StreamHandle callers) {
        in_ = memory_.data();
        result_ = in_ + all_inputs(r_);
        if (r_.inputs == 0 && !r_.fold)
            place(static_cast<const std::byte*>(in), static_cast<std::byte*>(out));
        TUTTI_TRY(ready_.record(callers));
        TUTTI_TRY(ready_.hold(area_->inputs.handle()));
        if (r_.fold) {
            TUTTI_TRY(r_.fold->put(static_cast<const void* const*>(in), area_->inputs.handle()));
            in = r_.fold->result();
        }
        if (r_.inputs == 0) TUTTI_TRY(copy(in_, in, r_.in_bytes, area_->inputs));
        for (std::size_t i = 0; i < r_.inputs; ++i)
            TUTTI_TRY(copy(memory_.data() + i * r_.in_bytes, static_cast<const void* const*>(in)[i],
                           r_.in_bytes, area_->inputs));
        TUTTI_TRY(fetched_.record(area_->inputs.handle()));
        TUTTI_TRY(device::hold_until(driver(), callers, word_, run_ + 1));
        ++run_;
        TUTTI_TRY(gone_on_.record(callers));
        out_ = static_cast<std::byte*>(out);
        phase_ = Phase::launched;
        return {};
    }

    // What came onto the streams runs out before the buffers are the caller's again; the word, too,
    // may be looked at.
    void give_up_launch(device::StreamHandle callers) {
        if (fetched_.record(area_->inputs.handle())) device::wait_a_while(fetched_);
        release();
        if (gone_on_.record(callers)) device::wait_a_while(gone_on_);
        phase_ = Phase::idle;
    }

    Result<> send_results() {
        const device::Context::Scope current(area_->context);
        for (const StageRequest::Piece& piece : r_.results)
            TUTTI_TRY(copy(out_ + piece.at, result_ + piece.at, piece.bytes, area_->outputs));
        return stored_.record(area_->outputs.handle());
    }

    /// The caller's stream goes on, whatever became of the run.
    void release() {
        std::atomic_ref(word_).store(run_, std::memory_order_release);
        phase_ = Phase::releasing;
    }

    Code failed(const Error& error) {
        trouble_ = {error.code, error.rank, {}, error.message};
        return error.code;
    }

    const std::shared_ptr<const StagingArea> area_;
    const StageRequest r_;
    const std::unique_ptr<Operation> inner_, in_place_;
    const device::PinnedBuffer memory_;
    const device::Event ready_, fetched_, stored_, gone_on_;
    std::vector<const void*> list_;  // of inputs in pinned memory, if there are several
    uint32_t& word_;
    uint32_t run_ = 0;
    Phase phase_ = Phase::idle;
    bool same_ = false, moved_ = false;
    std::byte* in_ = nullptr;
    std::byte* result_ = nullptr;
    std::byte* out_ = nullptr;  // the caller's
    Tag tag_;
    Trouble trouble_;
};

}  // namespace

Result<std::shared_ptr<const StagingArea>> StagingArea::make(const device::Driver& driver,
                                                             device::Ordinal device) {
    TUTTI_ASSIGN(device::Context context, device::Context::retain(driver, device));
    TUTTI_ASSIGN(device::Stream inputs, device::Stream::create(context));
    TUTTI_ASSIGN(device::Stream outputs, device::Stream::create(context));
    return std::make_shared<const StagingArea>(std::move(context), std::move(inputs),
                                               std::move(outputs));
}

Result<const device::Kernels*> StagingArea::kernels() const {
    if (!kernels_) {
        TUTTI_ASSIGN(device::Kernels loaded, device::Kernels::load(context, fold::device_image()));
        kernels_.emplace(std::move(loaded));
    }
    return &*kernels_;
}

Result<std::unique_ptr<Operation>> stage(std::shared_ptr<const StagingArea> area,
                                         StageRequest request, std::unique_ptr<Operation> inner,
                                         std::unique_ptr<Operation> in_place) {
    const device::Context& context = area->context;
    const std::size_t bytes = StagedOperation::word_at(request) + no_share_bytes;
    TUTTI_ASSIGN(device::PinnedBuffer memory, device::PinnedBuffer::allocate(context, bytes));
    std::memset(memory.data() + bytes - no_share_bytes, 0, no_share_bytes);
    TUTTI_ASSIGN(device::Event ready, device::Event::create(context));
    TUTTI_ASSIGN(device::Event fetched, device::Event::create(context));
    TUTTI_ASSIGN(device::Event stored, device::Event::create(context));
    TUTTI_ASSIGN(device::Event gone_on, device::Event::create(context));
    return std::make_unique<StagedOperation>(std::move(area), std::move(request), std::move(inner),
                                             std::move(in_place), std::move(memory),
                                             std::move(ready), std::move(fetched),
                                             std::move(stored), std::move(gone_on));
}

}  // namespace tutti
