// Finds a store for ranks that were given none, from their launcher's variables.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/launch.h"
#include "rendezvous/store.h"

namespace tutti {

struct RendezvousPlace {
    std::string url, secret;
    std::string iface;             // on which all ranks can be reached; empty: any
    std::string job;               // replaces the setting; empty: the setting holds
    bool hosted = false;           // one of the ranks serves it, as long as its process lives
    std::shared_ptr<Store> store;  // opened already; nullptr: open the url
};

/// invalid: the error says what to set. One rank serves the store; the other ranks wait for it
/// until the deadline.
Result<RendezvousPlace> find_rendezvous(const Config& config, const GetEnv& get_env,
                                        Deadline deadline);

/// For people: the way that find_rendezvous would take.
std::string describe_meeting(const Launch& launch);

/// The first of the ports that a job tries under Slurm, in order.
uint16_t first_port(const std::string& identity);
inline constexpr int port_choices = 16;

}  // namespace tutti
