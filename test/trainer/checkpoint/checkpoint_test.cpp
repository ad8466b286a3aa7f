// Checkpoints of one process: what comes back, scopes, and what is said of bad files.
#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cstring>
#include <thread>

#include "support/catch.h"
#include "support/sanitized.h"
#include "trainer/checkpoint/checkpoint_fixture.h"
#include "tutti/checkpoint.hpp"

using namespace tutti::test;

namespace {

void expect_refused(tutti_status status, std::initializer_list<std::string> words) {
    const std::string text = tutti_trainer_last_error();
    INFO(text);
    REQUIRE(status == TUTTI_ERR_INVALID);
    for (const std::string& word : words) {
        INFO(word);
        REQUIRE(text.find(word) != std::string::npos);
    }
}

/// Loads a damaged file into a model, which must stay as it is.
void expect_bad(const std::string& path, std::initializer_list<std::string> words) {
    Model model;
    model.weight[0] = 77;
    const Model before = model;
    List list;
    model.add_to(list);
    const tutti_status status = tutti_checkpoint_load(list, nullptr, path.c_str(), nullptr);
    expect_refused(status, words);
    REQUIRE(std::string(tutti_trainer_last_error()).find(path) != std::string::npos);
    REQUIRE(model == before);
}

std::string saved_model(const Folder& folder) {
    Model model;
    List list;
    model.add_to(list);
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    return contents(folder.file());
}

}  // namespace

TEST_CASE("checkpoint: parameters, computed ones, optimiser state and texts come back") {
    const Folder folder;
    Model model;
    List list;
    model.add_to(list);
    List::ok(tutti_checkpoint_set_text(list, "epoch", "12 \"of\" 90 – half"));
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    REQUIRE(folder.files() == 1);
    model.clear();
    List other;
    model.add_to(other);
    List::ok(tutti_checkpoint_load(other, nullptr, folder.file().c_str(), nullptr));
    REQUIRE(model == Model());
    REQUIRE(tutti_checkpoint_text(other, "epoch") == std::string("12 \"of\" 90 – half"));
    REQUIRE(tutti_checkpoint_text(other, "tutti.format") == nullptr);
    REQUIRE(tutti_checkpoint_missing(other, 0) == nullptr);
}

TEST_CASE("checkpoint: device 0's scope is saved without its prefix and restored to any number") {
    const Folder folder;
    std::vector<Model> two(2);
    two[1].weight[0] = -1;  // devices differ: the file has device 0's
    List list;
    two[1].add_to(list, "device_1/");
    two[0].add_to(list, "device_0/");
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    REQUIRE(contents(folder.file()).find("device_") == std::string::npos);
    for (const std::size_t devices : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        std::vector<Model> others(devices);
        List other;
        for (std::size_t d = 0; d < devices; ++d) {
            others[d].clear();
            others[d].add_to(other, "device_" + std::to_string(d) + "/");
        }
        List::ok(tutti_checkpoint_load(other, nullptr, folder.file().c_str(), nullptr));
        for (const Model& restored : others) REQUIRE(restored == Model());
    }
}

TEST_CASE("checkpoint: a value that the file lacks is an error naming it unless that is allowed") {
    const Folder folder;
    saved_model(folder);
    Model model;
    std::vector<float> variance{4, 4};
    List list;
    model.add_to(list);
    list.add("bn/running_var", variance, {2});
    expect_refused(tutti_checkpoint_load(list, nullptr, folder.file().c_str(), nullptr),
                   {"no entry 'bn/running_var'", "allow missing", folder.file()});
    tutti_checkpoint_opts opts = TUTTI_CHECKPOINT_OPTS_INIT;
    opts.allow_missing = 1;
    model.clear();
    List::ok(tutti_checkpoint_load(list, nullptr, folder.file().c_str(), &opts));
    REQUIRE(model == Model());
    REQUIRE(variance == std::vector<float>{4, 4});
    REQUIRE(tutti_checkpoint_missing(list, 0) == std::string("bn/running_var"));
    REQUIRE(tutti_checkpoint_missing(list, 1) == nullptr);
}

