/* The timing loop of the C programs beside this file: buffers, refill, clock, check, and one JSON line for each case.
 *
 * Usage: mpiexec -n 2 ./collectives single|multiple SECONDS ITERATIONS CASE...
 *
 * A case is COLLECTIVE/PLACEMENT/BYTES, such as all_reduce/out/1024. It runs for at least ITERATIONS iterations and
 * until SECONDS have passed. Each iteration refills the buffers, waits in a barrier, reads the clock, runs the
 * operation, reads the clock, and compares the result. The reported time is the median over iterations of the longest
 * duration of any rank. The skew is the median of the time from the first start to the last one: ranks leave the
 * barrier one after another, and the longest duration includes the wait for the last rank. All ranks must have the same
 * clock.
 */

#ifndef LOOP_H
#define LOOP_H

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    GENERATIONS = 16, /* the refills that differ; each begins one element after the previous one */
    WARMUP = 5,       /* the iterations before the timed ones */
    MOST = 10000,     /* the largest number of timed iterations */
    PAGE = 4096,
    HUGE_BYTES = 4 << 20 /* from here on buffers get huge pages, as NumPy's arrays do */
};

/* One call of a collective. `count` is the number of elements of the whole buffer for all_reduce and broadcast, and of
 * one block for all_gather and all_to_all. `scratch` is as long as `dst`, for the algorithms that need it. */
struct operation {
    int rank, ranks, in_place, count;
    float *src, *dst, *scratch;
};

struct collective {
    const char *name;
    void (*run)(const struct operation *);
};

/* Equal blocks in `data`, and in `values` what they hold in all generations: each block is GENERATIONS - 1 elements
 * longer there. */
struct blocks {
    int blocks;
    size_t length;
    float *data, *values;
};

/* A whole number from 1 to 65536, so that sums over up to 256 ranks are exact in any order. */
static float contribution(int origin, int unit, size_t position)
{
    uint32_t mixed = (uint32_t)position * 2654435761u + ((uint32_t)origin * 257u + (uint32_t)unit + 1u) * 2246822519u;
    return (float)(1 + (mixed >> 16));
}

