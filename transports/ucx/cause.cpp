#include "transports/ucx/cause.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/clock.h"

namespace tutti::ucx {
namespace {

constexpr int64_t kept_ns = 1'000'000'000;
constexpr std::size_t most_kept = 16;
// With a lower limit, registering memory with a network card soon fails.
constexpr rlim_t enough_locked_bytes = rlim_t{64} << 20;
// Words of UCX's messages about memory that a network card could not register.
constexpr std::array of_cards = {"ibv_", "mlock", "MEMLOCK", "ulimit"};

struct Logged {
    int64_t at_ns = 0;
    std::string text;
};
// Ordered by time.
std::vector<Logged>& logged() {
    static thread_local std::vector<Logged> logged;
    return logged;
}

std::string locked_memory() {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= enough_locked_bytes) return "";
    return fmt::format(
        " (this process may lock {} KiB of memory, `ulimit -l`; network cards that move data "
        "themselves need more)",
        limit.rlim_cur / 1024);
}

}  // namespace

void note_error(std::string_view text) {
    const int64_t now = now_ns();
    std::erase_if(logged(), [&](const Logged& one) { return now - one.at_ns > kept_ns; });
    if (logged().size() < most_kept) logged().push_back({now, std::string(text)});
}

std::string cause_since(int64_t start_ns) {
    const auto first = std::find_if(logged().begin(), logged().end(),
                                    [&](const Logged& one) { return one.at_ns >= start_ns; });
    if (first == logged().end()) return locked_memory();
    const bool card = std::any_of(of_cards.begin(), of_cards.end(), [&](const char* word) {
        return first->text.find(word) != std::string::npos;
    });
    return fmt::format(" (UCX says: {}){}", first->text, card ? locked_memory() : "");
}

}  // namespace tutti::ucx
