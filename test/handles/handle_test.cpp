// Handles: cut, damaged, of other versions, jobs and secrets; and lists of them.
#include <string>
#include <vector>

#include "base/hash.h"
#include "handles/handle.h"
#include "handles/handle_list.h"
#include "handles/own_handles.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr const char* secret = "a secret of the test's processes";

Handle made(char process = 'p') {
    Handle handle;
    handle.process = std::string(Handle::process_bytes, process);
    handle.version = "0.1.0";
    handle.job = "job";
    handle.address = "127.0.0.1:4242";
    REQUIRE(handle.sign(secret));
    return handle;
}

Config settings() {
    Config config;
    config.job = "job";
    config.secret = secret;
    return config;
}

void set_checksum(Bytes& bytes) {
    const ByteView checked = ByteView(bytes).first(bytes.size() - sizeof(uint64_t));
    const uint64_t sum = hash_of(as_text(checked));
    std::memcpy(bytes.data() + checked.size(), &sum, sizeof sum);
}

std::string error_of(ByteView bytes) {
    const auto decoded = Handle::decode(bytes);
    return decoded ? "" : error_text(decoded.error());
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("handle: decodes to what was encoded") {
    const Handle handle = made();
    const Bytes bytes = handle.encode();
    const auto decoded = Handle::decode(bytes);
    REQUIRE(decoded);
    REQUIRE(decoded->encode() == bytes);
    REQUIRE(decoded->address == handle.address);
    REQUIRE(decoded->check("job", secret));
}

TEST_CASE("handle: the longest fits the constant") {
    Handle handle = made();
    handle.version = std::string(Handle::max_version_bytes, 'v');
    handle.job = std::string(Handle::max_job_bytes, 'j');
    handle.address = std::string(Handle::max_address_bytes, 'a');
    REQUIRE(handle.sign(secret));
    const Bytes bytes = handle.encode();
    REQUIRE(bytes.size() <= Handle::max_bytes);
    REQUIRE(Handle::decode(bytes));
    handle.job += 'j';
    const auto signing = handle.sign(secret);
    REQUIRE(!signing);
    REQUIRE(has(signing.error().message, "has 513 bytes"));
}

TEST_CASE("handle: one that is cut short is told at every length") {
    const Bytes bytes = made().encode();
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        INFO("cut to " << length);
        const auto decoded = Handle::decode(ByteView(bytes).first(length));
        REQUIRE(!decoded);
        REQUIRE(decoded.error().code == Code::invalid);
        REQUIRE(has(decoded.error().message, "cut short"));
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    REQUIRE(has(error_of(longer), "says that it has"));
}

TEST_CASE("handle: every flipped bit is told") {
    const Bytes bytes = made().encode();
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        Bytes flipped = bytes;
        flipped[bit / 8] ^= std::byte{1} << (bit % 8);
        INFO("bit " << bit);
        REQUIRE(error_of(flipped) != "");
    }
}

TEST_CASE("handle: other bytes are no handle") {
    REQUIRE(has(error_of(as_bytes("tcp://127.0.0.1:4242")), "no handle of tutti"));
    // A head that promises less than a handle's frame.
    Bytes tiny = ByteWriter().put(Handle::magic).put(uint32_t{12}).put(Handle::format).take();
    REQUIRE(has(error_of(tiny), "says that it has 12"));
}

TEST_CASE("handle: of another version") {
    Bytes bytes = made().encode();
    const uint32_t other = 7;
    std::memcpy(bytes.data() + 8, &other, sizeof other);
    set_checksum(bytes);
    const auto decoded = Handle::decode(bytes);
    REQUIRE(!decoded);
    REQUIRE(decoded.error().code == Code::unsupported);
    REQUIRE(has(decoded.error().message, "format 7"));
}

TEST_CASE("handle: of another job, and of another secret") {
    const Handle handle = made();
    const auto job = handle.check("other", secret);
    REQUIRE(!job);
    REQUIRE(job.error().code == Code::invalid);
    REQUIRE(has(job.error().message, "of job 'job', but this process is in job 'other'"));
    for (const char* other : {"", "another secret of the test's"}) {
        const auto checked = handle.check("job", other);
        REQUIRE(!checked);
        REQUIRE(checked.error().code == Code::auth);
    }
}

TEST_CASE("handle: a changed field is told even with a right checksum") {
    Handle handle = made();
    handle.address = "10.0.0.1:4242";
    const auto decoded = Handle::decode(handle.encode());
    REQUIRE(decoded);
    REQUIRE(decoded->check("job", secret).error().code == Code::auth);
}

TEST_CASE("handle list: names the bad handle, and tells lists apart") {
    const Bytes a = made('a').encode(), b = made('b').encode(), c = made('c').encode();
    const auto list = [&](const std::vector<ByteView>& handles) {
        return HandleList::decode(handles, settings());
    };
    const auto cut = list({a, ByteView(b).first(20)});
    REQUIRE(has(cut.error().message, "handle 1 of 2: it is cut short: 20 bytes are left of"));
    const auto twice = list({a, b, a});
    REQUIRE(has(twice.error().message, "handles 0 and 2 of 3 are the same process's"));
    const auto ab = *list({a, b}), ba = *list({b, a}), abc = *list({a, b, c});
    REQUIRE(ab.hash() == list({a, b})->hash());
    REQUIRE(ab.hash() != ba.hash());
    REQUIRE(ab.set_hash() == ba.set_hash());
    REQUIRE(ab.set_hash() != abc.set_hash());
    REQUIRE(*ba.rank_of(made('a')) == 1);
    REQUIRE(has(ab.rank_of(made('c')).error().message, "none of the 2 handles is this process's"));
}

TEST_CASE("own handles: the same settings have one handle, others another") {
    Config config = settings();
    config.job = "own handles";
    REQUIRE(has(own_handles::find(config).error().message, "has no handle for job 'own handles'"));
    const auto first = own_handles::get(config), again = own_handles::get(config);
    REQUIRE(first);
    REQUIRE(first->handle.encode() == again->handle.encode());
    REQUIRE(own_handles::find(config)->handle.process == first->handle.process);
    config.rank = 1;
    REQUIRE(own_handles::get(config)->handle.process != first->handle.process);
    REQUIRE(own_handles::use_uuid(config, "once"));
    REQUIRE(has(own_handles::use_uuid(config, "once").error().message, "'once' was used before"));
}

TEST_CASE("own handles: without a secret a handle leads to loopback only") {
    Config config;
    config.job = "own handles without a secret";
    const auto own = own_handles::get(config);
    REQUIRE(own);
    REQUIRE(own->handle.address.starts_with("127.0.0.1:"));
}
