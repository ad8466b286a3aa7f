#include "transports/ucx/network.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>

namespace tutti::ucx {
namespace {

constexpr std::array shared_memory = {"posix", "sysv", "cma", "xpmem", "knem"};
// These reach no other process, or only devices' memory.
constexpr std::array others = {"self", "cuda", "gdr_copy", "rocm", "ze_", "gaudi"};
constexpr double gbs_of_gigabit = 0.125;

bool begins_with_one_of(std::string_view transport, const auto& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return transport.starts_with(name); });
}

/// "mlx5_0:1": the file says "100 Gb/sec (4X EDR)".
double bandwidth_of(std::string_view device, const std::filesystem::path& adapters) {
    const std::size_t colon = device.find(':');
    if (colon == std::string_view::npos) return 0;
    std::ifstream in(adapters / device.substr(0, colon) / "ports" / device.substr(colon + 1) /
                     "rate");
    std::string rate;
    std::getline(in, rate);
    double gigabits = 0;  // not atof: the program's locale may use a decimal comma
    std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
    return gigabits * gbs_of_gigabit;
}

}  // namespace

// One line each: "#      resource 1  :  md 1  dev 1  flags -- tcp/eth0".
OpenedNetworks find_network(const std::string& context, const std::filesystem::path& adapters) {
    OpenedNetworks network;
    bool tcp = false, shared = false;
    std::istringstream lines(context);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t slash = line.rfind('/');
        if (line.find("resource ") == std::string::npos || slash == std::string::npos) continue;
        const std::size_t name = line.rfind(' ', slash) + 1;
        const std::string_view transport = std::string_view(line).substr(name, slash - name);
        if (begins_with_one_of(transport, others)) continue;
        if (transport == "tcp") {
            tcp = true;
        } else if (begins_with_one_of(transport, shared_memory)) {
            shared = true;
        } else {
            network.cards = true;
            network.bandwidth_gbs =
                std::max(network.bandwidth_gbs,
                         bandwidth_of(std::string_view(line).substr(slash + 1), adapters));
        }
    }
    network.sockets = tcp && !network.cards;
    network.sockets_within = network.sockets && !shared;
    return network;
}

}  // namespace tutti::ucx
