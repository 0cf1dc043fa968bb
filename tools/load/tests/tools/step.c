/* Preloaded library that steps the wall clock: the clocks that count from 1970 jump an hour ahead
 * STEP_MS after the process began, and to an hour behind after as long again. The clocks that count
 * from boot are unchanged, as with a real step. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long begun_ms;

static long long since_boot_ms(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

__attribute__((constructor)) static void begin(void) {
    begun_ms = since_boot_ms();
}

static long step_s(void) {
    const char *after = getenv("STEP_MS");
    long long step_ms = after ? atoll(after) : 0, passed_ms = since_boot_ms() - begun_ms;
    return passed_ms < step_ms ? 0 : passed_ms < 2 * step_ms ? 3600 : -3600;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += step_s();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
