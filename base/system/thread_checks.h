/* thread_checks.h -- for inner loops of kernels under ThreadSanitizer, which makes each access of a loop a call. A
 * function that is THREAD_UNCHECKED has no such calls. Its caller states with thread_reads and thread_writes which
 * ranges it uses, once for all passes over them, so that races are found as before. Other builds have neither. */
#pragma once
#include <stddef.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
void __tsan_read_range(void *address, long bytes); /* of the sanitizer's runtime */
void __tsan_write_range(void *address, long bytes);
static inline void thread_reads(const void *from, size_t bytes) {
    __tsan_read_range((void *)(size_t)from, (long)bytes);
}
static inline void thread_writes(void *to, size_t bytes) {
    __tsan_write_range(to, (long)bytes);
}
#else
#define THREAD_UNCHECKED
static inline void thread_reads(const void *from, size_t bytes) {
    (void)from, (void)bytes;
}
static inline void thread_writes(void *to, size_t bytes) {
    (void)to, (void)bytes;
}
#endif
