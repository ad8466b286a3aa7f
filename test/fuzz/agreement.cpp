// Any bytes as a peer's agreement messages, for a rank that has called.
#include "control/agreement/agreements.h"
#include "fuzz/catalog.h"

namespace tutti::fuzz {
namespace {

void read_message(ByteView input, Rank from, Rank size, Agreements& agreements) {
    const auto message = AgreementMessage::decode(input, size);
    if (!message) return;
    require(as_text(message->encode()) == as_text(input), "an agreement message has two forms");
    AgreementOutputs out;
    agreements.receive(from, *message, out);
    agreements.resend(Agreement::never_ns / 2, out);
    require(agreements.count() <=
                1 + Agreements::kept_before + Agreements::kept_revived + Agreements::kept_early,
            "agreements pile up");
    require(out.size() <= 64, "one message causes very many");
    for (const AgreementOutput& one : out) {
        require(one.to >= 0 && one.to < size, "a message is for a rank that there is not");
        require(AgreementMessage::decode(one.message.encode(), size) == one.message,
                "an answer cannot be read");
    }
    for (const AgreementMessage& words : agreements.last_words())
        require(words.decision.has_value(), "last words without a decision");
}

}  // namespace

// The first bytes say how many ranks there are and which one reads. Then come messages, each with
// its sender and its length.
void run_agreement(ByteView input) {
    Input in(input);
    const Rank size = 1 + in.get<uint8_t>() % 5;
    const Rank rank = in.get<uint8_t>() % size;
    Agreements agreements({rank, size, 2});
    AgreementOutputs out;
    AgreementCall call;
    call.leavers = RankSet(size);
    for (int calls = 0; calls < 3; ++calls) agreements.begin(call, 0, out);
    while (!in.empty()) {
        const Rank from = in.get<uint8_t>() % size;
        read_message(in.take(in.get<uint16_t>()), from, size, agreements);
    }
}

std::vector<Bytes> seeds_agreement() {
    constexpr Rank size = 3;
    const auto framed = [](Rank from, const AgreementMessage& message) {
        const Bytes bytes = message.encode();
        ByteWriter head;
        head.put(static_cast<uint8_t>(from)).put(static_cast<uint16_t>(bytes.size()));
        return joined({head.take(), bytes});
    };
    const auto read_by = [](uint8_t rank, const std::vector<Bytes>& messages) {
        return joined({Bytes{std::byte{size - 1}, std::byte{rank}}, joined(messages)});
    };
    AgreementMessage statement(size);
    statement.instance = agreement_instance(3, 0);
    statement.contributed.insert(1);
    statement.gave_up = GiveUp{Code::timeout, 2, "rank 2 is late"};
    AgreementMessage accusing = statement;
    accusing.known.accuse(1, 2);
    accusing.gave_up.reset();
    AgreementMessage inquiry(size);
    inquiry.role = AgreementMessage::Role::inquiry;
    inquiry.instance = agreement_instance(4, 0);
    inquiry.wants_answer = true;
    inquiry.known.dead.insert(0);
    inquiry.missing.insert(1);
    AgreementMessage decision(size);
    decision.role = AgreementMessage::Role::decision;
    decision.instance = agreement_instance(3, 0);
    decision.decision = Decision{};
    decision.decision->gone = decision.decision->silent = decision.decision->leavers =
        RankSet(size);
    decision.proposal = decision.decision;
    return {read_by(0, {framed(1, statement)}),
            read_by(0, {framed(1, accusing), framed(2, statement)}),
            read_by(1, {framed(2, inquiry), framed(0, decision)}),
            read_by(2, {framed(0, decision), framed(0, inquiry)})};
}

}  // namespace tutti::fuzz
