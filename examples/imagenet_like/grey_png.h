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
/// Colours become grey. Throws std::runtime_error with libpng's reason, and for images with more
/// pixels than max_pixels: their size is what the file says, and memory is taken for it.
Grey decode_png(std::span<const uint8_t> file, uint32_t max_pixels);

}  // namespace imagenet_like
