// Ports over UCX alone, without what the transport sets.
#pragma once

#include "transport/ports.h"
#include "transports/ucx/port.h"

namespace tutti::test {

/// Ports over UCX whose functions a test may replace.
class PlainFactory final : public fabric::PortFactory {
public:
    explicit PlainFactory(const ucx::Library& library) : library_(library) {}
    std::string_view name() const override { return "ucx"; }
    std::string version() const override { return library_.version; }
    std::string path() const override { return "all"; }
    Result<std::unique_ptr<Port>> open(fabric::PortEvents& events) override {
        ucp_config_t* config = nullptr;
        REQUIRE(library_.ucp_config_read(nullptr, nullptr, &config) == UCS_OK);
        library_.ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        ucp_context_h context = nullptr;
        REQUIRE(library_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                                          &context) == UCS_OK);
        library_.ucp_config_release(config);
        auto port = std::make_unique<ucx::UcxPort>(library_, events);
        TUTTI_TRY(port->open(context));
        return port;
    }

private:
    const ucx::Library& library_;
};

inline MakeFactory plain_ucx(const ucx::Library& library) {
    return [&](Rank) -> Result<std::unique_ptr<fabric::PortFactory>> {
        return std::make_unique<PlainFactory>(library);
    };
}

inline const ucx::Library& ucx_library() {
    const auto found = ucx::load_library();
    REQUIRE(found);
    return **found;
}

}  // namespace tutti::test
