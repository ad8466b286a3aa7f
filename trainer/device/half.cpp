// The 16-bit types and float32, in the host's memory.
#include <bit>
#include <cstdint>

#include "trainer/device/device.h"

namespace tutti::trainer {
namespace {

struct Bfloat16 {
    static float widen(uint16_t value) {
        return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
    }
    static uint16_t round(float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u)  // NaN: rounding could make infinity of it
            return static_cast<uint16_t>(bits >> 16 | 0x40u);
        return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    }
};

struct Float16 {
    static float widen(uint16_t value) {
        const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
        const uint32_t rest = static_cast<uint32_t>(value & 0x7fffu) << 13;
        if ((value & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | rest);
        // The exponents' biases differ by 112; the product gets subnormal values right too.
        const float magnitude = std::bit_cast<float>(rest) * 0x1p112F;
        return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    static uint16_t round(float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        const uint32_t sign = bits >> 16 & 0x8000u;
        uint32_t rest = bits & 0x7fffffffu;
        if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
        if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
        if (rest < 0x38800000u)  // subnormal: adding a half lets the processor round to 2^-24
            rest = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5F) - 0x3f000000u;
        else
            rest = (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1)) >> 13;
        return static_cast<uint16_t>(sign | rest);
    }
};

template <typename Half>
void convert(std::size_t count, bool widens, const void* from, void* to) {
    if (widens)
        for (std::size_t i = 0; i < count; ++i)
            static_cast<float*>(to)[i] = Half::widen(static_cast<const uint16_t*>(from)[i]);
    else
        for (std::size_t i = 0; i < count; ++i)
            static_cast<uint16_t*>(to)[i] = Half::round(static_cast<const float*>(from)[i]);
}

}  // namespace

tutti_status convert_on_host(std::size_t count, tutti_dtype from_dtype, const void* from,
                             tutti_dtype to_dtype, void* to) {
    const bool widens = to_dtype == TUTTI_FLOAT32;
    const tutti_dtype half = widens ? from_dtype : to_dtype;
    if (!is_narrow(half) || (!widens && from_dtype != TUTTI_FLOAT32)) return TUTTI_ERR_UNSUPPORTED;
    if (half == TUTTI_BFLOAT16)
        convert<Bfloat16>(count, widens, from, to);
    else
        convert<Float16>(count, widens, from, to);
    return TUTTI_OK;
}

}  // namespace tutti::trainer
