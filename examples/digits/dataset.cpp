#include "dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace digits {
namespace {

constexpr int brightest = 16;
constexpr int longest_line_bytes = 1024;

struct CloseGz {
    void operator()(gzFile file) const { gzclose(file); }
};

// Removes the next number from a comma-separated line. Returns false if the line does not begin
// with a number from 0 to limit.
bool take_number(std::string_view& line, int limit, int& value) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc() || value < 0 || value > limit) return false;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (!line.empty() && line.front() == ',') line.remove_prefix(1);
    return true;
}

bool parse_image(std::string_view line, Image& image) {
    int number = 0;
    for (double& value : image.values) {
        if (!take_number(line, brightest, number)) return false;
        value = static_cast<double>(number) / brightest;
    }
    if (!take_number(line, static_cast<int>(classes) - 1, number)) return false;
    image.label = static_cast<std::size_t>(number);
    return line.empty() || line == "\n" || line == "\r\n";
}

std::vector<Image> read_images(const std::string& path) {
    const std::unique_ptr<gzFile_s, CloseGz> file(gzopen(path.c_str(), "rb"));
    if (!file) throw std::runtime_error(fmt::format("cannot read {}", path));
    std::vector<Image> images;
    std::array<char, longest_line_bytes> line{};
    while (gzgets(file.get(), line.data(), longest_line_bytes) != nullptr) {
        if (!parse_image(line.data(), images.emplace_back()))
            throw std::runtime_error(
                fmt::format("{}, line {}: expected {} pixels from 0 to {} and a digit", path,
                            images.size(), pixels, brightest));
    }
    int error = Z_OK;
    const char* text = gzerror(file.get(), &error);
    if (error < 0) throw std::runtime_error(fmt::format("{}: {}", path, text));
    if (images.empty()) throw std::runtime_error(fmt::format("{}: no images", path));
    return images;
}

}  // namespace

Dataset load_dataset(const std::string& path, double test_share, uint64_t seed) {
    std::vector<Image> images = read_images(path);
    std::mt19937_64 random(seed);
    shuffle(images, random);
    const auto test_count =
        static_cast<std::ptrdiff_t>(test_share * static_cast<double>(images.size()));
    const auto cut = images.end() - test_count;
    return {.training = {images.begin(), cut}, .test = {cut, images.end()}};
}

std::string default_data_path() {
    std::error_code ignored;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const auto neighbour = self.parent_path() / "digits.csv.gz";
    return std::filesystem::exists(neighbour, ignored) ? neighbour.string() : DIGITS_DATA;
}

}  // namespace digits
