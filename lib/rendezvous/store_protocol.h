// The wire format between the embedded TCP store's clients and server (docs/reference/protocol.md,
// "Store").
//
//   handshake  net/auth.h, context "store/<job>", or "store" with the greeting any_job
//   hello      version (4); with the greeting any_job: entry (1), job (4 + n), too, and a reply
//   request    length (4 bytes), op (1), key (4 + n), value (4 + n)
//   reply      length (4 bytes), status (1), value (4 + n)
//
// Replies come in the order of a connection's requests; a get is answered when its key is there. A
// client that no longer wants to wait closes its connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace tutti::store_protocol {

inline constexpr uint32_t version = 3;
inline constexpr uint32_t max_frame_bytes = 1 << 20;
inline constexpr uint32_t max_key_bytes = 4096;
// A frame also holds an op or a status, and two lengths.
inline constexpr uint32_t max_value_bytes = max_frame_bytes - max_key_bytes - 9;

// will: the server claims the key once this connection has ended; an empty key withdraws it.
enum class StoreOp : uint8_t { set = 1, get, claim, remove, add, try_get, will };
// taken: the claim failed, and the value is the present one. refused: the value gives the reason.
// missing: a try_get found no value.
enum class Status : uint8_t { ok = 1, taken, refused, missing };

struct StoreRequest {
    StoreOp op = StoreOp::set;
    std::string key;
    std::string value;
};

inline std::string handshake_context(const std::string& job) {
    return "store/" + job;
}
inline constexpr std::string_view any_job_context = "store";

/// own: the server's own job. enter: a job that is open, or will be. open: opens a job, which ends
/// with this connection.
enum class JobEntry : uint8_t { own, enter, open };
struct StoreHello {
    JobEntry entry = JobEntry::own;
    std::string job;
    uint32_t version = store_protocol::version;
};

inline Bytes encode_store_hello(const StoreHello& hello) {
    ByteWriter writer;
    writer.put(hello.version);
    if (hello.entry != JobEntry::own) writer.put(hello.entry).put_text(hello.job);
    return writer.take();
}

/// nullopt if it is malformed. If the version is another, the rest is not read.
inline std::optional<StoreHello> decode_store_hello(ByteView bytes) {
    ByteReader reader(bytes);
    StoreHello hello;
    hello.version = reader.get<uint32_t>();
    if (hello.version != version && bytes.size() >= sizeof version) return hello;
    if (bytes.size() > sizeof version) {
        hello.entry = reader.get_enum(JobEntry::enter, JobEntry::open);
        hello.job = reader.get_text(max_key_bytes);
    }
    if (!reader.at_end()) return std::nullopt;
    return hello;
}

inline Bytes encode_request(StoreOp op, std::string_view key, std::string_view value) {
    ByteWriter writer;
    writer.put(op).put_text(key).put_text(value);
    return writer.take();
}

/// nullopt if the body is not exactly one well-formed request.
inline std::optional<StoreRequest> decode_request(ByteView body) {
    ByteReader reader(body);
    std::optional<StoreRequest> request(std::in_place);
    request->op = reader.get_enum(StoreOp::set, StoreOp::will);
    request->key = reader.get_text(max_key_bytes);
    request->value = reader.get_text(max_frame_bytes);
    if (!reader.at_end()) request.reset();
    return request;
}

inline Bytes framed_reply(Status status, std::string_view value) {
    const Bytes body = ByteWriter().put(status).put_text(value).take();
    return ByteWriter().put_text(as_text(body)).take();
}

}  // namespace tutti::store_protocol
