#include "released.h"

#include <unistd.h>

namespace tutti_python {

Released::~Released() {
    try {
        PyEval_RestoreThread(state_);
    } catch (...) {
        // Only the unwinding of pthread_exit comes here, and it must not go on.
        for (;;) ::pause();
    }
}

}  // namespace tutti_python
