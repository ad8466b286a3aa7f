#include "select/tuning.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/hash.h"
#include "collectives/catalog.h"
#include "config/small_file.h"
#include "transport/flat/flat_exchange.h"

namespace tutti {
namespace {

constexpr std::string_view choose_form =
    "choose COLLECTIVE WIRE ranks=2..4 bytes=0..64K [sums=2] ALGORITHM";
constexpr std::string_view constants_form = "constants WIRE hop_us=0.1 message_us=0.05 …";

std::vector<std::string_view> words_of(std::string_view line) {
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> words;
    for (;;) {
        const auto begin = line.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) return words;
        line.remove_prefix(begin);
        const auto end = std::min(line.find_first_of(" \t\r"), line.size());
        words.push_back(line.substr(0, end));
        line.remove_prefix(end);
    }
}

// "8", "64K", "1M", "2G"; "*" means no limit.
std::optional<std::size_t> parse_amount(std::string_view text) {
    if (text == "*") return std::numeric_limits<std::size_t>::max();
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) return {};
    const std::string_view unit(end, text.data() + text.size());
    const auto shift = unit.empty()  ? 0
                       : unit == "K" ? 10
                       : unit == "M" ? 20
                       : unit == "G" ? 30
                                     : -1;
    if (shift < 0 || value > std::numeric_limits<std::size_t>::max() >> shift) return {};
    return value << shift;
}

// "NAME=A..B" or "NAME=A"
Result<std::pair<std::size_t, std::size_t>> parse_range(std::string_view word,
                                                        std::string_view name) {
    const std::string_view text = word.substr(std::min(word.find('=') + 1, word.size()));
    const auto dots = text.find("..");
    const auto low = parse_amount(text.substr(0, dots));
    const auto high = dots == std::string_view::npos ? low : parse_amount(text.substr(dots + 2));
    if (!word.starts_with(name) || word.substr(name.size()).empty() || word[name.size()] != '=' ||
        !low || !high)
        return fail(Code::invalid, "'{}' is not a range of {}", word, name)
            .advice("write a range such as {}=2..8, {}=4 or {}=64K..*", name, name, name);
    if (*low > *high)
        return fail(Code::invalid, "the range '{}' is empty: {} is more than {}", word, *low, *high)
            .advice("write the smaller number first");
    return std::pair{*low, *high};
}

Result<Collective> parse_collective(std::string_view word) {
    std::string names;
    for (int c = 0; c < collective_count; ++c) {
        const std::string_view name = collective_name(static_cast<Collective>(c));
        if (name == word) return static_cast<Collective>(c);
        names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    }
    return fail(Code::invalid, "unknown collective '{}'", word).advice("write one of {}", names);
}

Result<> check_algorithm(Collective collective, std::string_view name) {
    const bool flat = !flat_reference(collective).empty();
    if ((flat && name == flat_name) || find_algorithm(collective, name)) return {};
    std::string names{flat ? flat_name : ""};
    for (const Algorithm& a : algorithms())
        if (a.collective == collective)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", a.name);
    return fail(Code::unsupported, "unknown algorithm '{}' for {}", name,
                collective_name(collective))
        .advice("write one of {}", names);
}

Result<uint32_t> parse_widening(std::string_view word) {
    for (const uint32_t widening : {1u, 2u, 4u})
        if (word == fmt::format("sums={}", widening)) return widening;
    return fail(Code::invalid, "unknown word '{}' at the end of the line", word)
        .advice(
            "write nothing there, sums=4 (for 8-bit floats), sums=2 (for 16-bit floats) or sums=1 "
            "(for all other types)");
}

Result<TuningRule> parse_rule(const std::vector<std::string_view>& words) {
    if (words.size() != 6 && words.size() != 7)
        return fail(Code::invalid, "the line has {} words instead of 6 or 7", words.size())
            .advice("write {}", choose_form);
    TuningRule rule;
    TUTTI_ASSIGN(rule.collective, parse_collective(words[1]));
    rule.wire = words[2];
    TUTTI_ASSIGN(const auto ranks, parse_range(words[3], "ranks"));
    TUTTI_ASSIGN(const auto bytes, parse_range(words[4], "bytes"));
    constexpr std::size_t most = std::numeric_limits<Rank>::max();
    rule.least_ranks = static_cast<Rank>(std::min(ranks.first, most));
    rule.most_ranks = static_cast<Rank>(std::min(ranks.second, most));
    std::tie(rule.least_bytes, rule.most_bytes) = bytes;
    if (words.size() == 7) {
        TUTTI_ASSIGN(rule.widening, parse_widening(words[5]));
    }
    TUTTI_TRY(check_algorithm(rule.collective, words.back()));
    rule.algorithm = words.back();
    return rule;
}

