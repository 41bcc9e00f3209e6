/* How far definitions of the time of an all-reduce are apart, on one machine and in one launch.
 *
 * Usage: mpiexec -n 2 ./definitions ROUNDS ITERATIONS BYTES...
 *
 * In each round every size is measured in two loops, one directly after the other. In the first, ranks wait in
 * MPI_Barrier before each operation and read the clock before and after it. From its times come our number (the median
 * over iterations of the slowest rank), the mean of the slowest rank, and the number of the OSU benchmarks (the mean
 * over iterations, then over ranks). The second loop runs the operations back to back between two readings of the clock,
 * as nccl-tests does: the mean over operations, then over ranks. Buffers are not refilled, so that the loops differ in
 * nothing else. Rank 0 prints one JSON line for each round and size, in seconds.
 */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARMUP = 5 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

/* Return the mean of a value over ranks, at rank 0. */
static double over_ranks(double value, int ranks)
{
    double sum = 0;
    MPI_Reduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum / ranks;
}

static void measure(int round, int bytes, int iterations, int rank, int ranks)
{
    int count = bytes / (int)sizeof(float);
    float *source = calloc((size_t)count, sizeof *source), *result = calloc((size_t)count, sizeof *result);
    double *times = calloc((size_t)iterations, sizeof *times), *slowest = calloc((size_t)iterations, sizeof *slowest);
    for (int i = -WARMUP; i < iterations; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(source, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0)
            times[i] = MPI_Wtime() - start;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < iterations; i++)
        MPI_Allreduce(source, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double queued = over_ranks((MPI_Wtime() - start) / iterations, ranks);
    double mean_of_all = over_ranks(mean(times, iterations), ranks);
    MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        double mean_of_slowest = mean(slowest, iterations);
        qsort(slowest, (size_t)iterations, sizeof *slowest, by_size);
        double median = 0.5 * (slowest[(iterations - 1) / 2] + slowest[iterations / 2]);
        printf("{\"round\": %d, \"bytes\": %d, \"median_slowest_s\": %.9g, \"mean_slowest_s\": %.9g, "
               "\"mean_all_s\": %.9g, \"mean_queued_s\": %.9g}\n",
               round, bytes, median, mean_of_slowest, mean_of_all, queued);
        fflush(stdout);
    }
    free(source);
    free(result);
    free(times);
    free(slowest);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 1; argc > 3 && round <= atoi(argv[1]); round++)
        for (int size = 3; size < argc; size++)
            measure(round, atoi(argv[size]), atoi(argv[2]), rank, ranks);
    MPI_Finalize();
    return argc > 3 ? 0 : 2;
}
