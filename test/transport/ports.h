// Two ports of the fabric engine's kind, and what happened to them.
#pragma once

#include <poll.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fabric/port.h"
#include "support/catch.h"
#include "transport/joined.h"

namespace tutti::test {

using fabric::Arrival;
using fabric::Port;

/// Keeps every arrival until the test has looked at it.
class PortLog final : public fabric::PortEvents {
public:
    struct Message {
        Buffer header;
        const std::byte* data = nullptr;
        std::size_t bytes = 0;
        void* hold = nullptr;
    };
    bool arrived(const Arrival& arrival) override {
        messages.push_back({Buffer(arrival.header, arrival.header + fabric::header_bytes),
                            arrival.data, arrival.bytes, arrival.hold});
        return !drop_all;
    }
    void sent(void* context, Code code) override {
        sent_contexts.push_back(context);
        if (code != Code::ok) unsent_contexts.push_back(context);
    }
    void fetched(void* context, Code code) override { fetches.emplace_back(context, code); }
    void lost(Rank peer, const std::string& cause, fabric::Culprit culprit) override {
        losses.emplace_back(peer, cause);
        culprits.push_back(culprit);
    }

    bool drop_all = false;
    std::vector<Message> messages;
    std::vector<void*> sent_contexts;
    std::vector<void*> unsent_contexts;  // of those, what was lost
    std::vector<std::pair<void*, Code>> fetches;
    std::vector<std::pair<Rank, std::string>> losses;
    std::vector<fabric::Culprit> culprits;  // of each of them
};

using MakeFactory = std::function<Result<std::unique_ptr<fabric::PortFactory>>(Rank)>;

struct PortEnd {
    PortEnd(const MakeFactory& make, Rank rank) {
        auto factory = make(rank);
        INFO((factory ? "" : factory.error().message));
        REQUIRE(factory);
        auto opened = (*factory)->open(log);
        INFO((opened ? "" : opened.error().message));
        REQUIRE(opened);
        port = std::move(*opened);
    }
    bool turn() { return port->progress(); }

    PortLog log;  // outlives the port
    std::unique_ptr<Port> port;
};

template <typename Condition>
bool turning(std::initializer_list<PortEnd*> ends, Condition condition,
             int64_t patience = patience_ms) {
    const auto deadline = Deadline::after_ms(patience);
    while (!condition()) {
        if (deadline.passed()) return false;
        for (PortEnd* end : ends)
            if (!end->turn()) std::this_thread::yield();
    }
    return true;
}

inline Buffer header_of(uint64_t number) {
    return pattern(fabric::header_bytes, number);
}

/// Sends, turning until there is room.
inline fabric::Progress send_patiently(std::initializer_list<PortEnd*> ends, PortEnd& from, Rank to,
                                       uint64_t number, const Buffer& data, void* context) {
    auto result = fabric::Progress::busy;
    const Buffer header = header_of(number);
    turning(ends, [&] {
        result = from.port->send(to, header.data(), data.data(), data.size(), context);
        return result != fabric::Progress::busy;
    });
    return result;
}

/// Whether a message that came while nobody slept leaves the descriptor quiet, once that was heard
/// and the message was taken.
inline bool is_quiet_when_heard(PortEnd& from, Rank to, PortEnd& at) {
    const Buffer data = pattern(100, 1);
    // The first one makes the connection.
    send_patiently({&from, &at}, from, to, 1, data, nullptr);
    if (!turning({&from, &at},
                 [&] { return at.log.messages.size() == 1 && at.port->doorbell()->arm(); }))
        return false;
    send_patiently({&from}, from, to, 2, data, nullptr);
    pollfd fd{.fd = at.port->doorbell()->wake_fd(), .events = POLLIN, .revents = 0};
    if (!turning({&from}, [&] { return ::poll(&fd, 1, 0) == 1; })) return false;
    constexpr int64_t soon_ms = 3000;
    return turning(
        {&at, &from},
        [&] {
            const bool readable = ::poll(&fd, 1, 0) == 1;
            if (readable) at.port->doorbell()->drain();
            return !readable && at.log.messages.size() == 2;
        },
        soon_ms);
}

inline int open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<int>(std::distance(begin(files), end(files)));
}

/// Rank 0 and rank 1, in this process.
struct PortDuo {
    explicit PortDuo(const MakeFactory& make) : a(make, 0), b(make, 1) {
        for (auto [from, to, rank] : {std::tuple{&a, &b, 1}, {&b, &a, 0}}) {
            const auto connected = from->port->connect(rank, to->port->address());
            INFO((connected ? "" : connected.error().message));
            REQUIRE(connected);
        }
    }
    PortEnd a, b;
};

/// Fetches (if it must), checks and releases the oldest message.
inline void take(PortDuo& duo, PortEnd& at, uint64_t number, const Buffer& data) {
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return !at.log.messages.empty(); }));
    const PortLog::Message message = at.log.messages.front();
    at.log.messages.erase(at.log.messages.begin());
    REQUIRE(message.header == header_of(number));
    REQUIRE(message.bytes == data.size());
    Buffer got(data.size());
    if (message.data || data.empty()) {
        if (!got.empty()) std::memcpy(got.data(), message.data, got.size());
    } else {
        auto result = fabric::Progress::busy;
        REQUIRE(turning({&duo.a, &duo.b}, [&] {
            result = at.port->fetch(message.hold, got.data(), got.size(), &got);
            return result != fabric::Progress::busy;
        }));
        if (result == fabric::Progress::pending) {
            REQUIRE(turning({&duo.a, &duo.b}, [&] { return !at.log.fetches.empty(); }));
            REQUIRE(at.log.fetches.front() == std::pair<void*, Code>{&got, Code::ok});
            at.log.fetches.clear();
        }
    }
    REQUIRE(got == data);
    at.port->release(message.hold);
}

/// Sends a message, and takes it there.
inline void exchange(PortDuo& duo, PortEnd& from, PortEnd& to, Rank to_rank, std::size_t bytes) {
    INFO(bytes << " bytes");
    const Buffer data = pattern(bytes, bytes);
    int context = 0;
    const auto sent = send_patiently({&duo.a, &duo.b}, from, to_rank, bytes, data, &context);
    REQUIRE((sent == fabric::Progress::done || sent == fabric::Progress::pending));
    take(duo, to, bytes, data);
    if (sent == fabric::Progress::pending) {
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return !from.log.sent_contexts.empty(); }));
        REQUIRE(from.log.sent_contexts == std::vector<void*>{&context});
        from.log.sent_contexts.clear();
    }
    REQUIRE((from.log.losses.empty() && to.log.losses.empty()));
}

}  // namespace tutti::test
