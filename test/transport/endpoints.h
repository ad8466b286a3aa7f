// Two endpoints of one job in this process, each with its reactors, for any transport.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "support/catch.h"
#include "transports/catalog.h"
#include "wait/reactor.h"

namespace tutti::test {

inline constexpr int patience_ms = 60'000;  // only a failure waits this long

struct JoinedTransport {
    const char* name;
    std::unique_ptr<Transport> (*make)(const TransportContext& context);
};
inline constexpr JoinedTransport shm_kind{"shm", make_shm_transport};

/// Collects what peers open; any thread.
class CollectingSink final : public ChannelSink {
public:
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override {
        const std::lock_guard lock(mutex_);
        receivers_[{id.peer, id.comm, id.lane}] = std::move(receiver);
    }
    void peer_lost(Rank peer, const std::string& cause) override {
        const std::lock_guard lock(mutex_);
        lost_.emplace_back(peer, cause);
    }
    std::unique_ptr<Receiver> take(const ChannelId& id) {
        const std::lock_guard lock(mutex_);
        const auto found = receivers_.find({id.peer, id.comm, id.lane});
        if (found == receivers_.end()) return nullptr;
        auto receiver = std::move(found->second);
        receivers_.erase(found);
        return receiver;
    }
    std::vector<std::pair<Rank, std::string>> lost() {
        const std::lock_guard lock(mutex_);
        return lost_;
    }

private:
    std::mutex mutex_;
    std::map<std::tuple<Rank, uint32_t, uint16_t>, std::unique_ptr<Receiver>> receivers_;
    std::vector<std::pair<Rank, std::string>> lost_;
};

class TestEndpoint {
public:
    TestEndpoint(const JoinedTransport& kind, Rank rank, Rank size, std::string job = "test",
                 std::string secret = "a secret")
        : doorbell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        REQUIRE(data.add(doorbell_.get(), EPOLLIN, [this](uint32_t) { drain(); }));
        transport = kind.make({.rank = rank,
                               .size = size,
                               .job = std::move(job),
                               .secret = std::move(secret),
                               .host_id = "this host",
                               .doorbell_fd = doorbell_.get(),
                               .reactor = &news,
                               .data_reactor = &data,
                               .sink = &sink});
        const auto listening = transport->listen();
        INFO((listening ? "" : listening.error().message));
        REQUIRE(listening);
        address = {.rank = rank, .host_id = "this host", .address = transport->address()};
        pump_ = std::thread([this] {
            while (!stop_) news.poll(10);
        });
    }
    ~TestEndpoint() {
        transport->close(Deadline::after_ms(patience_ms));
        stop_ = true;
        pump_.join();
        transport.reset();
    }
    TestEndpoint(const TestEndpoint&) = delete;

    /// One turn of a waiter that does not sleep.
    void turn() {
        transport->progress();
        data.poll(0);
    }

    Reactor news;
    Reactor data;
    CollectingSink sink;
    std::unique_ptr<Transport> transport;
    PeerAddress address;

private:
    void drain() {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t got = ::read(doorbell_.get(), &rings, sizeof rings);
    }

    UniqueFd doorbell_;
    std::atomic<bool> stop_{false};
    std::thread pump_;
};

/// Turns both endpoints until the condition holds; false when patience ran out.
template <typename Condition>
bool eventually(std::initializer_list<TestEndpoint*> endpoints, Condition condition) {
    const auto deadline = Deadline::after_ms(patience_ms);
    while (!condition()) {
        if (deadline.passed()) return false;
        for (TestEndpoint* endpoint : endpoints) endpoint->turn();
        std::this_thread::yield();
    }
    return true;
}

/// Rank 0 sends to rank 1 over lanes that the test opens.
struct Duo {
    explicit Duo(const JoinedTransport& kind) : a(kind, 0, 2), b(kind, 1, 2) {}

    struct Lane {
        std::unique_ptr<Sender> sender;
        std::unique_ptr<Receiver> receiver;
    };
    Lane open(uint16_t lane) { return open(a, b, lane); }
    static Lane open(TestEndpoint& from, TestEndpoint& to, uint16_t lane) {
        auto sender = from.transport->open({.peer = to.address.rank, .comm = 7, .lane = lane},
                                           to.address, Deadline::after_ms(patience_ms));
        INFO((sender ? "" : sender.error().message));
        REQUIRE(sender);
        Lane out{.sender = std::move(*sender), .receiver = nullptr};
        const ChannelId id{.peer = from.address.rank, .comm = 7, .lane = lane};
        REQUIRE(eventually({&from, &to}, [&] {
            out.receiver = to.sink.take(id);
            return out.receiver != nullptr;
        }));
        return out;
    }

    TestEndpoint a, b;
};

inline Tag make_tag(uint64_t number, uint64_t epoch = 1) {
    return {.sequence = epoch << Tag::epoch_shift | number, .count = number * 3, .plan = 5};
}

}  // namespace tutti::test
