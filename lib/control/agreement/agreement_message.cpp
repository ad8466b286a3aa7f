#include "control/agreement/agreement_message.h"

namespace tutti {
namespace {

void put_ballot(ByteWriter& out, const Ballot& ballot) {
    out.put(ballot.epoch).put(ballot.place);
}

void put_flag(ByteWriter& out, bool flag) {
    out.put(static_cast<uint8_t>(flag ? 1 : 0));
}

void put_decision(ByteWriter& out, const std::optional<Decision>& decision) {
    put_flag(out, decision.has_value());
    if (!decision) return;
    put_ballot(out, decision->ballot);
    out.put(decision->code).put(decision->culprit).put(decision->bits).put(decision->first_free_id);
    decision->gone.encode(out);
    decision->silent.encode(out);
    decision->leavers.encode(out);
    out.put_text(as_text(decision->payload));
    out.put_text(std::string_view(decision->text).substr(0, AgreementMessage::max_text_bytes));
}

/// Reads the parts of a message. After the first part that is malformed, ok() is false.
class MessageReader {
public:
    MessageReader(ByteView bytes, Rank size) : in_(bytes), size_(size) {}

    template <typename T>
    T number() {
        return in_.get<T>();
    }
    template <typename E>
    E choice(E first, E last) {
        return in_.get_enum(first, last);
    }
    bool flag() {
        const auto value = in_.get<uint8_t>();
        if (value > 1) ok_ = false;
        return value == 1;
    }
    Rank rank() {
        const auto value = in_.get<Rank>();
        if (value < nobody || value >= size_) ok_ = false;
        return value;
    }
    RankSet ranks() {
        auto set = RankSet::decode(in_, size_);
        if (!set) ok_ = false;
        return set ? std::move(*set) : RankSet(size_);
    }
    Knowledge knowledge() {
        auto known = Knowledge::decode(in_, size_);
        if (!known) ok_ = false;
        return known ? std::move(*known) : Knowledge(size_);
    }
    Ballot ballot() {
        Ballot ballot;
        ballot.epoch = in_.get<uint32_t>();
        ballot.place = in_.get<uint32_t>();
        return ballot;
    }
    Bytes bytes() {
        const std::string text = in_.get_text(AgreementMessage::max_payload_bytes);
        const ByteView view = as_bytes(text);
        return {view.begin(), view.end()};
    }
    std::string text() { return in_.get_text(AgreementMessage::max_text_bytes); }
    std::optional<Decision> decision() {
        if (!flag()) return std::nullopt;
        Decision decision;
        decision.ballot = ballot();
        decision.code = choice(Code::ok, last_code);
        if (decision.code == Code::in_progress) ok_ = false;
        decision.culprit = rank();
        decision.bits = number<uint64_t>();
        decision.first_free_id = number<uint32_t>();
        decision.gone = ranks();
        decision.silent = ranks();
        decision.leavers = ranks();
        decision.payload = bytes();
        decision.text = text();
        return decision;
    }
    AgreementCall call() {
        AgreementCall call;
        call.kind = choice(AgreementCall::Kind::agree, AgreementCall::Kind::grow);
        call.leavers = ranks();
        call.bits = number<uint64_t>();
        call.first_free_id = number<uint32_t>();
        return call;
    }
    std::optional<GiveUp> give_up() {
        if (!flag()) return std::nullopt;
        GiveUp gave_up;
        gave_up.code = choice(Code::invalid, last_code);
        gave_up.culprit = rank();
        gave_up.text = text();
        return gave_up;
    }
    bool ok() const { return ok_ && in_.ok(); }
    bool at_end() const { return ok_ && in_.at_end(); }

private:
    ByteReader in_;
    const Rank size_;
    bool ok_ = true;
};

}  // namespace

Bytes AgreementMessage::encode() const {
    ByteWriter out;
    out.put(role).put(instance);
    put_flag(out, wants_answer);
    known.encode(out);
    put_decision(out, proposal);
    if (role == Role::inquiry) missing.encode(out);
    if (role == Role::decision) put_decision(out, decision);
    if (role != Role::statement) return out.take();
    out.put(merged.kind);
    merged.leavers.encode(out);
    out.put(merged.bits).put(merged.first_free_id);
    contributed.encode(out);
    accepted.encode(out);
    put_ballot(out, since);
    put_flag(out, gave_up.has_value());
    if (gave_up)
        out.put(gave_up->code)
            .put(gave_up->culprit)
            .put_text(std::string_view(gave_up->text).substr(0, max_text_bytes));
    return out.take();
}

std::optional<AgreementMessage> AgreementMessage::decode(ByteView bytes, Rank size) {
    MessageReader in(bytes, size);
    AgreementMessage message(size);
    message.role = in.choice(Role::statement, Role::decision);
    message.instance = in.number<uint64_t>();
    message.wants_answer = in.flag();
    message.known = in.knowledge();
    message.proposal = in.decision();
    if (message.proposal && message.proposal->code != Code::ok) return std::nullopt;
    if (!in.ok()) return std::nullopt;
    switch (message.role) {
        case Role::statement:
            message.merged = in.call();
            message.contributed = in.ranks();
            message.accepted = in.ranks();
            message.since = in.ballot();
            message.gave_up = in.give_up();
            break;
        case Role::inquiry:
            message.missing = in.ranks();
            break;
        case Role::decision:
            message.decision = in.decision();
            if (!message.decision) return std::nullopt;
            break;
    }
    if (!in.at_end()) return std::nullopt;
    return message;
}

}  // namespace tutti
