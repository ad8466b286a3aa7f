/**
 * @file trainer_errors.h
 * @brief What went wrong in a call of libtutti_trainer, as tutti_last_error says it of libtutti.
 */
#ifndef TUTTI_TRAINER_ERRORS_H
#define TUTTI_TRAINER_ERRORS_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/** This thread's last failure in a call of the trainer layer, in words: which file, entry, buffer
 * or device, the cause and what to do; "" if there was none. Valid until its next failure. */
TUTTI_API const char* tutti_trainer_last_error(void);
/** The rank at fault in that failure, -1 if none is known. */
TUTTI_API int tutti_trainer_last_error_rank(void);
/** The device at fault in that failure, -1 if none is known. */
TUTTI_API int tutti_trainer_last_error_device(void);

#ifdef __cplusplus
}
#endif
#endif
