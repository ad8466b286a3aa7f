// tutti-run: runs a program as N ranks on this machine.
#include <fcntl.h>
#include <unistd.h>

#include <exception>

#include "bench/complain.h"
#include "gangs.h"

namespace {

// The parent process may have closed standard streams: the next files that open would get their
// numbers, and the ranks' output would be written to them.
void fill_standard_streams() {
    int fd = -1;
    do {
        fd = ::open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_streams();
    try {
        const tutti::run::Parsed parsed = tutti::run::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const tutti::Result<int> exit_code = tutti::run::run_gangs(parsed.options);
        if (exit_code) return *exit_code;
        command_line::complain("tutti-run", error_text(exit_code.error()));
    } catch (const std::exception& error) {
        command_line::complain("tutti-run", error.what());
    }
    return tutti::run::exit_launcher;
}
