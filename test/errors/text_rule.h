// The rule that the text of every error keeps.
#pragma once

#include <string>
#include <vector>

namespace errors_test {

struct TextRule {
    std::string names;  // a word of the message: the operation, setting or function
    int reporter = -1;  // the rank that the text opens with; -1: there is no communicator
    int culprit = -1;   // the rank at fault, which the text names; -1: none is known
};

/// The message of an error without "rank N: " and without its advice.
std::string message_of(const std::string& text);

/// "MESSAGE. What to do: ADVICE" without "rank N: ", which counts as the same error on every rank.
std::string without_reporter(const std::string& text);

/// One sentence for each violation; none if the text keeps the rule.
std::vector<std::string> violations(const std::string& text, const TextRule& rule);

}  // namespace errors_test
