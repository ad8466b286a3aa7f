// tutti-run: runs a program as N ranks on this machine.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "gangs.h"

namespace {

// Who started this may have closed some of the three standard streams: what is opened next would
// get their numbers, and the ranks' output would be written to it.
void fill_standard_streams() {
    int fd = -1;
    do {
        fd = ::open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) ::close(fd);
}

// Not with fmt::print, which throws where standard error cannot be written.
void complain(const char* text) {
    std::fprintf(stderr, "tutti-run: %s\n", text);
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_streams();
    try {
        const tutti::run::Parsed parsed = tutti::run::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const tutti::Result<int> exit_code = tutti::run::run_gangs(parsed.options);
        if (exit_code) return *exit_code;
        complain(exit_code.error().message.c_str());
    } catch (const std::exception& error) {
        complain(error.what());
    }
    return tutti::run::exit_launcher;
}
