#include "control/agreement/consensus.h"

#include <utility>

#include "base/result.h"

namespace tutti {

// The other ranks take a lost rank for dead, so it must contribute nothing.
void Consensus::send(const AgreementOutputs& out) {
    if (lost_) return;
    for (const AgreementOutput& output : out) {
        ControlMessage message;
        message.kind = ControlMessage::Kind::agree;
        message.comm = comm_;
        message.rank = rank_;
        message.body = output.message.encode();
        host_.send_control(output.to, message);
    }
}

void Consensus::note_outcome() {
    if (agreements_.outcome()) over_.store(true, std::memory_order_release);
}

/// The outcome of a rank that is lost.
Decision Consensus::loss() const {
    Decision error;
    error.code = Code::peer_lost;
    error.culprit = rank_;
    error.gone = error.silent = error.leavers = RankSet(size_);
    error.text = error_text(fail(Code::peer_lost,
                                 "rank {} is lost, as the error of its operations says; the other "
                                 "ranks go on without it",
                                 rank_)
                                .advice("end this process, or let it join the job as a new one")
                                .value());
    return error;
}

/// Ends the present round if this rank is lost.
void Consensus::end_if_lost() {
    if (!lost_) return;
    AgreementOutputs unsent;
    agreements_.give_up(Code::peer_lost, loss().text, unsent);
}

uint64_t Consensus::calls() {
    const Lock lock(mutex_);
    return agreements_.calls();
}

void Consensus::begin(const AgreementCall& call) {
    begin_by(&Agreements::begin, call);
}

void Consensus::begin_round(const AgreementCall& call) {
    begin_by(&Agreements::begin_round, call);
}

void Consensus::begin_by(BeginsInstance begins, const AgreementCall& call) {
    const Lock lock(mutex_);
    AgreementOutputs out;
    over_ = false;
    // If the others have left meanwhile, this rank would decide alone.
    refused_ = lost_;
    if (refused_) return over_.store(true, std::memory_order_release);
    (agreements_.*begins)(call, host_.clock_ns(), out);
    note_outcome();
    send(out);
}

Decision Consensus::outcome() {
    const Lock lock(mutex_);
    return refused_ ? loss() : *agreements_.outcome();
}

void Consensus::give_up(Code code, const std::string& text) {
    const Lock lock(mutex_);
    AgreementOutputs out;
    agreements_.give_up(code, text, out);
    note_outcome();
    send(out);
}

void Consensus::resend() {
    const Lock lock(mutex_);
    const int64_t now = host_.clock_ns();
    if (now < agreements_.next_due_ns()) return;
    AgreementOutputs out;
    agreements_.resend(now, out);
    send(out);
}

RankSet Consensus::missing() {
    const Lock lock(mutex_);
    return agreements_.missing();
}

void Consensus::receive(Rank from, const ControlMessage& control) {
    const auto message = AgreementMessage::decode(control.body, size_);
    if (!message) return;
    const Lock lock(mutex_);
    AgreementOutputs out;
    agreements_.receive(from, *message, out);
    const auto& decision = message->decision;
    if (decision && decision->code == Code::ok && decision->gone.contains(rank_) && !exclusion_)
        exclusion_ =
            decision->leavers.contains(rank_)
                ? Error{Code::revoked, from, 0,
                        fmt::format("the other ranks have gone on without rank {}", rank_),
                        "destroy this communicator: it was left out of a shrink on purpose"}
                : Error{Code::peer_lost, rank_, 0,
                        fmt::format("the other ranks took rank {} for dead and have gone on "
                                    "without it",
                                    rank_),
                        "end this process, or let it join the job as a new one"};
    note_outcome();
    send(out);
}

void Consensus::receive_last_words(Rank from, ByteView body) {
    ByteReader in(body);
    while (in.ok() && !in.at_end()) {
        ControlMessage word;
        const std::string bytes = in.get_text(ControlMessage::max_body_bytes);
        word.body.assign(as_bytes(bytes).begin(), as_bytes(bytes).end());
        if (in.ok()) receive(from, word);
    }
}

void Consensus::learn(const FailureProtocol::GoneRanks& gone) {
    Knowledge facts(size_);
    for (const Rank rank : gone.lost) facts.dead.insert(rank);
    for (const Rank rank : gone.left) facts.left.insert(rank);
    for (const Accusation& one : gone.accusations) facts.accuse(one.accuser, one.accused);
    const Lock lock(mutex_);
    AgreementOutputs out;
    agreements_.learn(facts, out);
    lost_ |= gone.self;
    end_if_lost();
    note_outcome();
    send(out);
}

std::optional<Error> Consensus::exclusion() {
    const Lock lock(mutex_);
    return exclusion_;
}

// The last one says that this rank has left: its goodbye may be lost if a neighbour in the tree
// dies, and the others must not wait for this rank. They must know all its decisions before.
std::vector<AgreementMessage> Consensus::last_words() {
    const Lock lock(mutex_);
    std::vector<AgreementMessage> words = agreements_.last_words();
    if (!words.empty()) words.back().known.left.insert(rank_);
    return words;
}

Bytes Consensus::encode_last_words() {
    const std::vector<AgreementMessage> words = [this] {
        const Lock lock(mutex_);
        return agreements_.last_words();
    }();
    std::vector<Bytes> encoded;
    std::size_t bytes = 0;
    for (auto word = words.rbegin(); word != words.rend(); ++word) {
        encoded.push_back(word->encode());
        bytes += sizeof(uint32_t) + encoded.back().size();
        if (bytes > ControlMessage::max_body_bytes) {
            encoded.pop_back();
            break;
        }
    }
    ByteWriter out;
    for (auto word = encoded.rbegin(); word != encoded.rend(); ++word) out.put_text(as_text(*word));
    return out.take();
}

}  // namespace tutti
