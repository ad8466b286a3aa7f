#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti::info {
namespace {

constexpr int name_width = 18;

std::string key_of(std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}

std::string text_of(const Item& item) {
    std::string text;
    const auto add = [&](std::string_view separator, std::string_view more) {
        if (more.empty()) return;
        if (!text.empty()) text += separator;
        text += more;
    };
    for (const Fact& fact : item.facts) add(", ", fact.text);
    if (item.usable == false) add("; ", "not usable: " + item.why_not);
    return text;
}

void add_text(std::string& out, const Item& item, int depth) {
    out += fmt::format("{:{}}{:<{}} {}\n", "", 2 * depth, item.name, name_width - 2 * (depth - 1),
                       text_of(item));
    for (const Item& part : item.parts) add_text(out, part, depth + 1);
}

Json json_of(const Item& item) {
    Json out{{"name", item.name}};
    for (const Fact& fact : item.facts) out[key_of(fact.name)] = fact.value;
    if (item.usable) out["usable"] = *item.usable;
    if (!item.why_not.empty()) out["why_not"] = item.why_not;
    for (const Item& part : item.parts) out["parts"].push_back(json_of(part));
    return out;
}

Json json_of(const Section& section) {
    Json out = Json::object();
    for (const Fact& fact : section.facts) out[key_of(fact.name)] = fact.value;
    if (!section.items.empty() || !section.none.empty()) out["items"] = Json::array();
    for (const Item& item : section.items) out["items"].push_back(json_of(item));
    if (section.items.empty() && !section.none.empty()) out["none"] = section.none;
    if (!section.advice.empty()) out["advice"] = section.advice;
    return out;
}

}  // namespace

Fact fact(std::string name, Json value) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    return {std::move(name), std::move(value), std::move(text)};
}

std::string as_text(const std::vector<Titled>& report) {
    std::string out;
    for (const auto& [name, section] : report) {
        out += fmt::format("{}{}\n", out.empty() ? "" : "\n", name);
        for (const Fact& fact : section.facts)
            out += fmt::format("  {:<{}} {}\n", fact.name, name_width, fact.text);
        for (const Item& item : section.items) add_text(out, item, 1);
        if (section.items.empty() && !section.none.empty())
            out += fmt::format("  none: {}\n", section.none);
        for (const std::string& advice : section.advice) out += fmt::format("  ! {}\n", advice);
    }
    return out;
}

Json as_json(const std::vector<Titled>& report) {
    Json out = Json::object();
    for (const auto& [name, section] : report) out[std::string(name)] = json_of(section);
    return out;
}

std::string human_bytes(uint64_t bytes) {
    constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
    const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
    return whole ? fmt::format("{:.0f} {}", value, units[unit])
                 : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace tutti::info
