// What shm ranks say to each other over their Unix sockets: a hello after the handshake, then news.
#pragma once

#include "base/bytes.h"
#include "base/result.h"

namespace tutti::shm {

enum class HelloKind : uint8_t {
    pair = 1,   // channels and news between two ranks, for as long as both live
    group = 2,  // one request to join a flat group, one answer
};

struct Hello {
    HelloKind kind = HelloKind::pair;
    Rank rank = nobody;  // pair: of the job; group: of the communicator
    uint32_t comm = 0;   // group only, as the rest
    Rank size = 0;
    uint32_t streams = 0;
};

enum class NewsKind : uint8_t {
    doorbell = 1,  // + eventfd: the first news of each side
    channel = 2,   // + memory: comm and lane say which
    bye = 3,       // the end that follows is an orderly one
};

struct News {
    NewsKind kind = NewsKind::bye;
    uint32_t comm = 0;
    uint16_t lane = 0;
};

/// The leader's answer to a group request; with ok come the memory and an eventfd for each rank.
struct GroupAnswer {
    Code code = Code::ok;
    std::string text;
};

inline constexpr std::size_t max_frame_bytes = 1024;

Bytes encode(const Hello& hello);
Bytes encode(const News& news);
Bytes encode(const GroupAnswer& answer);
Result<Hello> decode_hello(ByteView in);
Result<News> decode_news(ByteView in);
Result<GroupAnswer> decode_answer(ByteView in);

}  // namespace tutti::shm
