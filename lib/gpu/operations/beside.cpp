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
    Result<> settle_part(uint32_t part, void* stream, const GiveUp& give_up) override {
        return device_->settle_part(part, stream, give_up);
    }
    bool may_cancel() override { return device_->may_cancel(); }
    void start(const Tag& tag, const void* in, void* out) override {
        agreed_ = false;
        started_ = true;
        failed_ = nullptr;
        device_->start(tag, in, out);
        fingerprint_->start(tag, nullptr, nullptr);
    }
    // What the ranks called comes first: the device's trouble may only follow from it.
    Code progress() override {
        if (!agreed_) {
            const Code code = fingerprint_->progress();
            agreed_ = code == Code::ok;
            started_ = !agreed_;
            if (code != Code::ok && code != Code::in_progress) return fail(*fingerprint_, code);
        }
        const Code code = device_->progress();
        if (code == Code::ok) return agreed_ ? Code::ok : Code::in_progress;
        return code == Code::in_progress ? code : fail(*device_, code);
    }
    bool moved() const override { return !agreed_ && fingerprint_->moved(); }
    const Trouble& trouble() const override {
        return failed_ ? failed_->trouble() : device_->trouble();
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
    Code fail(const Operation& operation, Code code) {
        failed_ = &operation;
        return code;
    }

    const std::unique_ptr<DeviceOperation> device_;
    const std::unique_ptr<Operation> fingerprint_;
    const Operation* failed_ = nullptr;
    bool started_ = false, agreed_ = false;  // the fingerprint's
};

}  // namespace

std::unique_ptr<DeviceOperation> beside(std::unique_ptr<DeviceOperation> device,
                                        std::unique_ptr<Operation> fingerprint) {
    return std::make_unique<Beside>(std::move(device), std::move(fingerprint));
}

}  // namespace tutti
