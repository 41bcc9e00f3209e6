/* A plain blocking ring all-reduce, as in a textbook; loop.h says how it is called and what it prints. */

#include "loop.h"

struct segment {
    float *data;
    int count;
};

/* One of p segments of dst; the first ones are one element longer if the elements do not divide evenly. */
static struct segment segment(const struct operation *o, int number)
{
    int p = o->ranks, k = (number % p + p) % p, share = o->count / p, rest = o->count % p;
    return (struct segment){o->dst + (size_t)k * share + (k < rest ? k : rest), share + (k < rest)};
}

static void fold(float *restrict into, const float *restrict from, int count)
{
    for (int i = 0; i < count; i++)
        into[i] += from[i];
}

static void ring(const struct operation *o)
{
    int p = o->ranks, me = o->rank, right = (me + 1) % p, left = (me + p - 1) % p;
    if (!o->in_place)
        memcpy(o->dst, o->src, (size_t)o->count * sizeof(float));
    for (int step = 0; step < p - 1; step++) { /* reduce-scatter: segment me + 1 ends here */
        struct segment sent = segment(o, me - step), arrived = segment(o, me - step - 1);
        MPI_Sendrecv(sent.data, sent.count, MPI_FLOAT, right, 0, o->scratch, arrived.count, MPI_FLOAT, left, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fold(arrived.data, o->scratch, arrived.count);
    }
    for (int step = 0; step < p - 1; step++) { /* all-gather */
        struct segment sent = segment(o, me - step + 1), arrived = segment(o, me - step);
        MPI_Sendrecv(sent.data, sent.count, MPI_FLOAT, right, 0, arrived.data, arrived.count, MPI_FLOAT, left, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    static const struct collective known[] = {{"all_reduce", ring}, {NULL, NULL}};
    return run_cases(argc, argv, known);
}
