#include "hooks.h"

#include <algorithm>
#include <vector>

#include "released.h"

namespace tutti_torch {
namespace {

// This thread's runs, one inside the other: a hook may call another group, which fails too.
thread_local std::vector<const AbortHooks*> runs_of_thread;

}  // namespace

void AbortHooks::run(const Callback& first) {
    const auto& runs = runs_of_thread;
    if (empty() || std::find(runs.begin(), runs.end(), this) != runs.end()) return;
    call_back({[&] {
        // Torch polls a Work with the interpreter's lock, for which a hook may wait elsewhere.
        std::optional<tutti_python::Released> released;
        if (PyGILState_Check()) released.emplace();
        runs_of_thread.push_back(this);
        first();
        call();
        runs_of_thread.pop_back();
    }});
    ran_ = true;
}

}  // namespace tutti_torch
