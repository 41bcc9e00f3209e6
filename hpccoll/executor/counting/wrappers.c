/* The entries that the program calls instead of the MPI library's.
 *
 * Fortran has entries of its own. In MPICH a call of Fortran goes on to MPI_Allreduce and is counted there, with the
 * arguments of C. In Open MPI it goes on to PMPI_Allreduce, which nobody sees: it is counted with the arguments of Fortran.
 * mpi_f08 calls ompi_allreduce_f in Open MPI. In MPICH it calls MPI_Allreduce, but where there is no buffer, as in
 * MPI_Barrier and MPI_Comm_free, the PMPI_ function: these have an entry for it, too. */

#include "counting.h"

#include <stddef.h>

#define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
OF_THREAD int depth;      /* of calls of C: those that the library makes itself are not the program's */
OF_THREAD unsigned noted; /* calls that this thread has counted: tells Fortran whether C has done it */

/* Whether and how long Fortran has waited for the other ranks of a call. Each rank waits once: those that call C, those
 * whose Fortran goes on to C, and those whose Fortran goes on to PMPI, may be in the same call. */
OF_THREAD int fortran_has_waited;
OF_THREAD int64_t fortran_waited_ns;

static word call_function(mpi_function *function, const word *a) {
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

/* ---- finding functions ---------------------------------------------------------------------------------------------- */

/* Where an entry's function is. */
typedef struct {
    mpi_function *_Atomic function;
    _Atomic int is_narrow; /* the library has it only with counts of int */
} target;

enum { CANNOT = 16 }; /* as in fallback.c */
static word missing(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k, (void)l;
    return CANNOT;
}

static mpi_function *function_of(target *to, const char *name, const char *other_name, int other_is_narrow) {
    mpi_function *function = atomic_load_explicit(&to->function, memory_order_acquire);
    if (function) return function;
    library();
    function = find_function(name);
    if (!function && other_name) {
        function = find_function(other_name);
        if (function) atomic_store(&to->is_narrow, other_is_narrow);
    }
    if (!function) function = missing;
    atomic_store_explicit(&to->function, function, memory_order_release);
    return function;
}

static int is_of_library(const void *caller) {
    const mpi_library *mpi = library();
    return (uintptr_t)caller >= mpi->begin && (uintptr_t)caller < mpi->end;
}

/* ---- collectives ---------------------------------------------------------------------------------------------------- */

static int request_place(const collective *called, enum variant variant) {
    return called->comm + (variant == PERSISTENT ? 2 : 1);
}

static word request_of(binding by, word address) {
    if (!address) return 0; /* an error of the program, which the library reports */
    return by.is_fortran ? request_of_fortran(address) : read_handle((const void *)address);
}

typedef struct { int64_t begin_ns, end_ns, wait_ns; } duration;

/* Counts a call that has succeeded. */
static void note_call(int number, enum variant variant, binding by, const word *arguments, const duration *took) {
    noted++;
    if (!is_counting()) start_counting(0); /* MPI was initialized by a session, or where nobody saw it */
    if (!is_counting()) return;
    const call_kind kind = describe_call(number, variant, by, arguments);
    if (variant == PERSISTENT) add_request(request_of(by, arguments[request_place(&collectives[number], variant)]), &kind);
    else count_call(&kind, took->end_ns - took->begin_ns, took->wait_ns);
    write_if_due(took->end_ns);
}

/* Waits for the other ranks of a call, so that what remains is transfer; returns how long that took. */
static int64_t wait_for_others(const collective *called, binding by, const word *arguments) {
    if (!waits_apart() || !is_counting()) return 0;
    if (fortran_has_waited) return fortran_waited_ns;
    const int64_t begin = now_ns();
    MPI(Barrier, comm_of_call(called, by, arguments));
    return now_ns() - begin;
}

static word count_c(target *to, const char *name, const char *other_name, int number, enum variant variant, int is_wide,
                    const void *caller, const word *arguments) {
    mpi_function *function = function_of(to, name, other_name, 1);
    const collective *called = &collectives[number];
    const int is_narrow = is_wide && atomic_load_explicit(&to->is_narrow, memory_order_relaxed);
    const binding by = {0, is_wide};
    if (depth || is_of_library(caller)) {
        return is_narrow ? call_narrow(function, called, variant, arguments) : call_function(function, arguments);
    }
    depth++;
    duration took = {.wait_ns = variant == BLOCKING ? wait_for_others(called, by, arguments) : 0};
    took.begin_ns = now_ns();
    const word result = is_narrow ? call_narrow(function, called, variant, arguments) : call_function(function, arguments);
    took.end_ns = now_ns();
    if (!(int)result) note_call(number, variant, by, arguments, &took);
    depth--;
    return result;
}

/* The error code of Fortran is optional in mpi_f08. */
static int fortran_error(word address) { return address ? *(const int32_t *)address : 0; }

static word count_fortran(target *to, const char *name, const char *other_name, int number, enum variant variant,
                          const word *arguments) {
    mpi_function *function = function_of(to, name, other_name, 0);
    const collective *called = &collectives[number];
    const binding by = {1, 0};
    const unsigned noted_before = noted;
    const int error_at = called->comm + 1 + (int)variant; /* a request, or an info and a request, come before it */
    const int is_nested = fortran_has_waited; /* mpi_f08 calls mpif.h's function */
    duration took = {0};
    if (variant == BLOCKING) {
        took.wait_ns = fortran_waited_ns = wait_for_others(called, by, arguments);
        fortran_has_waited = 1;
    }
    took.begin_ns = now_ns();
    const word result = call_function(function, arguments);
    took.end_ns = now_ns();
    fortran_has_waited = is_nested;
    if (noted == noted_before && !fortran_error(arguments[error_at])) note_call(number, variant, by, arguments, &took);
    return result;
}

#define PARAMETERS word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l
#define ARGUMENTS {a, b, c, d, e, f, g, h, i, j, k, l}

#define C_ENTRY(function, other, number, variant, is_wide)                                                             \
    EXPORT word MPI_##function(PARAMETERS) {                                                                           \
        static target to;                                                                                              \
        const word arguments[WORDS] = ARGUMENTS;                                                                       \
        return count_c(&to, "PMPI_" #function, other, number, variant, is_wide, __builtin_return_address(0), arguments); \
    }
#define C_ENTRIES(function, number, variant)                                                                           \
    C_ENTRY(function, NULL, number, variant, 0)                                                                        \
    C_ENTRY(function##_c, "PMPI_" #function, number, variant, 1)

#define FORTRAN_ENTRY(symbol, profiled, number, variant)                                                               \
    EXPORT word symbol(PARAMETERS) {                                                                                   \
        static target to;                                                                                              \
        const word arguments[WORDS] = ARGUMENTS;                                                                       \
        return count_fortran(&to, profiled, #symbol, number, variant, arguments);                                      \
    }
#define FORTRAN_ENTRIES(lower, number, variant)                                                                        \
    FORTRAN_ENTRY(mpi_##lower##_, "pmpi_" #lower "_", number, variant)                                                 \
    FORTRAN_ENTRY(mpi_##lower##__, "pmpi_" #lower "__", number, variant)                                               \
    FORTRAN_ENTRY(ompi_##lower##_f, "ompi_" #lower "_f", number, variant)

enum {
    NUMBER_calibration,
#define COLLECTIVE(name, ...) NUMBER_##name,
#include "collectives.h"
#undef COLLECTIVE
};

#define COLLECTIVE(name, lower, nonblocking, lower_nonblocking, ...)                                                   \
    C_ENTRIES(name, NUMBER_##name, BLOCKING)                                                                           \
    C_ENTRIES(nonblocking, NUMBER_##name, NONBLOCKING)                                                                 \
    C_ENTRIES(name##_init, NUMBER_##name, PERSISTENT)                                                                  \
    FORTRAN_ENTRIES(lower, NUMBER_##name, BLOCKING)                                                                    \
    FORTRAN_ENTRIES(lower_nonblocking, NUMBER_##name, NONBLOCKING)                                                     \
    FORTRAN_ENTRIES(lower##_init, NUMBER_##name, PERSISTENT)
#include "collectives.h"
#undef COLLECTIVE
FORTRAN_ENTRY(mpi_barrier_f08_, "mpi_barrier_f08_", NUMBER_Barrier, BLOCKING)
FORTRAN_ENTRY(mpi_ibarrier_f08_, "mpi_ibarrier_f08_", NUMBER_Barrier, NONBLOCKING)
FORTRAN_ENTRY(mpi_barrier_init_f08_, "mpi_barrier_init_f08_", NUMBER_Barrier, PERSISTENT)

/* What counting a call takes: a loop over the part of it that is ours. */
void calibrate(void) {
    enum { ROUNDS = 500 };
    const word arguments[WORDS] = {library()->world};
    int64_t least = INT64_MAX;
    for (int repeat = 0; repeat < 3; repeat++) {
        const int64_t begin = now_ns();
        for (int round = 0; round < ROUNDS; round++) {
            duration took = {.begin_ns = now_ns()};
            took.end_ns = now_ns();
            note_call(CALIBRATION, BLOCKING, (binding){0, 0}, arguments, &took);
        }
        const int64_t ns = now_ns() - begin;
        if (ns < least) least = ns;
    }
    set_cost_of_call(least * 1000 / ROUNDS);
}

/* ---- starts of persistent collectives --------------------------------------------------------------------------------- */

static void note_start(binding by, word address, int64_t ns) {
    call_kind kind;
    if (!is_counting() || !find_request(request_of(by, address), &kind)) return;
    count_call(&kind, ns, 0);
    write_if_due(now_ns());
}

static void note_starts(binding by, const word *arguments, int64_t ns) {
    const int32_t count = by.is_fortran ? *(const int32_t *)arguments[0] : (int32_t)arguments[0];
    const size_t size = by.is_fortran || library()->abi == MPICH ? sizeof(int32_t) : sizeof(word);
    for (int i = 0; i < count; i++) note_start(by, arguments[1] + (word)((size_t)i * size), ns / count);
}

/* ---- other functions -------------------------------------------------------------------------------------------------- */

/* What is done before and after a call of a function. */
typedef struct {
    void (*before)(binding by, const word *arguments);
    void (*after)(binding by, const word *arguments, int64_t ns);
} hooks;

static word hooked(target *to, const char *name, const char *other_name, const hooks *with, binding by, int error_at,
                   const word *arguments) {
    mpi_function *function = function_of(to, name, other_name, 0);
    const unsigned noted_before = noted;
    if (with->before) with->before(by, arguments);
    const int64_t begin = now_ns();
    const word result = call_function(function, arguments);
    const int64_t ns = now_ns() - begin;
    const int error = by.is_fortran ? fortran_error(arguments[error_at]) : (int)result;
    if (!error && noted == noted_before && with->after) {
        with->after(by, arguments, ns);
        noted++;
    }
    return result;
}

#define HOOKED(name, lower, error_at, ...)                                                                             \
    static const hooks hooks_of_##lower = {__VA_ARGS__};                                                               \
    HOOKED_ENTRY(MPI_##name, "PMPI_" #name, lower, 0, error_at)                                                        \
    HOOKED_ENTRY(mpi_##lower##_, "pmpi_" #lower "_", lower, 1, error_at)                                               \
    HOOKED_ENTRY(mpi_##lower##__, "pmpi_" #lower "__", lower, 1, error_at)                                             \
    HOOKED_ENTRY(ompi_##lower##_f, "ompi_" #lower "_f", lower, 1, error_at)                                            \
    HOOKED_ENTRY(mpi_##lower##_f08_, "mpi_" #lower "_f08_", lower, 1, error_at)
#define HOOKED_ENTRY(symbol, profiled, lower, is_fortran, error_at)                                                    \
    EXPORT word symbol(PARAMETERS) {                                                                                   \
        static target to;                                                                                              \
        const word arguments[WORDS] = ARGUMENTS;                                                                       \
        return hooked(&to, profiled, #symbol, &hooks_of_##lower, (binding){is_fortran, 0}, error_at, arguments);        \
    }

static void begin_program(binding by, const word *arguments, int64_t ns) {
    (void)by, (void)arguments, (void)ns;
    start_counting(1);
}
static void end_program(binding by, const word *arguments) {
    (void)by, (void)arguments;
    finish_counting(FINALIZED);
}
static void abort_program(binding by, const word *arguments) {
    (void)by, (void)arguments;
    finish_counting(ABORTED);
}
HOOKED(Init, init, 0, NULL, begin_program)
HOOKED(Init_thread, init_thread, 2, NULL, begin_program)
HOOKED(Finalize, finalize, 0, end_program, NULL)
HOOKED(Abort, abort, 2, abort_program, NULL)

static void start_one(binding by, const word *arguments, int64_t ns) { note_start(by, arguments[0], ns); }
static void forget_request(binding by, const word *arguments) { remove_request(request_of(by, arguments[0])); }
HOOKED(Start, start, 1, NULL, start_one)
HOOKED(Startall, startall, 2, NULL, note_starts)
HOOKED(Request_free, request_free, 1, forget_request, NULL)

static void forget_comm(binding by, const word *arguments) {
    if (arguments[0]) remove_comm(by.is_fortran ? comm_of_fortran(arguments[0]) : read_handle((const void *)arguments[0]));
}
HOOKED(Comm_free, comm_free, 1, forget_comm, NULL)
HOOKED(Comm_disconnect, comm_disconnect, 1, forget_comm, NULL)

/* A function that creates a communicator: the new one is the argument at a place, before the error code of Fortran. */
#define CREATES(name, lower, place)                                                                                    \
    static void note_##lower(binding by, const word *arguments, int64_t ns) {                                          \
        (void)ns;                                                                                                      \
        if (!is_counting()) return;                                                                                    \
        const word address = arguments[place];                                                                         \
        add_comm(by.is_fortran ? comm_of_fortran(address) : read_handle((const void *)address), "MPI_" #name);         \
    }                                                                                                                  \
    HOOKED(name, lower, place + 1, NULL, note_##lower)
CREATES(Comm_dup, comm_dup, 1)
CREATES(Comm_dup_with_info, comm_dup_with_info, 2)
CREATES(Comm_split, comm_split, 3)
CREATES(Comm_split_type, comm_split_type, 4)
CREATES(Comm_create, comm_create, 2)
CREATES(Comm_create_group, comm_create_group, 3)
CREATES(Intercomm_create, intercomm_create, 5)
CREATES(Intercomm_merge, intercomm_merge, 2)
CREATES(Cart_create, cart_create, 5)
CREATES(Cart_sub, cart_sub, 2)
CREATES(Graph_create, graph_create, 5)
CREATES(Dist_graph_create, dist_graph_create, 8)
CREATES(Dist_graph_create_adjacent, dist_graph_create_adjacent, 9)
