/* Runs random programs of MPI calls, which it reads from a file: a line is a call, the same on all ranks.
 *
 *     counted_program FILE
 *
 * A rank writes a digest of what each call returned, and at its end which calls it has made, as it counts them itself:
 * "calls COLLECTIVE VARIANT CALLS BYTES". With -DFORTRAN, calls also go through the library's functions for Fortran. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS = 16, ELEMENTS = 4096, REQUESTS = 8, KINDS = 24 };

static MPI_Comm comms[COMMS];
static int rank_in_world;
static uint64_t digest = 14695981039346656037u;

/* ---- what the program itself knows of its calls ----------------------------------------------------------------- */

static struct { const char *collective, *variant; long calls, bytes; } kinds[KINDS];
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *collective, const char *variant, long bytes) {
    pthread_mutex_lock(&noting);
    for (int i = 0; i < KINDS; i++) {
        if (!kinds[i].collective) kinds[i].collective = collective, kinds[i].variant = variant;
        if (strcmp(kinds[i].collective, collective) || strcmp(kinds[i].variant, variant)) continue;
        kinds[i].calls++, kinds[i].bytes += bytes;
        break;
    }
    pthread_mutex_unlock(&noting);
}

static void digest_bytes(const void *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) digest = (digest ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
}

/* ---- calls -------------------------------------------------------------------------------------------------------- */

typedef struct { char name[32]; int comm, count, type, op, root, in_place; } call;

static MPI_Datatype type_of(int number, int *size) {
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_LONG};
    const int sizes[] = {4, 8, 4, sizeof(long)};
    *size = sizes[number];
    return types[number];
}

static MPI_Op op_of(int number) {
    MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};
    return ops[number];
}

static void fill(double *buffer, const call *made) {
    memset(buffer, 0, ELEMENTS * sizeof *buffer);
    for (int i = 0; i < made->count * 4 && i < ELEMENTS; i++) {
        const int value = (rank_in_world * 7 + i * 3 + made->op) % 5 + 1;
        if (made->type == 0) ((int *)buffer)[i] = value;
        else if (made->type == 1) ((double *)buffer)[i] = value;
        else if (made->type == 2) ((float *)buffer)[i] = (float)value;
        else ((long *)buffer)[i] = value;
    }
}

