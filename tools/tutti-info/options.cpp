#include "options.h"

#include <fmt/format.h>

#include "base/version.h"
#include "bench/command_line.h"
#include "sections.h"

namespace tutti::info {
namespace {

constexpr const char* description =
    R"(tutti-info - what this build and this machine can do

tutti-info prints the build, the processor, memory, limits, network interfaces, RDMA adapters, GPUs,
the devices that each transport can use, and the launcher (mpirun, srun) that has started it. For
everything that cannot be used it prints the reason: a library that was missing when tutti was
built, a missing device, a permission, a limit. Lines with an exclamation mark are advice.
tutti-info changes nothing, and needs no special rights.

SECTIONS
)";

constexpr const char* footer = R"(EXIT CODES
  0  tutti-info has printed the report
  1  tutti-info itself failed (the message has the reason)
  2  wrong usage

EXAMPLES
  tutti-info
  tutti-info transports rdma
  tutti-info --json > machine.json
  mpirun -n 2 tutti-info launch
  ulimit -l unlimited; tutti-info limits

The report names interfaces and their addresses, but never the machine.)";

std::string described() {
    std::string text = description;
    for (const SectionKind& kind : sections())
        text += fmt::format("  {:<11} {}\n", kind.name, kind.about);
    text.pop_back();
    return text;
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const SectionKind& kind : sections()) names.emplace_back(kind.name);
    return names;
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
    Parsed parsed;
    Options& o = parsed.options;
    CLI::App app(described(), "tutti-info");
    command_line::dress(app, "tutti-info [OPTIONS] [SECTION...]", footer, version());
    app.add_option("SECTION", o.sections, "print only these sections (default: all)")
        ->type_name("")
        ->check(CLI::IsMember(section_names()).description(""));
    app.add_flag("--json", o.json, "print JSON");
    app.add_option("--root", o.root, "read /proc, /sys and /dev of another machine under DIR")
        ->type_name("DIR")
        ->check(CLI::ExistingDirectory.description(""));
    parsed.exit_code = command_line::parse(app, argc, argv, [] {});
    return parsed;
}

}  // namespace tutti::info
