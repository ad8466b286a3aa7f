// A device whose memory faults unless one of its own functions is at it: a host's view of a card.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/trainer.h"

namespace card {

class Card {
public:
    /// always: the host may touch its memory at any time.
    explicit Card(bool always = false) : open_(always ? 1 : 0) {}
    Card(const Card&) = delete;
    ~Card() {
        for (const auto& [data, bytes] : pieces_) ::munmap(data, bytes);
    }

    void* alloc(size_t bytes) {
        void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return nullptr;
        const std::lock_guard lock(mutex_);
        pieces_.emplace_back(at, bytes);
        allow(open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
        return at;
    }
    void release(void* data, size_t bytes) {
        const std::lock_guard lock(mutex_);
        std::erase(pieces_, std::pair<void*, size_t>(data, bytes));
        ::munmap(data, bytes);
    }
    bool is_empty() const { return pieces_.empty(); }
    bool holds(const void* at) {
        const std::lock_guard lock(mutex_);
        return std::ranges::any_of(pieces_, [&](const auto& piece) {
            const auto* first = static_cast<const std::byte*>(piece.first);
            return at >= first && at < first + piece.second;
        });
    }
    /// Whether one of these lies in another card's memory.
    bool is_strange(const void* x, const void* y) const {
        return std::ranges::any_of(strangers,
                                   [&](Card* other) { return other->holds(x) || other->holds(y); });
    }

    /// While it lives, the card's memory can be touched.
    class Open {
    public:
        explicit Open(void* user) : card(*static_cast<Card*>(user)) {
            const std::lock_guard lock(card.mutex_);
            if (card.open_++ == 0) card.allow(PROT_READ | PROT_WRITE);
        }
        Open(const Open&) = delete;
        ~Open() {
            const std::lock_guard lock(card.mutex_);
            if (--card.open_ == 0) card.allow(PROT_NONE);
        }
        Card& card;
    };

    std::atomic<int> runs = 0;
    std::atomic<size_t> bytes_zeroed = 0;
    std::atomic<int> peer_copies = 0;
    std::atomic<int> copies_left = -1;  // then they fail; -1: never
    std::vector<Card*> strangers;       // its functions refuse addresses of these cards

private:
    void allow(int protection) {
        for (const auto& [data, bytes] : pieces_) ::mprotect(data, bytes, protection);
    }

    std::mutex mutex_;
    std::vector<std::pair<void*, size_t>> pieces_;
    int open_ = 0;
};

inline tutti_status alloc(void* user, size_t bytes, void** data) {
    *data = static_cast<Card*>(user)->alloc(bytes);
    return *data ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
}

inline void release(void* user, void* data, size_t bytes) {
    static_cast<Card*>(user)->release(data, bytes);
}

inline tutti_status copy(void* user, void* to, const void* from, size_t bytes) {
    const Card::Open open(user);
    if (open.card.copies_left == 0 || open.card.is_strange(to, from)) return TUTTI_ERR_SYSTEM;
    if (open.card.copies_left > 0) --open.card.copies_left;
    if (bytes > 0) std::memcpy(to, from, bytes);
    return TUTTI_OK;
}

inline tutti_status copy_peer(void* user, void* to, void* from_user, const void* from,
                              size_t bytes) {
    const Card::Open open(user), peer(from_user);
    ++open.card.peer_copies;
    std::memcpy(to, from, bytes);
    return TUTTI_OK;
}

inline tutti_status zero(void* user, void* data, size_t bytes) {
    const Card::Open open(user);
    open.card.bytes_zeroed += bytes;
    std::memset(data, 0, bytes);
    return TUTTI_OK;
}

template <typename T>
void combine(size_t count, double a, const void* x, double b, void* y) {
    for (size_t i = 0; i < count; ++i) {
        const double old = b == 0 ? 0 : b * static_cast<T*>(y)[i];
        static_cast<T*>(y)[i] = static_cast<T>(a * static_cast<const T*>(x)[i] + old);
    }
}

inline tutti_status axpby(void* user, size_t count, tutti_dtype dtype, double a, const void* x,
                          double b, void* y) {
    const Card::Open open(user);
    if (open.card.is_strange(x, y)) return TUTTI_ERR_SYSTEM;
    if (dtype == TUTTI_FLOAT32)
        combine<float>(count, a, x, b, y);
    else if (dtype == TUTTI_FLOAT64)
        combine<double>(count, a, x, b, y);
    else
        return TUTTI_ERR_UNSUPPORTED;
    return TUTTI_OK;
}

inline tutti_status run(void* user, void (*work)(void*), void* argument) {
    const Card::Open open(user);
    ++open.card.runs;
    work(argument);
    return TUTTI_OK;
}

/// Memory of its own: not even another card's functions reach it.
inline tutti_device_functions functions() {
    tutti_device_functions f = TUTTI_DEVICE_FUNCTIONS_INIT;
    f.alloc = alloc;
    f.free = release;
    f.copy = copy;
    f.zero = zero;
    f.axpby = axpby;
    f.run = run;
    f.copy_peer = copy_peer;
    f.memory = TUTTI_MEMORY_OWN;
    return f;
}

/// Several devices of one kind. The host can reach their reachable memory; the functions of one
/// device cannot reach another's.
class Cards {
public:
    explicit Cards(int count, tutti_device_memory memory = TUTTI_MEMORY_OWN) {
        tutti_device_functions f = functions();
        f.memory = memory;
        const bool reachable = memory == TUTTI_MEMORY_REACHABLE;
        for (int d = 0; d < count; ++d) {
            cards_.push_back(std::make_unique<Card>(reachable));
            devices.push_back(nullptr);
            tutti_device_create(&f, cards_.back().get(), &devices.back());
        }
        for (const auto& card : cards_)
            for (const auto& other : cards_)
                if (reachable && other != card) card->strangers.push_back(other.get());
    }
    Cards(const Cards&) = delete;
    ~Cards() {
        for (tutti_device* device : devices) tutti_device_destroy(device);
    }
    const Card& operator[](std::size_t d) const { return *cards_[d]; }
    Card& operator[](std::size_t d) { return *cards_[d]; }

    std::vector<tutti_device*> devices;

private:
    std::vector<std::unique_ptr<Card>> cards_;
};

}  // namespace card
