/* NCCL's entry points over host memory, for ranks of one machine: CuPy and nccl4py load this file as libnccl.so.2.
 *
 * What it proves: the arguments of every call (types, ops, counts, roots, in-place forms, settings, windows), that all
 * ranks make the same calls, that groups of sends and receives do not deadlock when a send blocks until its receive
 * is posted, that graphs and registrations end before what they use, what an abort, an asynchronous error and a stall
 * lead to, the order of several streams as far as events make one, also in graphs, and the results on that path. Calls of
 * a nonblocking communicator return at once, and none may follow before its state is that it has ended. What it
 * does not prove: anything else of a device (its memory, CUDA graphs), speed, NCCL's choice of algorithms, its
 * connections and its own limits.
 *
 * A stream is a thread that executes what is queued in order. A graph has threads of its own for the streams that joined
 * its capture. A collective is messages between all ranks, followed by a fold in the order of ranks. A violated rule ends
 * the process with a message.
 *
 * NCCL_TEST_FAULT=RANK:NUMBER:KIND[:STATUS] injects a fault into the process that is RANK in its first communicator, or
 * into all processes (-1). Its work NUMBER (a group or a collective, from 1 on) never ends; `stall` leaves it at that,
 * `error` also raises asynchronous errors. `init` makes the creation of its communicator NUMBER fail, and `call` its
 * call NUMBER that queues work. STATUS is that of the error, 2 (ncclSystemError) by default.
 *
 * Every call must come from a thread whose current device is that of the rank, where it is known (hostDevice): a thread
 * begins with device 0, on which CUDA would create a context. A thread selects a device by hostSelect.
 *
 * NCCL_TEST_VERSION is the version (23000), and
 * NCCL_WIN_ENABLE=0 the setting of NCCL with which no symmetric window is created. HPCCOLL_TEST_MEMORY is a directory
 * that the ranks share (/dev/shm); hosts of a testbed each have a /dev/shm of their own. Ranks that name the same device
 * (hostDevice) are refused as by NCCL of that version, with NCCL_HOSTID and NCCL_MULTI_RANK_GPU_ENABLE.
 *
 * With NCCL_TEST_ORDER=strict a device has room for one kernel of NCCL: a group or a collective begins when those that the
 * process launched before it have ended, whatever their communicators and streams are. Ranks whose launch orders fit no
 * common order then deadlock.
 *
 * With NCCL_DEBUG=WARN or INFO it warns of each fault that is injected. With NCCL_DEBUG=INFO it also logs its version,
 * communicators and calls in the lines of NCCL 2.30.7 (src/init.cc:1422,
 * src/enqueue.cc:822 and 3152). NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE are read by the first message, and by
 * the first one after ncclResetDebugInit, as in src/debug.cc of 2.27.7 to 2.30.7. Compiled with WITHOUT_RESET, it lacks
 * that function, as NCCL did before 2.24. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS,
       TIMEOUT };
enum { SUM, PROD, MAX, MIN, OPS };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };
static const size_t SIZES[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

enum { CHUNK = 65536, PAGE = 4096, RANKS = 16, COMMS = 64, BRANCHES = 8, ALL = -1, MAGIC = (int)0xcafebeef };

typedef struct { char internal[128]; } Id;
typedef struct { /* ncclConfig_t until 2.28; later versions append fields */
    size_t size;
    int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} Config;

typedef struct { /* the messages of one rank to another: the receiver posts, the sender fills, the receiver drains */
    _Atomic uint64_t posted, filled, drained;
    uint64_t bytes, tag; /* of the message that is posted */
    char chunk[CHUNK];
} Pair;

typedef struct {
    _Atomic int arrived, failed;
    struct { int color, key; size_t size; } said[RANKS];
    char hosts[RANKS][64];
    char devices[RANKS][96]; /* the host and the device of each rank */
    Pair pairs[];
} Shared;

typedef struct Registration { struct Registration *next; char *at; } Registration;

typedef struct Comm {
    int magic, rank, ranks, barriers, splits;
    char name[64];
    Shared *shared;
    size_t mapped;
    uint64_t sent[RANKS], received[RANKS]; /* messages to and from each rank */
    Registration *registrations;
    _Atomic int pending, graphs, aborted, error;
    int nonblocking, connected; /* whether no call waits for other ranks; whether they have exchanged a message */
    _Atomic int busy;           /* a thread waits for them in place of the call, which has returned IN_PROGRESS */
    unsigned long calls;
} Comm;

typedef struct {
    int sends, peer, to_scratch;
    char *at;
    size_t bytes, tag, done;
    int started, ended;
} Transfer;

typedef struct { /* it has passed the records of numbers up to `passed`, the last one at the time `at` */
    uint64_t recorded, capture;
    _Atomic uint64_t passed;
    _Atomic int64_t at;
    struct Stream *stream; /* of a record in a capture: its stream, and how much that had captured */
    int covers;
} Event;

enum { LAUNCHES = 1 << 16 }; /* the most that are queued at a time */

