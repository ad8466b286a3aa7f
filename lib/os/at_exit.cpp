#include "os/at_exit.h"

#include <array>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "os/forks.h"

namespace tutti::at_exit {
namespace {

struct ExitSteps {
    std::mutex mutex;                           // guards the members below
    std::set<std::string, std::less<>> armed;   // lists of libraries with a registered handler
    std::array<void (*)(Deadline), 3> steps{};  // by ExitStep; nullptr: not requested
};

constinit PerProcess<ExitSteps> exit_steps;

void run_steps() {
    ExitSteps& own = exit_steps.here();
    decltype(own.steps) steps;
    {
        const std::lock_guard lock(own.mutex);
        own.armed.clear();  // the next arm() registers a new handler, because this one ends
        steps = std::exchange(own.steps, {});
    }
    const auto deadline = Deadline::after_ms(most_ms);
    for (const auto run : steps)
        if (run) run(deadline);
}

void handler() {
    try {
        run_steps();
    } catch (const std::exception&) {
        // Mostly bad_alloc. This rank sends no goodbye, so the other ranks report that it is lost.
    }
}

}  // namespace

void arm(std::string_view libraries, ExitStep step, void (*run)(Deadline)) {
    ExitSteps& own = exit_steps.here();
    const std::lock_guard lock(own.mutex);
    own.steps[static_cast<std::size_t>(step)] = run;
    if (own.armed.emplace(libraries).second) (void)std::atexit(handler);
}

}  // namespace tutti::at_exit
