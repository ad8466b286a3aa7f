// Tests of UCX alone: the resources that it leaves behind, and the errors when it cannot start.
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "transport/flat_ranks.h"
#include "transport/lane_driver.h"
#include "transport/ucx_ports.h"
#include "transports/ucx/cause.h"
#include "transports/ucx/network.h"
#include "transports/ucx/segments.h"

namespace tutti::test {
namespace {

constexpr JoinedTransport ucx_kind{"ucx", make_ucx_transport};

// Two endpoints that meet, move something by rendezvous, and part.
void live_once(uint64_t number) {
    Duo duo(ucx_kind);
    auto lane = duo.open(0);
    const Buffer data = pattern(200'000, number);
    lane.sender->push(make_tag(number), data.data(), data.size());
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        const auto message = lane.receiver->peek(make_tag(number), data.size());
        return message.data && std::equal(data.begin(), data.end(), message.data);
    }));
    lane.receiver->release();
}

/// UCX refuses a message, or ends it with an error: which, and what it says.
ucs_status_t refused_with = UCS_OK, end_of_fetch = UCS_OK;

ucs_status_ptr_t refuse(ucp_ep_h endpoint, unsigned id, const void* header,
                        std::size_t header_bytes, const void* data, std::size_t bytes,
                        const ucp_request_param_t* param) {
    if (refused_with != UCS_OK) return UCS_STATUS_PTR(refused_with);
    return ucx_library().ucp_am_send_nbx(endpoint, id, header, header_bytes, data, bytes, param);
}

ucp_am_recv_data_nbx_callback_t told = nullptr;

ucs_status_ptr_t end_fetch(ucp_worker_h worker, void* data, void* where, std::size_t bytes,
                           const ucp_request_param_t* param) {
    ucp_request_param_t changed = *param;
    told = changed.cb.recv_am;
    changed.cb.recv_am = [](void* request, ucs_status_t, std::size_t length, void* ours) {
        told(request, end_of_fetch, length, ours);
    };
    return ucx_library().ucp_am_recv_data_nbx(worker, data, where, bytes, &changed);
}

TEST_CASE("ucx: what it refuses to move is said to be this rank's or the peer's doing") {
    ucx::Library refusing = ucx_library();
    refusing.ucp_am_send_nbx = &refuse;
    const auto culprit_of = [&](ucs_status_t status) {
        refused_with = UCS_OK;
        PortDuo duo(plain_ucx(refusing));
        refused_with = status;
        const Buffer data = pattern(100, 1), header = header_of(1);
        CHECK(duo.a.port->send(1, header.data(), data.data(), data.size(), nullptr) ==
              fabric::Progress::failed);
        REQUIRE(duo.a.log.losses.size() == 1);
        CHECK(duo.a.log.losses[0].first == 1);
        refused_with = UCS_OK;
        return duo.a.log.culprits[0];
    };
    CHECK(culprit_of(UCS_ERR_NO_MEMORY) == fabric::Culprit::own);
    CHECK(culprit_of(UCS_ERR_IO_ERROR) == fabric::Culprit::own);
    CHECK(culprit_of(UCS_ERR_CONNECTION_RESET) == fabric::Culprit::peer);
}

TEST_CASE("ucx: a message that it ends with an error ends the connection") {
    ucx::Library ending = ucx_library();
    ending.ucp_am_recv_data_nbx = &end_fetch;
    end_of_fetch = UCS_ERR_NO_MEMORY;
    PortDuo duo(plain_ucx(ending));
    const Buffer data = pattern(200'000, 1);
    Buffer header = header_of(1);
    const Rank sender = 0;
    std::memcpy(header.data() + fabric::sender_offset, &sender, sizeof sender);
    int context = 0;
    REQUIRE(duo.a.port->send(1, header.data(), data.data(), data.size(), nullptr) !=
            fabric::Progress::failed);
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.messages.empty(); }));
    const PortLog::Message message = duo.b.log.messages[0];
    REQUIRE(message.data == nullptr);
    Buffer wanted(data.size());
    REQUIRE(duo.b.port->fetch(message.hold, wanted.data(), wanted.size(), &context) ==
            fabric::Progress::pending);
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.fetches.empty(); }));
    CHECK(duo.b.log.fetches[0].second == Code::peer_lost);
    REQUIRE(duo.b.log.losses.size() == 1);
    CHECK(duo.b.log.culprits[0] == fabric::Culprit::own);
    duo.b.port->release(message.hold);
}