static float *allocate(size_t count)
{
    size_t bytes = (count * sizeof(float) / PAGE + 1) * PAGE;
    float *memory = aligned_alloc(PAGE, bytes);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (bytes >= HUGE_BYTES)
        madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static struct blocks with_values(float *data, int blocks, size_t length)
{
    size_t longer = length + GENERATIONS - 1;
    return (struct blocks){blocks, length, data, allocate((size_t)blocks * longer)};
}

static void refill(const struct blocks *b, int generation)
{
    for (int block = 0; block < b->blocks; block++)
        memcpy(b->data + block * b->length, b->values + block * (b->length + GENERATIONS - 1) + generation,
               b->length * sizeof(float));
}

static int64_t differing(const struct blocks *b, int generation)
{
    int64_t wrong = 0;
    for (int block = 0; block < b->blocks; block++) {
        const float *found = b->data + block * b->length;
        const float *expected = b->values + block * (b->length + GENERATIONS - 1) + generation;
        for (size_t i = 0; i < b->length; i++)
            wrong += found[i] != expected[i];
    }
    return wrong;
}

/* What a case holds: the contribution in src, what dst holds before the operation, and what it must hold after it. */
struct contents {
    struct blocks source, initial, expected;
};

static struct contents contents_of(const char *collective, const struct operation *o)
{
    int me = o->rank, p = o->ranks;
    int reduces = !strcmp(collective, "all_reduce"), rooted = !strcmp(collective, "broadcast");
    int gathers = !strcmp(collective, "all_gather"), barrier = !strcmp(collective, "barrier");
    int sent = reduces || rooted || gathers ? 1 : p, received = reduces || rooted ? 1 : p;
    if (barrier)
        sent = received = 0;
    size_t length = (size_t)o->count, longer = length + GENERATIONS - 1;
    struct contents c = {with_values(o->src, o->in_place ? 0 : sent, length), with_values(o->dst, received, length),
                         with_values(o->dst, received, length)};
    for (int block = 0; block < c.source.blocks; block++)
        for (size_t i = 0; i < longer; i++)
            c.source.values[block * longer + i] = contribution(me, gathers ? me : block, i);
    for (int block = 0; block < received; block++) {
        int contributes = o->in_place && (rooted ? me == 0 : !gathers || block == me);
        for (size_t i = 0; i < longer; i++) {
            float result = 0;
            if (reduces)
                for (int origin = 0; origin < p; origin++)
                    result += contribution(origin, block, i);
            else if (rooted)
                result = contribution(0, block, i);
            else
                result = contribution(block, gathers ? block : me, i);
            c.initial.values[block * longer + i] = contributes ? contribution(me, block, i) : NAN;
            c.expected.values[block * longer + i] = result;
        }
    }
    return c;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sort times in ns and return their median in seconds. */
static double median_s(int64_t *times, int count)
{
    qsort(times, count, sizeof *times, by_size);
    return 0.5e-9 * (double)(times[(count - 1) / 2] + times[count / 2]);
}

/* Measure one case and print it at rank 0; return the number of wrong elements over all iterations and ranks. */
static int64_t measure(const char *name, const struct collective *collective, const struct operation *o, double seconds,
                       int least)
{
    static int64_t starts[MOST], durations[MOST], first[MOST], last[MOST], slowest[MOST];
    struct contents c = contents_of(collective->name, o);
    int64_t wrong = 0, all_wrong = 0, began = now_ns();
    int done = 0;
    for (int generation = 0, batch = -WARMUP, more = 1; more;) {
        refill(&c.initial, generation);
        refill(&c.source, generation);
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t start = now_ns();
        collective->run(o);
        int64_t end = now_ns();
        wrong += differing(&c.source, generation) + differing(&c.expected, generation);
        generation = (generation + 1) % GENERATIONS;
        if (batch++ < 0)
            continue;
        starts[done] = start;
        durations[done++] = end - start;
        if (batch >= least || done == MOST) {
            batch = 0;
            more = done < MOST && (double)(now_ns() - began) < seconds * 1e9;
            MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD); /* rank 0 decides for all */
        }
    }
    MPI_Reduce(durations, slowest, done, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(starts, first, done, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(starts, last, done, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (o->rank == 0) {
        for (int i = 0; i < done; i++)
            last[i] -= first[i];
        printf("{\"case\": \"%s\", \"median_s\": %.9g, \"skew_s\": %.9g, \"iterations\": %d, \"wrong\": %lld}\n", name,
               median_s(slowest, done), median_s(last, done), done, (long long)all_wrong);
        fflush(stdout);
    }
    free(c.source.values);
    free(c.initial.values);
    free(c.expected.values);
    return all_wrong;
}

/* Read a case and measure it; return the number of wrong elements. */
static int64_t run_case(const char *name, const struct collective *known, double seconds, int least)
{
    char collective[16], placement[8];
    long bytes;
    if (sscanf(name, "%15[a-z_]/%7[a-z]/%ld", collective, placement, &bytes) != 3 ||
        (strcmp(placement, "in") != 0 && strcmp(placement, "out") != 0)) {
        fprintf(stderr, "case: %s; valid: COLLECTIVE/in|out/BYTES\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    while (known->name != NULL && strcmp(known->name, collective) != 0)
        known++;
    if (known->name == NULL) {
        fprintf(stderr, "collective: %s; valid: those of this program\n", collective);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct operation o = {.in_place = !strcmp(placement, "in")};
    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.ranks);
    int per_rank = !strcmp(collective, "all_gather") || !strcmp(collective, "all_to_all");
    size_t whole = (size_t)bytes / sizeof(float);
    o.count = (int)(per_rank ? whole / (size_t)o.ranks : whole);
    o.src = allocate(whole);
    o.dst = allocate(whole);
    o.scratch = allocate(whole);
    int64_t wrong = measure(name, known, &o, seconds, least);
    free(o.src);
    free(o.dst);
    free(o.scratch);
    return wrong;
}

/* Measure the cases of the command line; `known` ends with an entry without a name. */
static int run_cases(int argc, char **argv, const struct collective *known)
{
    if (argc < 4 || (strcmp(argv[1], "single") != 0 && strcmp(argv[1], "multiple") != 0)) {
        fprintf(stderr, "usage: %s single|multiple SECONDS ITERATIONS COLLECTIVE/in|out/BYTES...\n", argv[0]);
        return 2;
    }
    int level = strcmp(argv[1], "single") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided, rank, length;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init_thread(NULL, NULL, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (provided != level) {
        fprintf(stderr, "thread level: the library does not provide %s\n", argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\n")] = '\0';
    for (char *tab = library; (tab = strchr(tab, '\t')) != NULL;)
        *tab = ' '; /* JSON has no tabs in strings */
    if (rank == 0)
        printf("{\"library\": \"%s\", \"threads\": \"%s\"}\n", library, argv[1]);
    int64_t wrong = 0;
    for (int i = 4; i < argc; i++)
        wrong += run_case(argv[i], known, atof(argv[2]), atoi(argv[3]));
    MPI_Finalize();
    return wrong != 0;
}

#endif
