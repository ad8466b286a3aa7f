// Grey PNG images in memory, through libpng.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace imagenet_like {

struct Grey {
    uint32_t width = 0, height = 0;
    std::vector<uint8_t> pixels;  // row by row
};

std::vector<uint8_t> encode_png(const Grey& image);
/// Colours become grey. Throws std::runtime_error with libpng's reason, and for an image with more
/// pixels than max_pixels: the file itself states its size, and decoding allocates memory for that.
Grey decode_png(std::span<const uint8_t> file, uint32_t max_pixels);

}  // namespace imagenet_like
