/* What the library says of itself: the sources that it was built from, and the version of its interface. */

#include "executor.h"

#ifndef HPCCOLL_SOURCE_HASH
#error "HPCCOLL_SOURCE_HASH is missing; build with: python -m hpccoll.native.build"
#endif

HPCCOLL_API const char hpccoll_source_hash[] = HPCCOLL_SOURCE_HASH;
HPCCOLL_API const int hpccoll_interface_version = 1;
