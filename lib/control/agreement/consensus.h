// The agreements of one communicator on the control tree: Agreements behind a lock, with their
// messages sent and received.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/agreement/agreements.h"
#include "control/failure_protocol.h"
#include "control/protocol_context.h"

namespace tutti {

/// One thread at a time makes calls: begin() or begin_round(), then resend() now and then until
/// over(). Any thread may call the other functions. Messages are sent with the lock held.
class Consensus {
public:
    Consensus(Rank rank, Rank size, uint32_t comm, FailureProtocolHost& host)
        : rank_(rank), size_(size), comm_(comm), host_(host), agreements_({rank, size}) {}

    /// The number of calls so far: the same on all ranks that are about to make the next one.
    uint64_t calls();
    /// Begins the next call.
    void begin(const AgreementCall& call);
    /// Begins the next round of the present call.
    void begin_round(const AgreementCall& call);
    /// True once the present round has an outcome. Takes no lock.
    bool over() const { return over_.load(std::memory_order_acquire); }
    /// Called only when over().
    Decision outcome();
    /// Ends the present round with that error, unless it is over.
    void give_up(Code code, const std::string& text);
    /// Sends again what may have been lost, if it is time.
    void resend();
    RankSet missing();

    void receive(Rank from, const ControlMessage& message);
    /// The body of another rank's bye. Called before the rank counts as gone.
    void receive_last_words(Rank from, ByteView body);
    void learn(const FailureProtocol::GoneRanks& gone);
    /// The error with which this communicator ends, if the other ranks have gone on without this
    /// rank.
    std::optional<Error> exclusion();

    /// Decisions for which other ranks may still ask when this communicator is destroyed.
    std::vector<AgreementMessage> last_words();
    /// The same for a bye's body: the latest that fit.
    Bytes encode_last_words();

private:
    using Lock = std::lock_guard<std::mutex>;
    using BeginsInstance = decltype(&Agreements::begin);
    void begin_by(BeginsInstance begins, const AgreementCall& call);
    void note_outcome();
    Decision loss() const;
    void end_if_lost();
    void send(const AgreementOutputs& out);

    const Rank rank_, size_;
    const uint32_t comm_;
    FailureProtocolHost& host_;
    std::atomic<bool> over_{true};
    std::mutex mutex_;  // guards the members below
    Agreements agreements_;
    std::optional<Error> exclusion_;
    bool lost_ = false;     // this rank or the others have said that it is lost
    bool refused_ = false;  // the present call, because this rank was lost before it
};

}  // namespace tutti
