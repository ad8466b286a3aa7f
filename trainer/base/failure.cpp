#include "trainer/base/failure.h"

#include <new>

namespace tutti::training {

std::string& last_error() {
    thread_local std::string text;
    return text;
}

tutti_status report(tutti_status status, const std::string& text) {
    last_error() = text;
    return status;
}

tutti_status report_current(const char* function) {
    try {
        throw;
    } catch (const Failure& failure) {
        return report(failure.status(), fmt::format("{}: {}", function, failure.what()));
    } catch (const std::bad_alloc&) {
        return report(TUTTI_ERR_NO_MEMORY, fmt::format("{}: no memory is left", function));
    } catch (const std::exception& error) {
        return report(TUTTI_ERR_SYSTEM, fmt::format("{}: {}", function, error.what()));
    } catch (...) {
        return report(TUTTI_ERR_SYSTEM, fmt::format("{}: an exception of unknown type", function));
    }
}

}  // namespace tutti::training