typedef struct Work { /* a kernel, transfers that are followed by a fold of what is in scratch, or a captured event */
    struct Work *next;
    struct Stream *captured_on;
    Event *records, *awaits;
    void (*kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    uint64_t arguments[7];
    Comm *comm;
    uint64_t launch; /* its number in the order of launches */
    char *out;
    size_t count;
    int type, op, transfers;
    Transfer transfer[];
} Work;

typedef struct Stream {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    Work *first, **end;
    _Atomic int left; /* works that have not ended */
    uint64_t capture; /* the number of the capture that it is part of, or 0 */
    int captured, joined; /* works of it in the capture, and those after which the origin of the capture has waited */
    struct Stream *next;
} Stream;

typedef struct { /* works in the order in which they were captured; branches run those of the streams that joined */
    Work *first, **end;
    int streams;
    Stream *stream[BRANCHES], *branch[BRANCHES]; /* the first one is the origin */
} Graph;

/* The bindings call from one thread. */
static struct { int depth; Work *work; Stream *stream; } group;
static char notes[1 << 16];
static size_t noted;
static Comm *comms[COMMS];
static int works, calls;
static _Atomic int created;
static Graph *capture; /* the one that has begun and not ended */
static uint64_t captures;
static Stream *idle_branches;
static char device[32]; /* empty: unknown, and never refused */
static int device_number;
static _Thread_local int current_device;
static struct { int rank, number, status; char kind[8]; } fault = {.status = SYSTEM_ERROR};

static void fatal(const char *format, ...) {
    va_list more;
    va_start(more, format);
    fputs("libnccl: ", stderr);
    vfprintf(stderr, format, more);
    fputc('\n', stderr);
    abort();
}

static void note(const char *format, ...) { /* what hostCalls returns */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* communicators are aborted at the same time */
    va_list more;
    va_start(more, format);
    pthread_mutex_lock(&mutex);
    if (noted < sizeof notes - 400) noted += vsnprintf(notes + noted, 400, format, more);
    pthread_mutex_unlock(&mutex);
    va_end(more);
}

static void rest(int turn) {
    if (turn < 50) sched_yield();
    else nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void enter(const char *function) { /* what every call of NCCL does first */
    if (*device && current_device != device_number)
        fatal("%s in a thread whose current device is %d, on a rank with device %d", function, current_device,
              device_number);
}

static int valid(const Comm *comm) { return comm && comm->magic == MAGIC && !comm->aborted; }

static int overlap(const char *a, size_t bytes, const char *b, size_t others) {
    return bytes && others && a < b + others && b < a + bytes;
}

/* ---- logs ------------------------------------------------------------------------------------------------------ */

enum { INIT = 1, COLL = 2, TUNING = 4, ANY = 7, WARN = 8 };
static struct { FILE *file; int state, enabled, shown; char host[64]; } logs; /* state: 0 at first, -1 after a reset */

static int host_name(char *name, size_t size) { /* without the domain, as NCCL has it */
    int result = gethostname(name, size);
    name[size - 1] = 0, name[strcspn(name, ".")] = 0;
    return result;
}

static void open_logs(void) {
    if (logs.state < 0 && logs.file != stdout) fclose(logs.file);
    const char *level = getenv("NCCL_DEBUG"), *names = getenv("NCCL_DEBUG_SUBSYS"), *path = getenv("NCCL_DEBUG_FILE");
    char name[PATH_MAX] = "", *end = name;
    logs.state = 1, logs.file = stdout, logs.enabled = 0, host_name(logs.host, sizeof logs.host);
    int informs = level && !strcasecmp(level, "INFO");
    if (!informs && (!level || strcasecmp(level, "WARN"))) return;
    logs.enabled = WARN;
    if (informs && (!names || strstr(names, "INIT"))) logs.enabled |= INIT;
    if (informs && names && strstr(names, "COLL")) logs.enabled |= COLL;
    if (informs && names && strstr(names, "TUNING")) logs.enabled |= TUNING;
    for (; path && *path && end < name + sizeof name - sizeof logs.host - 16; path++) {
        if (!strncmp(path, "%h", 2)) end += sprintf(end, "%s", logs.host), path++;
        else if (!strncmp(path, "%p", 2)) end += sprintf(end, "%d", getpid()), path++;
        else *end++ = *path, *end = 0;
    }
    FILE *file = *name ? fopen(name, "w") : NULL;
    if (file) setlinebuf(logs.file = file);
}

static void info(int subsystem, const char *format, ...) {
    if (logs.state < 1) open_logs();
    if (!(logs.enabled & subsystem)) return;
    va_list more;
    va_start(more, format);
    fprintf(logs.file, "%s:%d:%d [0] NCCL INFO ", logs.host, getpid(), gettid());
    vfprintf(logs.file, format, more);
    fputc('\n', logs.file);
    va_end(more);
}

static void warn(const char *text) {
    if (logs.state < 1) open_logs();
    if (logs.enabled & WARN)
        fprintf(logs.file, "\n%s:%d:%d [0] transport/test.cc:1 NCCL WARN %s\n", logs.host, getpid(), gettid(), text);
}

static void log_call(const char *name, const void *from, const void *to, size_t count, int type, int op, int root,
                     Comm *comm, void *stream) {
    info(COLL,
         "%s: opCount %lx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
         name + strlen("nccl"), comm->calls++, from, to, count, type, op, root, (void *)comm, comm->ranks, stream);
}

#ifndef WITHOUT_RESET
void ncclResetDebugInit(void) { logs.state = -(logs.state != 0); }
#endif

/* ---- transfers ------------------------------------------------------------------------------------------------- */

static Pair *pair(Comm *comm, int from, int to) { return &comm->shared->pairs[from * comm->ranks + to]; }

static int go_on(Comm *comm, Transfer *t) { /* advance a transfer, and return whether it advanced */
    Pair *p = t->sends ? pair(comm, comm->rank, t->peer) : pair(comm, t->peer, comm->rank);
    uint64_t *number = (t->sends ? comm->sent : comm->received) + t->peer;
    if (!t->started && t->sends) {
        if (p->posted <= *number) return 0;
        if (p->bytes != t->bytes || p->tag != t->tag)
            fatal("rank %d sends %zu B to rank %d, which expects %zu B%s", comm->rank, t->bytes, t->peer,
                  (size_t)p->bytes, p->tag == t->tag ? "" : ", or the ranks make different calls");
    } else if (!t->started) {
        p->bytes = t->bytes, p->tag = t->tag;
        p->posted = *number + 1;
    }
    t->started = 1;
    if (t->sends ? p->filled != p->drained : p->filled == p->drained) return 0;
    size_t left = t->bytes - t->done, size = left < CHUNK ? left : CHUNK;
    if (size) t->sends ? memcpy(p->chunk, t->at + t->done, size) : memcpy(t->at + t->done, p->chunk, size);
    t->done += size;
    (t->sends ? &p->filled : &p->drained)[0]++;
    t->ended = t->done == t->bytes;
    *number += t->ended;
    return 1;
}

static float of_bfloat16(uint16_t stored) {
    return (union { uint32_t bits; float value; }){(uint32_t)stored << 16}.value;
}

static uint16_t to_bfloat16(float value) { /* to nearest, of two to the even one */
    uint32_t bits = (union { float value; uint32_t bits; }){value}.bits;
    return value != value ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

#define REDUCED(x, y) (w->op == SUM ? x + y : w->op == PROD ? x * y : w->op == MAX ? (x > y ? x : y) : x < y ? x : y)
#define FOLD(TYPE, LOAD, STORE)                                                                                        \
    for (size_t i = 0; i < w->count; i++) {                                                                            \
        TYPE all = ((TYPE *)scratch)[i];                                                                               \
        for (int rank = 1; rank < w->comm->ranks; rank++)                                                              \
            all = STORE(REDUCED(LOAD(all), LOAD(((TYPE *)scratch)[rank * w->count + i])));                             \
        ((TYPE *)w->out)[i] = all;                                                                                     \
    }                                                                                                                  \
    break

static void fold(const Work *w, char *scratch) {
    switch (w->type) {
        case INT8: FOLD(int8_t, , );
        case UINT8: FOLD(uint8_t, , );
        case INT32: FOLD(int32_t, , );
        case UINT32: FOLD(uint32_t, , );
        case INT64: FOLD(int64_t, , );
        case UINT64: FOLD(uint64_t, , );
        case FLOAT16: FOLD(_Float16, (float), );
        case FLOAT32: FOLD(float, , );
        case FLOAT64: FOLD(double, , );
        case BFLOAT16: FOLD(uint16_t, of_bfloat16, to_bfloat16);
    }
}

static void transfer_all(Work *w) {
    Comm *comm = w->comm;
    int raises = !strcmp(fault.kind, "error");
    int faulty = ++works == fault.number && comm->error == 0 && (raises || !strcmp(fault.kind, "stall"));
    if (faulty) warn(raises ? "a fault is injected: an asynchronous error" : "a fault is injected: no connection");
    if (faulty && raises) comm->error = comm->shared->failed = fault.status;
    size_t share = w->out ? w->count * SIZES[w->type] : 0;
    char *scratch = w->out ? malloc(share * comm->ranks + 1) : NULL;
    for (Transfer *t = w->transfer; t < w->transfer + w->transfers; t++) {
        t->started = t->ended = 0, t->done = 0;
        if (t->to_scratch) t->at = scratch + t->peer * share;
    }
    for (int left = w->transfers, turn = 0; (left || faulty) && !comm->aborted; turn++) {
        char busy[2][RANKS] = {0}; /* messages of two ranks are transferred in order */
        left = 0;
        for (Transfer *t = w->transfer; t < w->transfer + w->transfers && !faulty; t++) {
            if (t->ended) continue;
            left++;
            if (!busy[t->sends][t->peer]++ && go_on(comm, t)) turn = 0;
        }
        if (turn || faulty) rest(turn);
    }
    if (w->out && !comm->aborted) fold(w, scratch);
    free(scratch);
}

static struct { /* works of NCCL in the order of their launches */
    pthread_mutex_t mutex;
    uint64_t launched;
    _Atomic uint64_t ended; /* the first ones that have all ended */
    char over[LAUNCHES];
} order = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void in_order(Work *w) { /* run a work of NCCL when it may begin */
    const char *kind = getenv("NCCL_TEST_ORDER");
    int strict = kind && !strcmp(kind, "strict");
    for (int turn = 0; strict && order.ended < w->launch && !w->comm->aborted; turn++) rest(turn);
    transfer_all(w);
    pthread_mutex_lock(&order.mutex);
    order.over[w->launch % LAUNCHES] = 1;
    while (order.over[order.ended % LAUNCHES]) order.over[order.ended++ % LAUNCHES] = 0;
    pthread_mutex_unlock(&order.mutex);
}

/* ---- streams: what CUDA has on a GPU ----------------------------------------------------------------------------- */

static void *run_stream(void *argument) {
    Stream *s = argument;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->first) pthread_cond_wait(&s->changed, &s->mutex);
        Work *w = s->first;
        pthread_mutex_unlock(&s->mutex);
        uint64_t *a = w->arguments;
        if (w->kernel) w->kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
        else in_order(w);
        if (w->comm) w->comm->pending--;
        pthread_mutex_lock(&s->mutex);
        if (!(s->first = w->next)) s->end = &s->first;
        s->left--;
        free(w);
        pthread_cond_broadcast(&s->changed);
    }
    return NULL;
}

static void queue(Stream *s, Work *w) {
    w->next = NULL;
    if (s->capture) {
        *capture->end = w;
        capture->end = &w->next;
        w->captured_on = s;
        s->captured++;
        if (w->comm) w->comm->graphs++;
        return;
    }
    if (w->comm) {
        w->comm->pending++;
        pthread_mutex_lock(&order.mutex);
        w->launch = order.launched++;
        pthread_mutex_unlock(&order.mutex);
    }
    pthread_mutex_lock(&s->mutex);
    *s->end = w;
    s->end = &w->next;
    s->left++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

Stream *hostStreamCreate(void) {
    Stream *s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->end = &s->first;
    pthread_create(&s->thread, NULL, run_stream, s);
    return s;
}

int hostStreamLeft(Stream *s) { return s->left; }

void hostStreamWait(Stream *s) {
    pthread_mutex_lock(&s->mutex);
    while (s->left) pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

void hostLaunch(Stream *s, void *kernel, const uint64_t arguments[7]) {
    Work *w = calloc(1, sizeof *w);
    w->kernel = kernel;
    memcpy(w->arguments, arguments, sizeof w->arguments);
    queue(s, w);
}

Event *hostEventCreate(void) { return calloc(1, sizeof(Event)); } /* its few bytes stay, for works that are queued */
int64_t hostEventTime(const Event *e) { return e->at; }
int hostEventDone(const Event *e) { return e->passed >= e->recorded; }

static void pass(uint64_t event, uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t unused) {
    (void)a, (void)b, (void)c, (void)d, (void)unused;
    Event *e = (Event *)event;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    e->at = now.tv_sec * 1000000000 + now.tv_nsec;
    e->passed = number;
}

static void await(uint64_t event, uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    (void)a, (void)b, (void)c, (void)d, (void)e;
    for (int turn = 0; ((Event *)event)->passed < number; turn++) rest(turn);
}

void hostEventRecord(Event *e, Stream *s) {
    Work *w = calloc(1, sizeof *w);
    if (s->capture) {
        w->records = e;
        queue(s, w);
        e->capture = s->capture, e->stream = s, e->covers = s->captured;
        return;
    }
    e->capture = 0;
    w->kernel = pass, w->arguments[0] = (uint64_t)e, w->arguments[1] = ++e->recorded;
    queue(s, w);
}

void hostEventWait(Event *e, Stream *s) { /* for the last record before this call */
    if (e->capture && !(capture && e->capture == captures)) fatal("a stream waits for an event of a capture that has ended");
    if (s->capture && !e->capture) fatal("a captured stream waits for an event from outside of its capture");
    Work *w = calloc(1, sizeof *w);
    if (e->capture) {
        if (!s->capture) { /* it joins the capture */
            if (capture->streams == BRANCHES) fatal("more than %d streams in a capture", BRANCHES);
            capture->stream[capture->streams++] = s;
            s->capture = captures, s->captured = s->joined = 0;
        }
        w->awaits = e;
        queue(s, w);
        if (s == capture->stream[0]) e->stream->joined = e->covers;
        return;
    }
    w->kernel = await, w->arguments[0] = (uint64_t)e, w->arguments[1] = e->recorded;
    queue(s, w);
}

void hostCaptureBegin(Stream *s) {
    if (capture) fatal("a capture begins before another has ended");
    capture = calloc(1, sizeof *capture);
    capture->end = &capture->first;
    capture->stream[capture->streams++] = s;
    s->capture = ++captures, s->captured = s->joined = 0;
}

static Stream *branch(void) { /* a thread for works of a graph */
    Stream *s = idle_branches;
    if (!s) return hostStreamCreate();
    idle_branches = s->next;
    return s;
}

Graph *hostCaptureEnd(Stream *s) {
    Graph *g = capture;
    if (!g || g->stream[0] != s) fatal("a capture ends on another stream than that on which it began");
    for (int i = 0; i < g->streams; i++) {
        if (i && g->stream[i]->joined < g->stream[i]->captured) fatal("a stream of a capture has not joined its origin");
        g->stream[i]->capture = 0;
        g->branch[i] = i ? branch() : NULL;
    }
    for (Work *w = g->first; w; w = w->next) { /* the events of a graph are its own */
        if (!w->records) continue;
        Event *own = hostEventCreate();
        for (Work *later = w->next; later && later->records != w->records; later = later->next)
            if (later->awaits == w->records) later->awaits = own;
        w->records = own;
    }
    return capture = NULL, g;
}

void hostGraphLaunch(Stream *s, const Graph *g) {
    for (const Work *each = g->first; each; each = each->next) {
        Stream *target = s;
        for (int i = 1; i < g->streams; i++)
            if (g->stream[i] == each->captured_on) target = g->branch[i];
        if (each->records) hostEventRecord(each->records, target);
        else if (each->awaits) hostEventWait(each->awaits, target);
        else {
            size_t size = sizeof *each + each->transfers * sizeof(Transfer);
            queue(target, memcpy(malloc(size), each, size));
        }
    }
}

void hostGraphDestroy(Graph *g) {
    for (Work *next, *w = g->first; w; w = next) {
        next = w->next;
        if (w->comm) w->comm->graphs--;
        free(w);
    }
    for (int i = 1; i < g->streams; i++) g->branch[i]->next = idle_branches, idle_branches = g->branch[i];
    free(g);
}

const char *hostCalls(void) { return notes; }
void hostForgetCalls(void) { notes[noted = 0] = 0; }

/* ---- communicators ----------------------------------------------------------------------------------------------- */

int ncclGetVersion(int *version) {
    const char *text = getenv("NCCL_TEST_VERSION");
    *version = text ? atoi(text) : 23000;
    return SUCCESS;
}

static void meet(Comm *comm) { /* wait for all ranks */
    int target = ++comm->barriers * comm->ranks;
    comm->shared->arrived++;
    for (int turn = 0; comm->shared->arrived < target && !comm->aborted; turn++) rest(turn);
}

static void log_communicator(Comm *comm) {
    char (*hosts)[64] = comm->shared->hosts;
    int nodes = 0, local_ranks = 0, local_rank = 0, version;
    for (int rank = 0; rank < comm->ranks; rank++) {
        int earlier = 0, here = !strcmp(hosts[rank], hosts[comm->rank]);
        for (int other = 0; other < rank; other++) earlier |= !strcmp(hosts[other], hosts[rank]);
        nodes += !earlier, local_ranks += here, local_rank += here && rank < comm->rank;
    }
    ncclGetVersion(&version);
    if (!logs.shown)
        info(ANY, "NCCL version %d.%d.%d: the test library of hpccoll, in host memory", version / 10000,
             version / 100 % 100, version % 100);
    logs.shown |= (logs.enabled & ANY) != 0;
    info(INIT, "Using network Socket");
    info(INIT, "comm %p rank %d nRanks %d nNodes %d localRanks %d localRank %d MNNVL 0", (void *)comm, comm->rank,
         comm->ranks, nodes, local_ranks, local_rank);
}

void hostDevice(const char *name, int number) {
    snprintf(device, sizeof device, "%s", name);
    device_number = number;
}
void hostSelect(int number) { current_device = number; }

static int refuses_device(Comm *comm) { /* before 2.30 only at the ranks that share one */
    char (*devices)[96] = comm->shared->devices;
    const char *host = getenv("NCCL_HOSTID"), *enabled = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    char name[40] = "";
    gethostname(name, sizeof name - 1);
    snprintf(devices[comm->rank], sizeof *devices, "%.40s %s", host ? host : name, device);
    meet(comm);
    int version;
    ncclGetVersion(&version);
    if (!*device || (version >= 23000 && enabled && atoi(enabled))) return 0;
    for (int i = 0; i < comm->ranks; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(devices[i], devices[j]) && (version >= 23000 || i == comm->rank || j == comm->rank)) return 1;
    return 0;
}

static Comm *new_comm(int ranks, const char *name, int rank) { /* of one that has not met the others */
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks || name[0] != '/') return NULL;
    Comm *comm = calloc(1, sizeof *comm);
    comm->magic = MAGIC, comm->rank = rank, comm->ranks = ranks;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    return comm;
}

static int join_others(Comm *comm) {
    int rank = comm->rank, ranks = comm->ranks;
    const char *text = getenv("NCCL_TEST_FAULT");
    if (!created && text && sscanf(text, "%d:%d:%7[a-z]:%d", &fault.rank, &fault.number, fault.kind, &fault.status) < 3)
        return INVALID_USAGE;
    if (!created && fault.rank != rank && fault.rank != ALL) fault.number = 0;
    comm->mapped = sizeof(Shared) + ranks * ranks * sizeof(Pair);
    const char *place = getenv("HPCCOLL_TEST_MEMORY");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", place ? place : "/dev/shm", comm->name);
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, comm->mapped)) return SYSTEM_ERROR;
    void *at = mmap(NULL, comm->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return SYSTEM_ERROR;
    comm->shared = at;
    if (host_name(comm->shared->hosts[rank], sizeof comm->shared->hosts[rank])) return SYSTEM_ERROR;
    meet(comm);
    if (rank == 0 || comm->aborted) unlink(path);
    log_communicator(comm);
    comms[created % COMMS] = comm;
    if (refuses_device(comm)) return INVALID_USAGE;
    return ++created == fault.number && !strcmp(fault.kind, "init") ? fault.status : SUCCESS;
}

static int create(Comm **made, int ranks, const char *name, int rank) {
    Comm *comm = new_comm(ranks, name, rank);
    int result = comm ? join_others(comm) : INVALID_ARGUMENT;
    if (!result) *made = comm;
    return result;
}

static void *join_later(void *argument) {
    Comm *comm = argument;
    comm->error = join_others(comm);
    comm->busy = 0;
    return NULL;
}

static int run_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    return pthread_create(&thread, NULL, function, argument) || pthread_detach(thread) ? SYSTEM_ERROR : IN_PROGRESS;
}

