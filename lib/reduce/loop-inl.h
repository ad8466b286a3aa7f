// The loop that all kernels share. Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_LOOP_INL_H
#undef TUTTI_REDUCE_LOOP_INL_H
#else
#define TUTTI_REDUCE_LOOP_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A kernel K is one vector's worth of work:
//   K::A, K::B, K::Out   element types in memory; K::DOut the tag of the result's vector
//   K::unary             there is no b
//   K::hot               gets a loop of its own for each kind of store; otherwise the loop decides
//                        for each store, which such a kernel's latency hides
//   K(args), k(a, b)     reads Lanes(DOut) elements of each, returns a vector of DOut
//   K::group             (optional) a number of vectors that cost less at a time than one by one:
//                        k.several(a, b, store) calls store(i, vector) for each, in order; before
//                        that call it has read all that it needs of vector i
//   K::integers          (optional) true: computes with integers only, which the thread's
//                        floating-point mode cannot change

template <class K>
constexpr bool grouped() {
    return requires {
        K::group;
    };
}

template <class K>
constexpr bool integers_only() {
    if constexpr (requires { K::integers; }) return K::integers;
    return false;
}

struct Cursor {
    std::byte* dst;
    const std::byte* a;
    const std::byte* b;
};

template <class K>
HWY_INLINE hn::Vec<typename K::DOut> evaluate(const K& kernel, const Cursor& at, std::size_t i) {
    using A = typename K::A;
    using B = typename K::B;
    const auto* a = reinterpret_cast<const A*>(at.a + i * sizeof(A));
    if constexpr (K::unary) {
        return kernel(a, static_cast<const B*>(nullptr));
    } else {
        return kernel(a, reinterpret_cast<const B*>(at.b + i * sizeof(B)));
    }
}

// One vector's result in a buffer. Not inlined, so that a kernel's code exists only twice: here and
// in the loop.
template <class K>
HWY_NOINLINE void evaluate_aside(const K& kernel, const Cursor& at, std::size_t i,
                                 std::byte* result) {
    const typename K::DOut d;
    hn::StoreU(evaluate(kernel, at, i), d, reinterpret_cast<typename K::Out*>(result));
}

template <class K>
inline constexpr std::size_t result_bytes = hn::MaxLanes(typename K::DOut()) *
                                            sizeof(typename K::Out);

// Stores a result that was computed in the buffer.
template <class K>
HWY_INLINE void store(const std::byte* result, const Cursor& at, std::size_t i) {
    using Out = typename K::Out;
    const typename K::DOut d;
    const auto value = hn::LoadU(d, reinterpret_cast<const Out*>(result));
    hn::StoreU(value, d, reinterpret_cast<Out*>(at.dst + i * sizeof(Out)));
}

// Writes the loop's vectors to dst. Stream is bool, or a constant if the kernel is hot.
template <class K, class Stream>
struct Stores {
    using Out = typename K::Out;
    const Cursor& at;
    Stream stream;

    HWY_INLINE void put(std::size_t i, hn::Vec<typename K::DOut> value) const {
        const typename K::DOut d;
        auto* dst = reinterpret_cast<Out*>(at.dst + i * sizeof(Out));
        if (stream) {
            hn::Stream(value, d, dst);
        } else {
            hn::StoreU(value, d, dst);
        }
    }
};

// The same, by the vector's number in a group.
template <class S>
struct GroupStores {
    const S& stores;
    std::size_t first, lanes;
    template <class V>
    HWY_INLINE void operator()(std::size_t i, V value) const {
        stores.put(first + i * lanes, value);
    }
};

inline constexpr std::size_t line_bytes = 64;
template <class D>
inline constexpr std::size_t vectors_in_line = line_bytes /
                                               (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>));
// So far ahead that a line has arrived from memory by then, so near that it is still in the cache.
inline constexpr std::size_t prefetched_bytes = 4096;

// A kernel's several(), for vectors of a group that share no work.
template <class K, class Store>
HWY_INLINE void one_by_one(const K& kernel, const typename K::A* a, const typename K::B* b,
                           const Store& store) {
    const std::size_t lanes = hn::Lanes(typename K::DOut());
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < K::group; ++i) store(i, kernel(a + i * lanes, b + i * lanes));
}

