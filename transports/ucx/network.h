// What UCX has between hosts, for the cost model. UCX's own estimates need an endpoint, and of
// sockets they state a link's nominal speed.
#pragma once

#include <filesystem>
#include <string_view>

namespace tutti::ucx {

struct Network {
    bool sockets = false;
    double bandwidth_gbs = 0;  // of the fastest active port; 0: not known
};

/// transports: what UCX_TLS says, empty: nothing. devices: where the kernel lists those that move
/// data themselves.
Network find_network(std::string_view transports,
                     const std::filesystem::path& devices = "/sys/class/infiniband");

}  // namespace tutti::ucx
