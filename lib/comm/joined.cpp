#include "comm/joined.h"

#include <string>

#include "base/log.h"
#include "base/version.h"

namespace tutti {
namespace {

std::string plural(Rank count, std::string_view word) {
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

// The wires and the ranks that they connect: "shm within hosts, tcp between them".
std::string ways(const SelectionInput& input) {
    if (input.one_host) return fmt::format("{} within the host", input.wire);
    const auto last = input.wire.rfind('+');
    if (last == std::string::npos) return fmt::format("{} between all ranks", input.wire);
    return fmt::format("{} within hosts, {} between them", input.wire.substr(0, last),
                       input.wire.substr(last + 1));
}

std::string choices(const Endpoint& endpoint, const SelectionInput& input) {
    const Tuning& tuning = endpoint.tuning();
    std::string text;
    if (const std::string& algo = endpoint.config().algo; !algo.empty())
        text = fmt::format("{} where it fits (TUTTI_ALGO), else ", algo);
    if (tuning.rules.size() + tuning.constants.size() > 0)
        return text + fmt::format("as tuning file '{}' has it ({} choices, {} sets of constants)",
                                  tuning.file, tuning.rules.size(), tuning.constants.size());
    if (endpoint.fitted(input.wire)) return text + "by what was measured just now (TUTTI_FIT_MS)";
    text += "by the built-in constants";
    if (!endpoint.config().tuning.empty())
        text +=
            fmt::format(": tuning file '{}' has none for this machine", endpoint.config().tuning);
    return text;
}

}  // namespace

void log_joined(const Communicator& comm, const Endpoint& endpoint, int64_t took_ms) {
    if (!log::enabled(log::Level::info)) return;
    if (comm.size() == 1) return log::info("tutti {}: a job of one rank", version());
    const SelectionInput& input = comm.planner().selection_input();
    const Hosts& hosts = comm.hosts();
    if (comm.rank() == 0)
        log::info(
            "tutti {}: job '{}' of {} on {} is complete after {} ms; data goes over {}; "
            "algorithms are chosen {}",
            version(), endpoint.config().job, plural(comm.size(), "rank"),
            plural(hosts.count(), "host"), took_ms, ways(input), choices(endpoint, input));
    const Rank host = hosts.host_of(comm.rank());
    log::info("rank {} of {}: on host {} of {}, which has {}", comm.rank(), comm.size(), host,
              hosts.count(), plural(hosts.size_of(host), "rank"));
}

}  // namespace tutti