TEST_CASE("checkpoint: one of another model is refused, naming the entry") {
    const Folder folder;
    saved_model(folder);
    std::vector<float> weight(6);
    List less;
    less.add("weight", weight, {2, 3});
    expect_refused(tutti_checkpoint_load(less, nullptr, folder.file().c_str(), nullptr),
                   {"has an entry 'bn/running_mean' that the model does not have", "allow extra"});
    tutti_checkpoint_opts opts = TUTTI_CHECKPOINT_OPTS_INIT;
    opts.allow_extra = 1;
    List::ok(tutti_checkpoint_load(less, nullptr, folder.file().c_str(), &opts));
    REQUIRE(weight == Model().weight);
    List turned;
    turned.add("weight", weight, {3, 2});
    expect_refused(tutti_checkpoint_load(turned, nullptr, folder.file().c_str(), &opts),
                   {"'weight' is float32 of 2 × 3 in the file, but float32 of 3 × 2 in the model",
                    "restore the model"});
}

TEST_CASE("checkpoint: a file that was cut anywhere is refused, and nothing of it is used") {
    const Folder folder;
    const std::string whole = saved_model(folder);
    for (std::size_t length = 0; length < whole.size(); length += sanitized ? 3 : 1) {
        put(folder.file(), whole.substr(0, length));
        INFO(length);
        expect_bad(folder.file(), {"cut short", "earlier checkpoint"});
    }
    put(folder.file(), whole.substr(0, whole.size() - 1));
    expect_bad(folder.file(), {"entry 'weight'"});
    put(folder.file(), whole + "x");
    expect_bad(folder.file(), {"1 bytes follow its last entry"});
}

// So many that anything quadratic in their number would take the time of a hang.
TEST_CASE("checkpoint: a list of many entries comes back") {
    const Folder folder;
    const std::size_t count = sanitized ? 2'000 : 200'000;
    std::vector<std::vector<int64_t>> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back({static_cast<int64_t>(i)});
    const auto add_to = [&](List& list) {
        for (std::size_t i = 0; i < count; ++i)
            list.add("counter" + std::to_string(i), values[i], {1});
    };
    List list, other;
    add_to(list);
    List::ok(tutti_checkpoint_save(list, nullptr, folder.file().c_str()));
    for (std::vector<int64_t>& value : values) value[0] = -1;
    add_to(other);
    List::ok(tutti_checkpoint_load(other, nullptr, folder.file().c_str(), nullptr));
    std::size_t right = 0;
    for (std::size_t i = 0; i < count; ++i) right += values[i][0] == static_cast<int64_t>(i);
    REQUIRE(right == count);
}

TEST_CASE("checkpoint: any flipped bit is found, and nothing of the file is used") {
    const Folder folder;
    const std::string whole = saved_model(folder);
    const std::size_t data = whole.size() - (6 + 2 + 6) * sizeof(float) - sizeof(int64_t);
    for (std::size_t bit = 0; bit < 8 * whole.size(); bit += sanitized ? 5 : 1) {
        std::string flipped = whole;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
        put(folder.file(), flipped);
        INFO(bit);
        // A flipped bit in the length itself may make the file look too short.
        if (bit < 64)
            expect_bad(folder.file(), {"What to do: "});
        else if (bit < 8 * data)
            expect_bad(folder.file(), {"header", "damaged"});
        else
            expect_bad(folder.file(), {"entry '", "does not match its checksum", "damaged"});
    }
}

TEST_CASE("checkpoint: one written by a newer version is refused with both versions") {
    const Folder folder;
    // Its header may have another kind of checksum, which this version does not know.
    const std::string json = R"({"__metadata__":{"tutti.format":"7"}})";
    std::string length(8, '\0');
    length[0] = static_cast<char>(json.size());
    put(folder.file(), length + json);
    expect_bad(folder.file(), {"format 7", "newer version", "formats up to 1", "update tutti"});
}

TEST_CASE("checkpoint: a file that another program wrote, or that is none at all, is refused") {
    const Folder folder;
    const std::string json = R"({"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    std::string length(8, '\0');
    length[0] = static_cast<char>(json.size());
    put(folder.file(), length + json + "abcd");
    expect_bad(folder.file(), {"not a tutti checkpoint", "another program wrote it"});
    put(folder.file(), std::string(4096, '\xff'));
    expect_bad(folder.file(), {"not a checkpoint, or damaged"});
    List list;
    REQUIRE(tutti_checkpoint_load(list, nullptr, folder.file("none").c_str(), nullptr) ==
            TUTTI_ERR_SYSTEM);
    REQUIRE(std::string(tutti_trainer_last_error()).find("No such file") != std::string::npos);
}

