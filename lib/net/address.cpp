#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

#include "net/interfaces.h"
#include "net/socket.h"

namespace tutti::net {
namespace {

// Tests by binding rather than by listing interfaces, because all of 127.0.0.0/8 is this machine's
// too.
bool is_own_address(const std::string& text) {
    const auto parsed = resolve({.host = text, .port = 0}, Deadline::after_ms(1));
    in6_addr scratch;
    const bool numeric = inet_pton(AF_INET, text.c_str(), &scratch) == 1 ||
                         inet_pton(AF_INET6, text.c_str(), &scratch) == 1;
    if (!numeric || !parsed || text == "0.0.0.0" || text == "::") return false;
    const SocketAddress& address = parsed->front();
    const UniqueFd probe(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return probe && bind(probe.get(), address.get(), address.bytes) == 0;
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
    const auto malformed = [&](std::string_view problem) {
        return fail(Code::invalid, "\"{}\" {}", text, problem)
            .advice("write host:port or [IPv6 address]:port, with a port from 0 to 65535");
    };
    HostPort out;
    std::string_view rest = text;
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end == std::string_view::npos) return malformed("has no closing bracket");
        out.host = text.substr(1, end - 1);
        rest = text.substr(end + 1);
    } else {
        const auto colon = text.find(':');
        out.host = text.substr(0, colon);
        rest = colon == std::string_view::npos ? "" : text.substr(colon);
        if (text.find(':', colon + 1) != std::string_view::npos && !rest.empty())
            return malformed("has more than one colon");
    }
    if (out.host.empty()) return malformed("has no host");
    if (!rest.starts_with(':')) return malformed("has no port");
    rest.remove_prefix(1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.port);
    if (error != std::errc{} || end != rest.data() + rest.size())
        return malformed("has no port number behind its colon");
    return out;
}

std::string format_host_port(const HostPort& address) {
    const bool brackets = address.host.find(':') != std::string::npos;
    return fmt::format(fmt::runtime(brackets ? "[{}]:{}" : "{}:{}"), address.host, address.port);
}

Result<std::string> choose_address(const AddressWish& wish) {
    const std::string& iface = wish.iface;
    if (iface.empty() && wish.loopback_only) return "127.0.0.1";
    if (iface.empty() && !wish.usual.empty()) return wish.usual;
    TUTTI_ASSIGN(const auto interfaces, list_interfaces());
    TUTTI_ASSIGN(const auto link_local, list_interfaces(true));
    // Uses a link-local address, which includes the interface's name, only if there is no other.
    for (const auto* const list : {&interfaces, &link_local}) {
        const auto found = std::find_if(list->begin(), list->end(), [&](const auto& i) {
            return iface.empty() ? i.up && !i.loopback : i.name == iface;
        });
        if (found != list->end()) return found->address.host();
    }
    if (iface.empty()) return "127.0.0.1";
    if (is_own_address(iface)) return iface;
    std::string known;
    for (const Interface& i : interfaces)
        known += fmt::format("{}{} ({}{})", known.empty() ? "" : ", ", i.name, i.address.host(),
                             i.up ? "" : ", down");
    return fail(Code::invalid, "this machine has no network interface or address \"{}\"", iface)
        .advice("set TUTTI_IFACE to one of: {}", known);
}

std::string address_towards(const HostPort& other, Deadline deadline) {
    const auto addresses = resolve(other, deadline);
    if (!addresses) return {};
    for (const SocketAddress& to : *addresses) {
        const UniqueFd probe(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (!probe || connect(probe.get(), to.get(), to.bytes) != 0) continue;
        SocketAddress own;
        own.bytes = sizeof own.storage;
        auto* const out = reinterpret_cast<sockaddr*>(&own.storage);
        if (getsockname(probe.get(), out, &own.bytes) == 0 && !own.is_loopback()) return own.host();
    }
    return {};
}

Result<bool> is_loopback(const std::string& host, Deadline deadline) {
    TUTTI_ASSIGN(const auto addresses, resolve({.host = host, .port = 0}, deadline));
    return std::all_of(addresses.begin(), addresses.end(),
                       [](const auto& a) { return a.is_loopback(); });
}

}  // namespace tutti::net
