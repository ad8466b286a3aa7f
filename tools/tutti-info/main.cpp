// tutti-info: the abilities of this build and this machine, and the reasons for missing ones.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "bench/complain.h"
#include "options.h"
#include "sections.h"
#include "tools/output.h"

namespace tutti::info {
namespace {

std::vector<Titled> look(const Options& options) {
    const Tree tree(options.root);
    std::vector<Titled> report;
    for (const SectionKind& kind : sections()) {
        const auto& wanted = options.sections;
        if (wanted.empty() || std::find(wanted.begin(), wanted.end(), kind.name) != wanted.end())
            report.push_back({kind.name, kind.look(tree)});
    }
    return report;
}

}  // namespace
}  // namespace tutti::info

int main(int argc, char** argv) {
    using namespace tutti::info;
    try {
        const Parsed parsed = parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        // If UCX has a log level, it writes its log to standard output, in the middle of the
        // report.
        ::setenv("UCX_LOG_FILE", "stderr", 0);
        const auto report = look(parsed.options);
        // The system's strings may have any encoding: replace invalid bytes instead of throwing.
        constexpr auto replace = Json::error_handler_t::replace;
        tutti::Output out(stdout);
        out.print(parsed.options.json ? as_json(report).dump(2, ' ', false, replace) + "\n"
                                      : as_text(report));
        const auto written = out.written("the report");
        if (written) return 0;
        command_line::complain("tutti-info", error_text(written.error()));
    } catch (const std::exception& error) {
        command_line::complain("tutti-info", error.what());
    }
    return exit_failed;
}