TEST_CASE("ucx: its descriptor is quiet once it was heard, also when nobody sleeps") {
    PortDuo duo(plain_ucx(ucx_library()));
    REQUIRE(is_quiet_when_heard(duo.a, 1, duo.b));
}

TEST_CASE("ucx: knows sockets from networks that move data themselves, and how fast those are") {
    char name[] = "/tmp/tutti-ucx-test-XXXXXX";
    const std::filesystem::path adapters = ::mkdtemp(name);
    std::filesystem::create_directories(adapters / "mlx5_0/ports/1");
    std::ofstream(adapters / "mlx5_0/ports/1/rate") << "100 Gb/sec (4X EDR)\n";
    const auto of = [&](std::initializer_list<const char*> resources) {
        std::string text =
            "#\n# UCP context\n#     component 1  :  tcp\n#     md 4  :  component 6  cma \n";
        for (const char* resource : resources)
            text += fmt::format("#      resource 0  :  md 0  dev 0  flags -- {}\n", resource);
        const ucx::OpenedNetworks network = ucx::find_network(text + "#\n", adapters);
        return std::tuple(network.sockets, network.sockets_within, network.bandwidth_gbs);
    };
    REQUIRE(of({"self/memory0", "tcp/lo", "tcp/eth0"}) == std::tuple(true, true, 0.0));
    REQUIRE(of({"tcp/lo", "sysv/memory", "cma/memory"}) == std::tuple(true, false, 0.0));
    REQUIRE(of({"tcp/lo", "cuda_copy/cuda"}) == std::tuple(true, true, 0.0));
    REQUIRE(of({"tcp/ib0", "rc_mlx5/mlx5_0:1"}) == std::tuple(false, false, 12.5));
    REQUIRE(of({"ud_verbs/mlx5_1:1", "posix/memory"}) == std::tuple(false, false, 0.0));
    REQUIRE(of({"posix/memory", "self/memory0"}) == std::tuple(false, false, 0.0));
    REQUIRE(of({"posix/memory", "xpmem/memory"}) == std::tuple(false, false, 0.0));
    REQUIRE(of({"cma/memory"}) == std::tuple(false, false, 0.0));
    REQUIRE(of({}) == std::tuple(false, false, 0.0));
    std::filesystem::remove_all(adapters);
}

TEST_CASE("ucx: endpoints that come and go leave nothing") {
    const auto cycles = static_cast<uint64_t>(
        std::getenv("TUTTI_TEST_CYCLES") ? std::atoi(std::getenv("TUTTI_TEST_CYCLES")) : 20);
    for (uint64_t i = 0; i < 5; ++i) live_once(i);
    const int files = open_files();
    const std::size_t heap = ::mallinfo2().uordblks;
    for (uint64_t i = 0; i < cycles; ++i) live_once(i);
    const auto grown = static_cast<double>(::mallinfo2().uordblks) - static_cast<double>(heap);
    INFO("files " << files << " then " << open_files() << ", heap grew by " << grown);
    REQUIRE(open_files() <= files);
    REQUIRE(grown < 256.0 * 1024);
}

