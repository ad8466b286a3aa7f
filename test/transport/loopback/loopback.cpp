// The loopback transport: the fabric's engine over loopback ports.
#include "fabric/fabric.h"
#include "transport/joined.h"
#include "transport/loopback/port.h"

namespace tutti::test {
namespace {

class Factory final : public fabric::PortFactory {
public:
    std::string_view name() const override { return "loopback"; }
    std::string version() const override { return "1"; }
    std::string path() const override { return "queues"; }
    Result<std::unique_ptr<fabric::Port>> open(fabric::PortEvents& events) override {
        return std::make_unique<LoopbackPort>(events);
    }
};

}  // namespace

std::unique_ptr<Transport> make_loopback_transport(const TransportContext& context) {
    return fabric::make_fabric_transport(context, std::make_unique<Factory>(),
                                         {.name = "loopback"});
}

}  // namespace tutti::test
