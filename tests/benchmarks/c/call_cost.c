/* How long a collective of one rank takes: nearly all of it is entering and leaving the library.
 *
 *     call_cost CALLS    # prints the nanoseconds of a call of each kind, the least of seven rounds */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7 };

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    const int calls = count > 1 ? atoi(arguments[1]) : 100000;
    double from[4] = {1}, to[4];
    int counts[1] = {4}, places[1] = {0};
    MPI_Datatype vector;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    double least[4] = {1e12, 1e12, 1e12, 1e12};
    for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < 4; kind++) {
            const double begin = now_ns();
            for (int i = 0; i < calls; i++) {
                if (kind == 0) MPI_Barrier(MPI_COMM_SELF);
                else if (kind == 1) MPI_Allreduce(from, to, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
                else if (kind == 2) MPI_Bcast(from, 1, vector, 0, MPI_COMM_SELF);
                else MPI_Alltoallv(from, counts, places, MPI_DOUBLE, to, counts, places, MPI_DOUBLE, MPI_COMM_SELF);
            }
            const double ns = (now_ns() - begin) / calls;
            if (ns < least[kind]) least[kind] = ns;
        }
    }
    printf("barrier %.1f allreduce %.1f bcast-of-a-derived-type %.1f alltoallv %.1f\n", least[0], least[1], least[2], least[3]);
    MPI_Type_free(&vector);
    MPI_Finalize();
    return 0;
}
