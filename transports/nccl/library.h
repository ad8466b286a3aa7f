// Finds NCCL at run time. NCCL's header needs CUDA's, so this file declares the few functions in
// use; load_library() checks each entry point, because older versions lack some.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "base/result.h"

namespace tutti::nccl {

// Types of NCCL's ABI.
using Status = int;
struct CommTag;
using Comm = CommTag*;
struct UniqueId {
    char bytes[128];
};
inline constexpr Status success = 0, remote_error = 6, in_progress = 7;

/// The configuration of NCCL 2.18; newer versions read it by its size and version.
struct CommConfig {
    std::size_t size = sizeof(CommConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = 0;
    int cga_cluster_size = INT_MIN;  // INT_MIN: NCCL chooses
    int min_ctas = INT_MIN, max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
};

// X(member, symbol, needed, signature); a stream is void*.
#define TUTTI_NCCL_FUNCTIONS(X)                                                             \
    X(get_version, "ncclGetVersion", true, Status(int*))                                    \
    X(error_string, "ncclGetErrorString", true, const char*(Status))                        \
    X(last_error, "ncclGetLastError", false, const char*(Comm))                             \
    X(get_unique_id, "ncclGetUniqueId", true, Status(UniqueId*))                            \
    X(init_rank_config, "ncclCommInitRankConfig", true,                                     \
      Status(Comm*, int, UniqueId, int, CommConfig*))                                       \
    X(finalize, "ncclCommFinalize", true, Status(Comm))                                     \
    X(destroy, "ncclCommDestroy", true, Status(Comm))                                       \
    X(abort, "ncclCommAbort", true, Status(Comm))                                           \
    X(async_error, "ncclCommGetAsyncError", true, Status(Comm, Status*))                    \
    X(group_start, "ncclGroupStart", true, Status())                                        \
    X(group_end, "ncclGroupEnd", true, Status())                                            \
    X(all_reduce, "ncclAllReduce", true,                                                    \
      Status(const void*, void*, std::size_t, int, int, Comm, void*))                       \
    X(broadcast, "ncclBroadcast", true,                                                     \
      Status(const void*, void*, std::size_t, int, int, Comm, void*))                       \
    X(reduce, "ncclReduce", true,                                                           \
      Status(const void*, void*, std::size_t, int, int, int, Comm, void*))                  \
    X(all_gather, "ncclAllGather", true,                                                    \
      Status(const void*, void*, std::size_t, int, Comm, void*))                            \
    X(reduce_scatter, "ncclReduceScatter", true,                                            \
      Status(const void*, void*, std::size_t, int, int, Comm, void*))                       \
    X(send, "ncclSend", true, Status(const void*, std::size_t, int, int, Comm, void*))      \
    X(receive, "ncclRecv", true, Status(void*, std::size_t, int, int, Comm, void*))         \
    X(premul_create, "ncclRedOpCreatePreMulSum", true, Status(int*, void*, int, int, Comm)) \
    X(premul_destroy, "ncclRedOpDestroy", true, Status(int, Comm))                          \
    X(split, "ncclCommSplit", false, Status(Comm, int, int, Comm*, CommConfig*))            \
    X(mem_alloc, "ncclMemAlloc", false, Status(void**, std::size_t))                        \
    X(mem_free, "ncclMemFree", false, Status(void*))                                        \
    X(comm_register, "ncclCommRegister", false, Status(Comm, void*, std::size_t, void**))   \
    X(comm_deregister, "ncclCommDeregister", false, Status(Comm, void*))                    \
    X(window_register, "ncclCommWindowRegister", false,                                     \
      Status(Comm, void*, std::size_t, void**, int))                                        \
    X(window_deregister, "ncclCommWindowDeregister", false, Status(Comm, void*))

struct Library {
#define TUTTI_NCCL_MEMBER(member, symbol, needed, ...) \
    template <typename Signature>                      \
    using member##_type = Signature*;                  \
    member##_type<__VA_ARGS__> member = nullptr;
    TUTTI_NCCL_FUNCTIONS(TUTTI_NCCL_MEMBER)
#undef TUTTI_NCCL_MEMBER
    std::string where;  // "already in the process", or a file
    int version = 0;    // 22807 means 2.28.7
};

/// "2.28.7"
std::string version_text(int version);

/// The one NCCL of this process, found once: `path` unless empty, then one that the program has
/// loaded already (torch's), then libnccl.so.2. unsupported: lists the places tried.
Result<const Library*> load_library(const std::string& path);

/// An error with NCCL's own message, if NCCL has one. comm may be nullptr.
Error nccl_error(const Library& library, Comm comm, Status status, const std::string& doing);

}  // namespace tutti::nccl
