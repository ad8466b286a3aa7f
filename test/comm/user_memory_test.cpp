#include "run/user_memory.h"

#include <vector>

#include "support/catch.h"

using namespace tutti;

namespace {

// Knows memory up to a limit, as a network with locked pages does.
class LimitedTransport final : public Transport {
public:
    LimitedTransport(std::size_t limit, std::size_t& known) : limit_(limit), known_(known) {}
    std::string_view name() const override { return "limited"; }
    const Capabilities& capabilities() const override { return capabilities_; }
    Result<> listen() override { return {}; }
    std::string address() const override { return {}; }
    bool may_reach(const PeerAddress&) const override { return false; }
    Result<std::unique_ptr<Sender>> open(const ChannelId&, const PeerAddress&, Deadline) override {
        return fail(Code::unsupported, "no");
    }
    Result<> add_memory(std::byte*, std::size_t bytes) override {
        if (known_ + bytes > limit_) return fail(Code::system, "over the limit");
        known_ += bytes;
        return {};
    }
    void remove_memory(std::byte*, std::size_t bytes) override { known_ -= bytes; }
    void progress() override {}
    void close(Deadline) override {}

private:
    const std::size_t limit_;
    std::size_t& known_;
    const Capabilities capabilities_{};
};

}  // namespace

TEST_CASE("user memory: all transports know it or none") {
    std::size_t roomy = 0, narrow = 0;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<LimitedTransport>(1 << 20, roomy));
    transports.push_back(std::make_unique<LimitedTransport>(8192, narrow));
    UserMemory memory(3, transports);

    std::vector<std::byte> mine(6000);
    REQUIRE(memory.add(mine.data(), mine.size()));
    const auto refused = memory.allocate(5000);
    REQUIRE(!refused);
    CHECK(refused.error().code == Code::system);
    CHECK(refused.error().message.find("registering 8192 bytes with limited") != std::string::npos);
    CHECK(roomy == 6000);
    CHECK(narrow == 6000);

    REQUIRE(memory.remove(mine.data()));
    REQUIRE(memory.allocate(5000));
    CHECK(roomy == 8192);
    memory.clear();
    CHECK(roomy == 0);
    CHECK(narrow == 0);
}

TEST_CASE("user memory: the transports forget it at the end, and the pages stay") {
    std::size_t known = 0;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<LimitedTransport>(1 << 20, known));
    auto memory = std::make_unique<UserMemory>(3, transports);
    const auto first = memory->allocate(5000), second = memory->allocate(100);
    REQUIRE((first && second));
    REQUIRE(UserMemory::free_of_any(*second));
    CHECK(known == 8192);
    memory.reset();
    CHECK(known == 0);
    (*first)[4999] = std::byte{1};
    REQUIRE(UserMemory::free_of_any(*first));
    CHECK(known == 0);
    CHECK(!UserMemory::free_of_any(*first));
    CHECK(UserMemory::free_of_any(nullptr));
}
