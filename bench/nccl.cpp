#include "nccl.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "complain.h"

namespace bench {
namespace {

// The types and numbers of NCCL's ABI.
struct UniqueId {
    std::array<uint8_t, 128> bytes;
};
struct Type {
    tutti_dtype dtype;
    int number;
};
constexpr Type types[] = {{TUTTI_INT8, 0},    {TUTTI_UINT8, 1},   {TUTTI_INT32, 2},
                          {TUTTI_UINT32, 3},  {TUTTI_INT64, 4},   {TUTTI_UINT64, 5},
                          {TUTTI_FLOAT16, 6}, {TUTTI_FLOAT32, 7}, {TUTTI_FLOAT64, 8},
                          {TUTTI_BFLOAT16, 9}};
struct Operator {
    tutti_op op;
    int number;
};
constexpr Operator operators[] = {{TUTTI_SUM, 0}, {TUTTI_PROD, 1}, {TUTTI_MAX, 2}, {TUTTI_MIN, 3}};
constexpr int not_there = -1;

int number_of(tutti_dtype dtype) {
    for (const Type& t : types)
        if (t.dtype == dtype) return t.number;
    return not_there;
}
int number_of_op(tutti_op op) {
    for (const Operator& o : operators)
        if (o.op == op) return o.number;
    return not_there;
}

void* open(const char* variable, const char* otherwise) {
    const char* named = std::getenv(variable);
    const std::string path =
        named != nullptr && std::string(named) != "auto" && *named != '\0' ? named : otherwise;
    void* handle = dlopen(path.c_str(), RTLD_NOW);
    if (handle == nullptr)
        throw std::runtime_error(
            command_line::with_advice(std::string("--peer nccl: ") + dlerror(),
                                      std::string("set ") + variable + " to the library's path"));
    return handle;
}

template <typename Function>
void load(void* handle, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr)
        throw std::runtime_error(command_line::with_advice(
            std::string("--peer nccl: the library has no function ") + name,
            "set TUTTI_NCCL_LIBRARY and TUTTI_CUDA_LIBRARY to newer libraries"));
}

}  // namespace

struct Nccl::Library {
    int (*get_id)(UniqueId*) = nullptr;
    int (*init)(void**, int, UniqueId, int) = nullptr;
    int (*destroy)(void*) = nullptr;
    const char* (*error_text)(int) = nullptr;
    int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
    int (*reduce_scatter)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
    int (*all_gather)(const void*, void*, std::size_t, int, void*, void*) = nullptr;
    int (*broadcast)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
    int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, void*) = nullptr;
    int (*synchronize)(void*) = nullptr;
    void* comm = nullptr;

    Library() {
        void* handle = open("TUTTI_NCCL_LIBRARY", "libnccl.so.2");
        load(handle, get_id, "ncclGetUniqueId");
        load(handle, init, "ncclCommInitRank");
        load(handle, destroy, "ncclCommDestroy");
        load(handle, error_text, "ncclGetErrorString");
        load(handle, all_reduce, "ncclAllReduce");
        load(handle, reduce_scatter, "ncclReduceScatter");
        load(handle, all_gather, "ncclAllGather");
        load(handle, broadcast, "ncclBroadcast");
        load(handle, reduce, "ncclReduce");
        load(open("TUTTI_CUDA_LIBRARY", "libcuda.so.1"), synchronize, "cuStreamSynchronize");
    }

    void need(int status, const char* what) const {
        if (status != 0)
            throw std::runtime_error(command_line::with_advice(
                std::string("--peer nccl: ") + what + ": " + error_text(status),
                "set NCCL_DEBUG=WARN to see the cause"));
    }

    int start(const Call& call, Buffers buffers) const {
        const int dtype = number_of(call.dtype), op = number_of_op(call.op);
        const std::string_view name = call.collective->name;
        if (name == "allreduce")
            return all_reduce(buffers.in, buffers.out, call.count, dtype, op, comm, nullptr);
        if (name == "reduce_scatter")
            return reduce_scatter(buffers.in, buffers.out, call.count, dtype, op, comm, nullptr);
        if (name == "allgather")
            return all_gather(buffers.in, buffers.out, call.count, dtype, comm, nullptr);
        if (name == "broadcast")
            return broadcast(buffers.out, buffers.out, call.count, dtype, call.root, comm, nullptr);
        return reduce(buffers.in, buffers.out, call.count, dtype, op, call.root, comm, nullptr);
    }
};

namespace {

template <typename Library>
class NcclOperation final : public Operation {
public:
    NcclOperation(const Library& library, const Call& call, std::vector<Buffers> buffers)
        : library_(library), call_(call), buffers_(std::move(buffers)) {}
    void run() override {
        for (const Buffers& pair : buffers_) library_.need(library_.start(call_, pair), "a call");
    }
    void finish() override {
        if (library_.synchronize(nullptr) != 0)
            throw std::runtime_error(
                command_line::with_advice("--peer nccl: the device failed",
                                          "look at the GPU and its driver with nvidia-smi"));
    }

private:
    const Library& library_;
    const Call call_;
    const std::vector<Buffers> buffers_;
};

}  // namespace

Nccl::Nccl(tutti::Communicator& comm) : library_(std::make_unique<Library>()) {
    UniqueId id{};
    if (comm.rank() == 0) library_->need(library_->get_id(&id), "making an identifier");
    comm.broadcast(id.bytes);
    library_->need(library_->init(&library_->comm, comm.size(), id, comm.rank()), "joining");
}

Nccl::~Nccl() {
    library_->destroy(library_->comm);
}

std::unique_ptr<Operation> Nccl::make(const Call& call, const std::vector<Buffers>& buffers) {
    constexpr std::string_view names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                          "reduce"};
    bool known = false;
    for (const std::string_view name : names) known |= name == call.collective->name;
    if (!known || number_of(call.dtype) == not_there) return nullptr;
    if (call.collective->reduces() && number_of_op(call.op) == not_there) return nullptr;
    return std::make_unique<NcclOperation<Library>>(*library_, call, buffers);
}

}  // namespace bench
