#include "comm/joined.h"

#include <string>

#include "base/log.h"
#include "base/version.h"

namespace tutti {
namespace {

std::string plural(Rank count, std::string_view word) {
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

// Over what, and where that is: "shm within hosts, tcp between them".
std::string ways(const SelectionInput& terrain) {
    if (terrain.one_host) return fmt::format("{} within the host", terrain.wire);
    const auto last = terrain.wire.rfind('+');
    if (last == std::string::npos) return fmt::format("{} between all ranks", terrain.wire);
    return fmt::format("{} within hosts, {} between them", terrain.wire.substr(0, last),
                       terrain.wire.substr(last + 1));
}

std::string choices(const Endpoint& endpoint, const SelectionInput& terrain) {
    const Tuning& tuning = endpoint.tuning();
    std::string text;
    if (const std::string& algo = endpoint.config().algo; !algo.empty())
        text = fmt::format("{} where it fits (TUTTI_ALGO), else ", algo);
    if (tuning.rules.size() + tuning.constants.size() > 0)
        return text + fmt::format("as tuning file '{}' has it ({} choices, {} sets of constants)",
                                  tuning.file, tuning.rules.size(), tuning.constants.size());
    if (endpoint.fitted(terrain.wire)) return text + "by what was measured just now (TUTTI_FIT_MS)";
    text += "by the built-in constants";
    if (!endpoint.config().tuning.empty())
        text +=
            fmt::format(": tuning file '{}' has none for this machine", endpoint.config().tuning);
    return text;
}

}  // namespace

void say_joined(const Communicator& comm, const Endpoint& endpoint, int64_t took_ms) {
    if (!log::enabled(log::Level::info)) return;
    if (comm.size() == 1) return log::info("tutti {}: a job of one rank", version());
    const SelectionInput& terrain = comm.planner().terrain();
    const Hosts& hosts = comm.hosts();
    if (comm.rank() == 0)
        log::info(
            "tutti {}: job '{}' of {} on {} is complete after {} ms; data goes over {}; "
            "algorithms are chosen {}",
            version(), endpoint.config().job, plural(comm.size(), "rank"),
            plural(hosts.count(), "host"), took_ms, ways(terrain), choices(endpoint, terrain));
    const Rank host = hosts.host_of(comm.rank());
    log::info("rank {} of {}: on host {} of {}, which has {}", comm.rank(), comm.size(), host,
              hosts.count(), plural(hosts.size_of(host), "rank"));
}

}  // namespace tutti