/// A message by rendezvous from a to b, announced, and the place that b has for it.
struct Announced {
    explicit Announced(uint64_t number, const ucx::Library& ucx = ucx_library())
        : duo(plain_ucx(ucx)), data(pattern(3 << 20, number)), callers(data), ours(data) {
        Buffer header = header_of(number);
        const Rank sender = 0;
        std::memcpy(header.data() + fabric::sender_offset, &sender, sizeof sender);
        REQUIRE(duo.a.port->send(1, header.data(), callers.data(), callers.size(), &callers) ==
                fabric::Progress::pending);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.b.log.messages.empty(); }));
        message = duo.b.log.messages.front();
        REQUIRE(message.data == nullptr);
    }
    void fetch() {
        REQUIRE(duo.b.port->fetch(message.hold, wanted.data(), wanted.size(), &wanted) ==
                fabric::Progress::pending);
    }
    bool has_begun() const { return std::equal(wanted.begin(), wanted.begin() + 64, data.begin()); }
    PortDuo duo;
    const Buffer data;
    Buffer callers, ours, wanted = Buffer(data.size()), instead = Buffer(data.size());
    PortLog::Message message;
};

TEST_CASE("ucx: in shared memory, what is under way may be moved") {
    Announced one(1);
    REQUIRE(one.duo.a.port->payload_mover()->move(&one.callers, one.ours.data()));
    std::fill(one.callers.begin(), one.callers.end(), std::byte{});
    one.fetch();
    // Until some of it is there.
    REQUIRE(turning({&one.duo.a, &one.duo.b}, [&] { return one.has_begun(); }));
    REQUIRE(one.duo.b.log.fetches.empty());
    one.instead = one.wanted;
    const Buffer part = one.wanted;
    REQUIRE(one.duo.b.port->payload_mover()->move(&one.wanted, one.instead.data()));
    REQUIRE(turning({&one.duo.a, &one.duo.b}, [&] { return !one.duo.b.log.fetches.empty(); }));
    REQUIRE(one.duo.b.log.fetches.front() == std::pair<void*, Code>{&one.wanted, Code::ok});
    REQUIRE(one.wanted == part);
    REQUIRE(one.instead == one.data);
    one.duo.b.port->release(one.message.hold);
    REQUIRE(
        turning({&one.duo.a, &one.duo.b}, [&] { return !one.duo.a.log.sent_contexts.empty(); }));
}

TEST_CASE("ucx: in shared memory, what a peer has begun ends with its endpoint, at once") {
    Announced one(1);
    one.fetch();
    REQUIRE(turning({&one.duo.a, &one.duo.b}, [&] { return one.has_begun(); }));
    // Neither of them moves any more; then the peer does, though it counts as lost.
    one.duo.b.port->disconnect(0);
    REQUIRE(one.duo.b.log.fetches.front() == std::pair<void*, Code>{&one.wanted, Code::peer_lost});
    const Buffer part = one.wanted;
    for (int i = 0; i < 1000; ++i) one.duo.a.turn(), one.duo.b.turn();
    REQUIRE(one.wanted == part);
    one.duo.b.port->release(one.message.hold);
    one.duo.a.port->disconnect(1);
    REQUIRE(one.duo.a.log.sent_contexts == std::vector<void*>{&one.callers});
}

/// UCX uses these transports alone while it lives.
struct Only {
    explicit Only(const char* transports) { ::setenv("UCX_TLS", transports, 1); }
    ~Only() { ::unsetenv("UCX_TLS"); }
};

TEST_CASE("ucx: in shared memory without sockets, what is under way may be moved, too") {
    const Only shared("posix,sysv,self");
    Announced one(1);
    REQUIRE(one.duo.a.port->payload_mover()->move(&one.callers, one.ours.data()));
    one.fetch();
    REQUIRE(one.duo.b.port->payload_mover()->move(&one.wanted, one.instead.data()));
    one.duo.b.port->disconnect(0);
    one.duo.b.port->release(one.message.hold);
}

void name_card(ucp_context_h, std::FILE* out) {
    std::fputs("#      resource 0  :  md 0  dev 0  flags -- rc_mlx5/none_0:1\n", out);
}

