// A host program's own key-value store, accessed by three functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/store.h"

namespace tutti {

/// The functions of tutti_store_callbacks (include/tutti/tutti.h), with the same meaning: 0 for
/// success; get: 1 when the key did not appear in time.
struct StoreCallbacks {
    int (*set)(void* user, const char* key, const void* value, std::size_t bytes) = nullptr;
    int (*get)(void* user, const char* key, void* value, std::size_t capacity, std::size_t* bytes,
               int64_t timeout_ms) = nullptr;
    int (*add)(void* user, const char* key, int64_t amount, int64_t* result) = nullptr;
};

/// Stores of this process with the same callbacks and user call them one at a time, on the caller's
/// thread; keys start with "<job>/". Host stores cannot always delete, so remove() leaves an empty
/// value, which reads as absent. A claim is a counter under "<key>/claims": the process that raises
/// it to 1 has the key, and every other process subtracts its 1 again. All three functions are
/// needed.
std::unique_ptr<Store> make_callback_store(StoreCallbacks callbacks, void* user, std::string job);

}  // namespace tutti
