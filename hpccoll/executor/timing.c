/* The timing loop: fills the buffers, waits for the other ranks, runs the operation between two readings of the clock,
 * and compares the result with the expected values, bit for bit. Only the operation is timed. */
#include "executor.h"

#include <string.h>
#include <time.h>

int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void fill(const block_t *blocks, int64_t count, int64_t generation) {
    for (const block_t *b = blocks; b < blocks + count; b++) {
        const char *values = b->values + generation * b->itemsize;
        for (int64_t row = 0; row < b->rows; row++)
            memcpy(b->buffer + row * b->row_bytes, values + row * b->values_bytes, (size_t)b->row_bytes);
    }
}

/* Return the number of elements that differ from their values. */
static int64_t differences(const block_t *blocks, int64_t count, int64_t generation) {
    int64_t total = 0;
    for (const block_t *b = blocks; b < blocks + count; b++) {
        for (int64_t row = 0; row < b->rows; row++) {
            const char *found = b->buffer + row * b->row_bytes;
            const char *expected = b->values + row * b->values_bytes + generation * b->itemsize;
            if (!memcmp(found, expected, (size_t)b->row_bytes)) continue;
            for (int64_t at = 0; at < b->row_bytes; at += b->itemsize)
                total += memcmp(found + at, expected + at, (size_t)b->itemsize) != 0;
        }
    }
    return total;
}

static void enter(timed_case_t *c, enum phase phase) {
    c->progress[0] = phase;
    if (phase != PHASE_RUNNING) c->progress[2]++; /* an operation is not alive because it has begun */
}

/* Run `count` iterations; all ranks call this together.
 *
 * times: start, end and CPU time of each iteration in ns, [3][count].
 * Returns the number of wrong elements in all iterations, or -1 after an error of MPI, which the plan or the barrier has.
 */
HPCCOLL_API int64_t hpccoll_measure(timed_case_t *c, int64_t count, int64_t *times) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        c->progress[1]++;
        enter(c, PHASE_PREPARING);
        c->generation = (c->generation + 1) % c->generations;
        if (c->guards_dirty) fill(c->guard_blocks, c->guard_count, 0);
        c->guards_dirty = 0;
        fill(c->fill_blocks, c->fill_count, c->generation);
        enter(c, PHASE_WAITING);
        if (barrier_wait(c->barrier)) return -1;
        enter(c, PHASE_RUNNING);
        const int64_t cpu = cpu_ns(), start = now_ns();
        if (hpccoll_run(c->plan) < 0) return -1;
        times[count + i] = now_ns();
        times[i] = start;
        times[2 * count + i] = cpu_ns() - cpu;
        enter(c, PHASE_CHECKING);
        const int64_t overwritten = differences(c->guard_blocks, c->guard_count, 0);
        c->guards_dirty = overwritten > 0;
        wrong += overwritten + differences(c->compared_blocks, c->compared_count, c->generation);
    }
    return wrong;
}
