#include "gpu/staged_messages.h"

#include <cstring>

#include "cuda/stream_work.h"

namespace tutti {
namespace {

// One cache line each. The device writes sends_fetched: all sends are copied to pinned memory, so
// direct receives may write device memory. The host writes messages_come: the number of awaited
// messages that are over. The device writes receives_stored: all receives are copied to the device.
// The messages follow.
enum MessageWord : std::size_t { sends_fetched, messages_come, receives_stored, message_words };

std::size_t place_of_next(std::size_t at, const DeviceMessages::Part& part) {
    return at + round_up(part.pinned_bytes, no_share_bytes);
}

class StagedMessages final : public DeviceOperation {
public:
    StagedMessages(std::shared_ptr<const StagingArea> area, device::PinnedPool::Lease memory,
                   std::deque<DeviceMessages::Part>& parts, device::DeviceEvent kept,
                   device::DeviceEvent stored)
        : area_(std::move(area)),
          memory_(std::move(memory)),
          kept_(std::move(kept)),
          stored_(std::move(stored)) {
        for (const MessageWord which : {sends_fetched, messages_come, receives_stored})
            device::store_word(word(which), 0);
        std::size_t at = message_words * no_share_bytes;
        for (DeviceMessages::Part& part : parts) {
            Transfer& message = part.on_host;
            std::byte* const pinned = memory_->data() + at;
            at = place_of_next(at, part);
            message.memory = part.direct ? part.asked.message.memory : pinned;
            message.on_device = part.direct;
            message.held = message.sends || part.direct;
            if (part.direct && !message.sends)
                message.recv_target = &pinned_targets_.emplace_back(*this, pinned);
            if (message.sends) sends_.push_back(&part);
            // The stream waits for a direct send, but not for one that is sent from a copy.
            if (!message.sends || part.direct) awaited_.push_back(&part);
        }
    }
    ~StagedMessages() override { cancel(); }

    // Puts all work on the caller's stream now, as staged operations do: each receive's copy behind
    // a wait for the host's word. A direct message has only the wait.
    Result<> launch(const void*, void*, void* stream, const GiveUp& give_up) override {
        TUTTI_TRY(launch_part(0, nullptr, nullptr, stream, give_up));
        TUTTI_TRY(mark_part(0, stream));
        return finish_part(0, stream, give_up);
    }
    // All gathered sends go onto the stream before any receive's wait. Otherwise two ranks that
    // both call their receives first would wait for each other's sends.
    Result<> launch_part(uint32_t, const void*, void*, void* stream, const GiveUp&) override {
        const device::Context::Scope current(area_->context);
        callers_ = static_cast<device::StreamHandle>(stream);
        phase_ = Phase::fetching;
        health_.note_progress();
        return cancel_unless(put_copies());
    }
    // No direct message may arrive on the device before all sends of the batch are copied.
    Result<> mark_part(uint32_t, void*) override {
        const device::Context::Scope current(area_->context);
        return cancel_unless(device::write_word(driver(), callers_, word(sends_fetched), 1));
    }
    Result<> finish_part(uint32_t, void*, const GiveUp&) override {
        const device::Context::Scope current(area_->context);
        return cancel_unless(put_waits());
    }
    void start(const Tag&, const void*, void*) override {}

    Poll progress() override {
        moved_ = false;
        if (!failed())
            if (const auto advanced = advance(); !advanced) fail(advanced.error());
        if (failed()) return failure_;
        return {phase_ == Phase::idle ? Code::ok : Code::in_progress, moved_};
    }
    void cancel() override {
        if (phase_ == Phase::idle) return;
        if (copied_beside_) device::wait_a_while(kept_);
        run_out();
        phase_ = Phase::idle;
    }
    void arm(bool) override {}
    Rank waits_for() const override { return nobody; }

private:
    enum class Phase : uint8_t { idle, fetching, waiting, storing };

    // Pinned memory for a direct receive whose message arrives in host memory instead.
    class PinnedRecvTarget final : public RecvTarget {
    public:
        PinnedRecvTarget(StagedMessages& all, std::byte* pinned) : all_(all), pinned_(pinned) {}
        void keep(const std::byte* from, std::size_t bytes) override {
            std::memcpy(pinned_, from, bytes);
        }
        bool copy_in(std::byte* to, const std::byte* from, std::size_t bytes) override {
            if (all_.failed()) return false;
            if (!begun_) keep(from, bytes);
            const auto there = all_.copy_beside(begun_, to, pinned_, bytes);
            if (!there) all_.fail(there.error());
            return there && *there;
        }
        const std::byte* kept() const { return pinned_; }

    private:
        StagedMessages& all_;
        std::byte* const pinned_;
        bool begun_ = false;
    };

    const device::Driver& driver() const { return area_->context.driver(); }
    uint32_t& word(MessageWord which) const {
        return *reinterpret_cast<uint32_t*>(memory_->data() + which * no_share_bytes);
    }
    bool there(MessageWord which) const { return device::load_word(word(which)) != 0; }

