// The advice for a peer on another host that listens on its loopback only.
#pragma once

#include <string_view>

namespace tutti {

inline constexpr std::string_view hidden_peer_advice =
    "set TUTTI_IFACE on the host of that rank to an interface or address that other hosts reach "
    "(no name of 127.…), and set TUTTI_SECRET, without which ranks listen on loopback only";

}  // namespace tutti
