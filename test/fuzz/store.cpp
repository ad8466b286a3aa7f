// The embedded store's table takes frames, each of one request, from clients that come and go.
#include <array>

#include "fuzz/catalog.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/store_table.h"

namespace tutti::fuzz {

using namespace store_protocol;

namespace {

constexpr std::size_t clients = 3;
constexpr uint8_t leaves = 0x80;

// A client that counts: each request has one reply, or none yet.
class Visitor {
public:
    explicit Visitor(StoreTable& table) : table_(table) {
        client_.on_reply([this](const Bytes& frame) {
            ByteReader in(frame);
            ByteReader reply(as_bytes(in.get_text(store_protocol::max_frame_bytes + 5)));
            require(in.at_end(), "a reply is not framed");
            ++replies_;
        });
    }
    ~Visitor() {
        require(replies_ + (client_.waits() ? 1 : 0) == requests_,
                "a request has no reply, or two");
        table_.drop(client_);
    }
    Visitor(const Visitor&) = delete;

    void say(ByteView bytes) {
        sent_.insert(sent_.end(), bytes.begin(), bytes.end());
        while (!broken_ && !client_.waits()) {
            const auto taken = table_.take(client_, sent_);
            broken_ = !taken;
            if (taken.value_or(0) == 0) return;
            require(*taken <= sent_.size(), "the server takes more than was sent");
            sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(*taken));
            ++requests_;
        }
    }

private:
    StoreTable& table_;
    StoreTable::Client client_;
    Bytes sent_;
    bool broken_ = false;
    int requests_ = 0, replies_ = 0;
};

void read_request(ByteView frame) {
    Input in(frame);
    const ByteView body = in.take(in.get<uint32_t>());
    const auto request = decode_request(body);
    if (!request) return;
    require(as_text(encode_request(request->op, request->key, request->value)) == as_text(body),
            "a request has two forms");
}

void read_store_hello(ByteView body) {
    const auto hello = decode_store_hello(body);
    if (!hello || hello->version != store_protocol::version) return;
    require(as_text(encode_store_hello(*hello)) == as_text(body), "a hello has two forms");
}

}  // namespace

// The input names, again and again, a client (with 0x80 it leaves and another comes), a length, and
// so many bytes that the client sends.
void run_store(ByteView input) {
    StoreTable table;
    std::array<std::optional<Visitor>, clients> visitors;
    for (Input in(input); !in.empty();) {
        const auto who = in.get<uint8_t>();
        std::optional<Visitor>& visitor = visitors[who % clients];
        if ((who & leaves) != 0 || !visitor) visitor.emplace(table);
        const ByteView said = in.take(in.get<uint16_t>());
        read_request(said);
        read_store_hello(said);
        visitor->say(said);
    }
    for (auto& visitor : visitors) visitor.reset();
    require(table.stored_bytes() <= input.size(), "the store grows by itself");
}

std::vector<Bytes> seeds_store() {
    std::vector<Bytes> all;
    const auto says = [&](uint8_t who, StoreOp op, std::string_view key, std::string_view value) {
        const Bytes frame = ByteWriter().put_text(as_text(encode_request(op, key, value))).take();
        all.push_back(ByteWriter().put(who).put(static_cast<uint16_t>(frame.size())).take());
        all.push_back(frame);
    };
    const std::string_view five("\x05\0\0\0\0\0\0\0", 8);
    const Bytes hello = encode_store_hello({.entry = JobEntry::open, .job = "job"});
    all.push_back(ByteWriter().put(uint8_t{0}).put(static_cast<uint16_t>(hello.size())).take());
    all.push_back(hello);
    says(0x80, StoreOp::set, "a", "1");
    says(0, StoreOp::get, "a", "");
    says(1, StoreOp::get, "late", "");
    says(1, StoreOp::try_get, "a", "");
    says(2, StoreOp::get, "late", "");
    says(0, StoreOp::claim, "b", "mine");
    says(1, StoreOp::claim, "b", "theirs");
    says(0, StoreOp::will, "late", "rank 0 is gone");
    says(0, StoreOp::add, "n", five);
    says(0, StoreOp::add, "n", five);
    says(0, StoreOp::add, "a", five);
    says(0, StoreOp::try_get, "c", "");
    says(leaves, StoreOp::remove, "a", "");
    return {joined(all), {}};
}

}  // namespace tutti::fuzz
