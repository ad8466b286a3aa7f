// The program's signals belong to the program: its handlers, and the threads that take them.
#pragma once

#include <pthread.h>

#include <array>
#include <csignal>

namespace tutti {

/// For as long as a library is loaded or started that may install handlers of its own: those that
/// changed meanwhile are put back at the end.
class KeptHandlers {
public:
    KeptHandlers() {
        for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, nullptr, &of(signal));
    }
    ~KeptHandlers() {
        for (int signal = 1; signal < NSIG; ++signal) {
            struct sigaction now {};
            if (::sigaction(signal, nullptr, &now) == 0 && !same(now, of(signal)))
                ::sigaction(signal, &of(signal), nullptr);
        }
    }
    KeptHandlers(const KeptHandlers&) = delete;

private:
    struct sigaction& of(int signal) {
        return before_[static_cast<std::size_t>(signal)];
    }
    static bool same(const struct sigaction& a, const struct sigaction& b) {
        // One address, whichever form it has.
        return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags;
    }

    std::array<struct sigaction, NSIG> before_{};
};

/// No signal for this thread, nor for those that it starts meanwhile: they inherit the mask.
class NoSignals {
public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;

private:
    sigset_t before_;
};

}  // namespace tutti
