// tutti-run: runs a program as N ranks on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "gangs.h"

int main(int argc, char** argv) {
    try {
        const tutti::run::Parsed parsed = tutti::run::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const tutti::Result<int> exit_code = tutti::run::run_gangs(parsed.options);
        if (exit_code) return *exit_code;
        fmt::print(stderr, "tutti-run: {}\n", exit_code.error().message);
    } catch (const std::exception& error) {
        fmt::print(stderr, "tutti-run: {}\n", error.what());
    }
    return tutti::run::exit_launcher;
}