/// Sends to a peer that reads nothing, until its queue in shared memory has no room. The two have
/// met before.
void fill_queue(PortEnd& end) {
    const Buffer data = pattern(400, 1), header = header_of(1);
    auto result = fabric::Progress::done;
    for (int i = 0; i < 100'000 && result == fabric::Progress::done; ++i)
        result = end.port->send(1, header.data(), data.data(), data.size(), nullptr);
    REQUIRE(result == fabric::Progress::pending);
}

TEST_CASE("ucx: with a network card, what UCX keeps of a peer is waited for, less than a second") {
    ucx::Library carded = ucx_library();
    carded.ucp_context_print_info = &name_card;
    // The machine may be busy: one of three rounds has to be quick.
    constexpr int64_t second_ns = 1'000'000'000;
    int64_t least_ns = second_ns;
    for (int i = 0; i < 3 && least_ns >= second_ns; ++i) {
        Announced one(1, carded);
        REQUIRE_FALSE(one.duo.a.port->payload_mover()->move(&one.callers, one.ours.data()));
        // UCX gives nothing back until it has closed the endpoint, which wants room in the queue.
        fill_queue(one.duo.a);
        const int64_t start_ns = now_ns();
        one.duo.a.port->disconnect(1);
        least_ns = std::min(least_ns, now_ns() - start_ns);
        REQUIRE(one.duo.a.log.unsent_contexts == std::vector<void*>{&one.callers});
        one.duo.b.port->release(one.message.hold);
    }
    REQUIRE(least_ns < second_ns);
}

TEST_CASE("ucx: a flush does not wait for a peer that is gone and left its queue full") {
    Announced one(1);
    fill_queue(one.duo.a);
    one.duo.a.port->disconnect(1);
    const auto deadline = Deadline::after_ms(60'000);
    one.duo.a.port->flush(deadline);
    REQUIRE_FALSE(deadline.passed());
    one.duo.b.port->release(one.message.hold);
}

TEST_CASE("ucx: keeps every byte when several threads drive the lanes of one worker") {
    drive_lanes(ucx_kind, 256 * 1024, {3000, 1000, 100});
}

TEST_CASE("ucx: states what its context has opened") {
    const auto sockets = [] {
        Duo duo(ucx_kind);
        return duo.a.transport->capabilities().sockets_within;
    };
    REQUIRE_FALSE(sockets());
    const Only sockets_only("tcp,self");
    REQUIRE(sockets());
}

std::set<ucp_ep_h> used;  // by messages
int endpoints_left = 0;   // that UCX makes before it refuses

ucs_status_ptr_t note_endpoint(ucp_ep_h endpoint, unsigned id, const void* header,
                               std::size_t header_bytes, const void* data, std::size_t bytes,
                               const ucp_request_param_t* param) {
    used.insert(endpoint);
    return ucx_library().ucp_am_send_nbx(endpoint, id, header, header_bytes, data, bytes, param);
}

ucs_status_t make_few(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* endpoint) {
    if (endpoints_left-- <= 0) return UCS_ERR_NO_RESOURCE;
    return ucx_library().ucp_ep_create(worker, params, endpoint);
}

// Counts the endpoints that a port's messages to its peer took.
std::size_t ways_taken(int endpoints) {
    ucx::Library noting = ucx_library();
    noting.ucp_am_send_nbx = &note_endpoint;
    noting.ucp_ep_create = &make_few;
    endpoints_left = endpoints;
    PortDuo duo(plain_ucx(noting));
    used.clear();
    const Buffer data = pattern(100, 1);
    constexpr uint64_t messages = 20;
    for (uint64_t number = 0; number < messages; ++number) {
        auto result = fabric::Progress::busy;
        REQUIRE(turning({&duo.a, &duo.b}, [&] {
            result = duo.a.port->second_path()->send_crossing(1, header_of(number).data(),
                                                              data.data(), data.size(), number % 2);
            return result != fabric::Progress::busy;
        }));
        REQUIRE(result != fabric::Progress::failed);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.b.log.messages.size() == number + 1; }));
        REQUIRE(duo.b.log.messages.back().header == header_of(number));
    }
    duo.a.port->disconnect(1);
    REQUIRE(duo.a.log.losses.empty());
    return used.size();
}

