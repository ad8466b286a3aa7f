#include "comm/staged_messages.h"

#include <atomic>

#include "device/stream_work.h"

namespace tutti {
namespace {

// A line for the word that the caller's stream waits for, then the messages.
std::size_t place_of_next(std::size_t at, const Exchange::Part& part) {
    return at + round_up(part.asked.message.bytes, no_share_bytes);
}

class StagedMessages final : public Operation {
public:
    StagedMessages(std::shared_ptr<const StagingArea> area, device::PinnedPool::Piece memory,
                   std::deque<Exchange::Part>& parts, device::Event fetched, device::Event stored,
                   device::Event gone_on)
        : area_(std::move(area)),
          memory_(std::move(memory)),
          fetched_(std::move(fetched)),
          stored_(std::move(stored)),
          gone_on_(std::move(gone_on)),
          word_(*reinterpret_cast<uint32_t*>(memory_->data())) {
        std::atomic_ref(word_).store(0);
        std::size_t at = no_share_bytes;
        for (Exchange::Part& part : parts) {
            part.on_host.memory = memory_->data() + at;
            at = place_of_next(at, part);
            part.on_host.held = part.on_host.sends;
            (part.on_host.sends ? sends_ : receives_).push_back(&part);
        }
    }
    ~StagedMessages() override { cancel(); }

    // Copies to the host go on the caller's stream itself, where what comes next has to wait for
    // them anyhow. What is received is copied on another once it is here, as nobody knows before
    // how long it is.
    Result<> launch(const void*, void*, void* stream, const GiveUp&) override {
        const device::Context::Scope current(area_->context);
        const auto callers = static_cast<device::StreamHandle>(stream);
        phase_ = Phase::fetching;
        auto launched = put(callers);
        // What came onto the stream runs out before the buffers are the caller's again.
        if (!launched) {
            release();
            if (gone_on_.record(callers)) device::wait_a_while(gone_on_);
        }
        return launched;
    }
    bool polled() const override { return true; }
    void start(const Tag&, const void*, void*) override {}

    Code progress() override {
        moved_ = false;
        if (trouble_.code != Code::ok) return trouble_.code;
        const auto moved_on = go_on();
        if (!moved_on) {
            trouble_ = {moved_on.error().code, nobody, {}, moved_on.error().message};
            return trouble_.code;
        }
        return phase_ == Phase::idle ? Code::ok : Code::in_progress;
    }
    bool moved() const override { return moved_; }
    const Trouble& trouble() const override { return trouble_; }
    void cancel() override {
        if (phase_ == Phase::idle) return;
        device::wait_a_while(phase_ == Phase::storing ? stored_ : fetched_);
        release();
        device::wait_a_while(gone_on_);
        phase_ = Phase::idle;
    }
    void arm(bool) override {}
    Rank waits_for() const override { return nobody; }

private:
    enum class Phase : uint8_t { idle, fetching, receiving, storing, releasing };

    const device::Driver& driver() const { return area_->context.driver(); }

    Result<> put(device::StreamHandle callers) {
        for (const Exchange::Part* send : sends_)
            TUTTI_TRY(device::copy(driver(), send->on_host.memory, send->asked.message.memory,
                                   send->on_host.bytes, callers));
        TUTTI_TRY(fetched_.record(callers));
        if (receives_.empty()) return {};
        TUTTI_TRY(device::hold_until(driver(), callers, word_, 1));
        return gone_on_.record(callers);
    }

    Result<> go_on() {
        if (phase_ == Phase::fetching) {
            TUTTI_ASSIGN(const bool here, fetched_.passed());
            if (!here) return {};
            for (Exchange::Part* send : sends_) send->on_host.held = false;
            enter(receives_.empty() ? Phase::idle : Phase::receiving);
        }
        if (phase_ == Phase::receiving) {
            const device::Context::Scope current(area_->context);
            TUTTI_TRY(store_what_came());
            if (stored_parts_ < receives_.size()) return {};
            TUTTI_TRY(stored_.record(area_->outputs.handle()));
            enter(Phase::storing);
        }
        if (phase_ == Phase::storing) {
            TUTTI_ASSIGN(const bool there, stored_.passed());
            if (!there) return {};
            release();
            enter(Phase::releasing);
        }
        if (phase_ == Phase::releasing) {
            TUTTI_ASSIGN(const bool gone, gone_on_.passed());
            if (gone) enter(Phase::idle);
        }
        return {};
    }

    Result<> store_what_came() {
        for (Exchange::Part* receive : receives_) {
            const Transfer& message = receive->on_host;
            if (receive->stored || !message.done()) continue;
            if (message.code.load(std::memory_order_acquire) == Code::ok)
                TUTTI_TRY(device::copy(driver(), receive->asked.message.memory, message.memory,
                                       message.received.count * dtype_bytes(message.dtype),
                                       area_->outputs.handle()));
            receive->stored = true;
            ++stored_parts_;
            moved_ = true;
        }
        return {};
    }

    void enter(Phase phase) {
        phase_ = phase;
        moved_ = true;
    }

    /// The caller's stream goes on, whatever became of the messages.
    void release() { std::atomic_ref(word_).store(1, std::memory_order_release); }

    const std::shared_ptr<const StagingArea> area_;
    const device::PinnedPool::Piece memory_;
    const device::Event fetched_, stored_, gone_on_;
    uint32_t& word_;
    std::vector<Exchange::Part*> sends_, receives_;
    std::size_t stored_parts_ = 0;
    Phase phase_ = Phase::idle;
    bool moved_ = false;
    Trouble trouble_;
};

}  // namespace

std::size_t staging_bytes(const std::deque<Exchange::Part>& parts) {
    std::size_t bytes = no_share_bytes;
    for (const Exchange::Part& part : parts) bytes = place_of_next(bytes, part);
    return bytes;
}

Result<std::unique_ptr<Operation>> stage_messages(std::shared_ptr<const StagingArea> area,
                                                  device::PinnedPool::Piece memory,
                                                  std::deque<Exchange::Part>& parts) {
    TUTTI_ASSIGN(device::Event fetched, device::Event::create(area->context));
    TUTTI_ASSIGN(device::Event stored, device::Event::create(area->context));
    TUTTI_ASSIGN(device::Event gone_on, device::Event::create(area->context));
    return std::make_unique<StagedMessages>(std::move(area), std::move(memory), parts,
                                            std::move(fetched), std::move(stored),
                                            std::move(gone_on));
}

}  // namespace tutti
