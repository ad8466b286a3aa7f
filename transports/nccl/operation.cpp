#include "transports/nccl/operation.h"

namespace tutti::nccl {

// A linked list through the operations themselves, so that a run does not allocate.
class Runs {
public:
    struct RunLink {
        RunLink* before = nullptr;
        RunLink* after = nullptr;
    };
    void add(RunLink& run) {
        const std::lock_guard lock(mutex_);
        run.before = last_;
        run.after = nullptr;
        (last_ ? last_->after : first_) = &run;
        last_ = &run;
    }
    void remove(RunLink& run) {
        const std::lock_guard lock(mutex_);
        (run.before ? run.before->after : first_) = run.after;
        (run.after ? run.after->before : last_) = run.before;
    }
    bool empty() {
        const std::lock_guard lock(mutex_);
        return first_ == nullptr;
    }
    bool is_first(const RunLink& run) {
        const std::lock_guard lock(mutex_);
        return first_ == &run;
    }

private:
    std::mutex mutex_;
    RunLink* first_ = nullptr;
    RunLink* last_ = nullptr;
};

bool none(Runs& runs) {
    return runs.empty();
}

std::shared_ptr<Runs> make_runs() {
    return std::make_shared<Runs>();
}

namespace {

class NcclOperation final : public DeviceOperation {
public:
    NcclOperation(std::shared_ptr<Membership> membership, std::shared_ptr<Runs> runs,
                  std::unique_ptr<DeviceStep> step, std::size_t ring, device::DeviceEvent done)
        : membership_(std::move(membership)),
          runs_(std::move(runs)),
          step_(std::move(step)),
          ring_(ring),
          done_(std::move(done)) {}
    ~NcclOperation() override { cancel(); }

    Result<> launch(const void* in, void* out, void* stream, const GiveUp& give_up) override {
        const device::Context::Scope current(membership_->context());
        callers_ = static_cast<device::StreamHandle>(stream);
        asked_ = true;
        auto launched = step_->enqueue(in, out, stream, give_up);
        if (launched && !membership_->gathers_launches()) launched = mark();
        if (!launched) membership_->stop();  // NCCL may have launched part of it
        return launched;
    }
    // Records the event here, because NCCL puts gathered launches on the stream only now.
    Result<> finish_part(uint32_t, void*, const GiveUp& give_up) override {
        const device::Context::Scope current(membership_->context());
        auto accepted = membership_->wait_accepted(ring_, give_up);
        if (accepted) accepted = mark();
        if (!accepted) membership_->stop();
        return accepted;
    }
    void start(const Tag&, const void*, void*) override { failure_ = {}; }

    Poll progress() override {
        if (!launched_) return Code::ok;
        const auto passed = done_.passed();
        // Kernels of an aborted communicator end too, but without a result.
        if (passed && *passed && !membership_->stopped()) {
            finish();
            return Code::ok;
        }
        const auto health = passed ? membership_->health() : tl::unexpected(passed.error());
        if (health) return Code::in_progress;
        failure_ = {health.error(), {}};
        return failure_;
    }
    bool may_cancel() override {
        return !launched_ || membership_->stopped() || runs_->is_first(link_);
    }
    void cancel() override {
        if (!asked_) return;
        const auto passed = launched_ ? done_.passed() : Result<bool>(false);
        if (!passed || !*passed) end_by_force();
        finish();
    }
    void arm(bool) override {}
    Rank waits_for() const override { return nobody; }

private:
    Result<> mark() {
        TUTTI_TRY(done_.record(callers_));
        runs_->add(link_);
        launched_ = true;
        return {};
    }
    // NCCL may have put part of a failed launch on the stream.
    void end_by_force() {
        membership_->stop();
        const device::Context::Scope current(membership_->context());
        if (launched_ || done_.record(callers_)) membership_->wait_to_let_go(done_);
    }
    void finish() {
        if (launched_) runs_->remove(link_);
        launched_ = asked_ = false;
    }

    const std::shared_ptr<Membership> membership_;
    const std::shared_ptr<Runs> runs_;
    const std::unique_ptr<DeviceStep> step_;
    const std::size_t ring_;
    const device::DeviceEvent done_;
    Runs::RunLink link_;
    Failure failure_;
    device::StreamHandle callers_ = nullptr;
    bool asked_ = false;     // NCCL was called, so the stream may have work of this run
    bool launched_ = false;  // the run is on the stream with its event recorded, and not known to
                             // have ended
};

class NcclRun final : public DeviceRun {
public:
    NcclRun(std::shared_ptr<Membership> membership, std::shared_ptr<Runs> runs)
        : membership_(std::move(membership)), runs_(std::move(runs)) {}
    ~NcclRun() override { end(); }
    Result<> wait_accepted(const DeviceOperation::GiveUp& give_up) override {
        for (std::size_t ring = 0; ring < membership_->rings(); ++ring)
            TUTTI_TRY(membership_->wait_accepted(ring, give_up));
        return {};
    }
    void begin() override {
        runs_->add(link_);
        begun_ = true;
    }
    void end() override {
        if (begun_) runs_->remove(link_);
        begun_ = false;
    }
    bool may_cancel() override {
        return !begun_ || membership_->stopped() || runs_->is_first(link_);
    }
    Result<> health() override { return membership_->health(); }
    void stop() override { membership_->stop(); }

private:
    const std::shared_ptr<Membership> membership_;
    const std::shared_ptr<Runs> runs_;
    Runs::RunLink link_;
    bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<DeviceOperation>> make_operation(std::shared_ptr<Membership> membership,
                                                        std::shared_ptr<Runs> runs,
                                                        std::unique_ptr<DeviceStep> step,
                                                        std::size_t ring) {
    TUTTI_ASSIGN(device::DeviceEvent done, device::DeviceEvent::create(membership->context()));
    return std::make_unique<NcclOperation>(std::move(membership), std::move(runs), std::move(step),
                                           ring, std::move(done));
}

std::unique_ptr<DeviceRun> make_run(std::shared_ptr<Membership> membership,
                                    std::shared_ptr<Runs> runs) {
    return std::make_unique<NcclRun>(std::move(membership), std::move(runs));
}

}  // namespace tutti::nccl
