/* The groups of the program's communicators, as the ranks' files have them. */
#ifndef HPCCOLL_COUNTED_COMMUNICATORS_H
#define HPCCOLL_COUNTED_COMMUNICATORS_H

#include "counting.h"

typedef struct {
    uint64_t hash;          /* of the ranks */
    int size, blocks;       /* as in communicator */
    int is_inter;
    const char *created_by; /* the function */
    const char *runs;       /* the ranks in MPI_COMM_WORLD, of an intercommunicator the remote ones; NULL: unknown */
    int64_t communicators;  /* how many were created */
} group_facts;

extern group_facts groups[MAX_GROUPS];
int number_of_groups(void);

int world_is_initialized(void); /* not by MPI_Init, but by a session: there is no MPI_COMM_WORLD */

#endif
