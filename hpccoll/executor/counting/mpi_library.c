/* The program's MPI library: where its functions are, which ABI it has, and what its constants are. */

#include "counting.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names with the versions of old C libraries, so that a library that a new one has linked runs on these, too. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#elif defined(__GLIBC__) && (defined(__aarch64__) || defined(__powerpc64__))
#define OLDEST "GLIBC_2.17"
#endif
#ifdef OLDEST
#define FROM_OLDEST(name) __asm__(".symver " #name "," #name "@" OLDEST)
FROM_OLDEST(dladdr);
FROM_OLDEST(dlclose);
FROM_OLDEST(dlopen);
FROM_OLDEST(dlsym);
#endif

/* ---- functions ---------------------------------------------------------------------------------------------------- */

enum { MAX_FILES = 32, PATH_LENGTH = 512 };
typedef struct { int count; char paths[MAX_FILES][PATH_LENGTH]; } file_list;

static int add_mpi_file(struct dl_phdr_info *object, size_t size, void *into) {
    file_list *files = into;
    (void)size;
    const char *name = strrchr(object->dlpi_name, '/');
    name = name ? name + 1 : object->dlpi_name;
    const int is_mpi = !strncmp(name, "libmpi", 6) || !strncmp(name, "libpmpi", 7);
    if (is_mpi && files->count < MAX_FILES && strlen(object->dlpi_name) < PATH_LENGTH)
        strcpy(files->paths[files->count++], object->dlpi_name);
    return 0;
}

/* Looks a name up in the loaded files of MPI libraries: RTLD_NEXT misses one that was loaded locally, as by mpi4py. */
static void *search_files(const char *name) {
    file_list files;
    files.count = 0;
    dl_iterate_phdr(add_mpi_file, &files);
    for (int i = 0; i < files.count; i++) {
        void *scope = dlopen(files.paths[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!scope) continue;
        void *address = dlsym(scope, name);
        dlclose(scope);
        if (address) return address;
    }
    return NULL;
}

mpi_function *find_function(const char *name) {
    void *address = dlsym(RTLD_NEXT, name);
    return (mpi_function *)(address ? address : search_files(name));
}

word call_library(const char *name, mpi_function *_Atomic *cache, const word *a) {
    mpi_function *function = atomic_load_explicit(cache, memory_order_relaxed);
    if (!function) {
        function = find_function(name);
        if (!function) return -1;
        atomic_store_explicit(cache, function, memory_order_relaxed);
    }
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

/* ---- the library ---------------------------------------------------------------------------------------------------- */

static mpi_library found;

static int note_range(struct dl_phdr_info *object, size_t size, void *of) {
    const uintptr_t address = (uintptr_t)of;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD) continue;
        const uintptr_t from = object->dlpi_addr + segment->p_vaddr;
        if (from < begin) begin = from;
        if (from + segment->p_memsz > end) end = from + segment->p_memsz;
    }
    if (address < begin || address >= end) return 0;
    found.begin = begin, found.end = end;
    return 1;
}

/* A handle of Open MPI is the address of a variable. An executable may have a copy of it (a COPY relocation), which all
 * files of the global scope use; a library that was loaded locally uses its own. */
static word open_mpi_variable(const char *name) {
    void *global = dlsym(RTLD_DEFAULT, name);
    return (word)(global ? global : search_files(name));
}

enum { OPERATIONS = 15, USER_OPERATION = 15 };
static const struct { const char *name, *open_mpi; word mpich, standard; } operations[OPERATIONS] = {
    {"none", NULL, 0, 0},
    {"MPI_MAX", "ompi_mpi_op_max", 0x58000001, 0x23},
    {"MPI_MIN", "ompi_mpi_op_min", 0x58000002, 0x22},
    {"MPI_SUM", "ompi_mpi_op_sum", 0x58000003, 0x21},
    {"MPI_PROD", "ompi_mpi_op_prod", 0x58000004, 0x24},
    {"MPI_LAND", "ompi_mpi_op_land", 0x58000005, 0x30},
    {"MPI_BAND", "ompi_mpi_op_band", 0x58000006, 0x28},
    {"MPI_LOR", "ompi_mpi_op_lor", 0x58000007, 0x31},
    {"MPI_BOR", "ompi_mpi_op_bor", 0x58000008, 0x29},
    {"MPI_LXOR", "ompi_mpi_op_lxor", 0x58000009, 0x32},
    {"MPI_BXOR", "ompi_mpi_op_bxor", 0x5800000a, 0x2a},
    {"MPI_MINLOC", "ompi_mpi_op_minloc", 0x5800000b, 0x38},
    {"MPI_MAXLOC", "ompi_mpi_op_maxloc", 0x5800000c, 0x39},
    {"MPI_REPLACE", "ompi_mpi_op_replace", 0x5800000d, 0x3c},
    {"MPI_NO_OP", "ompi_mpi_op_no_op", 0x5800000e, 0x3d},
};
static handle_table operation_numbers;

static void note_operations(void) {
    for (int i = 1; i < OPERATIONS; i++) {
        word handle = found.abi == MPICH ? operations[i].mpich : operations[i].standard;
        if (found.abi == OPEN_MPI) handle = open_mpi_variable(operations[i].open_mpi);
        if (handle) put_handle(&operation_numbers, handle, i);
    }
}

int operation_number(word op) {
    int64_t number = USER_OPERATION;
    find_handle(&operation_numbers, as_handle(op), &number);
    return (int)number;
}

const char *operation_name(int number) { return number == USER_OPERATION ? "user" : operations[number].name; }