TEST_CASE("ucx: over sockets, messages that cross have a connection for either way") {
    constexpr int enough = 8;
    REQUIRE(ways_taken(enough) == 1);  // in shared memory
    const Only sockets("tcp,self");
    const int files = open_files();
    REQUIRE(ways_taken(enough) == 2);
    // One will do.
    REQUIRE(ways_taken(2) == 1);
    REQUIRE(open_files() <= files);
}

TEST_CASE("ucx: refuses a peer that reads less from its sockets at once, which UCX would abort") {
    TestEndpoint here(ucx_kind, 0, 2);
    REQUIRE(setenv("UCX_TCP_RX_SEG_SIZE", "64K", 1) == 0);
    TestEndpoint there(ucx_kind, 1, 2);
    REQUIRE(unsetenv("UCX_TCP_RX_SEG_SIZE") == 0);
    const auto refused =
        here.transport->open({.peer = 1, .comm = 7, .lane = 0}, there.address, Deadline{});
    REQUIRE_FALSE(refused);
    INFO(refused.error().message);
    for (const char* word : {"rank 1", "UCX_TCP_RX_SEG_SIZE=64K"})
        CHECK(refused.error().message.find(word) != std::string::npos);
}

// Around the lengths at which a message becomes one piece more.
TEST_CASE("ucx: messages over sockets arrive where they are wanted, whatever their length") {
    const Only sockets("tcp,self");
    Duo duo(ucx_kind);
    auto lane = duo.open(0);
    uint64_t number = 0;
    for (const std::size_t bytes : {65'536, 126'975, 126'976, 126'977, 253'952, 253'953, 262'144}) {
        for (const bool offered : {true, false}) {
            INFO(bytes << " bytes, offered " << offered);
            const Tag tag = make_tag(++number);
            const Buffer data = pattern(bytes, number);
            Buffer wanted(bytes);
            if (offered) lane.receiver->offer(tag, wanted.data(), bytes);
            lane.sender->push(tag, data.data(), bytes);
            const std::byte* where = nullptr;
            REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                where = lane.receiver->peek(tag, bytes).data;
                return where != nullptr && lane.sender->drained();
            }));
            REQUIRE(std::equal(data.begin(), data.end(), where));
            REQUIRE((where == wanted.data()) == offered);
            lane.receiver->release();
        }
    }
}

TEST_CASE("ucx: keeps every byte over sockets when several threads drive the lanes") {
    const Only sockets("tcp,self");
    drive_lanes(ucx_kind, 256 * 1024, {1000, 300, 50});
}

// A few turns in, some pieces are there, some on their way, some not sent yet.
TEST_CASE("ucx: messages in pieces that never become whole leave nothing pending") {
    const Only sockets("tcp,self");
    for (int turns = 0; turns < 12; ++turns) {
        INFO("after " << turns << " turns");
        Duo duo(ucx_kind);
        auto lane = duo.open(0);
        const Buffer data = pattern(262'144, 1);
        Buffer wanted(data.size());
        lane.receiver->offer(make_tag(0), wanted.data(), wanted.size());
        for (uint64_t i = 0; lane.sender->can_push(); ++i)
            lane.sender->push(make_tag(i), data.data(), data.size());
        for (int i = 0; i < turns; ++i) i % 2 == 0 ? duo.a.turn() : duo.b.turn();
        duo.b.transport->peer_gone(0);
        REQUIRE(eventually({&duo.b}, [&] {
            const auto message = lane.receiver->peek(make_tag(0), data.size());
            return message.data || lane.receiver->health() == Code::peer_lost;
        }));
        lane.receiver->cancel();
        duo.a.transport->peer_gone(1);
        REQUIRE(eventually({&duo.a}, [&] { return lane.sender->drained(); }));
        lane.sender->cancel();
    }
}

std::string refusal(TransportContext context) {
    Reactor news, data;
    CollectingSink sink;
    context.size = 2;
    context.reactor = &news;
    context.data_reactor = &data;
    context.sink = &sink;
    const auto transport = make_ucx_transport(context);
    const auto listening = transport->listen();
    REQUIRE_FALSE(listening);
    return error_text(listening.error());
}

/// Sets an environment variable while it lives.
struct Set {
    Set(const char* in_name, const std::string& value) : name(in_name) {
        ::setenv(name, value.c_str(), 1);
    }
    ~Set() { ::unsetenv(name); }
    const char* const name;
};

bool says(const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
}

TEST_CASE("ucx: says what is wrong when it cannot start") {
    std::string nowhere;
    {
        const Set setting("UCX_TLS", "nonsense");
        nowhere = refusal({});
    }
    INFO(nowhere);
    for (const char* word : {"UCX_TLS", "UCX says: no usable transports"})
        REQUIRE(says(nowhere, word));
    // As where /dev/shm is full: its segments' files cannot be filled.
    rlimit limit{}, low{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    low = limit;
    low.rlim_cur = 65'536;
    const auto before = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &low);
    const std::string full = refusal({});
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, before);
    INFO(full);
    REQUIRE(says(full, "UCX says: Failed to write"));
    REQUIRE_FALSE(says(full, "ulimit -l"));
}

