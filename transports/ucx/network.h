// The networks that a UCX context has opened, for the cost model. UCX's own estimates need an
// endpoint, and for sockets they state a link's nominal speed.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::ucx {

struct OpenedNetworks {
    bool sockets = false;         // between hosts there is nothing else
    bool sockets_within = false;  // nor within one
    bool cards = false;           // there are network cards that move data themselves
    double bandwidth_gbs = 0;     // of the fastest port that is not a socket; 0: not known
};

/// context: what ucp_context_print_info writes. adapters: where the kernel says how fast they are.
OpenedNetworks find_network(const std::string& context,
                            const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace tutti::ucx
