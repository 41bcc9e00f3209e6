"""The order in which a reduction sums, seen from outside: a library's own call is a black box."""
