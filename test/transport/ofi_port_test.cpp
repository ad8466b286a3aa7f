// Ports over libfabric, in one process and in two, over every provider of this machine that needs
// no special network.
#include <poll.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "net/socket.h"
#include "support/sanitized.h"
#include "transport/ports.h"
#include "transports/ofi/factory.h"
#include "transports/ofi/memory.h"
#include "transports/ofi/objects.h"

namespace tutti::test {
namespace {

using ofi::PortOptions;

constexpr std::size_t eager = 32 * 1024;
constexpr const char* candidates[] = {"tcp", "net", "shm", "udp", "sockets"};

PortOptions options_of(const std::string& provider, Rank rank = 0) {
    return {.wish = {.provider = provider, .iface = {}, .loopback_only = true},
            .rank = rank,
            .size = 2,
            .eager_bytes = eager};
}
struct Setup {
    std::string provider;
    bool whole = false;  // all that the engine sends comes unasked, as tutti has it over sockets
};
auto maker(const Setup& setup, bool register_all = false) {
    return [=](Rank rank) {
        PortOptions options = options_of(setup.provider, rank);
        if (setup.whole) options.eager_bytes.reset();
        options.register_all = register_all;
        return ofi::make_factory(options);
    };
}
std::vector<std::string> present() {
    std::vector<std::string> out;
    for (const char* one : candidates) {
        // It has threads of its own, which a forked process lacks: a sanitizer's run-time notices.
        if (sanitized && std::string_view(one) == "sockets") continue;
        if (ofi::choose_provider(options_of(one).wish)) out.emplace_back(one);
    }
    return out;
}

template <typename F>
void for_each_provider(F f) {
    const auto all = present();
    if (all.empty()) WARN("skipped: libfabric has no provider that works on this machine alone");
    for (const auto& provider : all) {
        DYNAMIC_SECTION(provider) f(Setup{provider});
        if (!ofi::is_over_sockets(provider)) continue;
        DYNAMIC_SECTION(provider << ", unasked") f(Setup{provider, true});
    }
}

constexpr std::size_t sizes[] = {0, 1, 8, 1000, eager, eager + 1, 100'000, 1 << 22};

TEST_CASE("ofi port: carries messages of all sizes, both ways") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        for (const std::size_t bytes : sizes) {
            exchange(duo, duo.a, duo.b, 1, bytes);
            exchange(duo, duo.b, duo.a, 0, bytes);
        }
    });
}

TEST_CASE("ofi port: carries messages from and to registered memory, where that is asked for") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup, true));
        for (int round = 0; round < 2; ++round)
            for (const std::size_t bytes : sizes) exchange(duo, duo.a, duo.b, 1, bytes);
        Buffer kept(1 << 20);
        REQUIRE(duo.a.port->memory()->add_memory(kept.data(), kept.size()));
        exchange(duo, duo.a, duo.b, 1, 1 << 20);
        duo.a.port->memory()->remove_memory(kept.data(), kept.size());
    });
}

TEST_CASE("ofi port: a message that was announced leaves from where it was moved to") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        const Buffer data = pattern(1 << 20, 1);
        Buffer callers = data, ours = data;
        int context = 0;
        REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, 1, callers, &context) ==
                fabric::Progress::pending);
        REQUIRE_FALSE(duo.a.port->payload_mover()->move(&callers, ours.data()));
        REQUIRE(duo.a.port->payload_mover()->move(&context, ours.data()));
        std::fill(callers.begin(), callers.end(), std::byte{});
        take(duo, duo.b, 1, data);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.a.log.sent_contexts.empty(); }));
    });
}

