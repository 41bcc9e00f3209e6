/* The counters, in a table of fixed size, and the file that a rank writes of them.
 *
 * A call takes no lock and allocates nothing. Each kind of call has an entry: its key is set once, and its counters are
 * added to; atomically if the program has threads that call MPI at the same time. */

#include "communicators.h"
#include "counting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef HPCCOLL_SOURCE_HASH
#error "HPCCOLL_SOURCE_HASH is missing; build with: python -m hpccoll.executor.build"
#endif
EXPORT const char hpccoll_counting_source_hash[] = HPCCOLL_SOURCE_HASH;

/* ---- entries -------------------------------------------------------------------------------------------------------- */

enum { ENTRIES = 16384, LONGEST_SEARCH = 256 };
typedef struct {
    _Atomic uint64_t key; /* 0: free */
    _Atomic int64_t calls, bytes, ns, wait_ns, least_bytes, most_bytes;
    int64_t unused;
} entry;
_Static_assert(sizeof(entry) == 64, "an entry is a cache line");

static entry entries[ENTRIES] __attribute__((aligned(64)));
static entry left_out; /* calls for which no entry was free */
static int has_threads;

/* Sizes from 2^k to 2^(k + 1) - 1 are of class k + 1; 0 bytes are of class 0. */
static unsigned size_class(int64_t bytes) { return bytes <= 0 ? 0 : 64 - (unsigned)__builtin_clzll((uint64_t)bytes); }

static uint64_t key_of(const call_kind *kind) {
    uint64_t key = 1; /* never 0 */
    key = key << 8 | (unsigned)kind->function;
    key = key << 10 | (unsigned)kind->group;
    key = key << 8 | (unsigned)kind->type;
    key = key << 4 | (unsigned)kind->operation;
    key = key << 1 | (unsigned)(kind->in_place != 0);
    return key << 7 | size_class(kind->bytes);
}

static call_kind kind_of(uint64_t key) {
    return (call_kind){
        .in_place = key >> 7 & 1, .operation = key >> 8 & 15, .type = key >> 12 & 255, .group = key >> 20 & 1023,
        .function = key >> 30 & 255,
    };
}

/* Returns the entry of a key, which is taken for it if it is new. */
static entry *entry_of(uint64_t key) {
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    for (unsigned step = 0; step < LONGEST_SEARCH; step++) {
        entry *candidate = &entries[((mixed >> 40) + step) % ENTRIES];
        uint64_t owner = atomic_load_explicit(&candidate->key, memory_order_acquire);
        if (owner == key) return candidate;
        if (owner == 0) {
            if (atomic_compare_exchange_strong(&candidate->key, &owner, key)) return candidate;
            if (owner == key) return candidate;
        }
    }
    return &left_out;
}

