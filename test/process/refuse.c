// usage: refuse CALL PROGRAM [ARGUMENT…]: runs the program where the kernel refuses a system call,
// as containers' seccomp filters do.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

static const struct {
    const char* name;
    unsigned number;
    unsigned error;
    unsigned flags;  // only with one of these in the third argument
} calls[] = {{"memfd_create", SYS_memfd_create, EPERM, 0},
             {"pidfd_open", SYS_pidfd_open, EPERM, 0},
             {"eventfd2", SYS_eventfd2, EPERM, 0},
             {"clone3", SYS_clone3, EAGAIN, 0},
             {"O_TMPFILE", SYS_openat, EROFS, O_TMPFILE & ~O_DIRECTORY}};

int main(int argc, char** argv) {
    for (size_t i = 0; argc > 2 && i < sizeof calls / sizeof calls[0]; ++i) {
        if (strcmp(calls[i].name, argv[1]) != 0) continue;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 4),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, calls[i].flags, 1, 0),
            BPF_JUMP(BPF_JMP | BPF_JA, calls[i].flags != 0, 0, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | calls[i].error),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
            perror("refuse: seccomp");
            return 77;
        }
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        return 127;
    }
    fprintf(stderr, "usage: refuse CALL PROGRAM [ARGUMENT...]\n");
    return 2;
}