TEST_CASE("ofi port: over sockets whatever the engine sends comes unasked") {
    for (const auto& provider : present()) {
        if (!ofi::is_over_sockets(provider)) continue;
        DYNAMIC_SECTION(provider) {
            PortDuo duo(maker({provider, true}));
            const std::size_t whole = PortOptions{}.max_message_bytes;
            REQUIRE(duo.a.port->limits().eager_bytes == whole);
            for (const std::size_t bytes : {whole, whole + 1}) {
                const Buffer data = pattern(bytes, bytes);
                int context = 0;
                const auto sent = send_patiently({&duo.a, &duo.b}, duo.a, 1, bytes, data, &context);
                REQUIRE((sent == fabric::Progress::done || sent == fabric::Progress::pending));
                REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.messages.empty(); }));
                REQUIRE((duo.b.log.messages.front().data != nullptr) == (bytes == whole));
                take(duo, duo.b, bytes, data);
            }
        }
    }
}

TEST_CASE("ofi port: over sockets little is under way at a time within a machine") {
    constexpr int bounded = 256 * 1024;
    const auto connections = [] {
        std::size_t count = 0;
        for (int fd = 0; fd < 1024; ++fd) {
            int buffer = 0;
            socklen_t bytes = sizeof buffer;
            const bool read = getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, &bytes) == 0;
            count += read && buffer == bounded;
        }
        return count;
    };
    for (const auto& provider : present()) {
        if (!ofi::is_over_sockets(provider)) continue;
        const std::size_t before = connections();
        PortDuo duo(maker({provider}));
        exchange(duo, duo.a, duo.b, 1, 8);
        exchange(duo, duo.b, duo.a, 0, 8);
        INFO(provider);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return connections() >= before + 2; }));
    }
}

TEST_CASE("ofi port: over plain sockets, messages that cross have a connection for either way") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        uint64_t number = 0;
        const auto cross = [&](PortEnd& from, PortEnd& to, Rank to_rank, unsigned way) {
            ++number;
            const Buffer data = pattern(100 + number % 8 * 1000, number);
            auto result = fabric::Progress::busy;
            REQUIRE(turning({&duo.a, &duo.b}, [&] {
                result = from.port->second_path()->send_crossing(to_rank, header_of(number).data(),
                                                                 data.data(), data.size(), way);
                return result != fabric::Progress::busy;
            }));
            REQUIRE(result == fabric::Progress::done);
            take(duo, to, number, data);
        };
        cross(duo.a, duo.b, 1, 0);
        cross(duo.b, duo.a, 0, 0);
        const int files = open_files();
        for (int i = 0; i < 100; ++i) {
            cross(duo.a, duo.b, 1, static_cast<unsigned>(i) % 2);
            cross(duo.b, duo.a, 0, static_cast<unsigned>(i + 1) % 2);
        }
        // Both its ends are this process's.
        const auto provider = ofi::choose_provider(options_of(setup.provider).wish);
        REQUIRE(provider);
        const bool plain = ofi::is_plain_sockets((*provider)->fabric_attr->prov_name);
        CHECK(open_files() - files == (plain ? 2 : 0));
        REQUIRE((duo.a.log.losses.empty() && duo.b.log.losses.empty()));
    });
}

TEST_CASE("ofi port: takes many small messages, whether or not they are released in between") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        // More than there are buffers, and all kept.
        constexpr uint64_t messages = 2000;
        for (uint64_t i = 0; i < messages; ++i) {
            const Buffer data = pattern(1 + i % 100, i);
            REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, i, data, nullptr) ==
                    fabric::Progress::done);
            if (i % 2 == 0)
                REQUIRE(send_patiently({&duo.a, &duo.b}, duo.b, 0, i, data, nullptr) ==
                        fabric::Progress::done);
        }
        REQUIRE(turning({&duo.a, &duo.b}, [&] {
            return duo.b.log.messages.size() == messages &&
                   duo.a.log.messages.size() == messages / 2;
        }));
        std::vector<bool> seen(messages);
        for (const auto& message : duo.b.log.messages) {
            for (uint64_t i = 0; i < messages; ++i) {
                if (seen[i] || message.header != header_of(i)) continue;
                seen[i] = true;
                const Buffer data = pattern(1 + i % 100, i);
                REQUIRE((message.bytes == data.size() &&
                         std::memcmp(message.data, data.data(), data.size()) == 0));
                break;
            }
            duo.b.port->release(message.hold);
        }
        REQUIRE(std::count(seen.begin(), seen.end(), true) == messages);
        for (const auto& message : duo.a.log.messages) duo.a.port->release(message.hold);
    });
}

