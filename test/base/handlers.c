// A library that installs signal handlers of its own when it is loaded.
#include <signal.h>
#include <stddef.h>

static void handle(int number) {
    (void)number;
}
static void handle_info(int number, siginfo_t* info, void* context) {
    (void)number, (void)info, (void)context;
}

void install_handlers(void);
__attribute__((constructor)) void install_handlers(void) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    struct sigaction with_info = {.sa_sigaction = handle_info, .sa_flags = SA_SIGINFO};
    sigaction(SIGHUP, &with_info, NULL);
}
