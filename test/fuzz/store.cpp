// What the embedded store's server reads from a client: frames, each of one request.
#include "fuzz/catalog.h"
#include "store/store_protocol.h"

namespace tutti::fuzz {

using namespace store_protocol;

void run_store(ByteView input) {
    for (Input in(input); !in.empty();) {
        const auto bytes = in.get<uint32_t>();
        if (bytes > max_frame_bytes) return;
        const ByteView body = in.take(bytes);
        Request request;
        if (!decode_request(body, request)) return;
        const Bytes again = encode_request(request.op, request.key, request.value);
        require(as_text(again) == as_text(body), "a request has two forms");
    }
}

std::vector<Bytes> seeds_store() {
    std::vector<Bytes> all;
    const auto add = [&](Op op, std::string_view key, std::string_view value) {
        all.push_back(ByteWriter().put_text(as_text(encode_request(op, key, value))).take());
    };
    add(Op::set, "a", "1");
    add(Op::get, "a", "");
    add(Op::claim, "b", "mine");
    add(Op::claim, "b", "theirs");
    add(Op::add, "n", std::string_view("\x05\0\0\0\0\0\0\0", 8));
    add(Op::add, "a", std::string_view("\x05\0\0\0\0\0\0\0", 8));
    add(Op::look, "c", "");
    add(Op::remove, "a", "");
    return {joined(all), {}};
}

}  // namespace tutti::fuzz
