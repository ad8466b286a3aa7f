// The flat exchange over a fabric, for whoever plans collectives.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/engine.h"
#include "transport/flat/flat_exchange.h"

namespace tutti::fabric {

class FlatProvider final : public IntrinsicProvider {
public:
    using Parse = std::function<Result<Address>(const PeerAddress&)>;
    FlatProvider(std::vector<std::shared_ptr<FabricEngine>> engines, Parse parse)
        : engines_(std::move(engines)), parse_(std::move(parse)) {}

    std::string_view name() const override { return flat_name; }
    std::string_view reference(Collective collective) const override {
        return collective == Collective::broadcast ? "" : flat_reference(collective);
    }
    Rank most_ranks() const override { return flat_max_ranks; }
    Result<std::unique_ptr<IntrinsicGroup>> join(const GroupRequest& group,
                                                 Deadline deadline) override;

private:
    const std::vector<std::shared_ptr<FabricEngine>> engines_;
    const Parse parse_;
};

}  // namespace tutti::fabric
