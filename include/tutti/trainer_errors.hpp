/**
 * @file trainer_errors.hpp
 * @brief Turns a status into an exception, for the C++ layers over the trainer's headers.
 */
#ifndef TUTTI_TRAINER_ERRORS_HPP
#define TUTTI_TRAINER_ERRORS_HPP

#include "tutti/handles.hpp"
#include "tutti/trainer_errors.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

namespace detail {
inline void check_trainer(tutti_status status) {
    if (status != TUTTI_OK)
        throw Error(status, tutti_trainer_last_error_rank(), tutti_trainer_last_error(),
                    tutti_trainer_last_error_device());
}
}  // namespace detail

}  // namespace cxx
}  // namespace tutti

#endif
