// Small images, packed.
#pragma once

#include <fmt/format.h>

#include <random>
#include <vector>

#include "imagenet_like/grey_png.h"
#include "imagenet_like/records.h"
#include "trainer/checkpoint/checkpoint_fixture.h"

namespace tutti::test {

inline imagenet_like::Grey random_image(std::size_t number) {
    std::mt19937 random(static_cast<unsigned>(number));
    imagenet_like::Grey image{8, 8, {}};
    for (int i = 0; i < 64; ++i) image.pixels.push_back(static_cast<uint8_t>(random()));
    return image;
}

/// Files with so many images each; the label is the last digit of the image's number.
inline void pack_random(const Folder& folder, const std::vector<std::size_t>& files,
                        const std::string& part = "train") {
    std::size_t number = 0;
    for (std::size_t f = 0; f < files.size(); ++f) {
        imagenet_like::RecordWriter writer(folder.file(fmt::format("{}-{:03}.rec", part, f)),
                                           files[f]);
        for (std::size_t i = 0; i < files[f]; ++i, ++number)
            writer.add(static_cast<uint32_t>(number % 10),
                       imagenet_like::encode_png(random_image(number)));
        writer.finish();
    }
}

}  // namespace tutti::test
