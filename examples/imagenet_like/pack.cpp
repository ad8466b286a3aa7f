// imagenet_like_pack: packs labelled images into record files for training and for testing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "../digits/dataset.h"
#include "grey_png.h"
#include "records.h"

namespace {

namespace fs = std::filesystem;
using imagenet_like::Bytes;

struct Options {
    std::string images;
    std::string digits = digits::default_data_path();
    std::string output;
    std::size_t files = 2;
    double test_share = 0.2;
    uint64_t seed = 1;
};

/// An image that is read, or made, when its turn comes.
struct Item {
    uint32_t label;
    std::function<Bytes()> file;
};

Bytes digit_as_png(const digits::Image& digit) {
    constexpr uint32_t side = 8;
    imagenet_like::Grey grey{side, side, {}};
    for (const double value : digit.values)
        grey.pixels.push_back(static_cast<uint8_t>(std::lround(255 * value)));
    return imagenet_like::encode_png(grey);
}

std::vector<Item> digit_items(const digits::Dataset& digits) {
    std::vector<Item> items;
    for (const digits::Image& digit : digits.training)
        items.push_back(
            {static_cast<uint32_t>(digit.label), [&digit] { return digit_as_png(digit); }});
    return items;
}

Bytes whole_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(fmt::format("cannot read {}", path.string()));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> sorted_content(const fs::path& folder) {
    std::vector<fs::path> paths;
    for (const auto& item : fs::directory_iterator(folder)) paths.push_back(item.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

// A folder for each class; labels are their places in the order of names.
std::vector<Item> folder_items(const std::string& folder) {
    std::vector<Item> items;
    uint32_t label = 0;
    for (const fs::path& group : sorted_content(folder)) {
        if (!fs::is_directory(group)) continue;
        for (const fs::path& path : sorted_content(group))
            if (path.extension() == ".png")
                items.push_back({label, [path] { return whole_file(path); }});
        fmt::print("label {}: {}\n", label++, group.filename().string());
    }
    if (items.empty())
        throw std::runtime_error(fmt::format("{} has no CLASS/*.png below it", folder));
    return items;
}

void pack(const Options& o, const std::string& part, std::span<const Item> items,
          std::size_t files) {
    for (std::size_t f = 0; f < files; ++f) {
        const auto own = items.subspan(items.size() * f / files,
                                       items.size() * (f + 1) / files - items.size() * f / files);
        imagenet_like::RecordWriter writer(fmt::format("{}/{}-{:03}.rec", o.output, part, f),
                                           own.size());
        for (const Item& item : own) writer.add(item.label, item.file());
        writer.finish();
    }
    fmt::print("{}: {} images in {} files\n", part, items.size(), files);
}

void run(const Options& o) {
    digits::Dataset digits;
    if (o.images.empty()) digits = digits::load_dataset(o.digits, 0, o.seed);
    std::vector<Item> items = o.images.empty() ? digit_items(digits) : folder_items(o.images);
    std::mt19937_64 random(o.seed);
    digits::shuffle(items, random);  // else the test part would be the last classes
    const auto test =
        static_cast<std::size_t>(o.test_share * static_cast<double>(items.size()) + 0.5);
    fs::create_directories(o.output);
    const std::span<const Item> all(items);
    pack(o, "train", all.first(items.size() - test), o.files);
    pack(o, "test", all.last(test), 1);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Options o;
        CLI::App app("Packs images into record files: the handwritten digits, or a folder's.",
                     "imagenet_like_pack");
        app.add_option("output", o.output, "the folder for train-NNN.rec and test-NNN.rec")
            ->required();
        app.add_option("--images", o.images, "a folder with a folder of PNG files for each class");
        app.add_option("--digits", o.digits,
                       "without --images: the digits.csv.gz to pack (default: examples/digits)");
        app.add_option("--files", o.files, "number of files of the training part (default 2)")
            ->check(CLI::Range(1, 999));
        app.add_option("--test-share", o.test_share,
                       "share of the images for testing (default 0.2)")
            ->check(CLI::Range(0.0, 0.9));
        app.add_option("--seed", o.seed, "seed of the shuffling (default 1)");
        CLI11_PARSE(app, argc, argv);
        run(o);
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "imagenet_like_pack: {}\n", error.what());
        return 1;
    }
}
