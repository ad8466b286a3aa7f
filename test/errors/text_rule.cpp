#include "errors/text_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <string_view>

namespace errors_test {
namespace {

constexpr std::string_view marker = ". What to do: ";
constexpr std::size_t most_bytes = 600;

// These words begin a clause without an actor: "Who is late: ..." instead of "rank 2 is late".
constexpr std::array<std::string_view, 16> headless = {
    "what",   "who",    "whom",     "whoever", "whose", "whatever", "those", "nobody",
    "nobody", "no one", "somebody", "someone", "of",    "one that", "how",   "where"};

// An imperative begins with none of these.
constexpr std::array<std::string_view, 26> not_imperative = {
    "a",  "an", "the", "it",   "its", "this", "that", "these", "there", "they", "you", "we", "in",
    "on", "at", "as",  "then", "if",  "when", "is",   "are",   "was",   "no",   "not", "or", "and"};

bool starts_with_word(std::string_view text, std::string_view word) {
    if (text.size() < word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i)
        if (std::tolower(static_cast<unsigned char>(text[i])) != word[i]) return false;
    return text.size() == word.size() ||
           !std::isalnum(static_cast<unsigned char>(text[word.size()]));
}

std::size_t count_of(std::string_view text, std::string_view part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
        ++count;
    return count;
}

// The length of "rank N: " at the start of the text; 0: the text does not open with it.
std::size_t reporter_length(std::string_view text) {
    constexpr std::string_view word = "rank ";
    if (!text.starts_with(word)) return 0;
    std::size_t at = word.size();
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at > word.size() && text.substr(at, 2) == ": " ? at + 2 : 0;
}

// The clauses of a message: it and what follows each ": ".
std::vector<std::string_view> clauses_of(std::string_view message) {
    std::vector<std::string_view> clauses;
    for (;;) {
        const auto colon = message.find(": ");
        clauses.push_back(message.substr(0, colon));
        if (colon == message.npos) return clauses;
        message.remove_prefix(colon + 2);
    }
}

// "rank 3" or a list such as "ranks 1, 3 and 4".
bool names_rank(const std::string& text, int rank) {
    static const std::regex lists("\\branks? ([0-9]+(?:(?:, | and | to )[0-9]+)*)");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), lists);
         at != std::sregex_iterator(); ++at) {
        static const std::regex number("[0-9]+");
        const std::string list = (*at)[1].str();
        for (auto n = std::sregex_iterator(list.begin(), list.end(), number);
             n != std::sregex_iterator(); ++n)
            if (n->str() == std::to_string(rank)) return true;
    }
    return false;
}

void check_advice(std::string_view advice, std::vector<std::string>& found) {
    if (advice.empty()) return void(found.emplace_back("the advice is empty"));
    if (!std::islower(static_cast<unsigned char>(advice.front())))
        found.emplace_back("the advice does not begin with a lower-case word");
    for (const std::string_view word : not_imperative)
        if (starts_with_word(advice, word))
            found.push_back(
                fmt::format("the advice begins with '{}', which is no imperative", word));
    if (advice.back() == '.' || advice.back() == ' ')
        found.emplace_back("the advice ends with a full stop or a blank");
}

void check_openings(std::string_view message, std::string_view advice,
                    std::vector<std::string>& found) {
    std::vector<std::string_view> clauses = clauses_of(message);
    clauses.push_back(advice);
    for (const std::string_view clause : clauses)
        for (const std::string_view word : headless)
            if (starts_with_word(clause, word))
                found.push_back(fmt::format("a clause opens with '{}'", word));
}

void check_message(std::string_view message, const TextRule& rule,
                   std::vector<std::string>& found) {
    if (message.empty()) found.emplace_back("the message is empty");
    if (!message.empty() && message.back() == '.')
        found.emplace_back("the message ends with a full stop");
    if (message.find(rule.names) == message.npos)
        found.push_back(fmt::format("the message does not name '{}'", rule.names));
    static const std::regex placeholder("\\{[0-9]*(:[^}]*)?\\}");
    if (std::regex_search(message.begin(), message.end(), placeholder))
        found.emplace_back("a placeholder is left");
}

void check_ranks(const std::string& text, const TextRule& rule, std::vector<std::string>& found) {
    // Not "connecting to rank N: ".
    static const std::regex twice("(^|: )rank ([0-9]+): (.*: )?rank \\2: ");
    if (std::regex_search(text, twice)) found.emplace_back("the text says 'rank N: ' twice");
    if (rule.reporter >= 0 && !text.starts_with(fmt::format("rank {}: ", rule.reporter)))
        found.push_back(fmt::format("the text does not begin with 'rank {}: '", rule.reporter));
    if (rule.culprit >= 0 && !names_rank(text, rule.culprit))
        found.push_back(
            fmt::format("the text does not name rank {}, which is at fault", rule.culprit));
}

}  // namespace

std::string without_reporter(const std::string& text) {
    return text.substr(reporter_length(text));
}

std::string message_of(const std::string& text) {
    const std::string rest = without_reporter(text);
    return rest.substr(0, rest.find(marker));
}

std::vector<std::string> violations(const std::string& text, const TextRule& rule) {
    std::vector<std::string> found;
    if (count_of(text, "What to do:") != 1 || count_of(text, marker) != 1)
        found.push_back(fmt::format("the text has '{}' {} times", marker, count_of(text, marker)));
    const auto at = text.find(marker);
    const std::string message = message_of(text);
    const std::string_view advice =
        at == text.npos ? std::string_view() : std::string_view(text).substr(at + marker.size());
    check_message(message, rule, found);
    if (at != text.npos) check_advice(advice, found);
    check_openings(message, advice, found);
    check_ranks(text, rule, found);
    if (text.size() >= most_bytes)
        found.push_back(
            fmt::format("the text has {} bytes; {} are too many", text.size(), most_bytes));
    return found;
}

}  // namespace errors_test