    Result<> put_copies() {
        for (const DeviceMessages::Part* send : sends_)
            if (!send->direct)
                TUTTI_TRY(device::copy(driver(), send->on_host.memory, send->asked.message.memory,
                                       send->on_host.bytes, callers_));
        return {};
    }
    Result<> put_waits() {
        uint32_t come = 0;
        for (const DeviceMessages::Part* part : awaited_) {
            const Transfer& message = part->on_host;
            const bool flush = part->direct && !message.sends;
            TUTTI_TRY(device::hold_until(driver(), callers_, word(messages_come), ++come, flush));
            if (!part->direct)
                TUTTI_TRY(device::copy(driver(), part->asked.message.memory, message.memory,
                                       message.bytes, callers_));
        }
        // Only if there are awaited messages: otherwise the pinned memory may be reused by then.
        if (!awaited_.empty())
            TUTTI_TRY(device::write_word(driver(), callers_, word(receives_stored), 1));
        TUTTI_TRY(stored_.record(callers_));
        marked_ = true;
        return {};
    }
    Result<> cancel_unless(Result<> put) {
        if (!put) run_out();
        return put;
    }
    /// Waits for the work that is already on the stream, which uses the caller's buffers.
    void run_out() {
        release();
        if (!marked_) {
            const device::Context::Scope current(area_->context);
            marked_ = stored_.record(callers_).has_value();
        }
        if (marked_) device::wait_a_while(stored_);
    }

    Result<> advance() {
        if (phase_ == Phase::fetching) {
            // Pairs with the device's write of the word, after its copies of the sends.
            if (!there(sends_fetched)) return check_device();
            for (DeviceMessages::Part* send : sends_) send->on_host.held = false;
            for (DeviceMessages::Part* part : awaited_) part->on_host.held = false;
            enter(awaited_.empty() ? Phase::idle : Phase::waiting);
        }
        if (phase_ == Phase::waiting) {
            TUTTI_TRY(let_go_what_is_over());
            if (arrived_ < awaited_.size()) return check_device();
            enter(Phase::storing);
        }
        if (phase_ == Phase::storing) {
            if (!there(receives_stored)) return check_device();
            enter(Phase::idle);
        }
        return {};
    }

    Result<> let_go_what_is_over() {
        while (arrived_ < awaited_.size() && awaited_[arrived_]->on_host.done()) {
            TUTTI_ASSIGN(const bool whole, is_whole(*awaited_[arrived_]));
            if (!whole) return {};
            device::store_word(word(messages_come), ++arrived_);
            moved_ = true;
        }
        return {};
    }

    Result<bool> is_whole(const DeviceMessages::Part& part) {
        const Transfer& message = part.on_host;
        std::size_t came = 0;
        if (message.code.load(std::memory_order_acquire) == Code::ok)
            came = message.received.count * dtype_bytes(message.dtype);
        std::byte* const asked = part.asked.message.memory;
        if (!part.direct) {
            // The stream's copy has the length of the receive. If the message is shorter, fill the
            // rest with the bytes that the device has there; they do not change while the caller's
            // stream waits.
            if (came == message.bytes) return true;
            return copy_beside(begun_, message.memory + came, asked + came, message.bytes - came);
        }
        // An announced message is on the device already; others were kept in pinned memory.
        if (message.sends || message.total > 0 || came == 0) return true;
        return copy_beside(begun_, asked,
                           static_cast<const PinnedRecvTarget*>(message.recv_target)->kept(), came);
    }

    /// True once the copy is done; call it again until then.
    Result<bool> copy_beside(bool& begun, std::byte* to, const std::byte* from, std::size_t bytes) {
        if (begun) {
            TUTTI_ASSIGN(const bool there, kept_.passed());
            begun = !there;
            return there;
        }
        const device::Context::Scope current(area_->context);
        TUTTI_TRY(device::copy(driver(), to, from, bytes, area_->aside.handle()));
        copied_beside_ = true;
        TUTTI_TRY(kept_.record(area_->aside.handle()));
        begun = true;
        return false;
    }

    void enter(Phase phase) {
        phase_ = phase;
        moved_ = true;
    }

    bool failed() const { return failure_.error.code != Code::ok; }
    void fail(const Error& error) {
        failure_.error = {error.code, nobody, 0, error.message, error.advice};
    }

    /// Lets the caller's stream continue, also after a failure.
    void release() {
        device::store_word(word(messages_come), static_cast<uint32_t>(awaited_.size()));
    }

    /// Detects a failed device, which would never write its word.
    Result<> check_device() {
        if (moved_) health_.note_progress();
        if (moved_ || !health_.due()) return {};
        const auto asked = stored_.passed();
        return asked ? Result<>{} : tl::unexpected(asked.error());
    }

    const std::shared_ptr<const StagingArea> area_;
    const device::PinnedPool::Lease memory_;
    const device::DeviceEvent kept_, stored_;
    std::vector<DeviceMessages::Part*> sends_, awaited_;
    std::deque<PinnedRecvTarget> pinned_targets_;
    uint32_t arrived_ = 0;        // awaited messages that are over, as the stream was told
    bool begun_ = false;          // the copy_beside() for the next awaited message
    bool copied_beside_ = false;  // copy_beside() was used
    device::StreamHandle callers_ = nullptr;
    bool marked_ = false;  // stored_ is on the stream
    Phase phase_ = Phase::idle;
    bool moved_ = false;
    device::HealthLook health_;
    Failure failure_;
};

}  // namespace

std::size_t staging_bytes(const std::deque<DeviceMessages::Part>& parts) {
    std::size_t bytes = message_words * no_share_bytes;
    for (const DeviceMessages::Part& part : parts) bytes = place_of_next(bytes, part);
    return bytes;
}

Result<std::unique_ptr<DeviceOperation>> stage_messages(std::shared_ptr<const StagingArea> area,
                                                        device::PinnedPool::Lease memory,
                                                        std::deque<DeviceMessages::Part>& parts) {
    TUTTI_ASSIGN(device::DeviceEvent kept, device::DeviceEvent::create(area->context));
    TUTTI_ASSIGN(device::DeviceEvent stored, device::DeviceEvent::create(area->context));
    return std::make_unique<StagedMessages>(std::move(area), std::move(memory), parts,
                                            std::move(kept), std::move(stored));
}

}  // namespace tutti
