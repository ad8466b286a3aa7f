// The flight recorder: what it keeps, and that other threads read it whole.
#include "record/recorder.h"
#include "record/call_name.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/collective.h"
#include "reduce/reduce.h"
#include "support/catch.h"

using namespace tutti;

namespace {

// The number after `"name":` in a line of the recorder's text.
uint64_t number_in(std::string_view line, std::string_view name) {
    const auto at = line.find(fmt::format("\"{}\":", name)) + name.size() + 3;
    return std::strtoull(std::string(line.substr(at, 20)).c_str(), nullptr, 10);
}

// Whether all fields are those of one call: `next` in the test below made them.
std::string torn(std::string_view text) {
    uint64_t before = 0;
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
        const std::string_view line = text.substr(at, end - at);
        const uint64_t number = number_in(line, "number");
        if (number <= before || number_in(line, "bytes") != 3 * number ||
            number_in(line, "ring") != number % 7 ||
            line.find(fmt::format("(count {},", 2 * number)) == line.npos)
            return std::string(line);
        before = number;
    }
    return {};
}

}  // namespace

TEST_CASE("recorder: keeps the last 1,024 calls and finds them by sequence") {
    auto recorder = std::make_unique<Recorder>();
    const std::size_t few_bytes = recorder->allocated_bytes();
    REQUIRE(few_bytes > 0);
    Tag tag;
    for (uint64_t s = 1; s <= 3000; ++s) {
        tag.sequence = s;
        tag.count = s * 2;
        recorder->begin(tag, s * 8, static_cast<uint32_t>(s % 3));
        recorder->end(tag, Code::ok, s % 2 == 0);
    }
    REQUIRE(recorder->last() == 3000);
    REQUIRE(recorder->allocated_bytes() == few_bytes * (1 + Recorder::capacity / 32));
    REQUIRE_FALSE(recorder->find(3000 - Recorder::capacity));
    const auto found = recorder->find(3000 - Recorder::capacity + 1);
    REQUIRE(found);
    REQUIRE(found->count == found->sequence * 2);
    const std::string last = recorder->text(7, 1);
    INFO(last);
    REQUIRE(last.find(R"("bytes":24000,"ring":0,"state":"done")") != std::string::npos);
}

TEST_CASE("recorder: does not end a call for an older one in the same entry") {
    Recorder recorder;
    Tag tag, newer;
    tag.sequence = 100;
    newer.sequence = 100 + Recorder::capacity;
    recorder.begin(tag, 8, 0);
    recorder.begin(newer, 8, 0);
    recorder.end(tag, Code::timeout, false);
    REQUIRE(recorder.text(0, 1).find(R"("number":1124,)") != std::string::npos);
    REQUIRE(recorder.text(0, 1).find(R"("state":"running")") != std::string::npos);
    recorder.end(newer, Code::timeout, false);
    REQUIRE(recorder.text(0, 1).find(R"("state":"failed")") != std::string::npos);
}

TEST_CASE("recorder: other threads read whole entries while they are overwritten") {
    Recorder recorder;
    std::atomic<bool> over{false};
    std::atomic<uint64_t> torn_tags{0};
    std::thread issuing([&] {
        Tag tag;
        for (uint64_t s = 1; !over; ++s) {
            tag.sequence = s;
            tag.count = 2 * s;
            tag.plan = 5 * s;
            tag.root = static_cast<int32_t>(s % 11);
            tag.call = pack_call(1, static_cast<uint32_t>(Dtype::int8), 0);
            recorder.begin(tag, 3 * s, static_cast<uint32_t>(s % 7));
            recorder.end(tag, Code::ok, s % 2 == 0);
        }
    });
    std::thread finding([&] {
        while (!over) {
            const uint64_t last = recorder.last();
            // The entry that is overwritten next or now.
            const auto tag =
                recorder.find(last + 1 > Recorder::capacity ? last + 1 - Recorder::capacity : 1);
            if (tag && (tag->count != 2 * tag->sequence || tag->plan != 5 * tag->sequence ||
                        tag->root != static_cast<int32_t>(tag->sequence % 11)))
                ++torn_tags;
        }
    });
    std::string found;
    for (int i = 0; i < 500 && found.empty(); ++i) found = torn(recorder.text(0, 200));
    over = true;
    issuing.join();
    finding.join();
    CHECK(found == "");
    CHECK(torn_tags == 0);
}

TEST_CASE("recorder: describes a call in words") {
    Tag tag;
    tag.sequence = uint64_t{3} << Tag::epoch_shift | 12;
    tag.count = 7;
    tag.call = pack_call(0, static_cast<uint32_t>(Dtype::float32), static_cast<uint32_t>(Op::max));
    REQUIRE(describe_call(tag) == "allreduce #12 (count 7, float32, max)");
    tag.call = pack_call(1, static_cast<uint32_t>(Dtype::int8), 0);
    tag.root = 3;
    REQUIRE(describe_call(tag) == "broadcast #12 (count 7, int8, root 3)");
    tag.call = pack_call(0, static_cast<uint32_t>(Dtype::int64), 0) | pack_user_op(false, 130);
    REQUIRE(describe_call(tag) == "allreduce #12 (count 7, int64, user operator 130)");
    tag.call = pack_call(9, static_cast<uint32_t>(Dtype::float16), 0) | pack_user_op(true, 4095);
    REQUIRE(describe_call(tag) == "scan #12 (count 7, float16, pre-multiplied sum 4095)");
    tag.call = pack_call(0, static_cast<uint32_t>(Dtype::int8), 1) | multi_call;
    REQUIRE(describe_call(tag) == "allreduce_multi #12 (count 7, int8, max)");
}

