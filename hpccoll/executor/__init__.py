"""The executors of plans: in C, with its sources, build and loader, and in Python. The C executor has a timing loop."""