static int note_config(const Config *c) {
    if (!c) return SUCCESS;
    if (c->magic != MAGIC || c->size < 24) return INVALID_ARGUMENT; /* that of 2.14, which introduced it */
#define FIELD(NAME, LEAST)                                                                                            \
    if (c->size >= offsetof(Config, NAME) + sizeof c->NAME && c->NAME != INT_MIN) {                                 \
        if (c->NAME < LEAST) return INVALID_ARGUMENT;                                                                 \
        note(" %s=%d", #NAME, c->NAME);                                                                               \
    }
    FIELD(cgaClusterSize, 0) FIELD(minCTAs, 1) FIELD(maxCTAs, 1) FIELD(trafficClass, 0) FIELD(collnetEnable, 0)
    FIELD(CTAPolicy, 0) FIELD(nvlsCTAs, 1) FIELD(nChannelsPerNetPeer, 1) FIELD(nvlinkCentricSched, 0)
    if (c->size >= offsetof(Config, netName) + sizeof c->netName && c->netName) note(" netName=%s", c->netName);
    return SUCCESS;
}

int ncclGetUniqueId(Id *id) {
    enter(__func__);
    static _Atomic int number;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, 60, "/nccl-test-%d-%d-%lx", getpid(), ++number, now.tv_nsec);
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm **comm, int ranks, Id id, int rank, Config *config) {
    enter(__func__);
    note("\nncclCommInitRankConfig");
    *comm = NULL;
    int result = note_config(config);
    if (!result && config && config->blocking == 0) {
        if (!(*comm = new_comm(ranks, id.internal, rank))) return INVALID_ARGUMENT;
        (*comm)->nonblocking = (*comm)->busy = 1;
        return run_thread(join_later, *comm);
    }
    result = result ? result : create(comm, ranks, id.internal, rank);
    uint64_t hash = 1;
    for (const char *letter = id.internal; *letter; letter++) hash = hash * 31 + *letter;
    if (!result)
        info(INIT, "%s comm %p rank %d nranks %d cudaDev 0 nvmlDev 0 busId 0 commId 0x%lx - Init COMPLETE", __func__,
             (void *)*comm, rank, ranks, hash);
    return result;
}

