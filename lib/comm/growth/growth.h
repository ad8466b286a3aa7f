// A running job takes in processes that join it: the members and the newcomers meet as the ranks of
// a new communicator, in which the members keep their ranks.
//
//   1. An agreement of the members: all of them call with the same number, and no rank is lost. Its
//      payload is a random name of this call.
//   2. Rank 0 takes the newcomers from the queue in the store (job/records/newcomers.h) and gives
//      them seats. The newcomers begin to join at once. The result is the payload of a second
//      agreement, which also ends if rank 0 dies.
//   3. Members and newcomers join as a job does that starts (Communicator::join), under a name that
//      no other meeting has.
//   4. A third agreement: each member has its part. Otherwise all members drop theirs.
//   5. An agreement in the new communicator tells the newcomers. If all members have left it, the
//      newcomers queue again.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "job/records/newcomers.h"

namespace tutti {

/// One call of tutti_comm_grow on a member.
class Growing {
public:
    Growing(const Recovery::Rounds& rounds, Rank newcomers)
        : rounds_(rounds), core_(rounds.core), newcomers_(newcomers) {}

    Result<std::shared_ptr<Communicator>> run();
    /// The newcomers in the queue, without an agreement.
    Result<std::size_t> count_waiting(Deadline deadline);

private:
    /// An attempt, as rank 0 tells the other members.
    struct GrowthAttempt {
        std::string generation;
        std::string store;  // its url if rank 0 has opened it anew
        std::optional<Error> error;

        Bytes encode() const;
        static GrowthAttempt decode(ByteView bytes, Rank size);
    };
    class Stop;

    Result<> agree_on_number();
    Result<std::string> agree_on_meeting(Deadline deadline);
    Result<> open_store(Deadline deadline);
    Result<> take_over_store(Deadline deadline);
    Result<std::string> gather(Deadline deadline);
    Result<std::string> gather_in_store(Deadline deadline);
    Result<bool> all_present(const std::string& generation, Deadline deadline);
    Result<std::shared_ptr<Communicator>> attempt(Deadline deadline);
    void spoil(const Error& why);
    void forget_attempt(Deadline deadline);
    Result<std::shared_ptr<Communicator>> join_meeting();
    Result<> confirm(const Result<std::shared_ptr<Communicator>>& part);
    Result<> check_members(const Decision& decision) const;
    void pause();
    bool stopped() const;
    bool members_failed();
    tl::unexpected<Error> stop_error() const;
    /// The key in the store under which rank 0 keeps the present attempt's name.
    std::string attempt_key() const { return "join/" + meeting_; }
    Rank grown_size() const { return core_.size() + newcomers_; }

    const Recovery::Rounds& rounds_;
    Core& core_;
    const Rank newcomers_;
    std::shared_ptr<Store> store_;
    std::string new_store_;  // its url, if this rank has opened it anew
    std::size_t came_ = 0;   // newcomers, at most at a time
    int attempts_ = 0;
    bool may_pass_ = false;  // a newcomer may have caused the failure of the last attempt
    bool pumping_ = false;
    std::string meeting_;     // the name of this call, which no other one has
    std::string generation_;  // of the present attempt, once all members know it
};

/// A communicator of the members, with the same ranks, and of so many newcomers. All members call
/// it.
Result<std::shared_ptr<Communicator>> grow(Communicator& comm, Rank newcomers);
/// The newcomers that wait now, at most most_newcomers. This rank alone asks the store.
Result<std::size_t> count_waiting(Communicator& comm);
/// A newcomer's create(): waits until the members of the job take this process in. The settings
/// give no rank.
Result<std::shared_ptr<Communicator>> join_running_job(Config config,
                                                       std::shared_ptr<Store> own_store);

}  // namespace tutti
