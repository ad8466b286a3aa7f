// Sums of 8-bit floats in bytes: byte additions, and tables in registers (VBMI). A finite code is a
// place on a scale on which one exponent more is 2^mantissa_bits more; the scale continues below
// the smallest normal number, with places for subnormals. The sum is computed in the larger
// operand's binade, as in any adder: its significand and three more bits, plus or minus the smaller
// operand's significand, shifted right, with the last bit set if bits were lost. That number, of 7
// (e5m2) or 8 bits, gives the distance of the rounded result's place from the start of the binade.
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_FP8_BYTES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_FP8_BYTES_INL_H
#undef TUTTI_REDUCE_FP8_BYTES_INL_H
#else
#define TUTTI_REDUCE_FP8_BYTES_INL_H
#endif

#include <array>
#include <bit>

#include "reduce/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL

// Tables indexed by the lower 6 or 7 bits of a byte.
template <class Coding>
struct Fp8Tables {
    static constexpr int bits = Coding::mantissa_bits;
    static constexpr int binade = 1 << bits;
    static constexpr int behind = 3;
    // Zero's place: so low that beside any other number only its lowest bit remains.
    static constexpr int zero = -56;
    static constexpr int farthest = 64 - binade;

    // Magnitude to place.
    static constexpr std::array<int8_t, 128> places = [] {
        std::array<int8_t, 128> table{};
        for (int code = 0; code < 128; ++code) {
            int place = code;
            if (code < binade) {
                const int top = static_cast<int>(std::bit_width(static_cast<unsigned>(code))) - 1;
                place = (top + 1 - bits) * binade + (code << (bits - HWY_MAX(top, 0))) - binade;
            }
            table[static_cast<std::size_t>(code)] = static_cast<int8_t>(code == 0 ? zero : place);
        }
        return table;
    }();
    // The smaller operand's shifted significand, by its distance below the larger one's binade.
    static constexpr std::array<int8_t, 64> moved = [] {
        std::array<int8_t, 64> table{};
        for (int i = 0; i < 64; ++i) {
            const int below = i > farthest ? i - 64 : i;
            const int by = (below + binade - 1) >> bits;
            const int whole = (binade + by * binade - below) << behind;
            const bool lost = (whole & ((1 << by) - 1)) != 0;
            table[static_cast<std::size_t>(i)] = static_cast<int8_t>((whole >> by) | int{lost});
        }
        return table;
    }();
    // Maps a significand to the place of the rounded result, from the start of the binade.
    static constexpr std::array<int8_t, 256> rounded = [] {
        std::array<int8_t, 256> table{};
        for (int sum = 1; sum < 256; ++sum) {
            const int top = static_cast<int>(std::bit_width(static_cast<unsigned>(sum))) - 1;
            const int drop = top - bits;
            const int kept = drop <= 0
                                 ? sum << -drop
                                 : (sum + (1 << (drop - 1)) - 1 + ((sum >> drop) & 1)) >> drop;
            const int place = (top - bits - behind) * binade + kept - binade;
            table[static_cast<std::size_t>(sum)] = static_cast<int8_t>(place);
        }
        return table;
    }();
    // The magnitudes of places below the smallest normal number; 0 for places near zero's.
    static constexpr std::array<int8_t, 64> subnormals = [] {
        std::array<int8_t, 64> table{};
        for (int i = 0; i < 64; ++i) {
            const int place = i < binade ? i : i - 64;
            const int significand = (place & (binade - 1)) | binade;
            const int by = 1 - (place >> bits);
            table[static_cast<std::size_t>(i)] =
                static_cast<int8_t>(by > 7 ? 0 : significand >> by);
        }
        return table;
    }();
};

// Careful is a kernel whose carefully(a, b) computes a vector's sums if an operand is not finite.
template <class Coding, class Careful>
struct Fp8Sums {
    using A = uint8_t;
    using B = uint8_t;
    using Out = uint8_t;
    using DOut = hn::ScalableTag<uint8_t>;
    using V8 = hn::Vec<DOut>;
    static constexpr bool unary = false;
    static constexpr bool hot = true;
    static constexpr std::size_t group = vectors_in_line<DOut>;
    static_assert(group == 1);

