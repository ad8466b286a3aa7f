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
    std::mutex mutex;  // guards what follows
    std::set<std::string, std::less<>> armed;
    std::array<void (*)(Deadline), 2> steps{};  // by their numbers
};

constinit PerProcess<ExitSteps> exit_steps;

void take_steps() {
    ExitSteps& own = exit_steps.here();
    decltype(own.steps) steps;
    {
        const std::lock_guard lock(own.mutex);
        own.armed.clear();  // what asks from here on needs a handler of its own
        steps = std::exchange(own.steps, {});
    }
    const auto deadline = Deadline::after_ms(most_ms);
    for (const auto take : steps)
        if (take) take(deadline);
}

void handler() {
    try {
        take_steps();
    } catch (const std::exception&) {
        // Without memory the others hear of a loss.
    }
}

}  // namespace

void arm(std::string_view libraries, ExitStep step, void (*take)(Deadline)) {
    ExitSteps& own = exit_steps.here();
    const std::lock_guard lock(own.mutex);
    own.steps[static_cast<std::size_t>(step)] = take;
    if (own.armed.emplace(libraries).second) (void)std::atexit(handler);
}

}  // namespace tutti::at_exit
