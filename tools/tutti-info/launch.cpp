#include "rendezvous/launch.h"

#include <cstdlib>

#include "rendezvous/rendezvous.h"
#include "sections.h"

namespace tutti::info {

Section look_at_launch(const Tree&) {
    Section out;
    const Launch launch = detect_launch(std::getenv);
    const auto config = config_of_process();
    if (!config) out.advice.push_back(error_text(config.error()));
    if (!launch.launcher.empty()) {
        out.facts.push_back(fact("launcher", std::string(launch.launcher)));
        out.facts.push_back(
            fact("rank", config ? fmt::format("{} of {}", config->rank, config->size) : "unknown"));
        out.facts.push_back({"ranks on this host", launch.here,
                             launch.here > 0 ? std::to_string(launch.here) : "not said"});
        if (!launch.hosts.empty()) out.facts.push_back(fact("hosts", launch.hosts));
    }
    const bool set = config && !config->store.empty();
    out.facts.push_back(
        fact("store", set ? fmt::format("{} says {}", config->said.store, config->store)
                          : describe_meeting(launch)));
    return out;
}

}  // namespace tutti::info
