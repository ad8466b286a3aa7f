#include "errors/headers.h"

#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace errors_test {
namespace {

// The header without comments and without what the preprocessor takes.
std::string declarations_of(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream kept;
    bool continued = false;
    for (std::string line; std::getline(file, line);) {
        const bool directive = continued || line.starts_with('#');
        continued = directive && line.ends_with('\\');
        if (!directive) kept << line << '\n';
    }
    std::string text = kept.str();
    for (auto from = text.find("/*"); from != text.npos; from = text.find("/*")) {
        const auto to = text.find("*/", from);
        text.erase(from, to == text.npos ? to : to + 2 - from);
    }
    return text;
}

std::string last_word(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
        text.remove_suffix(1);
    auto from = text.size();
    while (from > 0 &&
           (std::isalnum(static_cast<unsigned char>(text[from - 1])) || text[from - 1] == '_'))
        --from;
    return std::string(text.substr(from));
}

}  // namespace

std::vector<Function> functions_of(const std::string& header) {
    constexpr std::string_view exported = "TUTTI_API";
    const std::string text = declarations_of(std::string(TUTTI_HEADERS) + "/" + header);
    std::vector<Function> functions;
    for (auto at = text.find(exported); at != text.npos; at = text.find(exported, at + 1)) {
        const std::string declaration = text.substr(at, text.find(';', at) - at);
        const auto open = declaration.find('(');
        // A typedef of a function has no name in front of its arguments.
        const std::string name = last_word(std::string_view(declaration).substr(0, open));
        // A function that is an argument is a pointer, too, and has a star of its own.
        functions.push_back({name, declaration.find('*', open) != declaration.npos});
    }
    return functions;
}

std::vector<std::string> functions_with_pointers(const std::vector<std::string>& headers) {
    std::vector<std::string> names;
    for (const std::string& header : headers)
        for (const Function& function : functions_of(header))
            if (function.takes_pointer) names.push_back(function.name);
    return names;
}

}  // namespace errors_test
