// Whether a trainer may serve a call.
#pragma once

#include <string>

#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// A trainer works from its first synchronisation on. It does not after a load that failed half-way
/// until another one works, and never again after a failure with several ranks, which then do not
/// know where the others are.
class Readiness {
public:
    explicit Readiness(const Comm& comm) : comm_(comm) {}

    /// The error of a call that needs a working trainer.
    Result<> check() const;
    /// The error of a call that synchronises: the trainer has not ended, and its state is whole.
    Result<> check_whole() const;
    /// The error of a call for which it is enough that the trainer has not ended.
    Result<> check_not_ended() const;

    void set_synchronised() { synchronised_ = true; }
    void set_half_loaded(const Error& why) { half_loaded_ = without_advice(why.message); }
    void set_loaded() { half_loaded_.clear(); }
    /// Passes a step's outcome on. A failure ends the trainer, and at once the communicator.
    Result<> end_after(Result<> outcome);

private:
    const Comm& comm_;
    bool synchronised_ = false;
    std::string half_loaded_;  // why the parameters are of no use
    std::string ended_;        // the failure that ended the trainer
};

}  // namespace tutti::trainer