TEST_CASE("ofi port: many large messages are under way at the same time") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        constexpr std::size_t messages = 40;
        const std::size_t least = duo.a.port->limits().eager_bytes + 20'000;
        std::vector<Buffer> data, got;
        for (std::size_t i = 0; i < messages; ++i) {
            data.push_back(pattern(least + i * 1000, i));
            got.emplace_back(data[i].size());
            REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, i, data[i], &data[i]) ==
                    fabric::Progress::pending);
        }
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.b.log.messages.size() == messages; }));
        REQUIRE(duo.a.log.sent_contexts.empty());
        for (const auto& message : duo.b.log.messages) {
            const std::size_t i = (message.bytes - least) / 1000;
            REQUIRE(turning({&duo.a, &duo.b}, [&] {
                return duo.b.port->fetch(message.hold, got[i].data(), message.bytes, &got[i]) ==
                       fabric::Progress::pending;
            }));
        }
        REQUIRE(turning({&duo.a, &duo.b}, [&] {
            return duo.b.log.fetches.size() == messages &&
                   duo.a.log.sent_contexts.size() == messages;
        }));
        REQUIRE(data == got);
    });
}

TEST_CASE("ofi port: tells the sender when a payload is not wanted") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        const Buffer data = pattern(duo.a.port->limits().eager_bytes + 70'000, 3);
        for (const bool at_once : {false, true}) {
            duo.b.log.drop_all = at_once;
            int context = 0;
            REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, 1, data, &context) ==
                    fabric::Progress::pending);
            REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.messages.empty(); }));
            if (!at_once) {
                REQUIRE(duo.a.log.sent_contexts.empty());
                duo.b.port->release(duo.b.log.messages.front().hold);
            }
            REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.a.log.sent_contexts.empty(); }));
            REQUIRE(duo.a.log.sent_contexts == std::vector<void*>{&context});
            REQUIRE(duo.a.log.unsent_contexts.empty());
            duo.a.log.sent_contexts.clear();
            duo.b.log.messages.clear();
        }
    });
}

TEST_CASE("ofi port: a disconnect ends what is under way, in every state") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        const Buffer data = pattern(1 << 22, 3);
        std::vector<Buffer> got(4, Buffer(data.size()));
        for (std::size_t i = 0; i < got.size(); ++i)
            REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, i, data, &got[i]) ==
                    fabric::Progress::pending);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.b.log.messages.size() == 4; }));
        for (std::size_t i = 0; i < 2; ++i)
            REQUIRE(turning({&duo.a, &duo.b}, [&] {
                return duo.b.port->fetch(duo.b.log.messages[i].hold, got[i].data(), data.size(),
                                         &got[i]) == fabric::Progress::pending;
            }));
        for (int i = 0; i < 5; ++i) duo.a.turn();  // the grants may have come, or not
        duo.b.port->disconnect(0);
        REQUIRE(duo.b.log.fetches.size() == 2);
        for (const auto& message : duo.b.log.messages) duo.b.port->release(message.hold);
        const int64_t before_ns = now_ns();
        duo.a.port->disconnect(1);
        REQUIRE(duo.a.log.sent_contexts.size() == 4);
        for (std::size_t i = 2; i < 4; ++i) {  // the peer has not fetched these
            const auto& unsent = duo.a.log.unsent_contexts;
            REQUIRE(std::count(unsent.begin(), unsent.end(), &got[i]) == 1);
        }
        REQUIRE(now_ns() - before_ns < 20'000'000'000);
        REQUIRE(duo.a.port->send(1, data.data(), data.data(), 8, nullptr) ==
                fabric::Progress::failed);
    });
}

