// The cases of worker.cpp share these: time, words between ranks, and memory that runs out.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tutti/tutti.h"

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Continues a process once it is stopped. One rank does that: the leak checker stops a process at
/// its end, and hangs if it is continued then.
inline void let_continue(int pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const auto is_stopped = [&] {
        std::string text;
        std::getline(std::ifstream(path), text);
        const auto name_end = text.rfind(')');
        return name_end != std::string::npos && text.compare(name_end, 3, ") T") == 0;
    };
    for (const auto start = Clock::now(); !is_stopped() && seconds_since(start) < 60;)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(pid, SIGCONT);
}

/// A word to another rank is a message.
constexpr int word_tag = 9;
inline void send_word(tutti_comm* comm, int to) {
    char word = 0;
    tutti_send(comm, &word, 1, TUTTI_INT8, to, word_tag);
}

inline tutti_status receive_word(tutti_comm* comm, int from) {
    char word = 0;
    return tutti_recv(comm, &word, 1, TUTTI_INT8, from, word_tag, nullptr);
}

/// Before a communicator exists, a word is a file in the test's folder.
inline void leave_word(const std::string& folder, const char* name) {
    std::ofstream(folder + "/" + name).put('\n');
}
inline void await_word(const std::string& folder, const char* name) {
    const auto start = Clock::now();
    while (!std::filesystem::exists(folder + "/" + name) && seconds_since(start) < 60)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// From now on the kernel answers this process as it does where /dev/shm or memory is full. False:
/// it refused that.
inline bool exhaust_memory() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{.len = std::size(program), .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}