TEST_CASE("recorder: writes the arguments that a call has as fields of its line") {
    const auto fields = [](Collective collective, uint32_t more) {
        Recorder recorder;
        Tag tag;
        tag.sequence = 1;
        tag.count = 7;
        tag.root = 3;
        tag.call =
            pack_call(static_cast<uint32_t>(collective), static_cast<uint32_t>(Dtype::float16), 0) |
            more;
        recorder.begin(tag, 14, 0);
        const std::string line = recorder.text(0, 1);
        const auto from = line.find(R"("collective")"), to = line.find(R"(,"bytes")");
        return from < to ? line.substr(from, to - from) : line;
    };
    const auto max = static_cast<uint32_t>(Op::max) << 16;
    CHECK(fields(Collective::allreduce, max) ==
          R"("collective":"allreduce","count":7,"dtype":"float16","op":"max")");
    CHECK(fields(Collective::allreduce, max | multi_call) ==
          R"("collective":"allreduce_multi","count":7,"dtype":"float16","op":"max")");
    CHECK(fields(Collective::reduce, pack_user_op(false, 130)) ==
          R"("collective":"reduce","count":7,"dtype":"float16","op":"user operator 130","root":3)");
    CHECK(fields(Collective::broadcast, 0) ==
          R"("collective":"broadcast","count":7,"dtype":"float16","root":3)");
    CHECK(fields(Collective::alltoall, 0) ==
          R"("collective":"alltoall","count":7,"dtype":"float16")");
    CHECK(fields(Collective::barrier, 0) == R"("collective":"barrier")");
    // All ranks know all lengths.
    CHECK(fields(Collective::allgather, uneven_call) ==
          R"("collective":"allgatherv","count":7,"dtype":"float16")");
    CHECK(fields(Collective::reduce_scatter, uneven_call | max) ==
          R"("collective":"reduce_scatterv","count":7,"dtype":"float16","op":"max")");
    // Only the two ranks of a message know its length.
    CHECK(fields(Collective::gather, uneven_call) ==
          R"("collective":"gatherv","dtype":"float16","root":3)");
    CHECK(fields(Collective::scatter, uneven_call) ==
          R"("collective":"scatterv","dtype":"float16","root":3)");
    CHECK(fields(Collective::alltoall, uneven_call) ==
          R"("collective":"alltoallv","dtype":"float16")");
}

TEST_CASE("recorder: tells which operation a collective is a part of") {
    Tag tag;
    tag.sequence = 12;
    tag.count = 7;
    const uint32_t sum = pack_call(static_cast<uint32_t>(Collective::allreduce),
                                   static_cast<uint32_t>(Dtype::float32), 0);
    for (const std::string_view text : numbered_names) {
        const uint32_t number = number_of(CallName::of(text).value());
        tag.call = sum | pack_part(sum, number);
        REQUIRE(describe_call(tag) ==
                fmt::format("allreduce #12{} (count 7, float32, sum)",
                            text.empty() ? "" : fmt::format(" in '{}'", text)));
        // A program's own operator needs the bits.
        const uint32_t own = sum | pack_user_op(false, 70);
        REQUIRE(pack_part(own, number) == 0);
    }
    REQUIRE(number_of(CallName::of("of a program").value()) == 0);
    // A number from a wire may be no name's.
    tag.call = sum | 63u << part_shift;
    REQUIRE(describe_call(tag) == "allreduce #12 (count 7, float32, sum)");
}

TEST_CASE("recorder: tells what a barrier is for") {
    Tag tag;
    tag.sequence = 12;
    tag.call = pack_call(static_cast<uint32_t>(Collective::barrier), 0, 0);
    REQUIRE(describe_call(tag) == "barrier #12");
    for (const char* text :
         {"checkpoint save", "Epoch 3", "x", "ten letter", "eleven char", "000 zZ"}) {
        const CallName name = CallName::of(text).value();
        tag.count = name.head;
        tag.root = static_cast<int32_t>(name.tail);
        REQUIRE(tag.root >= 0);
        REQUIRE(describe_call(tag) == fmt::format("barrier '{}' #12", text));
    }
    REQUIRE(CallName::of("") == CallName());
    for (const char* text : {"sixteen letters.", "sixteen letterss", "a-b", "naïve", "a\nb"})
        REQUIRE(!CallName::of(text));
    // Any bits from a wire give some text.
    tag.count = ~uint64_t{0};
    tag.root = -1;
    REQUIRE(describe_call(tag) == "barrier 'zzzzzzzzzzzzzzz' #12");
}
