/* The hash of the sources that the library was built from. */

#include "executor.h"

#ifndef HPCCOLL_SOURCE_HASH
#error "HPCCOLL_SOURCE_HASH is missing; build with: python -m hpccoll.executor.build"
#endif

HPCCOLL_API const char hpccoll_source_hash[] = HPCCOLL_SOURCE_HASH;