static void find_library(void) {
    void *function = (void *)find_function("PMPI_Allreduce");
    Dl_info place;
    if (!function || !dladdr(function, &place)) return;
    snprintf(found.path, sizeof found.path, "%s", place.dli_fname);
    dl_iterate_phdr(note_range, function);
    void *scope = dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    const int has_variables = scope && dlsym(scope, "ompi_mpi_comm_world");
    if (scope) dlclose(scope);
    const char *file_name = strrchr(place.dli_fname, '/');
    file_name = file_name ? file_name + 1 : place.dli_fname;
    found.abi = MPICH;
    if (strstr(file_name, "mpi_abi")) found.abi = STANDARD;
    else if (has_variables) found.abi = OPEN_MPI;
    switch (found.abi) {
    case MPICH:
        found.world = 0x44000000, found.self = 0x44000001, found.in_place = -1, found.thread_multiple = 3;
        found.graph = 1, found.cartesian = 2, found.distributed_graph = 3;
        break;
    case OPEN_MPI:
        found.world = open_mpi_variable("ompi_mpi_comm_world"), found.self = open_mpi_variable("ompi_mpi_comm_self");
        found.in_place = 1, found.thread_multiple = 3;
        found.cartesian = 1, found.graph = 2, found.distributed_graph = 3;
        found.fortran_in_place[0] = open_mpi_variable("mpi_fortran_in_place_");
        found.fortran_in_place[1] = open_mpi_variable("mpi_fortran_in_place");
        break;
    case STANDARD:
        found.world = 0x101, found.self = 0x102, found.in_place = 1, found.thread_multiple = 4096;
        found.cartesian = 211, found.graph = 212, found.distributed_graph = 213;
        break;
    }
    found.fortran_in_place_of_mpich = search_files("MPIR_F_MPI_IN_PLACE");
    note_operations();
}

const mpi_library *library(void) {
    static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
    static _Atomic int is_found;
    if (!atomic_load_explicit(&is_found, memory_order_acquire)) {
        pthread_mutex_lock(&finding);
        if (!is_found) find_library();
        atomic_store_explicit(&is_found, 1, memory_order_release);
        pthread_mutex_unlock(&finding);
    }
    return &found;
}

/* ---- handles -------------------------------------------------------------------------------------------------------- */

word as_handle(word passed) { return found.abi == MPICH ? (word)(uint32_t)passed : passed; }

word read_handle(const void *address) {
    return found.abi == MPICH ? (word) * (const uint32_t *)address : *(const word *)address;
}

/* MPICH's handles of Fortran are those of C; the standard ABI has functions of other names. */
static word from_fortran(word passed, const char *converter, mpi_function *_Atomic *cache) {
    const uint32_t handle = *(const uint32_t *)passed;
    if (found.abi == MPICH) return (word)handle;
    const word arguments[WORDS] = {(word)handle};
    return call_library(converter, cache, arguments);
}

#define FROM_FORTRAN(name, kind)                                                                                       \
    word name(word passed) {                                                                                           \
        static mpi_function *_Atomic cache;                                                                            \
        const char *converter = found.abi == STANDARD ? "PMPI_" kind "_fromint" : "PMPI_" kind "_f2c";                 \
        return from_fortran(passed, converter, &cache);                                                                \
    }
FROM_FORTRAN(comm_of_fortran, "Comm")
FROM_FORTRAN(type_of_fortran, "Type")
FROM_FORTRAN(request_of_fortran, "Request")
FROM_FORTRAN(op_of_fortran, "Op")

int is_null_comm(word comm) {
    static word null;
    if (found.abi != OPEN_MPI) return as_handle(comm) == (found.abi == MPICH ? 0x04000000 : 0x100);
    if (!null) null = open_mpi_variable("ompi_mpi_comm_null");
    return comm == null;
}

/* ---- types ---------------------------------------------------------------------------------------------------------- */

enum { NAME_LENGTH = 64 };
static handle_table type_numbers;
static char type_names[DERIVED_TYPE][NAME_LENGTH] = {"none"};
static int64_t type_sizes[DERIVED_TYPE];
static int type_count = 1;
static pthread_mutex_t adding_type = PTHREAD_MUTEX_INITIALIZER;

static int64_t ask_size(word type) {
    int32_t size = 0;
    MPI(Type_size, type, (word)&size);
    return size < 0 ? 0 : size;
}

/* Adds a predefined type, which no program frees, and returns its number; a type that the program made is DERIVED_TYPE. */
static int add_type(word type) {
    int32_t integers = 1, addresses = 1, types = 1, combiner = 0, length = 0;
    char name[512] = "";
    if (MPI(Type_get_envelope, type, (word)&integers, (word)&addresses, (word)&types, (word)&combiner)) return DERIVED_TYPE;
    if (integers || addresses || types) return DERIVED_TYPE;
    if (MPI(Type_get_name, type, (word)name, (word)&length)) return DERIVED_TYPE;
    pthread_mutex_lock(&adding_type);
    int number = DERIVED_TYPE;
    if (type_count < DERIVED_TYPE) {
        number = type_count;
        snprintf(type_names[number], NAME_LENGTH, "%.60s", name[0] ? name : "unnamed");
        type_sizes[number] = ask_size(type);
        if (put_handle(&type_numbers, type, number)) type_count++;
        else number = DERIVED_TYPE;
    }
    pthread_mutex_unlock(&adding_type);
    return number;
}

type_facts facts_of_type(word passed) {
    const word type = as_handle(passed);
    int64_t number = DERIVED_TYPE;
    if (!find_handle(&type_numbers, type, &number)) number = add_type(type);
    const int64_t size = number == DERIVED_TYPE ? ask_size(type) : type_sizes[number];
    return (type_facts){(int)number, size};
}

const char *type_name(int number) { return number == DERIVED_TYPE ? "derived" : type_names[number]; }
