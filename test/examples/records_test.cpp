// The record files of examples/imagenet_like, and what is said of bad ones.
#include <random>

#include "imagenet_fixture.h"
#include "imagenet_like/grey_png.h"
#include "imagenet_like/reader.h"
#include "imagenet_like/records.h"
#include "support/catch.h"

using namespace imagenet_like;
using namespace tutti::test;

namespace {

/// The text of what the call throws; it names all the words.
template <typename Call>
void expect_error(Call&& call, const std::vector<std::string>& words) {
    std::string text;
    try {
        call();
    } catch (const std::runtime_error& error) {
        text = error.what();
    }
    INFO(text);
    REQUIRE_FALSE(text.empty());
    for (const std::string& word : words) {
        INFO(word);
        REQUIRE(text.find(word) != std::string::npos);
    }
}

constexpr std::size_t header_bytes = 32, entry_bytes = 24;

}  // namespace

TEST_CASE("records: images and labels come back, over several files") {
    const Folder folder;
    pack_random(folder, {5, 0, 9});
    const RecordSet set(folder.file(""), "train");
    REQUIRE(set.size() == 14);
    for (std::size_t i = 0; i < set.size(); ++i) {
        Bytes file;
        REQUIRE(set.read(i, file) == i % 10);
        REQUIRE(decode_png(file, 64).pixels == random_image(i).pixels);
    }
    REQUIRE(set.name_of(5).find("train-002.rec, entry 0") != std::string::npos);
}

TEST_CASE("records: a file that was cut short is refused, wherever that was") {
    const Folder folder;
    pack_random(folder, {6});
    const std::string path = folder.file("train-000.rec"), whole = contents(path);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        put(path, whole.substr(0, bytes));
        expect_error([&] { RecordFile file(path); },
                     {path, "cut short", "copy the file anew, or pack it again"});
    }
    put(path, whole.substr(0, header_bytes + 2 * entry_bytes + 1));
    expect_error([&] { RecordFile file(path); }, {"entry 2 of 6"});
    put(path, whole.substr(0, whole.size() - 1));
    expect_error([&] { RecordFile file(path); }, {"entry 5 of 6"});
}

TEST_CASE("records: a flipped bit is found, and names the entry") {
    const Folder folder;
    pack_random(folder, {6});
    const std::string path = folder.file("train-000.rec"), whole = contents(path);
    std::mt19937 random(1);
    for (std::size_t at = 0; at < whole.size(); at += 1 + random() % 7) {
        INFO("byte " << at);
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        put(path, bytes);
        expect_error(
            [&] {
                const RecordFile file(path);
                Bytes image;
                for (std::size_t i = 0; i < file.size(); ++i) file.read(i, image);
            },
            {path});
    }
    std::string bytes = whole;
    bytes.back() = static_cast<char>(~bytes.back());
    put(path, bytes);
    const RecordFile file(path);
    Bytes image;
    file.read(4, image);
    expect_error([&] { file.read(5, image); }, {path, "entry 5", "damaged", "pack it again"});
}

TEST_CASE("records: what is no record file, or a newer one, is told apart") {
    const Folder folder;
    pack_random(folder, {2});
    const std::string path = folder.file("train-000.rec");
    std::string bytes = contents(path);
    bytes[8] = 2;
    put(path, bytes);
    expect_error([&] { RecordFile file(path); }, {path, "version 2", "pack"});
    put(path, "something else");
    expect_error([&] { RecordFile file(path); }, {path, "no record file", "imagenet_like_pack"});
    expect_error([&] { RecordSet set(folder.file(""), "test"); }, {"test-*.rec"});
    expect_error([&] { RecordSet set(folder.file("none"), "test"); }, {"none"});
}

TEST_CASE("records: a file appears when it is whole") {
    const Folder folder;
    const std::string path = folder.file("train-000.rec");
    RecordWriter writer(path, 2);
    writer.add(1, Bytes{1, 2, 3});
    expect_error([&] { writer.finish(); }, {path, "1 images"});
    REQUIRE_FALSE(std::filesystem::exists(path));
    writer.add(2, Bytes{});
    expect_error([&] { writer.add(3, Bytes{}); }, {path, "2 images only"});
    writer.finish();
    Bytes image;
    RecordFile(path).read(0, image);
    REQUIRE(image == Bytes{1, 2, 3});
}

TEST_CASE("reader: an image that the net cannot have stops it with file and entry") {
    const auto [width, label, file, words] =
        GENERATE(table<uint32_t, uint32_t, std::string, std::vector<std::string>>(
            {{8, 10, "", {"entry 3", "label 10", "10 classes"}},
             {7, 1, "", {"entry 3", "7 × 8 pixels", "8 × 8"}},
             {9, 1, "", {"entry 3", "more than 64"}},
             {8, 1, "no image", {"entry 3", "PNG"}}}));
    const Folder folder;
    RecordWriter writer(folder.file("train-000.rec"), 4);
    for (std::size_t i = 0; i < 3; ++i) writer.add(0, encode_png(random_image(i)));
    const Grey odd{width, 8, std::vector<uint8_t>(std::size_t{width} * 8)};
    writer.add(label, file.empty() ? encode_png(odd) : Bytes(file.begin(), file.end()));
    writer.finish();
    const RecordSet set(folder.file(""), "train");
    Reader reader(set, {.batch = 1, .end_epoch = 1, .training = false});
    for (int i = 0; i < 3; ++i) REQUIRE(reader.next().at(0).entries.at(0) == unsigned(i));
    expect_error([&] { reader.next(); }, words);
    expect_error([&] { reader.next(); }, words);  // and stays so
}
