// Provokes errors of every kind through the public interfaces, and checks the parts of each text.
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <set>

#include "errors/areas.h"
#include "support/catch.h"

using namespace errors_test;

namespace {

struct Area {
    const char* name;
    void (*provoke)(Ledger&);
};
constexpr Area areas[] = {
    {"null pointers", null_pointers::provoke_null_pointers},
    {"null pointers of the trainer layer", trainer_nulls::provoke_null_pointers_of_trainer},
    {"missing arguments", null_pointers::provoke_missing_arguments},
    {"settings", settings::provoke_settings},
    {"environment", settings::provoke_environment},
    {"collectives' arguments", collectives::provoke_collective_arguments},
    {"call options", calls::provoke_call_options},
    {"calls of one rank", calls::provoke_single_rank_calls},
    {"joining", joining::provoke_joining},
    {"mismatches", mismatches::provoke_mismatches},
    {"failures", failures::provoke_failures},
    {"regrouping", regrouping::provoke_regrouping},
    {"handles", handles::provoke_handles},
    {"growing", growing::provoke_growing},
    {"messages", messages::provoke_messages},
    {"trainer models", trainer_models::provoke_trainer_models},
    {"trainer calls", trainer_calls::provoke_trainer_calls},
    {"checkpoints", checkpoints::provoke_checkpoints},
    {"parallel", parallel::provoke_parallel},
    {"C++ faces", faces::provoke_faces},
};

/// The area's errors. They are provoked once in a process, by the first case that asks.
const Ledger& errors_of(const Area& area) {
    static std::map<std::string, Ledger> ledgers;
    const auto [found, is_new] = ledgers.try_emplace(area.name);
    if (is_new) area.provoke(found->second);
    return found->second;
}

constexpr std::size_t least_texts = 150;

// Texts that differ in nothing but a function's name or a number count once.
std::string pattern_of(const std::string& text) {
    static const std::regex function("tutti_[a-z_]+"), number("[0-9]+");
    return std::regex_replace(std::regex_replace(text, function, "F"), number, "N");
}

}  // namespace

TEST_CASE("errors: every text has its parts") {
    for (const Area& area : areas) {
        DYNAMIC_SECTION(area.name) {
            const Ledger& ledger = errors_of(area);
            for (const std::string& problem : ledger.problems()) FAIL_CHECK(problem);
            CHECK(ledger.rows() > 0);
        }
    }
}

TEST_CASE("errors: every status and at least 150 different texts are among them") {
    std::set<std::string> texts;
    std::set<tutti_status> statuses;
    for (const Area& area : areas) {
        const Ledger& ledger = errors_of(area);
        for (const std::string& text : ledger.texts()) texts.insert(pattern_of(text));
        statuses.merge(ledger.statuses());
    }
    for (int status = TUTTI_ERR_INVALID; status <= TUTTI_ERR_REVOKED; ++status) {
        INFO(tutti_status_string(static_cast<tutti_status>(status)));
        CHECK(statuses.contains(static_cast<tutti_status>(status)));
    }
    std::cout << texts.size() << " different texts\n";
    CHECK(texts.size() >= least_texts);
}
