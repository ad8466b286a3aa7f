#include "grey_png.h"

#include <fmt/format.h>
#include <png.h>

#include <stdexcept>

namespace imagenet_like {
namespace {

/// libpng's state between its calls.
struct Work {
    png_image image{};
    Work() { image.version = PNG_IMAGE_VERSION; }
    Work(const Work&) = delete;
    ~Work() { png_image_free(&image); }

    [[noreturn]] void fail(const char* what) const {
        throw std::runtime_error(fmt::format("PNG: {}: {}", what, image.message));
    }
};

}  // namespace

std::vector<uint8_t> encode_png(const Grey& image) {
    Work work;
    work.image.width = image.width;
    work.image.height = image.height;
    work.image.format = PNG_FORMAT_GRAY;
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(work.image);
    std::vector<uint8_t> file(bytes);
    if (png_image_write_to_memory(&work.image, file.data(), &bytes, 0, image.pixels.data(), 0,
                                  nullptr) == 0)
        work.fail("cannot encode");
    file.resize(bytes);
    return file;
}

Grey decode_png(std::span<const uint8_t> file, uint32_t max_pixels) {
    Work work;
    if (png_image_begin_read_from_memory(&work.image, file.data(), file.size()) == 0)
        work.fail("cannot decode");
    const uint64_t pixels = uint64_t{work.image.width} * work.image.height;
    if (pixels > max_pixels)
        throw std::runtime_error(fmt::format("PNG: {} × {} pixels are more than {}",
                                             work.image.width, work.image.height, max_pixels));
    work.image.format = PNG_FORMAT_GRAY;
    Grey image{work.image.width, work.image.height, {}};
    image.pixels.resize(PNG_IMAGE_SIZE(work.image));
    if (png_image_finish_read(&work.image, nullptr, image.pixels.data(), 0, nullptr) == 0)
        work.fail("cannot decode");
    return image;
}

}  // namespace imagenet_like
