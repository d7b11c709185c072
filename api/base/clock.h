/* clock.h: what time it is. Not for the core, which is told. */
#ifndef HOLDFAST_BASE_CLOCK_H
#define HOLDFAST_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_us(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Since some moment in the past; never goes back, and stands still while the machine is suspended. */
static inline uint64_t mono_us(void)
{
	return clock_read_us(CLOCK_MONOTONIC);
}

static inline uint64_t mono_ms(void)
{
	return mono_us() / 1000;
}

/* The same, but goes on while the machine is suspended: leases are measured with it. */
static inline uint64_t boot_ms(void)
{
	return clock_read_us(CLOCK_BOOTTIME) / 1000;
}

/* The wall clock, which may jump: for people only. */
static inline uint64_t unix_ms(void)
{
	return clock_read_us(CLOCK_REALTIME) / 1000;
}

/* A time to come, for pthread_cond_timedwait() with CLOCK_MONOTONIC. */
static inline struct timespec mono_in_us(uint64_t us)
{
	uint64_t at = mono_us() + us;
	return (struct timespec){ .tv_sec = (time_t)(at / 1000000), .tv_nsec = (long)(at % 1000000) * 1000 };
}

#endif
