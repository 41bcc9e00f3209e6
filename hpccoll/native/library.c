/* What the library says of itself: the sources that it was built from, and the version of its interface. */

#ifndef HPCCOLL_SOURCE_HASH
#error "HPCCOLL_SOURCE_HASH is missing; build with: python -m hpccoll.native.build"
#endif

#define EXPORT __attribute__((visibility("default")))

EXPORT const char hpccoll_source_hash[] = HPCCOLL_SOURCE_HASH;
EXPORT const int hpccoll_interface_version = 1;