TEST_CASE("ucx: what this process may lock is said where UCX says nothing, or names a card") {
    rlimit limit{}, low{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    low = limit;
    low.rlim_cur = 65'536;
    ::setrlimit(RLIMIT_MEMLOCK, &low);
    std::thread([] {
        const std::string nothing = ucx::cause_since(now_ns());
        REQUIRE((says(nothing, "64 KiB") && says(nothing, "ulimit -l")));
        const int64_t start_ns = now_ns();
        ucx::note_error("ibv_reg_mr() failed: Cannot allocate memory");
        ucx::note_error("what follows from it");
        const std::string card = ucx::cause_since(start_ns);
        REQUIRE((says(card, "UCX says: ibv_reg_mr()") && says(card, "ulimit -l")));
        REQUIRE_FALSE(says(card, "follows"));
        REQUIRE_FALSE(says(ucx::cause_since(now_ns() + 1), "ibv_reg_mr"));
    }).join();
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
}

TEST_CASE("ucx: its segments' files lie where what killed processes left is removed") {
    namespace fs = std::filesystem;
    const fs::path parent = fs::temp_directory_path() / fmt::format("ucx-segments-{}", ::getpid());
    fs::create_directories(parent);
    const fs::path folder = ucx::segment_folder(parent);
    REQUIRE(folder.parent_path() == parent);
    for (const char* name : {"ucx_shm_posix_1", "ucx_shm_posix_2", "other"})
        std::ofstream(folder / name) << "left";
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    for (const char* name : {"ucx_shm_posix_1", "other"})
        fs::last_write_time(folder / name, long_ago);
    REQUIRE(ucx::segment_folder(parent) == folder);
    REQUIRE_FALSE(fs::exists(folder / "ucx_shm_posix_1"));
    REQUIRE(fs::exists(folder / "ucx_shm_posix_2"));
    REQUIRE(fs::exists(folder / "other"));
    {
        const Set names("UCX_POSIX_USE_PROC_LINK", "n");
        REQUIRE(ucx::segment_folder(parent).empty());
    }
    fs::permissions(folder, fs::perms::all);  // anyone may put something there
    REQUIRE(ucx::segment_folder(parent).empty());
    fs::remove_all(folder);
    fs::create_directory_symlink("/tmp", folder);
    REQUIRE(ucx::segment_folder(parent).empty());
    fs::remove_all(parent);
    REQUIRE(ucx::segment_folder(parent / "nosuch").empty());
}

TEST_CASE("ucx: refuses an interface that is not there") {
    const std::string why = refusal({.iface = "nosuch0"});
    INFO(why);
    REQUIRE(why.find("nosuch0") != std::string::npos);
}

}  // namespace
}  // namespace tutti::test
