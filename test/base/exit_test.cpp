// Forks, and the end of a process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "os/at_exit.h"
#include "os/forks.h"
#include "support/catch.h"

using namespace tutti;

namespace {

struct Counted {
    std::mutex mutex;
    int count = 0;
};

constinit PerProcess<Counted> counted;

int out = -1;

void say(char what) {
    if (::write(out, &what, 1) != 1) std::abort();
}

/// All that a child says until it ends.
template <typename Body>
std::string said_by_child(Body body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd from(ends[0]);
    UniqueFd to(ends[1]);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        out = to.get();
        body();
    }
    to.reset();
    std::string said(100, '\0');
    std::size_t bytes = 0;
    for (ssize_t got = 1; got > 0; bytes += static_cast<std::size_t>(got > 0 ? got : 0))
        got = ::read(from.get(), said.data() + bytes, said.size() - bytes);
    ::waitpid(child, nullptr, 0);
    said.resize(bytes);
    return said;
}

}  // namespace

TEST_CASE("forks: a child has an object of its own, where its parent's is locked") {
    Counted& here = counted.here();
    CHECK(&counted.here() == &here);
    const std::lock_guard lock(here.mutex);
    here.count = 7;
    const std::string said = said_by_child([] {
        Counted& own = counted.here();
        say(own.mutex.try_lock() ? 'f' : 'l');
        say(static_cast<char>('0' + own.count));
        ::_exit(0);
    });
    CHECK(said == "f0");
    CHECK(here.count == 7);
}

TEST_CASE("exit: steps are taken once, in their order, whatever order they were asked for in") {
    using at_exit::ExitStep;
    const std::string said = said_by_child([] {
        at_exit::arm("store", ExitStep::close_stores, [](Deadline) { say('s'); });
        at_exit::arm("tcp", ExitStep::leave_jobs, [](Deadline limit) {
            say(limit.never() ? 'n' : 'j');
            // Another handler's, which comes later: it takes what is new.
            at_exit::arm("ucx", ExitStep::leave_jobs, [](Deadline) { say('u'); });
        });
        at_exit::arm("tcp", ExitStep::close_stores, [](Deadline) { say('t'); });
        std::exit(0);
    });
    CHECK(said == "jtu");
}

TEST_CASE("exit: a child takes no step of its parent's") {
    // A child is the parent here: this process has to go on.
    const std::string said = said_by_child([] {
        at_exit::arm("tcp", at_exit::ExitStep::leave_jobs, [](Deadline) { say('p'); });
        if (::fork() == 0) std::exit(0);
        ::wait(nullptr);
        say('w');
        std::exit(0);
    });
    CHECK(said == "wp");
}
