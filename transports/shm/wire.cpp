#include "transports/shm/wire.h"

namespace tutti::shm {

Bytes encode(const Hello& hello) {
    ByteWriter out;
    out.put(hello.kind).put(hello.rank).put(hello.comm).put(hello.size).put(hello.streams);
    return out.take();
}

Bytes encode(const News& news) {
    ByteWriter out;
    out.put(news.kind).put(news.comm).put(news.lane);
    return out.take();
}

Bytes encode(const GroupAnswer& answer) {
    ByteWriter out;
    constexpr std::size_t room = max_frame_bytes - sizeof(Code) - sizeof(uint32_t);
    out.put(answer.code).put_text(std::string_view(answer.text).substr(0, room));
    return out.take();
}

Result<Hello> decode_hello(ByteView in) {
    ByteReader reader(in);
    Hello hello;
    hello.kind = reader.get<HelloKind>();
    hello.rank = reader.get<Rank>();
    hello.comm = reader.get<uint32_t>();
    hello.size = reader.get<Rank>();
    hello.streams = reader.get<uint32_t>();
    if (!reader.at_end() || (hello.kind != HelloKind::pair && hello.kind != HelloKind::group))
        return fail(Code::invalid, "shm: a hello of {} bytes and kind {} makes no sense", in.size(),
                    static_cast<int>(hello.kind));
    return hello;
}

Result<News> decode_news(ByteView in) {
    ByteReader reader(in);
    News news;
    news.kind = reader.get<NewsKind>();
    news.comm = reader.get<uint32_t>();
    news.lane = reader.get<uint16_t>();
    if (!reader.at_end() || news.kind < NewsKind::doorbell || news.kind > NewsKind::bye)
        return fail(Code::invalid, "shm: news of {} bytes and kind {} makes no sense", in.size(),
                    static_cast<int>(news.kind));
    return news;
}

Result<GroupAnswer> decode_answer(ByteView in) {
    ByteReader reader(in);
    GroupAnswer answer;
    answer.code = reader.get<Code>();
    answer.text = reader.get_text(max_frame_bytes);
    if (!reader.at_end() || answer.code > Code::no_memory)
        return fail(Code::invalid, "shm: an answer of {} bytes makes no sense", in.size());
    return answer;
}

}  // namespace tutti::shm
