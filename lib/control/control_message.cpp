#include "control/control_message.h"

namespace tutti {
namespace {

constexpr uint32_t max_message_text_bytes = 4096;

}  // namespace

// A message without a body ends after the text, as in version 0.1.0, with which jobs may be mixed.
Bytes ControlMessage::encode() const {
    ByteWriter out;
    out.put(kind).put(comm).put(rank).put(code).put(tag).put_text(
        std::string_view(text).substr(0, max_message_text_bytes));
    if (!body.empty()) out.put_text(as_text(body));
    return out.take();
}

std::optional<ControlMessage> ControlMessage::decode(ByteView bytes) {
    ByteReader in(bytes);
    ControlMessage message;
    message.kind = in.get_enum(Kind::failed, Kind::agree);
    message.comm = in.get<uint32_t>();
    message.rank = in.get<Rank>();
    message.code = in.get<Code>();
    message.tag = in.get<Tag>();
    message.text = in.get_text(max_message_text_bytes);
    if (in.at_end()) return message;
    const std::string body = in.get_text(max_body_bytes);
    if (!in.at_end() || body.empty()) return std::nullopt;
    message.body.assign(as_bytes(body).begin(), as_bytes(body).end());
    return message;
}

}  // namespace tutti
