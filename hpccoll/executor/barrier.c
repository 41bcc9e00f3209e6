/* A barrier that all ranks leave at the same time.
 *
 * Inside a node each rank raises a word of its own. The leader, the first rank of the node, waits for all of them, then
 * for the leaders of the other nodes (dissemination: Hensgen, Finkel, Manber, Int. J. Parallel Program. 17, 1988), and
 * publishes a time shortly after, at which all ranks of the node leave: they share a clock. A rank that sees the words late
 * leaves late; the skew is measured (start times) and not assumed.
 */
#include "executor.h"

/* Longer than a store takes to reach all cores of a node, which read it one after another. */
#define LEAVE_AFTER_NS 1000
#define LEAVE_AFTER_NS_PER_RANK 50
#define LATEST_NS 100000

static int await(barrier_t *barrier, word_t *word, int64_t number) {
    end_idle(&barrier->idle);
    while (!barrier->error && atomic_load_explicit(word, memory_order_acquire) < number)
        barrier->error = idle(&barrier->idle, &barrier->probe);
    return barrier->error ? -1 : 0;
}

static int disseminate(barrier_t *barrier) {
    const mpi_t *mpi = barrier->probe.mpi;
    for (int64_t round = 0; round < barrier->rounds; round++) {
        char *requests = barrier->requests + 2 * round * mpi->request_size;
        int completed = 0;
        end_idle(&barrier->idle);
        barrier->error = mpi->startall(2, requests);
        while (!barrier->error && !completed) {
            barrier->error = mpi->testall(2, requests, &completed, barrier->statuses);
            if (!barrier->error && !completed) barrier->error = idle(&barrier->idle, &barrier->probe);
        }
        if (barrier->error) return -1;
    }
    return 0;
}

int barrier_wait(barrier_t *barrier) {
    const int64_t number = ++barrier->passed;
    if (barrier->node_rank == 0) {
        for (int64_t rank = 1; rank < barrier->node_ranks; rank++)
            if (await(barrier, barrier->arrived[rank], number)) return -1;
        if (disseminate(barrier)) return -1;
        const int64_t leave_after = LEAVE_AFTER_NS + LEAVE_AFTER_NS_PER_RANK * barrier->node_ranks;
        atomic_store_explicit(barrier->go, now_ns() + leave_after, memory_order_relaxed);
        atomic_store_explicit(barrier->released, number, memory_order_release);
    } else {
        atomic_store_explicit(barrier->arrived[barrier->node_rank], number, memory_order_release);
        if (await(barrier, barrier->released, number)) return -1;
    }
    const int64_t go = atomic_load_explicit(barrier->go, memory_order_relaxed);
    const int64_t latest = now_ns() + LATEST_NS; /* the clocks of two time namespaces differ */
    for (int64_t now = 0; now < go && now < latest;) now = now_ns();
    return 0;
}

HPCCOLL_API int hpccoll_barrier(barrier_t *barrier) { return barrier_wait(barrier); }