TEST_CASE("checkpoint: a save that fails leaves the file that was there, and no other") {
    const Folder folder;
    const std::string whole = saved_model(folder);
    Model model;
    model.weight[0] = 1000;
    List list;
    model.add_to(list);
    const auto no_copy = [](void*, void*, const void*, size_t, int) { return 5; };
    List::ok(tutti_checkpoint_set_copy(list, no_copy, nullptr));
    REQUIRE(tutti_checkpoint_save(list, nullptr, folder.file().c_str()) == TUTTI_ERR_SYSTEM);
    REQUIRE(std::string(tutti_trainer_last_error()).find("failed with 5") != std::string::npos);
    REQUIRE(contents(folder.file()) == whole);
    REQUIRE(folder.files() == 1);
    REQUIRE(tutti_checkpoint_save(list, nullptr, folder.file("no/such/folder").c_str()) ==
            TUTTI_ERR_SYSTEM);
}

TEST_CASE("checkpoint: texts that no load would take are refused by the save") {
    const Folder folder;
    const std::string whole = saved_model(folder);
    Model model;
    List list;
    model.add_to(list);
    const std::string much(100'000'000, 'x');
    List::ok(tutti_checkpoint_set_text(list, "state", much.c_str()));
    expect_refused(tutti_checkpoint_save(list, nullptr, folder.file().c_str()),
                   {"a checkpoint has room for 100000000"});
    REQUIRE(contents(folder.file()) == whole);
    REQUIRE(folder.files() == 1);
}

TEST_CASE("checkpoint: what a killed process left is overwritten, what one writes is not") {
    const Folder folder;
    const std::string partial = folder.file() + ".partial";
    put(partial, std::string(100000, 'x'));
    saved_model(folder);
    REQUIRE(folder.files() == 1);
    const int fd = open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    REQUIRE(flock(fd, LOCK_EX) == 0);
    List list;
    expect_refused(tutti_checkpoint_save(list, nullptr, folder.file().c_str()),
                   {"another process is writing the file", partial});
    close(fd);
}

TEST_CASE("checkpoint: two threads that save under one name leave one of their files whole") {
    const Folder folder;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&folder] {
            Model model;
            List list;
            model.add_to(list);
            // Either succeeds, or is told that the other writes.
            for (int i = 0; i < 20; ++i)
                tutti_checkpoint_save(list, nullptr, folder.file().c_str());
        });
    for (std::thread& thread : threads) thread.join();
    Model model;
    model.clear();
    List list;
    model.add_to(list);
    List::ok(tutti_checkpoint_load(list, nullptr, folder.file().c_str(), nullptr));
    REQUIRE(model == Model());
    REQUIRE(folder.files() == 1);
}

TEST_CASE("checkpoint: values on a device come and go through the program's copy function") {
    const Folder folder;
    // A device whose memory is that of the host, turned over: the host cannot read it as it is.
    const auto copy = [](void* user, void* to, const void* from, size_t bytes, int to_device) {
        ++static_cast<int*>(user)[to_device];
        for (size_t i = 0; i < bytes; ++i)
            static_cast<uint8_t*>(to)[i] =
                static_cast<uint8_t>(~static_cast<const uint8_t*>(from)[i]);
        return 0;
    };
    int calls[2] = {0, 0};
    std::vector<int64_t> there{~int64_t{5}, ~int64_t{6}}, plain(2);
    List device, host;
    device.add("x", there, {2});
    host.add("x", plain, {2});
    List::ok(tutti_checkpoint_set_copy(device, copy, calls));
    List::ok(tutti_checkpoint_save(device, nullptr, folder.file().c_str()));
    there = {0, 0};
    List::ok(tutti_checkpoint_load(device, nullptr, folder.file().c_str(), nullptr));
    List::ok(tutti_checkpoint_load(host, nullptr, folder.file().c_str(), nullptr));
    REQUIRE(there == std::vector<int64_t>{~int64_t{5}, ~int64_t{6}});
    REQUIRE(plain == std::vector<int64_t>{5, 6});
    REQUIRE((calls[0] == 1 && calls[1] == 1));
}

