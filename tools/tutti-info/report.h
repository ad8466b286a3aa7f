// The report of tutti-info: sections of facts and things, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::info {

using Json = nlohmann::ordered_json;

struct Fact {
    std::string name;  // "huge pages"; the key in JSON is "huge_pages"
    Json value;
    std::string text;  // for people; a fact of an Item repeats the name here if it needs it
};

/// Makes a fact whose text is the value itself.
Fact fact(std::string name, Json value);

/// Something of which a machine may have several: an interface, a device, a transport.
struct Item {
    std::string name;
    std::vector<Fact> facts;
    std::optional<bool> usable;  // nullopt: the question does not apply
    std::string why_not;
    std::vector<Item> parts;
};

struct Section {
    std::vector<Fact> facts;
    std::vector<Item> items;
    std::string none;                 // why there are no items
    std::vector<std::string> advice;  // settings to change, and how
};

struct Titled {
    std::string_view name;
    Section section;
};

std::string as_text(const std::vector<Titled>& report);
Json as_json(const std::vector<Titled>& report);

/// "31.3 GiB"
std::string human_bytes(uint64_t bytes);

}  // namespace tutti::info
