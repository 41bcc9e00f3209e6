/* The program's communicators: what counting needs of each, found when it is created or first used.
 *
 * A handle is forgotten when the program frees it, because the library gives it to a later communicator. Communicators
 * of the same ranks in the same order, created by the same function, are one group: a program that splits and frees in a
 * loop fills one line of its file. */

#include "communicators.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COMMS = 4096 };
static communicator comms[MAX_COMMS];
static int comm_count, free_comms[MAX_COMMS], free_count;
static handle_table comm_numbers;

/* What created a communicator that is first seen when it is used. */
static const char UNKNOWN_CREATOR[] = "unknown";

group_facts groups[MAX_GROUPS];
static _Atomic int group_count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

int number_of_groups(void) { return group_count; }

/* Returns the ranks of MPI_COMM_WORLD that are in a communicator, in its order; the caller frees them. */
static int32_t *ranks_in_world(word comm, int size, int is_inter) {
    word group = 0, world_group = 0;
    int32_t *own = malloc(sizeof(int32_t) * (size_t)size), *ranks = malloc(sizeof(int32_t) * (size_t)size);
    for (int i = 0; own && i < size; i++) own[i] = i;
    const int has_world = own && ranks && is_counting() && world_is_initialized();
    int failed = !has_world || (is_inter ? MPI(Comm_remote_group, comm, (word)&group) : MPI(Comm_group, comm, (word)&group));
    if (!failed) {
        failed = MPI(Comm_group, library()->world, (word)&world_group);
        if (!failed) {
            failed = MPI(Group_translate_ranks, read_handle(&group), size, (word)own, read_handle(&world_group), (word)ranks);
            MPI(Group_free, (word)&world_group);
        }
        MPI(Group_free, (word)&group);
    }
    free(own);
    if (!failed) return ranks;
    free(ranks);
    return NULL;
}

/* Returns ranks as text: runs of first:count:stride, such as 0:8:1 or 0:4:2,1:4:2; the caller frees it. */
static char *runs_of(const int32_t *ranks, int size) {
    enum { LONGEST = 1 << 16, RUN = 40 };
    char *text = malloc(LONGEST);
    size_t length = 0;
    if (!text) return NULL;
    for (int first = 0; first < size;) {
        const int stride = first + 1 < size ? ranks[first + 1] - ranks[first] : 1;
        int count = 1;
        while (first + count < size && ranks[first + count] - ranks[first + count - 1] == stride) count++;
        if (length + RUN > LONGEST) { /* too many to tell: the hash remains */
            free(text);
            return NULL;
        }
        length += (size_t)sprintf(text + length, "%s%d:%d:%d", first ? "," : "", ranks[first], count, stride);
        first += count;
    }
    char *shortened = realloc(text, length + 1);
    return shortened ? shortened : text;
}

static uint64_t hash_of(const int32_t *ranks, int size) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; ranks && i < size; i++) hash = (hash ^ (uint32_t)ranks[i]) * 1099511628211u;
    return hash;
}

/* Returns the number of the group that a communicator belongs to. */
static int group_of(word comm, const communicator *facts, const char *created_by) {
    const int size = facts->blocks;
    int32_t *ranks = ranks_in_world(comm, size, facts->is_inter);
    const uint64_t hash = hash_of(ranks, size);
    int number = 0;
    for (; number < group_count; number++) {
        const group_facts *group = &groups[number];
        if (group->hash == hash && group->size == facts->size && group->blocks == size && group->created_by == created_by) break;
    }
    if (number == group_count) {
        if (number >= OTHER_GROUPS) number = OTHER_GROUPS;
        else {
            char *runs = ranks ? runs_of(ranks, size) : NULL;
            groups[number] = (group_facts){hash, facts->size, size, facts->is_inter, created_by, runs, 0};
            group_count++;
        }
    }
    free(ranks);
    return number;
}

/* Tells with how many neighbours a rank exchanges in a neighbour collective. */
static void ask_neighbours(word comm, communicator *facts) {
    const mpi_library *mpi = library();
    int32_t topology = 0, first = 0, second = 0, third = 0;
    if (MPI(Topo_test, comm, (word)&topology)) return;
    if (topology == mpi->cartesian) {
        MPI(Cartdim_get, comm, (word)&first);
        facts->sources = facts->targets = 2 * first;
    } else if (topology == mpi->distributed_graph) {
        MPI(Dist_graph_neighbors_count, comm, (word)&first, (word)&second, (word)&third);
        facts->sources = first, facts->targets = second;
    } else if (topology == mpi->graph) {
        MPI(Comm_rank, comm, (word)&first);
        MPI(Graph_neighbors_count, comm, first, (word)&second);
        facts->sources = facts->targets = second;
    }
}

static communicator ask_facts(word comm, const char *created_by) {
    int32_t size = 0, remote = 0, is_inter = 0;
    MPI(Comm_size, comm, (word)&size);
    MPI(Comm_test_inter, comm, (word)&is_inter);
    if (is_inter) MPI(Comm_remote_size, comm, (word)&remote);
    communicator facts = {.blocks = is_inter ? remote : size, .size = size, .is_inter = is_inter != 0};
    if (!is_inter) ask_neighbours(comm, &facts);
    facts.group = group_of(comm, &facts, created_by);
    return facts;
}

/* Adds a communicator and returns its facts; where all places are taken, they are asked for at each call. */
static communicator add(word comm, const char *created_by) {
    pthread_mutex_lock(&adding);
    const communicator facts = ask_facts(comm, created_by);
    int is_added = 0;
    const int has_place = free_count || comm_count < MAX_COMMS;
    if (has_place) {
        const int place = free_count ? free_comms[--free_count] : comm_count++;
        comms[place] = facts;
        is_added = put_handle(&comm_numbers, comm, place);
        if (!is_added) free_comms[free_count++] = place;
    }
    /* One without a place comes here at each call, but is created once. */
    if (is_added || created_by != UNKNOWN_CREATOR) groups[facts.group].communicators++;
    pthread_mutex_unlock(&adding);
    return facts;
}

communicator facts_of_comm(word passed) {
    const word comm = as_handle(passed);
    int64_t place = 0;
    if (find_handle(&comm_numbers, comm, &place)) return comms[place];
    const char *name = UNKNOWN_CREATOR;
    if (comm == library()->world) name = "MPI_COMM_WORLD";
    if (comm == library()->self) name = "MPI_COMM_SELF";
    return add(comm, name);
}

void add_comm(word passed, const char *created_by) {
    const word comm = as_handle(passed);
    if (is_null_comm(comm)) return;
    remove_comm(comm); /* a communicator that was freed where nobody saw it */
    add(comm, created_by);
}

void remove_comm(word passed) {
    const int64_t place = take_handle(&comm_numbers, as_handle(passed));
    if (place < 0) return;
    pthread_mutex_lock(&adding);
    free_comms[free_count++] = (int)place;
    pthread_mutex_unlock(&adding);
}