// Prefetches the lines of a group, from element i on.
template <class T>
HWY_INLINE void prefetch(const std::byte* operand, std::size_t i, std::size_t group) {
    HWY_UNROLL(4)
    for (std::size_t at = 0; at < group; at += line_bytes / sizeof(T))
        hwy::Prefetch(operand + (i + at) * sizeof(T));
}

template <class K, class S>
HWY_INLINE std::size_t whole_groups(const K& kernel, const Cursor& at, std::size_t i,
                                    std::size_t end, const S& stores) {
    using A = typename K::A;
    using B = typename K::B;
    const std::size_t lanes = hn::Lanes(typename K::DOut());
    const std::size_t group = K::group * lanes;
    // Kernels that compute much have too few loads in flight without prefetching. Never past the
    // end, where the memory is not the operand's.
    constexpr std::size_t ahead = prefetched_bytes / HWY_MIN(sizeof(A), sizeof(B));
    const std::size_t asks_until = end - HWY_MIN(end, ahead + group);
    for (; i + group <= end; i += group) {
        if (i < asks_until) {
            prefetch<A>(at.a, i + ahead, group);
            prefetch<B>(at.b, i + ahead, group);
        }
        kernel.several(reinterpret_cast<const A*>(at.a + i * sizeof(A)),
                       reinterpret_cast<const B*>(at.b + i * sizeof(B)),
                       GroupStores<S>{stores, i, lanes});
    }
    return i;
}

template <class K, class Stream>
HWY_INLINE void whole_vectors(const K& kernel, const Cursor& at, std::size_t i, std::size_t end,
                              Stream stream) {
    const std::size_t lanes = hn::Lanes(typename K::DOut());
    const Stores<K, Stream> stores{at, stream};
    if constexpr (grouped<K>()) {
        i = whole_groups(kernel, at, i, end, stores);
        alignas(64) std::byte result[result_bytes<K>];
        for (; i + lanes <= end; i += lanes) {
            evaluate_aside(kernel, at, i, result);
            store<K>(result, at, i);
        }
    } else {
        for (; i + lanes <= end; i += lanes) stores.put(i, evaluate(kernel, at, i));
    }
}

template <class K>
HWY_INLINE void choose_loop(const K& kernel, const Cursor& at, std::size_t i, std::size_t end,
                            bool stream) {
    if constexpr (K::hot) {
        if (stream) return whole_vectors(kernel, at, i, end, std::true_type());
        return whole_vectors(kernel, at, i, end, std::false_type());
    } else {
        return whole_vectors(kernel, at, i, end, stream);
    }
}

// Fixed-size moves that overlap: a call of memcpy would cost more than the reduction itself.
HWY_INLINE void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
    const auto two = [&](auto chunk) {
        constexpr std::size_t size = sizeof chunk;
        decltype(chunk) first, last;
        std::memcpy(&first, from, size);
        std::memcpy(&last, from + bytes - size, size);
        std::memcpy(to, &first, size);
        std::memcpy(to + bytes - size, &last, size);
    };
    struct Sixteen {
        uint64_t words[2];
    };
    struct ThirtyTwo {
        uint64_t words[4];
    };
    if (bytes > 64) {
        std::memcpy(to, from, bytes);
    } else if (bytes >= 32) {
        two(ThirtyTwo{});
    } else if (bytes >= 16) {
        two(Sixteen{});
    } else if (bytes >= 8) {
        two(uint64_t{});
    } else if (bytes >= 4) {
        two(uint32_t{});
    } else if (bytes >= 2) {
        two(uint16_t{});
    } else if (bytes == 1) {
        *to = *from;
    }
}

// Fewer elements than a vector has: computes in padded copies, so that no memory outside the
// buffers is accessed.
template <class K>
HWY_INLINE void fragment(const K& kernel, const Cursor& at, std::size_t count) {
    constexpr std::size_t most = hn::MaxLanes(typename K::DOut());
    alignas(64) std::byte a[most * sizeof(typename K::A)] = {};
    alignas(64) std::byte b[most * sizeof(typename K::B)] = {};
    alignas(64) std::byte out[result_bytes<K>];
    copy_few(a, at.a, count * sizeof(typename K::A));
    if constexpr (!K::unary) copy_few(b, at.b, count * sizeof(typename K::B));
    evaluate_aside(kernel, {nullptr, a, b}, 0, out);
    copy_few(at.dst, out, count * sizeof(typename K::Out));
}

