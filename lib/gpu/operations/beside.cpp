#include "gpu/operations/beside.h"

namespace tutti {
namespace {

class Beside final : public DeviceOperation {
public:
    Beside(std::unique_ptr<DeviceOperation> device, std::unique_ptr<Operation> fingerprint)
        : device_(std::move(device)), fingerprint_(std::move(fingerprint)) {}

    Result<> launch(const void* in, void* out, void* stream, const GiveUp& give_up) override {
        return device_->launch(in, out, stream, give_up);
    }
    Result<> finish_part(uint32_t part, void* stream, const GiveUp& give_up) override {
        return device_->finish_part(part, stream, give_up);
    }
    bool may_cancel() override { return device_->may_cancel(); }
    void start(const Tag& tag, const void* in, void* out) override {
        agreed_ = false;
        started_ = true;
        device_->start(tag, in, out);
        fingerprint_->start(tag, nullptr, nullptr);
    }
    // The fingerprint is checked first: a mismatch among ranks may be the cause of a device error.
    Poll progress() override {
        bool moved = false;
        if (!agreed_) {
            const Poll fingerprint = fingerprint_->progress();
            agreed_ = fingerprint.code == Code::ok;
            started_ = !agreed_;
            if (fingerprint.failure) return fingerprint;
            moved = fingerprint.moved;
        }
        const Poll device = device_->progress();
        if (device.failure) return device;
        const bool over = agreed_ && device.code == Code::ok;
        return {over ? Code::ok : Code::in_progress, moved};
    }
    void cancel() override {
        if (started_) fingerprint_->cancel();
        started_ = false;
        device_->cancel();
    }
    void arm(bool on) override { fingerprint_->arm(on); }
    Code health() const override { return fingerprint_->health(); }
    Rank waits_for() const override { return agreed_ ? nobody : fingerprint_->waits_for(); }

private:
    const std::unique_ptr<DeviceOperation> device_;
    const std::unique_ptr<Operation> fingerprint_;
    bool started_ = false, agreed_ = false;  // the fingerprint's
};

}  // namespace

std::unique_ptr<DeviceOperation> beside(std::unique_ptr<DeviceOperation> device,
                                        std::unique_ptr<Operation> fingerprint) {
    return std::make_unique<Beside>(std::move(device), std::move(fingerprint));
}

}  // namespace tutti
