/* The compiled executor: plans as arrays, run by calls of the MPI library's own functions.
 *
 * Nothing here includes mpi.h, so that one binary serves every MPI library. Python gives the addresses of the library's
 * functions, the size of its request handles and the values of its other handles. A handle is an int (MPICH) or a
 * pointer (Open MPI, the standard ABI of MPI 5.0); both are passed as intptr_t, because the calling conventions of
 * Linux (x86-64, AArch64, ppc64le) pass each integer and each pointer in a 64-bit register or stack slot of its own.
 *
 * structures.py reads the structures, the enumerations and the constants from this file: a field is an integer of fixed
 * size, a pointer, a structure from above, or an array of one of them, and a structure ends in `} name_t;`.
 */
#ifndef HPCCOLL_EXECUTOR_H
#define HPCCOLL_EXECUTOR_H

#define _GNU_SOURCE /* before the first system header */

#include <stdatomic.h>
#include <stdint.h>

#define HPCCOLL_API __attribute__((visibility("default")))

/* A word that one rank writes and other ranks of its node read, alone in its cache line. */
typedef _Atomic int64_t word_t;

/* ---- local work ------------------------------------------------------------------------------------------------- */

enum work_kind { WORK_COPY, WORK_FOLD, WORK_SCALE };

/* target := a | target := fold(a, b) | target := target / workers */
typedef struct {
    int32_t kind;    /* enum work_kind */
    int32_t kernel;  /* of a fold: operation * DTYPES + dtype; of a scale: the dtype */
    int64_t count;   /* bytes of a copy, elements otherwise */
    void *target;
    const void *a;
    const void *b;
    int64_t workers; /* the divisor of a scale */
} work_t;

/* The kernels: NumPy's ufuncs, and the dtypes of elements. */
enum operation { OPERATION_ADD, OPERATION_MULTIPLY, OPERATION_MINIMUM, OPERATION_MAXIMUM };
enum dtype {
    DTYPE_UINT8, DTYPE_INT32, DTYPE_INT64, DTYPE_FLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_BFLOAT16, DTYPES
};

typedef void fold_t(void *target, const void *a, const void *b, int64_t count);
typedef void scale_t(void *target, int64_t count, int64_t workers);

extern fold_t *const fold_kernels[]; /* [operation * DTYPES + dtype]; NULL where the compiler lacks the dtype */
extern scale_t *const scale_kernels[DTYPES];

void do_work(const work_t *work, int64_t count);

/* ---- the MPI library -------------------------------------------------------------------------------------------- */

typedef struct {
    int (*startall)(int count, void *requests);
    int (*testall)(int count, void *requests, int *flag, void *statuses);
    int (*testsome)(int count, void *requests, int *completed, int *indices, void *statuses);
    int (*isend)(const void *data, int64_t count, intptr_t datatype, int peer, int tag, intptr_t comm, void *request);
    int (*irecv)(void *data, int64_t count, intptr_t datatype, int peer, int tag, intptr_t comm, void *request);
    int (*iprobe)(int source, int tag, intptr_t comm, int *flag, void *status);
    intptr_t request_size; /* bytes of a request handle */
} mpi_t;

/* A blocking call of the library: extra arguments are ignored by the callee, because the caller cleans the stack. */
#define CALL_ARGUMENTS 12
typedef struct {
    int (*function)();
    intptr_t arguments[CALL_ARGUMENTS];
} call_t;

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* A rank with a core of its own spins, and then yields, because other programs may use its core, too. A rank that shares
 * its core with other ranks yields at once, and then sleeps. */
typedef struct {
    int64_t shares_core;
    int64_t since_ns; /* the begin of a wait without progress; 0 before the first look at the clock */
    int64_t polls;
} idle_t;

/* Drives the library's progress: it looks for a message that no rank sends. A peer may wait for bytes of an earlier
 * message that the library has buffered, while this rank waits for a word of that peer. */
typedef struct {
    const mpi_t *mpi;
    intptr_t comm;
    int64_t rank; /* this rank, which sends nothing to itself */
    char *status;
} probe_t;

int probe(const probe_t *probe);
int idle(idle_t *state, const probe_t *probe); /* returns an error code of MPI */
void end_idle(idle_t *state);
int64_t now_ns(void);

/* ---- plans ------------------------------------------------------------------------------------------------------ */

/* A message that is started anew in every run; plans with few messages have persistent requests instead. */
typedef struct {
    void *data;
    int64_t count;
    intptr_t datatype;
    int32_t sends;
    int32_t peer;
    int32_t tag;
} message_t;