static void add_to(_Atomic int64_t *counter, int64_t amount) {
    if (has_threads) atomic_fetch_add_explicit(counter, amount, memory_order_release);
    else atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

/* Keeps the larger one of a counter and a value; of negative values that is the smaller size. */
static void keep_larger(_Atomic int64_t *counter, int64_t value) {
    int64_t kept = atomic_load_explicit(counter, memory_order_relaxed);
    while (kept < value && !atomic_compare_exchange_weak_explicit(counter, &kept, value, memory_order_relaxed, memory_order_relaxed))
        continue;
}

void count_call(const call_kind *kind, int64_t ns, int64_t wait_ns) {
    entry *counters = entry_of(key_of(kind));
    keep_larger(&counters->most_bytes, kind->bytes + 1); /* 0 is what a new entry has */
    keep_larger(&counters->least_bytes, INT64_MAX - kind->bytes);
    add_to(&counters->bytes, kind->bytes);
    add_to(&counters->ns, ns);
    if (wait_ns) add_to(&counters->wait_ns, wait_ns);
    add_to(&counters->calls, 1); /* the last: another thread may write the file now */
}

void leave_out_call(void) { add_to(&left_out.calls, 1); }

/* ---- the rank's file ------------------------------------------------------------------------------------------------ */

static struct {
    char path[1024], host[300], version[600];
    int rank, size, has_world, barrier;
    pid_t pid;
    int64_t started_ns, unix_ns, writing_ns, cost_ps;
    _Atomic int64_t written_ns;
    _Atomic int is_running;
} state = {.rank = -1};

static _Atomic int is_writing; /* a lock that a thread never waits for without end */

int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

typedef struct { int file, failed; size_t length; char bytes[1 << 14]; } output;

static void flush(output *out) {
    size_t written = 0;
    while (!out->failed && written < out->length) {
        const ssize_t count = write(out->file, out->bytes + written, out->length - written);
        if (count > 0) written += (size_t)count;
        else if (count < 0 && errno == EINTR) continue;
        else out->failed = 1;
    }
    out->length = 0;
}

static void print_text(output *out, const char *text) {
    for (; *text; text++) {
        if (out->length == sizeof out->bytes) flush(out);
        out->bytes[out->length++] = *text;
    }
}

__attribute__((format(printf, 2, 3))) static void print(output *out, const char *format, ...) {
    char line[1200];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    print_text(out, line);
}

static void print_group(output *out, int number) {
    const group_facts *group = &groups[number];
    const char *created_by = group->created_by ? group->created_by : "others";
    print(out, "group\t%d\t%s\t%d\t%d\t%d\t%lld\t%016llx\t", number, created_by, group->size, group->blocks, group->is_inter,
          (long long)group->communicators, (unsigned long long)group->hash);
    print_text(out, group->runs ? group->runs : "?");
    print_text(out, "\n");
}

static void print_groups(output *out) {
    const int count = number_of_groups();
    for (int i = 0; i < count; i++) print_group(out, i);
    if (count == OTHER_GROUPS) print_group(out, OTHER_GROUPS);
}

static void print_entry(output *out, const entry *counters, const call_kind *kind) {
    const long long calls = (long long)atomic_load(&counters->calls);
    if (!calls) return;
    print(out, "calls\t%s\t%s\t%d\t%s\t%s\t%d\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\n", function_name(kind->function), variant_name(kind->function), kind->group,
          type_name(kind->type), operation_name(kind->operation), kind->in_place, calls, (long long)atomic_load(&counters->bytes),
          (long long)atomic_load(&counters->ns), (long long)atomic_load(&counters->wait_ns),
          (long long)(INT64_MAX - atomic_load(&counters->least_bytes)), (long long)atomic_load(&counters->most_bytes) - 1);
}

static const char *const ends[] = {"running", "finalized", "aborted", "exited"};

/* The launch that a rank belongs to, as far as the launcher says so: a program may be launched several times. */
static const char *launch(void) {
    static const char *const names[] = {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_STEP_ID", "PALS_APID"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value && strlen(value) < 200) return value;
    }
    return "?";
}

static void print_file(output *out, enum end end) {
    const mpi_library *mpi = library();
    static const char *const abis[] = {"MPICH", "Open MPI", "MPI-5 ABI"};
    print(out, "hpccoll-count\t1\nrank\t%d\nsize\t%d\nhost\t%s\npid\t%ld\n", state.rank, state.size, state.host, (long)state.pid);
    print(out, "abi\t%s\nlibrary\t%s\n", abis[mpi->abi], mpi->path);
    print(out, "version\t%s\nlaunch\t%s\n", state.version, launch());
    print(out, "end\t%s\nbegan_unix_ns\t%lld\nran_ns\t%lld\n", ends[end], (long long)state.unix_ns,
          (long long)(now_ns() - state.started_ns));
    print(out, "cost_ps\t%lld\nwriting_ns\t%lld\nbarrier\t%d\nthreads\t%d\n", (long long)state.cost_ps,
          (long long)state.writing_ns, state.barrier, has_threads);
    for (int i = 0; i < ENTRIES; i++) {
        const uint64_t key = atomic_load_explicit(&entries[i].key, memory_order_acquire);
        if (!key) continue;
        const call_kind kind = kind_of(key);
        if (kind.function != CALIBRATION) print_entry(out, &entries[i], &kind);
    }
    print_groups(out); /* after the calls: another thread may add a communicator and count its calls meanwhile */
    print(out, "left_out\t%lld\t%lld\nend_of_file\n", (long long)atomic_load(&left_out.calls), (long long)atomic_load(&left_out.ns));
}

/* Writes the file beside the earlier one, which it replaces when it is complete. */
static void write_file(enum end end) {
    static output out; /* under is_writing */
    char unfinished[1100];
    const int64_t begin = now_ns();
    const int error = errno;
    snprintf(unfinished, sizeof unfinished, "%s.part", state.path);
    out.file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    out.failed = out.file < 0;
    out.length = 0;
    if (!out.failed) {
        print_file(&out, end);
        flush(&out);
        if (close(out.file) || out.failed) unlink(unfinished);
        else rename(unfinished, state.path);
    }
    errno = error;
    const int64_t now = now_ns();
    state.written_ns = now;
    state.writing_ns += now - begin;
}

int is_counting(void) { return atomic_load_explicit(&state.is_running, memory_order_relaxed); }
int waits_apart(void) { return state.barrier; }
int world_is_initialized(void) { return state.has_world; }
void set_cost_of_call(int64_t picoseconds) { state.cost_ps = picoseconds; }

/* Writes the file unless another thread is doing so. */
static void write_while_running(void) {
    if (atomic_exchange(&is_writing, 1)) return;
    if (is_counting()) write_file(RUNNING);
    atomic_store(&is_writing, 0);
}

/* The later files come ever more seldom: a killed program loses a second, or a fifth of its time,
 * and at most half a minute. */
void write_if_due(int64_t now) {
    const int64_t longest = 30000000000, shortest = 1000000000;
    int64_t pause = (state.written_ns - state.started_ns) / 4;
    pause = pause > longest ? longest : pause < shortest ? shortest : pause;
    if (now - state.written_ns < pause) return;
    write_while_running();
}

static void copy_first_line(char *to, size_t length, const char *from) {
    size_t i = 0;
    for (; from[i] && from[i] != '\n' && i + 1 < length; i++) to[i] = from[i] == '\t' ? ' ' : from[i];
    to[i] = '\0';
}

static void ask_library(void) {
    static char text[8192 + 1]; /* MPI_MAX_LIBRARY_VERSION_STRING is at most that */
    int32_t length = 0, flag = 0, level = 0;
    const mpi_library *mpi = library();
    MPI(Initialized, (word)&flag);
    state.has_world = flag != 0;
    if (state.has_world) {
        MPI(Comm_rank, mpi->world, (word)&state.rank);
        MPI(Comm_size, mpi->world, (word)&state.size);
        MPI(Query_thread, (word)&level);
    }
    has_threads = level == mpi->thread_multiple || !state.has_world;
    if (!MPI(Get_library_version, (word)text, (word)&length)) copy_first_line(state.version, sizeof state.version, text);
    memset(text, 0, sizeof text);
    if (state.has_world && !MPI(Get_processor_name, (word)text, (word)&length)) copy_first_line(state.host, sizeof state.host, text);
    else if (gethostname(state.host, sizeof state.host - 1)) strcpy(state.host, "unknown");
}

/* Returns whether a barrier is to precede each call. A launcher may not pass the variable on to all nodes, on which the
 * ranks would then wait for a barrier that others do not call: the file in the directory says it to all. */
static int is_barrier_wanted(const char *directory) {
    char file[800];
    const char *variable = getenv("HPCCOLL_COUNT_BARRIER");
    if (variable && !strcmp(variable, "1")) return 1;
    snprintf(file, sizeof file, "%s/barrier", directory);
    return access(file, F_OK) == 0;
}

void start_counting(int is_in_init) {
    static _Atomic int has_begun;
    const char *directory = getenv("HPCCOLL_COUNT");
    if (!directory || !*directory || strlen(directory) > 700) return;
    if (atomic_exchange(&has_begun, 1)) return;
    if (!*library()->path) return;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    state.unix_ns = time.tv_sec * 1000000000L + time.tv_nsec;
    state.started_ns = now_ns();
    state.pid = getpid();
    state.written_ns = state.started_ns;
    state.barrier = is_in_init && is_barrier_wanted(directory);
    ask_library();
    char host[256];
    size_t length = 0;
    for (const char *from = state.host; *from && length + 1 < sizeof host; from++) host[length++] = *from == '/' ? '_' : *from;
    host[length] = '\0';
    /* With the time: in containers the process of every launch may have the same number. */
    snprintf(state.path, sizeof state.path, "%s/%d-%s-%ld-%lld.count", directory, state.rank, host, (long)state.pid,
             (long long)state.unix_ns);
    mkdir(directory, 0777); /* harmless if it is there */
    atomic_store(&state.is_running, 1);
    if (state.has_world) calibrate();
    write_while_running();
}

/* Waits at most a second for another thread that writes. It may be this one: a signal handler that calls exit() or
 * MPI_Abort() interrupts the writing, which then never ends. */
static int begin_last_writing(void) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000; i++) {
        if (!atomic_exchange(&is_writing, 1)) return 1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

void finish_counting(enum end end) {
    if (!is_counting() || getpid() != state.pid) return; /* a child of the program has its tables, and is no rank */
    if (!begin_last_writing()) return; /* the earlier file remains */
    if (atomic_exchange(&state.is_running, 0)) write_file(end);
    atomic_store(&is_writing, 0);
}

__attribute__((destructor)) static void exit_counting(void) { finish_counting(EXITED); }