int ncclCommInitAll(void) { return INVALID_USAGE; /* of several GPUs a process; the bindings link it */ }

int ncclCommSplit(Comm *comm, int color, int key, Comm **made, Config *config) {
    enter(__func__);
    note("\nncclCommSplit");
    *made = NULL;
    if (!valid(comm) || note_config(config)) return INVALID_ARGUMENT;
    comm->shared->said[comm->rank].color = color, comm->shared->said[comm->rank].key = key;
    meet(comm);
    int rank = 0, ranks = 0;
    for (int i = 0; i < comm->ranks; i++) {
        if (comm->shared->said[i].color != color) continue;
        ranks++, rank += comm->shared->said[i].key < key || (comm->shared->said[i].key == key && i < comm->rank);
    }
    char name[64];
    snprintf(name, sizeof name, "%.40s-%d.%d", comm->name, ++comm->splits, color);
    meet(comm);
    return color < 0 ? SUCCESS : create(made, ranks, name, rank);
}

static int release(Comm *comm, int aborts) {
    if (!valid(comm)) return INVALID_ARGUMENT;
    if (comm->graphs) fatal("a communicator ends before a graph of its operations, which hangs NCCL");
    comm->aborted = aborts;
    for (int turn = 0; comm->pending || comm->busy; turn++) rest(turn);
    for (int i = 0; i < COMMS; i++)
        if (comms[i] == comm) comms[i] = NULL;
    for (Registration *next, *r = comm->registrations; r; r = next) next = r->next, free(r);
    if (comm->shared) munmap(comm->shared, comm->mapped);
    comm->magic = 0; /* its few bytes stay, so that a later use is noticed */
    return SUCCESS;
}

