// A library's signal handlers are undone, and nobody else's.
#include "os/signals.h"

#include <dlfcn.h>

#include <thread>

#include "support/catch.h"

using namespace tutti;

namespace {

void programs_handler(int) {}
void other_threads_handler(int) {}

auto handler_of(int signal) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    return now.sa_handler;
}

}  // namespace

TEST_CASE("signals: a library's handlers are undone, those of another thread stay") {
    std::signal(SIGUSR1, programs_handler);
    std::signal(SIGUSR2, programs_handler);
    LibraryCode code;
    void* library = nullptr;
    {
        const SavedSignalHandlers kept(code);
        std::thread([] {
            std::signal(SIGUSR2, other_threads_handler);
            std::signal(SIGTERM, SIG_IGN);
        }).join();
        library = ::dlopen(TUTTI_TEST_HANDLERS, RTLD_NOW | RTLD_LOCAL);
        REQUIRE(library);
        REQUIRE(handler_of(SIGUSR1) != programs_handler);
        REQUIRE(handler_of(SIGHUP) != SIG_DFL);
    }
    CHECK(handler_of(SIGUSR1) == programs_handler);
    CHECK(handler_of(SIGHUP) == SIG_DFL);
    CHECK(handler_of(SIGUSR2) == other_threads_handler);
    CHECK(handler_of(SIGTERM) == SIG_IGN);
    // It is loaded already and installs them later, as providers do when they are first used.
    const auto install = reinterpret_cast<void (*)()>(::dlsym(library, "install_handlers"));
    REQUIRE(install);
    {
        const SavedSignalHandlers kept(code);
        install();
        REQUIRE(handler_of(SIGUSR1) != programs_handler);
    }
    CHECK(handler_of(SIGUSR1) == programs_handler);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) std::signal(signal, SIG_DFL);
}
