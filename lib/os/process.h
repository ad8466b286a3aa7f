// Facts about a process, read from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tutti {

/// The fields of /proc/PID/stat by their numbers in proc(5).
enum class ProcessField : int { parent = 4, threads = 20, start_ticks = 22, heap_begin = 47 };

/// 0: there is no such process, or no such field. pid 0: this process.
uint64_t process_field(pid_t pid, ProcessField field);
/// True if there is no such process, or if it is a zombie: it has ended, and its parent has not
/// waited for it yet.
bool process_ended(pid_t pid);

}  // namespace tutti
