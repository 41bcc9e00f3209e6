/* Calls with counts of MPI_Count, to a library that only has the functions with counts of int.
 *
 * mpi4py asks by weak symbols whether the library has the former. The counting library has them, so they must work with
 * Open MPI 5, which has not. Arrays of counts become arrays of int. A nonblocking or persistent call needs them until it
 * has ended, which nobody sees here: they are kept until the library gives the same request to a later call. */

#include "counting.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CANNOT = 16, MAX_ARRAYS = 4 }; /* an error class of every library: MPI_ERR_OTHER, or near it */

/* Returns how long an argument is if it is an array of counts that matters on this rank; else 0. */
static int length_of(char letter, const communicator *facts, int is_root) {
    switch (letter) {
    case 'S': return facts->blocks;
    case 'L': return facts->size;
    case 'O': return facts->targets;
    case 'I': return facts->sources;
    case 'R': return is_root ? facts->blocks : 0;
    default: return 0;
    }
}

static int is_root_of(const collective *called, word comm, const communicator *facts, const word *arguments) {
    if (called->root < 0) return 0;
    int32_t rank = -1;
    const int32_t root = (int32_t)arguments[called->root];
    if (facts->is_inter) return root == (library()->abi == MPICH ? -3 : -4); /* MPI_ROOT */
    MPI(Comm_rank, comm, (word)&rank);
    return rank == root;
}

static int32_t *narrowed(const int64_t *wide, int length) {
    int32_t *narrow = malloc(sizeof(int32_t) * (size_t)(length ? length : 1));
    for (int i = 0; narrow && i < length; i++) {
        if (wide[i] > INT_MAX || wide[i] < INT_MIN) {
            free(narrow);
            return NULL;
        }
        narrow[i] = (int32_t)wide[i];
    }
    return narrow;
}

static void free_arrays(void **arrays) {
    for (int i = 0; arrays && i < MAX_ARRAYS; i++) free(arrays[i]);
    free(arrays);
}

static handle_table kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

static void keep_arrays(word request, void **arrays) {
    pthread_mutex_lock(&keeping);
    const int64_t earlier = take_handle(&kept, request);
    if (earlier != -1) free_arrays((void **)earlier);
    put_handle(&kept, request, (int64_t)arrays); /* where the table is full they are never freed */
    pthread_mutex_unlock(&keeping);
}

word call_narrow(mpi_function *function, const collective *called, enum variant variant, const word *arguments) {
    word a[WORDS];
    const word comm = arguments[called->comm];
    void **arrays = calloc(MAX_ARRAYS, sizeof(void *));
    int count = 0, failed = !arrays;
    memcpy(a, arguments, sizeof a);
    communicator facts = {0};
    if (!is_null_comm(comm)) facts = facts_of_comm(comm);
    const int is_root = is_root_of(called, comm, &facts, arguments);
    for (int i = 0; called->arguments[i] && !failed; i++) {
        const char letter = called->arguments[i];
        if (letter == 'c' && (a[i] > INT_MAX || a[i] < INT_MIN)) failed = 1;
        const int length = length_of(letter, &facts, is_root);
        if (!length || !a[i]) continue;
        arrays[count] = narrowed((const int64_t *)a[i], length);
        failed = !arrays[count];
        a[i] = (word)arrays[count++];
    }
    word result = CANNOT;
    if (!failed) result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    const int request_at = called->comm + (variant == PERSISTENT ? 2 : 1);
    if (!failed && count && variant != BLOCKING && !(int)result) keep_arrays(read_handle((const void *)a[request_at]), arrays);
    else free_arrays(arrays);
    return result;
}
