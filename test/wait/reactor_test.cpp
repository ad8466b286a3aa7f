#include "wait/reactor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "support/catch.h"

using namespace tutti;

namespace {

UniqueFd make_event(unsigned value = 0) {
    UniqueFd fd(eventfd(value, EFD_NONBLOCK | EFD_CLOEXEC));
    REQUIRE(fd);
    return fd;
}

void drain(int fd) {
    eventfd_t value;
    eventfd_read(fd, &value);
}

}  // namespace

TEST_CASE("reactor: calls the handler of what is ready and of nothing else") {
    Reactor reactor;
    const UniqueFd ready = make_event(1), silent = make_event();
    int calls = 0, wrong_calls = 0;
    REQUIRE(reactor.add(ready.get(), EPOLLIN, [&](uint32_t events) {
        CHECK((events & EPOLLIN) != 0);
        ++calls;
    }));
    REQUIRE(reactor.add(silent.get(), EPOLLIN, [&](uint32_t) { ++wrong_calls; }));
    CHECK(reactor.poll(1000) == 1);
    CHECK(calls == 1);
    CHECK(wrong_calls == 0);
    drain(ready.get());
    CHECK(reactor.poll(0) == 0);
}

TEST_CASE("reactor: modify switches a handler off and on") {
    Reactor reactor;
    const UniqueFd fd = make_event(1);
    int calls = 0;
    REQUIRE(reactor.add(fd.get(), 0, [&](uint32_t) { ++calls; }));
    CHECK(reactor.poll(0) == 0);
    reactor.modify(fd.get(), EPOLLIN);
    CHECK(reactor.poll(1000) == 1);
    reactor.modify(fd.get(), 0);
    CHECK(reactor.poll(0) == 0);
    CHECK(calls == 1);
}

TEST_CASE("reactor: what is not watched is not seen, and is again with what it has by then") {
    Reactor reactor;
    UniqueFd fd(::eventfd(0, EFD_NONBLOCK)), other(::eventfd(0, EFD_NONBLOCK));
    int calls = 0;
    REQUIRE(reactor.add(fd.get(), EPOLLIN, [&](uint32_t) { ++calls; }));
    REQUIRE(reactor.watch(fd.get(), true));
    REQUIRE(reactor.watch(fd.get(), false));
    REQUIRE(reactor.watch(fd.get(), false));
    ::eventfd_write(fd.get(), 1);
    REQUIRE(reactor.poll(0) == 0);
    reactor.modify(fd.get(), EPOLLIN | EPOLLOUT);
    REQUIRE(reactor.poll(0) == 0);
    REQUIRE(reactor.watch(fd.get(), true));
    REQUIRE(reactor.poll(0) == 1);
    REQUIRE(calls == 1);
    REQUIRE_FALSE(reactor.watch(other.get(), true));
    // Removed while it is not watched, its number is free for another.
    REQUIRE(reactor.watch(fd.get(), false));
    reactor.remove(fd.get());
    REQUIRE(reactor.add(fd.get(), EPOLLIN, [&](uint32_t) { calls += 10; }));
    REQUIRE(reactor.poll(0) == 1);
    REQUIRE(calls == 11);
}

TEST_CASE("reactor: a handler may remove itself and what it holds") {
    Reactor reactor;
    const UniqueFd fd = make_event(1);
    auto held = std::make_shared<int>(7);
    std::weak_ptr<int> watch = held;
    REQUIRE(reactor.add(fd.get(), EPOLLIN, [&reactor, &fd, held](uint32_t) {
        reactor.remove(fd.get());
        CHECK(*held == 7);
    }));
    held.reset();
    CHECK(reactor.poll(1000) == 1);
    CHECK(watch.expired());
    CHECK(reactor.poll(0) == 0);
}

TEST_CASE("reactor: a handler that removes the others is the last to be called") {
    Reactor reactor;
    const UniqueFd fds[3] = {make_event(1), make_event(1), make_event(1)};
    int calls = 0;
    for (const UniqueFd& fd : fds)
        REQUIRE(reactor.add(fd.get(), EPOLLIN, [&](uint32_t) {
            ++calls;
            for (const UniqueFd& other : fds) reactor.remove(other.get());
        }));
    CHECK(reactor.poll(1000) == 1);
    CHECK(reactor.poll(0) == 0);
    CHECK(calls == 1);
}

TEST_CASE("reactor: ends with handlers that hold what removes itself, and others") {
    struct Watch {
        Reactor& reactor;
        UniqueFd own = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        int other = -1;
        ~Watch() {
            reactor.remove(own.get());
            reactor.remove(other);
        }
    };
    int gone = 0;
    {
        Reactor reactor;
        std::vector<std::shared_ptr<Watch>> all;
        for (int i = 0; i < 20; ++i)
            all.push_back(std::shared_ptr<Watch>(new Watch{reactor}, [&gone](Watch* watch) {
                ++gone;
                delete watch;
            }));
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i]->other = all[(i + 7) % all.size()]->own.get();
            REQUIRE(reactor.add(all[i]->own.get(), EPOLLIN, [held = all[i]](uint32_t) {}));
        }
    }
    REQUIRE(gone == 20);
}