int ncclCommDestroy(Comm *comm) {
    enter(__func__);
    return note("\nncclCommDestroy"), release(comm, 0);
}

int ncclCommAbort(Comm *comm) {
    enter(__func__);
    return note("\nncclCommAbort"), release(comm, 1);
}

int ncclCommGetAsyncError(Comm *comm, int *error) {
    enter(__func__);
    if (!valid(comm)) return INVALID_ARGUMENT;
    *error = comm->busy ? IN_PROGRESS : comm->error ? comm->error : comm->shared->failed ? REMOTE_ERROR : SUCCESS;
    return SUCCESS;
}

int ncclCommCount(const Comm *comm, int *count) { return *count = comm->ranks, SUCCESS; }
int ncclCommUserRank(const Comm *comm, int *rank) { return *rank = comm->rank, SUCCESS; }
int ncclCommCuDevice(const Comm *comm, int *device) { return *device = 0, comm ? SUCCESS : INVALID_ARGUMENT; }

const char *ncclGetErrorString(int result) {
    static const char *const TEXTS[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                        "invalid argument", "invalid usage", "remote process exited",
                                        "NCCL operation in progress", "NCCL operation timed out"};
    return result >= 0 && result <= TIMEOUT ? TEXTS[result] : "unknown result code";
}

