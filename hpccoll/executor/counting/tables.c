/* Tables of handles: open addressing, written under one lock, read without any.
 *
 * A handle is looked up by the thread that uses it, so nobody removes or reuses it meanwhile. Other handles may come and
 * go beside it: a removed one leaves its place REMOVED, over which a search goes on. */

#include "counting.h"

#include <pthread.h>

enum { EMPTY = 0, REMOVED = -2 };

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static unsigned place_of(word handle, unsigned step) {
    const uint64_t mixed = (uint64_t)handle * 0x9E3779B97F4A7C15u;
    return (unsigned)(mixed >> 40) + step;
}

/* Returns the place of a handle, or -1. */
static int search(handle_table *table, word handle) {
    if (handle == EMPTY || handle == REMOVED) return -1; /* no handle: it would find a free place */
    for (unsigned step = 0; step < LONGEST_PROBE; step++) {
        const unsigned place = place_of(handle, step) % TABLE_SIZE;
        const word key = atomic_load_explicit(&table->keys[place], memory_order_acquire);
        if (key == handle) return (int)place;
        if (key == EMPTY) return -1;
    }
    return -1;
}

int find_handle(handle_table *table, word handle, int64_t *value) {
    const int place = search(table, handle);
    if (place < 0) return 0;
    *value = atomic_load_explicit(&table->values[place], memory_order_relaxed);
    return 1;
}

int put_handle(handle_table *table, word handle, int64_t value) {
    if (handle == EMPTY || handle == REMOVED) return 0;
    pthread_mutex_lock(&writing);
    int place = search(table, handle);
    for (unsigned step = 0; place < 0 && step < LONGEST_PROBE; step++) {
        const unsigned candidate = place_of(handle, step) % TABLE_SIZE;
        const word key = atomic_load_explicit(&table->keys[candidate], memory_order_relaxed);
        if (key == EMPTY || key == REMOVED) place = (int)candidate;
    }
    if (place >= 0) {
        atomic_store_explicit(&table->values[place], value, memory_order_relaxed);
        atomic_store_explicit(&table->keys[place], handle, memory_order_release);
    }
    pthread_mutex_unlock(&writing);
    return place >= 0;
}

int64_t take_handle(handle_table *table, word handle) {
    int64_t value = -1;
    pthread_mutex_lock(&writing);
    const int place = search(table, handle);
    if (place >= 0) {
        value = atomic_load_explicit(&table->values[place], memory_order_relaxed);
        atomic_store_explicit(&table->keys[place], REMOVED, memory_order_release);
    }
    pthread_mutex_unlock(&writing);
    return value;
}
