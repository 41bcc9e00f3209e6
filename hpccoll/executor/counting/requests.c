/* Persistent collectives: what a request starts, from its creation until the program frees it. */

#include "counting.h"

#include <pthread.h>

enum { MAX_REQUESTS = 4096 };
static call_kind kinds[MAX_REQUESTS];
static _Atomic int kind_count;
static int free_places[MAX_REQUESTS], free_count;
static handle_table places;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

void add_request(word request, const call_kind *kind) {
    remove_request(request); /* one that was freed where nobody saw it */
    int is_added = 0;
    pthread_mutex_lock(&adding);
    if (free_count || kind_count < MAX_REQUESTS) {
        const int place = free_count ? free_places[--free_count] : kind_count++;
        kinds[place] = *kind;
        is_added = put_handle(&places, request, place);
        if (!is_added) free_places[free_count++] = place;
    }
    pthread_mutex_unlock(&adding);
    if (!is_added) leave_out_call(); /* its starts cannot be told from those of messages */
}

int find_request(word request, call_kind *kind) {
    int64_t place = 0;
    if (!kind_count || !find_handle(&places, request, &place)) return 0;
    *kind = kinds[place];
    return 1;
}

void remove_request(word request) {
    if (!kind_count) return;
    const int64_t place = take_handle(&places, request);
    if (place < 0) return;
    pthread_mutex_lock(&adding);
    free_places[free_count++] = (int)place;
    pthread_mutex_unlock(&adding);
}