TEST_CASE("reactor: an event of a closed descriptor does not reach the next of its number") {
    Reactor reactor;
    UniqueFd fds[2] = {make_event(1), make_event(1)};
    int replaced_calls = 0, calls = 0;
    // Both are ready in one round. The first to run puts a silent descriptor of the same number in
    // the place of the other, whose event is already in the list.
    for (int i = 0; i < 2; ++i)
        REQUIRE(reactor.add(fds[i].get(), EPOLLIN, [&, i](uint32_t) {
            ++calls;
            const int other = fds[1 - i].get();
            const UniqueFd silent = make_event();
            reactor.remove(other);
            REQUIRE(dup3(silent.get(), other, O_CLOEXEC) == other);
            REQUIRE(reactor.add(other, EPOLLIN, [&](uint32_t) { ++replaced_calls; }));
        }));
    CHECK(reactor.poll(1000) == 1);
    CHECK(calls == 1);
    CHECK(replaced_calls == 0);
}

TEST_CASE("reactor: refuses a descriptor that cannot be watched, and says which") {
    Reactor reactor;
    const auto added = reactor.add(1'000'000, EPOLLIN, [](uint32_t) {});
    REQUIRE(!added);
    CHECK(added.error().code == Code::system);
    CHECK(added.error().sys_errno == EBADF);
    CHECK(added.error().message.find("1000000") != std::string::npos);
}

TEST_CASE("reactor: a second poll returns at once, also from within a handler") {
    Reactor reactor;
    const UniqueFd fd = make_event(1);
    int inner = -1;
    REQUIRE(reactor.add(fd.get(), EPOLLIN, [&](uint32_t) { inner = reactor.poll(-1); }));
    CHECK(reactor.poll(1000) == 1);
    CHECK(inner == 0);
}

// A thread that asks for the rounds while a doorbell is drained may have been rung for by then.
TEST_CASE("reactor: a poll counts its round when its handlers have run") {
    Reactor reactor;
    const UniqueFd fd = make_event(1);
    uint64_t meanwhile = 0;
    REQUIRE(reactor.add(fd.get(), EPOLLIN, [&](uint32_t) { meanwhile = reactor.rounds(); }));
    const uint64_t before = reactor.rounds();
    CHECK(reactor.poll(1000) == 1);
    CHECK(meanwhile == before);
    CHECK(reactor.rounds() == before + 1);
}

TEST_CASE("reactor: its descriptor is readable when a handler is due") {
    Reactor inner, outer;
    const UniqueFd fd = make_event();
    int calls = 0;
    REQUIRE(inner.add(fd.get(), EPOLLIN, [&](uint32_t) { ++calls; }));
    REQUIRE(outer.add(inner.fd(), EPOLLIN, [&](uint32_t) { inner.poll(0); }));
    CHECK(outer.poll(0) == 0);
    eventfd_write(fd.get(), 1);
    CHECK(outer.poll(1000) == 1);
    CHECK(calls == 1);
}

TEST_CASE("reactor: survives adding and removing from other threads while it polls") {
    Reactor reactor;
    std::atomic<bool> stop{false};
    std::atomic<int> calls{0}, strays{0};
    std::thread poller([&] {
        while (!stop) reactor.poll(10);
    });
    std::vector<std::thread> changers;
    for (int t = 0; t < 3; ++t)
        changers.emplace_back([&] {
            for (int i = 0; i < 300; ++i) {
                const UniqueFd fd(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
                auto registered = std::make_shared<std::atomic<int>>(fd.get());
                const auto added =
                    reactor.add(fd.get(), EPOLLIN, [&, registered, raw = fd.get()](uint32_t) {
                        ++calls;
                        if (*registered != raw) ++strays;
                    });
                if (!added) ++strays;
                if (i % 3 == 0) std::this_thread::yield();
                reactor.modify(fd.get(), i % 2 == 0 ? EPOLLIN : 0u);
                reactor.remove(fd.get());
            }
        });
    for (std::thread& t : changers) t.join();
    const UniqueFd last = make_event(1);
    std::atomic<bool> reached{false};
    REQUIRE(reactor.add(last.get(), EPOLLIN, [&](uint32_t) { reached = true; }));
    const auto deadline = Deadline::after_ms(20'000);
    while (!reached && !deadline.passed()) std::this_thread::yield();
    stop = true;
    poller.join();
    CHECK(reached);
    CHECK(strays == 0);
}