const char *ncclGetLastError(const Comm *comm) { return comm ? "" : ""; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int ncclMemAlloc(void **at, size_t size) {
    enter(__func__);
    note("\nncclMemAlloc %zu", size);
    return posix_memalign(at, PAGE, size) ? CUDA_ERROR : SUCCESS;
}

int ncclMemFree(void *at) {
    enter(__func__);
    note("\nncclMemFree");
    for (int i = 0; i < COMMS; i++)
        for (Registration *r = comms[i] ? comms[i]->registrations : NULL; r; r = r->next)
            if (r->at == at) fatal("memory is freed that is registered with a communicator");
    return free(at), SUCCESS;
}

static int add(Comm *comm, void *at, Registration **handle) {
    if (!valid(comm) || !at) return INVALID_ARGUMENT;
    Registration *r = malloc(sizeof *r);
    *r = (Registration){comm->registrations, at};
    return *handle = comm->registrations = r, SUCCESS;
}

static int drop(Comm *comm, Registration *handle) {
    for (Registration **r = valid(comm) ? &comm->registrations : NULL; r && *r; r = &(*r)->next)
        if (*r == handle) return *r = handle->next, free(handle), SUCCESS;
    return INVALID_ARGUMENT;
}

int ncclCommRegister(Comm *comm, void *at, size_t size, Registration **handle) {
    enter(__func__);
    return note("\nncclCommRegister %zu", size), add(comm, at, handle);
}

int ncclCommDeregister(Comm *comm, Registration *handle) {
    enter(__func__);
    return note("\nncclCommDeregister"), drop(comm, handle);
}

int ncclCommWindowRegister(Comm *comm, void *at, size_t size, Registration **window, int flags) {
    enter(__func__);
    note("\nncclCommWindowRegister %zu %d", size, flags);
    if (!valid(comm) || (uintptr_t)at % PAGE) return INVALID_ARGUMENT;
    comm->shared->said[comm->rank].size = size;
    meet(comm);
    for (int i = 0; i < comm->ranks; i++)
        if (comm->shared->said[i].size != size) fatal("windows of unequal sizes: %zu here", size);
    meet(comm);
    const char *enabled = getenv("NCCL_WIN_ENABLE");
    return enabled && !strcmp(enabled, "0") ? (*window = NULL, SUCCESS) : add(comm, at, window);
}

int ncclCommWindowDeregister(Comm *comm, Registration *window) {
    enter(__func__);
    return note("\nncclCommWindowDeregister"), drop(comm, window);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static int rejected(void) { return ++calls == fault.number && !strcmp(fault.kind, "call"); }

typedef struct { Stream *stream; Work *work; } Launch;

static void *launch_later(void *argument) { /* the first message of a rank waits until the other one has come to it */
    Launch *l = argument;
    Comm *comm = l->work->comm;
    if (!comm->connected++) meet(comm);
    comm->aborted ? free(l->work) : queue(l->stream, l->work);
    free(l);
    comm->busy = 0;
    return NULL;
}

int ncclGroupStart(void) { return group.depth++, SUCCESS; }

int ncclGroupEnd(void) {
    enter(__func__);
    if (!group.depth) return INVALID_USAGE;
    if (--group.depth || !group.work) return SUCCESS;
    const Transfer *first = group.work->transfer, *end = first + group.work->transfers;
    for (const Transfer *a = first; a < end; a++)
        for (const Transfer *b = first; b < end; b++)
            if (a != b && !a->sends && overlap(a->at, a->bytes, b->at, b->bytes))
                fatal("messages of one group with rank %d and rank %d touch the same memory", a->peer, b->peer);
    Work *work = group.work;
    group.work = NULL;
    if (rejected()) return free(work), fault.status;
    if (!work->comm->nonblocking) return queue(group.stream, work), SUCCESS;
    Launch *later = malloc(sizeof *later);
    *later = (Launch){group.stream, work};
    work->comm->busy = 1;
    return run_thread(launch_later, later);
}

static int message(Comm *comm, int sends, const void *at, size_t count, int type, int peer, Stream *stream) {
    note(sends ? "\nncclSend" : "\nncclRecv");
    if (!valid(comm) || comm->busy || peer < 0 || peer >= comm->ranks || type < 0 || type >= TYPES || (count && !at))
        return INVALID_ARGUMENT;
    if (group.work && (group.work->comm != comm || group.stream != stream)) return INVALID_USAGE; /* NCCL allows it */
    log_call(sends ? "ncclSend" : "ncclRecv", NULL, at, count, type, SUM, peer, comm, stream);
    ncclGroupStart();
    int number = group.work ? group.work->transfers : 0;
    Work *w = group.work = realloc(group.work, sizeof *w + (number + 1) * sizeof(Transfer));
    if (!number) memset(w, 0, sizeof *w);
    w->comm = comm, w->transfers = number + 1, group.stream = stream;
    w->transfer[number] = (Transfer){sends, peer, 0, (char *)at, count * SIZES[type], .tag = 0};
    return ncclGroupEnd();
}

int ncclSend(const void *at, size_t count, int type, int peer, Comm *c, Stream *s) {
    return message(c, 1, at, count, type, peer, s);
}
int ncclRecv(void *at, size_t count, int type, int peer, Comm *c, Stream *s) {
    return message(c, 0, at, count, type, peer, s);
}

typedef struct { const char *name; int to_all, from_all, sends_blocks, receives_blocks, folds, tuned; } Collective;
static const Collective ALL_REDUCE = {"ncclAllReduce", 1, 1, 0, 0, 1, 1}, REDUCE = {"ncclReduce", 0, 1, 0, 0, 1, 1},
                        BROADCAST = {"ncclBroadcast", 1, 0, 0, 0, 0, 1}, GATHER = {"ncclGather", 0, 1, 0, 1, 0, 0},
                        REDUCE_SCATTER = {"ncclReduceScatter", 1, 1, 1, 0, 1, 1},
                        SCATTER = {"ncclScatter", 1, 0, 1, 0, 0, 0},
                        ALL_GATHER = {"ncclAllGather", 1, 1, 0, 1, 0, 1},
                        ALL_TO_ALL = {"ncclAlltoAll", 1, 1, 1, 1, 0, 0};

static int collective(const Collective *c, const void *from, void *to, size_t count, int type, int op, int root,
                      Comm *comm, Stream *stream) {
    enter(c->name);
    note("\n%s", c->name);
    if (!valid(comm) || type < 0 || type >= TYPES || op < 0 || op >= OPS || root < 0 || root >= comm->ranks)
        return INVALID_ARGUMENT;
    int n = comm->ranks, me = comm->rank, at_root = me == root;
    int sends = c->from_all || at_root, receives = c->to_all || at_root;
    size_t size = count * SIZES[type], out = size * (c->sends_blocks ? n : 1), in = size * (c->receives_blocks ? n : 1);
    if ((sends && out && !from) || (receives && in && !to)) return INVALID_ARGUMENT;
    int in_place = c->sends_blocks ? !c->receives_blocks && (char *)to == (char *)from + me * size
                                   : (char *)from == (char *)to + (c->receives_blocks ? me * size : 0);
    if (sends && receives && !in_place && overlap(from, out, to, in)) fatal("buffers of %s overlap", c->name);
    log_call(c->name, from, to, count, type, op, root, comm, stream);
    if (me == 0 && n > 1 && c->tuned)
        info(TUNING, "%s: %zu Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}", c->name + strlen("nccl"), size);
    Work *w = calloc(1, sizeof *w + 2 * n * sizeof(Transfer));
    w->comm = comm, w->count = count, w->type = type, w->op = op, w->out = c->folds && receives ? to : NULL;
    if (rejected()) return free(w), fault.status;
    uint64_t tag = ((count * 64 + type) * 8 + op) * 64 + root;
    for (const char *letter = c->name; *letter; letter++) tag = tag * 31 + *letter;
    for (int peer = 0; peer < n; peer++) {
        if (sends && (c->to_all || peer == root))
            w->transfer[w->transfers++] =
                (Transfer){1, peer, 0, (char *)from + (c->sends_blocks ? peer * size : 0), size, .tag = tag};
        if (receives && (c->from_all || peer == root))
            w->transfer[w->transfers++] =
                (Transfer){0, peer, c->folds, (char *)to + (c->receives_blocks ? peer * size : 0), size, .tag = tag};
    }
    queue(stream, w);
    return SUCCESS;
}

#define IN const void *from, void *to, size_t count, int type
int ncclAllReduce(IN, int op, Comm *c, Stream *s) {
    return collective(&ALL_REDUCE, from, to, count, type, op, 0, c, s);
}
int ncclReduceScatter(IN, int op, Comm *c, Stream *s) {
    return collective(&REDUCE_SCATTER, from, to, count, type, op, 0, c, s);
}
int ncclReduce(IN, int op, int root, Comm *c, Stream *s) {
    return collective(&REDUCE, from, to, count, type, op, root, c, s);
}
int ncclBroadcast(IN, int root, Comm *c, Stream *s) {
    return collective(&BROADCAST, from, to, count, type, 0, root, c, s);
}
int ncclGather(IN, int root, Comm *c, Stream *s) { return collective(&GATHER, from, to, count, type, 0, root, c, s); }
int ncclScatter(IN, int root, Comm *c, Stream *s) { return collective(&SCATTER, from, to, count, type, 0, root, c, s); }
int ncclAllGather(IN, Comm *c, Stream *s) { return collective(&ALL_GATHER, from, to, count, type, 0, 0, c, s); }
int ncclAlltoAll(IN, Comm *c, Stream *s) { return collective(&ALL_TO_ALL, from, to, count, type, 0, 0, c, s); }
int ncclBcast(void *at, size_t count, int type, int root, Comm *c, Stream *s) {
    return ncclBroadcast(at, at, count, type, root, c, s);
}
