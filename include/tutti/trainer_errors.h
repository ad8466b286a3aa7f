/**
 * @file trainer_errors.h
 * @brief The last error of libtutti_trainer, as tutti_last_error is for libtutti.
 */
#ifndef TUTTI_TRAINER_ERRORS_H
#define TUTTI_TRAINER_ERRORS_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/** This thread's last failure in a call of the trainer layer: the file, entry, buffer or device,
 * the cause, and advice; "" if there was none. Valid until the thread's next failure. */
TUTTI_API const char* tutti_trainer_last_error(void);
/** The rank at fault in that failure, -1 if none is known. */
TUTTI_API int tutti_trainer_last_error_rank(void);
/** The device at fault in that failure, -1 if none is known. */
TUTTI_API int tutti_trainer_last_error_device(void);

#ifdef __cplusplus
}
#endif
#endif
