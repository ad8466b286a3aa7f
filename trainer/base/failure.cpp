#include "trainer/base/failure.h"

#include <new>

#include "trainer/base/boundary.h"

namespace tutti::training {

tutti_status report(const Failure& failure) {
    return trainer::keep({failure.status(), failure.rank(), -1, failure.what()});
}

void clear_last_error() {
    trainer::keep({TUTTI_OK, -1, -1, {}});
}

tutti_status report_current(const char* function) {
    try {
        throw;
    } catch (const Failure& failure) {
        return report(Failure(failure.status(), fmt::format("{}: {}", function, failure.what()),
                              failure.rank()));
    } catch (const std::bad_alloc&) {
        return report(Failure(TUTTI_ERR_NO_MEMORY, fmt::format("{}: no memory is left", function)));
    } catch (const std::exception& error) {
        return report(Failure(TUTTI_ERR_SYSTEM, fmt::format("{}: {}", function, error.what())));
    } catch (...) {
        return report(
            Failure(TUTTI_ERR_SYSTEM, fmt::format("{}: an exception of unknown type", function)));
    }
}

}  // namespace tutti::training
