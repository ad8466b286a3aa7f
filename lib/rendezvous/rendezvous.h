// A store for ranks that were given none: made out of what their launcher says.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/launch.h"
#include "rendezvous/store.h"

namespace tutti {

struct RendezvousPlace {
    std::string url, secret;
    std::string iface;             // on which all ranks are reached; empty: any
    std::string job;               // instead of the setting; empty: as it is
    bool hosted = false;           // by one of the ranks, for as long as its process lives
    std::shared_ptr<Store> store;  // opened already; nullptr: at that url
};

/// invalid: says what to set. One rank serves the store; the others wait for it to the deadline.
Result<RendezvousPlace> find_rendezvous(const Config& config, const GetEnv& get_env,
                                        Deadline deadline);

/// For people: what find_rendezvous would do.
std::string describe_meeting(const Launch& launch);

/// Slurm's ports for a job: those from this one on are tried, in order.
uint16_t first_port(const std::string& identity);
inline constexpr int port_choices = 16;

}  // namespace tutti
