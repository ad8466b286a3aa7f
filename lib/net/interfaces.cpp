#include "net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net {

bool Interface::is_link_local() const {
    if (is_v4()) return false;
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    return IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

Result<std::vector<Interface>> list_interfaces(bool link_local) {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return fail_errno(errno, "cannot list the network interfaces");
    std::vector<Interface> out;
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        const int family = i->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        Interface one{.name = i->ifa_name,
                      .address = {},
                      .up = (i->ifa_flags & IFF_UP) != 0,
                      .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0};
        one.address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&one.address.storage, i->ifa_addr, one.address.bytes);
        if (one.is_link_local() == link_local) out.push_back(one);
    }
    freeifaddrs(first);
    std::stable_partition(out.begin(), out.end(), [](const auto& i) { return i.is_v4(); });
    return out;
}

}  // namespace tutti::net