/* A signal in shared memory: run number x signals of the word in a run + ordinal is what the word holds afterwards. */
typedef struct {
    word_t *word;
    int64_t ordinal; /* from 1 */
    int64_t per_run;
} signal_t;

/* Half-open ranges of the plan's arrays. A step does `before`, raises `raised`, starts `messages`, waits for them and for
 * `awaited`, and does `after`. */
typedef struct {
    int64_t before, before_end;
    int64_t raised, raised_end;
    int64_t messages, messages_end;
    int64_t awaited, awaited_end;
    int64_t after, after_end;
} step_t;

/* A sequence: lanes that run one after another (schedule/lanes.py). Sequences advance independently. */
typedef struct {
    int64_t first, end;   /* its steps */
    int64_t at;           /* the current step; `end` after the last one */
    int64_t pending;      /* incomplete messages of the current step */
    int64_t next_awaited; /* the first signal that has not come */
} sequence_t;

enum failed_call { FAILED_NONE, FAILED_STARTALL, FAILED_START, FAILED_TEST, FAILED_PROBE, FAILED_CALL };

typedef struct {
    const work_t *works;
    const message_t *messages;
    const signal_t *signals;
    const step_t *steps;
    sequence_t *sequences;
    int64_t sequence_count;
    const call_t *calls;  /* blocking calls, before the sequences */
    int64_t call_count;
    char *requests;       /* persistent requests in the order of the messages; NULL if messages are started anew */
    char *active;         /* [sequence][slot]: the requests of the current steps */
    int64_t slots;        /* the largest number of messages of a step */
    int *indices;         /* room for the result of testsome */
    char *statuses;       /* likewise */
    probe_t probe;
    int64_t initial;      /* sequences that start at once; sequence i starts when sequence i - initial has ended a step */
    idle_t idle;
    int64_t runs;
    int64_t started;      /* sequences of the current run */
    int64_t running;
    int64_t failed;       /* enum failed_call */
    int64_t error;        /* MPI's error code */
} plan_t;

/* All return a negative number after an error, which the plan names. */
HPCCOLL_API int hpccoll_start(plan_t *plan);
HPCCOLL_API int hpccoll_run(plan_t *plan);
HPCCOLL_API int hpccoll_wait(plan_t *const *plans, int64_t count, int64_t needed, int64_t until_ns);
#define NEVER INT64_MAX

/* ---- the timing loop -------------------------------------------------------------------------------------------- */

/* All ranks leave it at the same time: inside a node by shared words, between nodes by messages of one rank of each. */
typedef struct {
    word_t *const *arrived; /* [rank of the node]; the first one is the leader */
    word_t *go;             /* when to leave, in ns of the node's clock; written by the leader */
    word_t *released;       /* the number of the barrier for which `go` holds */
    int64_t node_ranks;
    int64_t node_rank;
    char *requests;         /* of the leader: [round][2], persistent, without data; NULL on one node and elsewhere */
    int64_t rounds;
    char *statuses;
    probe_t probe;
    idle_t idle;
    int64_t passed;
    int64_t error;
} barrier_t;

int barrier_wait(barrier_t *barrier);

/* Rows of a buffer, each with its values: longer by one element for each further generation. */
typedef struct {
    char *buffer;
    const char *values;
    int64_t rows;
    int64_t row_bytes;
    int64_t values_bytes; /* from a row of values to the next */
    int64_t itemsize;
} block_t;

enum phase { PHASE_PREPARING, PHASE_WAITING, PHASE_RUNNING, PHASE_CHECKING };

typedef struct {
    plan_t *plan;
    barrier_t *barrier;
    const block_t *fill_blocks;     /* before each operation */
    int64_t fill_count;
    const block_t *compared_blocks; /* after each operation */
    int64_t compared_count;
    const block_t *guard_blocks;    /* memory that no operation may write; one row, one generation */
    int64_t guard_count;
    int64_t generations;
    int64_t generation;
    int64_t guards_dirty;    /* whether guards must be restored */
    volatile int64_t *progress; /* phase, iteration, heartbeats: read by a thread meanwhile */
} timed_case_t;

int64_t cpu_ns(void); /* of this process */

typedef struct {
    plan_t *plan;
    const call_t *barrier;      /* of the library, with its communicator */
    volatile int64_t *progress; /* as above */
    int64_t error;              /* of the barrier */
} repeated_case_t;

#endif
