#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "sections.h"

namespace tutti::info {
namespace {

constexpr uint64_t mib = 1 << 20;
constexpr uint64_t little_shm_bytes = 256 * mib;
constexpr uint64_t little_locked_bytes = 1024 * mib;
constexpr uint64_t few_files = 1024;

Fact bytes_fact(const std::string& name, uint64_t bytes) {
    return {name, bytes, human_bytes(bytes)};
}

// "24684084 kB", as /proc/meminfo has it; 0 if there is no such line.
uint64_t meminfo(const Tree& tree, const std::string& key) {
    const std::string text = tree.value("/proc/meminfo", key);
    return text.empty() ? 0 : std::stoull(text) << 10;
}

Fact huge_pages(const Tree& tree) {
    Fact out{"huge pages", Json::array(), {}};
    const std::string folder = "/sys/kernel/mm/hugepages";
    for (const std::string& name : tree.names(folder)) {
        const std::string path = folder + "/" + name + "/";
        const uint64_t all = tree.number(path + "nr_hugepages").value_or(0);
        const uint64_t free = tree.number(path + "free_hugepages").value_or(0);
        const std::string size = name.substr(name.find('-') + 1);
        out.value.push_back({{"size", size}, {"reserved", all}, {"free", free}});
        out.text +=
            fmt::format("{}{} of {} free, {} each", out.text.empty() ? "" : "; ", free, all, size);
    }
    if (out.text.empty()) out.text = "none";
    return out;
}

// The word in brackets of "always [madvise] never".
std::string chosen(const std::string& text) {
    const auto begin = text.find('['), end = text.find(']');
    return end == std::string::npos ? "unknown" : text.substr(begin + 1, end - begin - 1);
}

void add_dev_shm(Section& out, const Tree& tree) {
    struct statvfs fs {};
    if (::statvfs(tree.real_path("/dev/shm").c_str(), &fs) != 0) {
        out.facts.push_back({"/dev/shm", nullptr, "not there"});
        out.advice.push_back(
            "mount /dev/shm: UCX, libfabric and MPI keep shared memory there (tutti's own "
            "transport "
            "shm does not)");
        return;
    }
    const uint64_t size = fs.f_blocks * fs.f_frsize, free = fs.f_bavail * fs.f_frsize;
    out.facts.push_back({"/dev/shm",
                         {{"bytes", size}, {"free_bytes", free}},
                         fmt::format("{}, {} free", human_bytes(size), human_bytes(free))});
    if (size < little_shm_bytes)
        out.advice.push_back(
            "/dev/shm is small: UCX, libfabric and MPI keep shared memory there (tutti's own "
            "transport shm does not); in a container use docker run --shm-size 1g");
}

struct Limit {
    uint64_t soft = 0, hard = 0;
};

Limit limit_of(__rlimit_resource_t what) {
    rlimit limit{};
    ::getrlimit(what, &limit);
    return {limit.rlim_cur, limit.rlim_max};
}

Fact limit_fact(const std::string& name, Limit limit, std::string (*text)(uint64_t)) {
    const auto json = [](uint64_t n) { return n == RLIM_INFINITY ? Json("unlimited") : Json(n); };
    const auto words = [&](uint64_t n) { return n == RLIM_INFINITY ? "unlimited" : text(n); };
    return {name,
            {{"soft", json(limit.soft)}, {"hard", json(limit.hard)}},
            limit.soft == limit.hard
                ? words(limit.soft)
                : fmt::format("{} (at most {})", words(limit.soft), words(limit.hard))};
}

// Yama's setting limits which processes may read another process's memory (process_vm_readv).
Fact reading_others(const Tree& tree) {
    const auto scope = tree.number("/proc/sys/kernel/yama/ptrace_scope");
    if (!scope || *scope == 0)
        return {"other processes", "own", "memory of the same user's can be read"};
    return {"other processes", "restricted",
            fmt::format("memory cannot be read (kernel.yama.ptrace_scope = {}): UCX and libfabric "
                        "then copy twice",
                        *scope)};
}

}  // namespace

Section look_at_memory(const Tree& tree) {
    Section out;
    out.facts = {bytes_fact("total", meminfo(tree, "MemTotal")),
                 bytes_fact("available", meminfo(tree, "MemAvailable"))};
    // The file is missing or contains "max" if the cgroup has no limit.
    if (const auto limit = tree.number("/sys/fs/cgroup/memory.max"))
        out.facts.push_back(bytes_fact("cgroup limit", *limit));
    out.facts.push_back(huge_pages(tree));
    out.facts.push_back(
        fact("transparent huge", chosen(tree.line("/sys/kernel/mm/transparent_hugepage/enabled"))));
    add_dev_shm(out, tree);
    return out;
}

Section look_at_limits(const Tree& tree) {
    const Limit locked = limit_of(RLIMIT_MEMLOCK), files = limit_of(RLIMIT_NOFILE);
    Section out;
    out.facts = {limit_fact("locked memory", locked, human_bytes),
                 limit_fact("open files", files, [](uint64_t n) { return std::to_string(n); }),
                 reading_others(tree)};
    if (locked.soft < little_locked_bytes)
        out.advice.push_back(fmt::format(
            "RDMA locks the memory that it moves, and the limit of {} is low: use `ulimit -l "
            "unlimited`, or permanently "
            "`* - memlock unlimited` in /etc/security/limits.conf (Slurm: PropagateResourceLimits; "
            "Docker: --ulimit memlock=-1)",
            human_bytes(locked.soft)));
    if (files.soft < few_files)
        out.advice.push_back(
            fmt::format("{} open files are few for a job of many ranks: use `ulimit -n {}`",
                        files.soft, std::min<uint64_t>(files.hard, 65536)));
    return out;
}

}  // namespace tutti::info
