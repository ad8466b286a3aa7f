// Feeds a fabric's engine arbitrary addresses and messages of peers, whose payloads come along,
// must be fetched, or come in pieces.
#include <algorithm>

#include "fabric/engine.h"
#include "fuzz/catalog.h"
#include "fuzz/channels.h"

namespace tutti::fuzz {
namespace {

using namespace fabric;

constexpr uint64_t nonce = 0x0102'0304'0506'0708;
constexpr Rank fabric_ranks = 4;

struct Message {
    Bytes header, payload;
    uint8_t manner =
        0;  // 0: at hand for the event; 1: can be kept; 2: must be fetched; 3: in pieces
};

/// A library that delivers what the input holds, and takes whatever is sent.
class InputPort final : public Port {
public:
    explicit InputPort(PortEvents& events) : events_(events) {}
    void deliver(Message message) {
        held_.push_back(std::make_unique<Message>(std::move(message)));
        Message& held = *held_.back();
        Arrival arrival{.header = held.header.data(), .bytes = held.payload.size()};
        if (held.manner < 2 && arrival.bytes > 0) arrival.data = held.payload.data();
        if (held.manner > 0) arrival.hold = &held;
        arrival.at_once = held.manner == 3;
        if (!events_.arrived(arrival)) release(&held);
    }
    std::size_t held() const { return held_.size(); }

    const PortLimits& limits() const override { return limits_; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank, ByteView) override { return {}; }
    void disconnect(Rank) override {}
    Progress send(Rank, const std::byte*, const std::byte*, std::size_t, void*) override {
        return Progress::done;
    }
    Progress fetch(void* hold, std::byte* where, std::size_t bytes, void*) override {
        const Message& held = *static_cast<Message*>(hold);
        require(bytes <= held.payload.size(), "more is fetched than there is");
        std::copy_n(held.payload.begin(), bytes, where);
        return Progress::done;
    }
    void release(void* hold) override {
        const auto known = std::erase_if(held_, [&](const auto& one) { return one.get() == hold; });
        require(known == 1, "an arrival is released twice");
    }
    bool progress() override { return false; }
    void flush(Deadline) override {}

private:
    PortEvents& events_;
    PortLimits limits_{.eager_bytes = 64, .copied_bytes = 64, .max_message_bytes = 4096};
    Bytes address_ = to_bytes("here");
    std::vector<std::unique_ptr<Message>> held_;
};

struct InputFactory final : PortFactory {
    InputPort* port = nullptr;
    std::string_view name() const override { return "input"; }
    std::string version() const override { return "1"; }
    std::string path() const override { return "memory"; }
    Result<std::unique_ptr<Port>> open(PortEvents& events) override {
        auto opened = std::make_unique<InputPort>(events);
        port = opened.get();
        return opened;
    }
};

struct Sink final : ChannelEvents {
    std::vector<std::unique_ptr<Receiver>> receivers;
    std::array<int, fabric_ranks> losses{};
    void opened(const ChannelId&, std::unique_ptr<Receiver> receiver) override {
        receivers.push_back(std::move(receiver));
    }
    void lost(Rank peer, const std::string& cause) override {
        require(peer > 0 && peer < fabric_ranks && !cause.empty(), "somebody else is blamed");
        require(++losses[static_cast<std::size_t>(peer)] == 1, "one peer is lost twice");
    }
};

void read_some(Sink& sink, uint64_t turn) {
    for (std::size_t i = 0; i < sink.receivers.size(); ++i)
        if ((turn + i) % 3 != 0 && sink.receivers[i]->peek(tag_of(1), 5).data)
            sink.receivers[i]->release();
}

Bytes message(uint8_t manner, Kind kind, std::string_view payload = {}, uint32_t comm = 7,
              uint32_t position = 0) {
    Header header{.magic = Header::magic_of(kind), .sender = 1, .nonce = nonce, .comm = comm};
    header.bytes = static_cast<uint32_t>(payload.size());
    header.position = position;
    if (kind == Kind::data) header.tag = tag_of(1);
    Bytes out =
        ByteWriter().put(manner).put(static_cast<uint16_t>(payload.size())).put(header).take();
    const ByteView bytes = as_bytes(payload);
    out.insert(out.end(), bytes.begin(), bytes.end());
    return out;
}

Bytes conversation(std::initializer_list<Bytes> messages) {
    const Bytes address = ByteWriter().put(uint64_t{42}).put_text("there").take();
    return joined(
        {message(0, Kind::hello, as_text(address)), joined({messages.begin(), messages.size()})});
}

}  // namespace

// Messages: how it comes (1), bytes of payload (2), header, payload.
void run_fabric(ByteView input) {
    const auto address = decode_address("input", "1", as_text(input));
    if (address) require(!encode_address("input", *address).empty(), "no address");
    Retired retired;
    retired.insert(retired_comm);
    Sink sink;
    const auto engine =
        std::make_shared<FabricEngine>(FabricEngine::Options{.rank = 0,
                                                             .size = fabric_ranks,
                                                             .nonce = nonce,
                                                             .max_message_bytes = 4096,
                                                             .retired = &retired,
                                                             .events = &sink,
                                                             .patience_ms = 0});
    InputFactory factory;
    require(engine->open_port(factory).has_value(), "the port does not open");
    Input in(input);
    for (uint64_t turn = 0; !in.empty(); ++turn) {
        Message next;
        next.manner = in.get<uint8_t>() % 4;
        const std::size_t bytes = in.get<uint16_t>();
        const ByteView header = in.take(header_bytes), payload = in.take(bytes);
        next.header.assign(header.begin(), header.end());
        next.header.resize(header_bytes);
        next.payload.assign(payload.begin(), payload.end());
        factory.port->deliver(std::move(next));
        engine->progress();
        read_some(sink, turn);
    }
    engine->progress();
    sink.receivers.clear();
    engine->progress();
    engine->begin_close(Deadline::after_ms(0));
    engine->end_close(Deadline::after_ms(0));
}

std::vector<Bytes> seeds_fabric() {
    const Address address{
        .version = "1", .nonce = nonce, .ports = {to_bytes("p0"), to_bytes("p1")}};
    return {
        conversation({message(0, Kind::welcome), message(0, Kind::open),
                      message(0, Kind::data, "hello"), message(1, Kind::data, "again", 7, 1),
                      message(0, Kind::credit), message(0, Kind::bye, {}, 0, 2)}),
        conversation({message(2, Kind::data, std::string(100, 'x')),
                      message(3, Kind::data, std::string(90, 'y'), 7, 1),
                      message(0, Kind::farewell), message(1, Kind::data, "late", retired_comm),
                      message(0, Kind::contribution, "sum")}),
        to_bytes(encode_address("input", address)),
    };
}

}  // namespace tutti::fuzz
