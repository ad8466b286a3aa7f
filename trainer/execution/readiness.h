// Whether a trainer may serve a call.
#pragma once

#include <string>

#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// A trainer works from its first synchronisation on. After a load that failed half-way it refuses
/// steps until another load succeeds. After a failure with several ranks it never works again,
/// because no rank knows the state of the others.
class Readiness {
public:
    explicit Readiness(Comm& comm) : comm_(comm) {}

    /// The error of a call that needs a working trainer.
    Result<> check() const;
    /// The error of a call that synchronises: the trainer must not have ended or be half loaded.
    Result<> check_whole() const;
    /// The error of any other call: the trainer must not have ended.
    Result<> check_not_ended() const;

    void set_synchronised() { synchronised_ = true; }
    void set_half_loaded(const Error& why) { half_loaded_ = without_advice(why.message); }
    void set_loaded() { half_loaded_.clear(); }
    /// Returns a step's outcome. A failure ends the trainer and aborts the communicator. If the
    /// other ranks can go on after a loss, this rank leaves them.
    Result<> end_after(Result<> outcome);

private:
    Comm& comm_;
    bool synchronised_ = false;
    std::string half_loaded_;  // the failed load that left the parameters incomplete
    std::string ended_;        // the failure that ended the trainer
};

}  // namespace tutti::trainer
