/* The counting library: which collectives an unchanged program calls, how large they are, and how long they take.
 *
 * LD_PRELOAD brings it into the program; HPCCOLL_COUNT names the directory of the ranks' files. It has entries of its
 * own for the MPI functions, calls the library's PMPI_ functions with the same arguments, and counts what succeeded.
 *
 * Nothing here includes mpi.h, so that one binary serves MPICH, Open MPI and the standard ABI of MPI 5.0: a handle is an
 * int or a pointer, and both are passed in a 64-bit register or stack slot (executor.h). A word whose type is int has
 * garbage in its upper half.
 */
#ifndef HPCCOLL_COUNTING_H
#define HPCCOLL_COUNTING_H

#define _GNU_SOURCE /* before the first system header */

#include <stdatomic.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef intptr_t word;

/* Every MPI function is called with as many words as the longest one takes: the callee reads those that it has. */
#define WORDS 12
typedef word mpi_function(word, word, word, word, word, word, word, word, word, word, word, word);

/* ---- mpi_library.c: the program's MPI library -------------------------------------------------------------------- */

enum abi { MPICH, OPEN_MPI, STANDARD };

typedef struct {
    enum abi abi;
    char path[512];              /* the file that has its functions */
    uintptr_t begin, end;        /* where that file is in memory: a call from there is not the program's */
    word world, self;            /* MPI_COMM_WORLD, MPI_COMM_SELF */
    word in_place;               /* MPI_IN_PLACE */
    word fortran_in_place[2];    /* what Fortran passes for it, an address; 0 where there is none */
    const word *fortran_in_place_of_mpich; /* where MPICH keeps it, set in its MPI_Init; NULL in other libraries */
    int thread_multiple;         /* MPI_THREAD_MULTIPLE */
    int cartesian, graph, distributed_graph; /* what MPI_Topo_test says */
} mpi_library;

const mpi_library *library(void);              /* finds it at the first call */
mpi_function *find_function(const char *name); /* NULL if the library lacks it */
word call_library(const char *name, mpi_function *_Atomic *cache, const word *arguments);

/* Calls a function of the library by its name, found once. */
#define MPI(name, ...)                                                                                                 \
    ({                                                                                                                 \
        static mpi_function *_Atomic cached_function;                                                                  \
        const word argument_words[WORDS] = {__VA_ARGS__};                                                              \
        (int)call_library("PMPI_" #name, &cached_function, argument_words);                                            \
    })

word as_handle(word passed);                   /* without the garbage above an int */
word comm_of_fortran(word passed);             /* the handle of C, from the address of the handle of Fortran */
word type_of_fortran(word passed);
word request_of_fortran(word passed);
word op_of_fortran(word passed);
word read_handle(const void *address);         /* of C, in memory */
int is_null_comm(word comm);
int operation_number(word op);                 /* 0: none */
const char *operation_name(int number);

enum { DERIVED_TYPE = 255 };
typedef struct { int number; int64_t size; } type_facts; /* number 0: none */
type_facts facts_of_type(word type);
const char *type_name(int number);

/* ---- communicators.c ---------------------------------------------------------------------------------------------- */

enum { MAX_GROUPS = 1024, OTHER_GROUPS = MAX_GROUPS - 1 };

typedef struct {
    int group;     /* communicators with the same ranks in the same order, created alike */
    int blocks;    /* ranks with which one exchanges: of an intercommunicator those of the other group */
    int size;      /* ranks of the own group */
    int sources, targets; /* neighbours from which and to which one sends; 0 without a topology */
    int is_inter;
} communicator;

communicator facts_of_comm(word comm);
void add_comm(word comm, const char *created_by);
void remove_comm(word comm);

/* ---- counters.c --------------------------------------------------------------------------------------------------- */

typedef struct {
    int function; /* a row of the table of functions */
    int group;
    int type;     /* see type_name */
    int operation;
    int in_place;
    int64_t bytes;
} call_kind;

void count_call(const call_kind *kind, int64_t ns, int64_t wait_ns);
void leave_out_call(void); /* one for which a table has no place */
int64_t now_ns(void);

enum end { RUNNING, FINALIZED, ABORTED, EXITED };
/* After MPI is initialized; again is harmless. With barriers only if that is in MPI_Init: else ranks would begin at
 * different calls, and a barrier of one rank would meet another call of the other. */
void start_counting(int is_in_init);
void finish_counting(enum end end); /* writes the rank's file for the last time */
int is_counting(void);
int waits_apart(void);              /* whether a barrier precedes each blocking collective */
void write_if_due(int64_t now);     /* so that little is lost if the program is killed */
void calibrate(void);               /* what counting a call takes: wrappers.c */
void set_cost_of_call(int64_t picoseconds);
const char *function_name(int function); /* the collective */
const char *variant_name(int function);  /* blocking, nonblocking or persistent */
enum { CALIBRATION = 0 };           /* the row of calls that are not the program's */

/* ---- functions.c: the collectives, and what their arguments say --------------------------------------------------- */

/* How the bytes of a call follow from its arguments. */
enum form {
    NO_BYTES,
    ONE_COUNT,      /* a vector: count elements */
    EACH_BLOCK,     /* count elements with each rank */
    SUM_OF_COUNTS,  /* an array of counts, one for each rank */
    SUM_OF_TYPES,   /* the same, and an array of types */
    EACH_TARGET,    /* count elements with each neighbour to which one sends */
    SUM_TO_TARGETS, /* an array of counts, one for each such neighbour */
    TYPES_TO_TARGETS,
};

/* A collective: the places of its arguments, from 0; -1 where it has no such argument. Variants have further arguments
 * at the end: a nonblocking one a request, a persistent one an info and a request, and Fortran an error code. */
typedef struct {
    const char *name;
    const char *arguments; /* a letter for each: fallback.c */
    enum form form;
    int8_t in_place;               /* the buffer that MPI_IN_PLACE replaces */
    int8_t count, type;            /* what tells the bytes */
    int8_t placed_count, placed_type; /* what tells them in place, where the former mean nothing */
    int8_t counts_are_array;       /* placed_count is an array, of which the root's own element counts */
    int8_t op, root, comm;
} collective;

enum variant { BLOCKING, NONBLOCKING, PERSISTENT, VARIANTS };

/* The binding by which a call came. */
typedef struct { int is_fortran, is_wide; } binding; /* wide: counts are MPI_Count */

extern const collective collectives[];
int number_of_collectives(void);
call_kind describe_call(int collective_number, enum variant variant, binding by, const word *arguments);
word comm_of_call(const collective *called, binding by, const word *arguments);

/* ---- fallback.c: calls with large counts, to a library without them ------------------------------------------------- */

word call_narrow(mpi_function *function, const collective *called, enum variant variant, const word *arguments);

/* ---- requests.c: persistent collectives, counted at their start ------------------------------------------------------ */

void add_request(word request, const call_kind *kind);
int find_request(word request, call_kind *kind);
void remove_request(word request);

/* ---- tables.c: handles of the program, in tables of fixed size that are read without a lock ------------------------ */

enum { TABLE_SIZE = 8192, LONGEST_PROBE = 64 };
typedef struct {
    _Atomic word keys[TABLE_SIZE];
    _Atomic int64_t values[TABLE_SIZE];
} handle_table;

int find_handle(handle_table *table, word handle, int64_t *value);
int put_handle(handle_table *table, word handle, int64_t value); /* 0 if the table is full */
int64_t take_handle(handle_table *table, word handle);           /* removes it; returns its value, or -1 */

#endif