#ifdef FORTRAN
void mpi_allreduce_(void *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
void mpi_bcast_(void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
void mpi_barrier_(MPI_Fint *, MPI_Fint *);
void mpi_allgather_(void *, MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
#endif

static void run_fortran(const call *made, MPI_Comm comm, int p, double *from, double *to) {
#ifdef FORTRAN
    int size;
    MPI_Datatype type = type_of(made->type, &size);
    MPI_Fint count = made->count, handle = MPI_Type_c2f(type), op = MPI_Op_c2f(op_of(made->op)), on = MPI_Comm_c2f(comm);
    MPI_Fint root = made->root % p, error = 0;
    if (!strcmp(made->name, "f_allreduce")) {
        mpi_allreduce_(from, to, &count, &handle, &op, &on, &error);
        note("Allreduce", "blocking", (long)count * size);
    } else if (!strcmp(made->name, "f_bcast")) {
        memcpy(to, from, ELEMENTS * sizeof *to);
        mpi_bcast_(to, &count, &handle, &root, &on, &error);
        note("Bcast", "blocking", (long)count * size);
    } else if (!strcmp(made->name, "f_allgather")) {
        mpi_allgather_(from, &count, &handle, to, &count, &handle, &on, &error);
        note("Allgather", "blocking", (long)count * size * p);
    } else {
        mpi_barrier_(&on, &error);
        note("Barrier", "blocking", 0);
    }
    digest_bytes(&error, sizeof error);
#else
    (void)made, (void)comm, (void)p, (void)from, (void)to;
#endif
}

static void run_vector(const call *made, MPI_Comm comm, int p, int me, double *from, double *to) {
    int size, counts[64], displacements[64], total = 0;
    MPI_Datatype type = type_of(made->type, &size);
    for (int i = 0; i < p; i++) counts[i] = (made->count + i) % 7, displacements[i] = total, total += counts[i];
    if (!strcmp(made->name, "allgatherv")) {
        MPI_Allgatherv(from, counts[me], type, to, counts, displacements, type, comm);
        note("Allgatherv", "blocking", (long)total * size);
    } else if (!strcmp(made->name, "alltoallv")) {
        int same[64], places[64];
        for (int i = 0; i < p; i++) same[i] = made->count % 7, places[i] = i * 8;
        MPI_Alltoallv(from, same, places, type, to, same, places, type, comm);
        note("Alltoallv", "blocking", (long)(made->count % 7) * p * size);
    } else if (!strcmp(made->name, "reduce_scatter")) {
        MPI_Reduce_scatter(from, to, counts, type, op_of(made->op), comm);
        note("Reduce_scatter", "blocking", (long)total * size);
    } else if (!strcmp(made->name, "gatherv")) {
        const int root = made->root % p;
        void *source = made->in_place && me == root ? MPI_IN_PLACE : from;
        MPI_Gatherv(source, counts[me], type, to, counts, displacements, type, root, comm);
        note("Gatherv", "blocking", (long)counts[me] * p * size);
    } else {
        const int root = made->root % p;
        void *target = made->in_place && me == root ? MPI_IN_PLACE : to;
        MPI_Scatterv(from, counts, displacements, type, target, counts[me], type, root, comm);
        note("Scatterv", "blocking", (long)counts[me] * p * size);
    }
}

static void run_derived(const call *made, MPI_Comm comm, int p, double *to) {
    MPI_Datatype type;
    MPI_Type_vector(2, 1, 3, MPI_INT, &type);
    MPI_Type_commit(&type);
    const int count = made->count % 9;
    MPI_Bcast(to, count, type, made->root % p, comm);
    MPI_Type_free(&type);
    note("Bcast", "blocking", 8L * count);
}

static void run_persistent(const call *made, MPI_Comm comm, double *from, double *to) {
#if MPI_VERSION >= 4
    int size;
    MPI_Datatype type = type_of(made->type, &size);
    MPI_Request request;
    MPI_Allreduce_init(from, to, made->count, type, op_of(made->op), comm, MPI_INFO_NULL, &request);
    for (int i = 0; i < 1 + made->root % 3; i++) {
        if (i % 2) MPI_Startall(1, &request);
        else MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        note("Allreduce", "persistent", (long)made->count * size);
    }
    MPI_Request_free(&request);
#else
    (void)made, (void)comm, (void)from, (void)to;
#endif
}

static void run_nonblocking(const call *made, MPI_Comm comm, int p, double *from, double *to) {
    int size;
    MPI_Datatype type = type_of(made->type, &size);
    MPI_Request requests[2];
    double *copy = calloc(ELEMENTS, sizeof *copy);
    memcpy(copy, from, ELEMENTS * sizeof *copy);
    MPI_Iallreduce(from, to, made->count, type, op_of(made->op), comm, &requests[0]);
    MPI_Ibcast(copy, made->count, type, made->root % p, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    digest_bytes(copy, (size_t)made->count * size);
    note("Allreduce", "nonblocking", (long)made->count * size);
    note("Bcast", "nonblocking", (long)made->count * size);
    free(copy);
}

static void run_error(const call *made, MPI_Comm comm, int p, double *to) {
    int class = 0;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Bcast(to, 1, MPI_INT, p + made->root, comm), &class); /* is not counted */
    digest_bytes(&class, sizeof class);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

/* Calls between rank 0, which is the root, and the others: groups of different sizes. */
static void run_inter(const call *made, MPI_Comm comm, int p, int me, double *from, double *to) {
    if (p < 2) return;
    int size;
    MPI_Comm half, inter;
    MPI_Datatype type = type_of(made->type, &size);
    const int is_first = me == 0, others = p - 1, count = made->count % 50;
    const int root = is_first ? MPI_ROOT : 0;
    const long vector = (long)others * count * size;
    MPI_Comm_split(comm, is_first, me, &half);
    MPI_Intercomm_create(half, 0, comm, is_first ? 1 : 0, 5, &inter);
    MPI_Gather(from, count, type, to, count, type, root, inter);
    note("Gather", "blocking", is_first ? 0 : vector);
    MPI_Scatter(from, count, type, to, count, type, root, inter);
    note("Scatter", "blocking", is_first ? 0 : vector);
    MPI_Reduce_scatter_block(from, to, is_first ? others * count : count, type, MPI_SUM, inter);
    note("Reduce_scatter_block", "blocking", vector);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

typedef struct { MPI_Comm comm; int rounds; double sum; } work;

static void *run_thread(void *of) {
    work *does = of;
    for (int i = 0; i < does->rounds; i++) {
        double one = i, sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, does->comm);
        does->sum += sum;
        note("Allreduce", "blocking", 8);
    }
    return NULL;
}

static void run_threads(const call *made, MPI_Comm comm) {
    work works[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) MPI_Comm_dup(comm, &works[i].comm), works[i].rounds = made->count % 20, works[i].sum = 0;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run_thread, &works[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL), digest_bytes(&works[i].sum, 8), MPI_Comm_free(&works[i].comm);
}

static void run_uniform(const call *made, MPI_Comm comm, int p, int me, double *from, double *to) {
    int size;
    MPI_Datatype type = type_of(made->type, &size);
    const int count = made->count, root = made->root % p;
    const long vector = (long)count * size;
    void *source = made->in_place ? MPI_IN_PLACE : from, *at_root = made->in_place && me == root ? MPI_IN_PLACE : from;
    const char *name = made->name;
    if (!strcmp(name, "allreduce")) MPI_Allreduce(source, to, count, type, op_of(made->op), comm), note("Allreduce", "blocking", vector);
    else if (!strcmp(name, "reduce")) MPI_Reduce(at_root, to, count, type, op_of(made->op), root, comm), note("Reduce", "blocking", vector);
    else if (!strcmp(name, "bcast")) MPI_Bcast(to, count, type, root, comm), note("Bcast", "blocking", vector);
    else if (!strcmp(name, "scan")) MPI_Scan(source, to, count, type, op_of(made->op), comm), note("Scan", "blocking", vector);
    else if (!strcmp(name, "barrier")) MPI_Barrier(comm), note("Barrier", "blocking", 0);
    else if (!strcmp(name, "allgather")) MPI_Allgather(source, count, type, to, count, type, comm), note("Allgather", "blocking", vector * p);
    else if (!strcmp(name, "alltoall")) MPI_Alltoall(source, count, type, to, count, type, comm), note("Alltoall", "blocking", vector * p);
    else if (!strcmp(name, "gather")) MPI_Gather(at_root, count, type, to, count, type, root, comm), note("Gather", "blocking", vector * p);
    else if (!strcmp(name, "scatter")) {
        void *target = made->in_place && me == root ? MPI_IN_PLACE : (void *)to;
        MPI_Scatter(from, count, type, target, count, type, root, comm), note("Scatter", "blocking", vector * p);
    } else if (!strcmp(name, "reduce_scatter_block")) {
        MPI_Reduce_scatter_block(from, to, count, type, op_of(made->op), comm), note("Reduce_scatter_block", "blocking", vector * p);
    } else fprintf(stderr, "unknown call %s\n", name), MPI_Abort(MPI_COMM_WORLD, 9);
}

static void create(const call *made, MPI_Comm comm) {
    MPI_Comm *place = &comms[1 + made->root % (COMMS - 1)];
    if (comm == MPI_COMM_NULL || comm == *place) return;
    if (*place != MPI_COMM_NULL) MPI_Comm_free(place);
    int me;
    MPI_Comm_rank(comm, &me);
    if (!strcmp(made->name, "dup")) MPI_Comm_dup(comm, place);
    else MPI_Comm_split(comm, me % (1 + made->count % 3), made->op % 2 ? -me : me, place);
}

static void run_call(const call *made) {
    static double from[ELEMENTS], to[ELEMENTS];
    MPI_Comm comm = comms[made->comm % COMMS];
    int p = 0, me = 0;
    if (!strcmp(made->name, "dup") || !strcmp(made->name, "split")) {
        create(made, comm);
        return;
    }
    if (comm == MPI_COMM_NULL) comm = MPI_COMM_WORLD;
    MPI_Comm_size(comm, &p), MPI_Comm_rank(comm, &me);
    fill(from, made), fill(to, made);
    if (!strncmp(made->name, "f_", 2)) run_fortran(made, comm, p, from, to);
    else if (!strcmp(made->name, "derived")) run_derived(made, comm, p, to);
    else if (!strcmp(made->name, "persistent")) run_persistent(made, comm, from, to);
    else if (!strcmp(made->name, "nonblocking")) run_nonblocking(made, comm, p, from, to);
    else if (!strcmp(made->name, "threads")) run_threads(made, comm);
    else if (!strcmp(made->name, "error")) run_error(made, comm, p, to);
    else if (!strcmp(made->name, "inter")) run_inter(made, comm, p, me, from, to);
    else if (strchr("v", made->name[strlen(made->name) - 1]) || !strcmp(made->name, "reduce_scatter")) run_vector(made, comm, p, me, from, to);
    else run_uniform(made, comm, p, me, from, to);
    digest_bytes(to, sizeof to);
}

int main(int count, char **arguments) {
    int level, code = 0;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_in_world);
    comms[0] = MPI_COMM_WORLD;
    for (int i = 1; i < COMMS; i++) comms[i] = MPI_COMM_NULL;
    FILE *file = fopen(arguments[1], "r");
    call made;
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "exit %d", &code) == 1) break;
        if (sscanf(line, "%31s %d %d %d %d %d %d", made.name, &made.comm, &made.count, &made.type, &made.op, &made.root, &made.in_place) == 7)
            run_call(&made);
    }
    printf("digest %d %016llx\n", rank_in_world, (unsigned long long)digest);
    for (int i = 0; i < KINDS && kinds[i].collective; i++)
        printf("calls %d %s %s %ld %ld\n", rank_in_world, kinds[i].collective, kinds[i].variant, kinds[i].calls, kinds[i].bytes);
    fflush(stdout);
    MPI_Finalize();
    return code;
}
