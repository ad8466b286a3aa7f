// Counts the mutexes that this thread holds, for the stand-ins: a library's call that may wait must
// not be made under one. Recursive mutexes do not count, as the service thread holds its endpoint's
// while it ends operations.
#include <dlfcn.h>
#include <pthread.h>

namespace {

thread_local int held = 0;

}  // namespace

extern "C" int tutti_test_locks_held(void) {
    return held;
}

// Sanitizers have functions of these names themselves.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
namespace {

int weight(const pthread_mutex_t* mutex) {
    constexpr int kinds = 3;  // of glibc's, without what else is in the word
    return (mutex->__data.__kind & kinds) == PTHREAD_MUTEX_RECURSIVE ? 0 : 1;
}

using Function = int(pthread_mutex_t*);
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    static Function* const real = next("pthread_mutex_lock");
    const int status = real(mutex);
    if (status == 0) held += weight(mutex);
    return status;
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
    static Function* const real = next("pthread_mutex_trylock");
    const int status = real(mutex);
    if (status == 0) held += weight(mutex);
    return status;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
    static Function* const real = next("pthread_mutex_unlock");
    held -= weight(mutex);
    return real(mutex);
}
}
#endif
