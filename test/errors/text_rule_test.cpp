// The rule finds what it is there to find.
#include "errors/text_rule.h"

#include "support/catch.h"

using namespace errors_test;

namespace {

const TextRule rule{.names = "allreduce", .reporter = 1, .culprit = 3};

bool kept(const std::string& text) {
    return violations(text, rule).empty();
}

}  // namespace

TEST_CASE("error text rule: takes a text with all its parts") {
    const std::string text =
        "rank 1: allreduce #7: timed out after 100 ms, waiting for ranks 2, 3. What to do: raise "
        "TUTTI_TIMEOUT_MS";
    for (const std::string& violation : violations(text, rule)) FAIL_CHECK(violation);
    CHECK(message_of(text) == "allreduce #7: timed out after 100 ms, waiting for ranks 2, 3");
    CHECK(without_reporter(text).starts_with("allreduce #7"));
    CHECK(without_reporter("rank 2 is late").starts_with("rank 2"));
}

TEST_CASE("error text rule: refuses a text that lacks a part or has it twice") {
    const std::string advice = ". What to do: raise TUTTI_TIMEOUT_MS";
    CHECK(kept("rank 1: allreduce: rank 3 is late" + advice));
    for (const std::string& bad : {
             "rank 1: allreduce: rank 3 is late" + advice + advice,   // advice twice
             std::string("rank 1: allreduce: rank 3 is late"),        // none
             std::string("rank 1: allreduce: rank 3. What to do: "),  // empty
             "rank 1: allreduce: rank 3 is late." + advice,           // a second full stop
             "rank 1: barrier: rank 3 is late" + advice,              // another operation
             "allreduce: rank 3 is late" + advice,                    // no reporter
             "rank 1: rank 1: allreduce: rank 3 is late" + advice,    // two
             "rank 1: allreduce: rank 31 is late" + advice,           // another culprit
             "rank 1: allreduce: rank 3 is {}" + advice,              // a placeholder
             "rank 1: allreduce: rank 3 is {0}" + advice,             // likewise
             "rank 1: allreduce: who is late is rank 3" + advice,     // headless
             "rank 1: allreduce: rank 3 is " + std::string(600, 'l') + advice,  // long
         }) {
        INFO(bad);
        CHECK_FALSE(kept(bad));
    }
}

TEST_CASE("error text rule: refuses advice that is no imperative without a full stop") {
    for (const std::string advice :
         {"Raise TUTTI_TIMEOUT_MS", "raise TUTTI_TIMEOUT_MS.", "the deadline may be too short",
          "if it is slow, raise TUTTI_TIMEOUT_MS", "Those that are late should be seen to",
          "nobody can help", "where it is slow, raise TUTTI_TIMEOUT_MS"}) {
        INFO(advice);
        CHECK_FALSE(kept("rank 1: allreduce: rank 3 is late. What to do: " + advice));
    }
}
