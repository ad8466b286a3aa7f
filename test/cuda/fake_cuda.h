// A stand-in for the CUDA driver: host memory that only its own threads can touch, streams that are
// threads with injected delays, and a record of what was done wrong. It is loaded the way the real
// driver is; tests reach what follows through the same handle.
#pragma once

#include <atomic>
#include <cstddef>

extern "C" {

/// Puts work at the end of a stream, as a kernel's launch does. `running` counts kernels per
/// device.
void fake_cuda_enqueue(void* stream, void (*work)(void*), void* argument);
/// The stream that a handle means on this thread now: the default one is the current device's.
void* fake_cuda_stream(void* stream);
/// The address at which a stream's work may touch these bytes; nullptr if out of bounds.
void* fake_cuda_touch(const void* address, std::size_t bytes);
/// The ordinal of the device that is current on this thread, -1 if none is.
int fake_cuda_current(void);
/// A kernel of a collective begins (+1) to exist or is over (-1) on that device.
void fake_cuda_collective(int device, int change);

/// Device memory, and moving bytes to and from it after everything on the device is done.
void* fake_cuda_alloc(int device, std::size_t bytes);
void fake_cuda_free(void* address);
void fake_cuda_poke(void* address, const void* from, std::size_t bytes);
void fake_cuda_peek(void* to, const void* address, std::size_t bytes);
/// A kernel on that stream that adds one to each of count floats, after a while.
void fake_cuda_increment(void* stream, void* address, std::size_t count, int delay_us);
void fake_cuda_synchronize(void* stream);
/// Frees device memory as a driver may: until all that is on the stream is done, nobody puts work
/// on any of that device's. Counts itself to `begun` once that holds.
void fake_cuda_free_meanwhile(void* stream, std::atomic<int>* begun);

/// From now on every call that touches that device fails with this status; 0: no more.
void fake_cuda_break(int device, int status);
/// A program begins (true) or ends to capture a graph on another thread: until then whoever calls
/// what could disturb that, and has not said that it will not, ends the capture.
void fake_cuda_capture_elsewhere(bool captures);
/// A program begins (true) or ends to capture that stream.
void fake_cuda_capture(void* stream, bool captures);
/// A test switches on a fault for a rank (fake_drop_…: a device) while threads run; -1 ends it.
/// fake_lose_launch: a launch fails as if a peer had gone. fake_fail_group: a group's operations
/// are launched, and it fails. fake_slow_abort: returns before its kernels end, as NCCL's does.
/// fake_waiting_alloc: pinning memory waits for all work on the device's streams. fake_drop_…: the
/// device's streams no longer wait for events, or for words.
enum {
    fake_fail_launch,
    fake_lose_launch,
    fake_break_down,
    fake_drop_events,
    fake_drop_words,
    fake_fail_group,
    fake_slow_abort,
    fake_waiting_alloc,
    fake_told_count
};
void fake_cuda_tell(int what, int rank);
int fake_cuda_told(int what);
/// Counts copies from the device that ran while a copy to it did.
int fake_cuda_overlaps(int device);
/// Counts the calling thread's cuPointerGetAttributes calls, which ask whose memory a pointer is.
int fake_cuda_asked(void);
void fake_cuda_count_question(void);
/// Bytes that were copied between the host and devices so far.
extern std::atomic<std::size_t> fake_cuda_copied;
/// The most pinned host memory that there was at a time, since the last question.
std::size_t fake_cuda_most_pinned(void);
/// Kernels of the library's own that were launched.
int fake_cuda_kernels(void);
/// Handles that exist: streams, events, pinned and device buffers of the library's, retained
/// contexts.
int fake_cuda_live(void);
/// A call that may wait for the device or for other ranks begins: never under a lock, where the
/// program can tell (test/nccl/locks.cpp).
void fake_cuda_may_wait(const char* what);
/// Something a real driver would have hung or crashed on.
void fake_cuda_violation(const char* what);
/// All of them, one a line; "" if there are none.
const char* fake_cuda_violations(void);
}
