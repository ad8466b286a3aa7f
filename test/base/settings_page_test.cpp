// The table of settings in the documentation, compared with the keys that the library knows.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "config/config.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr const char* page = "/docs/reference/configuration.md";

std::string trimmed(const std::string& text) {
    const auto begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? ""
                                      : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// The cells of the table whose first column is "setting": name, value, default, meaning.
std::vector<std::vector<std::string>> documented_settings() {
    std::ifstream file(std::string(TUTTI_SOURCE_ROOT) + page);
    std::vector<std::vector<std::string>> rows;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("| setting |", 0) == 0) inside = true;
        if (line.empty()) inside = false;
        if (!inside || line.rfind("| `", 0) != 0) continue;
        std::vector<std::string> cells;
        std::istringstream in(line.substr(1));
        for (std::string cell; std::getline(in, cell, '|');) cells.push_back(trimmed(cell));
        rows.push_back(cells);
    }
    return rows;
}

}  // namespace

TEST_CASE("settings: the page documents every key of the library, in order, and no other") {
    std::vector<std::string> documented, known;
    for (const auto& row : documented_settings()) documented.push_back(row.front());
    for (const ConfigKey& key : config_keys()) known.push_back("`" + std::string(key.name) + "`");
    INFO("CONTRIBUTING.md, \"Add a setting\", has the steps");
    CHECK(documented == known);
}

TEST_CASE("settings: the page has each value's form, and defaults that the library accepts") {
    std::map<std::string, const ConfigKey*> keys;
    for (const ConfigKey& key : config_keys()) keys["`" + std::string(key.name) + "`"] = &key;
    for (const auto& row : documented_settings()) {
        INFO(row.front());
        REQUIRE(row.size() == 4);
        if (keys.count(row[0]) == 0) continue;
        const ConfigKey& key = *keys[row[0]];
        CHECK(row[1] == key.value);
        // Sizes such as "64 MiB" are written for people.
        Config config;
        if (!row[2].empty() && row[2].find(' ') == std::string::npos)
            CHECK(set_config(config, key.name, row[2]));
    }
}
