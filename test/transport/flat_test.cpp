// The flat shared-memory exchange, with ranks as threads.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <random>

#include "net/socket.h"
#include "transport/flat_ranks.h"
#include "transport/mapped/segments.h"
#include "transport/mapped/shared_memory.h"
#include "transports/shm/flat_group.h"
#include "transports/shm/flat_join.h"

namespace tutti::test {
namespace {

IntrinsicShape broadcast_shape(std::size_t bytes, Rank root, uint32_t stream = 0) {
    return {.collective = Collective::broadcast, .count = bytes, .root = root, .stream = stream};
}
constexpr std::array<std::size_t, 8> counts{1, 2, 6, 7, 0, 1000, 1025, 16'384};

// One rank's part of a long mixed sequence on one stream; the number of wrong results.
int mixed_sequence(FlatRanks& ranks, Rank me, uint32_t stream, uint64_t operations, uint64_t seed) {
    std::minstd_rand choose(static_cast<uint32_t>(seed + stream + 1));  // the same on all ranks
    std::minstd_rand delay(static_cast<uint32_t>(seed + 100 + static_cast<uint64_t>(me)));
    int wrong = 0;
    std::vector<float> in, out;
    for (uint64_t number = 1; number <= operations; ++number) {
        const std::size_t count = counts[choose() % counts.size()];
        const auto kind = choose() % 4;
        const auto root = static_cast<Rank>(choose() % static_cast<uint32_t>(ranks.size()));
        const bool in_place = choose() % 2 == 0;
        const Tag tag = make_tag(number);
        in.resize(count);
        out.assign(count, -1.0F);
        for (std::size_t i = 0; i < count; ++i) in[i] = value(number, me, i);
        float* to = in_place ? in.data() : out.data();
        std::unique_ptr<Operation> operation;
        if (kind == 0) {
            operation = ranks.bind(me, barrier_shape(stream));
        } else if (kind == 1) {
            operation = ranks.bind(me, allreduce_shape(count, Dtype::float32, Op::sum, stream));
        } else {
            operation = ranks.bind(me, broadcast_shape(count * sizeof(float), root, stream));
        }
        if (!operation || run(*operation, tag, in.data(), to) != Code::ok) return wrong + 1000;
        for (std::size_t i = 0; kind != 0 && i < count; ++i) {
            float expected = 0;
            if (kind == 1)
                for (Rank r = 0; r < ranks.size(); ++r) expected += value(number, r, i);
            else
                expected = value(number, root, i);
            wrong += to[i] != expected;
        }
        if (delay() % 16 == 0) ::usleep(static_cast<useconds_t>(delay() % 200));
    }
    return wrong;
}

TEST_CASE("flat: gives right results when collectives, sizes and roots alternate") {
    const auto seed = std::random_device{}() % 1'000'000;
    for (const Rank n : {1, 2, 3, 4, 5, 8}) {
        INFO("n " << n << " seed " << seed);
        FlatRanks ranks(shm_kind, n);
        REQUIRE(ranks.each([&](Rank me) { return mixed_sequence(ranks, me, 0, 300, seed); }) == 0);
    }
}

TEST_CASE("flat: keeps streams apart when two run at the same time") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    FlatRanks ranks(shm_kind, 3);
    REQUIRE(ranks.each([&](Rank me) {
        int other_wrong = 0;
        std::thread other([&] { other_wrong = mixed_sequence(ranks, me, 1, 150, seed); });
        const int wrong = mixed_sequence(ranks, me, 0, 150, seed);
        other.join();
        return wrong + other_wrong;
    }) == 0);
}

TEST_CASE("flat: survives long runs of broadcasts when readers are slow") {
    FlatRanks ranks(shm_kind, 3);
    constexpr std::size_t bytes = 3000;
    REQUIRE(ranks.each([&](Rank me) {
        auto operation = ranks.bind(me, broadcast_shape(bytes, 1));
        int wrong = 0;
        for (uint64_t number = 1; number <= 500; ++number) {
            const auto fill = static_cast<std::byte>(number * 31);
            std::vector<std::byte> data(bytes, me == 1 ? fill : std::byte{0});
            if (run(*operation, make_tag(number), data.data(), data.data()) != Code::ok) return 1;
            for (const std::byte b : data) wrong += b != fill;
            if (me != 1 && number % 50 == static_cast<uint64_t>(me)) ::usleep(500);
        }
        return wrong;
    }) == 0);
}

// An operation that runs again and again writes some of its contributions past the cache.
TEST_CASE("flat: gives right results whichever way contributions are written") {
    for (const std::size_t count : {1024, 16 * 1024}) {
        INFO(count << " elements");
        FlatRanks ranks(shm_kind, 3);
        REQUIRE(ranks.each([&](Rank me) {
            const auto sum = ranks.bind(me, allreduce_shape(count, Dtype::float32));
            const auto broadcast = ranks.bind(me, broadcast_shape(count * sizeof(float), 1));
            int wrong = 0;
            std::vector<float> data(count);
            for (uint64_t number = 1; number <= 100; ++number) {
                for (std::size_t i = 0; i < count; ++i) data[i] = value(number, me, i);
                Operation& operation = number % 2 == 0 ? *broadcast : *sum;
                if (run(operation, make_tag(number), data.data(), data.data()) != Code::ok)
                    return 1;
                for (std::size_t i = 0; i < count; ++i) {
                    const float root = value(number, 1, i);
                    const float all = value(number, 0, i) + root + value(number, 2, i);
                    wrong += data[i] != (number % 2 == 0 ? root : all);
                }
            }
            return wrong;
        }) == 0);
    }
}

uint16_t to_bfloat16(float f) {
    const auto bits = std::bit_cast<uint32_t>(f);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // nearest, ties even
}
float from_bfloat16(uint16_t h) {
    return std::bit_cast<float>(uint32_t{h} << 16);
}

TEST_CASE("flat: rounds 16-bit sums once, to the same bits on all ranks") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    for (const Rank n : {2, 3, 5}) {
        FlatRanks ranks(shm_kind, n);
        const std::size_t count = 5000;
        std::vector<std::vector<uint16_t>> in(static_cast<std::size_t>(n));
        std::minstd_rand random(static_cast<uint32_t>(seed + 1));
        for (auto& row : in)
            for (std::size_t i = 0; i < count; ++i)
                row.push_back(to_bfloat16(static_cast<float>(random()) * 1e-6F - 1000.0F));
        std::vector<uint16_t> expected;
        for (std::size_t i = 0; i < count; ++i) {
            float sum = from_bfloat16(in[0][i]);
            for (std::size_t r = 1; r < in.size(); ++r) sum += from_bfloat16(in[r][i]);
            expected.push_back(to_bfloat16(sum));
        }
        REQUIRE(ranks.each([&](Rank me) {
            auto operation = ranks.bind(me, allreduce_shape(count, Dtype::bfloat16));
            std::vector<uint16_t> data = in[static_cast<std::size_t>(me)];
            const Poll code = run(*operation, make_tag(1), data.data(), data.data());
            return code == Code::ok && data == expected ? 0 : 1;
        }) == 0);
    }
}

TEST_CASE("flat: tells a mismatch on every rank and works in the next epoch") {
    FlatRanks ranks(shm_kind, 3);
    check_mismatch(ranks);
}

TEST_CASE("flat: tells a broadcast's root in its next call when the others called something else") {
    FlatRanks ranks(shm_kind, 2);
    REQUIRE(ranks.each([&](Rank me) {
        // Each believes to be the root: neither waits for the other in this call.
        auto mine = ranks.bind(me, broadcast_shape(8, me));
        auto next = ranks.bind(me, barrier_shape());
        Tag tag = make_tag(1);
        tag.root = me;
        double data = me;
        if (run(*mine, tag, &data, &data) != Code::ok) return 1;
        const Poll poll = run(*next, make_tag(2), nullptr, nullptr);
        return poll == Code::mismatch && poll.failure->got.root == 1 - me ? 0 : 10;
    }) == 0);
}

TEST_CASE("flat: wakes a rank that sleeps and says whom it waits for") {
    FlatRanks ranks(shm_kind, 2);
    check_waking(ranks, 50);
}

GroupRequest request(Rank rank, Rank size, const TestEndpoint& leader) {
    GroupRequest group;
    group.comm = 1;
    group.rank = rank;
    group.size = size;
    group.find = [&leader](Rank) { return leader.address; };
    return group;
}

TEST_CASE("flat: refuses what it cannot serve") {
    FlatRanks ranks(shm_kind, 1);
    auto* provider = ranks.endpoint(0).transport->intrinsics();
    REQUIRE(provider->name() == "flat");
    const auto large = provider->join(request(0, 65, ranks.endpoint(0)), Deadline::after_ms(1000));
    REQUIRE_FALSE(large.has_value());
    REQUIRE(large.error().code == Code::unsupported);
    REQUIRE(large.error().message.find("65") != std::string::npos);
    REQUIRE_FALSE(ranks.group(0).serves(Collective::allreduce, 65'537));
    const auto wide = ranks.group(0).bind(allreduce_shape(16'385));
    REQUIRE_FALSE(wide.has_value());
    REQUIRE(wide.error().code == Code::unsupported);
    REQUIRE_FALSE(ranks.group(0).bind(allreduce_shape(1, Dtype::float32, Op::sum, flat_streams)));
    REQUIRE_FALSE(ranks.group(0).bind(broadcast_shape(1, 1)));
}

TEST_CASE("flat: gives up at the deadline when the leader never joins") {
    TestEndpoint leader(shm_kind, 0, 2), member(shm_kind, 1, 2);
    const auto joined =
        member.transport->intrinsics()->join(request(1, 2, leader), Deadline::after_ms(50));
    REQUIRE_FALSE(joined.has_value());
    REQUIRE(joined.error().code == Code::timeout);
}

TEST_CASE("flat: tells all who join with another size than the leader's") {
    TestEndpoint leader(shm_kind, 0, 2), member(shm_kind, 1, 2);
    REQUIRE(leader.transport->intrinsics()->join(request(0, 3, leader),
                                                 Deadline::after_ms(patience_ms)));
    const auto joined = member.transport->intrinsics()->join(request(1, 2, leader),
                                                             Deadline::after_ms(patience_ms));
    REQUIRE_FALSE(joined.has_value());
    REQUIRE(joined.error().code == Code::invalid);
}

// The function asks a leader's host, and returns the host's text.
std::string ask(shm::GroupHost& host, const shm::ShmHello& hello) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd here(ends[0]);
    host.request(UniqueFd(ends[1]), hello);
    const auto said = net::recv_fds(here.get(), shm::max_frame_bytes, Deadline::after_ms(1000));
    const auto answer = said ? shm::decode_answer(said->body) : tl::unexpected(said.error());
    return answer ? answer->text : "nothing";
}

TEST_CASE("flat: a member that asks again, or is refused, takes no other's answer") {
    shm::GroupHost host;
    shm::GroupHost::GroupOffer offer{.size = 3, .streams = 2};
    offer.answer = {.code = Code::no_memory, .text = "no memory"};
    host.publish(5, offer);
    const auto asks = [&](Rank rank, Rank size) {
        return ask(
            host,
            {.kind = shm::HelloKind::group, .rank = rank, .comm = 5, .size = size, .streams = 2});
    };
    REQUIRE(asks(1, 4).find("rank 1 of 4") != std::string::npos);
    REQUIRE(asks(7, 3).find("rank 7 of 3") != std::string::npos);
    for (int i = 0; i < 3; ++i) REQUIRE(asks(1, 3) == "no memory");
    REQUIRE(asks(2, 3) == "no memory");
    host.retire(5);
    REQUIRE(asks(2, 3) == "nothing");
}

TEST_CASE("flat: the leader's process uses a group's memory again once its last member has left") {
    auto arena = std::make_shared<Arena>();
    const auto neighbours = std::make_shared<shm::Neighbours>(0, -1);
    const auto closed = std::make_shared<shm::ClosedGroups>(arena, neighbours);
    constexpr Rank size = 3;
    const std::size_t bytes = round_up(shm::FlatLayout(size, 1).bytes(), page_bytes);
    const auto block = arena->take(bytes, page_bytes);
    REQUIRE(block);
    std::array<std::optional<shm::FlatMember>, size> members;
    for (Rank rank = 0; rank < size; ++rank) {
        auto& member = members[static_cast<std::size_t>(rank)].emplace(rank, size, 1);
        member.place = block->place;
        member.memory = block->data;
        member.members = {0, 1, 2};
        if (rank == 0) member.closed = closed;
    }
    const auto taken_again = [&] {
        closed->reuse();
        const auto next = arena->take(bytes, 0);
        REQUIRE(next);
        if (next->data == block->data) return true;
        arena->give(*next);
        return false;
    };
    auto& header = *reinterpret_cast<shm::FlatHeader*>(block->data);
    members[0].reset();
    CHECK(!taken_again());
    members[2].reset();
    CHECK(!taken_again());
    // The bits are all that a member writes as it leaves: the memory may belong to another group
    // once the last bit is set.
    CHECK(header.left == 0b101);
    CHECK(header.reserved == 0);
    members[1].reset();
    CHECK(header.left == 0b111);
    CHECK(header.reserved == 0);
    CHECK(taken_again());
}

TEST_CASE("shared memory: is refused when it could be resized or has another size") {
    const auto made = make_shared_memory("tutti-test", 8192, 4096);
    REQUIRE(made.has_value());
    const auto same = map_shared_memory(made->fd.get(), 8192);
    REQUIRE(same.has_value());
    REQUIRE(same->get() == made->data.get());  // one mapping per process
    REQUIRE_FALSE(map_shared_memory(made->fd.get(), 4096).has_value());
    const UniqueFd unsealed(::memfd_create("tutti-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(unsealed.get(), 8192) == 0);
    const auto refused = map_shared_memory(unsealed.get(), 8192);
    REQUIRE_FALSE(refused.has_value());
    REQUIRE(refused.error().message.find("resized") != std::string::npos);
}

TEST_CASE("shared memory: the process counts each mapping once, until the last user drops it") {
    const std::size_t before = mapped_shared_bytes();
    {
        const auto made = make_shared_memory("tutti-test", 8192, 4096);
        REQUIRE(made.has_value());
        const auto same = map_shared_memory(made->fd.get(), 8192);
        REQUIRE(same.has_value());
        REQUIRE(mapped_shared_bytes() == before + 8192);
    }
    REQUIRE(mapped_shared_bytes() == before);
}

TEST_CASE("shared memory: an unlinked file of this user's will do where there are no seals") {
    const auto open_file = [](int more) {
        UniqueFd fd(::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC | more, 0600));
        REQUIRE(fd);
        REQUIRE(::ftruncate(fd.get(), 8192) == 0);
        return fd;
    };
    REQUIRE(map_shared_memory(open_file(O_EXCL).get(), 8192).has_value());
    REQUIRE_FALSE(map_shared_memory(open_file(O_EXCL).get(), 4096).has_value());
    const UniqueFd named = open_file(0);
    const std::string path = fmt::format("/dev/shm/tutti-test-{}", ::getpid());
    REQUIRE(::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", named.get()).c_str(), AT_FDCWD,
                     path.c_str(), AT_SYMLINK_FOLLOW) == 0);
    const bool taken = map_shared_memory(named.get(), 8192).has_value();
    ::unlink(path.c_str());
    REQUIRE_FALSE(taken);
}

TEST_CASE("shared memory: a limit of file sizes is an error with its name, not a signal") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit little{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
    const auto refused = make_shared_memory("tutti-test", 1 << 20, 0);
    Arena arena;
    const auto block = arena.take(65'536, 4096);  // of a segment that is as large as may be
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    REQUIRE_FALSE(refused.has_value());
    REQUIRE(refused.error().advice.find("ulimit -f") != std::string::npos);
    REQUIRE(block.has_value());
}

}  // namespace
}  // namespace tutti::test
