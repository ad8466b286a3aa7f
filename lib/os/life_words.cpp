#include "os/life_words.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace tutti {
namespace {

// The kernel finds the word of an entry at a fixed distance from it. So the entries are in private
// memory, where no other process can change the list, as far apart as the words.
struct alignas(8) LifeLink {
    robust_list link;
};
static_assert(sizeof(LifeLink) == sizeof(LifeWord));
static_assert(LifeWord::died == FUTEX_OWNER_DIED && LifeWord::watched == FUTEX_WAITERS &&
              LifeWord::left == FUTEX_TID_MASK);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace

struct OwnedLifeWords::List {
    std::vector<LifeLink> entries;
    robust_list_head head{};
    robust_list_head* before = nullptr;  // the C library's, for robust mutexes
};

OwnedLifeWords::OwnedLifeWords(std::span<LifeWord> words)
    : list_(std::make_unique<List>()), owner_(static_cast<uint32_t>(::syscall(SYS_gettid))) {
    list_->entries.resize(words.size());
    robust_list* next = &list_->head.list;
    for (std::size_t i = words.size(); i-- > 0; next = &list_->entries[i].link)
        list_->entries[i].link.next = next;
    list_->head.list.next = next;
    list_->head.futex_offset = static_cast<long>(reinterpret_cast<intptr_t>(words.data()) -
                                                 reinterpret_cast<intptr_t>(list_->entries.data()));
}

Result<std::unique_ptr<OwnedLifeWords>> OwnedLifeWords::take(std::span<LifeWord> words) {
    std::unique_ptr<OwnedLifeWords> own(new OwnedLifeWords(words));
    List& list = *own->list_;
    std::size_t bytes = 0;
    if (::syscall(SYS_get_robust_list, 0, &list.before, &bytes) != 0 ||
        ::syscall(SYS_set_robust_list, &list.head, sizeof list.head) != 0) {
        const int failed = errno;
        list.before = nullptr;
        return fail_errno(failed, "setting this thread's robust list");
    }
    return own;
}

OwnedLifeWords::~OwnedLifeWords() {
    // The size is checked, and the list is the C library's own.
    if (list_->before != nullptr)
        ::syscall(SYS_set_robust_list, list_->before, sizeof *list_->before);
}

}  // namespace tutti
