"""What a rank runs: start, synchronisation and the timing loop here; ``run``, ``train`` and ``diagnose`` by program."""