TEST_CASE("checkpoint: entries that make no sense are refused by name") {
    float x = 0;
    const int64_t one[] = {1}, two[] = {2}, huge[] = {INT64_MAX, 3}, less[] = {-1};
    List list;
    const auto add = [&](const char* name, int dims, const int64_t* shape, tutti_dtype dtype) {
        return tutti_checkpoint_add(list, name, &x, dtype, dims, shape);
    };
    REQUIRE(add("a", 1, one, TUTTI_FLOAT32) == TUTTI_OK);
    expect_refused(add("a", 1, one, TUTTI_FLOAT32), {"entry 'a' was added before"});
    expect_refused(add("device_0/a", 1, one, TUTTI_FLOAT32), {"'device_0/a' was added before"});
    expect_refused(add("device_1/a", 1, two, TUTTI_FLOAT32),
                   {"float32 of 2, but float32 of 1 on another device"});
    expect_refused(add("", 1, one, TUTTI_FLOAT32), {"no name"});
    expect_refused(add("device_3/", 1, one, TUTTI_FLOAT32), {"'device_3/' has no name"});
    expect_refused(add("__metadata__", 1, one, TUTTI_FLOAT32), {"__metadata__"});
    // No lead, a half of a pair, in more bytes than needed, past the last code point.
    for (const char* name :
         {"\xff", "\xed\xa0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80"})
        expect_refused(add(name, 1, one, TUTTI_FLOAT32), {"not UTF-8", "entry '\\x"});
    expect_refused(add("lay\ner\x1f/ä", 1, one, TUTTI_FLOAT32),
                   {"entry 'lay\\x0aer\\x1f/ä'", "control character"});
    REQUIRE(add("\xe0\xa0\x80\xed\x9f\xbf\xf4\x8f\xbf\xbf", 1, one, TUTTI_FLOAT32) == TUTTI_OK);
    expect_refused(add("b", 2, huge, TUTTI_FLOAT32), {"'b'", "more than memory"});
    expect_refused(add("b", 1, less, TUTTI_FLOAT32), {"'b'", "extent of -1"});
    expect_refused(add("b", 1, one, 99), {"'b'", "unknown dtype 99"});
    expect_refused(add("b", 1, nullptr, TUTTI_FLOAT32), {"'b'", "NULL"});
    expect_refused(tutti_checkpoint_add(list, "b", nullptr, TUTTI_FLOAT32, 1, one),
                   {"'b'", "data is NULL"});
    expect_refused(tutti_checkpoint_add_shard(list, "b", &x, TUTTI_FLOAT32, 1, two, 1, 2),
                   {"'b'", "2 rows from row 1 on are not among its 2"});
    expect_refused(tutti_checkpoint_set_text(list, "tutti.x", "y"),
                   {"'tutti.x' is reserved for tutti"});
    expect_refused(tutti_checkpoint_save(list, nullptr, nullptr), {"path is NULL"});
}

TEST_CASE("checkpoint.hpp: ranges are saved and restored, and errors are exceptions") {
    const Folder folder;
    std::vector<double> rates{0.5, 0.25};
    std::array<int32_t, 6> table{1, 2, 3, 4, 5, 6};
    tutti::Checkpoint state;
    state.add("rates", rates).add_shard("table", table, {3, 2}, 0).set_text("epoch", "4");
    state.save(folder.file());
    rates = {0, 0};
    table.fill(0);
    tutti::Checkpoint other;
    std::vector<float> more{7};
    std::array<int32_t, 4> last{};
    other.add("rates", rates, {2, 1, 1}).add_shard("table", last, {3, 2}, 1).add("more", more);
    try {
        other.load(folder.file(), nullptr, {.allow_missing = true});
        FAIL("a shape that differs was restored");
    } catch (const tutti::Error& error) {
        REQUIRE(error.status() == TUTTI_ERR_INVALID);
        REQUIRE(std::string(error.what()).find("entry 'rates'") != std::string::npos);
    }
    REQUIRE_FALSE(other.text("epoch"));
    tutti::Checkpoint right;
    right.add("rates", rates).add_shard("table", last, {3, 2}, 1).add("more", more);
    const auto missing = right.load(folder.file(), nullptr, {.allow_missing = true});
    REQUIRE(missing == std::vector<std::string>{"more"});
    REQUIRE(rates == std::vector<double>{0.5, 0.25});
    REQUIRE(last == std::array<int32_t, 4>{3, 4, 5, 6});
    REQUIRE(right.text("epoch") == "4");
    REQUIRE_THROWS_AS(right.add("odd", more, {2}), tutti::Error);
    REQUIRE_THROWS_AS(right.add_shard("odd", last, {9, 3}, 0), tutti::Error);
}
