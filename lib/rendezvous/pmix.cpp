// The few PMIx functions in use, as its ABI has had them since version 2: building this needs no
// header, and running it without PMIx needs no library.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <type_traits>

#include "os/signals.h"
#include "rendezvous/key_space.h"

namespace tutti {
namespace {

constexpr const char* pmix_file = "libpmix.so.2";
constexpr const char* pmix_key = "tutti.store";

using PmixStatus = int;
constexpr PmixStatus pmix_success = 0;
constexpr uint8_t global_scope = 3;
constexpr uint16_t string_type = 3;

struct PmixProcess {
    char job[256];
    uint32_t rank;
};
struct PmixValue {
    uint16_t type;
    union {
        char* string;
        char space[24];
    } data;
};

using Fenced = void (*)(PmixStatus, void*);
using GotValue = void (*)(PmixStatus, PmixValue*, void*);
struct PmixLibrary {
    PmixStatus (*init)(PmixProcess*, void*, std::size_t) = nullptr;
    PmixStatus (*finalize)(const void*, std::size_t) = nullptr;
    PmixStatus (*put)(uint8_t scope, const char* key, PmixValue*) = nullptr;
    PmixStatus (*commit)() = nullptr;
    PmixStatus (*fence_nb)(const PmixProcess*, std::size_t, const void*, std::size_t, Fenced,
                           void*) = nullptr;
    PmixStatus (*get_nb)(const PmixProcess*, const char* key, const void*, std::size_t, GotValue,
                         void*) = nullptr;
    const char* (*error_string)(PmixStatus) = nullptr;
};

Result<PmixLibrary> load_pmix() {
    void* handle = ::dlopen(pmix_file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char* why = ::dlerror();
        return fail(Code::unsupported,
                    "the library of PMIx, through which ranks on several hosts find each other, "
                    "cannot be loaded: {}",
                    why ? why : pmix_file)
            .advice("install {}, or set TUTTI_STORE", pmix_file);
    }
    PmixLibrary library;
    const auto find = [&](auto& function, const char* name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
        return function != nullptr;
    };
    if (find(library.init, "PMIx_Init") && find(library.finalize, "PMIx_Finalize") &&
        find(library.put, "PMIx_Put") && find(library.commit, "PMIx_Commit") &&
        find(library.fence_nb, "PMIx_Fence_nb") && find(library.get_nb, "PMIx_Get_nb") &&
        find(library.error_string, "PMIx_Error_string"))
        return library;
    return fail(Code::unsupported, "{} lacks functions of PMIx 2", pmix_file)
        .advice("install PMIx 2 or newer, or set TUTTI_STORE");
}

Result<> check_pmix(const PmixLibrary& library, PmixStatus status, const char* doing) {
    if (status == pmix_success) return {};
    return fail(Code::system, "PMIx failed while {}: {}", doing, library.error_string(status))
        .advice("set TUTTI_STORE, so that the ranks find each other without PMIx");
}

// Outlives a wait that has timed out: the library may answer later.
struct PmixAnswer {
    std::mutex mutex;
    std::condition_variable came;
    bool done = false;
    PmixStatus status = pmix_success;
    std::string text;
};
using SharedPmixAnswer = std::shared_ptr<PmixAnswer>;

void take_pmix_value(PmixStatus status, PmixValue* value, void* data) {
    const std::unique_ptr<SharedPmixAnswer> answer(static_cast<SharedPmixAnswer*>(data));
    const std::lock_guard lock((*answer)->mutex);
    (*answer)->status = status;
    if (status == pmix_success && value && value->type == string_type && value->data.string)
        (*answer)->text = value->data.string;
    (*answer)->done = true;
    (*answer)->came.notify_all();
}

void take_pmix_status(PmixStatus status, void* data) {
    take_pmix_value(status, nullptr, data);
}

/// begin: starts a call whose answer comes with the pointer that begin is given.
template <typename Begin>
Result<std::string> await_pmix(const PmixLibrary& library, const char* doing, Deadline deadline,
                               Begin begin) {
    const auto answer = std::make_shared<PmixAnswer>();
    auto* const reference = new SharedPmixAnswer(answer);
    if (const PmixStatus status = begin(reference); status != pmix_success) {
        delete reference;
        TUTTI_TRY(check_pmix(library, status, doing));
    }
    std::unique_lock lock(answer->mutex);
    while (!answer->done) {
        if (deadline.passed())
            return fail(Code::timeout, "PMIx timed out while {}", doing)
                .advice("check that all ranks of the job have begun to join");
        answer->came.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(100)));
    }
    TUTTI_TRY(check_pmix(library, answer->status, doing));
    return answer->text;
}

// The library counts initialisations: the launcher regards a process that ends before as many
// finalisations as failed. Finalising at once would make a later MPI_Init fail.
void end_pmix_at_exit(const PmixLibrary& library) {
    static PmixStatus (*finalize)(const void*, std::size_t);
    static pid_t owner;
    finalize = library.finalize;
    owner = ::getpid();
    std::atexit([] {
        if (owner == ::getpid()) finalize(nullptr, 0);
    });
}

}  // namespace

Result<std::string> share_over_pmix(Rank rank, const std::string& value, Deadline deadline) {
    const NoSignals for_its_threads;
    TUTTI_ASSIGN(const PmixLibrary library, load_pmix());
    PmixProcess self{};
    TUTTI_TRY(check_pmix(library, library.init(&self, nullptr, 0), "joining the launcher's job"));
    end_pmix_at_exit(library);
    if (rank == 0) {
        std::string text = value;
        PmixValue put{.type = string_type, .data = {.string = text.data()}};
        TUTTI_TRY(
            check_pmix(library, library.put(global_scope, pmix_key, &put), "storing the address"));
        TUTTI_TRY(check_pmix(library, library.commit(), "handing on the address"));
    }
    // Before the fence a get of the address may find nothing.
    TUTTI_TRY(await_pmix(library, "waiting for all ranks", deadline, [&](void* answer) {
        return library.fence_nb(nullptr, 0, nullptr, 0, take_pmix_status, answer);
    }));
    PmixProcess zero = self;
    zero.rank = 0;
    return await_pmix(library, "asking for rank 0's address", deadline, [&](void* answer) {
        return library.get_nb(&zero, pmix_key, nullptr, 0, take_pmix_value, answer);
    });
}

}  // namespace tutti
