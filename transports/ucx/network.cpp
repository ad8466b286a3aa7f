#include "transports/ucx/network.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace tutti::ucx {
namespace {

constexpr std::array rdma_transports = {"ib", "rc", "ud", "dc", "srd"};
constexpr double gbs_of_gigabit = 0.125;

std::vector<std::string_view> words_of(std::string_view list) {
    std::vector<std::string_view> words;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(','), list.size());
        words.push_back(list.substr(0, end));
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return words;
}

// "rc_x" and "rc" are both rc.
bool is_rdma(std::string_view transport) {
    return std::any_of(rdma_transports.begin(), rdma_transports.end(), [&](std::string_view one) {
        return transport == one || (transport.starts_with(one) && transport[one.size()] == '_');
    });
}

std::string first_line(const std::filesystem::path& file) {
    std::string line;
    std::ifstream in(file);
    std::getline(in, line);
    return line;
}

/// "4: ACTIVE" and "100 Gb/sec (4X EDR)".
double bandwidth_of(const std::filesystem::path& port) {
    if (!first_line(port / "state").starts_with("4")) return 0;
    return std::atof(first_line(port / "rate").c_str()) * gbs_of_gigabit;
}

std::vector<std::filesystem::path> entries(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (std::filesystem::directory_iterator i(folder, error), end; !error && i != end;
         i.increment(error))
        found.push_back(i->path());
    return found;
}

}  // namespace

Network find_network(std::string_view transports, const std::filesystem::path& devices) {
    Network network;
    const auto adapters = entries(devices);
    for (const auto& adapter : adapters)
        for (const auto& port : entries(adapter / "ports"))
            network.bandwidth_gbs = std::max(network.bandwidth_gbs, bandwidth_of(port));
    network.sockets = adapters.empty();
    // A list says what may be used, or, after ^, what may not; "all" is no limit.
    const auto words = words_of(transports);
    if (words.empty() || words.front().starts_with('^')) return network;
    const auto has = [&](auto is) { return std::any_of(words.begin(), words.end(), is); };
    if (has([](std::string_view word) { return word == "all"; })) return network;
    network.sockets = has([](std::string_view word) { return word == "tcp"; }) &&
                      (adapters.empty() || !has(is_rdma));
    if (network.sockets) network.bandwidth_gbs = 0;
    return network;
}

}  // namespace tutti::ucx
