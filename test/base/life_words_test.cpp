// The kernel marks a thread's words when the thread ends.
#include "os/life_words.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "support/catch.h"

using namespace tutti;

namespace {

constexpr std::size_t most_words = 126;

/// Words that a forked child shares.
struct SharedWords {
    SharedWords()
        : words(static_cast<LifeWord*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
                most_words) {}
    ~SharedWords() { ::munmap(words.data(), 4096); }
    SharedWords(const SharedWords&) = delete;

    const std::span<LifeWord> words;
};

std::unique_ptr<OwnedLifeWords> own(std::span<LifeWord> words) {
    auto owned = OwnedLifeWords::take(words);
    if (!owned) return nullptr;
    for (LifeWord& word : words) word.value = (*owned)->owner();
    return *std::move(owned);
}

/// Ends by SIGKILL once it owns the words.
int die_with(std::span<LifeWord> words) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::thread([&] {
            const auto owned = own(words);
            ::kill(::getpid(), SIGKILL);
            ::pause();
        }).join();
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace

TEST_CASE("life words: a killed process's are marked, and those that it has left are not") {
    const SharedWords shared;
    const int status = die_with(shared.words);
    REQUIRE(WIFSIGNALED(status));
    for (const LifeWord& word : shared.words) CHECK(word.value == LifeWord::died);

    const pid_t child = ::fork();
    if (child == 0) {
        const auto owned = own(shared.words);
        for (std::size_t i = 0; i < shared.words.size(); i += 2)
            shared.words[i].value = LifeWord::left;
        shared.words[1].value.fetch_or(LifeWord::watched);
        ::kill(::getpid(), SIGKILL);
    }
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(shared.words[0].value == LifeWord::left);
    CHECK(shared.words[1].value == (LifeWord::died | LifeWord::watched));
    CHECK(shared.words[3].value == LifeWord::died);
    CHECK(shared.words[124].value == LifeWord::left);
}

TEST_CASE("life words: a forked child owns nothing, and its end marks nothing") {
    const SharedWords shared;
    const auto owned = own(shared.words);
    REQUIRE(owned);
    const uint32_t owner = owned->owner();
    const pid_t child = ::fork();
    if (child == 0) ::kill(::getpid(), SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    for (const LifeWord& word : shared.words) CHECK(word.value == owner);
}

TEST_CASE("life words: a thread that gives them up ends without a mark") {
    const SharedWords shared;
    std::atomic<uint32_t> owner{0};
    std::thread([&] { owner = own(shared.words)->owner(); }).join();
    for (const LifeWord& word : shared.words) CHECK(word.value == owner);
    // The C library's list is back: its robust mutexes work.
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t mutex;
    pthread_mutex_init(&mutex, &attributes);
    std::thread([&] {
        own(shared.words).reset();
        pthread_mutex_lock(&mutex);
    }).join();
    CHECK(pthread_mutex_lock(&mutex) == EOWNERDEAD);
    pthread_mutex_consistent(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_destroy(&attributes);
}
