#include "control/tree_message.h"

namespace tutti {
namespace {

constexpr std::size_t head_bytes =
    sizeof(TreeMessage::Topic) + 2 * sizeof(Rank);  // of control and returned

Bytes followed_by(Bytes head, ByteView rest) {
    head.insert(head.end(), rest.begin(), rest.end());
    return head;
}

}  // namespace

Bytes TreeMessage::encode() const {
    ByteWriter out;
    out.put(topic);
    switch (topic) {
        case Topic::bootstrap:
            return followed_by(out.take(), body);
        case Topic::control:
        case Topic::returned:
            return followed_by(out.put(to).put(from).take(), control.encode());
        case Topic::loss:
            return out.put(lost)
                .put_text(std::string_view(cause).substr(0, max_cause_bytes))
                .take();
        case Topic::accusation:
            return out.put(from)
                .put(lost)
                .put_text(std::string_view(cause).substr(0, max_cause_bytes))
                .take();
        case Topic::leaving:
        case Topic::farewell:
        case Topic::beat:
            break;
    }
    return out.take();
}

std::optional<TreeMessage> TreeMessage::decode(ByteView bytes, Rank ranks) {
    const auto in_job = [&](Rank rank) { return rank >= 0 && rank < ranks; };
    ByteReader in(bytes);
    TreeMessage message;
    message.topic = in.get_enum(Topic::bootstrap, Topic::accusation);
    if (!in.ok()) return std::nullopt;
    switch (message.topic) {
        case Topic::bootstrap:
            message.body = bytes.subspan(sizeof(Topic));
            return message;
        case Topic::control:
        case Topic::returned: {
            message.to = in.get<Rank>();
            message.from = in.get<Rank>();
            if (!in.ok() || !in_job(message.to) || !in_job(message.from)) return std::nullopt;
            auto control = ControlMessage::decode(bytes.subspan(head_bytes));
            if (!control) return std::nullopt;
            message.control = std::move(*control);
            return message;
        }
        case Topic::loss:
            message.lost = in.get<Rank>();
            message.cause = in.get_text(max_cause_bytes);
            if (!in_job(message.lost)) return std::nullopt;
            break;
        case Topic::accusation:
            message.from = in.get<Rank>();
            message.lost = in.get<Rank>();
            message.cause = in.get_text(max_cause_bytes);
            if (!in_job(message.from) || !in_job(message.lost)) return std::nullopt;
            break;
        case Topic::leaving:
        case Topic::farewell:
        case Topic::beat:
            break;
    }
    if (!in.at_end()) return std::nullopt;
    return message;
}

}  // namespace tutti
