// The plain transport: the fabric's engine over message ports, and these over plain messengers.
#include "transport/plain/plain.h"

#include "fabric/fabric.h"
#include "transport/joined.h"

namespace tutti::test {
namespace {

class PlainFactory final : public fabric::PortFactory {
public:
    PlainFactory(Rank rank, Rank size) : rank_(rank), size_(size) {}
    std::string_view name() const override { return "plain"; }
    std::string version() const override { return "1"; }
    std::string path() const override { return "memory"; }
    Result<std::unique_ptr<fabric::Port>> open(fabric::PortEvents& events) override {
        auto port = std::make_unique<PlainPort>(rank_, size_, events);
        TUTTI_TRY(port->open());
        return port;
    }

private:
    const Rank rank_, size_;
};

}  // namespace

Result<std::unique_ptr<fabric::PortFactory>> make_plain_factory(Rank rank, Rank size) {
    return std::make_unique<PlainFactory>(rank, size);
}

std::unique_ptr<Transport> make_plain_transport(const TransportContext& context) {
    return fabric::make_fabric_transport(context, make_plain_factory(context.rank, context.size),
                                         {.name = "plain"});
}

}  // namespace tutti::test
