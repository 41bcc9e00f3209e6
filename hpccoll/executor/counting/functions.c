/* The collectives of MPI, and what the arguments of a call say about it.
 *
 * Bytes are S as nccl-tests count it: the vector of a reduction or broadcast, all n blocks of an all-gather, gather,
 * scatter, reduce-scatter or all-to-all. With unequal blocks a rank of a gather or scatter knows its own one only, and
 * counts n of them: the mean over the ranks is S. A neighbour collective counts what a rank sends. */

#include "counting.h"

/* The order of the initializers is that of the fields. */
const collective collectives[] = {
    [CALIBRATION] = {"calibration", "C", NO_BYTES, -1, -1, -1, -1, -1, 0, -1, -1, 0},
#define COLLECTIVE(name, lower, upper_variant, lower_variant, ...) {#name, __VA_ARGS__},
#include "collectives.h"
#undef COLLECTIVE
};

int number_of_collectives(void) { return (int)(sizeof collectives / sizeof *collectives); }

const char *function_name(int function) { return collectives[function / VARIANTS].name; }

const char *variant_name(int function) {
    static const char *const names[] = {"blocking", "nonblocking", "persistent"};
    return names[function % VARIANTS];
}

/* ---- arguments ------------------------------------------------------------------------------------------------------ */

static int64_t integer(binding by, const word *arguments, int at) {
    if (by.is_fortran) return *(const int32_t *)arguments[at];
    return by.is_wide ? arguments[at] : (int32_t)arguments[at];
}

static int64_t element(binding by, word array, int at) {
    return by.is_wide ? ((const int64_t *)array)[at] : ((const int32_t *)array)[at];
}

static word type_argument(binding by, const word *arguments, int at) {
    return by.is_fortran ? type_of_fortran(arguments[at]) : arguments[at];
}

/* Handles are ints in Fortran, and in MPICH's C, too. */
static word type_element(binding by, word array, int at) {
    const int32_t *ints = (const int32_t *)array;
    if (by.is_fortran) return type_of_fortran((word)&ints[at]);
    return library()->abi == MPICH ? ints[at] : ((const word *)array)[at];
}

word comm_of_call(const collective *called, binding by, const word *arguments) {
    const word passed = arguments[called->comm];
    return by.is_fortran ? comm_of_fortran(passed) : passed;
}

static int is_in_place(const collective *called, binding by, const word *arguments) {
    if (called->in_place < 0) return 0;
    const mpi_library *mpi = library();
    const word buffer = arguments[called->in_place];
    if (!by.is_fortran) return buffer == mpi->in_place;
    for (int i = 0; i < 2; i++)
        if (mpi->fortran_in_place[i] && buffer == mpi->fortran_in_place[i]) return 1;
    const word *of_mpich = mpi->fortran_in_place_of_mpich;
    return of_mpich && *of_mpich && buffer == *of_mpich;
}

/* ---- bytes ---------------------------------------------------------------------------------------------------------- */

static int64_t sum_of_counts(binding by, word counts, int length) {
    int64_t sum = 0;
    for (int i = 0; i < length; i++) sum += element(by, counts, i);
    return sum;
}

/* Sets the bytes and the type of a call with an array of types; different types are DERIVED_TYPE. */
static void add_types(call_kind *kind, binding by, word counts, word types, int length) {
    for (int i = 0; i < length; i++) {
        const int64_t count = element(by, counts, i);
        if (!count) continue;
        const type_facts type = facts_of_type(type_element(by, types, i));
        kind->bytes += count * type.size;
        kind->type = !kind->type || kind->type == type.number ? type.number : DERIVED_TYPE;
    }
}

/* Returns how many elements, or blocks of them, a call moves. */
static int64_t elements(const collective *called, const communicator *comm, const call_kind *kind, binding by,
                        const word *arguments, int count_at) {
    if (kind->in_place && called->counts_are_array) {
        const int own = (int)integer((binding){by.is_fortran, 0}, arguments, called->root);
        return element(by, arguments[count_at], own) * comm->blocks;
    }
    /* Of an intercommunicator: the ranks of a gather send to a root in the other group, those of a scatter receive from
     * it, and a reduction is scattered in the own group. Blocks are then those of the own ranks. */
    const int blocks_are_own = called->root >= 0 || called->op >= 0;
    const int blocks = blocks_are_own ? comm->size : comm->blocks;
    switch (called->form) {
    case ONE_COUNT: return integer(by, arguments, count_at);
    case EACH_BLOCK: return integer(by, arguments, count_at) * blocks;
    case SUM_OF_COUNTS: return sum_of_counts(by, arguments[count_at], blocks);
    case EACH_TARGET: return integer(by, arguments, count_at) * comm->targets;
    case SUM_TO_TARGETS: return sum_of_counts(by, arguments[count_at], comm->targets);
    default: return 0;
    }
}

static void add_bytes(call_kind *kind, const collective *called, const communicator *comm, binding by, const word *arguments) {
    const int count_at = kind->in_place ? called->placed_count : called->count;
    const int type_at = kind->in_place ? called->placed_type : called->type;
    if (called->form == SUM_OF_TYPES || called->form == TYPES_TO_TARGETS) {
        const int length = called->form == SUM_OF_TYPES ? comm->blocks : comm->targets;
        add_types(kind, by, arguments[count_at], arguments[type_at], length);
        return;
    }
    const int64_t count = elements(called, comm, kind, by, arguments, count_at);
    if (!count) return; /* the type may be MPI_DATATYPE_NULL, of which no library may be asked */
    const type_facts type = facts_of_type(type_argument(by, arguments, type_at));
    kind->type = type.number;
    kind->bytes = count * type.size;
}

/* Describes a call that has succeeded: only then are its arguments known to be valid. */
call_kind describe_call(int number, enum variant variant, binding by, const word *arguments) {
    const collective *called = &collectives[number];
    const communicator comm = facts_of_comm(comm_of_call(called, by, arguments));
    call_kind kind = {.function = number * VARIANTS + (int)variant, .group = comm.group};
    if (called->form == NO_BYTES) return kind;
    if (called->op >= 0) kind.operation = operation_number(by.is_fortran ? op_of_fortran(arguments[called->op]) : arguments[called->op]);
    /* In the root's group of an intercommunicator only the root's arguments mean something; the other group counts. */
    const int has_root = called->root >= 0;
    if (comm.is_inter && has_root && integer((binding){by.is_fortran, 0}, arguments, called->root) < 0) return kind;
    kind.in_place = is_in_place(called, by, arguments);
    add_bytes(&kind, called, &comm, by, arguments);
    return kind;
}
