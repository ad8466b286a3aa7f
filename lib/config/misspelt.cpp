#include "config/misspelt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "config/config.h"

namespace tutti {
namespace {

constexpr std::string_view prefix = "TUTTI_";
constexpr std::size_t longest_name = 40;

// Variables of tutti's that are not settings of a communicator.
constexpr std::string_view others[] = {
    "TUTTI_AS_GLOO",     "TUTTI_CACHE_DIR",     "TUTTI_EXECUTION",      "TUTTI_RUN_TERMINAL",
    "TUTTI_TORCH_BUILD", "TUTTI_TRAINER_CHECK", "TUTTI_TRAINER_THREADS"};

// Usual mistakes: a written name, and the setting that it means.
struct Mistake {
    std::string_view written, meant;
};
constexpr Mistake mistakes[] = {
    {"TUTTI_ALGORITHM", "TUTTI_ALGO"},  {"TUTTI_INTERFACE", "TUTTI_IFACE"},
    {"TUTTI_LOG_LEVEL", "TUTTI_LOG"},   {"TUTTI_LOGLEVEL", "TUTTI_LOG"},
    {"TUTTI_NUM_RANKS", "TUTTI_SIZE"},  {"TUTTI_NUM_RINGS", "TUTTI_NRINGS"},
    {"TUTTI_STORE_URL", "TUTTI_STORE"}, {"TUTTI_TIMEOUT", "TUTTI_TIMEOUT_MS"},
    {"TUTTI_WORLD_RANK", "TUTTI_RANK"}, {"TUTTI_WORLD_SIZE", "TUTTI_SIZE"},
};

std::vector<std::string> known_names() {
    std::vector<std::string> names(std::begin(others), std::end(others));
    for (const ConfigKey& key : config_keys()) names.push_back(variable_of(key.name));
    return names;
}

// The number of letters to add, drop, replace, or exchange with their neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
    using Row = std::array<std::size_t, longest_name + 1>;
    Row before{}, last{}, row{};
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        before = last;
        last = row;
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
    }
    return row[b.size()];
}

// Two letters of a long name; one of a short one, which otherwise resembles other words.
std::size_t most_letters(std::string_view name) {
    constexpr std::size_t long_name = prefix.size() + 8;
    return name.size() >= long_name ? 2 : 1;
}

// "": the name resembles no setting.
std::string meant_by(std::string_view written, const std::vector<std::string>& known) {
    for (const Mistake& mistake : mistakes)
        if (mistake.written == written) return std::string(mistake.meant);
    std::string nearest;
    if (written.size() > longest_name) return nearest;
    std::size_t least = longest_name;
    for (const std::string& name : known) {
        const std::size_t letters = distance(written, name);
        if (letters > most_letters(name) || letters >= least) continue;
        least = letters;
        nearest = name;
    }
    return nearest;
}

}  // namespace

std::vector<Error> misspelt_variables(const char* const* environment) {
    const std::vector<std::string> known = known_names();
    std::vector<Error> found;
    for (; environment && *environment; ++environment) {
        const std::string_view entry = *environment;
        if (!entry.starts_with(prefix)) continue;
        const std::string_view written = entry.substr(0, entry.find('='));
        if (std::find(known.begin(), known.end(), written) != known.end()) continue;
        if (const std::string meant = meant_by(written, known); !meant.empty())
            found.push_back(fail(Code::invalid,
                                 "{} is set but has no effect: tutti has no such variable",
                                 written)
                                .advice("set {} instead, or unset {}", meant, written)
                                .value());
    }
    return found;
}

}  // namespace tutti
