#include "transports/ofi/factory.h"

namespace tutti::ofi {
namespace {

class Factory final : public fabric::PortFactory {
public:
    Factory(InfoPtr info, const PortOptions& options) : info_(std::move(info)), options_(options) {}

    std::string_view name() const override { return "ofi"; }
    std::string version() const override { return library_version(); }
    std::string path() const override {
        return fmt::format("{}/{}", info_->fabric_attr->prov_name, info_->domain_attr->name);
    }
    Result<std::unique_ptr<fabric::Port>> open(fabric::PortEvents& events) override {
        return open_port(*info_, options_, events);
    }

private:
    const InfoPtr info_;
    const PortOptions options_;
};

}  // namespace

Result<std::unique_ptr<fabric::PortFactory>> make_factory(const PortOptions& options) {
    TUTTI_ASSIGN(InfoPtr info, choose_provider(options.wish));
    return std::make_unique<Factory>(std::move(info), options);
}

}  // namespace tutti::ofi
