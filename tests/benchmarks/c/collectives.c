/* A plain loop of the MPI library's own collectives; loop.h says how it is called and what it prints. */

#include "loop.h"

static const void *source(const struct operation *o)
{
    return o->in_place ? MPI_IN_PLACE : o->src;
}

static void all_reduce(const struct operation *o)
{
    MPI_Allreduce(source(o), o->dst, o->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(const struct operation *o)
{
    MPI_Bcast(o->dst, o->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_gather(const struct operation *o)
{
    MPI_Allgather(source(o), o->count, MPI_FLOAT, o->dst, o->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void all_to_all(const struct operation *o)
{
    MPI_Alltoall(source(o), o->count, MPI_FLOAT, o->dst, o->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void barrier(const struct operation *o)
{
    (void)o;
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const struct collective known[] = {{"all_reduce", all_reduce}, {"broadcast", broadcast},
                                              {"all_gather", all_gather}, {"all_to_all", all_to_all},
                                              {"barrier", barrier},       {NULL, NULL}};
    return run_cases(argc, argv, known);
}
