/* Runs plans: sequences of steps, each of which starts messages together and ends when all of them have completed. */
#include "executor.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SPIN_NS 10000  /* so long a rank with a core of its own spins: switching to another program takes as long */
#define YIELD_NS 100000 /* so long a rank that shares its core yields before it sleeps */
#define SLEEP_NS 20000
#define SLACK_NS 10000
#define AWAKE_NS 300000
#define POLLS_PER_PROBE 16

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline void pause_core(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int probe(const probe_t *probe) {
    int flag;
    return probe->mpi->iprobe((int)probe->rank, 0, probe->comm, &flag, probe->status);
}

/* Linux would add 50 us to a sleep of this thread: its timer slack. */
static void short_sleep(void) {
    static int slack_is_set;
    if (!slack_is_set) slack_is_set = !prctl(PR_SET_TIMERSLACK, SLACK_NS);
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

void end_idle(idle_t *state) { state->since_ns = 0; }

int idle(idle_t *state, const probe_t *of) {
    const int64_t now = now_ns();
    if (!state->since_ns) state->since_ns = now;
    const int64_t waited = now - state->since_ns;
    if (state->shares_core && waited >= YIELD_NS)
        short_sleep();
    else if (state->shares_core || waited >= SPIN_NS)
        sched_yield();
    else
        pause_core();
    const int due = ++state->polls % POLLS_PER_PROBE == 0 || waited >= SPIN_NS || state->shares_core;
    return due ? probe(of) : 0;
}

static int fail(plan_t *plan, enum failed_call call, int error) {
    plan->failed = call;
    plan->error = error;
    return -1;
}

static char *request_slot(plan_t *plan, int64_t sequence) {
    return plan->active + sequence * plan->slots * plan->probe.mpi->request_size;
}

/* Start the messages of a step; their requests are then in the slots of the sequence. */
static int start_messages(plan_t *plan, int64_t number, const step_t *step) {
    const mpi_t *mpi = plan->probe.mpi;
    const int64_t count = step->messages_end - step->messages;
    if (!count) return 0;
    char *slots = request_slot(plan, number);
    if (plan->requests) {
        char *requests = plan->requests + step->messages * mpi->request_size;
        const int error = mpi->startall((int)count, requests);
        if (error) return fail(plan, FAILED_STARTALL, error);
        memcpy(slots, requests, (size_t)(count * mpi->request_size)); /* persistent handles never change */
        return 0;
    }
    for (const message_t *m = plan->messages + step->messages; m < plan->messages + step->messages_end; m++) {
        const int error = m->sends ? mpi->isend(m->data, m->count, m->datatype, m->peer, m->tag, plan->probe.comm, slots)
                                   : mpi->irecv(m->data, m->count, m->datatype, m->peer, m->tag, plan->probe.comm, slots);
        if (error) return fail(plan, FAILED_START, error);
        slots += mpi->request_size;
    }
    return 0;
}

/* Start the next step that has something to wait for, after all work before it. */
static int begin_steps(plan_t *plan, int64_t number) {
    sequence_t *sequence = &plan->sequences[number];
    for (; sequence->at < sequence->end; sequence->at++) {
        const step_t *step = &plan->steps[sequence->at];
        do_work(plan->works + step->before, step->before_end - step->before);
        for (const signal_t *s = plan->signals + step->raised; s < plan->signals + step->raised_end; s++)
            atomic_store_explicit(s->word, (plan->runs - 1) * s->per_run + s->ordinal, memory_order_release);
        if (start_messages(plan, number, step)) return -1;
        sequence->pending = step->messages_end - step->messages;
        sequence->next_awaited = step->awaited;
        if (sequence->pending || step->awaited < step->awaited_end) return 0;
        do_work(plan->works + step->after, step->after_end - step->after);
    }
    plan->running--;
    return 0;
}

/* A sequence starts at once, or when the one `initial` before it has completed a step or has none. */
static int may_start(const plan_t *plan, int64_t number) {
    if (number < plan->initial) return 1;
    const sequence_t *before = &plan->sequences[number - plan->initial];
    return before->at > before->first || before->first == before->end;
}

static int start_sequences(plan_t *plan) {
    while (plan->started < plan->sequence_count && may_start(plan, plan->started)) {
        plan->running++;
        if (begin_steps(plan, plan->started++)) return -1;
    }
    return 0;
}

int hpccoll_start(plan_t *plan) {
    plan->runs++;
    plan->started = plan->running = 0;
    plan->failed = FAILED_NONE;
    end_idle(&plan->idle);
    for (sequence_t *s = plan->sequences; s < plan->sequences + plan->sequence_count; s++) s->at = s->first;
    for (const call_t *c = plan->calls; c < plan->calls + plan->call_count; c++) {
        const intptr_t *a = c->arguments;
        const int error =
            c->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
        if (error) return fail(plan, FAILED_CALL, error);
    }
    return start_sequences(plan);
}

/* Subtract the messages that have completed from those of their sequences; return whether there are any, or -1. */
static int test_messages(plan_t *plan) {
    const mpi_t *mpi = plan->probe.mpi;
    int completed = 0;
    if (plan->sequence_count == 1) {
        const int count = (int)plan->sequences->pending;
        if (!count) return 0;
        const int error = mpi->testall(count, plan->active, &completed, plan->statuses);
        if (error) return fail(plan, FAILED_TEST, error);
        if (completed) plan->sequences->pending = 0;
        return completed;
    }
    const int slots = (int)(plan->started * plan->slots);
    if (!slots) return 0;
    const int error = mpi->testsome(slots, plan->active, &completed, plan->indices, plan->statuses);
    if (error) return fail(plan, FAILED_TEST, error);
    for (int i = 0; i < completed; i++) plan->sequences[plan->indices[i] / plan->slots].pending--;
    return completed > 0; /* MPI_UNDEFINED, which is negative, means that no request is active */
}

static int signals_came(const plan_t *plan, sequence_t *sequence, const step_t *step) {
    for (; sequence->next_awaited < step->awaited_end; sequence->next_awaited++) {
        const signal_t *s = &plan->signals[sequence->next_awaited];
        const int64_t value = atomic_load_explicit(s->word, memory_order_acquire);
        if (value < (plan->runs - 1) * s->per_run + s->ordinal) return 0;
    }
    return 1;
}

/* Move on as far as possible without waiting; return 1 if anything has moved, 0 if not, and -1 after an error. */
static int advance(plan_t *plan) {
    int moved = test_messages(plan);
    if (moved < 0) return -1;
    for (int64_t number = 0; number < plan->started; number++) {
        sequence_t *sequence = &plan->sequences[number];
        if (sequence->at == sequence->end || sequence->pending) continue;
        const step_t *step = &plan->steps[sequence->at];
        if (!signals_came(plan, sequence, step)) continue;
        do_work(plan->works + step->after, step->after_end - step->after);
        sequence->at++;
        if (begin_steps(plan, number) || start_sequences(plan)) return -1;
        moved = 1;
    }
    return moved;
}

/* Progress for callers that do something else in between: it also drives the library's progress.
 * Return 1 once the run has ended, 0 before, and -1 after an error. */
HPCCOLL_API int hpccoll_progress(plan_t *plan) {
    const int error = probe(&plan->probe);
    if (error) return fail(plan, FAILED_PROBE, error);
    if (plan->running && advance(plan) < 0) return -1;
    return !plan->running;
}

/* A timer of a virtual machine is up to 300 us late: the last part of the time is not slept. */
static void sleep_until(int64_t until_ns) {
    const int64_t awake_ns = until_ns - AWAKE_NS;
    const struct timespec until = {.tv_sec = awake_ns / 1000000000, .tv_nsec = awake_ns % 1000000000};
    while (now_ns() < awake_ns && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
    while (now_ns() < until_ns) sched_yield();
}

/* Advance started plans, each whenever it can, until `needed` of them have ended or the clock reaches `until_ns`; without
 * plans, sleep until then. Return 1 once so many have ended, 0 at that time, and -1 after an error. */
int hpccoll_wait(plan_t *const *plans, int64_t count, int64_t needed, int64_t until_ns) {
    if (!count) {
        sleep_until(until_ns);
        return 0;
    }
    idle_t *const waited = &plans[0]->idle;
    end_idle(waited);
    for (;;) {
        plan_t *running = NULL;
        int64_t ended = 0;
        int moved = 0;
        for (int64_t i = 0; i < count; i++) {
            const int advanced = plans[i]->running ? advance(plans[i]) : 0;
            if (advanced < 0) return -1;
            moved += advanced;
            if (plans[i]->running) running = plans[i];
            else ended++;
        }
        if (ended >= needed) return 1;
        if (until_ns != NEVER && now_ns() >= until_ns) return 0;
        if (moved) {
            end_idle(waited);
            continue;
        }
        const int error = idle(waited, &running->probe);
        if (error) return fail(running, FAILED_PROBE, error);
    }
}

int hpccoll_run(plan_t *plan) {
    return hpccoll_start(plan) ? -1 : hpccoll_wait(&plan, 1, 1, NEVER);
}
