// Shared command-line handling: CLI11 with the program's own usage line and an exit code for wrong
// usage. Header only, because both tutti-bench and the programs of tools/ use it.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "complain.h"

namespace command_line {

inline constexpr int exit_usage = 2;

class Formatter : public CLI::Formatter {
public:
    explicit Formatter(std::string usage) : usage_(std::move(usage)) {}
    std::string make_usage(const CLI::App*, std::string) const override {
        return "\nUsage: " + usage_ + "\n";
    }

private:
    std::string usage_;
};

/// usage: everything after "Usage: ". version: what --version prints.
inline void dress(CLI::App& app, std::string usage, std::string footer, std::string_view version) {
    app.set_version_flag("--version", std::string(version));
    app.formatter(std::make_shared<Formatter>(std::move(usage)));
    app.footer(std::move(footer));
}

inline bool is_number(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && std::isfinite(value);
}

/// Checks of options: an error text unless the number is above 0, or at least 0. CLI11's own checks
/// would print the largest double in all its 309 digits.
inline std::string positive(const std::string& text) {
    return is_number(text) && std::strtod(text.c_str(), nullptr) > 0
               ? ""
               : with_advice("'" + text + "' is not a number above 0", "give a number above 0");
}
inline std::string not_negative(const std::string& text) {
    return is_number(text) && std::strtod(text.c_str(), nullptr) >= 0
               ? ""
               : with_advice("'" + text + "' is not a number of 0 or more",
                             "give 0 or a number above it");
}

/// The text that a program prints for a usage error. The texts of CLI11's own checks have no advice.
inline std::string usage_error(const CLI::App* app, const CLI::Error& error) {
    std::string text = app->get_name() + ": " + error.what();
    if (!has_advice(text))
        text = with_advice(text, "run " + app->get_name() + " --help, which lists the options");
    return text + "\n";
}

/// Parses, then calls interpret() on the options; both throw CLI::ParseError for invalid ones.
/// Returns the exit code after a usage error (printed), --help or --version; nullopt if the program
/// should run.
template <typename Interpret>
std::optional<int> parse(CLI::App& app, int argc, char** argv, Interpret&& interpret) {
    app.failure_message(usage_error);
    try {
        app.parse(argc, argv);
        interpret();
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    return std::nullopt;
}

}  // namespace command_line
