#include "control/control_message.h"

namespace tutti {
namespace {

constexpr uint32_t max_news_text_bytes = 4096;

}  // namespace

Bytes ControlMessage::encode() const {
    return ByteWriter()
        .put(kind)
        .put(comm)
        .put(rank)
        .put(code)
        .put(tag)
        .put_text(std::string_view(text).substr(0, max_news_text_bytes))
        .take();
}

std::optional<ControlMessage> ControlMessage::decode(ByteView message) {
    ByteReader in(message);
    ControlMessage news;
    news.kind = in.get_enum(Kind::failed, Kind::silent);
    news.comm = in.get<uint32_t>();
    news.rank = in.get<Rank>();
    news.code = in.get<Code>();
    news.tag = in.get<Tag>();
    news.text = in.get_text(max_news_text_bytes);
    if (!in.at_end()) return std::nullopt;
    return news;
}

}  // namespace tutti