Result<> parse_constant(std::string_view word, Constants& constants) {
    const auto equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    std::string names;
    for (std::size_t i = 0; i < term_count; ++i) {
        const std::string_view known = term_name(static_cast<Term>(i));
        names += fmt::format("{}{}", i == 0 ? "" : ", ", known);
        if (known != name) continue;
        // Not strtod: the program's locale may use a decimal comma.
        const char* const last = value.data() + value.size();
        const auto [end, error] = std::from_chars(value.data(), last, constants[i]);
        if (error != std::errc{} || end != last || !std::isfinite(constants[i]) || constants[i] < 0)
            return fail(Code::invalid, "{}: '{}' is not a number of microseconds", name, value)
                .advice("write a number of microseconds, 0 or more");
        return {};
    }
    return fail(Code::invalid, "unknown constant '{}'", name).advice("write one of {}", names);
}

Result<> parse_line(const std::vector<std::string_view>& words, std::size_t line, Tuning& tuning) {
    if (words[0] == "choose") {
        TUTTI_ASSIGN(TuningRule rule, parse_rule(words));
        rule.line = line;
        tuning.rules.push_back(std::move(rule));
        return {};
    }
    if (words[0] == "constants") {
        if (words.size() < 3)
            return fail(Code::invalid, "the line has {} words instead of 3 or more", words.size())
                .advice("write {}", constants_form);
        Constants constants{};
        for (std::size_t i = 2; i < words.size(); ++i)
            TUTTI_TRY(parse_constant(words[i], constants));
        tuning.constants.emplace_back(words[1], constants);
        return {};
    }
    return fail(Code::invalid, "unknown word '{}' at the start of the line", words[0])
        .advice("write machine NAME; {}; {}; or # for a comment", constants_form, choose_form);
}

std::string joined(const std::vector<std::string_view>& words, std::size_t first) {
    std::string text;
    for (std::size_t i = first; i < words.size(); ++i)
        text += fmt::format("{}{}", text.empty() ? "" : " ", words[i]);
    return text;
}

}  // namespace

std::string machine_name() {
    std::ifstream file("/proc/cpuinfo");
    std::string model = "unknown";
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name")) {
            model = joined(words_of(line.substr(std::min(line.find(':') + 1, line.size()))), 0);
            break;
        }
    const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);  // not the affinity mask, because ranks may
                                                         // be bound
    return fmt::format("{} x {}", cores, model);
}

const Constants* Tuning::constants_of(std::string_view wire) const {
    for (const auto& [name, values] : constants)
        if (name == wire) return &values;
    return nullptr;
}

std::string Tuning::fingerprint() const {
    if (rules.empty() && constants.empty()) return "none";
    std::string text;
    for (const TuningRule& r : rules)
        text += fmt::format("{} {} {} {} {} {} {} {}\n", static_cast<int>(r.collective), r.wire,
                            r.least_ranks, r.most_ranks, r.least_bytes, r.most_bytes, r.widening,
                            r.algorithm);
    for (const auto& [wire, values] : constants) {
        text += wire;
        for (const double value : values) text += fmt::format(" {}", value);
        text += "\n";
    }
    return fmt::format("{:016x}, {} choices and {} constants{}", hash_of(text), rules.size(),
                       constants.size(), machine.empty() ? "" : fmt::format(" for '{}'", machine));
}

Result<Tuning> parse_tuning(std::string_view text, std::string_view file,
                            std::string_view machine) {
    Tuning tuning, others;
    tuning.file = file;
    bool ours = true;
    for (std::size_t line = 1; !text.empty(); ++line) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto words = words_of(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (words.empty()) continue;
        const auto where = [&] { return fmt::format("tuning file {}:{}", file, line); };
        if (words[0] == "machine") {
            const std::string name = joined(words, 1);
            if (name.empty())
                return fail(Code::invalid, "{}: the machine has no name", where())
                    .advice("write machine NAME, or machine * for every machine");
            ours = name == "*" || name == machine;
            if (name == machine) tuning.machine = machine;
        } else if (auto parsed = parse_line(words, line, ours ? tuning : others); !parsed) {
            return wrap(parsed.error(), where());
        }
    }
    return tuning;
}

Result<Tuning> load_tuning(const std::string& file) {
    if (file.empty()) return Tuning{};
    constexpr std::size_t most_bytes = std::size_t{16} << 20;
    auto text = read_small_file(file, most_bytes);
    if (!text) return wrap(std::move(text).error(), "TUTTI_TUNING");
    return parse_tuning(*text, file, machine_name());
}

}  // namespace tutti