// The count of elements before dst is aligned to the vector. SIZE_MAX: it never is, or vectors have
// under 16 bytes, which cannot be streamed (HWY_STREAM_MULTIPLE).
template <class K>
HWY_INLINE std::size_t elements_to_alignment(const void* dst, std::size_t lanes) {
    constexpr std::size_t size = sizeof(typename K::Out);
    const std::size_t vector_bytes = lanes * size;
    const auto address = reinterpret_cast<std::uintptr_t>(dst);
    if (vector_bytes < HWY_STREAM_MULTIPLE || address % size != 0) return SIZE_MAX;
    return (vector_bytes - address % vector_bytes) % vector_bytes / size;
}

template <class K>
HWY_NOINLINE void run(const ReduceArgs& args, bool stream) {
    if (args.count == 0) return;
    const K kernel(args);
    const Cursor at{static_cast<std::byte*>(args.dst), static_cast<const std::byte*>(args.a),
                    static_cast<const std::byte*>(args.b)};
    const std::size_t lanes = hn::Lanes(typename K::DOut());
    if (args.count < lanes) return fragment(kernel, at, args.count);

    // With few vectors, aligning would cost more than stores across cache lines.
    std::size_t head = SIZE_MAX;
    if (args.count >= 8 * lanes) head = elements_to_alignment<K>(args.dst, lanes);
    const bool streamed = stream && head != SIZE_MAX;
    if (head == SIZE_MAX) head = 0;

    // The loop may overwrite its own input (dst is a or b). So the first and the last vector, which
    // overlap with the loop's, are computed before it and stored after it. They overwrite equal
    // values.
    const std::size_t tail = args.count - lanes;
    alignas(64) std::byte first[result_bytes<K>];
    alignas(64) std::byte last[result_bytes<K>];
    if (head != 0) evaluate_aside(kernel, at, 0, first);
    evaluate_aside(kernel, at, tail, last);
    choose_loop(kernel, at, head, args.count, streamed);
    if (streamed) hwy::FlushStream();
    if (head != 0) store<K>(first, at, 0);
    store<K>(last, at, tail);
}

// The caller's thread may round in another direction, flush subnormal numbers to zero or trap
// exceptions. Other ranks' threads do not, and all ranks must get the same bits.
struct DefaultMode {
#if HWY_ARCH_X86
    static constexpr unsigned controls = 0xffc0;  // MXCSR: all but the exceptions seen
    static constexpr unsigned usual = 0x1f80;
    const unsigned before = _mm_getcsr();
    DefaultMode() {
        if (HWY_UNLIKELY((before & controls) != usual)) _mm_setcsr(usual);
    }
    ~DefaultMode() {
        if (HWY_UNLIKELY((before & controls) != usual)) _mm_setcsr(before);
    }
#elif HWY_ARCH_ARM_A64
    // FPCR: 0 is to nearest, with subnormal numbers, NaNs as they are, and no traps.
    const uint64_t before = control();
    DefaultMode() {
        if (HWY_UNLIKELY(before != 0)) set_control(0);
    }
    ~DefaultMode() {
        if (HWY_UNLIKELY(before != 0)) set_control(before);
    }
    static uint64_t control() {
        uint64_t bits = 0;
        asm volatile("mrs %0, fpcr" : "=r"(bits));
        return bits;
    }
    static void set_control(uint64_t bits) {
        // "memory": the compiler moves no load of an operand and no store of a result across this.
        asm volatile("msr fpcr, %0" : : "r"(bits) : "memory");
    }
#else
    DefaultMode() = default;
    ~DefaultMode() {}
#endif
    DefaultMode(const DefaultMode&) = delete;
    DefaultMode& operator=(const DefaultMode&) = delete;
};

template <class K>
HWY_INLINE void run_in_mode(const ReduceArgs& args, bool stream) {
    if constexpr (integers_only<K>()) {
        run<K>(args, stream);
    } else {
        const DefaultMode mode;
        run<K>(args, stream);
    }
}

template <class K>
void plain(const ReduceArgs& args) {
    run_in_mode<K>(args, false);
}

template <class K>
void streaming(const ReduceArgs& args) {
    run_in_mode<K>(args, true);
}

template <class K>
ReduceFn pick(bool stream) {
    return stream ? &streaming<K> : &plain<K>;
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
