// The networks that a UCX context has opened, for the cost model. UCX's own estimates need an
// endpoint, and for sockets they state a link's nominal speed.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::ucx {

struct OpenedNetworks {
    bool sockets = false;         // all data between hosts goes over sockets
    bool sockets_within = false;  // and within a host too
    bool cards = false;           // some network cards move data without the processor
    double bandwidth_gbs = 0;     // of the fastest port that is not a socket; 0: unknown
};

/// context: the output of ucp_context_print_info. adapters: the folder in which the kernel reports
/// their speed.
OpenedNetworks find_network(const std::string& context,
                            const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace tutti::ucx