    explicit Fp8Sums(const ReduceArgs& args) : careful_(args) {}

    HWY_INLINE V8 operator()(const uint8_t* pa, const uint8_t* pb) const {
        const V8 a = hn::LoadU(DOut(), pa), b = hn::LoadU(DOut(), pb);
        bool finite = true;
        const V8 sum = added(a, b, finite);
        return HWY_LIKELY(finite) ? sum : careful_.carefully(pa, pb);
    }

    template <class Store>
    HWY_INLINE void several(const uint8_t* a, const uint8_t* b, const Store& store) const {
        store(0, (*this)(a, b));
    }

private:
    using Tables = Fp8Tables<Coding>;
    using Bytes = __m512i;

    static HWY_INLINE Bytes every(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
    template <std::size_t kEntries>
    static HWY_INLINE Bytes part(const std::array<int8_t, kEntries>& table, std::size_t first) {
        return _mm512_loadu_si512(table.data() + first);
    }
    template <std::size_t kEntries>
    static HWY_INLINE Bytes half(const std::array<int8_t, kEntries>& table, std::size_t first,
                                 Bytes at) {
        return _mm512_permutex2var_epi8(part(table, first), at, part(table, first + 64));
    }

    static HWY_INLINE V8 added(V8 a, V8 b, bool& finite) {
        const Bytes place_a = half(Tables::places, 0, a.raw);
        const Bytes place_b = half(Tables::places, 0, b.raw);
        const Bytes larger = _mm512_max_epi8(place_a, place_b);
        const Bytes smaller = _mm512_min_epi8(place_a, place_b);
        finite = _mm512_cmpgt_epi8_mask(larger, every(Coding::last_finite)) == 0;

        const Bytes start = _mm512_and_si512(larger, every(-Tables::binade));
        const Bytes below =
            _mm512_min_epi8(_mm512_subs_epi8(start, smaller), every(Tables::farthest));
        const Bytes moved = _mm512_permutexvar_epi8(below, part(Tables::moved, 0));
        const Bytes whole = significand(larger);
        const __mmask64 opposite = _mm512_movepi8_mask(_mm512_xor_si512(a.raw, b.raw));
        const Bytes sum =
            _mm512_mask_sub_epi8(_mm512_add_epi8(whole, moved), opposite, whole, moved);

        const Bytes place = _mm512_adds_epi8(start, rounded(sum));
        const Bytes magnitude = _mm512_mask_permutexvar_epi8(
            place, _mm512_cmplt_epi8_mask(place, every(Tables::binade)), place,
            part(Tables::subnormals, 0));
        const Bytes sign =
            _mm512_mask_mov_epi8(b.raw, _mm512_cmpgt_epi8_mask(place_a, place_b), a.raw);
        constexpr int or_and = 0xf8;
        const Bytes code = _mm512_ternarylogic_epi32(
            _mm512_min_epi8(magnitude, every(Coding::overflow)), sign, every(0x80), or_and);
        // The sum is zero only if the signs differ, and then it is +0.
        return V8{_mm512_maskz_mov_epi8(_mm512_test_epi8_mask(sum, sum), code)};
    }

    static HWY_INLINE Bytes significand(Bytes place) {
        constexpr int and_or = 0xea;
        constexpr int one = Tables::binade << Tables::behind;
        return _mm512_ternarylogic_epi32(_mm512_slli_epi16(place, Tables::behind),
                                         every(one - (1 << Tables::behind)), every(one), and_or);
    }

    static HWY_INLINE Bytes rounded(Bytes sum) {
        const Bytes lower = half(Tables::rounded, 0, sum);
        if constexpr (Tables::bits + Tables::behind < 6) return lower;
        return _mm512_mask_mov_epi8(lower, _mm512_movepi8_mask(sum),
                                    half(Tables::rounded, 128, sum));
    }

    Careful careful_;
};

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
