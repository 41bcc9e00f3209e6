/* The loop of the OSU Micro-Benchmarks: the same operation again and again, with a barrier of the library after each, on
 * buffers that nobody writes in between. */
#include "executor.h"

static int call_barrier(const repeated_case_t *c) {
    const intptr_t *a = c->barrier->arguments;
    return c->barrier->function(a[0]);
}

static void enter(repeated_case_t *c, enum phase phase) {
    c->progress[0] = phase;
    c->progress[2] += phase == PHASE_WAITING; /* that an operation has begun is no sign of progress */
}

/* Run `count` iterations; all ranks call this together.
 *
 * times: start, end and CPU time of each iteration in ns, [3][count]. The CPU time is the mean of all, their barriers
 * included: a reading of it between the barrier and the operation would take longer than a small operation.
 * Returns 0, or -1 after an error of MPI, which the plan has, or `error` of the case if it is that of a barrier.
 */
HPCCOLL_API int64_t hpccoll_repeat(repeated_case_t *c, int64_t count, int64_t *times) {
    const int64_t cpu = cpu_ns();
    if ((c->error = call_barrier(c))) return -1;
    for (int64_t i = 0; i < count; i++) {
        c->progress[1]++;
        enter(c, PHASE_RUNNING);
        const int64_t start = now_ns();
        if (hpccoll_run(c->plan) < 0) return -1;
        times[count + i] = now_ns();
        times[i] = start;
        enter(c, PHASE_WAITING);
        if ((c->error = call_barrier(c))) return -1;
    }
    const int64_t mean = (cpu_ns() - cpu) / count;
    for (int64_t i = 0; i < count; i++) times[2 * count + i] = mean;
    return 0;
}