TEST_CASE("ofi port: is closed with operations under way") {
    for_each_provider([](const Setup& setup) {
        for (int round = 0; round < 5; ++round) {
            PortDuo duo(maker(setup));
            const Buffer data = pattern(1 << 20, 3);
            Buffer got(data.size());
            for (uint64_t i = 0; i < 3; ++i)
                send_patiently({&duo.a, &duo.b}, duo.a, 1, i, data, nullptr);
            REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.messages.empty(); }));
            duo.b.port->fetch(duo.b.log.messages[0].hold, got.data(), got.size(), nullptr);
            for (int i = 0; i < round; ++i) duo.a.turn();
            if (round % 2 == 0) duo.a.port.reset();
        }
    });
}

// ---- peers of other processes ----------------------------------------------------------------

/// Rank 0 here, rank 1 in a child; both know each other. Returns the child's wait status.
int in_two_processes(const Setup& setup, const std::function<void(PortEnd&, int)>& parent,
                     const std::function<void(PortEnd&, int)>& child) {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    const Rank rank = pid == 0 ? 1 : 0;
    UniqueFd mine(sockets[rank]);
    UniqueFd(sockets[1 - rank]).reset();
    const auto run = [&](const auto& body) {
        PortEnd end(maker(setup), rank);
        const auto deadline = Deadline::after_ms(patience_ms);
        REQUIRE(net::send_frame(mine.get(), end.port->address(), deadline));
        const auto other = net::recv_frame(mine.get(), 2000, deadline);
        REQUIRE(other);
        REQUIRE(end.port->connect(1 - rank, *other));
        body(end, mine.get());
    };
    if (pid == 0) {
        ::alarm(60);  // if all else fails
        try {
            run(child);
        } catch (...) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    run(parent);
    mine.reset();
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

bool readable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
}

TEST_CASE("ofi port: a peer killed in the middle of a rendezvous leaves nothing pending") {
    for_each_provider([](const Setup& setup) {
        const Buffer data = pattern(1 << 24, 1);
        Buffer got(data.size());
        const auto parent = [&](PortEnd& end, int socket) {
            int ours = 0;
            REQUIRE(send_patiently({&end}, end, 1, 1, data, &ours) == fabric::Progress::pending);
            REQUIRE(turning({&end}, [&] { return !end.log.messages.empty(); }));
            const auto theirs = end.log.messages.front();
            REQUIRE(turning({&end}, [&] {
                return end.port->fetch(theirs.hold, got.data(), got.size(), &got) !=
                       fabric::Progress::busy;
            }));
            REQUIRE(::write(socket, "", 1) == 1);  // it may die now
            // As the control tree does: it hears of the death, the port may not.
            turning({&end}, [&] { return readable(socket); });
            turning(
                {&end}, [&] { return !end.log.losses.empty(); }, 200);
            std::printf("ofi %s: %zu losses told after a death: %s\n", setup.provider.c_str(),
                        end.log.losses.size(),
                        end.log.losses.empty() ? "" : end.log.losses[0].second.c_str());
            const int64_t start_ns = now_ns();
            end.port->disconnect(1);
            REQUIRE(now_ns() - start_ns < 20'000'000'000);  // it waits a second at most
            REQUIRE(end.log.sent_contexts == std::vector<void*>{&ours});
            // Done or not: it may have come just before.
            REQUIRE(end.log.fetches.size() == 1);
            // The doorbell may still ring, also for an endpoint that disconnect has closed.
            for (int i = 0; i < 3; ++i) end.port->doorbell()->drain(), end.turn();
            REQUIRE(end.log.fetches[0].first == static_cast<void*>(&got));
            end.port->release(theirs.hold);
        };
        const auto child = [&](PortEnd& end, int socket) {
            send_patiently({&end}, end, 0, 1, data, nullptr);
            REQUIRE(turning({&end}, [&] { return !end.log.messages.empty() && readable(socket); }));
            for (int i = 0; i < 20; ++i) end.turn();
            ::kill(::getpid(), SIGKILL);
        };
        const int status = in_two_processes(setup, parent, child);
        REQUIRE(WIFSIGNALED(status));
    });
}

TEST_CASE("ofi port: what this process lacks is no fault of the peer's") {
    for (const long code : {-FI_ENOMEM, -FI_ENOSPC, -FI_EMFILE, -FI_EINVAL})
        CHECK(ofi::is_own(code));
    for (const long code : {-FI_ECONNREFUSED, -FI_ENOTCONN, -FI_EIO, -FI_EAGAIN})
        CHECK_FALSE(ofi::is_own(code));
    for (const auto& provider : present()) {
        if (!ofi::names("tcp", provider) && provider != "net") continue;
        INFO(provider);
        PortDuo duo(maker({provider}));
        const Buffer data = pattern(100, 1);
        rlimit before{};
        REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
        rlimit none = before;
        none.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &none);
        const auto sent = send_patiently({&duo.a}, duo.a, 1, 1, data, nullptr);
        setrlimit(RLIMIT_NOFILE, &before);
        // Others, or other versions, may open the connection later.
        if (sent != fabric::Progress::failed) continue;
        REQUIRE(duo.a.log.losses.size() == 1);
        INFO(duo.a.log.losses[0].second);
        CHECK(duo.a.log.culprits[0] == fabric::Culprit::own);
    }
}

TEST_CASE("ofi port: its descriptor wakes who sleeps") {
    for_each_provider([](const Setup& setup) {
        constexpr uint64_t messages = 20;
        // The child sends a message each time that the parent, about to sleep, has asked for it.
        const auto parent = [&](PortEnd& end, int socket) {
            int sleeps = 0;
            std::size_t asked = 0;
            while (end.log.messages.size() < messages) {
                if (end.turn() || !end.port->doorbell()->arm()) continue;
                if (asked == end.log.messages.size()) {
                    REQUIRE(::send(socket, "", 1, MSG_NOSIGNAL) == 1);
                    ++asked;
                }
                pollfd fd{.fd = end.port->doorbell()->wake_fd(), .events = POLLIN, .revents = 0};
                REQUIRE(::poll(&fd, 1, patience_ms) == 1);
                ++sleeps;
            }
            REQUIRE(sleeps > 0);
        };
        const auto child = [&](PortEnd& end, int socket) {
            const auto heard = [&] {
                char word = 0;
                return ::recv(socket, &word, 1, MSG_DONTWAIT);
            };
            for (uint64_t i = 0; i < messages; ++i) {
                REQUIRE(turning({&end}, [&] { return heard() == 1; }));
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                const Buffer data = pattern(i % 2 == 0 ? 10 : 5000, i);
                REQUIRE(send_patiently({&end}, end, 0, i, data, nullptr) == fabric::Progress::done);
                end.turn();
            }
            end.port->flush(Deadline::after_ms(patience_ms));
            turning({&end}, [&] { return heard() == 0; });  // the parent has closed it
        };
        REQUIRE(in_two_processes(setup, parent, child) == 0);
    });
}

TEST_CASE("ofi port: its descriptor is quiet once it was heard, also when nobody sleeps") {
    for_each_provider([](const Setup& setup) {
        PortDuo duo(maker(setup));
        REQUIRE(is_quiet_when_heard(duo.a, 1, duo.b));
    });
}

// ---- life ------------------------------------------------------------------------------------

std::size_t resident_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4096;
}

// Sanitizers keep what was freed, and a shadow of it.
constexpr std::size_t most_growth = (test::sanitized ? 256 : 4) << 20;

TEST_CASE("ofi port: leaves nothing behind when ports come and go a thousand times") {
    if (present().empty()) return;
    const auto cycle = [&](bool talk) {
        PortDuo duo(maker({}));  // the best there is
        if (talk) exchange(duo, duo.a, duo.b, 1, 50'000);
    };
    for (int i = 0; i < 100; ++i) cycle(i % 10 == 0);
    const int descriptors = open_files();
    const std::size_t bytes = resident_bytes();
    for (int i = 0; i < (sanitized ? 100 : 1000); ++i) cycle(i % 10 == 0);
    REQUIRE(open_files() <= descriptors + 2);
    REQUIRE(resident_bytes() < bytes + most_growth);
}

// ---- providers -------------------------------------------------------------------------------

TEST_CASE("ofi providers: one that is not there is an error that lists those that are") {
    const auto none = ofi::choose_provider({.provider = "carrier-pigeon", .loopback_only = true});
    REQUIRE_FALSE(none);
    REQUIRE(none.error().code == Code::unsupported);
    const auto all = ofi::providers();
    for (const auto& one : all) {
        REQUIRE(none.error().message.find(one.provider) != std::string::npos);
        REQUIRE(!one.version.empty());
    }
    REQUIRE(none.error().message.find("carrier-pigeon") != std::string::npos);
    REQUIRE(std::count_if(all.begin(), all.end(), [](const auto& p) { return p.chosen; }) <= 1);
}

TEST_CASE("ofi providers: are preferred by what they can do, and named by layer") {
    REQUIRE(ofi::preference("cxi") < ofi::preference("efa"));
    REQUIRE(ofi::preference("efa") < ofi::preference("verbs;ofi_rxm"));
    REQUIRE(ofi::preference("verbs;ofi_rxm") < ofi::preference("tcp;ofi_rxm"));
    REQUIRE(ofi::preference("tcp;ofi_rxm") < ofi::preference("something new"));
    REQUIRE(ofi::preference("something new") < ofi::preference("sockets"));
    REQUIRE(ofi::names("tcp", "tcp;ofi_rxm"));
    REQUIRE(ofi::names("tcp;ofi_rxm", "tcp;ofi_rxm"));
    REQUIRE_FALSE(ofi::names("ud", "udp;ofi_rxd"));
    REQUIRE_FALSE(ofi::names("verbs", "tcp;ofi_rxm"));
}

TEST_CASE("ofi port: refuses a peer with another provider, and an address that is none") {
    const auto all = present();
    if (all.size() < 2) return;
    PortEnd a(maker({all[0]}), 0), b(maker({all[1]}), 1);
    const auto other = a.port->connect(1, b.port->address());
    REQUIRE_FALSE(other);
    REQUIRE(other.error().code == Code::unsupported);
    REQUIRE(other.error().message.find("TUTTI_OFI_PROVIDER") != std::string::npos);
    REQUIRE_FALSE(a.port->connect(1, {}));
    REQUIRE_FALSE(a.port->connect(2, a.port->address()));
    Bytes cut = a.port->address();
    cut.pop_back();
    REQUIRE_FALSE(a.port->connect(1, cut));
}

TEST_CASE("ofi memory: a failed registration says what the limit is") {
    const std::string text = ofi::registration_failure(1 << 24, -FI_ENOMEM, 64 << 10);
    REQUIRE(text.find("ulimit -l") != std::string::npos);
    REQUIRE(text.find("64 KiB") != std::string::npos);
    REQUIRE(ofi::registration_failure(1, -FI_ENOMEM, ~uint64_t{0}).find("ulimit") ==
            std::string::npos);
    REQUIRE(ofi::registration_failure(1, -FI_EINVAL, 1 << 16).find("ulimit") == std::string::npos);
}

}  // namespace
}  // namespace tutti::test
